//! Jobs and batches that a job waits for or waited for, and the flow that they make.

use axum::http::Method;
use maud::{Markup, html};
use spindle_http::work_on_bytes;

use crate::ask::Asked;
use crate::flow;
use crate::html::{batch_link, batch_path, grouped, job_link, status_badge};
use crate::page::Page;
use crate::pages::job::read;
use crate::query::Query;
use crate::shapes::{Before, Job, JobFlow};

/// Jobs and batches that are listed.
const LISTED_MAX: usize = 12;

/// The drawing of the flow that a job or a batch is in; nothing if it is in none.
pub(crate) async fn flow(page: &Page, own: u64) -> Asked<Markup> {
    let path = format!("/api/v1/jobs/{own}/flow");
    // A job that is gone meanwhile is in no flow.
    let Ok(answer) = page.ask.send(Method::GET, &path, None).await else { return Ok(html! {}) };
    work_on_bytes(answer.len(), move || {
        let found: JobFlow = read(&String::from_utf8_lossy(&answer))?;
        Ok(flow::section(&found, own))
    })
    .await
}

/// The jobs and batches before it, and what happens to it when one of them dies.
pub(crate) fn list(job: &Job, may_inspect: bool) -> Markup {
    let left_out = job.after.len().saturating_sub(LISTED_MAX);
    // The ones that keep it waiting, or did, come first.
    let mut after: Vec<&Before> = job.after.iter().collect();
    after.sort_by_key(|before| before.status == "done");
    let title = if job.status == "blocked" { "Waits for" } else { "Waited for" };
    html! {
        @if !job.after.is_empty() {
            h2 { (title) }
            ul.plain {
                @for before in after.into_iter().take(LISTED_MAX) { li { (row(before, may_inspect)) } }
            }
            @if left_out > 0 { p.muted { "And " (grouped(left_out as u64)) " more." } }
            @if let Some(words) = job.on_dead.as_deref().and_then(on_dead_words) {
                p.muted { (when_dead(job)) ", " (words) }
            }
        }
    }
}

/// A text about the jobs and batches that a job waits for, with their numbers as links. Only
/// numbers before the colon are linked; after it there are other numbers too.
pub(crate) fn linked(job: &Job, text: &str) -> Markup {
    let (mut rest, after) = text.split_at(text.find(':').unwrap_or(0));
    let mut parts = Vec::new();
    while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
        let (words, number) = rest.split_at(begin);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, behind) = number.split_at(end);
        let id = number.parse().ok().filter(|_| !behind.starts_with(" more"));
        let found = job.after.iter().find(|before| Some(before.id) == id);
        parts.push(html! {
            (words)
            @match found {
                Some(before) => a.mono href=(path(before)) { (number) },
                None => (number),
            }
        });
        rest = behind;
    }
    html! { @for part in &parts { (part) } (rest) (after) }
}

/// The page that shows what keeps a job waiting: a dead job, else one that is not done, else the
/// jobs of a batch that are not done.
pub(crate) fn first_path(job: &Job, sees_all: bool) -> Option<String> {
    let unfinished = || job.after.iter().filter(|before| before.status != "done");
    let dead = unfinished().find(|before| before.status == "dead" && !before.is_batch);
    let job = dead.or_else(|| unfinished().find(|before| !before.is_batch));
    let found = job.or_else(|| unfinished().next())?;
    // A list of a batch's jobs covers all queues.
    let of_batch = Query::new().with("batch", &found.id.to_string()).to("/jobs");
    Some(if found.is_batch && sees_all { of_batch } else { path(found) })
}

fn path(before: &Before) -> String {
    if before.is_batch { batch_path(before.id) } else { format!("/jobs/{}", before.id) }
}

fn row(before: &Before, may_inspect: bool) -> Markup {
    if before.is_batch {
        return html! { (batch_link(before.id)) " " (status_badge(&before.status)) };
    }
    let has_page = before.status != "gone";
    let result = format!("/jobs/{}#result", before.id);
    html! {
        @if has_page { (job_link(before.id)) } @else { span.mono { (before.id) } }
        " " (status_badge(&before.status))
        @if may_inspect && before.status == "done" {
            " " a href=(result) aria-label={ "The result of job " (before.id) } { "result" }
        }
    }
}

/// The case that a job's `on_dead` is about.
fn when_dead(job: &Job) -> &'static str {
    if job.after.iter().any(|before| before.is_batch) {
        "When one of them dies, or is a batch and ends without all of its jobs being done"
    } else {
        "When one of them dies"
    }
}

/// What a job's `on_dead` means.
fn on_dead_words(on_dead: &str) -> Option<&'static str> {
    Some(match on_dead {
        "cancel" => "this job is cancelled.",
        "run" => "this job runs all the same.",
        "wait" => "this job goes on waiting: a retry may bring that one to done.",
        _ => return None,
    })
}
