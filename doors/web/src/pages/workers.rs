//! Who works, and on what.

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{
    Tab, cut, duration_whole, empty, job_link, number, pager, queue_link, shell, since, time,
};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::{QueueName, Worker, WorkerPage};

/// Workers of a page: fewer than the API returns at once, to keep pages short.
const SHOWN_MAX: usize = 100;
/// Jobs and queues that are shown of each.
const JOBS_MAX: usize = 5;
const QUEUES_MAX: usize = 4;

/// The workers: those that have jobs first.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("cursor", cursor);
    let mut found: WorkerPage = page.ask.get(&asked.to("/api/v1/workers")).await?;
    found.workers.sort_by(|a, b| {
        let order = |worker: &Worker| (std::cmp::Reverse(worker.jobs.len()), worker.name.clone());
        order(a).cmp(&order(b))
    });
    let count = found.workers.len();
    let now_ms = page.now_ms();
    let body = html! {
        h1 { "Workers" }
        @if count == 0 {
            (empty(
                "Workers are here once they ask for a job, and leave with their connection.",
                Some("spindle work mail -- cat"),
            ))
        } @else {
            table.list {
                thead {
                    tr { th { "Worker" } th.opt { "Door" } th { "Works on" } th.opt { "Asks for" } th.r { "Heard of" } }
                }
                tbody {
                    @for worker in found.workers.iter().take(SHOWN_MAX) { (row(worker, now_ms)) }
                }
            }
            @if count > SHOWN_MAX {
                p.muted { (number((count - SHOWN_MAX) as u64)) " more are not shown; the API lists them all." }
            }
        }
        @if found.partial { p.muted { "There are more leased jobs than are looked at: not all are shown." } }
        (pager("/workers", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Workers, "Workers", body).await)
}

fn row(worker: &Worker, now_ms: u64) -> Markup {
    let name = if worker.name.is_empty() { "unnamed" } else { &worker.name };
    let text = worker.queues.iter().map(|name| QueueName::text(name));
    let coded = worker
        .queues_base64
        .iter()
        .map(|name| QueueName { queue: None, queue_base64: Some(name.clone()) });
    let queues: Vec<QueueName> = text.chain(coded).take(QUEUES_MAX).collect();
    let more = worker.queues_count.saturating_sub(queues.len());
    html! {
        tr data-key={ (worker.door) " " (worker.connection.unwrap_or_default()) " " (cut(name, 80)) } {
            td.mono dir="auto" { (cut(name, 60)) }
            td.opt { (worker.door) }
            td { (jobs(worker, now_ms)) }
            td.opt {
                @for queue in &queues { (queue_link(queue)) " " }
                @if more > 0 { span.soft { "and " (more) " more" } }
                @if worker.waiting > 0 { span.soft { "· waits" } }
            }
            td.r.nowrap data-before="heard of" {
                @match &worker.seen_at {
                    Some(at) => (time(at, now_ms)),
                    None => span.zero { "not since the start" },
                }
            }
        }
    }
}

fn jobs(worker: &Worker, now_ms: u64) -> Markup {
    html! {
        @if worker.jobs.is_empty() { span.zero { "idle" } }
        @for job in worker.jobs.iter().take(JOBS_MAX) {
            div.held {
                (job_link(job.id)) " of " (queue_link(&job.queue))
                span.soft {
                    @if let Some(ms) = since(&job.started_at, now_ms) {
                        " " span.nowrap { "for " (duration_whole(ms)) }
                    }
                    @if let Some(at) = &job.deadline_at {
                        ", " span.nowrap { "lease ends " (time(at, now_ms)) }
                    }
                }
            }
        }
        @if worker.jobs.len() > JOBS_MAX {
            span.soft { "and " (worker.jobs.len() - JOBS_MAX) " more" }
        }
    }
}
