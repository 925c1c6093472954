//! What can be done to a queue.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};

use crate::actions::{Answer, Question, done, no_action, undo};
use crate::form::Form;
use crate::html::{Tab, cut, plural, queue_path};
use crate::page::Page;
use crate::pages::queue::named;
use crate::shapes::{Deletion, Purged, Queue, QueueName};

/// The question.
pub(crate) async fn ask(page: Page, Path(action): Path<String>) -> Answer {
    let (name, path) = named(&page.query())?;
    let queue: Queue = page.ask.get(&path).await?;
    let waiting = plural(queue.jobs.ready + queue.jobs.scheduled, "job");
    let shown = cut(&name.shown(), 200);
    let (verb, about, is_dangerous): (_, Markup, _) = match action.as_str() {
        "pause" => {
            let leased = plural(queue.jobs.leased, "job");
            let about = html! {
                p { "No more of its jobs are given to workers until it is resumed; " (leased) " being worked on go on." }
                p { (waiting) " wait in it. New ones are taken." }
            };
            ("Pause", about, false)
        }
        "drain" => {
            let about = html! {
                p {
                    "No more of its jobs are given to workers, and its page says when the "
                    (plural(queue.jobs.leased, "job")) " being worked on have ended."
                }
                p { (waiting) " stay in it, and new ones are taken, until it is resumed." }
            };
            ("Drain", about, false)
        }
        "resume" => (
            "Resume",
            html! { p { "Its jobs are given to workers again: " (waiting) " wait in it." } },
            false,
        ),
        "purge" => {
            let about = html! {
                p { "Its ready and scheduled jobs are deleted: " b { (waiting) } ". For a minute that can be undone." }
                p { "Leased, parked, done and dead ones stay." }
            };
            ("Purge", about, true)
        }
        _ => return Err(no_action()),
    };
    let button = match action.as_str() {
        "purge" => format!("Delete {waiting}"),
        _ => format!("{verb} the queue"),
    };
    let question = Question {
        tab: Tab::Queues,
        title: &format!("{verb} {shown}?"),
        about,
        fields: hidden(&name),
        button: &button,
        is_dangerous,
        to: &format!("/queue/{action}"),
        back: &queue_path("/queue", &name),
    };
    Ok(question.ask(&page).await)
}

fn hidden(name: &QueueName) -> Markup {
    let (field, value) = name.field();
    html! { input type="hidden" name=(field) value=(value); }
}

/// Does it.
pub(crate) async fn act(page: Page, Path(action): Path<String>, form: Form) -> Answer {
    let (name, path) = named(&form.query())?;
    let back = queue_path("/queue", &name);
    match action.as_str() {
        // This must not create a queue that is gone meanwhile.
        "pause" => page.ask.send(Method::POST, &format!("{path}/pause?create=false"), None).await?,
        "drain" => page.ask.send(Method::POST, &format!("{path}/drain?create=false"), None).await?,
        "resume" => page.ask.send(Method::POST, &format!("{path}/resume"), None).await?,
        "purge" => {
            let body = serde_json::Value::Null;
            let purged: Purged =
                page.ask.post(&format!("{path}/purge?undo_ms={}", undo::UNDO_MS), &body).await?;
            let title = format!("{} deleted", plural(purged.deleted, "job"));
            let about = html! {
                @if let Some(Deletion { request, until }) = &purged.deletion {
                    (undo::offer(&page, &undo::deleted_in(&name, *request), until))
                }
                p { "They were in " b dir="auto" { (cut(&name.shown(), 200)) } "." }
            };
            // The queue itself may be gone with its last job.
            return Ok(done(&page, Tab::Queues, &title, about, "/queues", "Queues").await);
        }
        _ => return Err(no_action()),
    };
    Ok(Redirect::to(&back).into_response())
}
