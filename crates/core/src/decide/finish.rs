//! How attempts end: completed, failed, timed out, given back, cancelled.

use bytes::Bytes;

use crate::command::{Claim, Finish};
use crate::decide::{Context, Decided, EVENTS_MAX, hold, refuse_if};
use crate::event::{Event, Requeued};
use crate::failure_text::CANCELLED;
use crate::job::{Cause, JobId, Outcome, Status};
use crate::payload::Type;
use crate::policy::Requeue;
use crate::rejection::Rejection;
use crate::state::{LiveJob, State};

pub(super) fn finish(cx: &mut Context<'_>, finish: &Finish) -> Decided {
    let number = cx.claimed(finish.claim)?;
    let lease = cx.state.live_job(number).lease();
    let error_type = lease.map_or(Type::Bytes, |lease| cx.state.policy(lease.door()).error_type);
    let outcome = Box::new(Outcome {
        success: finish.success,
        bytes: finish.result.clone(),
        message: finish.message.clone(),
        error: finish.error.clone(),
        code: finish.code.clone(),
        worker_finished_at: finish.worker_finished_at.clone(),
        error_kind: if finish.error.is_empty() { 0 } else { error_type as i32 },
    });
    if finish.success {
        end(cx, number, Status::Done, Cause::Completed, Some(outcome));
    } else {
        fail(cx, number, finish.retry, outcome);
    }
    Ok(())
}

fn fail(cx: &mut Context<'_>, number: u32, retry: bool, outcome: Box<Outcome>) {
    let job = cx.state.live_job(number);
    let tries = cx.state.tries(number);
    let fails = job.fails().saturating_add(1);
    let spare = u32::from(cx.state.faults().fails_off_by_one);
    if !retry || tries.is_last_failure(fails - spare) || tries.is_last_attempt(job.attempts()) {
        end(cx, number, Status::Dead, Cause::Failed, Some(outcome));
    } else {
        requeue(cx, number, Cause::Failed, fails, Some(outcome));
    }
}

/// An attempt ended without a report: the job is tried again, or is dead with its last result.
pub(super) fn lose(cx: &mut Context<'_>, number: u32, cause: Cause) {
    let job = cx.state.live_job(number);
    let tries = cx.state.tries(number);
    let spare = u32::from(cx.state.faults().attempts_off_by_one);
    let is_last = tries.is_last_attempt(job.attempts().saturating_sub(spare));
    if is_last && cause != Cause::Undone {
        let outcome = ran_out(job, tries.attempts_max.value, cause);
        end(cx, number, Status::Dead, cause, Some(outcome));
    } else {
        requeue(cx, number, cause, job.fails(), None);
    }
}

/// The outcome of a job whose attempts ran out: the server's message, and the last result that a
/// worker reported.
fn ran_out(job: &LiveJob, attempts_max: u32, cause: Cause) -> Box<Outcome> {
    let attempts = job.attempts();
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
    let last = job.outcome().cloned().unwrap_or_default();
    Box::new(Outcome {
        success: false,
        code: code_of(cause),
        message: Bytes::from(message.into_bytes()),
        ..last
    })
}

fn requeue(
    cx: &mut Context<'_>,
    number: u32,
    cause: Cause,
    fails: u32,
    outcome: Option<Box<Outcome>>,
) {
    let job = cx.state.live_job(number);
    // Only an attempt whose token nobody has seen is given back: the next lease has the same token.
    let faults = cx.state.faults();
    let given_back = cause == Cause::Undone && !faults.given_back_counts;
    let is_lost = matches!(cause, Cause::Timeout | Cause::HolderGone | Cause::Restarted);
    let goes_to_tail = |door| cx.state.policy(door).on_lost_lease == Requeue::ToTail;
    let to_tail = job.order() == 0
        || (is_lost && job.lease().is_some_and(|lease| goes_to_tail(lease.door())));
    let is_at_once = matches!(cause, Cause::Undone | Cause::Released | Cause::Restarted);
    let wait_ms = if is_at_once || faults.backoff_ignored {
        0
    } else {
        let tried = if cause == Cause::Failed { fails } else { job.attempts() };
        cx.state.tries(number).backoff.value.wait_ms(job.job_id(), tried.max(1))
    };
    let queue = cx.state.queue_at(job.queue());
    let ages = queue.is_some_and(|queue| queue.settings().aging_ms.is_some());
    let event = Requeued {
        id: job.id(),
        cause: cause as i32,
        attempts: if given_back { job.attempts().saturating_sub(1) } else { job.attempts() },
        fails,
        order: if to_tail { cx.next_order() } else { job.order() },
        run_at_ms: later(
            (wait_ms > 0).then(|| cx.now_ms.saturating_add(wait_ms)),
            job.run_at_ms().filter(|run_at| *run_at > cx.now_ms),
        ),
        outcome,
        at_ms: cx.now_ms,
        parked: job.status() == Status::Parked && !faults.parked_requeued,
        waits_anew: to_tail && job.order() != 0 && ages,
    };
    cx.emit(Event::Requeued(event), job.is_logged());
}

