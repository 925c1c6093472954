//! What an accepted command changes.

use std::rc::Rc;

use bytes::Bytes;
use spindle_core::command::{Claim, Compact, Edit, Extend, Lease, Submit};
use spindle_core::job::{Cause, JobOptions, Label, Origin};
use spindle_core::payload::BytesRef;
use spindle_core::places::Stage;
use spindle_core::queue::{Constraint, QueueSettings};
use spindle_core::{Command, JobId, JobImage, Status};

use super::deletion::is_deleted;
use super::fair::key_of;
use super::finish::leave_out_result;
use super::{Model, names, waiting};

impl Model {
    /// What an accepted command changes. `leased` says which of its choices a lease was given.
    pub fn apply(&mut self, command: &Command, now_ms: u64, leased: Option<JobId>) {
        self.settle_turns();
        self.apply_command(command, now_ms, leased);
        self.settle_turns();
        self.count_batches(now_ms);
    }

    fn apply_command(&mut self, command: &Command, now_ms: u64, leased: Option<JobId>) {
        match command {
            Command::Submit(submit) => self.apply_submit(submit, now_ms),
            Command::Lease(lease) => {
                let id = leased.expect("an accepted lease gives a job");
                self.apply_lease(lease, id, now_ms);
            }
            Command::Extend(extend) => self.apply_extend(extend, now_ms),
            Command::DropTimeout { claim } => self.apply_drop_timeout(claim.id()),
            Command::Finish(finish) => self.apply_finish(finish, now_ms),
            Command::Release { claim, cause } => self.apply_release(*claim, *cause, now_ms),
            Command::HolderGone { holder } => self.apply_holder_gone(*holder, now_ms),
            Command::Retry { image, payload } => {
                // The image was matched again, and its pages may have been compacted.
                let options = self.change(image.id).options_mut();
                options.labels.clone_from(&image.options().labels);
                options.pages.clone_from(&image.options().pages);
                self.apply_retry(JobId(image.id), payload.as_ref(), now_ms);
            }
            Command::Edit(edit) => self.apply_edit(edit, now_ms),
            Command::Cancel { id } => self.kill(id.0, Cause::Cancelled, now_ms),
            Command::PayloadDamaged { id } if is_deleted(&self.jobs[&id.0]) => self.forget(*id),
            Command::PayloadDamaged { id } => {
                self.change(id.0).payload = None;
                self.kill(id.0, Cause::Damaged, now_ms);
            }
            Command::Delete { id, .. } => {
                self.jobs.remove(&id.0);
            }
            Command::DeleteLater { .. } => self.apply_deletion(command, now_ms),
            Command::Undelete { id } => self.apply_undo(*id, now_ms),
            Command::ResultRead { id, keep_read_ms } => {
                self.apply_result_read(*id, now_ms.saturating_add(*keep_read_ms));
            }
            Command::Persist { id, payload, keep_ms } => {
                self.apply_persist(*id, payload, *keep_ms);
            }
            Command::SetState { id, state, event, page, .. } => {
                self.apply_update(*id, Some(state), event, page.as_ref());
            }
            Command::AddEvent { id, event, page } => {
                self.apply_update(*id, None, event, page.as_ref());
            }
            Command::SetQueue { name, settings } => {
                self.put_settings(name, settings);
            }
            Command::PlaceQueue { queue, shard } => self.apply_place(queue, *shard),
            Command::EndDrain { queue, .. } => self.apply_end_of_drain(queue),
            Command::KnowPlace { queue, version, shard, settings } => {
                self.apply_known_place(queue, (*version, *shard), settings.as_deref());
            }
            Command::SealQueue { queue, .. } => self.apply_step(queue, Stage::Sealed),
            Command::LeaveQueue { queue, .. } => self.apply_step(queue, Stage::Left),
            Command::MoveConsumer(consumer) => self.apply_consumer(consumer),
            Command::SetConstraint(rule, _) => self.apply_constraint(rule, now_ms),
            Command::RemoveConstraint { number } => {
                self.rules.remove(number);
                self.stops.remove(number);
                self.forget_tokens(*number);
                self.constraints_revision += 1;
            }
            Command::Relabel { id, matched, .. } => self.apply_relabel(*id, &matched.labels),
            Command::NoteRelabelled { revision, below } => {
                self.note_relabelled((*revision, below.0));
            }
            Command::Start { epoch, .. } => {
                self.epoch = *epoch;
                self.begin_rounds();
            }
            Command::Recover { from, grace_ms } => self.apply_recover(*from, *grace_ms, now_ms),
            Command::ReserveIds { until } => {
                self.ids_until = self.ids_until.map(|before| before.max(*until));
            }
            Command::ReturnIds { from } => self.ids_until = self.ids_until.map(|_| *from),
            Command::Tick { hold_expiry } => self.tick(now_ms, *hold_expiry),
            Command::Audited(audited) => {
                if let Some(command) = &audited.command {
                    self.apply(command, now_ms, None);
                }
                self.apply_audited(&audited.entry, now_ms);
            }
            Command::SetSchedule(set) => self.apply_schedule(set),
            Command::RemoveSchedule { name } => self.forget_schedule(name),
            Command::FireSchedule(fire) => {
                self.apply_firing(fire, now_ms, None).expect("nobody says what came of it");
            }
            Command::OpenBatch(open) => self.apply_opening(open),
            Command::SealBatch { id } => self.apply_seal(*id, false),
            Command::CancelBatch { id } => self.apply_seal(*id, true),
            Command::Compact(item) => self.apply_compaction(item),
            Command::RaiseFormat { version } => self.format = self.format.max(*version),
        }
    }

