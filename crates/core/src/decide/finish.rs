//! How attempts end: completed, failed, timed out, given back, cancelled.

use bytes::Bytes;

use crate::command::{Claim, Finish};
use crate::decide::{Decision, EVENTS_MAX, claimed, is_logged, live};
use crate::event::{Event, Requeued};
use crate::failure_text::CANCELLED;
use crate::job::{Cause, JobId, Origin, Outcome, Status};
use crate::payload::Type;
use crate::rejection::Rejection;
use crate::state::{Slot, State};

pub(super) fn finish(
    state: &State,
    finish: &Finish,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = claimed(state, finish.claim)?;
    let by_lightjq =
        state.slot(number).lease().is_some_and(|lease| lease.door() == Origin::Lightjq);
    let error_kind = if by_lightjq { Type::Msgpack } else { Type::Bytes };
    let outcome = Box::new(Outcome {
        success: finish.success,
        bytes: finish.result.clone(),
        message: finish.message.clone(),
        error: finish.error.clone(),
        code: finish.code.clone(),
        worker_finished_at: finish.worker_finished_at.clone(),
        error_kind: if finish.error.is_empty() { 0 } else { error_kind as i32 },
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
    let tries = state.tries(number);
    let fails = slot.fails().saturating_add(1);
    if !retry || tries.is_last_failure(fails) || tries.is_last_attempt(slot.attempts) {
        end(state, number, Status::Dead, Cause::Failed, Some(outcome), now_ms, out);
    } else {
        requeue(state, number, Cause::Failed, fails, Some(outcome), now_ms, out);
    }
}

/// An attempt ended without a word of the worker: tries left, or dead with its last result.
pub(super) fn lose(state: &State, number: u32, cause: Cause, now_ms: u64, out: &mut Decision) {
    let slot = state.slot(number);
    let tries = state.tries(number);
    let spare = u32::from(state.faults().attempts_off_by_one);
    let is_last = tries.is_last_attempt(slot.attempts.saturating_sub(spare));
    if is_last && cause != Cause::Undone {
        let outcome = ran_out(slot, tries.attempts_max.value, cause);
        end(state, number, Status::Dead, cause, Some(outcome), now_ms, out);
    } else {
        requeue(state, number, cause, slot.fails(), None, now_ms, out);
    }
}

/// What is told of a job whose attempts ran out: the server's words, beside the last result that a
/// worker gave.
fn ran_out(slot: &Slot, attempts_max: u32, cause: Cause) -> Box<Outcome> {
    let attempts = slot.attempts;
    let message = match cause {
        Cause::Timeout => format!("{attempts} of {attempts_max} attempts: the last one timed out"),
        Cause::HolderGone | Cause::Restarted => {
            format!("{attempts} of {attempts_max} attempts: the last worker was lost")
        }
        Cause::Released => {
            format!("{attempts} of {attempts_max} attempts: the last worker gave the job back")
        }
        _ => format!("it had {attempts} attempts, and may have no more than {attempts_max} now"),
    };
    let last = slot.outcome().cloned().unwrap_or_default();
    Box::new(Outcome {
        success: false,
        code: code_of(cause),
        message: Bytes::from(message.into_bytes()),
        ..last
    })
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
        state.tries(number).backoff.value.wait_ms(slot.job_id(), tried.max(1))
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
    out.emit(Event::Requeued(event), is_logged(slot));
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
    let mut image = state.ended_image(number, cause, outcome.as_deref(), now_ms);
    image.status = status as i32;
    image.finished_ms = Some(now_ms);
    image.revision = image.revision.wrapping_add(1);
    if cause == Cause::Failed {
        image.fails = image.fails.saturating_add(1);
    }
    if let Some(options) = image.options.as_mut() {
        options.run_at_ms = None;
    }
    let mut outcome = outcome.unwrap_or_default();
    if status == Status::Dead && cause != Cause::Failed && outcome.code.is_empty() {
        outcome.code = code_of(cause);
    }
    if image.options().drop_result {
        outcome.bytes = None;
    }
    image.outcome = Some(outcome);
    image.kept_until_ms = kept_until(state, number, status, now_ms);
    out.emit(Event::Finished(image), is_logged(slot));
}

fn kept_until(state: &State, number: u32, status: Status, now_ms: u64) -> Option<u64> {
    let slot = state.slot(number);
    let settings = state.queue_at(slot.queue).map(|queue| queue.settings());
    let defaults = state.defaults();
    let keep_ms = if status == Status::Dead {
        Some(settings.and_then(|s| s.keep_dead_ms).unwrap_or(defaults.keep_dead_ms))
    } else {
        slot.find_options()
            .and_then(|options| options.keep_ms)
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
        Cause::Released => b"released",
        Cause::Cancelled => CANCELLED,
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
