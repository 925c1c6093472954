//! A clock that a test moves.

use std::sync::atomic::{AtomicU64, Ordering};

use spindle_engine::Clock;

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Starts at this time.
    pub fn new(now_ms: u64) -> ManualClock {
        ManualClock(AtomicU64::new(now_ms))
    }

    /// Lets time pass.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn start_from(&self, last_ms: u64) {
        self.0.fetch_max(last_ms, Ordering::SeqCst);
    }

    fn wall_ahead_ms(&self) -> i64 {
        0
    }

    fn accept_wall(&self) {}
}
