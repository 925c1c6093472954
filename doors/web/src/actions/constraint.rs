//! Putting, changing and removing constraints.

use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use spindle_http::{Answered, Code, ConditionBody, Op, Problem};

use crate::actions::times::{time_read, time_written};
use crate::actions::{Answer, Question};
use crate::ask::Match;
use crate::form::Form;
use crate::html::{Tab, cut, hidden_form, shell};
use crate::page::Page;
use crate::pages::constraints::op_words;
use crate::pages::named::{CONSTRAINT, path_of};
use crate::shapes::Constraint;

/// Conditions that the API takes.
const CONDITIONS_MAX: usize = 16;
/// Empty lines for conditions below those that are there.
const CONDITIONS_MORE: usize = 2;
const OPS: [Op; 10] =
    [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::In, Op::Glob, Op::Exists, Op::Absent];

/// The field that lets each shard limit its own jobs, in the form and in the API.
const PER_SHARD: &str = "per_shard";

/// Name, label, what to write.
struct Field(&'static str, &'static str, &'static str);

const WHOSE: [Field; 3] = [
    Field("queue", "Jobs of the queue", "mail; empty: of all queues"),
    Field("queue_glob", "Or of queues like", "mail.*"),
    Field(
        "per",
        "For each value of this payload field",
        "/user/id, or fair_key: for each key; empty: for all together",
    ),
];
const LIMITS: [Field; 4] = [
    Field("running_max", "Jobs running at once, at most", "10"),
    Field("count", "Starts", "100"),
    Field("per_time", "In a time of", "1 min"),
    Field("burst", "At once, at most", "as many as starts"),
];

/// The form: of a constraint that is there, or for a new one.
pub(crate) async fn show(page: Page) -> Answer {
    if page.query().get("name").is_none() {
        let query = page.query();
        let value = |name: &str| query.get(name).unwrap_or_default().to_owned();
        return Ok(whole(&page, None, value, "", &Wrong::default()).await);
    }
    let (name, path) = CONSTRAINT.named(&page.query())?;
    let (set, tag): (Constraint, String) = page.ask.get_tagged(&path).await?;
    Ok(whole(&page, Some(&name), |field| written(&set, field), &tag, &Wrong::default()).await)
}

/// Puts the constraint of the form: a new one, or a replacement of the one that its page showed,
/// unless somebody else has changed that meanwhile.
pub(crate) async fn save(page: Page, asked: Form) -> Answer {
    let known = CONSTRAINT.named(&page.query()).ok();
    let name = match &known {
        Some((name, _)) => name.clone(),
        None => asked.given("name").unwrap_or_default().to_owned(),
    };
    let tag = asked.field("tag");
    let matching = if known.is_some() { Match::Tag(tag) } else { Match::Nothing };
    let put = match body(&name, &asked) {
        Ok(body) => page.ask.put(&CONSTRAINT.in_api(&name), &body, matching).await,
        Err(problem) => Err(problem.into()),
    };
    let Err(fault) = put else {
        return Ok(Redirect::to(&path_of("/constraint", &name)).into_response());
    };
    // The form is shown again with the values that were entered.
    let value = |field: &str| asked.field(field).to_owned();
    let shown = known.as_ref().map(|(name, _)| name.as_str());
    let spans_shards = fault.code == Code::SeveralShards.as_str();
    let detail = match (fault.status().as_u16(), shown) {
        (412, None) => {
            "There is a constraint of this name already: change that, or take another name"
        }
        _ if spans_shards => {
            "Its queues may be on several shards, each of which counts its own jobs. Name one queue, or queues \
             that have the same {...} before any * or ?, or let each shard limit its own jobs"
        }
        _ => fault.detail.as_str(),
    };
    let wrong = Wrong { detail: Some(detail), spans_shards };
    let mut response = whole(&page, shown, value, tag, &wrong).await;
    *response.status_mut() = fault.status();
    Ok(response)
}

/// The question before it is removed.
pub(crate) async fn ask_remove(page: Page) -> Answer {
    let (name, path) = CONSTRAINT.named(&page.query())?;
    let (set, tag): (Constraint, String) = page.ask.get_tagged(&path).await?;
    let held = crate::pages::constraints::held(&set);
    let about = html! {
        @if held > 0 { p { "Jobs that it holds back may start at once: " b { (held) } " wait for it." } }
        @else { p { "Jobs that it would hold back may start at once." } }
        p { "It can be made again; what it counted begins anew then." }
    };
    let question = Question {
        tab: Tab::Constraints,
        title: &format!("Remove the constraint {}?", cut(&name, 200)),
        about,
        fields: html! { input type="hidden" name="tag" value=(tag); },
        button: "Remove the constraint",
        is_dangerous: true,
        to: &path_of("/constraint/remove", &name),
        back: &path_of("/constraint", &name),
    };
    Ok(question.ask(&page).await)
}

/// Removes it, if it is still as it was shown.
pub(crate) async fn remove(page: Page, asked: Form) -> Answer {
    let (_, path) = CONSTRAINT.named(&page.query())?;
    page.ask.remove(&path, asked.field("tag")).await?;
    Ok(Redirect::to("/constraints").into_response())
}

/// What is wrong with the values that were entered.
#[derive(Default)]
struct Wrong<'a> {
    detail: Option<&'a str>,
    /// One limit applies to several shards together.
    spans_shards: bool,
}

