//! Buckets: how groups of ready jobs wait at them, and how they come and go.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::ready::Waiting;
use super::*;
use crate::job::Status;

/// Full buckets that are forgotten in one step.
const FORGOTTEN_AT_ONCE: usize = 256;
/// Buckets that time has freed and whose groups compete again in one step.
const WOKEN_AT_ONCE: usize = 256;

/// The line at a bucket in which a group waits.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    queue: u32,
    label: Label,
    /// The key it waits under.
    head: u128,
}

/// At most this many groups are moved in one step because their share has had its turn meanwhile.
const MOVED_BACK_AT_ONCE: usize = 256;

/// The first waiting group of a size class. Groups wait under the place that their share had when
/// they began to wait; shares only move back.
fn first_waiting(line: &mut BTreeSet<Waiting>, queue: &mut Queue, large: bool) -> Option<u32> {
    for at in 0.. {
        let is_of_lane = |number| queue.group(number).is_some_and(|group| group.large == large);
        let first = line.iter().copied().find(|(.., number)| is_of_lane(*number))?;
        let (under, head, number) = first;
        let turn = queue.turn_of(queue.group(number)?);
        if turn == under || at == MOVED_BACK_AT_ONCE {
            return Some(number);
        }
        line.remove(&first);
        line.insert((turn, head, number));
        queue.groups.find_mut(number)?.waits_under = turn;
    }
    None
}

impl State {
    pub(super) fn forget_waiting_line(&mut self, label: Label, queue_number: u32) {
        if let Some(bucket) = self.buckets.get_mut(&label)
            && bucket.waiting.get(&queue_number).is_some_and(BTreeSet::is_empty)
        {
            bucket.waiting.remove(&queue_number);
        }
    }

    /// The best group that waits at this bucket in this queue competes again, for all of them.
    pub(super) fn promote(&mut self, label: Label, queue_number: u32) {
        let State { queues, buckets, promoted, .. } = self;
        let Some(bucket) = buckets.get_mut(&label) else { return };
        let Some(line) = bucket.waiting.get_mut(&queue_number) else { return };
        let Some(queue) = queues.find_mut(queue_number) else { return };
        for large in [false, true] {
            let Some(number) = first_waiting(line, queue, large) else { continue };
            let Some(group) = queue.groups.find_mut(number) else { continue };
            if let Some(waiting) = group.waiting(number) {
                line.remove(&waiting);
            }
            group.blocked_by = None;
            queue.begin_probe(number, label);
            queue.compete(number);
            promoted.insert(queue_number);
        }
        if line.is_empty() {
            bucket.waiting.remove(&queue_number);
        }
    }

    /// A group waits at a bucket from now on, and no longer competes. Returns the bucket that it
    /// probed.
    pub(super) fn wait_at(
        &mut self,
        queue_number: u32,
        number: u32,
        label: Label,
    ) -> Option<Label> {
        let State { queues, buckets, .. } = self;
        let bucket = buckets.get_mut(&label)?;
        let queue = queues.find_mut(queue_number)?;
        queue.stand_back(number);
        let turn = queue.turn_of(queue.group(number)?);
        let group = queue.groups.find_mut(number)?;
        (group.blocked_by, group.waits_under) = (Some(label), turn);
        bucket.waiting.entry(queue_number).or_default().extend(group.waiting(number));
        queue.end_probe(number)
    }

    pub(super) fn promote_all(&mut self, label: Label) {
        let queues: Vec<u32> = self
            .buckets
            .get(&label)
            .map(|bucket| bucket.waiting.keys().copied().collect())
            .unwrap_or_default();
        for queue in queues {
            self.promote(label, queue);
        }
    }

    /// When time alone frees a bucket; the inner one is none if time does not.
    fn wake_of(&self, label: Label, now_ms: u64) -> Option<Option<u64>> {
        let rule = self.constraint(label.constraint)?;
        Some(self.bucket(label)?.admits_at(rule, now_ms))
    }

    /// A group was found blocked by this bucket: it waits there from now on. This is not logged.
    pub(crate) fn hold_back(&mut self, queue_number: u32, number: u32, label: Label, now_ms: u64) {
        let Some(wake) = self.wake_of(label, now_ms) else { return };
        let group = self.queue_at(queue_number).and_then(|queue| queue.group(number));
        let competes = |group: &&Group| {
            group.head.is_some() && group.blocked_by.is_none() && group.unmatched_head.is_none()
        };
        if !group.is_some_and(|group| competes(&group)) || !self.buckets.contains_key(&label) {
            return;
        }
        let probed = self.wait_at(queue_number, number, label);
        if let Some(wake) = wake {
            self.bucket_wakes.insert((wake, label));
            self.due_hint_ms = self.due_hint_ms.min(wake);
        }
        if let Some(other) = probed.filter(|other| *other != label) {
            self.promote(other, queue_number);
        }
    }

    /// The line in which a ready job waits.
    pub(super) fn waits_at(&self, number: u32) -> Option<Waits> {
        let job = &self.jobs.live[number];
        let queue = self.queue_at(job.queue()).filter(|_| job.status() == Status::Ready)?;
        let group = queue.group(queue.group_of(number, &self.jobs.live)?)?;
        Some(Waits { queue: job.queue(), label: group.blocked_by?, head: group.head? })
    }

