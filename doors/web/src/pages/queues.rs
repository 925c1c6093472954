//! The queues.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{
    Tab, age_of, empty, grouped, number, pager, queue_link, queue_path, shell, time,
};
use crate::page::Page;
use crate::pages::history;
use crate::query::Query;
use crate::shapes::{Queue, QueueName, QueuePage};

/// Queues of a page.
const LIMIT: &str = "50";
/// The most bytes of their names in addresses; each name has up to two links.
const NAMES_BYTES_MAX: usize = 16_000;

/// All queues, by name.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let mut found: QueuePage = page.ask.get(&asked.to("/api/v1/queues")).await?;
    let fitting = names_that_fit(&found.queues);
    if fitting < found.queues.len() {
        // The page is shortened, and the next one continues there.
        let asked = asked.with("limit", &fitting.to_string());
        found = page.ask.get(&asked.to("/api/v1/queues")).await?;
    }
    history::trends(&page, &mut found.queues).await;
    let body = html! {
        h1 { "Queues" }
        @if found.queues.is_empty() {
            (none())
        } @else {
            (table(&found.queues, page.now_ms()))
        }
        (pager("/queues", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Queues, "Queues", body).await)
}

/// How many of these queues a page has room for: names may be long, and each byte of one may take
/// several in links.
fn names_that_fit(queues: &[Queue]) -> usize {
    let mut bytes = 0;
    let fits = |queue: &&Queue| {
        bytes += queue_path("", &queue.name).len();
        bytes <= NAMES_BYTES_MAX
    };
    queues.iter().take_while(fits).count().max(1)
}

/// Shown where there is no queue.
pub(crate) fn none() -> Markup {
    empty("A queue is here as soon as it has a job.", Some("spindle add mail 'to: a@example.org'"))
}

/// Queues in rows.
pub(crate) fn table<'a>(queues: impl IntoIterator<Item = &'a Queue>, now_ms: u64) -> Markup {
    html! {
        table.list.queues {
            thead {
                tr {
                    th { "Queue" }
                    th.r { "Ready" }
                    th.opt { "Last hour" }
                    th.r.opt { "Scheduled" }
                    th.r.opt { "Blocked" }
                    th.r { "Leased" }
                    th.r { "Dead" }
                    th.r { "Oldest" }
                    th.r.opt { "Done in a minute" }
                    th.r.opt { "Workers" }
                }
            }
            tbody { @for queue in queues { (row(queue, now_ms)) } }
        }
    }
}

/// Whether workers ask for its jobs: how many wait for one now, or when the last one asked.
fn workers(queue: &Queue, now_ms: u64) -> Markup {
    match (queue.waiting_leases, &queue.last_asked_at) {
        (0, None) => html! { span.zero { "none" } },
        (0, Some(at)) => html! { span.soft { "asked " (time(at, now_ms)) } },
        (1, _) => html! { "1 waits" },
        (waiting, _) => html! { (grouped(waiting)) " wait" },
    }
}

fn row(queue: &Queue, now_ms: u64) -> Markup {
    let dead = queue_path("/dead", &queue.name);
    html! {
        tr data-key=(key(&queue.name)) {
            td.name {
                (queue_link(&queue.name))
                @if queue.paused { " " span.tag.parked { "paused" } }
            }
            td.r data-label="ready" { (number(queue.jobs.ready)) }
            td.opt { @if let Some(trend) = &queue.trend { (trend.sparkline()) } }
            td.r.opt { (number(queue.jobs.scheduled)) }
            td.r.opt { (number(queue.jobs.blocked)) }
            td.r data-label="leased" { (number(queue.jobs.leased)) }
            td.r data-label="dead" {
                @if queue.jobs.dead == 0 { (number(0)) }
                @else { a.dead href=(dead) { (number(queue.jobs.dead)) } }
            }
            td.r.nowrap.none[queue.next_ready_age_ms.is_none()] data-before="oldest" {
                (age_of(queue.next_ready_age_ms))
            }
            td.r.opt { (number(queue.last_minute.completed)) }
            td.r.nowrap.opt { (workers(queue, now_ms)) }
        }
    }
}

/// Identifies a row when the page is reloaded. It is short, because names may be long.
fn key(name: &QueueName) -> String {
    let mut hasher = DefaultHasher::new();
    queue_path("", name).hash(&mut hasher);
    format!("{:x}", hasher.finish())
}
