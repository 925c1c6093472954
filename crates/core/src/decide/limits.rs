//! Settings of queues, and constraints.

use bytes::Bytes;

use crate::command::Matched;
use crate::decide::compaction::server_compacted;
use crate::decide::{Decision, is_logged, live};
use crate::event::{ConstraintRemoved, ConstraintSet, Event, QueueSet, Relabelled};
use crate::job::{JobId, LABELS_MAX};
use crate::queue::{Constraint, QUEUE_NAME_BYTES_MAX, QueueSettings};
use crate::rejection::Rejection;
use crate::state::State;

/// Counts, periods and bursts of a rate stay below this, so that token arithmetic fits 64 bits.
pub const RATE_MAX: u64 = 1 << 31;

/// Most constraints at once: every submit is matched against all of them.
pub const CONSTRAINTS_MAX: usize = 1_000;

/// High, normal and low.
const PRIORITY_CLASSES: usize = 3;

pub(super) fn set_queue(
    state: &State,
    name: &Bytes,
    settings: &QueueSettings,
    out: &mut Decision,
) -> Result<(), Rejection> {
    if !(1..=QUEUE_NAME_BYTES_MAX).contains(&name.len()) {
        return Err(Rejection::OutOfRange("queue name"));
    }
    if settings.jobs_max_by_class.len() > PRIORITY_CLASSES {
        return Err(Rejection::OutOfRange("priority classes"));
    }
    // What the queue's bytes are decides what its jobs fall under: they are matched again.
    let kind = state.queue(name).and_then(|queue| queue.settings().bytes_type);
    let step = u64::from(kind != settings.bytes_type && state.constraints_count() > 0);
    let set = QueueSet {
        name: name.clone(),
        settings: settings.clone(),
        constraints_revision: state.server().constraints_revision + step,
    };
    out.emit(Event::QueueSet(set), true);
    Ok(())
}

/// Number 0 asks for a new number.
pub(super) fn set_constraint(
    state: &State,
    rule: &Constraint,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    if rule.number != 0 && state.constraint(rule.number).is_none() {
        return Err(Rejection::NoConstraint);
    }
    if rule.number == 0 && state.constraints_count() >= CONSTRAINTS_MAX {
        return Err(Rejection::OutOfRange("the number of constraints"));
    }
    if state.is_settling_constraint(rule.number) {
        return Err(Rejection::Settling);
    }
    let in_range = |value: u64| (1..=RATE_MAX).contains(&value);
    if let Some(rate) = &rule.rate
        && !(in_range(rate.count) && in_range(rate.per_ms) && in_range(rate.burst))
    {
        return Err(Rejection::OutOfRange("rate"));
    }
    let number = if rule.number == 0 { state.server().next_constraint } else { rule.number };
    let constraint = Constraint { number, ..rule.clone() };
    let revision = state.server().constraints_revision + 1;
    // What jobs that are there fall under is found out later: until then none may start that may
    // fall under a constraint that lets none start.
    let stops = constraint.running_max == Some(0);
    let unmatched_below = if stops { state.ids_end() } else { 0 };
    let set =
        ConstraintSet { constraint, revision, at_ms: now_ms, put_revision: 0, unmatched_below };
    out.emit(Event::ConstraintSet(set), true);
    Ok(())
}

pub(super) fn remove_constraint(
    state: &State,
    number: u32,
    out: &mut Decision,
) -> Result<(), Rejection> {
    state.constraint(number).ok_or(Rejection::NoConstraint)?;
    let revision = state.server().constraints_revision + 1;
    out.emit(Event::ConstraintRemoved(ConstraintRemoved { number, revision }), true);
    Ok(())
}

pub(super) fn relabel(
    state: &State,
    id: JobId,
    revision: Option<u32>,
    matched: &Matched,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let slot = state.slot(live(state, id)?);
    if revision.is_some_and(|revision| revision != slot.revision) {
        return Err(Rejection::Stale);
    }
    check_matched(state, matched)?;
    if slot.labels() != matched.labels {
        let relabelled = Relabelled { id: id.0, labels: matched.labels.clone() };
        out.emit(Event::Relabelled(relabelled), is_logged(slot));
    }
    Ok(())
}

/// Whether a job may have these labels from now on.
pub(super) fn check_matched(state: &State, matched: &Matched) -> Result<(), Rejection> {
    if matched.labels.len() > LABELS_MAX {
        return Err(Rejection::OutOfRange("labels"));
    }
    if matched.constraints_revision != state.server().constraints_revision {
        return Err(Rejection::StaleConstraints);
    }
    if state.has_no_room_for(&matched.labels) {
        return Err(Rejection::TooManyValues);
    }
    Ok(())
}

pub(super) fn note_relabelled(
    state: &State,
    revision: u64,
    below: JobId,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let server = state.server();
    if revision != server.constraints_revision {
        return Err(Rejection::StaleConstraints);
    }
    if (revision, below.0) > (server.relabelled_revision, server.relabelled_below) {
        let mut carried = server_compacted(server);
        (carried.relabelled_revision, carried.relabelled_below) = (revision, below.0);
        out.emit(Event::ServerCompacted(carried), true);
    }
    Ok(())
}
