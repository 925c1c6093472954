//! Time for the engine: never back, never still, and close to the wall clock.

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

/// The time in milliseconds since 1970, which never goes back.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now_ms(&self) -> u64;
    /// Called once with the last time the log knows: the clock goes on from there at least.
    fn start_from(&self, last_ms: u64);
    /// How far the wall clock is ahead of this clock (negative: behind).
    fn wall_ahead_ms(&self) -> i64;
    /// Take the wall clock's time as it is, as far as that does not go back.
    fn accept_wall(&self);
}

#[derive(Debug)]
struct Reading {
    now_ns: u64,
    boot_ns: u64,
}

/// Advances with the boot clock and slews toward the wall clock, at most a tenth faster or slower:
/// a stepped wall clock never makes leases run out early or stand still.
#[derive(Debug)]
pub struct SystemClock {
    last: Mutex<Reading>,
}

const NS_PER_MS: u64 = 1_000_000;
/// The share of the time passed by which the clock may be corrected.
const SLEW_PART: u64 = 10;
/// The wall clock is looked at this often; in between time passes with the boot clock. A tenth of
/// it, the most a correction can take back, is less than a millisecond.
const LOOK_AT_WALL_NS: u64 = 5 * NS_PER_MS;

impl SystemClock {
    /// Starts at the wall clock's time.
    pub fn new() -> SystemClock {
        let reading = Reading { now_ns: read_ns(ClockId::CLOCK_REALTIME), boot_ns: boot_ns() };
        SystemClock { last: Mutex::new(reading) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

/// The next reading, from the one before and what the two clocks say now.
fn advance(last: &Reading, boot_ns: u64, wall_ns: u64) -> u64 {
    let passed = boot_ns.saturating_sub(last.boot_ns);
    let straight = last.now_ns + passed;
    let limit = passed / SLEW_PART;
    if wall_ns >= straight {
        straight + (wall_ns - straight).min(limit)
    } else {
        straight - (straight - wall_ns).min(limit)
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let boot_ns = boot_ns();
        let mut last = self.last.lock();
        let passed_ns = boot_ns.saturating_sub(last.boot_ns);
        if passed_ns < LOOK_AT_WALL_NS {
            return (last.now_ns + passed_ns) / NS_PER_MS;
        }
        let wall_ns = read_ns(ClockId::CLOCK_REALTIME);
        let now_ns = advance(&last, boot_ns, wall_ns);
        *last = Reading { now_ns, boot_ns: boot_ns.max(last.boot_ns) };
        now_ns / NS_PER_MS
    }

    fn start_from(&self, last_ms: u64) {
        let mut last = self.last.lock();
        last.now_ns = last.now_ns.max(last_ms.saturating_mul(NS_PER_MS));
    }

    fn wall_ahead_ms(&self) -> i64 {
        let wall_ms = (read_ns(ClockId::CLOCK_REALTIME) / NS_PER_MS) as i64;
        wall_ms - self.now_ms() as i64
    }

    fn accept_wall(&self) {
        let wall_ns = read_ns(ClockId::CLOCK_REALTIME);
        let mut last = self.last.lock();
        last.now_ns = last.now_ns.max(wall_ns);
    }
}

fn boot_ns() -> u64 {
    read_ns(ClockId::CLOCK_BOOTTIME)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has had both clocks since 2.6.39");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_stepped_wall_clock_is_followed_by_a_tenth_at_most() {
        let last = Reading { now_ns: 100 * SECOND, boot_ns: 7 * SECOND };
        let after_ten = |wall| advance(&last, 17 * SECOND, wall);
        assert_eq!(after_ten(110 * SECOND), 110 * SECOND);
        assert_eq!(after_ten(500 * SECOND), 111 * SECOND);
        assert_eq!(after_ten(0), 109 * SECOND);
        assert_eq!(after_ten(110 * SECOND + 5), 110 * SECOND + 5);
        assert_eq!(advance(&last, 0, 0), 100 * SECOND);
    }

    #[test]
    fn the_log_may_be_ahead_of_the_wall_clock() {
        let clock = SystemClock::new();
        let ahead = clock.now_ms() + 3_600_000;
        clock.start_from(ahead);
        assert!(clock.now_ms() >= ahead);
        assert!(clock.wall_ahead_ms() < -3_000_000);
    }
}
