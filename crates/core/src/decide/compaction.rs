//! Telling items again, so that the records that told them before can go.

use crate::command::Compact;
use crate::decide::{Decision, EVENTS_MAX, live};
use crate::event::{ConstraintSet, Event, PageMoved, QueueSet, ServerCompacted};
use crate::job::JobId;
use crate::rejection::Rejection;
use crate::state::{Found, Server, State};

pub(super) fn compact(
    state: &State,
    item: &Compact,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    match item {
        Compact::Job { id, revision, payload, result } => {
            let mut image = state.image(*id).ok_or(Rejection::NotFound)?;
            if image.revision != *revision {
                return Err(Rejection::Stale);
            }
            if image.foreground {
                return Err(Rejection::Foreground);
            }
            if let Some(payload) = payload {
                image.payload = Some(payload.clone());
            }
            if let (Some(result), Some(outcome)) = (result, image.outcome.as_mut()) {
                outcome.bytes = Some(result.clone());
            }
            out.emit(Event::Compacted(image), true);
        }
        Compact::Page { id, old, new } => {
            let number = live(state, *id)?;
            let pages = state.slot(number).find_options().map_or(&[][..], |options| &options.pages);
            if !pages.contains(old) {
                return Err(Rejection::Stale);
            }
            let moved = PageMoved { id: id.0, old: old.clone(), new: new.clone() };
            out.emit(Event::PageMoved(moved), true);
        }
        Compact::Finished(image) => {
            let Some(Found::Finished(stub)) = state.job(JobId(image.id)) else {
                return Err(Rejection::NotFound);
            };
            // Reading the result may have shortened its retention since the image was written.
            let mut image = image.clone();
            image.kept_until_ms = stub.kept_until_ms();
            out.emit(Event::Compacted(*image), true);
        }
        Compact::Queue(name) => {
            let queue = state.queue(name).ok_or(Rejection::NotFound)?;
            let set = QueueSet {
                name: name.clone(),
                settings: queue.settings().clone(),
                constraints_revision: state.server().constraints_revision,
            };
            out.emit(Event::QueueSet(set), true);
        }
        Compact::Constraint { number, from } => {
            let rule = state.constraint(*number).ok_or(Rejection::NoConstraint)?.clone();
            let buckets = state.buckets_of(*number, *from);
            let images = buckets.filter_map(|(label, bucket)| bucket.level.image(label));
            images.take(EVENTS_MAX - 1).for_each(|image| out.emit(Event::BucketSet(image), true));
            let revision = state.server().constraints_revision;
            let put_revision = state.constraint_revision(*number).unwrap_or_default();
            let unmatched_below = state.unmatched_below(*number);
            let set = ConstraintSet {
                constraint: rule,
                revision,
                at_ms: now_ms,
                put_revision,
                unmatched_below,
            };
            out.events.insert(0, (Event::ConstraintSet(set), true));
        }
        Compact::Server => {
            out.emit(Event::ServerCompacted(server_compacted(state.server())), true);
        }
    }
    Ok(())
}

/// The whole server item, as it is told again.
pub(super) fn server_compacted(server: &Server) -> ServerCompacted {
    ServerCompacted {
        ids_until: server.ids_until,
        epoch: server.epoch,
        format: server.format,
        next_order: server.next_order,
        next_constraint: server.next_constraint,
        constraints_revision: server.constraints_revision,
        relabelled_revision: server.relabelled_revision,
        relabelled_below: server.relabelled_below,
    }
}
