//! Constraints are set, changed and removed. Their buckets are rebased on the new rule in bounded
//! steps: until a bucket's turn comes, its level is computed when it is asked for. So a constraint
//! of many thousand values changes as fast as one of one value, and outcomes do not depend on how
//! far the steps have come.

use super::change::REORDERED_AT_ONCE;
use super::limits::Level;
use super::*;
use crate::event::{ConstraintRemoved, ConstraintSet};
use crate::queue::BucketImage;

/// Buckets, and lines of groups waiting at them, that are rebased in one step.
const REBASED_AT_ONCE: usize = 256;

impl State {
    pub(super) fn on_constraint_set(&mut self, set: &ConstraintSet, at: Place) {
        let number = set.constraint.number;
        // A change brings the rule, and not the levels of its buckets: their record stays.
        // Compaction appends the levels after the rule.
        let changed = set.revision > self.server.constraints_revision;
        let known = self.constraints.contains_key(&number);
        if changed && known {
            // Only a fold can be ahead of the steps: `decide` refuses a second change until all
            // buckets follow the first.
            self.rebase_whole(number);
        }
        let revision = if set.put_revision == 0 { set.revision } else { set.put_revision };
        let rule = set.constraint.clone();
        match self.constraints.get_mut(&number) {
            Some(kept) if changed => {
                let before = std::mem::replace(&mut kept.rule, rule);
                kept.before = Some((Box::new(before), set.at_ms));
                kept.revision = revision;
            }
            Some(kept) => {
                kept.rule = rule;
                kept.oldest_record = at.position;
            }
            None => {
                let kept =
                    KeptConstraint { rule, oldest_record: at.position, revision, before: None };
                self.constraints.insert(number, kept);
            }
        }
        self.server.next_constraint = self.server.next_constraint.max(number.saturating_add(1));
        self.server.constraints_revision = self.server.constraints_revision.max(set.revision);
        self.note_stop(set, revision, changed || !known);
        if changed || !known {
            // A new one has buckets already if labels came before it.
            self.begin_rebase(number);
        }
    }

    pub(super) fn on_constraint_removed(&mut self, removed: &ConstraintRemoved) {
        self.constraints.remove(&removed.number);
        self.server.constraints_revision = self.server.constraints_revision.max(removed.revision);
        self.forget_stop(removed.number);
        self.begin_rebase(removed.number);
    }

    pub(super) fn on_bucket_set(&mut self, image: &BucketImage) {
        let Some(kept) = self.constraints.get(&image.label.constraint) else { return };
        let revision = kept.revision;
        let bucket = self.bucket_made(image.label);
        bucket.level = Level::of(image);
        bucket.revision = revision;
        self.forget_bucket_when_full(image.label);
    }

    /// A bucket's level under its constraint as that is now. A bucket that was full under the old
    /// rule is full under the new one, since it may have been forgotten already; any other begins
    /// with what was left.
    pub(super) fn rebased(&self, label: Label, bucket: &Bucket) -> Level {
        let Some(kept) = self.constraints.get(&label.constraint) else { return Level::FULL };
        match &kept.before {
            Some((before, until_ms)) if bucket.revision < kept.revision => {
                bucket.level.under(before, &kept.rule, *until_ms)
            }
            _ => bucket.level,
        }
    }

    fn begin_rebase(&mut self, number: u32) {
        self.rebasing.insert(number, (0, 0));
        self.rebase();
    }

    /// Whether some buckets do not follow the last change of their constraint yet, or some groups
    /// that were held for a constraint are to compete again, or some ready jobs are still ordered
    /// as their queue's settings said before.
    pub fn is_rebasing(&self) -> bool {
        !self.rebasing.is_empty() || self.releases_groups() || !self.reordering.is_empty()
    }

    /// Whether some buckets of this constraint do not follow its last change yet.
    pub(crate) fn is_rebasing_constraint(&self, number: u32) -> bool {
        self.rebasing.contains_key(&number)
    }

    /// Rebases some of the buckets whose constraints changed, lets some groups compete again, and
    /// lets some jobs follow new settings of their queue. This is not logged. Call it again while
    /// [`State::is_rebasing`].
    pub fn rebase(&mut self) {
        self.release_groups();
        self.reorder(REORDERED_AT_ONCE);
        let mut budget = REBASED_AT_ONCE;
        while let Some((number, from)) = self.rebasing.first_key_value().map(|(n, at)| (*n, *at)) {
            self.rebase_some(number, from, &mut budget);
            if budget == 0 {
                return;
            }
        }
    }

    fn rebase_whole(&mut self, number: u32) {
        let mut unbounded = usize::MAX;
        if let Some(from) = self.rebasing.get(&number).copied() {
            self.rebase_some(number, from, &mut unbounded);
        }
    }

    fn rebase_some(&mut self, number: u32, from: (u64, u32), budget: &mut usize) {
        let (mut value, mut queue) = from;
        loop {
            let here = Label { constraint: number, value };
            let last = Label { constraint: number, value: u64::MAX };
            let Some(label) = self.buckets.range(here..=last).next().map(|(label, _)| *label)
            else {
                break;
            };
            if label.value != value {
                (value, queue) = (label.value, 0);
            }
            if *budget == 0 {
                self.rebasing.insert(number, (value, queue));
                return;
            }
            *budget -= 1;
            let waits = self.rebase_bucket(label, queue);
            match waits {
                Some(next) => queue = next,
                None if value == u64::MAX => break,
                None => (value, queue) = (value + 1, 0),
            }
        }
        self.rebasing.remove(&number);
        if let Some(kept) = self.constraints.get_mut(&number) {
            kept.before = None;
        }
    }

    /// One bucket, and the best group of one of the queues that wait at it: a looser limit may let
    /// it start, and the others follow it. Returns the queue to go on from, if others wait.
    fn rebase_bucket(&mut self, label: Label, queue: u32) -> Option<u32> {
        let level = self.buckets.get(&label).map(|bucket| self.rebased(label, bucket))?;
        let revision =
            self.constraints.get(&label.constraint).map_or(u64::MAX, |kept| kept.revision);
        let bucket = self.buckets.get_mut(&label)?;
        bucket.level = level;
        bucket.revision = revision;
        if let Some(waiting) = bucket.waiting.range(queue..).next().map(|(queue, _)| *queue) {
            self.promote(label, waiting);
            return waiting.checked_add(1);
        }
        self.forget_bucket_when_full(label);
        None
    }
}
