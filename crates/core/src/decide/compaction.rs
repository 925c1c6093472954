//! Appending items again, so that the records that had them before can be dropped.

use crate::command::Compact;
use crate::consumer::Consumers;
use crate::decide::{Context, Decided, EVENTS_MAX, audit, batches, refuse_if, schedules};
use crate::event::{ConstraintSet, Event, PageMoved, QueueSet};
use crate::job::{JobId, Status};
use crate::places::Places;
use crate::rejection::Rejection;
use crate::state::Found;

pub(super) fn compact(cx: &mut Context<'_>, item: &Compact) -> Decided {
    match item {
        Compact::Job { id, revision, payload, result } => {
            let mut image = cx.state.image(*id).ok_or(Rejection::NotFound)?;
            refuse_if(image.revision != *revision, Rejection::Stale)?;
            refuse_if(image.foreground, Rejection::Foreground)?;
            if let Some(payload) = payload {
                image.payload = Some(payload.clone());
            }
            if let (Some(result), Some(outcome)) = (result, image.outcome.as_mut()) {
                outcome.bytes = Some(result.clone());
            }
            let is_lost =
                cx.state.faults().parked_not_compacted && image.status() == Status::Parked;
            cx.emit(Event::Compacted(image), !is_lost);
        }
        Compact::Page { id, old, new } => {
            let number = cx.live(*id)?;
            let pages = &cx.state.live_job(number).options().pages;
            refuse_if(!pages.contains(old), Rejection::Stale)?;
            let moved = PageMoved { id: id.0, old: old.clone(), new: new.clone() };
            cx.emit(Event::PageMoved(moved), true);
        }
        Compact::Finished(image) => {
            let Some(Found::Finished(finished)) = cx.state.job(JobId(image.id)) else {
                return Err(Rejection::NotFound);
            };
            let mut image = image.clone();
            finished.changes().put_into(&mut image);
            cx.emit(Event::Compacted(*image), true);
        }
        Compact::Queue(name) => {
            let queue = cx.state.queue(name).ok_or(Rejection::NotFound)?;
            let set = QueueSet {
                name: name.clone(),
                settings: queue.settings().clone(),
                constraints_revision: cx.state.server().constraints_revision,
            };
            cx.emit(Event::QueueSet(set), !cx.state.faults().settings_not_compacted);
        }
        Compact::Constraint { number, from } => {
            let rule = cx.state.constraint(*number).ok_or(Rejection::NoConstraint)?.clone();
            let buckets = cx.state.buckets_of(*number, *from);
            let images = buckets.filter_map(|(label, bucket)| bucket.level.image(label));
            let logged = !cx.state.faults().fill_not_compacted;
            images.take(EVENTS_MAX - 1).for_each(|image| cx.emit(Event::BucketSet(image), logged));
            let revision = cx.state.server().constraints_revision;
            let put_revision = cx.state.constraint_revision(*number).unwrap_or_default();
            let unmatched_below = cx.state.unmatched_below(*number);
            let set = ConstraintSet {
                constraint: rule,
                revision,
                at_ms: cx.now_ms,
                put_revision,
                unmatched_below,
            };
            cx.out.events.insert(0, (Event::ConstraintSet(set), true));
        }
        Compact::Audit { from, below } => audit::compact(cx, *from, *below),
        Compact::Schedule(name) => schedules::compact(cx, name)?,
        Compact::Batch(id) => batches::compact(cx, *id)?,
        Compact::Server => {
            let mut server = cx.state.server().clone();
            if cx.state.faults().places_not_compacted {
                server.places = Places::default();
            }
            if cx.state.faults().consumers_not_compacted {
                server.consumers = Consumers::default();
            }
            cx.emit(Event::ServerCompacted(server), true);
        }
    }
    Ok(())
}
