//! Buckets of constraints, and the groups of jobs that wait for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::Label;
use crate::queue::{BucketImage, Constraint};

/// One bucket. Its tokens are counted in fractions: a token is `per_ms` units, and every
/// millisecond brings `count` of them, so that nothing is rounded.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    /// None: full, whatever the constraint says.
    level: Option<u128>,
    at_ms: u64,
    running: u64,
    /// Unfinished jobs with its label.
    jobs: u64,
    /// Groups of ready jobs that this bucket holds back, by queue, best first.
    pub(crate) waiting: BTreeMap<u32, BTreeSet<(u128, u32)>>,
}

impl Bucket {
    /// Its tokens, in fractions.
    pub fn level_at(&self, constraint: &Constraint, now_ms: u64) -> u128 {
        let Some(rate) = &constraint.rate else { return 0 };
        let capacity = capacity(constraint);
        let elapsed = u128::from(now_ms.saturating_sub(self.at_ms));
        self.level.map_or(capacity, |level| level + elapsed * u128::from(rate.count)).min(capacity)
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

    /// The level as it is kept; none if it is full anyway.
    pub(crate) fn image(&self, label: Label) -> Option<BucketImage> {
        let level = u64::try_from(self.level?).unwrap_or(u64::MAX);
        Some(BucketImage { label, level, at_ms: self.at_ms })
    }

    pub(crate) fn set(&mut self, image: &BucketImage) {
        self.level = Some(u128::from(image.level));
        self.at_ms = image.at_ms;
    }

    /// It is full from now on.
    pub(crate) fn fill(&mut self) {
        self.level = None;
    }

    pub(crate) fn started(&mut self) {
        self.running += 1;
    }

    pub(crate) fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    pub(crate) fn job_came(&mut self) {
        self.jobs += 1;
    }

    pub(crate) fn job_went(&mut self) {
        self.jobs = self.jobs.saturating_sub(1);
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
        Some(now_ms.saturating_add(time_for(missing, rate.count)))
    }

    /// When it is full by time alone.
    pub(crate) fn full_at(&self, constraint: &Constraint) -> u64 {
        let Some(rate) = &constraint.rate else { return 0 };
        let missing = capacity(constraint).saturating_sub(self.level.unwrap_or(u128::MAX));
        self.at_ms.saturating_add(time_for(missing, rate.count))
    }

    /// No job has to do with it: once it is full, nothing changes if it is forgotten.
    pub(crate) fn is_unused(&self) -> bool {
        self.running == 0 && self.jobs == 0 && self.waiting.is_empty()
    }
}

/// How long tokens take to come.
fn time_for(fractions: u128, count: u64) -> u64 {
    u64::try_from(fractions.div_ceil(u128::from(count.max(1)))).unwrap_or(u64::MAX)
}

pub(super) fn capacity(constraint: &Constraint) -> u128 {
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
        let mut bucket = Bucket::default();
        bucket.set(&bucket.image_after_start(&rule, label, 10_000));
        bucket.set(&bucket.image_after_start(&rule, label, 10_000));
        assert!(!bucket.admits(&rule, 10_000));
        assert_eq!(bucket.admits_at(&rule, 10_000), Some(10_334));
        assert!(!bucket.admits(&rule, 10_333) && bucket.admits(&rule, 10_334));
        bucket.set(&bucket.image_after_start(&rule, label, 99_000));
        assert!(bucket.admits(&rule, 99_000));
        assert_eq!(bucket.full_at(&rule), 99_334);
        bucket.set(&bucket.image_after_start(&rule, label, 99_000));
        assert!(!bucket.admits(&rule, 99_000));
        assert_eq!(bucket.full_at(&rule), 99_667);
        assert_eq!(bucket.level_at(&rule, 99_667), 2_000);
        assert!(bucket.is_unused());
    }

    #[test]
    fn running_max_counts_starts_and_ends() {
        let rule = Constraint { running_max: Some(1), ..Constraint::default() };
        let mut bucket = Bucket::default();
        bucket.started();
        assert!(!bucket.admits(&rule, 0));
        assert_eq!(bucket.admits_at(&rule, 0), None);
        bucket.ended();
        assert!(bucket.admits(&rule, 0));
    }
}
