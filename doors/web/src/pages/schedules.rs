//! The schedules: when each fires next, and what came of its newest time.

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::Asked;
use crate::html::{Tab, button, cut, empty, pager, queue_link, shell, time};
use crate::page::Page;
use crate::pages::job::read;
use crate::pages::named::path_of;
use crate::query::Query;
use crate::shapes::{Occurrence, Schedule, SchedulePage, ScheduledJob};

/// Schedules of a page.
const LIMIT: &str = "25";

/// The schedules, by name.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let found: SchedulePage = page.ask.get(&asked.to("/api/v1/schedules")).await?;
    let now_ms = page.now_ms();
    let rows: Vec<Markup> =
        found.schedules.iter().map(|it| row(it, now_ms)).collect::<Asked<_>>()?;
    let body = html! {
        div.head {
            h1 { "Schedules" }
            @if page.may(Role::Manage) {
                div.acts { (button("/schedule/edit", "primary", "New schedule…")) }
            }
        }
        @if rows.is_empty() {
            (empty(
                "A schedule submits a job whenever its time has come: every night, or every 90 seconds.",
                Some("spindle cron set report '0 9 * * MON-FRI' --zone Europe/Berlin --queue reports"),
            ))
        } @else {
            table.list.queues {
                thead {
                    tr { th { "Schedule" } th { "When" } th { "Queue" } th { "State" } th { "Last time" } th.r { "Next" } }
                }
                tbody { @for row in rows { (row) } }
            }
        }
        (pager("/schedules", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Schedules, "Schedules", body).await)
}

fn row(it: &Schedule, now_ms: u64) -> Asked<Markup> {
    let job: ScheduledJob = read(it.job.get())?;
    Ok(html! {
        tr data-key=(cut(&it.name, 100)) {
            td.name { (schedule_link(&it.name)) }
            td { (when(it)) }
            td { (queue_link(&job.queue)) }
            td.nowrap { (state(it)) }
            td {
                @match &it.last {
                    Some(last) => { (outcome(last)) " " span.soft { (time(&last.due_at, now_ms)) } },
                    None => span.zero { "none yet" },
                }
            }
            @if let Some(at) = &it.fires_at { td.r.nowrap data-before="next" { (time(at, now_ms)) } }
            @else { td.r {} }
        }
    })
}

/// A schedule's name, as the link to its page.
pub(crate) fn schedule_link(name: &str) -> Markup {
    html! { a href=(path_of("/schedule", name)) dir="auto" { (cut(name, 60)) } }
}

/// Its expression and its zone.
pub(crate) fn when(it: &Schedule) -> Markup {
    html! { code.nowrap[it.expression.len() <= 24] { (cut(&it.expression, 80)) } " " span.soft { (cut(&it.zone, 40)) } }
}

/// Whether it fires.
pub(crate) fn state(it: &Schedule) -> Markup {
    html! {
        @if it.paused { span.st.parked { "paused" } }
        @else if it.fires_at.is_none() { span.st.parked { "over" } }
        @else { span.st.done { "active" } }
        @if it.is_running { " " span.tag { "job unfinished" } }
    }
}

/// What came of a time.
pub(crate) fn outcome(last: &Occurrence) -> Markup {
    let (status, word) = match last.outcome.as_str() {
        "submitted" => ("done", "submitted"),
        "missed" => ("leased", "missed"),
        "overlapped" => ("leased", "passed over"),
        "pending" => ("scheduled", "waits for the last job"),
        "refused" => ("dead", "refused"),
        other => ("parked", other),
    };
    html! { span class={ "st " (status) } { (word) } }
}
