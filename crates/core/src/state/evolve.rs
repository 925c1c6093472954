//! Folding events. Total: an event for an absent item changes nothing.

use super::change::QueueSettingsAt;
use super::image::{ended_attempt, owned, owned_attempt, owned_lease};
use super::*;
use crate::event::{Edited, Event, Extended, Leased, Relabelled, Requeued};
use crate::job::{ATTEMPTS_KEPT, Attempt, JobId, JobImage, Status};

impl State {
    /// Folds one event, told at this place of the log. What is not logged (a foreground job's) is
    /// told at the place where the next event will be.
    pub fn evolve(&mut self, event: &Event, at: Place) {
        match event {
            Event::Submitted(image) | Event::Retried(image) | Event::Persisted(image) => {
                self.put_live(image, at, true);
            }
            Event::Compacted(image) if image.status().is_finished() => self.insert_stub(image, at),
            Event::Compacted(image) => self.put_live(image, at, false),
            Event::Finished(image) if image.foreground => {
                self.remove_job(JobId(image.id));
            }
            Event::Finished(image) => self.insert_stub(image, at),
            Event::Leased(leased) => self.on_leased(leased, at),
            Event::Extended(extended) => self.on_extended(extended, at),
            Event::Requeued(requeued) => self.on_requeued(requeued, at),
            Event::Ready(ready) => self.change(JobId(ready.id), at, |slot| {
                slot.set_status(Status::Ready);
                slot.order = ready.order;
                slot.set_run_at(None);
            }),
            Event::Gone(gone) => {
                for id in &gone.ids {
                    self.remove_job(JobId(*id));
                }
            }
            Event::Edited(edited) => self.on_edited(edited, at),
            Event::ResultRead(read) => {
                if let Some(number) = self.stub(JobId(read.id)) {
                    self.set_kept_until(number, read.kept_until_ms);
                }
            }
            Event::StateSet(set) => self.on_state_set(set, at),
            Event::PageMoved(moved) => self.on_page_moved(moved),
            Event::Relabelled(relabelled) => self.on_relabelled(relabelled, at),
            Event::QueueSet(set) => {
                let revision = &mut self.server.constraints_revision;
                *revision = set.constraints_revision.max(*revision);
                self.set_queue(
                    &set.name,
                    QueueSettingsAt { settings: set.settings.clone(), position: at.position },
                );
            }
            Event::ConstraintSet(set) => self.on_constraint_set(set, at),
            Event::ConstraintRemoved(removed) => self.on_constraint_removed(removed),
            Event::BucketSet(image) => self.on_bucket_set(image),
            Event::Started(_)
            | Event::IdsReserved(_)
            | Event::FormatRaised(_)
            | Event::ServerCompacted(_) => self.on_server(event, at),
        }
        self.note_order(event);
        self.note_update(event);
    }

    /// Order numbers are given in `decide`; the next one follows the highest seen.
    fn note_order(&mut self, event: &Event) {
        let order = match event {
            Event::Submitted(image)
            | Event::Retried(image)
            | Event::Persisted(image)
            | Event::Compacted(image) => image.order,
            Event::Requeued(requeued) => requeued.order,
            Event::Ready(ready) => ready.order,
            Event::Edited(edited) => edited.order,
            _ => return,
        };
        self.server.next_order = self.server.next_order.max(order.saturating_add(1));
    }

    fn put_live(&mut self, image: &JobImage, at: Place, changes: bool) {
        let Some(mut slot) = self.slot_from(image, at.position) else { return };
        let known = if slot.labels().is_empty() { None } else { self.live(slot.job_id()) };
        let waits_at = known.and_then(|number| self.waits_at(number));
        self.remove_job(slot.job_id());
        if changes && image.revision == 0 {
            slot.revision = 1;
        }
        let number = self.insert_slot(&image.queue, slot);
        self.hold_again(number, waits_at);
    }

    /// Takes a live job out of its places, changes it, and puts it back.
    pub(super) fn change(&mut self, id: JobId, at: Place, change: impl FnOnce(&mut Slot)) {
        let Some(number) = self.live(id) else { return };
        let waits_at = self.waits_at(number);
        self.detach(number);
        let slot = &mut self.slots[number];
        change(slot);
        slot.revision = slot.revision.wrapping_add(1);
        slot.set_last(at.position);
        self.attach(number);
        self.hold_again(number, waits_at);
    }

    fn on_leased(&mut self, leased: &Leased, at: Place) {
        leased.buckets.iter().for_each(|image| self.on_bucket_set(image));
        self.change(JobId(leased.id), at, |slot| {
            slot.set_status(Status::Leased);
            slot.attempts = leased.attempts;
            let extra = slot.extra();
            extra.started_ms.get_or_insert(leased.lease.started_ms);
            extra.lease = Some(owned_lease(&leased.lease));
        });
    }

