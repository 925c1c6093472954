//! A row of slots of equal length in time.

use std::collections::VecDeque;

/// What one slot of time holds.
pub trait Slot: Clone + Default + PartialEq {
    /// How many numbers it is made of in a file.
    const WIDTH: usize;

    /// Adds what a later part of the same time holds.
    fn add(&mut self, later: &Self);

    /// The share that belongs to the part from `from` to `until` of a whole that is `of` long.
    #[must_use]
    fn part(&self, from: u64, until: u64, of: u64) -> Self;

    /// Appends its numbers.
    fn put(&self, out: &mut Vec<u32>);

    /// Made of its numbers, as many as [`Slot::WIDTH`].
    fn read(numbers: &[u32]) -> Self;
}

/// The part of a count that belongs to the stretch between two places of a whole. The parts add up
/// to the count.
pub(crate) fn part_of(count: u32, from: u64, until: u64, of: u64) -> u32 {
    let below = |at: u64| u128::from(count) * u128::from(at) / u128::from(of.max(1));
    u32::try_from(below(until) - below(from)).unwrap_or(u32::MAX)
}

/// How long a row's slots are, and how many it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    /// A slot's length in milliseconds.
    pub step_ms: u64,
    /// The most slots kept.
    pub slots: usize,
}

/// A row of slots, from which the oldest are dropped.
#[derive(Clone, PartialEq, Debug)]
pub struct Slots<T> {
    tier: Tier,
    /// The number of the newest slot: its beginning divided by the step.
    newest: u64,
    slots: VecDeque<T>,
}

impl<T: Slot> Slots<T> {
    /// An empty row.
    pub fn new(tier: Tier) -> Slots<T> {
        Slots { tier, newest: 0, slots: VecDeque::new() }
    }

    /// How long its slots are.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Whether nothing was ever put into it, or all of that has gone.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Records what happened between two times, distributed over the slots between them.
    pub fn record(&mut self, from_ms: u64, until_ms: u64, what: &T) {
        let (step, of) = (self.tier.step_ms, until_ms.saturating_sub(from_ms));
        let mut at_ms = from_ms;
        while at_ms < until_ms {
            let number = at_ms / step;
            let end_ms = until_ms.min((number + 1) * step);
            let part = what.part(at_ms - from_ms, end_ms - from_ms, of);
            if let Some(slot) = self.slot(number) {
                slot.add(&part);
            }
            at_ms = end_ms;
        }
    }

    /// The slot with a number. None: it is older than what is kept.
    fn slot(&mut self, number: u64) -> Option<&mut T> {
        let ahead = number.saturating_sub(self.newest);
        if self.slots.is_empty() || ahead >= self.tier.slots as u64 {
            self.slots.clear();
            self.newest = number;
            self.slots.push_back(T::default());
        }
        while self.newest < number {
            self.newest += 1;
            self.slots.push_back(T::default());
        }
        while self.slots.len() > self.tier.slots {
            self.slots.pop_front();
        }
        let back = usize::try_from(self.newest - number).ok()?;
        let at = self.slots.len().checked_sub(back + 1)?;
        self.slots.get_mut(at)
    }

    /// Forgets slots that begin later than this.
    pub fn forget_after(&mut self, now_ms: u64) {
        let last = now_ms / self.tier.step_ms;
        while self.newest > last && self.slots.pop_back().is_some() {
            self.newest = self.newest.saturating_sub(1);
        }
    }

    /// The slots up to now as at most so many points of equal length (at least one slot each): the
    /// points' length, and the points with the time at which each begins, the oldest first. Points of
    /// which nothing is kept are left out.
    pub fn points(&self, now_ms: u64, max: usize) -> (u64, Vec<(u64, T)>) {
        let per_point = self.tier.slots.div_ceil(max.clamp(1, self.tier.slots)) as u64;
        let step_ms = per_point * self.tier.step_ms;
        let count = self.tier.slots as u64 / per_point;
        let last = now_ms / step_ms;
        let first = (last + 1).saturating_sub(count);
        let mut points: Vec<(u64, T)> = Vec::new();
        for (number, slot) in self.numbered() {
            let point = number / per_point;
            if !(first..=last).contains(&point) {
                continue;
            }
            match points.last_mut() {
                Some((at, merged)) if *at == point * step_ms => merged.add(slot),
                _ => points.push((point * step_ms, slot.clone())),
            }
        }
        (step_ms, points)
    }

    /// Its slots with their numbers, the oldest first.
    fn numbered(&self) -> impl Iterator<Item = (u64, &T)> {
        let oldest = (self.newest + 1).saturating_sub(self.slots.len() as u64);
        (oldest..).zip(&self.slots)
    }

