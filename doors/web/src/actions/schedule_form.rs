//! Making and changing schedules. A schedule is saved only after its next times were shown.

use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde_json::{Map, Value};
use spindle_http::{Answered, Problem};

use crate::actions::Answer;
use crate::actions::fields::{self, Field, Kind, input, written};
use crate::ask::{Asked, Match};
use crate::form::{self, Form};
use crate::html::{Tab, cut, hidden_form, shell};
use crate::page::Page;
use crate::pages::job::{of_json, read};
use crate::pages::named::{SCHEDULE, path_of};
use crate::pages::schedule::{MISSED, OVERLAP, next_times};
use crate::query::Query;
use crate::shapes::{JobBytes, Schedule};

/// The longest payload that the form shows, since a page has it escaped. A longer one is kept
/// unchanged.
const PAYLOAD_BYTES_MAX: usize = 8_192;

const NAME: Field = Field::new(&["name"], "name", "Name", "nightly-report", Kind::Text);
const TIMES: [Field; 5] = [
    Field::new(
        &["expression"],
        "expression",
        "Expression",
        "0 9 * * MON-FRI, @daily, every 90s",
        Kind::Text,
    ),
    Field::new(&["zone"], "zone", "Time zone", "UTC; or as Europe/Berlin", Kind::Text),
    Field::new(&["jitter_ms"], "spread", "Later by chance, up to", "0 s", Kind::Time),
    Field::new(&["start_at"], "start_at", "Not before", "2030-01-31T08:00:00Z", Kind::Text),
    Field::new(&["end_at"], "end_at", "Not after", "2030-12-31T08:00:00Z", Kind::Text),
];
const RULES: [Field; 3] = [
    Field::new(
        &["overlap"],
        "overlap",
        "While its last job is unfinished",
        "",
        Kind::Word(OVERLAP),
    ),
    Field::new(
        &["missed"],
        "missed",
        "Times missed while the server was down",
        "",
        Kind::Word(MISSED),
    ),
    Field::new(
        &["missed_max"],
        "missed_max",
        "For each, at most so many in a row",
        "100",
        Kind::Number,
    ),
];
const QUEUE: Field = Field::new(&["job", "queue"], "queue", "Queue", "reports", Kind::Text);
const JOB: [Field; 3] = [
    Field::new(&["job", "priority"], "priority", "Priority", "0; higher goes first", Kind::Signed),
    Field::new(&["job", "tags"], "tags", "Tags", "parted by commas", Kind::Texts),
    Field::new(
        &["job", "fair_key"],
        "fair_key",
        "Fair key, in a fair queue",
        "as the queue's field says",
        Kind::Text,
    ),
];
const MORE: [Field; 9] = [
    Field::new(&["job", "ttr_ms"], "ttr", "Time to run", "as the queue's", Kind::Time),
    Field::new(&["job", "ttl_ms"], "ttl", "Time to live", "no limit", Kind::Time),
    Field::new(&["job", "keep_ms"], "keep", "Keep when done", "as the queue's", Kind::Time),
    Field::new(
        &["job", "fails_max"],
        "fails_max",
        "Failures at most",
        "as the queue's",
        Kind::Number,
    ),
    Field::new(
        &["job", "attempts_max"],
        "attempts_max",
        "Leases at most",
        "as the queue's",
        Kind::Number,
    ),
    Field::new(
        &["job", "backoff", "base_ms"],
        "base",
        "Wait after a failure",
        "as the queue's",
        Kind::Time,
    ),
    Field::new(
        &["job", "backoff", "factor"],
        "factor",
        "After each further one, times",
        "",
        Kind::Decimal,
    ),
    Field::new(&["job", "backoff", "cap_ms"], "cap", "But no longer than", "", Kind::Time),
    Field::new(
        &["job", "backoff", "jitter"],
        "jitter",
        "Share that chance may take off",
        "",
        Kind::Decimal,
    ),
];

const TAKEN: &str = "there is a schedule of this name already: take another name";

/// All fields that are read in one way.
fn tables() -> impl Iterator<Item = &'static Field> {
    TIMES.iter().chain(&RULES).chain([&QUEUE]).chain(&JOB).chain(&MORE)
}

/// The form: of a schedule that is there, or for a new one.
pub(crate) async fn show(page: Page) -> Answer {
    let query = page.query();
    if query.get("name").is_none() {
        let sheet = Sheet { name: None, tag: "", values: &query, wrong: None };
        return Ok(sheet.page(&page, None).await);
    }
    let (name, path) = SCHEDULE.named(&query)?;
    let (set, tag): (Value, String) = page.ask.get_tagged(&path).await?;
    let values = values_of(&set)?;
    let sheet = Sheet { name: Some(&name), tag: &tag, values: &values, wrong: None };
    Ok(sheet.page(&page, None).await)
}

