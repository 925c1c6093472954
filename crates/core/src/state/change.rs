//! How items enter and leave the indices. [`State::evolve`] takes a job out of what depends on its
//! status, changes it, and puts it back: so no event has to deal with all indices.

use std::collections::btree_map::Entry;

use bytes::Bytes;

use super::keys::Work;
use super::scan::marks_of;
use super::shares::EARLIER_MAX;
use super::*;
use crate::job::{JobId, Status};
use crate::queue::QueueSettings;

/// Ready jobs that follow new settings of their queue in one step.
pub(super) const REORDERED_AT_ONCE: usize = 512;
/// Groups of a share that let others compete in their place when its turn is over.
const HANDED_OVER_MAX: usize = 64;

impl State {
    // ---- handles ----

    pub(crate) fn id_of(&self, handle: u32) -> u64 {
        self.jobs.id_of(handle)
    }

    /// The handle of a job, finished or not.
    pub(crate) fn handle(&self, id: JobId) -> Option<u32> {
        self.by_id.find(id.0, |handle| self.id_of(handle))
    }

    /// The number of an unfinished job.
    pub(crate) fn find_live(&self, id: JobId) -> Option<u32> {
        self.handle(id).filter(|handle| handle & FINISHED == 0)
    }

    /// The number of a finished job.
    pub(crate) fn find_finished(&self, id: JobId) -> Option<u32> {
        self.handle(id).filter(|handle| handle & FINISHED != 0).map(|handle| handle & !FINISHED)
    }

    pub(crate) fn live_job(&self, number: u32) -> &LiveJob {
        &self.jobs.live[number]
    }

    // ---- queues ----

    pub(crate) fn queue_number(&self, name: &[u8]) -> Option<u32> {
        self.queue_names.get(name).copied()
    }

    pub(crate) fn queue_at(&self, number: u32) -> Option<&Queue> {
        self.queues.find(number)
    }

    pub(super) fn queue_made(&mut self, name: &Bytes) -> u32 {
        let last = self.last_queue;
        if self.queue_at(last).is_some_and(|queue| queue.name == name) {
            return last;
        }
        if let Some(number) = self.queue_names.get(name) {
            self.last_queue = *number;
            return *number;
        }
        // The name may be a slice of a large network buffer: keep the name only.
        let name = Bytes::copy_from_slice(name);
        let number = self.queues.insert(Queue::new(name.clone()));
        self.queue_names.insert(name, number);
        number
    }

    pub(super) fn forget_queue_if_unused(&mut self, number: u32) {
        if self.queue_at(number).is_some_and(Queue::is_forgettable)
            && let Some(queue) = self.queues.remove(number)
        {
            self.surplus.remove(&number);
            self.fair_queues.remove(&number);
            self.reordering.remove(&number);
            self.queue_names.remove(&queue.name);
        }
    }

    pub(super) fn set_queue(&mut self, name: &Bytes, settings: &QueueSettings, at: Place) {
        let number = self.queue_made(name);
        if let Some(queue) = self.queues.find_mut(number) {
            queue.settings_record = (!settings.is_default()).then_some(at.position);
            queue.settings = settings.clone();
        }
        self.follow_settings(number);
        self.note_surplus(number);
        self.forget_queue_if_unused(number);
    }

    /// The queue's ready jobs are ordered as its settings say: the first of them now, the others in
    /// bounded steps.
    fn follow_settings(&mut self, number: u32) {
        let State { queues, fair_queues, reordering, .. } = self;
        let Some(queue) = queues.find_mut(number) else { return };
        if !queue.follow_settings() {
            return;
        }
        if queue.is_fair() {
            fair_queues.insert(number);
        } else {
            fair_queues.remove(&number);
        }
        let disciplines = queue.earlier.len();
        if disciplines > 0 {
            reordering.insert(number);
        }
        // Only a fold can be that far ahead of the steps.
        self.reorder(if disciplines > EARLIER_MAX { usize::MAX } else { REORDERED_AT_ONCE });
    }

    pub(super) fn note_due(&mut self, due_ms: u64) {
        self.due_hint_ms = self.due_hint_ms.min(due_ms);
    }

    // ---- what depends on a job's status ----

    /// Takes a job out of everything its status put it in.
    pub(super) fn detach(&mut self, number: u32) {
        match self.jobs.live[number].status() {
            Status::Ready => self.leave_ready(number),
            Status::Scheduled => {
                self.leave_timers(number);
                let State { jobs, queues, .. } = self;
                if let Some(queue) = queues.find_mut(jobs.live[number].queue()) {
                    queue.scheduled.remove(number, |other| jobs.live[other].due_key());
                }
            }
            Status::Leased => self.leave_leased(number),
            Status::Parked | Status::Blocked | Status::Done | Status::Dead => {}
        }
        self.count_one(number, false);
    }

