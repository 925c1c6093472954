//! The attempts of a job: its way through the statuses, and what became of each attempt.

use maud::{Markup, html};

use crate::html::{Time, cut, duration_ms, first_line, plural, since, span_of, time};
use crate::shapes::{Attempt, Job, Lease, Progress};

/// The most steps shown; the middle of a longer way is left out.
const STEPS_MAX: usize = 12;
/// How many characters of a worker's text are shown at first.
const WORDS_CHARS_MAX: usize = 160;

/// One step of a way.
struct Step {
    /// The status that gives its colour.
    status: &'static str,
    label: String,
    at: Option<String>,
}

/// A job's way from its submit to where it is.
pub(crate) fn way(job: &Job) -> Markup {
    let mut steps = vec![Step::new("ready", "Submitted", Some(&job.created_at))];
    let mut ended: Option<&str> = None;
    for attempt in &job.history {
        steps.extend(ended.and_then(|ended| wait(ended, &attempt.started_at)));
        let (status, sign) = sign_of(&attempt.outcome);
        let label = format!("Try {} {sign}", attempt.attempt);
        steps.push(Step::new(status, &label, Some(&attempt.started_at)));
        ended = Some(&attempt.ended_at);
    }
    steps.push(last(job));
    let left_out = steps.len().saturating_sub(STEPS_MAX);
    if left_out > 0 {
        let at = STEPS_MAX / 3;
        let gap = Step::new("parked", &format!("{left_out} more"), None);
        steps.splice(at..at + left_out, [gap]);
    }
    html! {
        ol.way aria-label="The job's way" {
            @for step in &steps {
                li class=(step.status) {
                    span { (step.label) }
                    @if let Some(at) = &step.at {
                        " "
                        time datetime=(at) title=(at) data-exact { (Time::read(at, 0).map(|at| at.clock()).unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

impl Step {
    fn new(status: &'static str, label: &str, at: Option<&str>) -> Step {
        Step { status, label: label.to_owned(), at: at.map(str::to_owned) }
    }
}

/// A pause between two attempts, if it was one.
fn wait(ended: &str, began: &str) -> Option<Step> {
    let ms = span_of(ended, began).filter(|ms| *ms >= 1_000)?;
    Some(Step::new("scheduled", &format!("waits {}", duration_ms(ms)), None))
}

fn sign_of(outcome: &str) -> (&'static str, &'static str) {
    match outcome {
        "completed" => ("done", "✓"),
        "released" | "undone" | "restarted" => ("parked", "↩"),
        _ => ("dead", "✗"),
    }
}

/// Where it is now.
fn last(job: &Job) -> Step {
    let finished = job.finished_at.as_deref();
    match job.status.as_str() {
        "done" => Step::new("done", "Done", finished),
        "dead" => Step::new("dead", "Dead", finished),
        "leased" => {
            let lease = job.lease.as_ref();
            let try_now = lease.map_or(job.attempts, |lease| lease.attempt);
            let since = lease.map(|lease| lease.started_at.as_str());
            Step::new("leased", &format!("Try {try_now} runs"), since)
        }
        "scheduled" => Step::new("scheduled", "Scheduled for", job.run_at.as_deref()),
        "parked" => Step::new("parked", "Parked", None),
        "blocked" => Step::new("blocked", "Waits for other jobs", None),
        _ => Step::new("ready", "Ready", None),
    }
}

/// The attempts, the newest first.
pub(crate) fn table(job: &Job, now_ms: u64) -> Markup {
    let left_out = u64::from(job.attempts).saturating_sub(job.history.len() as u64);
    let left_out = left_out.saturating_sub(u64::from(job.lease.is_some()));
    html! {
        h2 { "Tries" }
        @if job.history.is_empty() && job.lease.is_none() {
            p.muted { "None yet." }
        } @else {
            table.list {
                thead {
                    tr { th { "Try" } th { "Worker" } th.r { "Began" } th.r { "Took" } th { "Outcome" } }
                }
                tbody {
                    @if let Some(lease) = &job.lease { (running(lease, job.progress.as_ref(), now_ms)) }
                    @for attempt in job.history.iter().rev() { (row(attempt, now_ms)) }
                }
            }
            @if left_out > 0 {
                p.muted { (plural(left_out, "other try")) " not kept: the first and last 16 are." }
            }
        }
    }
}

/// The attempt that runs, and how far it is.
fn running(lease: &Lease, progress: Option<&Progress>, now_ms: u64) -> Markup {
    let since = since(&lease.started_at, now_ms);
    let worker = if lease.worker.is_empty() { &lease.door } else { &lease.worker };
    html! {
        tr {
            td data-before="try" { (lease.attempt) }
            td.mono { (cut(worker, 40)) }
            td.r.nowrap data-before="began" { (time(&lease.started_at, now_ms)) }
            td.r.nowrap data-before="took" { @if let Some(ms) = since { (duration_ms(ms)) " so far" } }
            td.what {
                span.leased { "runs" }
                @if let Some(progress) = progress { " · " (far(progress)) }
            }
        }
    }
}

/// A worker's progress; if it is given in numbers, as a share too.
fn far(progress: &Progress) -> Markup {
    let Progress { numerator, denominator, remaining_s } = progress;
    let number = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    let share = match (number(numerator), number(denominator)) {
        (Some(done), Some(all)) if all > 0.0 => Some((done / all).clamp(0.0, 1.0)),
        _ => None,
    };
    let said = format!("{} of {}", cut(numerator, 64), cut(denominator, 64));
    html! {
        span dir="auto" { (said) }
        @if let Some(share) = share {
            " · " (format!("{:.0} %", share * 100.0))
            progress max="1000" value=(format!("{:.0}", share * 1000.0)) aria-label="Done" {}
        }
        @if let Some(seconds) = remaining_s { " · " (duration_ms(seconds * 1000)) " left" }
    }
}

fn row(attempt: &Attempt, now_ms: u64) -> Markup {
    let took = span_of(&attempt.started_at, &attempt.ended_at).map(duration_ms);
    let worker = if attempt.worker.is_empty() { &attempt.door } else { &attempt.worker };
    html! {
        tr {
            td data-before="try" { (attempt.attempt) }
            td.mono { (cut(worker, 40)) }
            td.r.nowrap data-before="began" { (time(&attempt.started_at, now_ms)) }
            td.r.nowrap data-before="took" { (took.unwrap_or_default()) }
            td.what {
                span class=(sign_of(&attempt.outcome).0) { (outcome_words(&attempt.outcome)) }
                @for word in [&attempt.code, &attempt.error, &attempt.message] {
                    @if !word.is_empty() { " · " span.mono dir="auto" { (first_line(word, WORDS_CHARS_MAX)) } }
                }
            }
        }
    }
}

/// An outcome in words.
fn outcome_words(outcome: &str) -> &str {
    match outcome {
        "timeout" => "lease ran out",
        "holder_gone" => "worker's connection closed",
        "released" => "given back",
        "restarted" => "server restarted",
        other => other,
    }
}
