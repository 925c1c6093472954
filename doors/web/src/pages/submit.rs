//! Submitting a job by hand.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde_json::{Map, Value};
use spindle_access::Role;
use spindle_http::Problem;

use crate::actions::fields::{self, Field, Kind, input};
use crate::ask::Fault;
use crate::form::Form;
use crate::html::{Tab, hidden_form, job_link, shell};
use crate::page::Page;
use crate::pages::recent;
use crate::query::Query;
use crate::shapes::Submitted;

/// The fields of a job besides its queue and payload.
const FIELDS: [Field; 8] = [
    Field::new(&["priority"], "priority", "Priority", "0; higher goes first", Kind::Signed),
    Field::new(&["run_at"], "run_at", "Not before", "2030-01-31T08:00:00Z, or now", Kind::Text),
    Field::new(&["tags"], "tags", "Tags", "parted by commas", Kind::Texts),
    Field::new(
        &["unique", "key"],
        "unique_key",
        "Unique key",
        "at most one unfinished job of the queue has it",
        Kind::Text,
    ),
    Field::new(
        &["after"],
        "after",
        "After the jobs or batches",
        "their numbers, parted by commas: it waits until all are done",
        Kind::Numbers,
    ),
    Field::new(&["on_dead"], ON_DEAD, "When one of those dies", "", Kind::Word(ON_DEAD_WORDS)),
    Field::new(&["batch"], "batch", "Batch", "the number of an open one", Kind::Number),
    Field::new(
        &["fair_key"],
        "fair_key",
        "Fair key, in a fair queue",
        "as the queue's field says",
        Kind::Text,
    ),
];
/// This field has no meaning for a job that waits for no other.
const ON_DEAD: &str = "on_dead";
const ON_DEAD_WORDS: &[(&str, &str)] =
    &[("cancel", "cancel it"), ("run", "run it all the same"), ("wait", "go on waiting")];

/// The form: empty, filled from the address, or filled from a job that is to be submitted again.
pub(crate) async fn show(page: Page) -> Response {
    let query = page.query();
    let like = match query.get("like") {
        Some(id) => recent::like(&page, id).await,
        None => Query::new(),
    };
    let value = |name: &str| query.get(name).or(like.get(name)).unwrap_or_default().to_owned();
    let start = recent::of_queue(&page, &query).await;
    let body = html! {
        (form(&page, value, None))
        (start)
    };
    shell(&page, Tab::Submit, "Submit a job", body).await
}

/// Submits the job of the form. An error is shown at its field or above the form, and the input is
/// kept.
pub(crate) async fn take(page: Page, asked: Form) -> Response {
    let taken = match body(&asked) {
        Ok(body) => page.ask.post("/api/v1/jobs", &body).await.map_err(Wrong::of),
        Err(wrong) => Err(wrong),
    };
    match taken {
        Ok(Submitted { id }) if page.may(Role::Read) => {
            Redirect::to(&format!("/jobs/{id}")).into_response()
        }
        Ok(Submitted { id }) => {
            let body =
                html! { h1 { "Submitted" } p { "The job has the number " (job_link(id)) "." } };
            shell(&page, Tab::Submit, "Submitted", body).await
        }
        Err(wrong) => {
            let status = wrong.fault.status();
            let body = form(&page, |name: &str| asked.field(name).to_owned(), Some(&wrong));
            let mut response = shell(&page, Tab::Submit, "Submit a job", body).await;
            *response.status_mut() =
                if status.is_success() { StatusCode::INTERNAL_SERVER_ERROR } else { status };
            response
        }
    }
}

/// What is wrong with a form.
struct Wrong {
    /// The name of the field, if it is one of [`FIELDS`].
    field: Option<&'static str>,
    fault: Fault,
}

impl Wrong {
    /// Assigns an error of the API to a field: the text begins with the field's name, or the code
    /// tells which field it is.
    fn of(fault: Fault) -> Wrong {
        let first = match fault.code.as_str() {
            "after_not_found" => Some("after"),
            "batch_not_found" | "batch_sealed" | "batch_full" => Some("batch"),
            _ => fault.detail.split([' ', '.']).next(),
        };
        let field = FIELDS.iter().find(|field| first == field.path.first().copied());
        Wrong { field: field.map(|field| field.name), fault }
    }

    /// The error shown at this place of the form.
    fn at(wrong: Option<&Wrong>, field: Option<&str>) -> Markup {
        html! {
            @if let Some(wrong) = wrong.filter(|wrong| wrong.field == field) {
                p.notice.bad role="alert" { (wrong.fault.detail) }
            }
        }
    }
}

fn form(page: &Page, value: impl Fn(&str) -> String, wrong: Option<&Wrong>) -> Markup {
    let is_text = value("payload_type") == "text";
    let is_said = |field: &Field| field.name != ON_DEAD && !value(field.name).is_empty();
    html! {
        div.narrow {
            h1 { "Submit a job" }
            (Wrong::at(wrong, None))
            form.stack method="post" action="/submit" {
                (hidden_form(page))
                @if !value("queue_base64").is_empty() && value("queue").is_empty() {
                    input type="hidden" name="queue_base64" value=(value("queue_base64"));
                    p.muted { "For the queue whose name in base64 is " code { (value("queue_base64")) } "." }
                } @else {
                    label for="queue" { "Queue" }
                    input #queue name="queue" value=(value("queue")) required maxlength="512" autocomplete="off";
                }
                label for="payload" { "Payload" }
                textarea #payload name="payload" rows="8" spellcheck="false" placeholder="{\"to\": \"a@example.org\"}" {
                    // A line end right behind the tag is not part of the text.
                    "\n" (value("payload"))
                }
                div.choice {
                    label { input type="radio" name="payload_type" value="json" checked[!is_text]; " JSON" }
                    label { input type="radio" name="payload_type" value="text" checked[is_text]; " Text, as it is" }
                }
                details open[FIELDS.iter().any(is_said)] {
                    summary { "More" }
                    @for field in &FIELDS {
                        (input(field, &value(field.name), field.hint, false))
                        (Wrong::at(wrong, Some(field.name)))
                    }
                }
                button.btn.primary type="submit" { "Submit" }
            }
        }
    }
}

/// The API's request body.
fn body(form: &Form) -> Result<Value, Wrong> {
    let mut body = Map::new();
    for name in ["queue", "queue_base64"] {
        if let Some(text) = form.given(name) {
            body.insert(name.to_owned(), text.into());
        }
    }
    // In base64 the payload is kept exactly as written, whatever it is.
    let payload = form.lines("payload");
    let is_text = form.field("payload_type") == "text";
    if is_text || !payload.trim().is_empty() {
        body.insert("payload_base64".to_owned(), STANDARD.encode(payload).into());
        body.insert("payload_type".to_owned(), if is_text { "bytes" } else { "json" }.into());
    }
    let waits = form.given("after").is_some();
    for field in FIELDS.iter().filter(|field| waits || field.name != ON_DEAD) {
        let said = fields::body([field], form);
        let wrong = |problem: Problem| Wrong { field: Some(field.name), fault: problem.into() };
        body.extend(said.map_err(wrong)?);
    }
    Ok(Value::Object(body))
}
