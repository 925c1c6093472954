//! Constraints come, change and go. What that means for their buckets is settled in bounded steps:
//! until a bucket's turn comes, its level is worked out when it is asked for. So a constraint of
//! many thousand values changes as fast as one of one value, and outcomes do not depend on how far
//! the steps have come.

use super::limits::Level;
use super::*;
use crate::event::{ConstraintRemoved, ConstraintSet};
use crate::queue::BucketImage;

/// Buckets, and lines of groups waiting at them, that are settled in one step.
const SETTLED_AT_ONCE: usize = 256;

impl State {
    pub(super) fn on_constraint_set(&mut self, set: &ConstraintSet, at: Place) {
        let number = set.constraint.number;
        // A change tells the rule anew, but not the levels of its buckets: those stand where they
        // stood. Told again for carrying, the levels follow.
        let changed = set.revision > self.server.constraints_revision;
        let known = self.constraints.contains_key(&number);
        if changed && known {
            // Only a fold can be ahead of the steps: `decide` lets one change follow another only
            // when the first is settled.
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
            // Buckets of a new one are there only if labels were before it.
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
        let told = kept.revision;
        let bucket = self.bucket_made(image.label);
        bucket.level = Level::of(image);
        bucket.told = told;
        self.forget_bucket_when_full(image.label);
    }

    /// A bucket's level by its constraint as that is now. What was full by the old rule is full by
    /// the new one: it may have been forgotten already. Else it begins with what was left.
    pub(super) fn rebased(&self, label: Label, bucket: &Bucket) -> Level {
        let Some(kept) = self.constraints.get(&label.constraint) else { return Level::FULL };
        match &kept.before {
            Some((before, until_ms)) if bucket.told < kept.revision => {
                bucket.level.under(before, &kept.rule, *until_ms)
            }
            _ => bucket.level,
        }
    }

    fn begin_rebase(&mut self, number: u32) {
        self.settling.insert(number, (0, 0));
        self.rebase();
    }

    /// Whether some buckets have not heard yet that their constraint changed, or some groups that
    /// they need no longer be kept aside.
    pub fn is_rebasing(&self) -> bool {
        !self.settling.is_empty() || self.frees_aside()
    }

    /// Whether buckets of this constraint have not heard yet that it changed.
    pub(crate) fn is_settling_constraint(&self, number: u32) -> bool {
        self.settling.contains_key(&number)
    }

    /// Settles some of the buckets whose constraints changed, and lets some groups compete again.
    /// An index only: call it again while [`State::is_rebasing`].
    pub fn rebase(&mut self) {
        self.free_aside();
        let mut budget = SETTLED_AT_ONCE;
        while let Some((number, from)) = self.settling.first_key_value().map(|(n, at)| (*n, *at)) {
            self.rebase_some(number, from, &mut budget);
            if budget == 0 {
                return;
            }
        }
    }

    fn rebase_whole(&mut self, number: u32) {
        let mut unbounded = usize::MAX;
        if let Some(from) = self.settling.get(&number).copied() {
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
                self.settling.insert(number, (value, queue));
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
        self.settling.remove(&number);
        if let Some(kept) = self.constraints.get_mut(&number) {
            kept.before = None;
        }
    }

    /// One bucket, and the best group of one of the queues that wait at it: a looser limit may let
    /// it start, and the others follow it. Returns the queue to go on from, if others wait.
    fn rebase_bucket(&mut self, label: Label, queue: u32) -> Option<u32> {
        let level = self.buckets.get(&label).map(|bucket| self.rebased(label, bucket))?;
        let told = self.constraints.get(&label.constraint).map_or(u64::MAX, |kept| kept.revision);
        let bucket = self.buckets.get_mut(&label)?;
        bucket.level = level;
        bucket.told = told;
        if let Some(waiting) = bucket.waiting.range(queue..).next().map(|(queue, _)| *queue) {
            self.promote(label, waiting);
            return waiting.checked_add(1);
        }
        self.forget_bucket_when_full(label);
        None
    }
}
