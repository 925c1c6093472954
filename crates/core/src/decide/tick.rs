//! What time and restarts cause.

use std::collections::BTreeSet;

use crate::decide::finish::lose;
use crate::decide::{Decision, EVENTS_MAX, is_logged};
use crate::event::{Event, Extended, FormatRaised, Gone, IdsReserved, Ready, Started};
use crate::job::{Cause, JOB_ID_SEQUENCE_END, JobId, Status};
use crate::rejection::Rejection;
use crate::state::{Found, State};

/// At most [`EVENTS_MAX`] items that are due: expired ones first, so that none of them is handed
/// out or told to run again.
pub(super) fn tick(state: &State, hold_expiry: bool, now_ms: u64, out: &mut Decision) {
    let mut gone: BTreeSet<u64> = BTreeSet::new();
    if !hold_expiry {
        gone.extend(state.due_expiries(now_ms).take(EVENTS_MAX / 2));
        tell_gone(state, &gone, out);
    }
    if gone.len() < EVENTS_MAX / 2 {
        for number in state.due_timers(now_ms).take(EVENTS_MAX / 2) {
            let slot = state.slot(number);
            if gone.contains(&slot.id.get()) {
                continue;
            }
            match slot.status() {
                Status::Leased => lose(state, number, Cause::Timeout, now_ms, out),
                Status::Scheduled => {
                    let order = if slot.order == 0 { out.next_order() } else { slot.order };
                    let ready = Ready { id: slot.id.get(), order };
                    out.emit(Event::Ready(ready), is_logged(slot));
                }
                _ => {}
            }
        }
    }
    if gone.is_empty() {
        let ids = state.surplus(EVENTS_MAX / 2);
        if !ids.is_empty() {
            out.emit(Event::Gone(Gone { ids, cause: Cause::Limit as i32 }), true);
        }
    }
}

fn tell_gone(state: &State, gone: &BTreeSet<u64>, out: &mut Decision) {
    let (memory, logged): (Vec<u64>, Vec<u64>) =
        gone.iter().partition(|id| state.is_foreground(JobId(**id)));
    for (ids, logged) in [(memory, false), (logged, true)] {
        if !ids.is_empty() {
            out.emit(Event::Gone(Gone { ids, cause: Cause::Expired as i32 }), logged);
        }
    }
}

pub(super) fn start(state: &State, epoch: u64, out: &mut Decision) -> Result<(), Rejection> {
    if epoch <= state.server().epoch {
        return Err(Rejection::OldEpoch);
    }
    out.emit(Event::Started(Started { epoch }), true);
    Ok(())
}

/// Leases of older epochs: bound ones end, the others keep going with a deadline that leaves their
/// holders time to come back. Ask again from behind the last job told while there are any.
pub(super) fn recover(state: &State, from: JobId, grace_ms: u64, now_ms: u64, out: &mut Decision) {
    let epoch = state.server().epoch;
    for found in state.jobs_from(from) {
        if out.events.len() >= EVENTS_MAX {
            return;
        }
        let Found::Live(job) = found else { continue };
        let Some(lease) = job.lease().filter(|lease| lease.epoch < epoch) else { continue };
        let Some(number) = state.live(job.id()) else { continue };
        if lease.bound {
            lose(state, number, Cause::Restarted, now_ms, out);
            continue;
        }
        let grace_ms = job.ttr_ms().map_or(grace_ms, |ttr| ttr.min(grace_ms));
        let earliest = now_ms.saturating_add(grace_ms);
        let deadline_ms = lease.deadline_ms.map(|deadline| deadline.max(earliest));
        // The token's epoch stays: it is valid because the lease is in the folded log.
        let event = Extended { id: job.id().0, deadline_ms, epoch: lease.epoch };
        if deadline_ms != lease.deadline_ms {
            out.emit(Event::Extended(event), true);
        }
    }
}

pub(super) fn reserve_ids(state: &State, until: u64, out: &mut Decision) -> Result<(), Rejection> {
    if until > JOB_ID_SEQUENCE_END {
        return Err(Rejection::OutOfRange("id"));
    }
    if until > state.server().ids_until {
        out.emit(Event::IdsReserved(IdsReserved { until, returned: false }), true);
    }
    Ok(())
}

pub(super) fn return_ids(state: &State, from: u64, out: &mut Decision) -> Result<(), Rejection> {
    let until = state.server().ids_until;
    if !(1..=until).contains(&from) {
        return Err(Rejection::OutOfRange("id"));
    }
    if state.jobs_from(JobId(from)).next().is_some() {
        return Err(Rejection::IdInUse);
    }
    if from < until {
        out.emit(Event::IdsReserved(IdsReserved { until: from, returned: true }), true);
    }
    Ok(())
}

pub(super) fn raise_format(
    state: &State,
    version: u32,
    out: &mut Decision,
) -> Result<(), Rejection> {
    if version > state.server().format {
        out.emit(Event::FormatRaised(FormatRaised { version }), true);
    }
    Ok(())
}
