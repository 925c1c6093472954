//! How long a query may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};

/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 5_000;

/// One try at a query. It is made again from the beginning, elsewhere, when it is cut short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Try {
    /// Most queries are done before anybody could notice them.
    Short,
    /// As long as it gets on: processors that nobody else wants may become scarce.
    WhileFed,
    /// To its end.
    Whole,
}

/// What a short try may compute.
const SHORT: Duration = Duration::from_millis(2);

/// How long a try has to get nothing, or less than [`FED_SHARE`], to be one that starves.
const STARVED: Duration = Duration::from_millis(500);

/// This part of a processor is enough to get on.
const FED_SHARE: u64 = 8;

/// How a query ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By itself.
    Own,
    /// It had used all its time.
    Spent,
    /// The try was over: the next one may do better.
    Cut,
}

/// Ends a query that has used its time. Counted is the time its thread has computed, so that a busy
/// machine refuses no query it would take when idle.
#[derive(Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The thread's clock at which it ends; 0: never.
    until_ns: AtomicU64,
    /// Then it is spent; else the try is over.
    is_last: AtomicBool,
    /// When a try that has to be fed began, by the clock of the thread and by that on the wall.
    fed: AtomicBool,
    began_ns: AtomicU64,
    began_wall_ns: AtomicU64,
    spent: AtomicBool,
    cut: AtomicBool,
}

impl Budget {
    /// Watches a connection from now on.
    pub fn install(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let budget = self.clone();
        db.progress_handler(STEPS, Some(move || budget.is_over()))
    }

    /// Runs something that may take so long, or as long as the try lasts.
    pub fn within<T>(&self, time: Duration, one: Try, run: impl FnOnce() -> T) -> (T, End) {
        let shared = &self.0;
        let is_cut_first = one == Try::Short && SHORT < time;
        let allowed = if is_cut_first { SHORT } else { time };
        let allowed = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
        let now = ns(ClockId::ThreadCPUTime);
        shared.spent.store(false, Ordering::Relaxed);
        shared.cut.store(false, Ordering::Relaxed);
        shared.is_last.store(!is_cut_first, Ordering::Relaxed);
        shared.fed.store(one == Try::WhileFed, Ordering::Relaxed);
        shared.began_ns.store(now, Ordering::Relaxed);
        shared.began_wall_ns.store(ns(ClockId::Monotonic), Ordering::Relaxed);
        shared.until_ns.store(now.saturating_add(allowed), Ordering::Relaxed);
        let returned = run();
        shared.until_ns.store(0, Ordering::Relaxed);
        let end = match (shared.spent.load(Ordering::Relaxed), shared.cut.load(Ordering::Relaxed)) {
            (true, _) => End::Spent,
            (false, true) => End::Cut,
            (false, false) => End::Own,
        };
        (returned, end)
    }

    fn is_over(&self) -> bool {
        let shared = &self.0;
        let until = shared.until_ns.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let now = ns(ClockId::ThreadCPUTime);
        if now >= until {
            let is_last = shared.is_last.load(Ordering::Relaxed);
            let over = if is_last { &shared.spent } else { &shared.cut };
            over.store(true, Ordering::Relaxed);
            return true;
        }
        let starves = shared.fed.load(Ordering::Relaxed) && {
            let computed = now.saturating_sub(shared.began_ns.load(Ordering::Relaxed));
            let began = shared.began_wall_ns.load(Ordering::Relaxed);
            let passed = ns(ClockId::Monotonic).saturating_sub(began);
            is_starved(passed, computed)
        };
        if starves {
            shared.cut.store(true, Ordering::Relaxed);
        }
        starves
    }
}

/// Whether a try that began so long ago, and has computed so long, gets too little.
fn is_starved(passed_ns: u64, computed_ns: u64) -> bool {
    u128::from(passed_ns) >= STARVED.as_nanos() && computed_ns < passed_ns / FED_SHARE
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                        SELECT count(*) FROM n";
    const QUICK: &str = "SELECT 1";

    fn ended(sql: &str, time_ms: u64, one: Try) -> End {
        let mut db = Connection::open_in_memory().unwrap();
        let budget = Budget::default();
        budget.install(&mut db).unwrap();
        let run = || db.query_row(sql, [], |_| Ok(()));
        let (ran, end) = budget.within(Duration::from_millis(time_ms), one, run);
        assert_eq!(ran.is_ok(), end == End::Own, "{ran:?}");
        // Nothing is watched any more.
        db.query_row(QUICK, [], |_| Ok(())).unwrap();
        end
    }

    #[test]
    fn a_try_ends_with_what_it_may_and_only_the_limit_spends_the_query() {
        for one in [Try::Short, Try::WhileFed, Try::Whole] {
            assert_eq!(ended(QUICK, 1_000, one), End::Own);
        }
        assert_eq!(ended(SLOW, 1_000, Try::Short), End::Cut);
        assert_eq!(ended(SLOW, 1, Try::Short), End::Spent, "the limit is less than a short try");
        assert_eq!(ended(SLOW, 20, Try::Whole), End::Spent);
    }

    #[test]
    fn a_try_starves_when_it_has_got_little_for_a_while() {
        const MS: u64 = 1_000_000;
        assert!(!is_starved(499 * MS, 0), "not for long yet");
        assert!(is_starved(500 * MS, 0));
        assert!(is_starved(800 * MS, 99 * MS));
        assert!(!is_starved(800 * MS, 100 * MS), "an eighth is enough");
        assert!(!is_starved(0, 0));
    }
}
