//! One queue: what is in it, what goes through it, who works on it, what is set for it.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;
use spindle_access::Role;
use spindle_http::Problem;

use crate::actions::settings;
use crate::ask::{Asked, segment};
use crate::html::{
    Tab, age_of, button, bytes, cut, duration_ms, fact, facts, grouped, number, plural, queue_path,
    shell, status_badge, time,
};
use crate::page::Page;
use crate::pages::constraint::constraint_link;
use crate::pages::constraints::limits;
use crate::pages::limiting::Limiting;
use crate::pages::{history, jobs};
use crate::query::Query;
use crate::shapes::{Constraint, Flow, JobPage, Queue, QueueName, Worker, WorkerPage};

/// Workers of a queue, and constraints that are about it, that are shown.
const WORKERS_MAX: usize = 20;
const CONSTRAINTS_MAX: usize = 12;

/// The queue that an address names, and its address in the API.
pub(crate) fn named(query: &Query) -> Asked<(QueueName, String)> {
    let field = |name: &str| query.get(name).map(str::to_owned);
    let name = QueueName { queue: field("queue"), queue_base64: field("queue_base64") };
    let bytes = name.bytes().filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| Problem::out_of_range("the address names no queue"))?;
    Ok((name, format!("/api/v1/queues/{}", segment(&bytes))))
}

/// A queue.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let (name, path) = named(&page.query())?;
    let queue: Queue = page.ask.get(&path).await?;
    let (field, text) = name.field();
    let newest = Query::new().with(field, &text).with("limit", "10").with("order", "desc");
    let newest: JobPage = page.ask.get(&newest.to("/api/v1/jobs")).await?;
    // These cover all queues: a visitor who may not see them still sees the rest.
    let workers: Option<WorkerPage> = page.ask.get("/api/v1/workers").await.ok();
    let limiting = Limiting::read(&page, Some(&name)).await.ok();
    let now_ms = page.now_ms();
    let title = cut(&name.shown(), 200);
    let body = html! {
        (head(&page, &name, &queue, &title))
        (by_status(&name, &queue))
        (history::of_queue(&page, &name).await)
        div.two {
            div {
                h2 { "Newest jobs" }
                @if newest.jobs.is_empty() {
                    p.muted { "None." }
                } @else {
                    (jobs::table(&newest.jobs, now_ms, false))
                    p { a href=(queue_path("/jobs", &name)) { "All jobs of this queue" } }
                }
                @if let Some(workers) = &workers { (working(workers, &name, now_ms)) }
            }
            aside {
                (flow(&queue, now_ms))
                (set_for(&queue))
                @if let Some(limiting) = &limiting { (limited(limiting, &name)) }
            }
        }
    };
    Ok(shell(&page, Tab::Queues, &format!("Queue {title}"), body).await)
}

fn head(page: &Page, name: &QueueName, queue: &Queue, title: &str) -> Markup {
    let to = |action: &str| queue_path(&format!("/queue/{action}"), name);
    html! {
        div.head {
            div {
                h1 dir="auto" { (title) }
                p.sub {
                    @if queue.paused {
                        span.st.parked { "paused" } ": nothing is leased from it until it is resumed. "
                        @match queue.jobs.leased {
                            0 => "It is drained: no job of it is being worked on.",
                            leased => { (plural(leased, "job")) " of it " (if leased == 1 { "is" } else { "are" }) " still being worked on." },
                        }
                    } @else {
                        span.st.done { "running" }
                        @if let Some(age) = queue.oldest_ready_age_ms {
                            " · the oldest ready job waits " (age_of(Some(age)))
                        }
                    }
                    @if queue.deleted > 0 {
                        " · " (plural(queue.deleted, "job")) " of those parked, done and dead "
                        (if queue.deleted == 1 { "is" } else { "are" }) " deleted, and soon gone"
                    }
                }
            }
            div.acts {
                @if page.may(Role::Manage) {
                    @if queue.paused { (button(&to("resume"), "primary", "Resume…")) }
                    @else {
                        (button(&to("pause"), "", "Pause…"))
                        @if queue.jobs.leased > 0 { (button(&to("drain"), "", "Drain…")) }
                    }
                    (button(&to("settings"), "", "Settings…"))
                    (button(&to("purge"), "danger", "Purge…"))
                }
                @if page.may(Role::Submit) { (button(&queue_path("/submit", name), "", "Submit a job")) }
            }
        }
    }
}

fn by_status(name: &QueueName, queue: &Queue) -> Markup {
    let (field, text) = name.field();
    let to = |status: &str| Query::new().with(field, &text).with("status", status).to("/jobs");
    html! {
        ul.counts {
            @for (status, count) in queue.jobs.all() {
                li { a href=(to(status)) { (status_badge(status)) " " b { (number(count)) } } }
            }
        }
    }
}

