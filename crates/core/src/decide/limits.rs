//! Settings of queues, and constraints.

use bytes::Bytes;

use crate::command::Matched;
use crate::decide::places::{Stands, stands};
use crate::decide::{Context, Decided, check_place_of, check_queue_of_any_shard, refuse_if};
use crate::event::{ConstraintRemoved, ConstraintSet, Event, QueueSet, Relabelled, Server};
use crate::job::{JobId, LABELS_MAX};
use crate::queue::{
    AGING_MS_MAX, Constraint, FAIR_FIELD_BYTES_MAX, FAIR_KEY_BYTES_MAX, FAIR_WEIGHT_MAX,
    FAIR_WEIGHTS_MAX, Fair, FairWeight, LimitScope, QueueSettings, Rate,
};
use crate::rejection::Rejection;
use crate::state::{LiveJob, Queue, State};

/// Counts, periods and bursts of a rate stay below this, so that token arithmetic fits 64 bits.
pub const RATE_MAX: u64 = 1 << 31;

/// Most constraints at once: every submit is matched against all of them.
pub const CONSTRAINTS_MAX: usize = 1_000;

/// High, normal and low.
const PRIORITY_CLASSES: usize = 3;

pub(super) fn set_queue(cx: &mut Context<'_>, name: &Bytes, settings: &QueueSettings) -> Decided {
    check_queue_of_any_shard(cx.state, name)?;
    // A shard that the queue is leaving still works on its jobs.
    check_place_of(cx.state, name, true)?;
    refuse_if(stands(cx.state, name) == Stands::Offered, Rejection::Moves)?;
    let classes = settings.jobs_max_by_class.len();
    refuse_if(classes > PRIORITY_CLASSES, Rejection::OutOfRange("priority classes"))?;
    let ages = |step_ms: u64| (1..=AGING_MS_MAX).contains(&step_ms);
    refuse_if(!settings.aging_ms.is_none_or(ages), Rejection::OutOfRange("aging"))?;
    refuse_if(!settings.fair.as_ref().is_none_or(fair_fits), Rejection::OutOfRange("fair"))?;
    put_settings(cx, name, settings);
    Ok(())
}

/// A queue has these settings from now on.
pub(super) fn put_settings(cx: &mut Context<'_>, name: &Bytes, settings: &QueueSettings) {
    // The type of the queue's payloads decides what its jobs fall under: they are matched again.
    let before = cx.state.queue(name).map(Queue::settings);
    let kind = before.and_then(|before| before.bytes_type);
    let is_typed_anew = kind != settings.bytes_type && cx.state.constraints_count() > 0;
    // A submit that was matched by another field is matched again. Jobs that are there keep their
    // keys.
    let is_fair_by_another = before.map_or("", field_of) != field_of(settings);
    let server = cx.state.server();
    let step = u64::from(is_typed_anew || is_fair_by_another);
    let constraints_revision = server.constraints_revision + step;
    let set = QueueSet { name: name.clone(), settings: settings.clone(), constraints_revision };
    let relabelled =
        (is_fair_by_another && !is_typed_anew && cx.state.is_relabelled()).then(|| Server {
            constraints_revision,
            relabelled_revision: constraints_revision,
            relabelled_below: u64::MAX,
            ..server.clone()
        });
    cx.emit(Event::QueueSet(set), true);
    if let Some(server) = relabelled {
        cx.emit(Event::ServerCompacted(server), true);
    }
}

/// The payload field that a queue is fair by.
fn field_of(settings: &QueueSettings) -> &str {
    settings.fair.as_ref().map_or("", |fair| &fair.field)
}

/// Weights have to be in the order of their keys, each key once.
fn fair_fits(fair: &Fair) -> bool {
    let weights = &fair.weights;
    let fits = |entry: &FairWeight| {
        (1..=FAIR_WEIGHT_MAX).contains(&entry.weight) && entry.key.len() <= FAIR_KEY_BYTES_MAX
    };
    fair.field.len() <= FAIR_FIELD_BYTES_MAX
        && weights.len() <= FAIR_WEIGHTS_MAX
        && weights.iter().all(fits)
        && weights.is_sorted_by(|one, next| one.key < next.key)
}

