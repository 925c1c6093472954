//! What slots of time count.

use crate::latency::BUCKETS;
use crate::slots::{Slot, part_of};

/// Commits by how long they took: a count for each bucket of [`crate::percentile_us`].
pub type Commits = [u32; BUCKETS];

/// What the server did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerSlot {
    /// For how much of the slot that is known, in milliseconds; 0 is a gap.
    pub seen_ms: u32,
    /// Jobs submitted.
    pub submitted: u32,
    /// Jobs done.
    pub done: u32,
    /// Attempts that failed, timed out or lost their worker.
    pub failed: u32,
    /// Jobs that died.
    pub dead: u32,
    /// How long commits took.
    pub commits: Commits,
}

/// What went through a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueSlot {
    /// For how much of the slot that is known, in milliseconds; 0 is a gap.
    pub seen_ms: u32,
    /// Jobs submitted.
    pub submitted: u32,
    /// Jobs done.
    pub done: u32,
    /// Attempts that failed, timed out or lost their worker.
    pub failed: u32,
    /// Jobs that died.
    pub dead: u32,
    /// Jobs ready at its end.
    pub ready: u32,
}

/// How many attempts failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failed(pub u32);

impl ServerSlot {
    fn numbers(&self) -> [u32; 5] {
        [self.seen_ms, self.submitted, self.done, self.failed, self.dead]
    }

    fn of([seen_ms, submitted, done, failed, dead]: [u32; 5], commits: Commits) -> ServerSlot {
        ServerSlot { seen_ms, submitted, done, failed, dead, commits }
    }
}

impl Slot for ServerSlot {
    const WIDTH: usize = 5 + BUCKETS;

    fn add(&mut self, later: &ServerSlot) {
        let sums = added(self.numbers(), later.numbers());
        *self = ServerSlot::of(sums, added(self.commits, later.commits));
    }

    fn part(&self, from: u64, until: u64, of: u64) -> ServerSlot {
        let part = |count| part_of(count, from, until, of);
        ServerSlot::of(self.numbers().map(part), self.commits.map(part))
    }

    fn put(&self, out: &mut Vec<u32>) {
        out.extend(self.numbers().iter().chain(&self.commits));
    }

    fn read(numbers: &[u32]) -> ServerSlot {
        let (counts, commits) = numbers.split_at(5.min(numbers.len()));
        ServerSlot::of(fixed(counts), fixed(commits))
    }
}

impl QueueSlot {
    fn numbers(self) -> [u32; 5] {
        [self.seen_ms, self.submitted, self.done, self.failed, self.dead]
    }

    fn of([seen_ms, submitted, done, failed, dead]: [u32; 5], ready: u32) -> QueueSlot {
        QueueSlot { seen_ms, submitted, done, failed, dead, ready }
    }
}

impl Slot for QueueSlot {
    const WIDTH: usize = 6;

    fn add(&mut self, later: &QueueSlot) {
        *self = QueueSlot::of(added(self.numbers(), later.numbers()), later.ready);
    }

    fn part(&self, from: u64, until: u64, of: u64) -> QueueSlot {
        QueueSlot::of(self.numbers().map(|count| part_of(count, from, until, of)), self.ready)
    }

    fn put(&self, out: &mut Vec<u32>) {
        out.extend(self.numbers());
        out.push(self.ready);
    }

    fn read(numbers: &[u32]) -> QueueSlot {
        let (counts, ready) = numbers.split_at(5.min(numbers.len()));
        QueueSlot::of(fixed(counts), ready.first().copied().unwrap_or_default())
    }
}

impl Slot for Failed {
    const WIDTH: usize = 1;

    fn add(&mut self, later: &Failed) {
        self.0 = self.0.saturating_add(later.0);
    }

    fn part(&self, from: u64, until: u64, of: u64) -> Failed {
        Failed(part_of(self.0, from, until, of))
    }

    fn put(&self, out: &mut Vec<u32>) {
        out.push(self.0);
    }

    fn read(numbers: &[u32]) -> Failed {
        Failed(numbers.first().copied().unwrap_or_default())
    }
}

fn added<const N: usize>(mut sums: [u32; N], more: [u32; N]) -> [u32; N] {
    for (sum, count) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(count);
    }
    sums
}

fn fixed<const N: usize>(numbers: &[u32]) -> [u32; N] {
    let mut fixed = [0; N];
    for (place, number) in fixed.iter_mut().zip(numbers) {
        *place = *number;
    }
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole<T: Slot + std::fmt::Debug>(numbers: Vec<u32>) {
        assert_eq!(numbers.len(), T::WIDTH);
        let mut out = Vec::new();
        T::read(&numbers).put(&mut out);
        assert_eq!(out, numbers);
    }

    #[test]
    fn slots_are_read_as_they_were_written() {
        is_whole::<ServerSlot>((1..=25).collect());
        is_whole::<QueueSlot>((1..=6).collect());
        is_whole::<Failed>(vec![7]);
    }

    #[test]
    fn counts_add_up_and_the_later_depth_counts() {
        let mut slot =
            QueueSlot { seen_ms: 10, submitted: u32::MAX, ready: 9, ..QueueSlot::default() };
        slot.add(&QueueSlot {
            seen_ms: 5,
            submitted: 1,
            done: 2,
            ready: 3,
            ..QueueSlot::default()
        });
        let expected = QueueSlot {
            seen_ms: 15,
            submitted: u32::MAX,
            done: 2,
            ready: 3,
            ..QueueSlot::default()
        };
        assert_eq!(slot, expected);
        assert_eq!(slot.part(0, 1, 3).ready, 3, "a depth is not shared");
    }
}