/// Shows the next times of the schedule in the form; once those were shown, puts the schedule: a
/// new one, or a replacement of the one that its page showed, unless somebody else has changed that
/// meanwhile.
pub(crate) async fn save(page: Page, asked: Form) -> Answer {
    let known = SCHEDULE.named(&page.query()).ok();
    let values = asked.query();
    let sheet = Sheet {
        name: known.as_ref().map(|(name, _)| name.as_str()),
        tag: asked.field("tag"),
        values: &values,
        wrong: None,
    };
    let is_seen = asked.field("do") == "save" && asked.field("seen") == times_said(&values);
    let done = if is_seen {
        put(&page, &sheet, &asked).await
    } else {
        preview(&page, &sheet, &asked).await
    };
    let Err(fault) = done else { return done };
    // The form is shown again with the values that were entered.
    let detail = match (fault.status().as_u16(), sheet.name) {
        (412, None) => TAKEN,
        _ => fault.detail.as_str(),
    };
    let mut response = Sheet { wrong: Some(detail), ..sheet }.page(&page, None).await;
    *response.status_mut() = fault.status();
    Ok(response)
}

async fn put(page: &Page, sheet: &Sheet<'_>, asked: &Form) -> Answer {
    let (name, path, body) = wanted(page, sheet, asked).await?;
    let matching = sheet.name.map_or(Match::Nothing, |_| Match::Tag(sheet.tag));
    page.ask.put(&path, &body.into(), matching).await?;
    Ok(Redirect::to(&path_of("/schedule", &name)).into_response())
}

async fn preview(page: &Page, sheet: &Sheet<'_>, asked: &Form) -> Answer {
    let (_, path, mut body) = wanted(page, sheet, asked).await?;
    if sheet.name.is_none() && page.ask.get::<Schedule>(&path).await.is_ok() {
        return Err(Problem::out_of_range(TAKEN).into());
    }
    // While it is paused it has no times.
    body.remove("paused");
    let times: Schedule = page.ask.preview(&path, &body.into()).await?;
    Ok(sheet.page(page, Some(&times)).await)
}

/// The name, the address in the API, and what to put there.
async fn wanted(
    page: &Page,
    sheet: &Sheet<'_>,
    asked: &Form,
) -> Asked<(String, String, Map<String, Value>)> {
    let name = sheet.name.or_else(|| asked.given("name")).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Problem::out_of_range("the schedule needs a name").into());
    }
    let path = SCHEDULE.in_api(&name);
    let before: Option<Value> = match sheet.name {
        Some(_) => Some(page.ask.get(&path).await?),
        None => None,
    };
    Ok((name, path, body(asked, before.as_ref())?))
}

/// The form's values as the API's request body. Fields that are not in the form stay as before.
fn body(form: &Form, before: Option<&Value>) -> Answered<Map<String, Value>> {
    let mut body = fields::body(tables(), form)?;
    if let Some(paused) = before.and_then(|before| before.get("paused")) {
        body.insert("paused".to_owned(), paused.clone());
    }
    let job = body.entry("job").or_insert_with(|| Map::new().into());
    let job = job.as_object_mut().expect("it was made as one");
    if let Some(name) = form.given("queue_base64") {
        job.insert("queue_base64".to_owned(), name.into());
    }
    job.extend(payload(form, before));
    Ok(body)
}

fn payload(form: &Form, before: Option<&Value>) -> Map<String, Value> {
    let text = form.lines("payload");
    let mut payload = Map::new();
    if text.trim().is_empty() && form.field("payload_kept") == "yes" {
        let kept = ["payload", "payload_base64", "payload_type"].into_iter();
        let kept = kept.filter_map(|key| Some((key.to_owned(), before?["job"].get(key)?.clone())));
        payload.extend(kept);
    } else if !text.is_empty() {
        let kind = if form.field("payload_type") == "text" { "bytes" } else { "json" };
        payload.insert("payload_base64".to_owned(), STANDARD.encode(text).into());
        payload.insert("payload_type".to_owned(), kind.into());
    }
    payload
}

/// The form's values for an existing schedule.
fn values_of(set: &Value) -> Asked<Query> {
    let mut values = Query::new();
    for field in tables() {
        values = values.with(field.name, &written(set, field));
    }
    let text = |key: &str| set["job"][key].as_str().unwrap_or_default();
    let values = values.with("queue_base64", text("queue_base64"));
    let parts: JobBytes = read(&set["job"].to_string())?;
    let Some(found) = of_json(parts.payload.as_deref(), parts.payload_base64.as_deref()) else {
        return Ok(values);
    };
    // A payload that is neither JSON nor bytes is MessagePack.
    let kind = if parts.payload.is_some() { "json" } else { text("payload_type") };
    let kind_in_form = if kind == "json" { "json" } else { "text" };
    let is_short = found.len() <= PAYLOAD_BYTES_MAX;
    Ok(match form::text_of(found, kind).filter(|_| is_short) {
        Some(text) => values.with("payload", &text).with("payload_type", kind_in_form),
        None => values.with("payload_kept", "yes"),
    })
}

