//! One schedule: when it fires next, what came of its times, and what it submits.

use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::Asked;
use crate::decode::{self, View};
use crate::html::{
    Tab, button, cut, duration_ms, fact, facts, grouped, job_link, number, plural, queue_link,
    shell, span_of, status_badge, time,
};
use crate::page::Page;
use crate::pages::job::{of_json, read};
use crate::pages::named::{SCHEDULE, path_of};
use crate::pages::schedules::{outcome, state, when};
use crate::query::Query;
use crate::shapes::{Job, JobBytes, Schedule, ScheduledJob};

/// A schedule.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let (name, path) = SCHEDULE.named(&page.query())?;
    let it: Schedule = page.ask.get(&path).await?;
    let (job, parts): (ScheduledJob, JobBytes) = (read(it.job.get())?, read(it.job.get())?);
    let last_job = last_job(&page, &it).await;
    let now_ms = page.now_ms();
    let title = cut(&name, 200);
    let body = html! {
        div.head {
            div {
                h1 dir="auto" { (title) }
                p.sub { (state(&it)) " · " (when(&it)) " · a job in " (queue_link(&job.queue)) }
            }
            @if page.may(Role::Manage) { div.acts { (buttons(&it)) } }
        }
        (notice(&it))
        div.two {
            div {
                h2 { "Next times" }
                (next_times(&it, now_ms))
                h2 { "Its jobs" }
                (jobs(&it, &job, last_job.as_ref(), now_ms))
                @if page.may(Role::Inspect) {
                    h2 { "Payload" }
                    (payload(&job, &parts))
                }
            }
            aside { (about(&it, &job, now_ms)) }
        }
    };
    Ok(shell(&page, Tab::Schedules, &format!("Schedule {title}"), body).await)
}

/// The job that was submitted last, if it is still there.
async fn last_job(page: &Page, it: &Schedule) -> Option<Job> {
    let path = format!("/api/v1/jobs/{}?bytes_max=0", it.last_job?);
    page.ask.get(&path).await.ok()
}

fn buttons(it: &Schedule) -> Markup {
    let to = |action: &str| path_of(&format!("/schedule/{action}"), &it.name);
    html! {
        (button(&to("run"), "", "Run now…"))
        @if it.paused { (button(&to("resume"), "primary", "Resume…")) }
        @else { (button(&to("pause"), "", "Pause…")) }
        (button(&to("edit"), "", "Change…"))
        (button(&to("remove"), "danger", "Remove…"))
    }
}

/// The most important notice, shown first.
fn notice(it: &Schedule) -> Markup {
    let refused = it.last.as_ref().filter(|last| last.outcome == "refused");
    html! {
        @if let Some(last) = refused {
            p.notice.bad {
                "The job of its last time was refused: " (cut(&last.reason, 400))
                ". It does not come later; the next time is as it would be."
            }
        }
        @if it.paused {
            p.notice { "It is paused: times that come until it is resumed are passed over." }
        }
    }
}

/// The times that lie ahead, in its zone and in UTC.
pub(crate) fn next_times(it: &Schedule, now_ms: u64) -> Markup {
    let in_zone = |text: &str, zone: &str| -> Option<String> {
        let at = text.parse::<Timestamp>().ok()?.in_tz(zone).ok()?;
        Some(at.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string())
    };
    let is_utc = it.zone == "UTC";
    html! {
        @if it.next_times.is_empty() {
            p.muted { @if it.paused { "None while it is paused." } @else { "None: it is over." } }
        } @else {
            table.times {
                thead {
                    tr {
                        @if !is_utc { th { (cut(&it.zone, 40)) } }
                        th.opt[!is_utc] { "UTC" }
                        th.r { "From now" }
                    }
                }
                tbody {
                    @for at in &it.next_times {
                        tr {
                            @if !is_utc { td.nowrap { (in_zone(at, &it.zone).unwrap_or_default()) } }
                            td.nowrap.opt[!is_utc].soft[!is_utc] {
                                (in_zone(at, "UTC").unwrap_or_else(|| at.clone()))
                            }
                            td.r.nowrap { (time(at, now_ms)) }
                        }
                    }
                }
            }
            @if it.jitter_ms > 0 {
                p.muted { "It fires up to " (duration_ms(it.jitter_ms)) " later than that." }
            }
        }
    }
}