fn flow(queue: &Queue, now_ms: u64) -> Markup {
    let Flow { submitted, leased, completed, requeued, died } = queue.last_minute;
    html! {
        h2 { "Last minute" }
        (facts(html! {
            (fact("Submitted", number(submitted)))
            (fact("Leased", number(leased)))
            (fact("Done", number(completed)))
            (fact("Tried again", number(requeued)))
            (fact("Died", number(died)))
        }))
        h2 { "Facts" }
        (facts(html! {
            @if let Some(total) = &queue.since_start {
                (fact("Done since start", number(total.completed)))
            }
            (fact("Payloads waiting", html! { (bytes(queue.payload_bytes)) }))
            (fact("Workers waiting", number(queue.waiting_leases)))
            (fact("Asked for jobs", html! {
                @match &queue.last_asked_at {
                    Some(at) => (time(at, now_ms)),
                    None => span.zero { "not since the start" },
                }
            }))
        }))
    }
}

fn set_for(queue: &Queue) -> Markup {
    let set = queue.settings.iter().flatten().collect::<Vec<_>>();
    html! {
        h2 { "Settings" }
        @if set.is_empty() {
            p.muted { "None: the defaults of each protocol are in force." }
        } @else {
            (facts(html! {
                @for (name, value) in set { (fact(&setting_words(name), html! { (setting_value(name, value)) })) }
            }))
        }
    }
}

/// What a setting is called in the form, where it has one field there.
fn setting_words(name: &str) -> String {
    if let Some(label) = settings::label(name) {
        return label.to_owned();
    }
    let words = name.trim_end_matches("_ms").replace('_', " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn setting_value(name: &str, value: &Value) -> String {
    if name == "backoff" {
        return backoff_words(value);
    }
    match value.as_u64() {
        Some(ms) if name.ends_with("_ms") => duration_ms(ms),
        Some(number) if name.starts_with("bytes") => bytes(number),
        Some(number) => grouped(number),
        None => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// `30 s, times 2, at most 1 h`.
fn backoff_words(value: &Value) -> String {
    let ms = |field: &str| value[field].as_u64().map(duration_ms).unwrap_or_default();
    let mut words = ms("base_ms");
    if value["factor"].as_f64().is_some_and(|factor| factor > 1.0) {
        words += &format!(", times {}, at most {}", value["factor"], ms("cap_ms"));
    }
    words
}

fn working(found: &WorkerPage, name: &QueueName, now_ms: u64) -> Markup {
    let text = name.shown();
    let is_for = |worker: &&Worker| {
        worker.queues.contains(&text)
            || worker.jobs.iter().any(|job| job.queue.bytes() == name.bytes())
    };
    let of_queue: Vec<&Worker> = found.workers.iter().filter(is_for).collect();
    html! {
        h2 { "Workers" }
        @if of_queue.is_empty() {
            p.muted { "None has asked for its jobs lately." }
        } @else {
            table.list {
                thead { tr { th { "Worker" } th { "Door" } th.r { "Jobs of it" } th.r { "Heard of" } } }
                tbody {
                    @for worker in of_queue.iter().take(WORKERS_MAX) {
                        tr {
                            td.mono { (cut(if worker.name.is_empty() { "unnamed" } else { &worker.name }, 60)) }
                            td { (worker.door) }
                            td.r { (number(worker.jobs.iter().filter(|job| job.queue.bytes() == name.bytes()).count() as u64)) }
                            td.r.nowrap { @if let Some(at) = &worker.seen_at { (time(at, now_ms)) } }
                        }
                    }
                }
            }
            @if of_queue.len() > WORKERS_MAX {
                p.muted { "And " (plural((of_queue.len() - WORKERS_MAX) as u64, "other")) ". " a href="/workers" { "All workers" } }
            }
        }
    }
}

/// The constraints that apply to it; those that hold back its jobs come first.
fn limited(found: &Limiting, name: &QueueName) -> Markup {
    let held_of = |it: &Constraint| found.held_of(it, name);
    let mut of_it: Vec<&Constraint> = found.constraints.iter().collect();
    of_it.sort_by_key(|it| std::cmp::Reverse(held_of(it).unwrap_or(1)));
    let more = of_it.len().saturating_sub(CONSTRAINTS_MAX);
    html! {
        h2 { "Constraints" }
        @if of_it.is_empty() {
            p.muted { "None is about this queue." }
        } @else {
            ul.plain {
                @for it in of_it.into_iter().take(CONSTRAINTS_MAX) {
                    li.held {
                        (constraint_link(&it.name)) " "
                        @match held_of(it) {
                            Some(0) => {},
                            Some(held) => { span.leased { "holds back " (plural(held, "job")) } " " },
                            None => { span.leased { "full" } " " },
                        }
                        span.soft { (limits(it)) }
                    }
                }
            }
            @if more > 0 { p.muted { "And " (more) " more. " a href="/constraints" { "All constraints" } } }
        }
    }
}