    /// The number of the newest slot, and the numbers that the slots are made of.
    pub(crate) fn numbers(&self) -> (u64, Vec<u32>) {
        let mut numbers = Vec::with_capacity(self.slots.len() * T::WIDTH);
        self.slots.iter().for_each(|slot| slot.put(&mut numbers));
        (self.newest, numbers)
    }

    /// Made of what [`Slots::numbers`] gave. None: it does not fit.
    pub(crate) fn of_numbers(tier: Tier, newest: u64, numbers: &[u32]) -> Option<Slots<T>> {
        let slots: VecDeque<T> = numbers.chunks(T::WIDTH).map(|it| T::read(it)).collect();
        let fits = numbers.len().is_multiple_of(T::WIDTH)
            && slots.len() <= tier.slots
            && newest < u64::MAX / tier.step_ms
            && newest + 1 >= slots.len() as u64;
        fits.then_some(Slots { tier, newest, slots })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::counts::Failed;

    const TIER: Tier = Tier { step_ms: 10, slots: 6 };

    fn counts(row: &Slots<Failed>, now_ms: u64, max: usize) -> (u64, Vec<(u64, u32)>) {
        let (step, points) = row.points(now_ms, max);
        (step, points.into_iter().map(|(at, slot)| (at, slot.0)).collect())
    }

    #[test]
    fn a_look_is_shared_over_its_time_and_the_oldest_slots_go() {
        let mut row = Slots::new(TIER);
        row.record(1_005, 1_025, &Failed(8));
        assert_eq!(counts(&row, 1_025, 6), (10, vec![(1_000, 2), (1_010, 4), (1_020, 2)]));
        row.record(1_058, 1_060, &Failed(1));
        let (_, points) = counts(&row, 1_060, 6);
        assert_eq!(points, [(1_010, 4), (1_020, 2), (1_030, 0), (1_040, 0), (1_050, 1)]);
        assert_eq!(counts(&row, 1_059, 6).1[0], (1_000, 2), "six slots are kept");
        row.record(1_060, 1_061, &Failed(5));
        assert_eq!(row.slots.len(), 6, "memory is bounded");
        assert_eq!(counts(&row, 1_061, 6).1[0], (1_010, 4));
        row.record(1_002, 1_003, &Failed(9));
        assert_eq!(counts(&row, 1_061, 6).1[0], (1_010, 4), "older than what is kept");
    }

    #[test]
    fn points_begin_at_multiples_of_their_length() {
        let mut row = Slots::new(TIER);
        for at in [1_000, 1_010, 1_020, 1_030, 1_040, 1_050] {
            row.record(at, at + 10, &Failed(1));
        }
        assert_eq!(counts(&row, 1_059, 3), (20, vec![(1_000, 2), (1_020, 2), (1_040, 2)]));
        assert_eq!(counts(&row, 1_059, 4), (20, vec![(1_000, 2), (1_020, 2), (1_040, 2)]));
        assert_eq!(counts(&row, 1_059, 1), (60, vec![(1_020, 4)]));
        assert_eq!(counts(&row, 1_059, 0).0, 60);
        assert_eq!(counts(&row, 1_059, 7).0, 10);
        assert_eq!(counts(&row, 9_999, 6), (10, vec![]));
    }

    #[test]
    fn time_that_goes_far_ahead_leaves_a_gap_and_what_lies_ahead_is_forgotten() {
        let mut row = Slots::new(TIER);
        row.record(1_000, 1_010, &Failed(1));
        row.record(5_000_000, 5_000_010, &Failed(2));
        assert_eq!(counts(&row, 5_000_010, 6), (10, vec![(5_000_000, 2)]));
        row.forget_after(4_999_999);
        assert!(row.is_empty());
        row.record(1_000, 1_010, &Failed(3));
        assert_eq!(counts(&row, 1_010, 6).1, [(1_000, 3)]);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let fits =
            |newest, numbers: &[u32]| Slots::<Failed>::of_numbers(TIER, newest, numbers).is_some();
        assert!(fits(100, &[1; 6]) && fits(5, &[1; 6]) && fits(0, &[]));
        assert!(!fits(100, &[1; 7]), "more than are kept");
        assert!(!fits(4, &[1; 6]), "before 1970");
        assert!(!fits(u64::MAX, &[1]), "no time is that late");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_when_it_is_shared(
            from in 0u64..200, len in 1u64..40, count in any::<u32>(), max in 1usize..9,
        ) {
            let mut row = Slots::new(TIER);
            row.record(from, from + len, &Failed(count));
            let (_, points) = row.points(from + len, 6);
            let sum: u64 = points.iter().map(|(_, slot)| u64::from(slot.0)).sum();
            prop_assert_eq!(sum, u64::from(count));
            let (newest, numbers) = row.numbers();
            let again = Slots::of_numbers(TIER, newest, &numbers);
            prop_assert_eq!(again.as_ref(), Some(&row));
            prop_assert!(row.points(from + len, max).1.len() <= max.min(6));
        }
    }
}
