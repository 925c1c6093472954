//! Submitting a job by hand.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde_json::{Map, Value};
use spindle_access::Role;
use spindle_http::Problem;

use crate::form::Form;
use crate::html::{Tab, hidden_form, job_link, shell};
use crate::page::Page;
use crate::pages::recent;
use crate::query::Query;
use crate::shapes::Submitted;

/// Name, label, what to write.
const FIELDS: [(&str, &str, &str); 4] = [
    ("priority", "Priority", "0; higher goes first"),
    ("run_at", "Not before", "2030-01-31T08:00:00Z, or now"),
    ("tags", "Tags", "parted by commas"),
    ("unique_key", "Unique key", "at most one unfinished job of the queue has it"),
];

/// The form: empty, as the address says, or as a job was that is to be submitted once more.
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

/// Submits what the form says. What is wrong with it stands above it, and nothing is lost.
pub(crate) async fn take(page: Page, asked: Form) -> Response {
    let taken = match body(&asked) {
        Ok(body) => page.ask.post::<Submitted>("/api/v1/jobs", &body).await,
        Err(problem) => Err(problem.into()),
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
        Err(fault) => {
            let (status, value) = (fault.status(), |name: &str| asked.field(name).to_owned());
            let body = form(&page, value, Some(&fault.detail));
            let mut response = shell(&page, Tab::Submit, "Submit a job", body).await;
            *response.status_mut() =
                if status.is_success() { StatusCode::INTERNAL_SERVER_ERROR } else { status };
            response
        }
    }
}

fn form(page: &Page, value: impl Fn(&str) -> String, wrong: Option<&str>) -> Markup {
    let is_text = value("payload_type") == "text";
    html! {
        div.narrow {
            h1 { "Submit a job" }
            @if let Some(wrong) = wrong { p.notice.bad role="alert" { (wrong) } }
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
                details open[FIELDS.iter().any(|(name, ..)| !value(name).is_empty())] {
                    summary { "More" }
                    @for (name, label, hint) in FIELDS {
                        label for=(name) { (label) }
                        input id=(name) name=(name) value=(value(name)) placeholder=(hint) autocomplete="off";
                    }
                }
                button.btn.primary type="submit" { "Submit" }
            }
        }
    }
}

/// What the API is asked for.
fn body(form: &Form) -> Result<Value, Problem> {
    let mut body = Map::new();
    for name in ["queue", "queue_base64", "run_at"] {
        if let Some(text) = form.given(name) {
            body.insert(name.to_owned(), text.into());
        }
    }
    // In base64 it is kept as it is written, whatever it is.
    let payload = form.lines("payload");
    let is_text = form.field("payload_type") == "text";
    if is_text || !payload.trim().is_empty() {
        body.insert("payload_base64".to_owned(), STANDARD.encode(payload).into());
        body.insert("payload_type".to_owned(), if is_text { "bytes" } else { "json" }.into());
    }
    if let Some(text) = form.given("priority") {
        let priority: i64 =
            text.parse().map_err(|_| Problem::out_of_range("priority is a whole number"))?;
        body.insert("priority".to_owned(), priority.into());
    }
    if let Some(tags) = form.given("tags") {
        let tags = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        body.insert("tags".to_owned(), tags.collect::<Vec<_>>().into());
    }
    if let Some(key) = form.given("unique_key") {
        body.insert("unique".to_owned(), serde_json::json!({ "key": key }));
    }
    Ok(Value::Object(body))
}