fn jobs(it: &Schedule, job: &ScheduledJob, last_job: Option<&Job>, now_ms: u64) -> Markup {
    let (field, queue) = job.queue.field();
    let tagged = Query::new().with(field, &queue).with("tag", &format!("schedule:{}", it.name));
    html! {
        @match (last_job, it.last_job) {
            (Some(last), _) => p {
                "The last one is " (job_link(last.id)) ", " (status_badge(&last.status))
                ", submitted " (time(&last.created_at, now_ms)) "."
            },
            (None, Some(id)) => p.muted { "The last one was " (id) "; it is not kept any more." },
            (None, None) => p.muted { "It has submitted none yet." },
        }
        @if it.submitted > 0 {
            p {
                (plural(it.submitted, "job")) " submitted so far. "
                a href=(tagged.to("/jobs")) { "See those that are kept" }
            }
        }
        @if let Some(due) = &it.pending_due_at {
            p { "One more comes when that one has ended: for the time " (time(due, now_ms)) "." }
        }
    }
}

fn payload(job: &ScheduledJob, parts: &JobBytes) -> Markup {
    let found = of_json(parts.payload.as_deref(), parts.payload_base64.as_deref());
    let kind = job.payload_type.as_deref().unwrap_or("json");
    match found {
        Some(found) => decode::shown(&found, kind, true, View::Decoded).body,
        None => html! { p.muted { "Empty." } },
    }
}

/// What happens while the last job is unfinished: the API's word, and what it means.
pub(crate) const OVERLAP: &[(&str, &str)] = &[
    ("skip", "the time is passed over"),
    ("queue_one", "one job comes when it has ended"),
    ("replace", "it is cancelled, and the new one comes"),
    ("allow", "a job comes all the same"),
];
/// What happens to times that were missed.
pub(crate) const MISSED: &[(&str, &str)] = &[
    ("skip", "they are passed over"),
    ("once", "one job comes for all of them"),
    ("all", "a job comes for each of them"),
];

fn meaning(words: &[(&str, &str)], word: &str) -> String {
    let found = words.iter().find(|(known, _)| *known == word);
    found.map_or(word, |(_, meaning)| *meaning).to_owned()
}

fn about(it: &Schedule, job: &ScheduledJob, now_ms: u64) -> Markup {
    let when = |name: &str, at: &Option<String>| {
        html! { @if let Some(at) = at { (fact(name, time(at, now_ms))) } }
    };
    let how_long = |name: &str, ms: Option<u64>| {
        html! { @if let Some(ms) = ms { (fact(name, html! { (duration_ms(ms)) })) } }
    };
    let how_many = |name: &str, count: Option<u32>| {
        html! { @if let Some(count) = count { (fact(name, html! { (grouped(count.into())) })) } }
    };
    html! {
        h2 { "Facts" }
        (facts(html! {
            @if let Some(last) = &it.last {
                (fact("Last time", html! { (time(&last.due_at, now_ms)) ", " (outcome(last)) }))
                @if let Some(late) = span_of(&last.due_at, &last.at).filter(|ms| *ms >= 1_000) {
                    (fact("Came to it", html! { (duration_ms(late)) " later" }))
                }
            }
            (when("Fires next", &it.fires_at))
            (fact("Jobs submitted", number(it.submitted)))
            (fact("Overlap", html! { "While its last job is unfinished, " (meaning(OVERLAP, &it.overlap)) }))
            (fact("Missed times", html! {
                (meaning(MISSED, &it.missed))
                @if let Some(max) = it.missed_max { ", up to " (grouped(max.into())) " in a row" }
            }))
            (how_long("Spread", Some(it.jitter_ms).filter(|ms| *ms > 0)))
            (when("From", &it.start_at))
            (when("Until", &it.end_at))
            @if job.priority != 0 { (fact("Priority", html! { (job.priority) })) }
            (how_many("Leases at most", job.attempts_max))
            (how_many("Failures at most", job.fails_max))
            (how_long("Time to run", job.ttr_ms))
            (how_long("Time to live", job.ttl_ms))
            (how_long("Kept when done", job.keep_ms))
            @if let Some(key) = &job.fair_key {
                (fact("Fair key", html! { span.mono dir="auto" { (cut(key, 256)) } }))
            }
            (fact("Tags", html! {
                @for tag in job.tags.iter().take(16) { span.tag { (cut(tag, 40)) } " " }
                span.tag { "schedule:" (cut(&it.name, 40)) }
            }))
        }))
    }
}