/// Number 0 asks for a new number.
pub(super) fn set_constraint(
    cx: &mut Context<'_>,
    rule: &Constraint,
    scope: LimitScope,
) -> Decided {
    let is_unknown = rule.number != 0 && cx.state.constraint(rule.number).is_none();
    refuse_if(is_unknown, Rejection::NoConstraint)?;
    let is_too_many = rule.number == 0 && cx.state.constraints_count() >= CONSTRAINTS_MAX;
    refuse_if(is_too_many, Rejection::OutOfRange("the number of constraints"))?;
    refuse_if(cx.state.is_rebasing_constraint(rule.number), Rejection::Rebasing)?;
    refuse_if(cx.state.spans_shards(rule, scope), Rejection::SpansShards)?;
    let in_range = |value: u64| (1..=RATE_MAX).contains(&value);
    let fits = |rate: &Rate| [rate.count, rate.per_ms, rate.burst].into_iter().all(in_range);
    refuse_if(!rule.rate.as_ref().is_none_or(fits), Rejection::OutOfRange("rate"))?;
    let number = if rule.number == 0 { cx.state.server().next_constraint } else { rule.number };
    let constraint = Constraint { number, ..rule.clone() };
    let revision = cx.state.server().constraints_revision + 1;
    // Existing jobs are matched later: until then, none may start that may fall under a constraint
    // that lets none start.
    let stops = constraint.running_max == Some(0);
    let unmatched_below = if stops { cx.state.ids_end() } else { 0 };
    let set =
        ConstraintSet { constraint, revision, at_ms: cx.now_ms, put_revision: 0, unmatched_below };
    cx.emit(Event::ConstraintSet(set), true);
    Ok(())
}

pub(super) fn remove_constraint(cx: &mut Context<'_>, number: u32) -> Decided {
    cx.state.constraint(number).ok_or(Rejection::NoConstraint)?;
    let revision = cx.state.server().constraints_revision + 1;
    cx.emit(Event::ConstraintRemoved(ConstraintRemoved { number, revision }), true);
    Ok(())
}

pub(super) fn relabel(
    cx: &mut Context<'_>,
    id: JobId,
    revision: Option<u32>,
    matched: &Matched,
) -> Decided {
    let job = cx.state.live_job(cx.unchanged(id, revision)?);
    check_matched(cx.state, matched)?;
    emit_relabelled(cx, job, matched);
    Ok(())
}

pub(super) fn emit_relabelled(cx: &mut Context<'_>, job: &LiveJob, matched: &Matched) {
    if job.labels() != matched.labels {
        let relabelled = Relabelled { id: job.id(), labels: matched.labels.clone() };
        cx.emit(Event::Relabelled(relabelled), job.is_logged());
    }
}

/// Whether a job may have these labels from now on.
pub(super) fn check_matched(state: &State, matched: &Matched) -> Decided {
    refuse_if(matched.labels.len() > LABELS_MAX, Rejection::OutOfRange("labels"))?;
    let revision = state.server().constraints_revision;
    refuse_if(matched.constraints_revision != revision, Rejection::StaleConstraints)?;
    refuse_if(state.has_no_room_for(&matched.labels), Rejection::TooManyValues)
}

pub(super) fn note_relabelled(cx: &mut Context<'_>, revision: u64, below: JobId) -> Decided {
    let server = cx.state.server();
    refuse_if(revision != server.constraints_revision, Rejection::StaleConstraints)?;
    if (revision, below.0) > (server.relabelled_revision, server.relabelled_below) {
        let mut compacted = server.clone();
        (compacted.relabelled_revision, compacted.relabelled_below) = (revision, below.0);
        cx.emit(Event::ServerCompacted(compacted), true);
    }
    Ok(())
}
