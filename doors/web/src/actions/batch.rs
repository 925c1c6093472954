//! Sealing a batch, and cancelling it.

use std::time::{Duration, Instant};

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;
use spindle_access::Role;
use spindle_http::Problem;

use crate::actions::{Answer, Question, done};
use crate::ask::Asked;
use crate::form::Form;
use crate::html::{Tab, batch_path, cut, grouped, plural, queue_link};
use crate::page::Page;
use crate::pages::batch::find;
use crate::pages::batches::status;
use crate::shapes::{Batch, BatchCancelled};

/// The longest that a person waits for an action; the page then says what is left.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The question before a batch is sealed. A submitter may seal a batch without being allowed to see
/// it.
pub(crate) async fn ask_seal(page: Page, Path(id): Path<String>) -> Answer {
    let id = number(&id)?;
    let batch = if page.may(Role::Read) { Some(find(&page, &id.to_string()).await?) } else { None };
    let jobs = batch.as_ref().map(|it| format!(" with {}", plural(it.jobs.total, "job")));
    let question = Question {
        tab: Tab::Batches,
        title: &format!("Seal batch {id}{}?", jobs.unwrap_or_default()),
        about: html! {
            @if let Some(it) = &batch { (described(it)) }
            p { "No job is added any more. It ends when all of its jobs have, and what waits for it goes on then." }
            p { "That cannot be undone." }
        },
        fields: html! {},
        button: &format!("Seal batch {id}"),
        is_dangerous: false,
        to: &format!("{}/seal", batch_path(id)),
        back: &batch_path(id),
    };
    Ok(question.ask(&page).await)
}

/// Seals it.
pub(crate) async fn seal(page: Page, Path(id): Path<String>, _: Form) -> Answer {
    let id = number(&id)?;
    let path = format!("/api/v1/batches/{id}/seal");
    page.ask.post::<Batch>(&path, &Value::Null).await?;
    if page.may(Role::Read) {
        return Ok(back_to(id));
    }
    let title = format!("Batch {id} is sealed");
    let about = html! { p { "No job is added any more." } };
    Ok(done(&page, Tab::Batches, &title, about, "/submit", "Submit a job").await)
}

/// The question before a batch is cancelled.
pub(crate) async fn ask_cancel(page: Page, Path(id): Path<String>) -> Answer {
    let it = find(&page, &id).await?;
    let jobs = plural(it.jobs.unfinished, "unfinished job");
    let question = Question {
        tab: Tab::Batches,
        title: &format!("Cancel batch {} with {jobs}?", it.id),
        about: html! {
            (described(&it))
            p {
                "No job is added any more. Its unfinished jobs end as dead with the code cancelled, whatever \
                 their queues are; workers that have some of them lose those."
            }
            p { "A batch in it counts as one job here, and its unfinished jobs are cancelled too." }
        },
        fields: html! {},
        button: &format!("Cancel {jobs}"),
        is_dangerous: true,
        to: &format!("{}/cancel", batch_path(it.id)),
        back: &batch_path(it.id),
    };
    Ok(question.ask(&page).await)
}

/// Cancels it, and says so if there was not time for all.
pub(crate) async fn cancel(page: Page, Path(id): Path<String>, _: Form) -> Answer {
    let id = number(&id)?;
    let path = format!("/api/v1/batches/{id}/cancel");
    let (began, mut cancelled) = (Instant::now(), 0);
    loop {
        let answer: Asked<BatchCancelled> = page.ask.post(&path, &Value::Null).await;
        match answer {
            Ok(BatchCancelled { is_partial: false, .. }) => return Ok(back_to(id)),
            Ok(answer) => cancelled += answer.cancelled,
            // The part that is done must be reported.
            Err(_) if cancelled > 0 => break,
            Err(fault) => return Err(fault),
        }
        if began.elapsed() >= TIME_MAX {
            break;
        }
    }
    let title = format!("{} cancelled", plural(cancelled, "job"));
    let about = html! {
        p { "There are more. " a href={ (batch_path(id)) "/cancel" } { "Go on with the others" } }
    };
    Ok(done(&page, Tab::Batches, &title, about, &batch_path(id), "Back to the batch").await)
}

fn number(id: &str) -> Asked<u64> {
    id.parse().map_err(|_| Problem::out_of_range("a batch is named by its number").into())
}

fn back_to(id: u64) -> Response {
    Redirect::to(&batch_path(id)).into_response()
}

/// Which batch is meant.
fn described(it: &Batch) -> Markup {
    html! {
        p dir="auto" {
            @if !it.name.is_empty() { b { (cut(&it.name, 120)) } " is " } @else { "It is " }
            (status(it)) " in " (queue_link(&it.queue)) ", with " (grouped(it.jobs.unfinished))
            " of " (plural(it.jobs.total, "job")) " unfinished."
        }
    }
}
