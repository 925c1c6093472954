//! Jobs that have something to do with a job: those that failed the same way, and the one that has its
//! unique key now. Each takes one request for data that the server keeps anyway.

use maud::{Markup, html};

use crate::html::{fact, facts, job_link, plural};
use crate::page::Page;
use crate::past::Failures;
use crate::query::Query;
use crate::shapes::{Job, JobPage};

/// The most failures that the API lists: as many as it follows.
const FAILURES_MAX: &str = "512";

/// What is related to a job, if anything is.
pub(crate) async fn of(page: &Page, job: &Job) -> Markup {
    let (error, key) = (same_error(page, job).await, same_key(page, job).await);
    html! {
        @if error.is_some() || key.is_some() {
            h2 { "Related" }
            (facts(html! {
                @if let Some(error) = error { (fact("Same error", error)) }
                @if let Some(key) = key { (fact("Same key", key)) }
            }))
        }
    }
}

/// How many attempts of its queue failed the same way in the last day, and where their jobs are.
async fn same_error(page: &Page, job: &Job) -> Option<Markup> {
    let fingerprint = job.fingerprint.as_ref()?;
    let (field, queue) = job.queue.field();
    let of_queue = Query::new().with(field, &queue);
    let asked = of_queue.clone().with("range", "day").with("points", "1");
    let asked = asked.with("limit", FAILURES_MAX).to("/api/v1/failures");
    let found: Failures = page.ask.get(&asked).await.ok()?;
    let group = found.failures.iter().find(|group| group.fingerprint == *fingerprint);
    let jobs = of_queue.with("fingerprint", fingerprint).to("/jobs");
    Some(html! {
        span.sentence {
            @if let Some(group) = group {
                (plural(group.count, "attempt")) " in the last day, "
            }
            a href=(jobs) { "see the jobs" }
        }
    })
}

/// The unfinished job that has the unique key of a finished one.
async fn same_key(page: &Page, job: &Job) -> Option<Markup> {
    let key = job.unique_key.as_ref()?;
    if !matches!(job.status.as_str(), "done" | "dead") {
        return Some(html! { span.soft { "no other job of the queue, until this one has ended" } });
    }
    let (field, queue) = job.queue.field();
    let asked = Query::new().with(field, &queue).with("unique_key", key).with("limit", "1");
    let found: JobPage = page.ask.get(&asked.to("/api/v1/jobs")).await.ok()?;
    Some(match found.jobs.first() {
        Some(holder) => html! { span.sentence { "job " (job_link(holder.id)) " has it now" } },
        None => html! { span.soft { "no unfinished job has it now" } },
    })
}