    fn on_extended(&mut self, extended: &Extended, at: Place) {
        let id = JobId(extended.id);
        if self.status(id) != Some(Status::Leased) {
            return;
        }
        self.change(id, at, |slot| {
            if let Some(lease) = slot.extra().lease.as_mut() {
                lease.deadline_ms = extended.deadline_ms;
                lease.epoch = extended.epoch;
            }
        });
    }

    fn on_requeued(&mut self, requeued: &Requeued, at: Place) {
        self.change(JobId(requeued.id), at, |slot| {
            end_lease(slot, requeued);
            slot.attempts = requeued.attempts;
            slot.order = requeued.order;
            if requeued.fails > 0 {
                slot.extra().fails = requeued.fails;
            }
            if let Some(outcome) = &requeued.outcome {
                slot.extra().outcome = Some(Box::new(owned(outcome)));
            }
            slot.set_run_at(requeued.run_at_ms);
            slot.set_status(match requeued.run_at_ms {
                _ if requeued.parked => Status::Parked,
                Some(_) => Status::Scheduled,
                None => Status::Ready,
            });
        });
    }

    fn on_edited(&mut self, edited: &Edited, at: Place) {
        let id = JobId(edited.id);
        let Some(number) = self.live(id) else { return };
        let moved = edited.queue.as_ref().map(|name| self.queue_made(name));
        let from = self.slots[number].queue;
        self.change(id, at, |slot| {
            slot.priority = edited.priority;
            slot.order = edited.order;
            slot.set_status(edited.status());
            slot.set_run_at(edited.run_at_ms);
            if let Some(queue) = moved {
                slot.queue = queue;
            }
        });
        self.forget_queue_if_unused(from);
    }

    fn on_relabelled(&mut self, relabelled: &Relabelled, at: Place) {
        let id = JobId(relabelled.id);
        let Some(number) = self.live(id) else { return };
        let before = self.labels_of(number);
        self.change(id, at, |slot| slot.options().labels.clone_from(&relabelled.labels));
        self.enter_labels(number);
        for label in before {
            self.bucket_made(label).job_went();
            self.forget_bucket_when_full(label);
        }
    }

    fn on_server(&mut self, event: &Event, at: Place) {
        let server = &mut self.server;
        match event {
            Event::Started(started) => server.epoch = server.epoch.max(started.epoch),
            Event::IdsReserved(reserved) if reserved.returned => server.ids_until = reserved.until,
            Event::IdsReserved(reserved) => {
                server.ids_until = server.ids_until.max(reserved.until);
            }
            Event::FormatRaised(raised) => server.format = server.format.max(raised.version),
            Event::ServerCompacted(carried) => {
                server.ids_until = server.ids_until.max(carried.ids_until);
                server.epoch = server.epoch.max(carried.epoch);
                server.format = server.format.max(carried.format);
                server.next_order = server.next_order.max(carried.next_order);
                server.next_constraint = server.next_constraint.max(carried.next_constraint);
                server.constraints_revision =
                    server.constraints_revision.max(carried.constraints_revision);
                let done = (carried.relabelled_revision, carried.relabelled_below);
                if done > (server.relabelled_revision, server.relabelled_below) {
                    (server.relabelled_revision, server.relabelled_below) = done;
                }
                server.oldest_record = at.position;
                self.on_relabelled_further();
            }
            _ => {}
        }
    }
}

/// Takes the lease off a slot and notes the attempt in its history.
fn end_lease(slot: &mut Slot, requeued: &Requeued) {
    let number = slot.attempts;
    let Some(extra) = slot.extra.as_mut() else { return };
    let Some(lease) = extra.lease.take() else { return };
    if requeued.attempts < number {
        // The attempt was given back: it never happened.
        return;
    }
    let (cause, outcome) = (requeued.cause(), requeued.outcome.as_deref());
    let attempt = ended_attempt(&lease, number, cause, outcome, requeued.at_ms);
    let attempt = owned_attempt(&attempt, extra.history.last());
    push_attempt(&mut extra.history, attempt);
}

/// Keeps the first and the last attempts.
pub(super) fn push_attempt(history: &mut Vec<Attempt>, attempt: Attempt) {
    if history.len() >= 2 * ATTEMPTS_KEPT {
        history.remove(ATTEMPTS_KEPT);
    }
    // Most jobs have one attempt: room for one, not for the four a vector would begin with.
    if history.is_empty() {
        history.reserve_exact(1);
    }
    history.push(attempt);
}
