//! Time for the engine: never back, never still, and close to the wall clock, as long as that can be believed.
//!
//! A wall clock that is wrong must not delete jobs: a TTL is over when the time it names has passed, not when somebody
//! has set a clock. So the wall clock is compared with the engine's time, which the log keeps over a restart. While the
//! two disagree, nothing is deleted for its TTL, no schedule fires, and time goes on from the log's time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use spindle_core::audit::Action;
use spindle_core::command::{Claim, Extend};
use spindle_core::{Command, Found, JobId, Status};

use crate::answer::Refused;
use crate::audit::People;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;

/// The time in milliseconds since 1970, which never goes back.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now_ms(&self) -> u64;
    /// Called once with the last time the log knows: the clock goes on from there.
    fn start_from(&self, last_ms: u64);
    /// How far the wall clock is ahead of this clock (negative: behind).
    fn wall_ahead_ms(&self) -> i64;
    /// Take the wall clock's time as it is, as far as that does not go back.
    fn accept_wall(&self);
    /// Whether this clock may run faster to catch up with a wall clock that is ahead. It may not as long as that is
    /// not believed since the start: once it had nearly caught up, the rest would be believed.
    fn let_catch_up(&self, may: bool);
    /// How long ago the machine was started, including the time in which it was suspended. This
    /// clock cannot be set.
    fn since_boot(&self) -> Duration {
        Duration::from_nanos(boot_ns())
    }
}

#[derive(Debug)]
struct Reading {
    now_ns: u64,
    boot_ns: u64,
    may_catch_up: bool,
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
        let now_ns = read_ns(ClockId::CLOCK_REALTIME);
        let reading = Reading { now_ns, boot_ns: boot_ns(), may_catch_up: true };
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
    let straight = last.now_ns.saturating_add(passed);
    let limit = passed / SLEW_PART;
    if wall_ns >= straight {
        let limit = if last.may_catch_up { limit } else { 0 };
        straight.saturating_add((wall_ns - straight).min(limit))
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
            return last.now_ns.saturating_add(passed_ns) / NS_PER_MS;
        }
        let wall_ns = read_ns(ClockId::CLOCK_REALTIME);
        let now_ns = advance(&last, boot_ns, wall_ns);
        last.now_ns = now_ns;
        last.boot_ns = boot_ns.max(last.boot_ns);
        now_ns / NS_PER_MS
    }

    fn start_from(&self, last_ms: u64) {
        let now_ns = last_ms.saturating_mul(NS_PER_MS);
        let mut last = self.last.lock();
        (last.now_ns, last.boot_ns) = (now_ns, boot_ns());
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

    fn let_catch_up(&self, may: bool) {
        self.last.lock().may_catch_up = may;
    }
}

/// The clocks may differ by this much before deletions by TTL are held.
const DIFFERENCE_MAX_MS: i64 = 5 * 60_000;

/// Which difference between the wall clock and the engine's time is believed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockTrust {
    /// The server has started and the clocks have not agreed since: the wall clock may be ahead by as long as a server
    /// may have been away.
    starting: bool,
    /// What a person has accepted: the log is ahead of the wall clock by no more than this.
    behind_ms: i64,
}

impl ClockTrust {
    fn believes(&self, ahead_ms: i64, away_max_ms: u64) -> bool {
        let away_max_ms = i64::try_from(away_max_ms).unwrap_or(i64::MAX);
        let most_ms = if self.starting { away_max_ms } else { DIFFERENCE_MAX_MS };
        (-self.behind_ms - DIFFERENCE_MAX_MS..=most_ms).contains(&ahead_ms)
    }
}

impl Inner {
    /// Starts the time: it goes on from the log's last time, or from the wall clock's if that is believed.
    pub(crate) fn begin_time(&mut self, clock: &dyn Clock) {
        // A new log knows no time.
        if self.now_ms > 0 {
            clock.start_from(self.now_ms);
            let starting = ClockTrust { starting: true, behind_ms: 0 };
            let believed = starting.believes(clock.wall_ahead_ms(), self.options.away_max_ms);
            if believed {
                // That time has passed for everybody: leases of the last run are recovered after this.
                clock.accept_wall();
            }
            self.trust(clock, ClockTrust { starting: !believed, behind_ms: 0 });
            self.watch_clock(clock);
        }
        self.set_now(clock.now_ms());
    }

