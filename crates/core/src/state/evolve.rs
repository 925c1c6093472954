//! Folding events. Total: an event for an absent item changes nothing.

use super::change::QueueSettingsAt;
use super::*;
use crate::event::{Edited, Event, Extended, Leased, Requeued, StateSet};
use crate::job::{ATTEMPTS_KEPT, Attempt, Cause, JobId, JobImage, Status};

impl State {
    /// Folds one event, told at this place of the log. What is not logged (a foreground job's) is
    /// told at the place where the next event will be.
    pub fn evolve(&mut self, event: &Event, at: Place) {
        match event {
            Event::Submitted(image) | Event::Retried(image) | Event::Persisted(image) => {
                self.put_live(image, at, true);
            }
            Event::Carried(image) if image.status().is_finished() => self.insert_stub(image, at),
            Event::Carried(image) => self.put_live(image, at, false),
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
                if let Some(rare) = slot.extra.as_mut().and_then(|extra| extra.rare.as_mut()) {
                    rare.run_at_ms = None;
                }
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
            Event::Relabelled(relabelled) => self.change(JobId(relabelled.id), at, |slot| {
                slot.rare().labels.clone_from(&relabelled.labels);
            }),
            Event::QueueSet(set) => self.set_queue(
                &set.name,
                QueueSettingsAt { settings: set.settings.clone(), position: at.position },
            ),
            Event::ConstraintSet(_) | Event::ConstraintRemoved(_) | Event::BucketSet(_) => {
                self.on_limits(event, at);
            }
            Event::Started(_)
            | Event::IdsReserved(_)
            | Event::FormatRaised(_)
            | Event::ServerCarried(_) => self.on_server(event, at),
        }
        self.note_order(event);
    }

    /// Order numbers are given in `decide`; the next one follows the highest seen.
    fn note_order(&mut self, event: &Event) {
        let order = match event {
            Event::Submitted(image)
            | Event::Retried(image)
            | Event::Persisted(image)
            | Event::Carried(image) => image.order,
            Event::Requeued(requeued) => requeued.order,
            Event::Ready(ready) => ready.order,
            Event::Edited(edited) => edited.order,
            _ => return,
        };
        self.server.next_order = self.server.next_order.max(order.saturating_add(1));
    }

    fn put_live(&mut self, image: &JobImage, at: Place, changes: bool) {
        let Some(mut slot) = self.slot_from(image, at.position) else { return };
        self.remove_job(JobId(image.id));
        if changes && image.revision == 0 {
            slot.revision = 1;
        }
        self.insert_slot(&image.queue, slot);
    }

    /// Takes a live job out of its places, changes it, and puts it back.
    fn change(&mut self, id: JobId, at: Place, change: impl FnOnce(&mut Slot)) {
        let Some(number) = self.live(id) else { return };
        self.detach(number);
        let slot = &mut self.slots[number];
        change(slot);
        slot.revision = slot.revision.wrapping_add(1);
        slot.set_last(at.position);
        self.attach(number);
    }

    fn on_leased(&mut self, leased: &Leased, at: Place) {
        for image in &leased.buckets {
            if let Some(bucket) = self.bucket_made(image.label) {
                bucket.set(image);
            }
        }
        self.change(JobId(leased.id), at, |slot| {
            slot.set_status(Status::Leased);
            slot.attempts = leased.attempts;
            let extra = slot.extra();
            extra.started_ms.get_or_insert(leased.lease.started_ms);
            extra.lease = Some(leased.lease.clone());
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
            end_lease(slot, requeued.cause(), requeued.at_ms, requeued.attempts);
            slot.attempts = requeued.attempts;
            slot.order = requeued.order;
            if requeued.fails > 0 {
                slot.extra().fails = requeued.fails;
            }
            if let Some(outcome) = &requeued.outcome {
                slot.rare().outcome = Some(outcome.clone());
            }
            if requeued.run_at_ms.is_some() || slot.run_at_ms().is_some() {
                slot.rare().run_at_ms = requeued.run_at_ms;
            }
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
            if edited.run_at_ms.is_some() || slot.run_at_ms().is_some() {
                slot.rare().run_at_ms = edited.run_at_ms;
            }
            if let Some(queue) = moved {
                slot.queue = queue;
            }
        });
        self.forget_queue_if_unused(from);
    }

