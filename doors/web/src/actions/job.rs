//! What can be done to one job.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use serde_json::json;

use crate::actions::{Answer, Question, done, no_action, undo};
use crate::ask::segment;
use crate::form::Form;
use crate::html::{Tab, queue_link, queue_path, status_badge};
use crate::page::Page;
use crate::shapes::{Deletion, Job};

/// An action: its name, the button's word, what it does.
const ACTIONS: [(&str, &str, &str); 7] = [
    ("retry", "Retry", "It runs again, with all its tries."),
    ("park", "Park", "It is kept aside, and no worker gets it until it is released."),
    ("release", "Release", "It runs when its time has come."),
    ("cancel", "Cancel", "It ends as dead with the code cancelled. A worker that has it loses it."),
    ("move", "Move", "It goes to another queue, and is there as new in line."),
    (
        "delete",
        "Delete",
        "It is gone with its payload and its result; for a minute that can be undone.",
    ),
    ("undo", "Undo the deletion of", "It is as it was before it was deleted."),
];

fn known(action: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    ACTIONS.iter().find(|(name, ..)| *name == action)
}

async fn find(page: &Page, id: &str) -> Result<Job, crate::ask::Fault> {
    page.ask.get(&format!("/api/v1/jobs/{}?bytes_max=0", segment(id.as_bytes()))).await
}

/// The question.
pub(crate) async fn ask(page: Page, Path((id, action)): Path<(String, String)>) -> Answer {
    let (name, verb, about) = known(&action).ok_or_else(no_action)?;
    let job = find(&page, &id).await?;
    let to = format!("/jobs/{}/{name}", job.id);
    let question = Question {
        tab: Tab::Jobs,
        title: &format!("{verb} job {}?", job.id),
        about: html! {
            p { "The job is " (status_badge(&job.status)) " in " (queue_link(&job.queue)) "." }
            p { (about) }
        },
        fields: if *name == "move" {
            target()
        } else {
            html! {}
        },
        button: &format!("{verb} job {}", job.id),
        is_dangerous: matches!(*name, "delete" | "cancel"),
        to: &to,
        back: &format!("/jobs/{}", job.id),
    };
    Ok(question.ask(&page).await)
}

fn target() -> Markup {
    html! {
        label for="queue" { "To the queue" }
        input #queue name="queue" required maxlength="512" autocomplete="off" autofocus;
    }
}

/// Does it.
pub(crate) async fn act(
    page: Page,
    Path((id, action)): Path<(String, String)>,
    form: Form,
) -> Answer {
    let (name, ..) = known(&action).ok_or_else(no_action)?;
    let job = find(&page, &id).await?;
    let path = format!("/api/v1/jobs/{}", job.id);
    match *name {
        "delete" => {
            let path = format!("{path}?undo_ms={}", undo::UNDO_MS);
            let deletion: Option<Deletion> = page.ask.delete(&path).await?;
            let about = html! {
                p { "It was in " (queue_link(&job.queue)) "." }
                (undo::offer_of(&page, job.id, deletion.as_ref()))
            };
            let title = format!("Job {} is deleted", job.id);
            let to = queue_path("/jobs", &job.queue);
            return Ok(done(&page, Tab::Jobs, &title, about, &to, "Jobs of the queue").await);
        }
        "move" => {
            let body = json!({ "queue": form.field("queue") });
            page.ask.send(Method::PATCH, &path, Some(&body)).await?;
        }
        name => {
            page.ask.send(Method::POST, &format!("{path}/{name}"), None).await?;
        }
    }
    Ok(Redirect::to(&format!("/jobs/{}", job.id)).into_response())
}
