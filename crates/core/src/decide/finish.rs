//! How attempts end: completed, failed, timed out, given back, cancelled.

use bytes::Bytes;

use crate::command::{Claim, Finish};
use crate::decide::{Decision, EVENTS_MAX, claimed, is_logged, live};
use crate::event::{Event, Requeued};
use crate::job::{Backoff, Cause, JobId, Origin, Outcome, Status};
use crate::rejection::Rejection;
use crate::state::State;

/// How often a job is tried, resolved: its own settings, else its queue's, else its protocol's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tries {
    /// Most leases; 0 means no limit.
    pub attempts_max: u32,
    /// Most failures; 0 means no limit.
    pub fails_max: u32,
    /// Wait between failures.
    pub backoff: Backoff,
}

pub(super) fn tries(state: &State, number: u32) -> Tries {
    let slot = state.slot(number);
    let policy = state.defaults().policy(slot.origin());
    let settings = state.queue_at(slot.queue).map(|queue| queue.settings());
    let rare = slot.find_rare();
    Tries {
        attempts_max: rare
            .and_then(|rare| rare.attempts_max)
            .or(settings.and_then(|settings| settings.attempts_max))
            .unwrap_or(policy.attempts_max),
        fails_max: rare
            .and_then(|rare| rare.fails_max)
            .or(settings.and_then(|settings| settings.fails_max))
            .unwrap_or(policy.fails_max),
        backoff: rare
            .and_then(|rare| rare.backoff)
            .or(settings.and_then(|settings| settings.backoff))
            .unwrap_or(policy.backoff),
    }
}

pub(super) fn finish(
    state: &State,
    finish: &Finish,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = claimed(state, finish.claim)?;
    let outcome = Box::new(Outcome {
        success: finish.success,
        bytes: finish.result.clone(),
        message: finish.message.clone(),
        error: finish.error.clone(),
        code: finish.code.clone(),
        worker_finished_at: finish.worker_finished_at.clone(),
    });
    if finish.success {
        end(state, number, Status::Done, Cause::Completed, Some(outcome), now_ms, out);
    } else {
        fail(state, number, finish.retry, outcome, now_ms, out);
    }
    Ok(())
}

fn fail(
    state: &State,
    number: u32,
    retry: bool,
    outcome: Box<Outcome>,
    now_ms: u64,
    out: &mut Decision,
) {
    let slot = state.slot(number);
    let tries = tries(state, number);
    let fails = slot.fails().saturating_add(1);
    let spent = (tries.fails_max > 0 && fails >= tries.fails_max)
        || (tries.attempts_max > 0 && slot.attempts >= tries.attempts_max);
    if !retry || spent {
        end(state, number, Status::Dead, Cause::Failed, Some(outcome), now_ms, out);
    } else {
        requeue(state, number, Cause::Failed, fails, Some(outcome), now_ms, out);
    }
}

/// An attempt ended without a word of the worker: tries left, or dead with its last result.
pub(super) fn lose(state: &State, number: u32, cause: Cause, now_ms: u64, out: &mut Decision) {
    let slot = state.slot(number);
    let tries = tries(state, number);
    let given_back = cause == Cause::Undone;
    let spare = u32::from(state.faults().attempts_off_by_one);
    if !given_back
        && tries.attempts_max > 0
        && slot.attempts >= tries.attempts_max.saturating_add(spare)
    {
        let kept = slot.extra.as_ref().and_then(|extra| extra.outcome.clone());
        end(state, number, Status::Dead, cause, kept, now_ms, out);
    } else {
        requeue(state, number, cause, slot.fails(), None, now_ms, out);
    }
}