    /// A queue has these settings from now on.
    pub(super) fn put_settings(&mut self, name: &Bytes, settings: &QueueSettings) {
        let typed_anew = self.settings(name).bytes_type != settings.bytes_type;
        self.constraints_revision += u64::from(typed_anew && !self.rules.is_empty());
        let ordered = |it: &QueueSettings| (it.aging_ms, it.fair.is_some());
        let ordered_anew = ordered(&self.settings(name)) != ordered(settings);
        self.queues.insert(name.clone(), settings.clone());
        self.queues.retain(|_, settings| !settings.is_default());
        if ordered_anew {
            self.reorder(name);
        }
    }

    fn apply_update(
        &mut self,
        id: JobId,
        state: Option<&Bytes>,
        event: &Bytes,
        page: Option<&BytesRef>,
    ) {
        let options = self.revise(id.0).options_mut();
        if let Some(state) = state {
            options.state = Some(state.clone());
        }
        if let Some(page) = page {
            options.events.clear();
            options.pages.push(page.clone());
        }
        options.events.push(event.clone());
    }

    pub(super) fn apply_submit(&mut self, submit: &Submit, now_ms: u64) {
        self.settle_turns();
        let later = submit.run_at_ms.is_some_and(|run_at| run_at > now_ms);
        let after = self.after(submit);
        let blocked = after.as_ref().is_some_and(|after| !after.open.is_empty());
        let status = waiting(submit.parked, blocked, later);
        let options = JobOptions {
            run_at_ms: submit.run_at_ms,
            scheduled_ms: submit.run_at_ms,
            attempts_max: submit.attempts_max,
            fails_max: submit.fails_max,
            backoff: submit.backoff,
            keys: names(submit),
            labels: submit.labels.clone(),
            tags: submit.tags.clone(),
            state: submit.state.clone(),
            events: submit.event.iter().cloned().collect(),
            keep_ms: submit.keep_ms,
            keep_read_ms: submit.keep_read_ms,
            drop_result: submit.drop_result,
            trace: submit.trace.clone(),
            after,
            fair_key: submit.fair_key.clone(),
            batch: submit.batch.map_or(0, |batch| batch.0),
            ..JobOptions::NONE
        };
        let job = JobImage {
            id: submit.id.0,
            queue: submit.queue.clone(),
            status: status as i32,
            origin: submit.origin as i32,
            priority: submit.priority,
            order: if status == Status::Ready { self.take_order() } else { 0 },
            created_ms: now_ms,
            ttl_ms: submit.ttl_ms,
            ttr_ms: submit.ttr_ms,
            payload: Some(submit.payload.clone()),
            options: Some(Box::new(options)),
            foreground: submit.foreground,
            revision: 1,
            ..JobImage::default()
        };
        self.jobs.insert(submit.id.0, Rc::new(job));
        self.join_batch(submit.id, submit.batch);
    }

    fn apply_result_read(&mut self, id: JobId, until_ms: u64) {
        if self.jobs[&id.0].kept_until_ms.is_none_or(|kept| kept > until_ms) {
            self.change(id.0).kept_until_ms = Some(until_ms);
        }
    }