    /// Lets a ready job that was taken out of the indices and put back wait at its bucket again: if
    /// it is alone in its group, nothing else waits there. If the change brought it forward, it may
    /// be better than the group that competes for all.
    pub(super) fn hold_again(&mut self, number: u32, waited: Option<Waits>) {
        let Some(Waits { queue: queue_number, label, head: before }) = waited else { return };
        let State { jobs, queues, buckets, .. } = &*self;
        let job = &jobs.live[number];
        let stays = job.queue() == queue_number && job.status() == Status::Ready;
        let Some(queue) = queues.find(queue_number).filter(|_| stays) else { return };
        let found = queue.group_of(number, &jobs.live);
        let Some(number) = found.filter(|_| job.labels().contains(&label)) else { return };
        let Some(group) = queue.group(number) else { return };
        let alone = group.blocked_by.is_none() && group.probes.is_none();
        let Some(head) = group.head.filter(|_| alone && buckets.contains_key(&label)) else {
            return;
        };
        self.wait_at(queue_number, number, label);
        if head < before {
            self.promote_if_first(label, queue_number, number);
        }
    }

    /// A waiting group that is the best of its line competes at once: its bucket may be free, while
    /// another group competes for all of them.
    pub(super) fn promote_if_first(&mut self, label: Label, queue_number: u32, number: u32) {
        let State { queues, buckets, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        let line = buckets.get_mut(&label).and_then(|it| it.waiting.get_mut(&queue_number));
        let large = queue.group(number).is_some_and(|group| group.large);
        if line.is_some_and(|line| first_waiting(line, queue, large) == Some(number)) {
            self.promote(label, queue_number);
        }
    }

    /// Takes the queues in which held groups compete again since the last call.
    pub fn take_promoted(&mut self) -> Vec<Bytes> {
        if self.promoted.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut self.promoted)
            .into_iter()
            .filter_map(|number| self.queue_at(number).map(|queue| queue.name.clone()))
            .collect()
    }

    /// Buckets that time has freed let their groups compete again, and some of those that are full
    /// and that no job needs are forgotten. This is not logged.
    pub fn wake_buckets(&mut self, now_ms: u64) {
        for _ in 0..WOKEN_AT_ONCE {
            match self.bucket_wakes.first().copied() {
                Some((due, label)) if due <= now_ms => {
                    self.bucket_wakes.remove(&(due, label));
                    self.promote_all(label);
                }
                _ => break,
            }
        }
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.bucket_ends.first().copied() {
                Some((due, label)) if due <= now_ms => {
                    self.bucket_ends.remove(&(due, label));
                    self.forget_if_full(label, now_ms);
                }
                _ => return,
            }
        }
    }

    // ---- the life of a bucket ----

    /// A bucket exists while a job has its label, and until it is full again.
    pub(super) fn bucket_made(&mut self, label: Label) -> &mut Bucket {
        let State { buckets, values, constraints, .. } = self;
        buckets.entry(label).or_insert_with(|| {
            *values.entry(label.constraint).or_default() += 1;
            let revision = constraints.get(&label.constraint).map_or(0, |kept| kept.revision);
            Bucket::rebased_under(revision)
        })
    }

    pub(super) fn enter_labels(&mut self, number: u32) {
        for label in self.labels_of(number) {
            self.bucket_made(label).job_came();
        }
    }

    pub(super) fn leave_labels(&mut self, number: u32) {
        for label in self.labels_of(number) {
            self.bucket_made(label).job_went();
            self.forget_bucket_when_full(label);
        }
    }

    pub(super) fn forget_bucket_when_full(&mut self, label: Label) {
        let Some(view) = self.bucket(label).filter(|view| view.bucket.is_unused()) else {
            return;
        };
        let Some(rule) = self.constraint(label.constraint) else {
            self.forget_bucket(label);
            return;
        };
        // In whole seconds, so that many are forgotten at one wake.
        let full_ms = view.level.full_at(rule);
        if full_ms == 0 {
            self.forget_bucket(label);
        } else if let Some(due) = full_ms.checked_next_multiple_of(1000) {
            self.bucket_ends.insert((due, label));
            self.note_due(due);
        }
    }

    fn forget_if_full(&mut self, label: Label, now_ms: u64) {
        let unused = self.bucket(label).filter(|view| view.bucket.is_unused());
        match (unused, self.constraint(label.constraint)) {
            (Some(view), Some(rule)) if view.level.full_at(rule) > now_ms => {
                self.forget_bucket_when_full(label);
            }
            (Some(_), _) => self.forget_bucket(label),
            (None, _) => {}
        }
    }

    fn forget_bucket(&mut self, label: Label) {
        let State { buckets, values, .. } = self;
        if buckets.remove(&label).is_some()
            && let Some(count) = values.get_mut(&label.constraint)
        {
            *count -= 1;
            if *count == 0 {
                values.remove(&label.constraint);
            }
        }
    }

    /// Whether there are as many queues as there may be, and none of this name.
    pub fn has_no_room_for_queue(&self, name: &[u8]) -> bool {
        self.queue_names.len() >= self.defaults.queues_max && !self.queue_names.contains_key(name)
    }

    /// Whether a job with these labels would need more buckets than a constraint may have.
    pub fn has_no_room_for(&self, labels: &[Label]) -> bool {
        labels.iter().any(|label| {
            let count = self.values.get(&label.constraint).copied().unwrap_or_default();
            count >= self.defaults.values_max
                && label.value != Label::OVERFLOW
                && self.constraints.contains_key(&label.constraint)
                && !self.buckets.contains_key(label)
        })
    }
}
