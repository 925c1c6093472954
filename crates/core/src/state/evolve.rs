//! Folding events. Total: an event for an absent item changes nothing.

use super::image::{ended_attempt, owned, owned_attempt, owned_lease};
use super::*;
use crate::event::{Edited, Event, Extended, Leased, Relabelled, Requeued};
use crate::job::{ATTEMPTS_KEPT, Attempt, Cause, JobId, JobImage, Outcome, Status};

impl State {
    /// Folds one event that stands at this place of the log. For one that is not logged (a
    /// foreground job's) that is the place of the next event.
    pub fn evolve(&mut self, event: &Event, at: Place) {
        match event {
            Event::Submitted(image) | Event::Retried(image) | Event::Persisted(image) => {
                self.put_live(image, at, true);
            }
            Event::Compacted(image) if image.status().is_finished() => {
                self.insert_finished(image, at)
            }
            Event::Compacted(image) => self.put_live(image, at, false),
            Event::Finished(image) if image.foreground => {
                self.remove_job(JobId(image.id));
            }
            Event::Finished(image) => self.insert_finished(image, at),
            Event::Leased(leased) => self.on_leased(leased, at),
            Event::Extended(extended) => self.on_extended(extended, at),
            Event::Requeued(requeued) => self.on_requeued(requeued, at),
            Event::Ready(ready) => self.change(JobId(ready.id), at, |job| {
                job.set_status(Status::Ready);
                job.set_rank(job.priority(), ready.order);
                job.set_run_at(None);
            }),
            Event::Gone(gone) => {
                for id in &gone.ids {
                    self.remove_job(JobId(*id));
                }
            }
            Event::Edited(edited) => self.on_edited(edited, at),
            Event::ResultRead(read) => {
                if let Some(number) = self.find_finished(JobId(read.id)) {
                    self.set_kept_until(number, read.kept_until_ms);
                }
            }
            Event::StateSet(set) => self.on_state_set(set, at),
            Event::PageMoved(moved) => self.on_page_moved(moved),
            Event::Deleted(deleted) => self.on_deleted(deleted, at),
            Event::Undeleted(undeleted) => self.on_undeleted(undeleted, at),
            Event::BlockerEnded(ended) => self.on_blocker_ended(ended, at),
            Event::Audited(entry) => self.on_audited(entry, at),
            Event::Relabelled(relabelled) => self.on_relabelled(relabelled, at),
            Event::QueueSet(set) => {
                let revision = &mut self.server.constraints_revision;
                *revision = set.constraints_revision.max(*revision);
                self.set_queue(&set.name, &set.settings, at);
            }
            Event::ConstraintSet(set) => self.on_constraint_set(set, at),
            Event::ConstraintRemoved(removed) => self.on_constraint_removed(removed),
            Event::BucketSet(image) => self.on_bucket_set(image),
            Event::ScheduleSet(set) => self.on_schedule_set(set, at),
            Event::ScheduleRemoved(removed) => self.on_schedule_removed(&removed.name),
            Event::ScheduleFired(fired) => self.on_schedule_fired(fired),
            Event::BatchSet(set) => self.on_batch_set(set, at),
            Event::BatchesCounted(counted) => self.on_batches_counted(counted),
            Event::BatchesGone(gone) => self.on_batches_gone(gone),
            Event::Started(_)
            | Event::IdsReserved(_)
            | Event::FormatRaised(_)
            | Event::QueuePlaced(_)
            | Event::PlaceKnown(_)
            | Event::ConsumerMoved(_)
            | Event::ServerCompacted(_) => self.on_server(event, at),
        }
        self.note_order(event);
        self.note_update(event);
        self.note_job_of_schedule(event);
        self.note_job_of_batch(event);
        self.note_blockers(event);
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
            Event::Undeleted(undeleted) => undeleted.order,
            Event::BlockerEnded(ended) => ended.order,
            _ => return,
        };
        self.server.next_order = self.server.next_order.max(order.saturating_add(1));
    }

    fn put_live(&mut self, image: &JobImage, at: Place, changes: bool) {
        let Some(mut job) = self.live_from(image, at.position) else { return };
        let (mut waits_at, mut pinned) = (None, None);
        // Most jobs come with the highest number so far.
        if self.by_id.last().is_some_and(|last| job.id() <= self.id_of(last)) {
            let known = if job.labels().is_empty() { None } else { self.find_live(job.job_id()) };
            waits_at = known.and_then(|number| self.waits_at(number));
            let known = self.find_live(job.job_id());
            pinned = known.and_then(|number| self.pin_share_of(number));
            self.remove_job(job.job_id());
        }
        if changes && image.revision == 0 {
            job.revision = 1;
        }
        let number = self.insert_live(&image.queue, job);
        self.hold_again(number, waits_at);
        if let Some(share) = pinned {
            self.unpin(share, false);
        }
    }

    /// Takes a live job out of its places, changes it, and puts it back.
    pub(super) fn change(&mut self, id: JobId, at: Place, change: impl FnOnce(&mut LiveJob)) {
        let Some(number) = self.find_live(id) else { return };
        let waits_at = self.waits_at(number);
        let pinned = self.pin_share_of(number);
        self.detach(number);
        let job = &mut self.jobs.live[number];
        change(job);
        job.revision = job.revision.wrapping_add(1);
        job.set_last(at.position);
        self.attach(number);
        self.hold_again(number, waits_at);
        if let Some(share) = pinned {
            let was_leased = self.jobs.live[number].status() == Status::Leased;
            self.unpin(share, was_leased);
        }
    }

    fn on_leased(&mut self, leased: &Leased, at: Place) {
        leased.buckets.iter().for_each(|image| self.on_bucket_set(image));
        self.change(JobId(leased.id), at, |job| {
            job.set_status(Status::Leased);
            job.set_attempts(leased.attempts);
            let extra = job.extra();
            extra.started_ms.get_or_insert(leased.lease.started_ms);
            extra.lease = Some(owned_lease(&leased.lease));
        });
    }

    fn on_extended(&mut self, extended: &Extended, at: Place) {
        let id = JobId(extended.id);
        if self.status(id) != Some(Status::Leased) {
            return;
        }
        self.change(id, at, |job| {
            if let Some(lease) = job.extra().lease.as_mut() {
                lease.deadline_ms = extended.deadline_ms;
                lease.epoch = extended.epoch;
            }
        });
    }

    fn on_requeued(&mut self, requeued: &Requeued, at: Place) {
        self.change(JobId(requeued.id), at, |job| {
            if requeued.waits_anew {
                job.options_mut().waits_since_ms = Some(requeued.at_ms);
            }
            if requeued.attempts < job.attempts() {
                // The attempt was given back: it never happened.
                job.extra().lease = None;
            }
            end_lease(job, requeued.cause(), requeued.outcome.as_deref(), requeued.at_ms);
            job.set_attempts(requeued.attempts);
            job.set_rank(job.priority(), requeued.order);
            if requeued.fails > 0 {
                job.extra().fails = requeued.fails;
            }
            if let Some(outcome) = &requeued.outcome {
                job.extra().outcome = Some(Box::new(owned(outcome)));
            }
            job.set_run_at(requeued.run_at_ms);
            job.set_status(job.waiting(requeued.parked, requeued.run_at_ms.is_some()));
        });
        if self.faults.running_kept_on_timeout && requeued.cause() == Cause::Timeout {
            let number = self.find_live(JobId(requeued.id));
            for label in number.map(|number| self.labels_of(number)).into_iter().flatten() {
                self.bucket_made(label).started();
            }
        }
    }

    fn on_edited(&mut self, edited: &Edited, at: Place) {
        let id = JobId(edited.id);
        let Some(number) = self.find_live(id) else { return };
        let moved = edited.queue.as_ref().map(|name| self.queue_made(name));
        let from = self.jobs.live[number].queue();
        self.change(id, at, |job| {
            job.set_rank(edited.priority, edited.order);
            job.set_status(edited.status());
            job.set_run_at(edited.run_at_ms);
            if let Some(queue) = moved {
                job.set_queue(queue);
            }
        });
        self.forget_queue_if_unused(from);
    }

    fn on_relabelled(&mut self, relabelled: &Relabelled, at: Place) {
        let id = JobId(relabelled.id);
        let Some(number) = self.find_live(id) else { return };
        let before = self.labels_of(number);
        self.change(id, at, |job| job.options_mut().labels.clone_from(&relabelled.labels));
        self.enter_labels(number);
        for label in before {
            self.bucket_made(label).job_went();
            self.forget_bucket_when_full(label);
        }
    }

    fn on_server(&mut self, event: &Event, at: Place) {
        let server = &mut self.server;
        match event {
            Event::Started(started) => {
                server.epoch = server.epoch.max(started.epoch);
                (server.shard, server.shards) = (started.shard, started.shards);
                self.begin_rounds();
            }
            Event::IdsReserved(reserved) if reserved.returned => server.ids_until = reserved.until,
            Event::IdsReserved(reserved) => {
                server.ids_until = server.ids_until.max(reserved.until);
            }
            Event::FormatRaised(raised) => server.format = server.format.max(raised.version),
            Event::QueuePlaced(placed) => {
                let seat = server.seat().unwrap_or_default();
                server.places.place(placed, seat);
            }
            Event::PlaceKnown(known) => server.places.note(known),
            Event::ConsumerMoved(consumer) => server.consumers.note(consumer),
            Event::ServerCompacted(compacted) => {
                server.ids_until = server.ids_until.max(compacted.ids_until);
                server.epoch = server.epoch.max(compacted.epoch);
                server.format = server.format.max(compacted.format);
                (server.shard, server.shards) = (compacted.shard, compacted.shards);
                server.next_order = server.next_order.max(compacted.next_order);
                server.next_constraint = server.next_constraint.max(compacted.next_constraint);
                server.constraints_revision =
                    server.constraints_revision.max(compacted.constraints_revision);
                server.last_audit = server.last_audit.max(compacted.last_audit);
                server.schedules_revision =
                    server.schedules_revision.max(compacted.schedules_revision);
                server.places.clone_from(&compacted.places);
                server.consumers.clone_from(&compacted.consumers);
                let done = (compacted.relabelled_revision, compacted.relabelled_below);
                if done > (server.relabelled_revision, server.relabelled_below) {
                    (server.relabelled_revision, server.relabelled_below) = done;
                }
                self.server_record = at.position;
                self.on_relabelled_further();
            }
            _ => {}
        }
    }
}

/// Takes the lease off a job that has one, and notes the attempt in its history.
pub(super) fn end_lease(job: &mut LiveJob, cause: Cause, outcome: Option<&Outcome>, at_ms: u64) {
    let number = job.attempts();
    let Some(extra) = job.extra.as_mut() else { return };
    let Some(lease) = extra.lease.take() else { return };
    let attempt = ended_attempt(&lease, number, cause, outcome, at_ms);
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