    /// Puts a job into everything its status asks for.
    pub(super) fn attach(&mut self, number: u32) {
        match self.jobs.live[number].status() {
            Status::Ready => self.enter_ready(number),
            Status::Scheduled => {
                self.enter_timers(number);
                let State { jobs, queues, .. } = self;
                if let Some(queue) = queues.find_mut(jobs.live[number].queue()) {
                    queue.scheduled.insert(number, |other| jobs.live[other].due_key());
                }
            }
            Status::Leased => self.enter_leased(number),
            Status::Parked | Status::Blocked | Status::Done | Status::Dead => {}
        }
        self.count_one(number, true);
        let job = &self.jobs.live[number];
        self.by_id.mark(job.id(), marks_of(job.status(), job.origin(), job.queue()));
    }

    fn count_one(&mut self, number: u32, comes: bool) {
        let job = &self.jobs.live[number];
        if let Some(queue) = self.queues.find_mut(job.queue()) {
            queue.count_one(job, comes);
        }
    }

    fn enter_timers(&mut self, number: u32) {
        let State { jobs, timers, .. } = self;
        if let Some(due_ms) = jobs.live[number].due_ms() {
            timers.insert(number, |other| jobs.live[other].due_key());
            self.note_due(due_ms);
        }
    }

    fn leave_timers(&mut self, number: u32) {
        let State { jobs, timers, .. } = self;
        if jobs.live[number].due_ms().is_some() {
            timers.remove(number, |other| jobs.live[other].due_key());
        }
    }

    fn enter_leased(&mut self, number: u32) {
        let job = &self.jobs.live[number];
        let Some(lease) = job.lease() else { return };
        if lease.bound {
            self.bound.insert((lease.holder, job.id()));
        }
        self.enter_timers(number);
        for label in self.labels_of(number) {
            self.bucket_made(label).started();
        }
    }

    fn leave_leased(&mut self, number: u32) {
        let job = &self.jobs.live[number];
        let Some(lease) = job.lease() else { return };
        if lease.bound {
            self.bound.remove(&(lease.holder, job.id()));
        }
        self.leave_timers(number);
        for label in self.labels_of(number) {
            self.bucket_made(label).ended();
            self.promote_all(label);
            self.forget_bucket_when_full(label);
        }
    }

    pub(super) fn labels_of(&self, number: u32) -> Vec<Label> {
        self.jobs.live[number].labels().to_vec()
    }

    pub(super) fn enter_ready(&mut self, number: u32) {
        let keys_max = self.defaults.fair_keys_max;
        let State { jobs, queues, faults, .. } = self;
        let job = &jobs.live[number];
        let Some(queue) = queues.find_mut(job.queue()) else { return };
        let share = queue.share_for(job.fair_key(), keys_max);
        queue.count_into_share(share, !job.fair_key().is_empty(), *faults);
        let group_number = queue.group_for(share, job.labels(), job.is_large());
        let Some(group) = queue.groups.find_mut(group_number) else { return };
        let aging_ms = group.aging_ms;
        group.ready.insert(number, |other| jobs.live[other].ready_key(aging_ms));
        let (queue_number, key) = (job.queue(), job.ready_key(aging_ms));
        if group.head.is_none_or(|head| key < head) {
            self.rehead(queue_number, group_number);
        }
    }

    pub(super) fn leave_ready(&mut self, number: u32) {
        let State { jobs, queues, .. } = self;
        let job = &jobs.live[number];
        let (queue_number, has_key) = (job.queue(), !job.fair_key().is_empty());
        let Some(queue) = queues.find_mut(queue_number) else { return };
        let Some(group_number) = queue.group_of(number, &jobs.live) else { return };
        let Some(group) = queue.groups.find_mut(group_number) else { return };
        let (share, aging_ms) = (group.share, group.aging_ms);
        group.ready.remove(number, |other| jobs.live[other].ready_key(aging_ms));
        self.rehead(queue_number, group_number);
        if let Some(queue) = self.queues.find_mut(queue_number) {
            queue.count_out_of_share(share, has_key);
        }
    }

    // ---- turns ----

    /// The share of a ready job of a fair queue keeps its place while the job is taken out of the
    /// indices and put back. Returns queue and share, for [`State::unpin`].
    pub(super) fn pin_share_of(&mut self, number: u32) -> Option<(u32, u32)> {
        let State { jobs, queues, .. } = self;
        let job = &jobs.live[number];
        let queue = queues.find_mut(job.queue()).filter(|queue| queue.is_fair())?;
        if job.status() != Status::Ready {
            return None;
        }
        let group = queue.group_of(number, &jobs.live)?;
        let share = queue.group(group)?.share;
        queue.pin(share);
        Some((job.queue(), share))
    }

