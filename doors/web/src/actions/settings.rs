//! The settings of a queue: all that the API can set, as a form.

use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;

use crate::actions::Answer;
use crate::actions::fields::{Field, Kind, body, input, written};
use crate::ask::Match;
use crate::form::Form;
use crate::html::{Tab, cut, hidden_form, queue_path, shell};
use crate::page::Page;
use crate::pages::queue::named;
use crate::shapes::{Queue, QueueName};

const TRIES: [Field; 6] = [
    Field::new(
        &["fails_max"],
        "fails_max",
        "Failures until a job is dead",
        "5; 0 is no limit",
        Kind::Number,
    ),
    Field::new(
        &["attempts_max"],
        "attempts_max",
        "Leases until a job is dead",
        "5; 0 is no limit",
        Kind::Number,
    ),
    Field::new(&["backoff", "base_ms"], "base", "Wait after the first failure", "10 s", Kind::Time),
    Field::new(
        &["backoff", "factor"],
        "factor",
        "After each further one, times",
        "2",
        Kind::Decimal,
    ),
    Field::new(&["backoff", "cap_ms"], "cap", "But no longer than", "1 h", Kind::Time),
    Field::new(
        &["backoff", "jitter"],
        "jitter",
        "Share of the wait that chance may take off",
        "0.25",
        Kind::Decimal,
    ),
];
const TIMES: [Field; 4] = [
    Field::new(
        &["ttr_default_ms"],
        "ttr_default",
        "Time to run of jobs that have none",
        "1 min",
        Kind::Time,
    ),
    Field::new(&["keep_ms"], "keep", "Keep done jobs for", "1 day", Kind::Time),
    Field::new(&["keep_dead_ms"], "keep_dead", "Keep dead jobs for", "7 days", Kind::Time),
    Field::new(
        &["finished_max"],
        "finished_max",
        "Keep at most so many done and dead jobs",
        "",
        Kind::Number,
    ),
];
const LIMITS: [Field; 4] = [
    Field::new(
        &["jobs_max"],
        "jobs_max",
        "Unfinished jobs at most; more are refused",
        "",
        Kind::Number,
    ),
    Field::new(&["bytes_max"], "bytes_max", "Bytes of their payloads at most", "", Kind::Number),
    Field::new(
        &["aging_ms"],
        "aging",
        "Jobs gain a step of priority each time they have waited",
        "10 min",
        Kind::Time,
    ),
    Field::new(
        &["bytes_type"],
        "bytes_type",
        "What Workq's and Gearman's payloads are, for constraints",
        "",
        Kind::Word(&[
            ("", "not set"),
            ("bytes", "bytes"),
            ("json", "json"),
            ("msgpack", "msgpack"),
        ]),
    ),
];

/// The settings in groups, each with its heading.
const GROUPS: [(&str, &[Field]); 3] = [
    ("When a job fails", &TRIES),
    ("How long jobs run and are kept", &TIMES),
    ("How many there may be, and their order", &LIMITS),
];

fn fields() -> impl Iterator<Item = &'static Field> {
    GROUPS.iter().flat_map(|(_, fields)| fields.iter())
}

/// What a setting of the API is called in the form; none if it has no field of its own there.
pub(crate) fn label(name: &str) -> Option<&'static str> {
    fields().find(|field| field.path == [name]).map(|field| field.label)
}

/// The form, with what is set now.
pub(crate) async fn show(page: Page) -> Answer {
    let (name, path) = named(&page.query())?;
    let (set, tag): (Value, String) = page.ask.get_tagged(&format!("{path}/settings")).await?;
    let value = |field: &Field| written(&set, field);
    let body = form(&page, &name, value, Kept { tag: &tag, fair: &set["fair"] }, None);
    Ok(shell(&page, Tab::Queues, "Settings", body).await)
}

/// Saves the form's settings, unless somebody else has changed settings meanwhile.
pub(crate) async fn save(page: Page, asked: Form) -> Answer {
    let (name, path) = named(&asked.query())?;
    let path_of_settings = format!("{path}/settings");
    // If somebody has changed it since the form was made, the tag does not fit.
    let (now, _): (Value, String) = page.ask.get_tagged(&path_of_settings).await?;
    let kept = Kept { tag: asked.field("tag"), fair: &now["fair"] };
    let set = match body(fields(), &asked) {
        Ok(mut body) => {
            if !kept.fair.is_null() {
                body.insert("fair".to_owned(), kept.fair.clone());
            }
            page.ask.put(&path_of_settings, &body.into(), Match::Tag(kept.tag)).await
        }
        Err(problem) => Err(problem.into()),
    };
    let Err(fault) = set else {
        // An empty queue goes when nothing is set for it any more.
        let is_there = page.ask.get::<Queue>(&path).await.is_ok();
        let to = if is_there { queue_path("/queue", &name) } else { "/queues".to_owned() };
        return Ok(Redirect::to(&to).into_response());
    };
    // The form is shown again with the values that were entered.
    let value = |field: &Field| asked.field(field.name).to_owned();
    let body = form(&page, &name, value, kept, Some(&fault.detail));
    let mut response: Response = shell(&page, Tab::Queues, "Settings", body).await;
    *response.status_mut() = fault.status();
    Ok(response)
}

/// What the form carries besides its fields.
#[derive(Clone, Copy)]
struct Kept<'a> {
    /// The entity tag of the settings that it was made from.
    tag: &'a str,
    /// Weights of keys are for the API and the command line: they stay as they are.
    fair: &'a Value,
}

fn form(
    page: &Page,
    name: &QueueName,
    value: impl Fn(&Field) -> String,
    Kept { tag, fair }: Kept<'_>,
    wrong: Option<&str>,
) -> Markup {
    let (queue_field, queue) = name.field();
    html! {
        div {
            h1 dir="auto" { "Settings of " (cut(&name.shown(), 200)) }
            p.muted { "What is left empty is as the protocol of each job has it by default." }
            @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
            form.stack method="post" action="/queue/settings" {
                (hidden_form(page))
                input type="hidden" name=(queue_field) value=(queue);
                input type="hidden" name="tag" value=(tag);
                @for (title, fields) in GROUPS {
                    h2 { (title) }
                    div.fields { @for field in fields { (input(field, &value(field), &hint(field), false)) } }
                }
                @if !fair.is_null() {
                    p.muted {
                        "Its keys take turns, and that stays so. It is changed with "
                        code { "spindle queue set --fair" } "."
                    }
                }
                div.acts {
                    button.btn.primary type="submit" { "Save the settings" }
                    a.btn href=(queue_path("/queue", name)) { "Back" }
                }
            }
        }
    }
}

fn hint(Field { hint, .. }: &Field) -> String {
    if hint.is_empty() { "not set".to_owned() } else { format!("not set; for example {hint}") }
}