    /// Time goes on from the wall clock's, if that is later, and each lease keeps the time that it had left: the step
    /// used up no worker's time. The lock is held for all leases, because a lease does not show whether its time has
    /// been set right; this happens at most once after a start, and when a person accepts the clock.
    fn set_forward(&mut self, clock: &dyn Clock) {
        self.set_now(clock.now_ms());
        let before_ms = self.now_ms;
        clock.accept_wall();
        self.set_now(clock.now_ms());
        self.set_forward_ms += self.now_ms - before_ms;
        if self.options.faults.leases_set_forward {
            return;
        }
        let left_of = |found: Found<'_>| {
            let Found::Live(job) = found else { return None };
            let deadline_ms = job.lease()?.deadline_ms?;
            let claim = Claim::Unfinished { id: found.id() };
            Some(Extend { claim, ttr_ms: deadline_ms.saturating_sub(before_ms) })
        };
        let leased = self.state.jobs_that_may_be(Status::Leased, JobId(0));
        let left: Vec<Extend> = leased.filter_map(left_of).collect();
        for extend in left {
            self.apply(&Command::Extend(extend), None).ok();
        }
    }

    /// Holds deletions by TTL while the wall clock is not believed.
    fn watch_clock(&mut self, clock: &dyn Clock) {
        let ahead_ms = clock.wall_ahead_ms();
        let believed = self.options.faults.clock_believed
            || self.clock_trust.believes(ahead_ms, self.options.away_max_ms);
        if believed && self.clock_trust.starting {
            self.set_forward(clock);
            self.trust(clock, ClockTrust { starting: false, ..self.clock_trust });
        }
        if self.hold_expiry != believed {
            return;
        }
        self.set_hold(!believed);
        if believed {
            tracing::info!(
                "the wall clock agrees with the log's time again: TTLs count, and schedules fire"
            );
            return;
        }
        let by = Duration::from_secs(ahead_ms.unsigned_abs() / 1000);
        let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
        tracing::warn!(
            "the wall clock is {by:?} {direction} the log's time: nothing is deleted for its TTL, no schedule fires, and \
             time goes on from the log's, until the clock is right again, or is accepted (`spindle clock accept`)"
        );
    }

    fn trust(&mut self, clock: &dyn Clock, trust: ClockTrust) {
        self.clock_trust = trust;
        clock.let_catch_up(!trust.starting);
    }

    fn set_hold(&mut self, hold: bool) {
        self.hold_expiry = hold;
        // Expiries that the hint left out may be due now.
        self.state.renew_due_hint(hold);
    }
}

impl Engine {
    /// Compares the wall clock with the engine's time. The timer calls this, and the simulator.
    pub fn watch_clock(&self) {
        self.shared.inner.lock().watch_clock(&*self.shared.clock);
    }
}

impl People<'_> {
    /// Says that the wall clock is right: time goes on from it, and TTLs count again. Where the log is ahead of it, time
    /// goes on from the log's, and TTLs count by that.
    pub fn accept_clock(self) -> Gated<Result<(), Refused>> {
        let shared = &self.engine.shared;
        let ahead_ms = shared.clock.wall_ahead_ms();
        {
            let mut inner = shared.inner.lock();
            inner.set_forward(&*shared.clock);
            let behind_ms = (-shared.clock.wall_ahead_ms()).max(0);
            inner.trust(&*shared.clock, ClockTrust { starting: false, behind_ms });
            inner.set_hold(false);
        }
        shared.timer.ring();
        let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
        let detail = format!("{} s {direction} the log", ahead_ms.unsigned_abs() / 1000);
        self.note(Action::AcceptClock, detail)
    }
}

