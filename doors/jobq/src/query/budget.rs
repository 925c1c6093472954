//! How long a query may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};

/// Steps of SQLite's machine between two questions whether to go on. SQLite asks only between jobs,
/// so it looks at a few more jobs than these steps cover.
const STEPS: i32 = 64;

/// One try at a query. A try that is cut short is repeated from the beginning on another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Try {
    /// Long enough for most queries, and too short to disturb anything else.
    Short,
    /// As long as it makes progress: it runs on idle processors, which may become scarce.
    WhileFed,
    /// To its end.
    Whole,
}

/// What a short try may compute.
const SHORT: Duration = Duration::from_millis(2);

/// How long a try has to get no processor time, or less than [`FED_SHARE`], to count as starved.
const STARVED: Duration = Duration::from_millis(500);

/// One part in this many of a processor is enough to make progress.
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
    /// Nobody waits for it any more.
    Interrupted,
}

/// Ends a query that has used its time. Only the time that its thread has computed counts, so that
/// a busy machine refuses no query that it would accept when idle.
#[derive(Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// When it ends, by the thread's clock; 0 for never.
    until_ns: AtomicU64,
    /// Whether the query is spent at that time; otherwise only the try is over.
    is_last: AtomicBool,
    /// Whether the try ends when it starves and, if so, when it began, by the thread's clock and by
    /// the wall clock.
    fed: AtomicBool,
    began_ns: AtomicU64,
    began_wall_ns: AtomicU64,
    /// The wall-clock time before which the thread's clock need not be read: a thread cannot
    /// compute longer than time passes. Reading the wall clock costs a fifth of reading the
    /// thread's clock.
    look_at_ns: AtomicU64,
    /// The wall-clock time when it was last asked whether to go on.
    asked_ns: AtomicU64,
    spent: AtomicBool,
    cut: AtomicBool,
    interrupted: AtomicBool,
    stopped: AtomicBool,
}

/// The longest time between two looks at the thread's clock.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Budget {
    /// Watches a connection from now on.
    pub fn install(&self, db: &mut Connection) -> rusqlite::Result<()> {
        let budget = self.clone();
        db.progress_handler(STEPS, Some(move || budget.is_over()))
    }

    /// Ends the query under way, and all that follow until [`Budget::resume`].
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Relaxed);
    }

    /// Ends the query under way, and all that follow.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Relaxed) || self.0.stopped.load(Ordering::Relaxed)
    }

    /// Queries run again, unless they were stopped.
    pub fn resume(&self) {
        self.0.interrupted.store(false, Ordering::Relaxed);
        self.0.asked_ns.store(ns(ClockId::Monotonic), Ordering::Relaxed);
    }

    /// How long ago it was last asked whether to go on: a running query has been in one step for
    /// that long.
    pub fn unasked(&self) -> Duration {
        let asked = self.0.asked_ns.load(Ordering::Relaxed);
        Duration::from_nanos(ns(ClockId::Monotonic).saturating_sub(asked))
    }

    /// Runs something that may take so long, or as long as the try lasts. A call that took longer
    /// counts as spent even if it finished, because a step of SQLite's machine is not interrupted.
    pub fn within<T>(&self, time: Duration, one: Try, run: impl FnOnce() -> T) -> (T, End) {
        let shared = &self.0;
        let is_cut_first = one == Try::Short && SHORT < time;
        let in_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let allowed = in_ns(if is_cut_first { SHORT } else { time });
        let (now, wall) = (ns(ClockId::ThreadCPUTime), ns(ClockId::Monotonic));
        shared.spent.store(false, Ordering::Relaxed);
        shared.cut.store(false, Ordering::Relaxed);
        shared.is_last.store(!is_cut_first, Ordering::Relaxed);
        shared.fed.store(one == Try::WhileFed, Ordering::Relaxed);
        shared.began_ns.store(now, Ordering::Relaxed);
        shared.began_wall_ns.store(wall, Ordering::Relaxed);
        shared.look_at_ns.store(0, Ordering::Relaxed);
        shared.asked_ns.store(wall, Ordering::Relaxed);
        shared.until_ns.store(now.saturating_add(allowed), Ordering::Relaxed);
        let returned = run();
        shared.until_ns.store(0, Ordering::Relaxed);
        let is_late = ns(ClockId::ThreadCPUTime) > now.saturating_add(in_ns(time));
        let end = if shared.spent.load(Ordering::Relaxed) || is_late {
            End::Spent
        } else if self.is_interrupted() {
            End::Interrupted
        } else if shared.cut.load(Ordering::Relaxed) {
            End::Cut
        } else {
            End::Own
        };
        (returned, end)
    }

    /// Whether the query under way must end now.
    pub fn is_over(&self) -> bool {
        let shared = &self.0;
        let until = shared.until_ns.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let wall = ns(ClockId::Monotonic);
        shared.asked_ns.store(wall, Ordering::Relaxed);
        if self.is_interrupted() {
            return true;
        }
        if wall < shared.look_at_ns.load(Ordering::Relaxed) {
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
            is_starved(wall.saturating_sub(began), computed)
        };
        if starves {
            shared.cut.store(true, Ordering::Relaxed);
            return true;
        }
        let left = Duration::from_nanos(until - now).min(LOOK_EVERY);
        let look_at = wall.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        shared.look_at_ns.store(look_at, Ordering::Relaxed);
        false
    }
}

