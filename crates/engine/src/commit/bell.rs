//! Running threads, and the bell that wakes one of them in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Running threads, and the word that stops them.
#[derive(Default)]
pub(crate) struct Threads {
    pub handles: Vec<JoinHandle<()>>,
    pub stop: Arc<AtomicBool>,
}

/// Wakes the timer thread, but only for something due earlier than what it sleeps for.
#[derive(Debug, Default)]
pub(crate) struct TimerBell {
    armed_ms: AtomicU64,
    rung: Mutex<bool>,
    bell: Condvar,
}

impl TimerBell {
    pub fn ring_if_before(&self, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms
            && deadline_ms < self.armed_ms.load(Ordering::Acquire)
        {
            self.armed_ms.store(deadline_ms, Ordering::Release);
            self.ring();
        }
    }

    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.bell.notify_one();
    }

    /// To be called with the engine locked, so that no deadline comes in between.
    pub fn arm(&self, deadline_ms: Option<u64>) {
        self.armed_ms.store(deadline_ms.unwrap_or(u64::MAX), Ordering::Release);
    }

    pub fn sleep(&self, time: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.bell.wait_for(&mut rung, time);
        }
        *rung = false;
    }
}
