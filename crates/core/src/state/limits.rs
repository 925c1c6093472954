//! Buckets of constraints, and the groups of jobs that wait for them.

use std::collections::{BTreeMap, BTreeSet};

use super::ready::Waiting;
use crate::job::Label;
use crate::queue::{BucketImage, Constraint};

/// How many tokens a bucket has. They are counted in fractions: a token is `per_ms` units, and
/// every millisecond brings `count` of them, so that nothing is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Level {
    /// None if it is full, whatever the constraint says.
    fractions: Option<u128>,
    at_ms: u64,
}

/// One bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) level: Level,
    /// The revision of its constraint that the level follows. If the constraint has a newer one,
    /// the level is still to be rebased: see `State::rebased`.
    pub(crate) revision: u64,
    running: u64,
    /// Unfinished jobs with its label.
    jobs: u64,
    /// Groups of ready jobs that this bucket holds back, by queue, best first.
    pub(super) waiting: BTreeMap<u32, BTreeSet<Waiting>>,
}

/// A bucket, and its level under its constraint as that is now.
#[derive(Debug, Clone, Copy)]
pub struct BucketView<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) level: Level,
}

impl BucketView<'_> {
    /// Its tokens, in fractions: `per_ms` of them are one.
    pub fn level_at(&self, constraint: &Constraint, now_ms: u64) -> u128 {
        self.level.at(constraint, now_ms)
    }

    /// How many of its jobs are leased.
    pub fn running(&self) -> u64 {
        self.bucket.running
    }

    /// Unfinished jobs with its label.
    pub fn jobs(&self) -> u64 {
        self.bucket.jobs
    }

    /// Whether one more job may start.
    pub fn admits(&self, constraint: &Constraint, now_ms: u64) -> bool {
        self.headroom(constraint, now_ms) > 0
    }

    /// How many more jobs may start now.
    pub fn headroom(&self, constraint: &Constraint, now_ms: u64) -> u64 {
        let places =
            constraint.running_max.map_or(u64::MAX, |max| max.saturating_sub(self.bucket.running));
        places.min(self.level.tokens(constraint, now_ms))
    }

    /// When it admits a job by time alone; none if a job has to end before, or if it admits one
    /// now.
    pub fn admits_at(&self, constraint: &Constraint, now_ms: u64) -> Option<u64> {
        self.level.admits_at(constraint, now_ms)
    }
}

impl Level {
    /// Full from now on, whatever the constraint says.
    pub(crate) const FULL: Level = Level { fractions: None, at_ms: 0 };

    /// The tokens, in fractions.
    pub(crate) fn at(&self, constraint: &Constraint, now_ms: u64) -> u128 {
        let Some(rate) = &constraint.rate else { return 0 };
        let capacity = capacity(constraint);
        let elapsed = u128::from(now_ms.saturating_sub(self.at_ms));
        let came = elapsed * u128::from(rate.count);
        self.fractions.map_or(capacity, |level| level + came).min(capacity)
    }

    /// The level after its constraint was changed: a part of a token stays the same part, whatever
    /// a token costs now.
    pub(crate) fn under(self, before: &Constraint, rule: &Constraint, until_ms: u64) -> Level {
        if self.full_at(before) <= until_ms {
            return Level::FULL;
        }
        let (Some(old), Some(new)) = (&before.rate, &rule.rate) else { return self };
        let left = self.at(before, until_ms) * u128::from(new.per_ms.max(1));
        let fractions = Some(left / u128::from(old.per_ms.max(1)));
        Level { fractions, at_ms: until_ms.max(self.at_ms) }
    }

    /// Whole tokens; any number if there is no rate.
    fn tokens(&self, constraint: &Constraint, now_ms: u64) -> u64 {
        let Some(rate) = &constraint.rate else { return u64::MAX };
        let tokens = self.at(constraint, now_ms) / u128::from(rate.per_ms.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// What the level is once one job has started.
    pub(crate) fn image_after_start(
        &self,
        constraint: &Constraint,
        label: Label,
        now_ms: u64,
    ) -> BucketImage {
        let token = constraint.rate.as_ref().map_or(0, |rate| u128::from(rate.per_ms.max(1)));
        let level = self.at(constraint, now_ms).saturating_sub(token);
        let level = u64::try_from(level).unwrap_or(u64::MAX);
        BucketImage { label, level, at_ms: now_ms.max(self.at_ms) }
    }

    /// The level as it is kept; none if it is full anyway.
    pub(crate) fn image(&self, label: Label) -> Option<BucketImage> {
        let level = u64::try_from(self.fractions?).unwrap_or(u64::MAX);
        Some(BucketImage { label, level, at_ms: self.at_ms })
    }

    pub(crate) fn of(image: &BucketImage) -> Level {
        Level { fractions: Some(u128::from(image.level)), at_ms: image.at_ms }
    }

    /// When time brings a token; none if there is one, or no rate.
    fn admits_at(&self, constraint: &Constraint, now_ms: u64) -> Option<u64> {
        let rate = constraint.rate.as_ref()?;
        let missing = u128::from(rate.per_ms.max(1))
            .checked_sub(self.at(constraint, now_ms))
            .filter(|missing| *missing > 0)?;
        Some(now_ms.saturating_add(time_for(missing, rate.count)))
    }

    /// When it is full by time alone.
    pub(crate) fn full_at(&self, constraint: &Constraint) -> u64 {
        let Some(rate) = &constraint.rate else { return 0 };
        let missing = capacity(constraint).saturating_sub(self.fractions.unwrap_or(u128::MAX));
        self.at_ms.saturating_add(time_for(missing, rate.count))
    }
}

impl Bucket {
    /// A full bucket that follows this revision of its constraint.
    pub(crate) fn rebased_under(revision: u64) -> Bucket {
        Bucket { revision, ..Bucket::default() }
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

    /// Whether no job needs it: once it is full, it can be forgotten.
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
        let taken =
            |level: Level, now_ms| Level::of(&level.image_after_start(&rule, label, now_ms));
        let empty = taken(taken(Level::FULL, 10_000), 10_000);
        assert!(empty.tokens(&rule, 10_000) == 0);
        assert_eq!(empty.admits_at(&rule, 10_000), Some(10_334));
        assert!(empty.tokens(&rule, 10_333) == 0 && empty.tokens(&rule, 10_334) > 0);
        let one = taken(empty, 99_000);
        assert!(one.tokens(&rule, 99_000) > 0);
        assert_eq!(one.full_at(&rule), 99_334);
        let none = taken(one, 99_000);
        assert!(none.tokens(&rule, 99_000) == 0);
        assert_eq!(none.full_at(&rule), 99_667);
        assert_eq!(none.at(&rule, 99_667), 2_000);
    }

    #[test]
    fn running_max_counts_starts_and_ends() {
        let rule = Constraint { running_max: Some(1), ..Constraint::default() };
        let mut bucket = Bucket::default();
        bucket.started();
        let view = BucketView { bucket: &bucket, level: bucket.level };
        assert!(!view.admits(&rule, 0));
        assert_eq!(view.admits_at(&rule, 0), None);
        let three = Constraint { running_max: Some(3), ..Constraint::default() };
        assert_eq!((view.headroom(&rule, 0), view.headroom(&three, 0)), (0, 2));
        bucket.ended();
        assert!(bucket.is_unused());
        assert!(BucketView { bucket: &bucket, level: bucket.level }.admits(&rule, 0));
    }
}
