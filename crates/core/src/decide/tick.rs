//! What time and restarts cause.

use std::collections::BTreeSet;

use crate::decide::finish::lose;
use crate::decide::{Context, Decided, EVENTS_MAX, flows, refuse_if};
use crate::event::{BatchesGone, Event, Extended, FormatRaised, Gone, IdsReserved, Ready, Started};
use crate::job::{Cause, JOB_ID_END, JOB_ID_SEQUENCE_END, JobId, Status};
use crate::rejection::Rejection;
use crate::seat::Seat;
use crate::state::Found;

/// At most [`EVENTS_MAX`] items that are due. First, and alone until all are settled, dependents of
/// jobs that have ended: a done job must not be gone before its dependents know it was done. Then
/// expired ones, so that none of them is leased or becomes ready.
pub(super) fn tick(cx: &mut Context<'_>, hold_expiry: bool) -> Decided {
    flows::settle(cx);
    if !cx.out.events.is_empty() {
        return Ok(());
    }
    let mut gone: BTreeSet<u64> = BTreeSet::new();
    if !hold_expiry {
        gone.extend(cx.state.due_expiries(cx.now_ms).take(EVENTS_MAX / 2));
        emit_expired(cx, &gone);
    }
    if gone.len() < EVENTS_MAX / 2 {
        for number in cx.state.due_timers(cx.now_ms).take(EVENTS_MAX / 2) {
            let job = cx.state.live_job(number);
            if gone.contains(&job.id()) {
                continue;
            }
            match job.status() {
                Status::Leased => lose(cx, number, Cause::Timeout),
                Status::Scheduled => {
                    let order = if job.order() == 0 { cx.next_order() } else { job.order() };
                    let ready = Ready { id: job.id(), order };
                    cx.emit(Event::Ready(ready), job.is_logged());
                }
                _ => {}
            }
        }
    }
    if gone.is_empty() {
        let ids = cx.state.surplus(EVENTS_MAX / 2);
        if !ids.is_empty() {
            cx.emit(Event::Gone(Gone { ids, cause: Cause::Limit as i32 }), true);
        }
    }
    // Batches go last: a job that goes must be counted in a batch that still exists.
    if !hold_expiry {
        let due = cx.state.due_batches(cx.now_ms).take(EVENTS_MAX / 2);
        let ids = Vec::from_iter(due.collect::<BTreeSet<u64>>());
        if !ids.is_empty() {
            cx.emit(Event::BatchesGone(BatchesGone { ids }), true);
        }
    }
    Ok(())
}

fn emit_expired(cx: &mut Context<'_>, gone: &BTreeSet<u64>) {
    let (deleted, expired): (Vec<u64>, Vec<u64>) =
        gone.iter().partition(|id| cx.state.deletion(JobId(**id)).is_some());
    let (memory, logged) = expired.iter().partition(|id| cx.state.is_foreground(JobId(**id)));
    let (by_ttl, by_person) = (Cause::Expired, Cause::Deleted);
    for (ids, cause, logged) in
        [(memory, by_ttl, false), (logged, by_ttl, true), (deleted, by_person, true)]
    {
        if !ids.is_empty() {
            cx.emit(Event::Gone(Gone { ids, cause: cause as i32 }), logged);
        }
    }
}

pub(super) fn start(cx: &mut Context<'_>, epoch: u64, seat: Seat) -> Decided {
    refuse_if(epoch <= cx.state.server().epoch, Rejection::OldEpoch)?;
    if let Some(known) = cx.state.server().seat() {
        refuse_if(known != seat, Rejection::OtherSeat(known))?;
    }
    cx.emit(Event::Started(Started::new(epoch, seat)), true);
    Ok(())
}

/// Leases of older epochs: bound ones end, the others keep going with a deadline that leaves their
/// holders time to come back. Ask again, starting after the last job of the events, while there are
/// any.
pub(super) fn recover(cx: &mut Context<'_>, from: JobId, grace_ms: u64) -> Decided {
    let epoch = cx.state.server().epoch;
    for found in cx.state.jobs_that_may_be(Status::Leased, from) {
        if cx.out.events.len() >= EVENTS_MAX {
            break;
        }
        let Found::Live(job) = found else { continue };
        let Some(lease) = job.lease().filter(|lease| lease.epoch < epoch) else { continue };
        let Some(number) = cx.state.find_live(job.id()) else { continue };
        if lease.bound {
            lose(cx, number, Cause::Restarted);
            continue;
        }
        let grace_ms = job.ttr_ms().map_or(grace_ms, |ttr| ttr.min(grace_ms));
        let earliest = cx.now_ms.saturating_add(grace_ms);
        let deadline_ms = lease.deadline_ms.map(|deadline| deadline.max(earliest));
        // The token's epoch stays: it is valid because the lease is in the folded log.
        let event = Extended { id: job.id().0, deadline_ms, epoch: lease.epoch };
        if deadline_ms != lease.deadline_ms {
            cx.emit(Event::Extended(event), true);
        }
    }
    Ok(())
}

pub(super) fn reserve_ids(cx: &mut Context<'_>, until: u64) -> Decided {
    let reserved_until = cx.state.server().ids_until;
    refuse_if(until > ids_end(reserved_until), Rejection::OutOfRange("id"))?;
    if until > reserved_until {
        cx.emit(Event::IdsReserved(IdsReserved { until, returned: false }), true);
    }
    Ok(())
}

/// Where the ids of this log end: at the end of the range of the shard in which they began. Before the
/// first block is reserved, they may begin in any shard's range.
fn ids_end(reserved_until: u64) -> u64 {
    if reserved_until <= 1 {
        return JOB_ID_END;
    }
    let shard = (reserved_until - 1) / JOB_ID_SEQUENCE_END;
    (shard + 1) * JOB_ID_SEQUENCE_END
}

pub(super) fn return_ids(cx: &mut Context<'_>, from: u64) -> Decided {
    let until = cx.state.server().ids_until;
    refuse_if(!(1..=until).contains(&from), Rejection::OutOfRange("id"))?;
    let is_in_use = cx.state.jobs_from(JobId(from)).next().is_some()
        || cx.state.batches_from(JobId(from)).next().is_some();
    refuse_if(is_in_use, Rejection::IdInUse)?;
    if from < until {
        cx.emit(Event::IdsReserved(IdsReserved { until: from, returned: true }), true);
    }
    Ok(())
}

pub(super) fn raise_format(cx: &mut Context<'_>, version: u32) -> Decided {
    if version > cx.state.server().format {
        cx.emit(Event::FormatRaised(FormatRaised { version }), true);
    }
    Ok(())
}