fn later(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).max()
}

/// A job is done or dead.
pub(super) fn end(
    cx: &mut Context<'_>,
    number: u32,
    status: Status,
    cause: Cause,
    outcome: Option<Box<Outcome>>,
) {
    let job = cx.state.live_job(number);
    let mut image = cx.state.ended_image(number, cause, outcome.as_deref(), cx.now_ms);
    image.status = status as i32;
    image.finished_ms = Some(cx.now_ms);
    image.revision = image.revision.wrapping_add(1);
    if cause == Cause::Failed {
        image.fails = image.fails.saturating_add(1);
    }
    if let Some(options) = image.options.as_mut() {
        options.run_at_ms = None;
        options.deletion = None;
        if let Some(after) = options.after.as_mut() {
            after.open.clear();
        }
    }
    let mut outcome = outcome.unwrap_or_default();
    if status == Status::Dead && cause != Cause::Failed && outcome.code.is_empty() {
        outcome.code = code_of(cause);
    }
    if image.options().drop_result {
        outcome.bytes = None;
    }
    image.outcome = Some(outcome);
    image.kept_until_ms = kept_until(cx.state, number, status, cx.now_ms);
    cx.emit(Event::Finished(image), job.is_logged());
}

fn kept_until(state: &State, number: u32, status: Status, now_ms: u64) -> Option<u64> {
    let job = state.live_job(number);
    let settings = state.queue_at(job.queue()).map(|queue| queue.settings());
    let defaults = state.defaults();
    let keep_ms = if status == Status::Dead {
        Some(settings.and_then(|s| s.keep_dead_ms).unwrap_or(defaults.keep_dead_ms))
    } else {
        job.options()
            .keep_ms
            .or(settings.and_then(|settings| settings.keep_ms))
            .or(state.policy(job.origin()).keep_ms)
    };
    let retained = keep_ms.map(|keep| now_ms.saturating_add(keep));
    match (retained, job.expires_ms()) {
        (Some(retained), Some(expires)) => Some(retained.min(expires)),
        (retained, expires) => retained.or(expires),
    }
}

/// The code of a dead job's outcome when no worker gave one.
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

pub(super) fn release(cx: &mut Context<'_>, claim: Claim, cause: Cause) -> Decided {
    let number = cx.claimed(claim)?;
    refuse_if(cx.state.live_job(number).status() != Status::Leased, Rejection::NotHeld)?;
    lose(cx, number, cause);
    Ok(())
}

pub(super) fn holder_gone(cx: &mut Context<'_>, holder: u64) -> Decided {
    for number in cx.state.bound_to(holder).take(EVENTS_MAX) {
        lose(cx, number, Cause::HolderGone);
    }
    Ok(())
}

pub(super) fn damaged(cx: &mut Context<'_>, id: JobId) -> Decided {
    if cx.state.live(id).is_some_and(|job| job.deletion().is_some()) {
        // It could not be run again as it is.
        return hold::delete(cx, id, Cause::Deleted);
    }
    end_by_server(cx, id, Cause::Damaged)?;
    // The damaged bytes must not be needed any more, or their record could never be dropped.
    if let Some((Event::Finished(image), _)) = cx.out.events.last_mut() {
        image.payload = None;
    }
    Ok(())
}

pub(super) fn cancel(cx: &mut Context<'_>, id: JobId) -> Decided {
    cx.check_not_deleted(id)?;
    end_by_server(cx, id, Cause::Cancelled)
}

fn end_by_server(cx: &mut Context<'_>, id: JobId, cause: Cause) -> Decided {
    let number = cx.live(id)?;
    end(cx, number, Status::Dead, cause, None);
    Ok(())
}