fn requeue(
    state: &State,
    number: u32,
    cause: Cause,
    fails: u32,
    outcome: Option<Box<Outcome>>,
    now_ms: u64,
    out: &mut Decision,
) {
    let slot = state.slot(number);
    // Only an attempt nobody ever heard of is given back: its token is nobody's.
    let given_back = cause == Cause::Undone;
    let lost = matches!(cause, Cause::Timeout | Cause::HolderGone | Cause::Restarted);
    let by_gearman = slot
        .lease()
        .is_some_and(|lease| matches!(lease.door(), Origin::Gearman | Origin::GearmanDraft));
    // Gearman: a job that kills its worker must not block the queue.
    let to_tail = slot.order == 0 || (lost && by_gearman);
    let wait_ms = if matches!(cause, Cause::Undone | Cause::Released | Cause::Restarted) {
        0
    } else {
        let tried = if cause == Cause::Failed { fails } else { slot.attempts };
        tries(state, number).backoff.wait_ms(slot.job_id(), tried.max(1))
    };
    let event = Requeued {
        id: slot.id.get(),
        cause: cause as i32,
        attempts: if given_back { slot.attempts.saturating_sub(1) } else { slot.attempts },
        fails,
        order: if to_tail { out.next_order() } else { slot.order },
        run_at_ms: later(
            (wait_ms > 0).then(|| now_ms.saturating_add(wait_ms)),
            slot.run_at_ms().filter(|run_at| *run_at > now_ms),
        ),
        outcome,
        at_ms: now_ms,
        parked: slot.status() == Status::Parked,
    };
    out.tell(Event::Requeued(event), is_logged(slot));
}

fn later(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).max()
}

/// A job is done or dead.
fn end(
    state: &State,
    number: u32,
    status: Status,
    cause: Cause,
    outcome: Option<Box<Outcome>>,
    now_ms: u64,
    out: &mut Decision,
) {
    let slot = state.slot(number);
    let mut image = state.ended_image(number, cause, now_ms);
    image.status = status as i32;
    image.finished_ms = Some(now_ms);
    image.revision = image.revision.wrapping_add(1);
    if cause == Cause::Failed {
        image.fails = image.fails.saturating_add(1);
    }
    if let Some(rare) = image.rare.as_mut() {
        rare.run_at_ms = None;
    }
    let mut outcome = outcome.unwrap_or_default();
    if status == Status::Dead && cause != Cause::Failed && outcome.code.is_empty() {
        outcome.code = code_of(cause);
    }
    if image.rare().drop_result {
        outcome.bytes = None;
    }
    image.outcome = Some(outcome);
    image.kept_until_ms = kept_until(state, number, status, now_ms);
    out.tell(Event::Finished(image), is_logged(slot));
}

fn kept_until(state: &State, number: u32, status: Status, now_ms: u64) -> Option<u64> {
    let slot = state.slot(number);
    let settings = state.queue_at(slot.queue).map(|queue| queue.settings());
    let defaults = state.defaults();
    let keep_ms = if status == Status::Dead {
        Some(settings.and_then(|s| s.keep_dead_ms).unwrap_or(defaults.keep_dead_ms))
    } else {
        slot.find_rare()
            .and_then(|rare| rare.keep_ms)
            .or(settings.and_then(|settings| settings.keep_ms))
            .or(defaults.policy(slot.origin()).keep_ms)
    };
    let retained = keep_ms.map(|keep| now_ms.saturating_add(keep));
    match (retained, slot.expires_ms()) {
        (Some(retained), Some(expires)) => Some(retained.min(expires)),
        (retained, expires) => retained.or(expires),
    }
}

/// The code a dead job's outcome carries when no worker gave one.
fn code_of(cause: Cause) -> Bytes {
    Bytes::from_static(match cause {
        Cause::Timeout => b"timeout",
        Cause::HolderGone | Cause::Restarted => b"worker_lost",
        Cause::Cancelled => b"cancelled",
        Cause::Damaged => b"payload damaged",
        Cause::Limit => b"limit",
        _ => b"failed",
    })
}

pub(super) fn release(
    state: &State,
    claim: Claim,
    cause: Cause,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = claimed(state, claim)?;
    if state.slot(number).status() != Status::Leased {
        return Err(Rejection::NotHeld);
    }
    lose(state, number, cause, now_ms, out);
    Ok(())
}

pub(super) fn holder_gone(
    state: &State,
    holder: u64,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    for number in state.bound_to(holder).take(EVENTS_MAX) {
        lose(state, number, Cause::HolderGone, now_ms, out);
    }
    Ok(())
}

pub(super) fn damaged(
    state: &State,
    id: JobId,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = live(state, id)?;
    end(state, number, Status::Dead, Cause::Damaged, None, now_ms, out);
    // What is damaged must not be needed any more, or its record could never go.
    if let Some((Event::Finished(image), _)) = out.events.last_mut() {
        image.payload = None;
    }
    Ok(())
}

pub(super) fn cancel(
    state: &State,
    id: JobId,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = live(state, id)?;
    end(state, number, Status::Dead, Cause::Cancelled, None, now_ms, out);
    Ok(())
}
