//! Whether anything is wrong, where, and what to do.

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{Tab, duration_ms, grouped, plural, queue_link, queue_path, shell};
use crate::page::Page;
use crate::pages::{jobs, queues};
use crate::query::Query;
use crate::shapes::{ConstraintPage, JobPage, Queue, QueuePage, Server};

/// Queues that are looked at, and those that are shown.
const QUEUES_LOOKED_AT: &str = "512";
const QUEUES_MAX: usize = 25;
const ATTENTION_MAX: usize = 12;
/// A ready job that waits so long is worth a look.
const OLD_MS: u64 = 5 * 60_000;

/// The overview.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let path = Query::new().with("limit", QUEUES_LOOKED_AT).to("/api/v1/queues");
    let found: QueuePage = page.ask.get(&path).await?;
    let server: Server = page.ask.get("/api/v1/server").await?;
    let constraints: ConstraintPage = page.ask.get("/api/v1/constraints?limit=512").await?;
    let dead: JobPage = page.ask.get("/api/v1/jobs?status=dead&order=desc&limit=5").await?;
    let wrong = attention(&server, &found.queues, &constraints);
    let mut busiest: Vec<&Queue> = found.queues.iter().collect();
    busiest.sort_by_key(|queue| {
        std::cmp::Reverse(queue.jobs.ready + queue.jobs.leased + queue.jobs.dead)
    });
    let body = html! {
        h1 { "Needs attention" }
        @if wrong.is_empty() {
            p.calm { span.dot.done {} "Nothing: no queue waits for a worker, none is paused, no job is dead." }
        } @else {
            div.attention { @for row in wrong.iter().take(ATTENTION_MAX) { (row) } }
            @if wrong.len() > ATTENTION_MAX {
                p.muted { "And " (wrong.len() - ATTENTION_MAX) " more. " a href="/queues" { "All queues" } }
            }
        }
        h2 { "Queues" }
        @if found.queues.is_empty() {
            (queues::none())
        } @else {
            (queues::table(busiest.into_iter().take(QUEUES_MAX)))
            @if found.queues.len() > QUEUES_MAX {
                p { a href="/queues" { "All queues" } }
            }
        }
        @if !dead.jobs.is_empty() {
            h2 { "Latest dead jobs" }
            (jobs::table(&dead.jobs, page.now_ms(), true))
            p { a href="/dead" { "All dead jobs" } }
        }
    };
    Ok(shell(&page, Tab::Overview, "Overview", body).await)
}

/// A row: a colour, whose it is, what it is, what to do.
fn row(status: &str, whose: Markup, text: Markup, act: Markup) -> Markup {
    html! {
        div {
            span class={ "dot " (status) } {} " " b { (whose) } " " span { (text) } " "
            span.acts { (act) }
        }
    }
}

fn attention(server: &Server, queues: &[Queue], constraints: &ConstraintPage) -> Vec<Markup> {
    let mut rows = Vec::new();
    let see_server = || html! { a href="/server" { "Server" } };
    if server.disk_full {
        let text = html! { "New jobs are refused: the disk or the log is full." };
        rows.push(row("dead", html! { "Server" }, text, see_server()));
    }
    if server.clock_held {
        let text = html! { "Nothing expires: the machine's clock and the log disagree." };
        rows.push(row("leased", html! { "Server" }, text, see_server()));
    }
    rows.extend(queues.iter().filter_map(stuck));
    for it in &constraints.constraints {
        let held = it.buckets.iter().filter(|bucket| !bucket.admits);
        let held: u64 = held.map(|bucket| bucket.jobs.saturating_sub(bucket.running)).sum();
        if held > 0 {
            let text =
                html! { "Constraint is full: " (plural(held, "job")) " cannot start for now." };
            let act = html! { a href="/constraints" { "Constraints" } };
            rows.push(row("leased", html! { (crate::html::cut(&it.name, 40)) }, text, act));
        }
    }
    rows.extend(queues.iter().filter_map(died));
    rows
}

/// What keeps a queue's ready jobs waiting, if something does.
fn stuck(queue: &Queue) -> Option<Markup> {
    let whose = || queue_link(&queue.name);
    let ready = queue.jobs.ready;
    let jobs = || plural(ready, "job");
    let age = queue.next_ready_age_ms.unwrap_or_default();
    if queue.paused {
        let text = html! { "Paused. " (if ready == 0 { "Nothing waits.".to_owned() } else { format!("{} ready.", jobs()) }) };
        let act = html! { a href=(queue_path("/queue/resume", &queue.name)) { "Resume" } };
        return Some(row("parked", whose(), text, act));
    }
    let nobody_works = queue.waiting_leases == 0 && queue.jobs.leased == 0;
    if ready > 0 && nobody_works && queue.last_minute.leased == 0 {
        let text = html! {
            "No worker. " (jobs()) " ready"
            @if age >= 1_000 { ", the next waits " (duration_ms(age)) }
            "."
        };
        return Some(row("dead", whose(), text, html! { a href="/workers" { "Workers" } }));
    }
    (ready > 0 && age >= OLD_MS).then(|| {
        let text = html! { "The next ready job waits " (duration_ms(age)) "; " (jobs()) " ready." };
        row(
            "leased",
            whose(),
            text,
            html! { a href=(queue_path("/queue", &queue.name)) { "Open" } },
        )
    })
}

fn died(queue: &Queue) -> Option<Markup> {
    let dead = queue.jobs.dead;
    (dead > 0).then(|| {
        let (field, name) = queue.name.field();
        let of_it = Query::new().with(field, &name);
        let text =
            html! { (plural(dead, "job")) (if dead == 1 { " is" } else { " are" }) " dead." };
        let retry = of_it.clone().with("status", "dead").to("/jobs/all/retry");
        let act = html! {
            a href=(of_it.to("/dead")) { "Open" }
            a href=(retry) { "Retry " (grouped(dead)) }
        };
        row("dead", queue_link(&queue.name), text, act)
    })
}
