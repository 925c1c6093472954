//! The last payloads of a queue, as templates for another job.

use maud::{Markup, html};
use serde_json::value::RawValue;
use spindle_access::Role;

use crate::ask::{Asked, segment};
use crate::form;
use crate::html::{bytes, cut, job_link, time, unseen};
use crate::page::Page;
use crate::pages::job::{of_json, read};
use crate::query::Query;
use crate::shapes::{Job, JobBytes, JobPage, QueueName};

/// Jobs that are offered.
const JOBS_MAX: &str = "5";
/// The longest payload that is filled in, in bytes: a page shows it escaped.
const PAYLOAD_BYTES_MAX: usize = 8_192;
/// How many characters of a payload are shown in the list.
const PREVIEW_CHARS: usize = 120;

/// The newest jobs of the queue that an address names, with their payloads; only for visitors who
/// may see payloads.
pub(crate) async fn of_queue(page: &Page, query: &Query) -> Markup {
    let name = ["queue", "queue_base64"].map(|field| query.get(field).map(str::to_owned));
    let [queue, queue_base64] = name;
    if (queue.is_none() && queue_base64.is_none()) || !page.may(Role::Inspect) {
        return html! {};
    }
    let name = QueueName { queue, queue_base64 };
    let (field, text) = name.field();
    let asked = Query::new().with(field, &text).with("order", "desc").with("limit", JOBS_MAX);
    // A visitor who may not see this queue learns nothing about it.
    let Ok(found) = page.ask.get::<JobPage>(&asked.to("/api/v1/jobs")).await else {
        return html! {};
    };
    let mut rows = Vec::new();
    for job in &found.jobs {
        if let Ok((job, parts)) = looked_up(page, &job.id.to_string()).await {
            rows.push(row(page, &name, &job, &parts));
        }
    }
    html! {
        @if !rows.is_empty() {
            h2 dir="auto" { "Start from a job of " (cut(&name.shown(), 80)) }
            table.list {
                thead { tr { th { "Job" } th { "Payload" } th.r { "Submitted" } th { (unseen("Actions")) } } }
                tbody { @for row in rows { (row) } }
            }
        }
    }
}

fn row(page: &Page, queue: &QueueName, job: &Job, parts: &JobBytes) -> Markup {
    let text = text_of(job, parts);
    let (field, name) = queue.field();
    let to = Query::new().with(field, &name).with("like", &job.id.to_string()).to("/submit");
    html! {
        tr {
            td { (job_link(job.id)) }
            td.what {
                @match &text {
                    Some(text) if text.is_empty() => span.zero { "empty" },
                    Some(text) => span.mono dir="auto" { (cut(text, PREVIEW_CHARS)) },
                    None => span.soft { (bytes(job.payload_bytes)) ", too long or no text for a form" },
                }
            }
            td.r.nowrap { (time(&job.created_at, page.now_ms())) }
            td { @if text.is_some() { a href=(to) { "Use it" } } }
        }
    }
}

/// The form's values for submitting a job like this one; empty if there is no such job.
pub(crate) async fn like(page: &Page, id: &str) -> Query {
    let Ok((job, parts)) = looked_up(page, id).await else { return Query::new() };
    let Some(text) = text_of(&job, &parts) else { return Query::new() };
    let kind = if job.payload_type == "json" { "json" } else { "text" };
    let priority = if job.priority == 0 { String::new() } else { job.priority.to_string() };
    Query::new()
        .with("payload", &text)
        .with("payload_type", kind)
        .with("priority", &priority)
        .with("tags", &job.tags.join(", "))
        .with("fair_key", job.fair_key.as_deref().unwrap_or_default())
}

async fn looked_up(page: &Page, id: &str) -> Asked<(Job, JobBytes)> {
    let id = segment(id.as_bytes());
    let path = format!("/api/v1/jobs/{id}?bytes_max={PAYLOAD_BYTES_MAX}");
    let answer: Box<RawValue> = page.ask.get(&path).await?;
    Ok((read(answer.get())?, read(answer.get())?))
}

/// A payload that a form can carry, if it is complete.
fn text_of(job: &Job, parts: &JobBytes) -> Option<String> {
    if job.payload_bytes == 0 {
        return Some(String::new());
    }
    let whole = of_json(parts.payload.as_deref(), parts.payload_base64.as_deref())?;
    form::text_of(whole, &job.payload_type)
}