    fn on_state_set(&mut self, set: &StateSet, at: Place) {
        self.change(JobId(set.id), at, |slot| {
            let rare = slot.rare();
            if let Some(state) = &set.state {
                rare.state = Some(Bytes::copy_from_slice(state));
            }
            if !set.event.is_empty() {
                rare.events.push(Bytes::copy_from_slice(&set.event));
            }
        });
    }

    fn on_limits(&mut self, event: &Event, at: Place) {
        match event {
            Event::ConstraintSet(set) => {
                let number = set.constraint.number;
                // A change tells the rule anew, but not the levels of its buckets: those stand where
                // they stood. Told again for carrying, the levels follow.
                let changed = set.revision > self.server.constraints_revision;
                let before = self.constraints.get(&number).filter(|_| changed);
                let home = before.map_or(at.position, |kept| kept.home);
                let kept = KeptConstraint { rule: set.constraint.clone(), home };
                self.constraints.insert(number, kept);
                self.server.next_constraint =
                    self.server.next_constraint.max(number.saturating_add(1));
                self.server.constraints_revision =
                    self.server.constraints_revision.max(set.revision);
                // A looser limit may free groups that wait: let them find out.
                let from = Label { constraint: number, value: 0 };
                let until = Label { constraint: number, value: u64::MAX };
                self.rule_running(from, until);
                let labels: Vec<Label> =
                    self.buckets.range(from..=until).map(|(label, _)| *label).collect();
                for label in labels {
                    self.release_bucket(label);
                }
            }
            Event::ConstraintRemoved(removed) => {
                let from = Label { constraint: removed.number, value: 0 };
                let until = Label { constraint: removed.number, value: u64::MAX };
                let labels: Vec<Label> =
                    self.buckets.range(from..=until).map(|(label, _)| *label).collect();
                for label in labels {
                    self.release_bucket(label);
                    self.buckets.remove(&label);
                }
                self.constraints.remove(&removed.number);
                self.server.constraints_revision =
                    self.server.constraints_revision.max(removed.revision);
            }
            Event::BucketSet(image) => {
                if let Some(bucket) = self.bucket_made(image.label) {
                    bucket.set(image);
                }
            }
            _ => {}
        }
    }

    fn on_server(&mut self, event: &Event, at: Place) {
        let server = &mut self.server;
        match event {
            Event::Started(started) => server.epoch = server.epoch.max(started.epoch),
            Event::IdsReserved(reserved) => {
                server.ids_until = server.ids_until.max(reserved.until);
            }
            Event::FormatRaised(raised) => server.format = server.format.max(raised.version),
            Event::ServerCarried(carried) => {
                server.ids_until = server.ids_until.max(carried.ids_until);
                server.epoch = server.epoch.max(carried.epoch);
                server.format = server.format.max(carried.format);
                server.next_order = server.next_order.max(carried.next_order);
                server.next_constraint = server.next_constraint.max(carried.next_constraint);
                server.constraints_revision =
                    server.constraints_revision.max(carried.constraints_revision);
                server.home = at.position;
            }
            _ => {}
        }
    }
}

/// Takes the lease off a slot and notes the attempt in its history.
pub(super) fn end_lease(slot: &mut Slot, cause: Cause, at_ms: u64, attempts: u32) {
    let number = slot.attempts;
    let Some(extra) = slot.extra.as_mut() else { return };
    let Some(lease) = extra.lease.take() else { return };
    if attempts < number {
        // The attempt was given back: it never happened.
        return;
    }
    let attempt = Attempt {
        attempt: number,
        started_ms: lease.started_ms,
        ended_ms: at_ms,
        cause: cause as i32,
        door: lease.door,
        worker: lease.worker,
    };
    push_attempt(&mut extra.history, attempt);
}

/// Keeps the first and the last attempts.
pub(super) fn push_attempt(history: &mut Vec<Attempt>, attempt: Attempt) {
    if history.len() >= 2 * ATTEMPTS_KEPT {
        history.remove(ATTEMPTS_KEPT);
    }
    history.push(attempt);
}