/// The form as a page. `name` is that of a constraint that is there.
async fn whole(
    page: &Page,
    name: Option<&str>,
    value: impl Fn(&str) -> String,
    tag: &str,
    wrong: &Wrong<'_>,
) -> Response {
    let title = match name {
        Some(name) => format!("Change the constraint {}", cut(name, 200)),
        None => "New constraint".to_owned(),
    };
    let back = name.map_or("/constraints".to_owned(), |name| path_of("/constraint", name));
    // The name goes in the address, where any characters survive unchanged.
    let to = name.map_or("/constraint/edit".to_owned(), |name| path_of("/constraint/edit", name));
    let body = html! {
        h1 dir="auto" { (title) }
        p.muted { "It holds for jobs of all doors. It needs a limit of running jobs, of starts in a time, or both." }
        @if let Some(wrong) = wrong.detail { p.notice.bad role="alert" { (wrong) } }
        form.stack method="post" action=(to) {
            (hidden_form(page))
            input type="hidden" name="tag" value=(tag);
            @if name.is_none() {
                div.fields { (input(&Field("name", "Name", "smtp"), &value("name"), true)) }
            }
            h2 { "Which jobs" }
            div.fields { @for field in &WHOSE { (input(field, &value(field.0), false)) } }
            (conditions(&value))
            h2 { "How many" }
            div.fields { @for field in &LIMITS { (input(field, &value(field.0), false)) } }
            // Shown only where shards matter.
            @let is_per_shard = !value(PER_SHARD).is_empty();
            @if wrong.spans_shards || is_per_shard {
                p {
                    label {
                        input type="checkbox" name=(PER_SHARD) value="yes" checked[is_per_shard];
                        " Each shard limits its own jobs"
                    }
                }
            }
            div.acts {
                button.btn.primary type="submit" { "Save the constraint" }
                a.btn href=(back) { "Back" }
            }
        }
    };
    shell(page, Tab::Constraints, &title, body).await
}

fn input(Field(name, label, hint): &Field, value: &str, is_required: bool) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            input id=(name) name=(name) value=(value) placeholder=(hint) maxlength="512"
                required[is_required] autocomplete="off";
        }
    }
}

/// Conditions on the payload: those that are there, and some empty lines.
fn conditions(value: &impl Fn(&str) -> String) -> Markup {
    let field = |part: &str, number: usize| format!("{part}{number}");
    let is_there = |number: &usize| !value(&field("pointer", *number)).is_empty();
    let last = (0..CONDITIONS_MAX).rev().find(is_there).map_or(0, |last| last + 1);
    html! {
        fieldset {
            legend { "Whose payload says all of this (JSON or MessagePack)" }
            @for number in 0..CONDITIONS_MAX.min(last + CONDITIONS_MORE) {
                @let (pointer, op, compared) =
                    (field("pointer", number), field("op", number), field("value", number));
                div.condition {
                    input name=(pointer) value=(value(&pointer)) placeholder="/plan" maxlength="1024"
                        aria-label={ "Field " (number + 1) } autocomplete="off";
                    select name=(op) aria-label={ "How field " (number + 1) " compares" } {
                        @let chosen = value(&op);
                        @for it in OPS {
                            option value=(word(it)) selected[chosen == word(it)] { (op_words(it)) }
                        }
                    }
                    input name=(compared) value=(value(&compared)) placeholder="free" maxlength="1024"
                        aria-label={ "With what field " (number + 1) " compares" } autocomplete="off";
                }
            }
            p.muted {
                "A field is a JSON Pointer. Numbers, " code { "true" } ", " code { "false" } " and " code { "null" }
                " are taken as such; in quotes they are texts. Several values: a JSON list."
            }
        }
    }
}