fn boot_ns() -> u64 {
    read_ns(ClockId::CLOCK_BOOTTIME)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has had both clocks since 2.6.39");
    to_ns(time.tv_sec(), time.tv_nsec())
}

/// Nanoseconds since 1970: 0 for times before that, and the last nanosecond that can be counted after the year 2554.
fn to_ns(seconds: i64, ns: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(ns).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_stepped_wall_clock_is_followed_by_a_tenth_at_most() {
        let last = Reading { now_ns: 100 * SECOND, boot_ns: 7 * SECOND, may_catch_up: true };
        let after_ten = |wall| advance(&last, 17 * SECOND, wall);
        assert_eq!(after_ten(110 * SECOND), 110 * SECOND);
        assert_eq!(after_ten(500 * SECOND), 111 * SECOND);
        assert_eq!(after_ten(0), 109 * SECOND);
        assert_eq!(after_ten(110 * SECOND + 5), 110 * SECOND + 5);
        assert_eq!(advance(&last, 0, 0), 100 * SECOND);
    }

    #[test]
    fn a_clock_that_may_not_catch_up_waits_for_a_wall_clock_that_is_behind() {
        let last = Reading { now_ns: 100 * SECOND, boot_ns: 7 * SECOND, may_catch_up: false };
        let after_ten = |wall| advance(&last, 17 * SECOND, wall);
        assert_eq!(after_ten(500 * SECOND), 110 * SECOND);
        assert_eq!(after_ten(0), 109 * SECOND);
    }

    #[test]
    fn a_clock_goes_on_from_the_log_until_the_wall_clock_is_accepted() {
        let clock = SystemClock::new();
        let wall = clock.now_ms();
        clock.start_from(wall - 3_600_000);
        assert!(clock.now_ms() < wall && clock.wall_ahead_ms() > 3_000_000);
        clock.accept_wall();
        assert!(clock.now_ms() >= wall);
    }

    #[test]
    fn a_clock_behind_the_last_nanosecond_stands_still_there() {
        let last = (18_446_744_073, 709_551_615);
        assert_eq!(to_ns(last.0, last.1 - 1), u64::MAX - 1);
        for (seconds, ns) in [last, (last.0, last.1 + 1), (last.0 + 1, 0), (i64::MAX, 999_999_999)]
        {
            assert_eq!(to_ns(seconds, ns), u64::MAX, "{seconds} s {ns} ns");
        }
        assert_eq!(to_ns(-1, 5), 5);
        let at_end = Reading { now_ns: u64::MAX, boot_ns: SECOND, may_catch_up: true };
        assert_eq!(advance(&at_end, 9 * SECOND, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_difference_is_believed_up_to_its_limit() {
        const DAY: i64 = 24 * 3600 * 1000;
        let trusts = |trust: ClockTrust, ahead_ms| trust.believes(ahead_ms, 30 * DAY as u64);
        let minutes = DIFFERENCE_MAX_MS;
        for (starting, behind_ms, least, most) in [
            (true, 0, -minutes, 30 * DAY),
            (false, 0, -minutes, minutes),
            (false, 400 * DAY, -400 * DAY - minutes, minutes),
        ] {
            let trust = ClockTrust { starting, behind_ms };
            assert!(trusts(trust, least) && trusts(trust, most), "{trust:?}");
            assert!(!trusts(trust, least - 1) && !trusts(trust, most + 1), "{trust:?}");
        }
        assert!(ClockTrust { starting: true, behind_ms: 0 }.believes(i64::MAX, u64::MAX));
    }

    #[test]
    fn the_log_may_be_ahead_of_the_wall_clock() {
        let clock = SystemClock::new();
        let ahead = clock.now_ms() + 3_600_000;
        clock.start_from(ahead);
        assert!(clock.now_ms() >= ahead);
        assert!(clock.wall_ahead_ms() < -3_000_000);
        clock.accept_wall();
        assert!(clock.now_ms() >= ahead, "time never goes back");
    }
}
