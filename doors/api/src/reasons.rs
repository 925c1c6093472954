//! Why a job does not run, in words, and what to do about it. These texts exist only here: the API
//! answers with them, and the command line and the pages show them as they are.

use serde::Serialize;
use spindle_core::job::{Attempt, Cause, Outcome};
use spindle_core::{FairPlace, JobImage, ReadyBefore, Status, Tries, cut_text};
use spindle_engine::{BlockerNow, HeldBack};
use spindle_http::door_word;
use utoipa::ToSchema;

use crate::batch::BatchStatus;
use crate::instant;
use crate::view::{error_text, status_word, text};

/// The longest text of a worker that is shown, in bytes; the job has it in full.
const WORD_BYTES_MAX: usize = 256;

/// One thing that is known.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Reason {
    /// For programs: `scheduled`, `backoff`, `parked`, `blocked`, `leased`, `done`, `dead`,
    /// `deleted`, `paused`, `constraint`, `position`, `fair_share`, `nobody_waits`, `workers_wait`, `last_attempt`.
    pub code: &'static str,
    /// For people.
    pub text: String,
    /// What a person can do about it, if there is anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<&'static str>,
    /// The command that does it, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// When this reason ends by itself, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// `position`: ready jobs of the queue that come before it. `fair_share`: those of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<usize>,
    /// `position`, `fair_share`: there may be more; they were not counted further.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// `constraint`: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// `leased`: the worker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

impl Reason {
    fn new(code: &'static str, text: impl Into<String>) -> Reason {
        Reason { code, text: text.into(), ..Reason::default() }
    }

    fn until(mut self, ms: Option<u64>) -> Reason {
        self.until = ms.map(instant::shown);
        self
    }

    /// What to do, and the command for it; an empty one is none.
    fn next(mut self, next: &'static str, command: String) -> Reason {
        self.next = Some(next);
        self.command = Some(command).filter(|command| !command.is_empty());
        self
    }
}

/// What a job's status says.
pub(crate) fn of_status(image: &JobImage, tries: &Tries) -> Option<Reason> {
    let (options, id) = (image.options(), image.id);
    let now = || format!("spindle edit {id} --run-at now");
    if let Some(deletion) = &options.deletion {
        let reason = Reason::new("deleted", "it is deleted, and gone when that cannot be undone");
        return Some(reason.until(Some(deletion.gone_ms)).next("undo its deletion", String::new()));
    }
    Some(match image.status() {
        // The caller looks up what such a job waits for.
        Status::Ready | Status::Blocked => return None,
        Status::Scheduled if image.fails > 0 || image.attempts > 0 => {
            let next = next_try(image, tries);
            Reason::new("backoff", format!("it waits until its backoff is over, for {next}"))
                .until(options.run_at_ms)
                .next("to try it at once, set its time to now", now())
        }
        Status::Scheduled => Reason::new("scheduled", "its time has not come")
            .until(options.run_at_ms)
            .next("to run it at once, set its time to now", now()),
        Status::Parked => Reason::new("parked", "it is kept aside until it is released")
            .next("release it", format!("spindle release {id}")),
        Status::Leased => {
            leased(image).next("wait for its worker, or cancel it", format!("spindle cancel {id}"))
        }
        Status::Done => Reason::new("done", "it is done")
            .next("to run it again, retry it", format!("spindle retry {id}")),
        Status::Dead => Reason::new("dead", death(image, tries))
            .next("retry it with all its tries", format!("spindle retry {id}")),
    })
}

