//! Why a job does not run: only what is known.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use spindle_core::job::{Attempt, Cause, Outcome};
use spindle_core::{JobId, JobImage, Status, Tries, cut_text};
use spindle_engine::{HeldBack, JobNow};
use tokio::task::yield_now;
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::JobPath;
use crate::instant;
use crate::view::{error_text, status_word, text};
use spindle_http::{Answered, door_word, no_job};

/// Jobs looked at in one hold of the lock, and how many holds there are.
const STEP_JOBS: usize = 512;
const STEPS_MAX: usize = 40;
/// The longest text of a worker that is shown, in bytes; the job has it in full.
const WORD_BYTES_MAX: usize = 256;

/// Why a job is where it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Why {
    /// The job.
    id: u64,
    /// Where it stands.
    status: &'static str,
    /// Whether a worker that asked now would get it, or one that comes before it.
    runnable: bool,
    /// All that is known, what matters most first.
    reasons: Vec<Reason>,
}

/// One thing that is known.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Reason {
    /// For programs: `scheduled`, `backoff`, `parked`, `leased`, `done`, `dead`, `paused`,
    /// `constraint`, `position`, `nobody_waits`, `workers_wait`, `last_attempt`.
    code: &'static str,
    /// For people.
    text: String,
    /// When this reason ends by itself, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// `position`: ready jobs of the queue that come before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<usize>,
    /// `position`: there are more; it was not counted further.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    /// `constraint`: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    constraint: Option<String>,
    /// `leased`: the worker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
}

impl Reason {
    fn new(code: &'static str, text: impl Into<String>) -> Reason {
        Reason { code, text: text.into(), ..Reason::default() }
    }

    fn until(mut self, ms: Option<u64>) -> Reason {
        self.until = ms.map(instant::shown);
        self
    }
}

/// Why a job is not running: its status, its queue, what comes before it, what holds it back.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", operation_id = "explain_job", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "What is known", body = Why),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn why(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Json<Why>> {
    let image = api.bridge().durable(api.engine().jobs().get(which)?).await;
    let image = image.ok_or_else(no_job)?;
    let status = image.status();
    let now = api.engine().jobs().now(&image);
    let mut reasons = vec![];
    reasons.extend(of_status(&image, &now.tries));
    let mut runnable = status == Status::Ready;
    if matches!(status, Status::Ready | Status::Scheduled | Status::Parked) {
        let held = holding(now);
        runnable &= held.is_empty();
        reasons.extend(held);
    }
    if status == Status::Ready {
        reasons.extend(position(&api, &image).await);
        reasons.push(workers(&api, &image));
    }
    if matches!(status, Status::Ready | Status::Scheduled | Status::Parked) {
        reasons.extend(last_attempt(&image));
    }
    Ok(Json(Why { id: image.id, status: status_word(status), runnable, reasons }))
}

fn of_status(image: &JobImage, tries: &Tries) -> Option<Reason> {
    let options = image.options();
    match image.status() {
        Status::Ready => None,
        Status::Scheduled if image.fails > 0 || image.attempts > 0 => {
            let text =
                format!("it waits until its backoff is over, for {}", next_try(image, tries));
            Some(Reason::new("backoff", text).until(options.run_at_ms))
        }
        Status::Scheduled => {
            Some(Reason::new("scheduled", "its time has not come").until(options.run_at_ms))
        }
        Status::Parked => Some(Reason::new("parked", "it is kept aside until it is released")),
        Status::Leased => Some(leased(image)),
        Status::Done => Some(Reason::new("done", "it is done")),
        Status::Dead => {
            let said = image.outcome.as_ref().map(|outcome| said(image, outcome));
            let said = said.filter(|said| !said.is_empty());
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            let text =
                format!("it failed for good{}{said}; retry lets it run again", spent(image, tries));
            Some(Reason::new("dead", text))
        }
    }
}

/// The try a job waits for: the next failure counts, or after a lost worker the next attempt.
fn next_try(image: &JobImage, tries: &Tries) -> String {
    let failed = image.history.last().is_none_or(|last| last.cause() == Cause::Failed);
    let (word, spent, max) = if failed && image.fails > 0 {
        ("try", image.fails, tries.fails_max.value)
    } else {
        ("attempt", image.attempts, tries.attempts_max.value)
    };
    let next = spent.saturating_add(1);
    if max > 0 { format!("{word} {next} of {max}") } else { format!("{word} {next}") }
}

/// How many failures a dead job had, where these are why it is dead.
fn spent(image: &JobImage, tries: &Tries) -> String {
    let by_worker = image.history.last().is_none_or(|last| last.cause() == Cause::Failed);
    if by_worker && tries.is_last_failure(image.fails) {
        format!(" at try {} of {}", image.fails, tries.fails_max.value)
    } else {
        String::new()
    }
}

