//! Jobs that wait for others: which jobs a job may wait for, and what the end of one causes.
//!
//! The end of a job changes none of its dependents by itself, however many there are: the job is
//! kept among those that have ended until ticks have settled all its dependents, [`EVENTS_MAX`] / 2
//! at most at a time.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::command::Submit;
use crate::decide::finish::end;
use crate::decide::{Context, EVENTS_MAX, batches, refuse_if};
use crate::event::{BlockerEnded, Event};
use crate::failure_text::{AFTER_DEAD, AFTER_GONE};
use crate::job::{AFTER_MAX, After, Cause, JobId, OnDead, Outcome, Status};
use crate::rejection::Rejection;
use crate::state::{Blocker, LiveJob, State};

/// The jobs a submit waits for, and which of them have not ended yet.
pub(super) fn after(state: &State, submit: &Submit) -> Result<Option<Box<After>>, Rejection> {
    if submit.after.is_empty() {
        return Ok(None);
    }
    let jobs: BTreeSet<JobId> = submit.after.iter().copied().collect();
    refuse_if(jobs.len() > AFTER_MAX, Rejection::OutOfRange("after"))?;
    // A foreground job is not logged: after a crash it is gone, and jobs that wait for it would be
    // cancelled.
    refuse_if(submit.foreground, Rejection::OutOfRange("after"))?;
    let mut open = Vec::with_capacity(jobs.len());
    for id in &jobs {
        let is_job = state.status(*id).is_some()
            && state.deletion(*id).is_none()
            && !state.is_foreground(*id);
        refuse_if(!is_job && state.batch(*id).is_none(), Rejection::NoBlocker(*id))?;
        if verdict(state.blocker(*id), submit.on_dead) != Some(Verdict::GoesOn) {
            open.push(id.0);
        }
    }
    if submit.batch.is_some() {
        let behind = batches::behind(state, submit.id, submit.batch, &open)?;
        refuse_if(!behind.is_empty(), Rejection::Circle)?;
    }
    let jobs = jobs.iter().map(|id| id.0).collect();
    let on_dead = submit.on_dead as i32;
    Ok(Some(Box::new(After { jobs, on_dead, open, cancelled_by: 0 })))
}

/// The jobs that a retried job waits for: all that have not ended, except those that wait for it or
/// for its batch. Whoever retries the job knows what became of the others.
pub(super) fn after_again(
    state: &State,
    id: JobId,
    batch: u64,
    after: &mut After,
) -> Result<(), Rejection> {
    let is_open = |id: &&u64| state.blocker(JobId(**id)) == Blocker::Open;
    after.open = after.jobs.iter().filter(is_open).copied().collect();
    let batch = (batch > 0).then_some(JobId(batch));
    let behind = batches::behind(state, id, batch, &after.open)?;
    after.open.retain(|id| !behind.contains(id));
    after.cancelled_by = 0;
    Ok(())
}

/// What the end of one job means for one that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    GoesOn,
    Cancelled,
}

/// None: it waits on.
fn verdict(stands: Blocker, on_dead: OnDead) -> Option<Verdict> {
    match (stands, on_dead) {
        (Blocker::Open, _) | (Blocker::Dead, OnDead::Wait) => None,
        (Blocker::Done, _) | (Blocker::Dead | Blocker::Gone, OnDead::Run) => Some(Verdict::GoesOn),
        (Blocker::Dead, OnDead::Cancel) | (Blocker::Gone, OnDead::Cancel | OnDead::Wait) => {
            Some(Verdict::Cancelled)
        }
    }
}

/// Settles dependents of jobs that have ended, [`EVENTS_MAX`] / 2 at most: each goes on, waits for
/// fewer, or is cancelled.
pub(super) fn settle(cx: &mut Context<'_>) {
    let state = cx.state;
    let mut settled = BTreeSet::new();
    for id in state.dependents_to_settle() {
        if cx.out.events.len() >= EVENTS_MAX / 2 {
            return;
        }
        if settled.insert(id)
            && let Some(number) = state.find_live(id)
        {
            settle_one(cx, number);
        }
    }
}

fn settle_one(cx: &mut Context<'_>, number: u32) {
    let state = cx.state;
    let job = state.live_job(number);
    let Some(after) = job.after() else { return };
    let mut ended = Vec::new();
    let mut cancelled_by = 0;
    for id in &after.open {
        let stands = match state.blocker(JobId(*id)) {
            Blocker::Dead if state.faults().dead_counts_as_done => Blocker::Done,
            stands => stands,
        };
        let Some(verdict) = verdict(stands, after.on_dead()) else { continue };
        ended.push(*id);
        if verdict == Verdict::Cancelled && cancelled_by == 0 {
            cancelled_by = *id;
        }
    }
    if cancelled_by > 0 && job.deletion().is_none() {
        cancel(cx, number, JobId(cancelled_by));
        return;
    }
    let is_last = ended.len() == after.open.len() || state.faults().unblocked_early;
    let mut event = BlockerEnded {
        id: job.id(),
        ended,
        status: job.status() as i32,
        run_at_ms: job.run_at_ms(),
        order: job.order(),
        cancelled_by: if cancelled_by > 0 { cancelled_by } else { after.cancelled_by },
    };
    if job.status() == Status::Blocked && is_last {
        unblock(cx, job, &mut event);
    }
    cx.emit(Event::BlockerEnded(event), true);
}

/// It goes on as if it came now.
fn unblock(cx: &mut Context<'_>, job: &LiveJob, event: &mut BlockerEnded) {
    event.run_at_ms = job.run_at_ms().filter(|run_at| *run_at > cx.now_ms);
    let status = Status::waiting(false, false, event.run_at_ms.is_some());
    event.status = status as i32;
    if status == Status::Ready && job.order() == 0 {
        event.order = cx.next_order();
    }
}

/// A job is cancelled because one that it waited for is not done and will not be.
pub(super) fn cancel(cx: &mut Context<'_>, number: u32, because_of: JobId) {
    let is_dead = cx.state.blocker(because_of) == Blocker::Dead;
    let (code, what) = if is_dead { (AFTER_DEAD, "dead") } else { (AFTER_GONE, "gone") };
    let message = match cx.state.batch(because_of) {
        None => format!("job {because_of}, which it waited for, is {what}"),
        Some(batch) => {
            let left = if is_dead { batch.counts.dead } else { batch.counts.gone };
            format!("batch {because_of}, which it waited for, has jobs that are {what}: {left}")
        }
    };
    let outcome = Outcome {
        code: Bytes::from_static(code),
        message: Bytes::from(message.into_bytes()),
        ..Outcome::default()
    };
    end(cx, number, Status::Dead, Cause::Cancelled, Some(Box::new(outcome)));
}