/// Whether a try that began `passed_ns` ago and has computed for `computed_ns` gets too little.
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
    fn few_jobs_are_looked_at_after_the_time_is_over() {
        let mut db = Connection::open_in_memory().unwrap();
        let budget = Budget::default();
        budget.install(&mut db).unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8;
        db.create_scalar_function("a_millisecond", 0, flags, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let began = ns(ClockId::ThreadCPUTime);
            while ns(ClockId::ThreadCPUTime) - began < 1_000_000 {}
            Ok(1)
        })
        .unwrap();
        db.execute_batch(
            "CREATE TABLE job (id); INSERT INTO job
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             SELECT i FROM n",
        )
        .unwrap();
        let ask = || {
            let mut jobs = db.prepare("SELECT 1 FROM job WHERE a_millisecond() = 2")?;
            jobs.query([])?.next().map(|row| row.is_some())
        };
        let (ran, end) = budget.within(Duration::from_millis(10), Try::Whole, ask);
        assert_eq!((ran.is_err(), end), (true, End::Spent));
        let calls = calls.load(Ordering::Relaxed);
        assert!(calls < 60, "{calls} jobs, of which ten were in time");
    }

    #[test]
    fn an_interrupted_query_ends_and_so_do_those_after_it_until_they_may_run_again() {
        let mut db = Connection::open_in_memory().unwrap();
        let budget = Budget::default();
        budget.install(&mut db).unwrap();
        let (time, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let ask = |time| budget.within(time, Try::Whole, || db.query_row(SLOW, [], |_| Ok(())));
        budget.interrupt();
        for _ in 0..2 {
            let (ran, end) = ask(day);
            assert_eq!((ran.is_err(), end), (true, End::Interrupted));
        }
        budget.resume();
        assert_eq!(budget.within(time, Try::Whole, || ()).1, End::Own);
        assert_eq!(ask(Duration::from_millis(5)).1, End::Spent);
    }

    #[test]
    fn what_took_too_long_in_one_step_is_spent_though_it_ended() {
        let budget = Budget::default();
        let busy = || {
            let began = ns(ClockId::ThreadCPUTime);
            while ns(ClockId::ThreadCPUTime) - began < 10_000_000 {}
        };
        for (time_ms, end) in [(5, End::Spent), (10_000, End::Own)] {
            for one in [Try::Short, Try::WhileFed, Try::Whole] {
                assert_eq!(budget.within(Duration::from_millis(time_ms), one, busy).1, end);
            }
        }
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