/// That it waits for other jobs, and how the first of them stand.
pub(crate) fn blocked(image: &JobImage, waits_for: &[BlockerNow]) -> Option<Reason> {
    if image.options().deletion.is_some() {
        return None;
    }
    let first = waits_for.first()?;
    let ids: Vec<String> = waits_for.iter().map(|blocker| blocker.id.to_string()).collect();
    let more = image.options().open().len() - ids.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let word = match first.batch {
        Some(_) if ids.len() == 1 && more.is_empty() => "batch",
        _ if waits_for.iter().any(|blocker| blocker.batch.is_some()) => "jobs and batches",
        _ if ids.len() == 1 && more.is_empty() => "job",
        _ => "jobs",
    };
    let stand: Vec<String> = waits_for.iter().map(standing).collect();
    let because = format!("it waits for {word} {}{more}: {}", ids.join(", "), stand.join("; "));
    let dead = waits_for.iter().find(|blocker| blocker.status == Some(Status::Dead));
    let (next, command) = match dead {
        Some(dead) => {
            ("retry the dead one, or cancel this one", format!("spindle retry {}", dead.id))
        }
        None => match waits_for.iter().find(|blocker| blocker.batch.is_none()) {
            Some(first) => ("see why it is not done", format!("spindle why {}", first.id)),
            None => ("see which jobs of the batch are not done", String::new()),
        },
    };
    Some(Reason::new("blocked", because).next(next, command))
}

