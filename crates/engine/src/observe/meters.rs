//! How long things take, in a form that a dashboard reads: counts by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A count for each of a series of doubling limits: how many values were at most that large.
#[derive(Debug)]
pub(crate) struct Meter<const N: usize> {
    first: u64,
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Meter<N> {
    const fn new(first: u64) -> Meter<N> {
        Meter { first, counts: [const { AtomicU64::new(0) }; N], sum: AtomicU64::new(0) }
    }

    pub fn note(&self, value: u64) {
        // The limits are first, 2 first, 4 first ...; the last count is of what is above them all.
        let steps = value.div_ceil(self.first).max(1).next_power_of_two().ilog2() as usize;
        self.counts[steps.min(N - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn read(&self) -> Readings {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let limits = (0..N - 1).map(|step| Some(self.first << step)).chain([None]);
        let counts = limits.zip(self.counts.iter().map(load)).collect();
        Readings { counts, sum: load(&self.sum) }
    }
}

/// What a meter counted, since the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readings {
    /// How many values were above the limit before and at most this one; the last has no limit.
    pub counts: Vec<(Option<u64>, u64)>,
    /// All values together.
    pub sum: u64,
}

/// The engine's meters.
#[derive(Debug)]
pub(crate) struct Meters {
    pub commit_us: Meter<20>,
    pub commit_bytes: Meter<16>,
    pub lag_ms: Meter<18>,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters { commit_us: Meter::new(32), commit_bytes: Meter::new(256), lag_ms: Meter::new(1) }
    }
}

impl Meters {
    /// One commit: from taking the batch to its being durable.
    pub fn note_commit(&self, time: Duration, bytes: usize) {
        self.commit_us.note(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        self.commit_bytes.note(bytes as u64);
    }

    pub fn read(&self) -> MeterReadings {
        MeterReadings {
            commit_us: self.commit_us.read(),
            commit_bytes: self.commit_bytes.read(),
            lag_ms: self.lag_ms.read(),
        }
    }
}

/// What the engine's meters counted since the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterReadings {
    /// Microseconds from taking a batch to its being durable.
    pub commit_us: Readings,
    /// Bytes of a batch.
    pub commit_bytes: Readings,
    /// Milliseconds by which scheduled jobs became ready after their time.
    pub lag_ms: Readings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_below_the_first_limit_it_does_not_exceed() {
        let meter = Meter::<4>::new(10);
        for value in [0, 1, 10, 11, 20, 21, 40, 41, u64::MAX / 4] {
            meter.note(value);
        }
        let read = meter.read();
        assert_eq!(read.counts, [(Some(10), 3), (Some(20), 2), (Some(40), 2), (None, 2)]);
        assert_eq!(read.sum, 144 + u64::MAX / 4);
    }
}
