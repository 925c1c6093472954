//! Settings of queues, and constraints.

use bytes::Bytes;

use crate::decide::{Decision, is_logged, live};
use crate::event::{ConstraintRemoved, ConstraintSet, Event, QueueSet, Relabelled};
use crate::job::{JobId, LABELS_MAX, Label};
use crate::queue::{Constraint, QUEUE_NAME_BYTES_MAX, QueueSettings};
use crate::rejection::Rejection;
use crate::state::State;

/// Counts, periods and bursts of a rate stay below this, so that token arithmetic fits 64 bits.
pub const RATE_MAX: u64 = 1 << 31;

/// High, normal and low.
const PRIORITY_CLASSES: usize = 3;

pub(super) fn set_queue(
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
    let set = QueueSet { name: name.clone(), settings: settings.clone() };
    out.tell(Event::QueueSet(set), true);
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
    let in_range = |value: u64| (1..=RATE_MAX).contains(&value);
    if let Some(rate) = &rule.rate
        && !(in_range(rate.count) && in_range(rate.per_ms) && in_range(rate.burst))
    {
        return Err(Rejection::OutOfRange("rate"));
    }
    let number = if rule.number == 0 { state.server().next_constraint } else { rule.number };
    let constraint = Constraint { number, ..rule.clone() };
    let revision = state.server().constraints_revision + 1;
    let set = ConstraintSet { constraint, revision, at_ms: now_ms };
    out.tell(Event::ConstraintSet(set), true);
    Ok(())
}

pub(super) fn remove_constraint(
    state: &State,
    number: u32,
    out: &mut Decision,
) -> Result<(), Rejection> {
    state.constraint(number).ok_or(Rejection::NoConstraint)?;
    let revision = state.server().constraints_revision + 1;
    out.tell(Event::ConstraintRemoved(ConstraintRemoved { number, revision }), true);
    Ok(())
}

pub(super) fn relabel(
    state: &State,
    id: JobId,
    labels: &[Label],
    out: &mut Decision,
) -> Result<(), Rejection> {
    if labels.len() > LABELS_MAX {
        return Err(Rejection::OutOfRange("labels"));
    }
    let slot = state.slot(live(state, id)?);
    if slot.labels() != labels {
        let relabelled = Relabelled { id: id.0, labels: labels.to_vec() };
        out.tell(Event::Relabelled(relabelled), is_logged(slot));
    }
    Ok(())
}