/// An operator as the API has it.
fn word(op: Op) -> String {
    serde_json::to_value(op).ok().and_then(|op| op.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What is set, as the form writes it.
fn written(set: &Constraint, field: &str) -> String {
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let rate = set.rate.as_ref();
    match field {
        "queue" => set.queue.clone().unwrap_or_default(),
        "queue_glob" => set.queue_glob.clone().unwrap_or_default(),
        "per" => set.per.clone().unwrap_or_default(),
        "running_max" => number(set.running_max),
        PER_SHARD if set.per_shard => "yes".to_owned(),
        "count" => number(rate.map(|rate| rate.count)),
        "per_time" => rate.map(|rate| time_written(rate.per_ms)).unwrap_or_default(),
        "burst" => number(rate.and_then(|rate| rate.burst.filter(|burst| *burst != rate.count))),
        _ => condition_written(&set.conditions, field).unwrap_or_default(),
    }
}

fn condition_written(conditions: &[ConditionBody], field: &str) -> Option<String> {
    let digits = field.find(|c: char| c.is_ascii_digit())?;
    let (part, number) = field.split_at(digits);
    let condition = conditions.get(number.parse::<usize>().ok()?)?;
    Some(match part {
        "pointer" => condition.pointer.clone(),
        "op" => word(condition.op),
        _ => match (&condition.value, &condition.values) {
            (Some(value), _) => scalar_written(value),
            (None, Some(values)) => Value::from(values.clone()).to_string(),
            (None, None) => String::new(),
        },
    })
}

/// A text as it is; one that would be read as another JSON value is quoted.
fn scalar_written(value: &Value) -> String {
    match value {
        Value::String(text) if scalar_read(text) == *value => text.clone(),
        value => value.to_string(),
    }
}

/// Reads JSON if the text is JSON, and else takes it as text.
fn scalar_read(text: &str) -> Value {
    match serde_json::from_str(text.trim()) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null | Value::String(_))) => value,
        _ => text.into(),
    }
}

/// The form's values as the API's request body.
fn body(name: &str, form: &Form) -> Answered<Value> {
    if name.is_empty() {
        return Err(Problem::out_of_range("the constraint needs a name"));
    }
    let mut body = Map::new();
    for field in ["queue", "queue_glob", "per"] {
        if let Some(text) = form.given(field) {
            body.insert(field.to_owned(), text.into());
        }
    }
    if form.given(PER_SHARD).is_some() {
        body.insert(PER_SHARD.to_owned(), true.into());
    }
    if let Some(max) = number(form, "running_max", "the most jobs running at once")? {
        body.insert("running_max".to_owned(), max.into());
    }
    if let Some(rate) = rate(form)? {
        body.insert("rate".to_owned(), rate);
    }
    let conditions: Vec<Value> = (0..CONDITIONS_MAX).filter_map(|it| condition(form, it)).collect();
    if !conditions.is_empty() {
        body.insert("where".to_owned(), conditions.into());
    }
    Ok(Value::Object(body))
}

fn number(form: &Form, field: &str, what: &str) -> Answered<Option<u64>> {
    let Some(text) = form.given(field) else { return Ok(None) };
    let number = text.replace(',', "").parse::<u64>();
    let number = number.map_err(|_| Problem::out_of_range(format!("{what} is a whole number")))?;
    Ok(Some(number))
}

fn rate(form: &Form) -> Answered<Option<Value>> {
    let count = number(form, "count", "how many may start")?;
    let burst = number(form, "burst", "how many may start at once")?;
    let per = form.given("per_time");
    let Some(count) = count else {
        if per.is_some() || burst.is_some() {
            return Err(Problem::out_of_range("how many may start in that time is not said"));
        }
        return Ok(None);
    };
    let per = per.ok_or_else(|| Problem::out_of_range("in what time they start is not said"))?;
    let per_ms = time_read(per).ok_or_else(|| {
        Problem::out_of_range(format!("{per} is no time; write it as in 90 s, 5 min or 1 h"))
    })?;
    Ok(Some(json!({ "count": count, "per_ms": per_ms, "burst": burst })))
}

fn condition(form: &Form, number: usize) -> Option<Value> {
    let pointer = form.given(&format!("pointer{number}"))?;
    let (op, text) = (form.field(&format!("op{number}")), form.field(&format!("value{number}")));
    let mut condition = json!({ "pointer": pointer, "op": op });
    match op {
        "exists" | "absent" => {}
        "in" => {
            let values: Vec<Value> = serde_json::from_str(text.trim())
                .unwrap_or_else(|_| text.split(',').map(|it| scalar_read(it.trim())).collect());
            condition["values"] = values.into();
        }
        _ => condition["value"] = scalar_read(text),
    }
    Some(condition)
}
