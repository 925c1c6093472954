//! How long a query may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};

/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 5_000;

/// Ends a query that has used its time. Counted is the time its thread has computed, so that a busy
/// machine refuses no query it would take when idle.
#[derive(Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The thread's clock at which it ends; 0: never.
    until_ns: AtomicU64,
    spent: AtomicBool,
}

impl Budget {
    /// Watches a connection from now on.
    pub fn install(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let budget = self.clone();
        db.progress_handler(STEPS, Some(move || budget.is_spent()))
    }

    /// Runs something that may take so long. True beside what it returns: it took longer, and was
    /// ended.
    pub fn within<T>(&self, time: Duration, run: impl FnOnce() -> T) -> (T, bool) {
        let allowed = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.spent.store(false, Ordering::Relaxed);
        self.0.until_ns.store(thread_ns().saturating_add(allowed), Ordering::Relaxed);
        let returned = run();
        self.0.until_ns.store(0, Ordering::Relaxed);
        (returned, self.0.spent.load(Ordering::Relaxed))
    }

    fn is_spent(&self) -> bool {
        let until = self.0.until_ns.load(Ordering::Relaxed);
        let spent = until > 0 && thread_ns() >= until;
        if spent {
            self.0.spent.store(true, Ordering::Relaxed);
        }
        spent
    }
}

/// How long this thread has computed.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