/// How the last attempt ended of a job that is to be tried again.
fn last_attempt(image: &JobImage) -> Option<Reason> {
    let last = image.history.last().map(Attempt::cause);
    let outcome = image.outcome.as_ref().filter(|outcome| !outcome.success);
    let text = match (last, outcome) {
        (None | Some(Cause::Failed), Some(outcome)) if image.fails > 0 => {
            let said = said(image, outcome);
            let said = if said.is_empty() { "its worker did not say why".to_owned() } else { said };
            format!("the last attempt failed: {said}")
        }
        (Some(Cause::Timeout), _) => "the last attempt timed out".to_owned(),
        (Some(Cause::HolderGone | Cause::Restarted), _) => {
            "the worker of the last attempt was lost".to_owned()
        }
        (Some(Cause::Released), _) => "the last worker gave it back".to_owned(),
        _ => return None,
    };
    Some(Reason::new("last_attempt", text))
}

/// What was said of the end of an attempt, in a line.
fn said(image: &JobImage, outcome: &Outcome) -> String {
    let words = [
        ("code", text(&outcome.code)),
        ("message", text(&outcome.message)),
        ("error", error_text(&outcome.error, image.error_type())),
    ];
    let line = |(name, word): (&str, String)| {
        let word = String::from_utf8_lossy(cut_text(word.trim().as_bytes(), WORD_BYTES_MAX));
        let word: String = word.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        (!word.is_empty()).then(|| format!("{name} {word}"))
    };
    words.into_iter().filter_map(line).collect::<Vec<_>>().join(", ")
}

fn leased(image: &JobImage) -> Reason {
    let Some(lease) = &image.lease else { return Reason::new("leased", "a worker has it") };
    let worker = String::from_utf8_lossy(&lease.worker).into_owned();
    let since = instant::shown(lease.started_ms);
    let text = format!("a worker of the {} door has it since {since}", door_word(lease.door()));
    let mut reason = Reason::new("leased", text).until(lease.deadline_ms);
    reason.worker = Some(worker).filter(|worker| !worker.is_empty());
    reason
}

/// What would hold it back even if it were ready.
fn holding(now: JobNow) -> Vec<Reason> {
    let paused = now.is_queue_paused.then(|| Reason::new("paused", "its queue is paused"));
    paused.into_iter().chain(now.held_back.into_iter().map(constrained)).collect()
}

/// A constraint lets no job with its label start now.
fn constrained(held: HeldBack) -> Reason {
    let name = held.constraint;
    let text = match held.running_max {
        _ if held.unmatched => format!(
            "constraint {name} lets none of its jobs start, and whether this job is one of them is \
             still to be found out"
        ),
        Some(max) => format!("constraint {name}: {max} of its jobs run, and no more may"),
        None => format!("constraint {name}: no more jobs may start for now"),
    };
    // A running job that ends frees it too, and when that is nobody knows.
    let until = held.frees_ms.filter(|_| held.running_max.is_none());
    let mut reason = Reason::new("constraint", text).until(until);
    reason.constraint = Some(name);
    reason
}

/// How many ready jobs of its queue come before it. Counted in steps, while the line moves.
async fn position(api: &Api, image: &JobImage) -> Option<Reason> {
    let mut before = 0;
    for _ in 0..STEPS_MAX {
        let queues = api.engine().queues();
        let (seen, found) = queues.position(&image.queue, JobId(image.id), before, STEP_JOBS);
        if found {
            return Some(placed(before + seen, false));
        }
        if seen < STEP_JOBS {
            // It was leased or changed meanwhile.
            return None;
        }
        before += seen;
        yield_now().await;
    }
    Some(placed(before, true))
}

fn placed(before: usize, at_least: bool) -> Reason {
    let text = match (before, at_least) {
        (0, _) => "it is the next of its queue".to_owned(),
        (1, _) => "1 ready job of its queue comes before it".to_owned(),
        (_, false) => format!("{before} ready jobs of its queue come before it"),
        (_, true) => format!("at least {before} ready jobs of its queue come before it"),
    };
    let mut reason = Reason::new("position", text);
    (reason.before, reason.at_least) = (Some(before), at_least);
    reason
}

fn workers(api: &Api, image: &JobImage) -> Reason {
    let waiting = api.engine().observe().waiting_leases(&image.queue);
    if waiting > 0 {
        return Reason::new("workers_wait", format!("{waiting} clients wait for its queue"));
    }
    if api.engine().observe().has_sleepers(&image.queue) {
        return Reason::new("workers_wait", "workers sleep until its queue has work");
    }
    Reason::new("nobody_waits", "no worker waits for its queue right now")
}