/// The values that its times depend on.
fn times_said(values: &Query) -> String {
    let said = TIMES.iter().map(|field| values.get(field.name).unwrap_or_default().trim());
    said.collect::<Vec<_>>().join("|")
}

/// The form as a page.
struct Sheet<'a> {
    /// Of a schedule that is there.
    name: Option<&'a str>,
    /// Which revision of it.
    tag: &'a str,
    /// What stands in the fields.
    values: &'a Query,
    wrong: Option<&'a str>,
}

impl Sheet<'_> {
    fn value(&self, name: &str) -> &str {
        self.values.get(name).unwrap_or_default()
    }

    /// The page, with the schedule's next times where they are known.
    async fn page(&self, page: &Page, times: Option<&Schedule>) -> Response {
        let title = match self.name {
            Some(name) => format!("Change the schedule {}", cut(name, 200)),
            None => "New schedule".to_owned(),
        };
        let to = |path: &str| self.name.map_or(path.to_owned(), |name| path_of(path, name));
        let back = self.name.map_or("/schedules".to_owned(), |name| path_of("/schedule", name));
        let body = html! {
            h1 dir="auto" { (title) }
            @if let Some(wrong) = self.wrong { p.notice.bad role="alert" { (wrong) } }
            form.stack method="post" action=(to("/schedule/edit")) {
                (hidden_form(page))
                input type="hidden" name="tag" value=(self.tag);
                @if let Some(times) = times { (self.preview(times, page.now_ms())) }
                h2 { "When" }
                div.fields {
                    @if self.name.is_none() { (self.input(&NAME, true)) }
                    @for field in &TIMES { (self.input(field, field.name == "expression")) }
                }
                p.muted {
                    "Minute, hour, day, month, day of the week; with six fields seconds come first. Also "
                    code { "@hourly" } " and the like, and " code { "every 90s" } "."
                }
                h2 { "What it submits" }
                (self.job())
                h2 { "When it cannot run in time" }
                div.fields { @for field in &RULES { (self.input(field, false)) } }
                div.acts {
                    button.btn.primary type="submit" name="do" value="preview" { "Preview its times" }
                    a.btn href=(back) { "Back" }
                }
            }
        };
        shell(page, Tab::Schedules, &title, body).await
    }

    fn input(&self, field: &Field, is_required: bool) -> Markup {
        input(field, self.value(field.name), field.hint, is_required)
    }

    /// The next times, and the button that saves this schedule.
    fn preview(&self, times: &Schedule, now_ms: u64) -> Markup {
        html! {
            section.preview aria-label="Preview" {
                h2 { "Its next times would be" }
                (next_times(times, now_ms))
                input type="hidden" name="seen" value=(times_said(self.values));
                div.acts {
                    button.btn.primary type="submit" name="do" value="save" { "Save the schedule" }
                    span.muted { "Nothing is saved yet." }
                }
            }
        }
    }

    fn job(&self) -> Markup {
        let is_text = self.value("payload_type") == "text";
        let is_kept = self.value("payload_kept") == "yes";
        let queue_base64 = self.value("queue_base64");
        html! {
            div.fields {
                @if queue_base64.is_empty() { (self.input(&QUEUE, true)) }
                @else {
                    div {
                        input type="hidden" name="queue_base64" value=(queue_base64);
                        p.muted { "To the queue whose name in base64 is " code { (cut(queue_base64, 80)) } "." }
                    }
                }
                @for field in &JOB { (self.input(field, false)) }
            }
            label for="payload" { "Payload" }
            @if is_kept {
                input type="hidden" name="payload_kept" value="yes";
                p.muted { "It has one that is too long or no text for a form: it stays, unless you write another one here." }
            }
            textarea #payload name="payload" rows="6" spellcheck="false" placeholder="{\"kind\": \"daily\"}" {
                // A line end right behind the tag is not part of the text.
                "\n" (self.value("payload"))
            }
            div.choice {
                label { input type="radio" name="payload_type" value="json" checked[!is_text]; " JSON" }
                label { input type="radio" name="payload_type" value="text" checked[is_text]; " Text, as it is" }
            }
            details open[MORE.iter().any(|field| !self.value(field.name).is_empty())] {
                summary { "Tries and times of its jobs" }
                div.fields { @for field in &MORE { (self.input(field, false)) } }
            }
        }
    }
}