    /// The job is back in the queue, or elsewhere. If it was leased, its share has had its turn.
    pub(super) fn unpin(&mut self, (queue_number, share): (u32, u32), was_leased: bool) {
        if was_leased && !self.faults.turn_not_taken {
            self.end_turn(queue_number, share);
        }
        if let Some(queue) = self.queues.find_mut(queue_number) {
            queue.unpin();
        }
    }

    /// The turn of a share is over: where one of its groups competes on behalf of others, another
    /// share may come before it now.
    fn end_turn(&mut self, queue_number: u32, share: u32) {
        let State { queues, faults, buckets, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        queue.end_turn(share, *faults);
        let Some(share) = queue.share(share).filter(|share| !share.probing.is_empty()) else {
            return;
        };
        let others_wait = |label: &Label| {
            buckets.get(label).is_some_and(|bucket| bucket.waiting.contains_key(&queue_number))
        };
        let probes = share.probing.iter().take(HANDED_OVER_MAX);
        let probes = probes.filter_map(|group| Some((*group, queue.group(*group)?.probes?)));
        let shared: Vec<(u32, Label)> = probes.filter(|(_, label)| others_wait(label)).collect();
        for (group, label) in shared {
            self.wait_at(queue_number, group, label);
            self.promote(label, queue_number);
        }
    }

    /// A new server begins: the shares of fair queues are placed anew, because the places that they
    /// had are not logged.
    pub(super) fn begin_rounds(&mut self) {
        if self.faults.aging_forgotten {
            for number in self.queue_names.values() {
                let Some(queue) = self.queues.find_mut(*number) else { continue };
                if queue.forget_aging() && !queue.earlier.is_empty() {
                    self.reordering.insert(*number);
                }
            }
        }
        while !self.reordering.is_empty() {
            self.reorder(usize::MAX);
        }
        let State { queues, fair_queues, .. } = self;
        for number in fair_queues.iter() {
            if let Some(queue) = queues.find_mut(*number) {
                queue.begin_round();
            }
        }
    }

    /// Reorders ready jobs of queues whose settings have changed, at most `jobs_max` of them. Jobs
    /// that follow the oldest settings go first.
    pub(super) fn reorder(&mut self, jobs_max: usize) {
        for _ in 0..jobs_max {
            let Some(number) = self.reordering.first().copied() else { return };
            let next = self.queues.find(number).and_then(Queue::next_to_reorder);
            if let Some(job) = next {
                self.leave_ready(job);
                self.enter_ready(job);
            }
            let Some(queue) = self.queues.find_mut(number) else { continue };
            queue.close_earlier();
            if queue.earlier.is_empty() {
                self.reordering.remove(&number);
                self.promoted.insert(number);
            }
        }
    }

    // ---- groups and buckets ----

    /// Enters a group into the contest (or its bucket's waiting line) under its head as it is now.
    fn rehead(&mut self, queue_number: u32, number: u32) {
        let State { jobs, queues, buckets, unmatched, promoted, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        let Some(group) = queue.group(number) else { return };
        let head = group.ready.first().map(|job| jobs.live[job].ready_key(group.aging_ms));
        if head == group.head {
            return;
        }
        let line = group
            .blocked_by
            .and_then(|label| buckets.get_mut(&label))
            .and_then(|bucket| bucket.waiting.get_mut(&queue_number));
        if let Some(line) = line {
            if let Some(waiting) = group.waiting(number) {
                line.remove(&waiting);
            }
            let turn = queue.turn_of(group);
            let Some(group) = queue.groups.find_mut(number) else { return };
            (group.head, group.waits_under) = (head, turn);
            line.extend(group.waiting(number));
        } else {
            queue.set_head(number, head);
        }
        let Some(group) = queue.groups.find_mut(number) else { return };
        // A lease has to look at the job that comes first now, and a worker may be waiting for it.
        if let Some(id) = group.unmatched_head.take() {
            unmatched.forget_group(id);
            if head.is_some() {
                promoted.insert(queue_number);
            }
        }
        let waits_at = group.blocked_by;
        if head.is_none() {
            group.blocked_by = None;
        }
        let probed = queue.end_probe(number);
        if head.is_none() {
            queue.drop_group(number);
            if let Some(label) = waits_at {
                self.forget_waiting_line(label, queue_number);
            }
        }
        if let Some(label) = probed {
            self.promote(label, queue_number);
        }
        if let (Some(label), Some(_)) = (waits_at, head) {
            self.promote_if_first(label, queue_number, number);
        }
    }

    // ---- keys ----

    pub(super) fn enter_keys(&mut self, handle: u32) {
        let State { jobs, keys, named, .. } = self;
        if !keys.is_deferred()
            && let Some(uuid) = jobs.uuid_of(handle)
        {
            let hash = keys.hash(&uuid);
            keys.insert(hash, handle);
        }
        for key in jobs.other_keys_of(handle) {
            named.insert(Named::of(key), handle);
        }
    }

    pub(super) fn leave_keys(&mut self, handle: u32) {
        let State { jobs, keys, named, .. } = self;
        if !keys.is_deferred()
            && let Some(uuid) = jobs.uuid_of(handle)
        {
            let hash = keys.hash(&uuid);
            keys.remove(hash, handle);
        }
        for key in jobs.other_keys_of(handle) {
            if let Entry::Occupied(entry) = named.entry(Named::of(key))
                && *entry.get() == handle
            {
                entry.remove();
            }
        }
    }

    /// Stops entering jobs under their UUIDs, for the fold of a long log, which looks nothing up.
    /// No job may be found by key or submitted until [`State::index_keys`].
    pub fn defer_keys(&mut self) {
        self.keys.defer();
    }

    /// Enters all jobs under their UUIDs. Call it once after [`State::defer_keys`]. `both` runs two pieces of work, at
    /// the same time if it can.
    pub fn index_keys(&mut self, both: impl Fn(Work<'_>, Work<'_>)) {
        let State { jobs, by_id, keys, .. } = self;
        let (seed, jobs, by_id) = (keys.seed(), &*jobs, &*by_id);
        let half = by_id.len() / 2;
        let hashed = |handle: u32| Some((seed.hash(&jobs.uuid_of(handle)?), handle));
        let low = || by_id.iter_after(0).take(half).filter_map(hashed);
        let high = || by_id.iter_after(half).filter_map(hashed);
        keys.fill(half + 1, low, high, both);
    }

    /// For the simulator: all keys are free again.
    #[doc(hidden)]
    pub fn forget_keys(&mut self) {
        self.keys.clear();
        self.named.clear();
    }

    /// For the simulator: TTLs of unfinished jobs are forgotten.
    #[doc(hidden)]
    pub fn forget_expiry(&mut self) {
        self.expiry = OrderedList::default();
    }

    /// The job a key names, finished or not.
    pub(crate) fn find_key(&self, key: &Key) -> Option<u32> {
        match as_uuid(key) {
            Some(uuid) => self.find_uuid(&uuid),
            None => self.named.get(&Named::of(key)).copied(),
        }
    }

    pub(crate) fn find_uuid(&self, uuid: &[u8; 16]) -> Option<u32> {
        let hash = self.keys.hash(uuid);
        self.keys.find(hash, |handle| self.jobs.uuid_of(handle).as_ref() == Some(uuid))
    }

    // ---- whole jobs ----

    pub(super) fn enter_expiry(&mut self, number: u32) {
        let State { jobs, expiry, .. } = self;
        if let Some(goes_ms) = jobs.live[number].goes_ms() {
            expiry.insert(number, |other| jobs.live[other].expiry_key());
            self.note_due(goes_ms);
        }
    }

    pub(super) fn leave_expiry(&mut self, number: u32) {
        let State { jobs, expiry, .. } = self;
        if jobs.live[number].goes_ms().is_some() {
            expiry.remove(number, |other| jobs.live[other].expiry_key());
        }
    }

    /// Puts a new job into all indices.
    pub(super) fn insert_live(&mut self, queue: &Bytes, mut job: LiveJob) -> u32 {
        job.set_queue(self.queue_made(queue));
        let is_labelled = !job.labels().is_empty();
        let number = self.jobs.live.insert(job);
        let State { jobs, by_id, .. } = self;
        by_id.insert(number, |other| jobs.id_of(other));
        self.enter_keys(number);
        self.enter_expiry(number);
        if is_labelled {
            self.enter_labels(number);
        }
        self.enter_blockers(number);
        self.attach(number);
        number
    }

    /// Takes a job, finished or not, out of everything. Returns whether it was there.
    pub(super) fn remove_job(&mut self, id: JobId) -> bool {
        let Some(handle) = self.handle(id) else { return false };
        self.leave_keys(handle);
        let State { jobs, by_id, .. } = self;
        by_id.remove(handle, |other| jobs.id_of(other));
        let queue = if handle & FINISHED == 0 {
            self.leave_expiry(handle);
            self.detach(handle);
            self.leave_labels(handle);
            self.leave_blockers(handle);
            self.jobs.live.remove(handle).map(|job| job.queue())
        } else {
            Some(self.remove_finished(handle & !FINISHED))
        };
        if let Some(queue) = queue {
            self.forget_queue_if_unused(queue);
        }
        true
    }
}
