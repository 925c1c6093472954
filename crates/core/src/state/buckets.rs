//! Buckets: how groups of ready jobs wait at them, and how they come and go.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::event::{ConstraintRemoved, ConstraintSet};
use crate::queue::BucketImage;

/// Full buckets that are forgotten in one step.
const FORGOTTEN_AT_ONCE: usize = 256;

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
        let Some(queue) = queues[queue_number as usize].as_mut() else { return };
        let Queue { groups, heads, .. } = queue;
        for large in [false, true] {
            let best = line.iter().copied().find(|(_, number)| {
                groups
                    .get(*number as usize)
                    .and_then(Option::as_ref)
                    .is_some_and(|group| group.large == large)
            });
            let Some((head, number)) = best else { continue };
            line.remove(&(head, number));
            if let Some(group) = groups.get_mut(number as usize).and_then(Option::as_mut) {
                group.blocked_by = None;
                group.probes = Some(label);
                promoted.insert(queue_number);
                heads[usize::from(group.large)].insert((head, number));
            }
        }
        if line.is_empty() {
            bucket.waiting.remove(&queue_number);
        }
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

    /// All groups that wait at this bucket compete again.
    pub(super) fn release_bucket(&mut self, label: Label) {
        while self.buckets.get(&label).is_some_and(|bucket| !bucket.waiting.is_empty()) {
            self.promote_all(label);
        }
    }

    /// A group was found blocked by this bucket: it waits there from now on. An index only, nothing
    /// that is told in the log.
    pub(crate) fn hold_back(&mut self, queue_number: u32, number: u32, label: Label, now_ms: u64) {
        let State { queues, buckets, constraints, bucket_wakes, .. } = self;
        let Some(rule) = constraints.get(&label.constraint) else { return };
        let Some(bucket) = buckets.get_mut(&label) else { return };
        let Some(queue) = queues.get_mut(queue_number as usize).and_then(Option::as_mut) else {
            return;
        };
        let Queue { groups, heads, .. } = queue;
        let Some(group) = groups.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let Some(head) = group.head.filter(|_| group.blocked_by.is_none()) else { return };
        heads[usize::from(group.large)].remove(&(head, number));
        group.blocked_by = Some(label);
        bucket.waiting.entry(queue_number).or_default().insert((head, number));
        if let Some(wake) = bucket.admits_at(&rule.rule, now_ms) {
            bucket_wakes.insert((wake, label));
            self.due_hint_ms = self.due_hint_ms.min(wake);
        }
        let probed = group.probes.take();
        if let Some(other) = probed.filter(|other| *other != label) {
            self.promote(other, queue_number);
        }
    }

    /// Queues in which jobs that were held back compete again, since this was last asked.
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
    /// and that no job has to do with are forgotten. Indices only.
    pub fn wake_buckets(&mut self, now_ms: u64) {
        while let Some((due, label)) = self.bucket_wakes.first().copied() {
            if due > now_ms {
                break;
            }
            self.bucket_wakes.remove(&(due, label));
            self.promote_all(label);
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

    /// A bucket is there while a job has its label, and until it is full again.
    pub(super) fn bucket_made(&mut self, label: Label) -> &mut Bucket {
        let State { buckets, values, .. } = self;
        buckets.entry(label).or_insert_with(|| {
            *values.entry(label.constraint).or_default() += 1;
            Bucket::default()
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
        let Some(bucket) = self.buckets.get(&label).filter(|bucket| bucket.is_unused()) else {
            return;
        };
        let Some(kept) = self.constraints.get(&label.constraint) else {
            self.forget_bucket(label);
            return;
        };
        // In whole seconds, so that many are forgotten at one wake.
        let full_ms = bucket.full_at(&kept.rule);
        if full_ms == 0 {
            self.forget_bucket(label);
        } else if let Some(due) = full_ms.checked_next_multiple_of(1000) {
            self.bucket_ends.insert((due, label));
            self.note_due(due);
        }
    }

    fn forget_if_full(&mut self, label: Label, now_ms: u64) {
        let unused = self.buckets.get(&label).filter(|bucket| bucket.is_unused());
        let rule = self.constraints.get(&label.constraint).map(|kept| &kept.rule);
        match (unused, rule) {
            (Some(bucket), Some(rule)) if bucket.full_at(rule) > now_ms => {
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

    /// Whether a job with these labels would need more buckets of a constraint than there may be.
    pub(crate) fn has_no_room_for(&self, labels: &[Label]) -> bool {
        labels.iter().any(|label| {
            let count = self.values.get(&label.constraint).copied().unwrap_or_default();
            count >= self.defaults.values_max
                && self.constraints.contains_key(&label.constraint)
                && !self.buckets.contains_key(label)
        })
    }

    // ---- constraints ----

    pub(super) fn on_constraint_set(&mut self, set: &ConstraintSet, at: Place) {
        let number = set.constraint.number;
        // A change tells the rule anew, but not the levels of its buckets: those stand where they
        // stood. Told again for carrying, the levels follow.
        let changed = set.revision > self.server.constraints_revision;
        let before = self.constraints.get(&number).filter(|_| changed);
        let home = before.map_or(at.position, |kept| kept.home);
        let kept = KeptConstraint { rule: set.constraint.clone(), home };
        let before = self.constraints.insert(number, kept).map(|kept| kept.rule);
        let is_known = before.is_some();
        self.server.next_constraint = self.server.next_constraint.max(number.saturating_add(1));
        self.server.constraints_revision = self.server.constraints_revision.max(set.revision);
        if is_known && !changed {
            return;
        }
        for label in self.labels_under(number) {
            // Full by the old rule is full by the new one: it may have been forgotten already.
            if let (Some(rule), Some(bucket)) = (&before, self.buckets.get_mut(&label))
                && bucket.full_at(rule) <= set.at_ms
            {
                bucket.fill();
            }
            // A looser limit may free groups that wait: let them find out.
            self.release_bucket(label);
            self.forget_bucket_when_full(label);
        }
    }

    pub(super) fn on_constraint_removed(&mut self, removed: &ConstraintRemoved) {
        self.constraints.remove(&removed.number);
        self.server.constraints_revision = self.server.constraints_revision.max(removed.revision);
        for label in self.labels_under(removed.number) {
            self.release_bucket(label);
            if let Some(bucket) = self.buckets.get_mut(&label) {
                bucket.fill();
            }
            self.forget_bucket_when_full(label);
        }
    }

    pub(super) fn on_bucket_set(&mut self, image: &BucketImage) {
        if self.constraints.contains_key(&image.label.constraint) {
            self.bucket_made(image.label).set(image);
            self.forget_bucket_when_full(image.label);
        }
    }

    fn labels_under(&self, constraint: u32) -> Vec<Label> {
        self.buckets_of(constraint, 0).map(|(label, _)| label).collect()
    }
}