/// How a job or a batch stands that a job waits for.
fn standing(blocker: &BlockerNow) -> String {
    let id = blocker.id;
    if let Some(batch) = &blocker.batch {
        let (counts, status) = (batch.counts, BatchStatus::of(batch).word());
        let (total, unfinished, dead) = (counts.total(), counts.unfinished, counts.dead);
        return format!("{id} is {status}, {unfinished} of {total} jobs unfinished, {dead} dead");
    }
    match blocker.status {
        _ if blocker.is_deleted => format!("{id} is deleted, which can still be undone"),
        Some(Status::Leased) if !blocker.worker.is_empty() => {
            format!("{id} is leased by {}", text(&blocker.worker))
        }
        Some(status) => format!("{id} is {}", status_word(status)),
        None => format!("{id} is gone"),
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
    of(word, spent.saturating_add(1), max)
}

/// `try 2 of 5`, or `try 2` where there is no limit.
fn of(word: &str, number: u32, max: u32) -> String {
    if max > 0 { format!("{word} {number} of {max}") } else { format!("{word} {number}") }
}

/// Why a job is dead, in one sentence.
fn death(image: &JobImage, tries: &Tries) -> String {
    if image.is_cancelled() {
        let message = image.outcome.as_deref().map(|outcome| text(&outcome.message));
        return match message.filter(|message| !message.is_empty()) {
            Some(because) => format!("it was cancelled: {because}"),
            None => "somebody cancelled it".to_owned(),
        };
    }
    let attempt = || of("attempt", image.attempts, tries.attempts_max.value);
    let outcome = image.outcome.as_deref();
    let said = outcome.map(|outcome| said(image, outcome)).unwrap_or_default();
    let because = if said.is_empty() { String::new() } else { format!(": {said}") };
    match image.history.last().map(Attempt::cause) {
        Some(Cause::Timeout) => format!("no attempt is left: {} timed out", attempt()),
        Some(Cause::HolderGone | Cause::Restarted) => {
            format!("no attempt is left: the worker of {} was lost", attempt())
        }
        Some(Cause::Released) => {
            format!("no attempt is left: the worker of {} gave it back", attempt())
        }
        Some(Cause::Damaged) => "its payload is damaged".to_owned(),
        Some(Cause::Failed) if tries.is_last_failure(image.fails) => {
            format!(
                "no try is left: {} failed{because}",
                of("try", image.fails, tries.fails_max.value)
            )
        }
        Some(Cause::Failed) if tries.is_last_attempt(image.attempts) => {
            format!("no attempt is left: {} failed{because}", attempt())
        }
        Some(Cause::Failed) => format!("its worker failed it for good{because}"),
        _ => format!("it failed for good{because}"),
    }
}

/// How the last attempt of a job that is to be tried again ended.
pub(crate) fn last_attempt(image: &JobImage) -> Option<Reason> {
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

/// What was said of the end of an attempt: `"tray 2" (no paper, code exit_9)`. A message that the
/// error says too is not repeated.
fn said(image: &JobImage, outcome: &Outcome) -> String {
    let error = line(&error_text(&outcome.error, image.error_type()));
    let message = line(&text(&outcome.message));
    let code = line(&text(&outcome.code));
    let code = if code.is_empty() { code } else { format!("code {code}") };
    let (main, more) = match (error.is_empty(), message.is_empty()) {
        (true, true) => return code,
        (true, false) => (message, vec![code]),
        (false, _) if error.contains(&message) => (error, vec![code]),
        (false, _) => (error, vec![message, code]),
    };
    let more: Vec<String> = more.into_iter().filter(|word| !word.is_empty()).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    format!("\"{main}\"{more}")
}

/// The first line of a worker's text: the lines below it are usually a stack trace.
fn line(word: &str) -> String {
    let word = word.trim().lines().next().unwrap_or_default().trim_end();
    let word = String::from_utf8_lossy(cut_text(word.as_bytes(), WORD_BYTES_MAX));
    word.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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

/// Its queue is paused.
pub(crate) fn paused(queue: &[u8]) -> Reason {
    Reason::new("paused", "its queue is paused").next("resume its queue", of_name("resume", queue))
}

/// A constraint lets no job with its label start now.
pub(crate) fn constrained(held: HeldBack) -> Reason {
    let name = held.constraint;
    let text = match held.running_max {
        _ if held.unmatched => format!(
            "constraint {name} lets none of its jobs start, and whether this job is one of them is \
             still to be found out"
        ),
        Some(max) => format!("constraint {name}: {max} of its jobs run, and no more may"),
        None => format!("constraint {name}: no more jobs may start for now"),
    };
    // A running job that ends frees it too, and that time is not known.
    let until = held.frees_ms.filter(|_| held.running_max.is_none());
    let command = of_name("constraint show", name.as_bytes());
    let mut reason = Reason::new("constraint", text)
        .until(until)
        .next("wait for its turn, or raise the constraint's limit", command);
    reason.constraint = Some(name);
    reason
}

/// How many ready jobs of its queue come before it.
pub(crate) fn placed(place: ReadyBefore) -> Reason {
    let ReadyBefore { count: before, at_least } = place;
    let come = match before {
        1 => "1 ready job of its queue comes".to_owned(),
        _ => format!("{before} ready jobs of its queue come"),
    };
    let text = match (before, at_least) {
        (0, false) => "it is the next of its queue".to_owned(),
        (_, false) => format!("{come} before it"),
        (_, true) => format!("at least {come} before it"),
    };
    let mut reason = Reason::new("position", text);
    (reason.before, reason.at_least) = (Some(before), at_least);
    reason
}

/// Where it stands among the jobs of its key, in a fair queue.
pub(crate) fn takes_turns(place: FairPlace) -> Reason {
    let FairPlace { key, before, keys, weight } = place;
    let at_least = if before.at_least { "at least " } else { "" };
    let nth = before.count + 1;
    let of = if key.is_empty() {
        "the jobs without key".to_owned()
    } else {
        format!("key {:?}", text(&key))
    };
    let turns = match keys {
        1 => "no other key has ready jobs".to_owned(),
        _ => format!("{keys} keys take turns"),
    };
    let weight = if weight == 1 { String::new() } else { format!(", {weight} jobs in a turn") };
    let text = format!("it is {at_least}number {nth} of {of}{weight}; {turns}");
    let mut reason = Reason::new("fair_share", text);
    (reason.before, reason.at_least) = (Some(before.count), before.at_least);
    reason
}

/// Whether a worker waits for its queue: `waiting` clients do, or some sleep until it has work.
pub(crate) fn workers(waiting: usize, has_sleepers: bool) -> Reason {
    match (waiting, has_sleepers) {
        (1, _) => Reason::new("workers_wait", "1 client waits for its queue"),
        (2.., _) => Reason::new("workers_wait", format!("{waiting} clients wait for its queue")),
        (0, true) => Reason::new("workers_wait", "workers sleep until its queue has work"),
        (0, false) => Reason::new("nobody_waits", "no worker waits for its queue right now").next(
            "start a worker for its queue, or see what the workers do",
            "spindle workers".to_owned(),
        ),
    }
}

/// A command about something with a name, if a shell takes the name as it is.
fn of_name(command: &str, name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:/".contains(byte);
    let begins = name.first().is_some_and(is_plain);
    if !begins || !name.iter().all(|byte| is_plain(byte) || *byte == b'-') {
        return String::new();
    }
    format!("spindle {command} {}", String::from_utf8_lossy(name))
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