    fn apply_persist(&mut self, id: JobId, payload: &BytesRef, keep_ms: Option<u64>) {
        if self.jobs[&id.0].foreground {
            let job = self.revise(id.0);
            job.foreground = false;
            job.payload = Some(payload.clone());
            job.options_mut().keep_ms = keep_ms;
            leave_out_result(job);
        }
    }

    pub(crate) fn apply_relabel(&mut self, id: JobId, labels: &[Label]) {
        if self.jobs[&id.0].options().labels != labels {
            self.revise(id.0).options_mut().labels = labels.to_vec();
        }
    }

    fn apply_lease(&mut self, lease: &Lease, id: JobId, now_ms: u64) {
        let epoch = self.epoch;
        let labels = self.jobs[&id.0].options().labels.clone();
        self.take_tokens(&labels, now_ms);
        let ttr_ms = self.lease_ms(&self.jobs[&id.0], lease.bound);
        let lasts_ms = match (ttr_ms, lease.timeout_ms) {
            (Some(ttr), Some(timeout)) => Some(ttr.min(timeout)),
            (ttr, timeout) => ttr.or(timeout),
        };
        let job = self.revise(id.0);
        let (queue, key) = (job.queue.clone(), key_of(job));
        self.end_turn(&queue, key);
        let job = self.change(id.0);
        job.status = Status::Leased as i32;
        job.attempts += 1;
        job.started_ms = job.started_ms.or(Some(now_ms));
        job.lease = Some(Box::new(spindle_core::job::HeldLease {
            epoch,
            holder: lease.holder,
            bound: lease.bound,
            deadline_ms: lasts_ms.map(|lasts| now_ms.saturating_add(lasts)),
            started_ms: now_ms,
            door: lease.door as i32,
            worker: lease.worker.clone(),
        }));
    }

    /// How long a lease of this job lasts if its worker sets no limit of its own.
    fn lease_ms(&self, job: &JobImage, bound: bool) -> Option<u64> {
        let queue_ms = self.settings(&job.queue).ttr_default_ms;
        let unbound_ms = (!bound).then(|| queue_ms.unwrap_or(self.defaults.ttr_ms));
        job.ttr_ms.or(unbound_ms)
    }

    fn apply_extend(&mut self, extend: &Extend, now_ms: u64) {
        let job = self.revise(extend.claim.id().0);
        let lease = job.lease.as_mut().expect("only leased jobs are extended");
        lease.deadline_ms = Some(now_ms.saturating_add(extend.ttr_ms));
    }

    fn apply_drop_timeout(&mut self, id: JobId) {
        let job = &self.jobs[&id.0];
        let lease = job.lease.as_ref().expect("only leased jobs have a timeout");
        let full_ms = self.lease_ms(job, lease.bound).map(|ms| lease.started_ms + ms);
        let deadline_ms = match (lease.deadline_ms, full_ms) {
            (Some(deadline_ms), Some(full_ms)) => Some(deadline_ms.max(full_ms)),
            _ => None,
        };
        self.revise(id.0).lease.as_mut().expect("seen above").deadline_ms = deadline_ms;
    }

    fn apply_release(&mut self, claim: Claim, cause: Cause, now_ms: u64) {
        let id = claim.id().0;
        if cause == Cause::Undone {
            // The attempt is treated as if it never happened, so the history does not have it.
            let job = self.revise(id);
            job.lease = None;
            job.attempts -= 1;
            job.status = Status::Ready as i32;
        } else {
            self.give_back(id, cause, now_ms);
        }
    }

    /// All at one instant: the jobs that go to the tail have no order among each other.
    fn apply_holder_gone(&mut self, holder: u64, now_ms: u64) {
        let mut tail = None;
        self.tie();
        for id in self.jobs.keys().copied().collect::<Vec<u64>>() {
            let lease = self.jobs[&id].lease.as_ref();
            if !lease.is_some_and(|lease| lease.bound && lease.holder == holder) {
                continue;
            }
            let before = self.jobs[&id].order;
            self.give_back(id, Cause::HolderGone, now_ms);
            if let Some(job) = self.job(JobId(id)).filter(|job| job.order != before) {
                let order = *tail.get_or_insert(job.order);
                self.change(id).order = order;
            }
        }
        self.untie();
    }

