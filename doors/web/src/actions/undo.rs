//! Bringing back what a page deleted, within a minute.

use maud::{Markup, html};

use crate::html::{hidden_form, time};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::{Deletion, Job, QueueName};

/// For how long what a page deletes can be brought back.
pub(super) const UNDO_MS: u64 = 60_000;

/// A filter for jobs that some requests deleted. It names a queue where the caller may see only
/// some queues.
pub(super) fn deleted_by(requests: &[u64], within: &Query) -> Query {
    let numbers: Vec<String> = requests.iter().map(u64::to_string).collect();
    within.clone().only(&["queue", "queue_base64"]).with("deleted_by", &numbers.join(","))
}

/// The same, of a queue.
pub(super) fn deleted_in(queue: &QueueName, request: u64) -> Query {
    let (field, name) = queue.field();
    deleted_by(&[request], &Query::new().with(field, &name))
}

/// The button that brings jobs back, and until when it does.
pub(super) fn offer(page: &Page, jobs: &Query, until: &str) -> Markup {
    let fields = html! {
        @for (name, value) in jobs.fields() { input type="hidden" name=(name) value=(value); }
    };
    form(page, "/jobs/all/undo", fields, until)
}

/// The same for one job, which may be deleted or not.
pub(crate) fn offer_of(page: &Page, id: u64, deletion: Option<&Deletion>) -> Markup {
    html! {
        @if let Some(deletion) = deletion {
            (form(page, &format!("/jobs/{id}/undo"), html! {}, &deletion.until))
        }
    }
}

/// The page's script removes it when the time is over.
fn form(page: &Page, to: &str, fields: Markup, until: &str) -> Markup {
    html! {
        div.acts data-until=(until) {
            form method="post" action=(to) {
                (hidden_form(page))
                (fields)
                button.btn.primary type="submit" { "Undo" }
            }
            span.muted { "gone for good " (time(until, page.now_ms())) }
        }
    }
}

/// A word in lists for a job that is deleted.
pub(crate) fn tag(job: &Job) -> Markup {
    html! { @if job.deletion.is_some() { " " span.tag { "deleted" } } }
}
