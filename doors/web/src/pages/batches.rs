//! The batches: how many of the jobs of each have ended, and how.

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{
    Tab, batch_link, batch_path, cut, empty, number, pager, queue_link, shell, status_badge, time,
};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::{Batch, BatchPage};

/// Batches of a page.
const LIMIT: &str = "25";

/// The batches, the newest first.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let found: BatchPage = page.ask.get(&asked.to("/api/v1/batches")).await?;
    let now_ms = page.now_ms();
    let body = html! {
        h1 { "Batches" }
        @if found.batches.is_empty() {
            (empty(
                "A batch counts jobs that belong together, and other jobs can wait for all of them.",
                Some("spindle batch open --queue photos --name holidays"),
            ))
        } @else {
            table.list.queues {
                thead {
                    tr {
                        th { "Batch" } th { "Status" } th { "Queue" }
                        th.r { "Unfinished" } th.r { "Done" } th.r { "Dead" } th.r { "Gone" }
                        th.r { "Opened" } th.r { "Ended" }
                    }
                }
                tbody { @for it in &found.batches { (row(it, now_ms)) } }
            }
        }
        (pager("/batches", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Batches, "Batches", body).await)
}

fn row(it: &Batch, now_ms: u64) -> Markup {
    html! {
        tr data-key=(it.id) {
            td.name {
                @if it.name.is_empty() {
                    (batch_link(it.id))
                } @else {
                    a href=(batch_path(it.id)) dir="auto" { (cut(&it.name, 60)) }
                    " " span.soft.mono { (it.id) }
                }
            }
            td.nowrap { (status(it)) }
            td { (queue_link(&it.queue)) }
            @for (word, count) in it.jobs.all() {
                td.r data-label=(word) { (number(count)) }
            }
            td.r.nowrap data-before="opened" { (time(&it.opened_at, now_ms)) }
            @if let Some(at) = &it.ended_at { td.r.nowrap data-before="ended" { (time(at, now_ms)) } }
            @else { td.r {} }
        }
    }
}

/// Where it stands, and whether somebody cancelled it.
pub(crate) fn status(it: &Batch) -> Markup {
    html! {
        (status_badge(&it.status))
        @if it.cancelled { " " span.tag { "cancelled" } }
    }
}