    fn apply_retry(&mut self, id: JobId, payload: Option<&BytesRef>, now_ms: u64) {
        let order = self.take_order();
        // A younger job keeps a name that it has taken meanwhile.
        let mut keys = self.jobs[&id.0].options().keys.clone();
        keys.retain(|key| self.key_holder(key).is_none_or(|holder| holder == id));
        let ages = self.ages(&self.jobs[&id.0].queue);
        let job = self.revise(id.0);
        if ages {
            job.options_mut().waits_since_ms = Some(now_ms);
        }
        job.options_mut().keys = keys;
        job.status = Status::Ready as i32;
        job.attempts = 0;
        job.fails = 0;
        job.order = order;
        job.options_mut().run_at_ms = None;
        job.finished_ms = None;
        job.kept_until_ms = None;
        if let Some(payload) = payload {
            job.payload = Some(payload.clone());
        }
        self.were_done.remove(&id.0);
        self.wait_again_for_others(id.0);
    }

    fn apply_edit(&mut self, edit: &Edit, now_ms: u64) {
        let job = self.revise(edit.id.0);
        if let Some(queue) = &edit.queue {
            job.queue = queue.clone();
        }
        job.priority = edit.priority.unwrap_or(job.priority);
        match edit.run_at_ms {
            Some(run_at) if run_at > now_ms => job.options_mut().run_at_ms = Some(run_at),
            Some(_) => job.options_mut().run_at_ms = None,
            None => {}
        }
        let parked = edit.parked.unwrap_or(job.status() == Status::Parked);
        let later = job.options().run_at_ms.is_some_and(|run_at| run_at > now_ms);
        let status = waiting(parked, !job.options().open().is_empty(), later);
        job.status = status as i32;
        let first_time = status == Status::Ready && job.order == 0;
        if first_time {
            let order = self.take_order();
            self.change(edit.id.0).order = order;
        }
        if let Some(matched) = &edit.matched {
            self.apply_relabel(edit.id, &matched.labels);
        }
    }

    fn apply_constraint(&mut self, rule: &Constraint, now_ms: u64) {
        let mut rule = rule.clone();
        if rule.number == 0 {
            rule.number = self.next_constraint;
            self.next_constraint += 1;
        }
        if let Some(before) = self.rules.insert(rule.number, rule.clone()) {
            self.keep_what_is_left(&before, &rule, now_ms);
        }
        self.constraints_revision += 1;
        self.stops.remove(&rule.number);
        let below = self.jobs.last_key_value().map_or(0, |(id, _)| id + 1);
        if rule.running_max == Some(0) && below > 0 {
            self.stops.insert(rule.number, (below, self.constraints_revision));
        }
    }

    pub(crate) fn note_relabelled(&mut self, done: (u64, u64)) {
        self.relabelled = self.relabelled.max(done);
        let (revision, below) = self.relabelled;
        self.stops.retain(|_, (_, put)| below < u64::MAX || *put > revision);
    }

    /// Ends bound leases of older epochs and moves the others' deadlines, for 256 jobs.
    fn apply_recover(&mut self, from: JobId, grace_ms: u64, now_ms: u64) {
        let ids: Vec<u64> = self.jobs.range(from.0..).map(|(id, _)| *id).take(256).collect();
        for id in ids {
            let Some(lease) = self.jobs[&id].lease.clone() else { continue };
            if lease.epoch == self.epoch {
                continue;
            }
            if lease.bound {
                self.give_back(id, Cause::Restarted, now_ms);
                continue;
            }
            let grace_ms = self.jobs[&id].ttr_ms.map_or(grace_ms, |ttr| ttr.min(grace_ms));
            let until = now_ms.saturating_add(grace_ms);
            if lease.deadline_ms.is_some_and(|deadline| deadline < until) {
                let lease = self.revise(id).lease.as_mut().expect("it was there above");
                lease.deadline_ms = Some(until);
            }
        }
    }

    /// Compaction changes nothing but places.
    fn apply_compaction(&mut self, item: &Compact) {
        if let Compact::Page { id, old, new } = item {
            let pages = &mut self.change(id.0).options_mut().pages;
            *pages.iter_mut().find(|page| *page == old).expect("it is one of the job's") =
                new.clone();
        }
        let Compact::Job { id, payload, result, .. } = item else { return };
        let job =
            Rc::make_mut(self.jobs.get_mut(&id.0).expect("an accepted compaction names a job"));
        if payload.is_some() {
            job.payload.clone_from(payload);
        }
        if let (Some(outcome), Some(_)) = (&mut job.outcome, result) {
            outcome.bytes.clone_from(result);
        }
    }
}

/// The door of a job's holder.
pub(crate) fn door_of(job: &JobImage) -> Option<Origin> {
    job.lease.as_deref().map(spindle_core::job::HeldLease::door)
}
