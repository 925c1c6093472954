//! A clock that a test moves.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use spindle_engine::Clock;

/// A clock that stands still until it is moved. The wall clock agrees with it unless a test says otherwise.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
    wall_ahead_ms: AtomicI64,
    since_boot_ms: AtomicU64,
    may_catch_up: AtomicBool,
}

impl ManualClock {
    /// Starts at this time.
    pub fn new(now_ms: u64) -> ManualClock {
        ManualClock { now_ms: AtomicU64::new(now_ms), ..ManualClock::default() }
    }

    /// Lets time pass.
    pub fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
        self.since_boot_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Whether the engine lets it catch up with the wall clock. It does so only when a test moves it.
    pub fn may_catch_up(&self) -> bool {
        self.may_catch_up.load(Ordering::SeqCst)
    }

    /// Sets the wall clock so far ahead of this one (negative: behind).
    pub fn set_wall_ahead(&self, ms: i64) {
        self.wall_ahead_ms.store(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn start_from(&self, last_ms: u64) {
        self.now_ms.fetch_max(last_ms, Ordering::SeqCst);
    }

    fn wall_ahead_ms(&self) -> i64 {
        self.wall_ahead_ms.load(Ordering::SeqCst)
    }

    fn accept_wall(&self) {
        let ahead_ms = self.wall_ahead_ms().max(0);
        self.now_ms.fetch_add(ahead_ms.unsigned_abs(), Ordering::SeqCst);
        self.wall_ahead_ms.fetch_sub(ahead_ms, Ordering::SeqCst);
    }

    fn let_catch_up(&self, may: bool) {
        self.may_catch_up.store(may, Ordering::SeqCst);
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.since_boot_ms.load(Ordering::SeqCst))
    }
}
