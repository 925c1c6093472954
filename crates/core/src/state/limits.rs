//! Buckets of constraints, and the groups of jobs that wait for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::Label;
use crate::queue::{BucketImage, Constraint};

/// One bucket. Its tokens are counted in fractions: a token is `per_ms` units, and every
/// millisecond brings `count` of them, so that nothing is rounded.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    level: u128,
    at_ms: u64,
    running: u64,
    /// Groups of ready jobs that this bucket holds back, by queue, best first.
    pub(crate) waiting: BTreeMap<u32, BTreeSet<(u128, u32)>>,
}

impl Bucket {
    /// A bucket nobody took from yet.
    pub(crate) fn full(constraint: &Constraint) -> Bucket {
        Bucket { level: capacity(constraint), ..Bucket::default() }
    }

    fn level_at(&self, constraint: &Constraint, now_ms: u64) -> u128 {
        let Some(rate) = &constraint.rate else { return 0 };
        let elapsed = u128::from(now_ms.saturating_sub(self.at_ms));
        (self.level + elapsed * u128::from(rate.count)).min(capacity(constraint))
    }

    /// Whether one more job may start.
    pub(crate) fn admits(&self, constraint: &Constraint, now_ms: u64) -> bool {
        let running = constraint.running_max.is_none_or(|max| self.running < max);
        let rate = constraint
            .rate
            .as_ref()
            .is_none_or(|rate| self.level_at(constraint, now_ms) >= u128::from(rate.per_ms.max(1)));
        running && rate
    }

    /// What the level is once one job has started.
    pub(crate) fn image_after_start(
        &self,
        constraint: &Constraint,
        label: Label,
        now_ms: u64,
    ) -> BucketImage {
        let token = constraint.rate.as_ref().map_or(0, |rate| u128::from(rate.per_ms.max(1)));
        let level = self.level_at(constraint, now_ms).saturating_sub(token);
        let level = u64::try_from(level).unwrap_or(u64::MAX);
        BucketImage { label, level, at_ms: now_ms.max(self.at_ms) }
    }

    /// The level as it is kept.
    pub(crate) fn image(&self, label: Label) -> BucketImage {
        let level = u64::try_from(self.level).unwrap_or(u64::MAX);
        BucketImage { label, level, at_ms: self.at_ms }
    }

    pub(crate) fn set(&mut self, image: &BucketImage) {
        self.level = u128::from(image.level);
        self.at_ms = image.at_ms;
    }

    pub(crate) fn started(&mut self) {
        self.running += 1;
    }

    pub(crate) fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// How many of its jobs are leased.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// When time alone makes it admit a job; none if it needs a job to end, or admits one now.
    pub(crate) fn admits_at(&self, constraint: &Constraint, now_ms: u64) -> Option<u64> {
        let rate = constraint.rate.as_ref()?;
        let missing = u128::from(rate.per_ms.max(1))
            .checked_sub(self.level_at(constraint, now_ms))
            .filter(|missing| *missing > 0)?;
        let wait = missing.div_ceil(u128::from(rate.count.max(1)));
        Some(now_ms.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Nothing would change if it were forgotten.
    pub(crate) fn is_idle(&self, constraint: &Constraint, now_ms: u64) -> bool {
        self.running == 0
            && self.waiting.is_empty()
            && self.level_at(constraint, now_ms) >= capacity(constraint)
    }
}

fn capacity(constraint: &Constraint) -> u128 {
    constraint
        .rate
        .as_ref()
        .map_or(0, |rate| u128::from(rate.burst.max(1)) * u128::from(rate.per_ms.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Rate;

    fn constraint(count: u64, per_ms: u64, burst: u64) -> Constraint {
        Constraint { number: 1, rate: Some(Rate { count, per_ms, burst }), ..Constraint::default() }
    }

    #[test]
    fn tokens_come_evenly_and_never_beyond_the_burst() {
        let rule = constraint(3, 1000, 2);
        let label = Label { constraint: 1, value: 0 };
        let mut bucket = Bucket::full(&rule);
        bucket.set(&bucket.image_after_start(&rule, label, 10_000));
        bucket.set(&bucket.image_after_start(&rule, label, 10_000));
        assert!(!bucket.admits(&rule, 10_000));
        assert_eq!(bucket.admits_at(&rule, 10_000), Some(10_334));
        assert!(!bucket.admits(&rule, 10_333) && bucket.admits(&rule, 10_334));
        bucket.set(&bucket.image_after_start(&rule, label, 99_000));
        assert!(bucket.admits(&rule, 99_000) && !bucket.is_idle(&rule, 99_000));
        bucket.set(&bucket.image_after_start(&rule, label, 99_000));
        assert!(!bucket.admits(&rule, 99_000));
        assert!(bucket.is_idle(&rule, 200_000));
    }

    #[test]
    fn running_max_counts_starts_and_ends() {
        let rule = Constraint { running_max: Some(1), ..Constraint::default() };
        let mut bucket = Bucket::full(&rule);
        bucket.started();
        assert!(!bucket.admits(&rule, 0));
        assert_eq!(bucket.admits_at(&rule, 0), None);
        bucket.ended();
        assert!(bucket.admits(&rule, 0));
    }
}
