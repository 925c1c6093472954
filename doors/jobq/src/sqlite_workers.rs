//! The copy of the jobs on threads of its own, so that no other door waits for a query. They may be
//! slow because they never hold the engine's lock: only `query_thread.rs` asks the engine.
//!
//! There are two of them, and the copy is with one at a time. The first has a low priority: it
//! applies changes, and makes a short try at each query. A longer query goes to the second, which
//! runs only while a processor is idle and yields at once when anything else wants to run. A low
//! priority alone would still make other threads wait for the end of its time slice, which was
//! measured to slow another door by a quarter. If the second gets almost no time because the
//! machine is always busy, the first runs the query to its end.
//!
//! A query under way is watched: it is ended when no client waits for it any more, and given up
//! when it stays too long within one step. Then no queries run until its thread is done.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

use crate::query::{Budget, Try};
use crate::refusal::Answered;
use crate::replica::{QueryLimits, Replica};

/// This gives about a tenth of a processor that other threads want as well, and all of an idle one.
const NICENESS: i32 = 10;

/// Runs only while a processor would be idle otherwise.
const IDLE: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);

/// How often a query under way is checked.
const WATCH: Duration = Duration::from_millis(50);

/// How long a query may be within one step of SQLite's machine before it is given up. The limits of
/// a query keep its steps to a few seconds, which a busy machine may stretch tenfold.
const STUCK: Duration = Duration::from_secs(60);

type Errand = Box<dyn FnOnce(&mut Replica) + Send>;

/// Access to the copy, which lives as long as this.
pub struct SqliteWorkers {
    low: Worker,
    idle: Worker,
    copy: Copy,
    /// Ends the copy's queries.
    budget: Budget,
    stuck: Duration,
}

enum Copy {
    Here(Box<Replica>),
    /// A query that was given up still has it, on the thread of low priority or on the other one.
    With {
        low: bool,
    },
    /// A thread that had it has ended.
    Lost,
}

/// Why nothing was done with the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unavailable {
    /// This query was given up, because it stayed within one step.
    GivenUp,
    /// An earlier query that was given up still has the copy, or a thread has ended.
    Elsewhere,
}

impl SqliteWorkers {
    /// Makes an empty copy and starts its threads.
    pub fn start(limits: QueryLimits) -> io::Result<SqliteWorkers> {
        let replica = Replica::new(limits).map_err(io::Error::other)?;
        let low = Worker::start("spindle-sqlite", lower)?;
        let idle = Worker::start("spindle-sqlidle", idle)?;
        let budget = replica.budget();
        Ok(SqliteWorkers { low, idle, copy: Copy::Here(Box::new(replica)), budget, stuck: STUCK })
    }

    /// What ends the copy's queries.
    pub fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// Whether the copy is here, or has come back from a query that was given up.
    pub fn is_here(&mut self) -> bool {
        if let Copy::With { low } = self.copy {
            let worker = if low { &self.low } else { &self.idle };
            match worker.returned.try_recv() {
                Ok(replica) => self.copy = Copy::Here(replica),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.copy = Copy::Lost,
            }
        }
        matches!(self.copy, Copy::Here(_))
    }

    fn take(&mut self) -> Result<Box<Replica>, Unavailable> {
        if !self.is_here() {
            return Err(Unavailable::Elsewhere);
        }
        match std::mem::replace(&mut self.copy, Copy::Lost) {
            Copy::Here(replica) => Ok(replica),
            Copy::With { .. } | Copy::Lost => Err(Unavailable::Elsewhere),
        }
    }

    /// Runs something on the copy, and waits for it.
    pub fn run<T: Send + 'static>(
        &mut self,
        errand: impl FnOnce(&mut Replica) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let replica = self.take()?;
        let doing = self.low.begin(replica, errand).ok_or(Unavailable::Elsewhere)?;
        self.copy = Copy::Here(self.low.returned.recv().map_err(|_| Unavailable::Elsewhere)?);
        doing.recv().map_err(|_| Unavailable::Elsewhere)
    }

    /// Runs a query on the copy, in as many tries as it takes. The query is ended when its answer
    /// is not wanted any more.
    pub fn query<T: Send + 'static>(
        &mut self,
        ask: impl Fn(&Replica) -> Answered<T> + Send + Sync + 'static,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<Answered<T>, Unavailable> {
        let ask = Arc::new(ask);
        for (low, one) in [(true, Try::Short), (false, Try::WhileFed), (true, Try::Whole)] {
            let replica = self.take()?;
            let worker = if low { &self.low } else { &self.idle };
            let ask = Arc::clone(&ask);
            self.budget.resume();
            let errand = move |replica: &mut Replica| replica.try_to(one, &*ask);
            let doing = worker.begin(replica, errand).ok_or(Unavailable::Elsewhere)?;
            let returned = loop {
                match worker.returned.recv_timeout(WATCH) {
                    Ok(replica) => break replica,
                    Err(RecvTimeoutError::Disconnected) => return Err(Unavailable::Elsewhere),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if is_unwanted() {
                    self.budget.interrupt();
                }
                if self.budget.unasked() > self.stuck {
                    self.budget.interrupt();
                    self.copy = Copy::With { low };
                    return Err(Unavailable::GivenUp);
                }
            };
            self.copy = Copy::Here(returned);
            if let Some(answer) = doing.recv().map_err(|_| Unavailable::Elsewhere)? {
                return Ok(answer);
            }
        }
        Err(Unavailable::Elsewhere)
    }
}

/// A thread that runs something on the copy, and gives the copy back.
struct Worker {
    errands: SyncSender<(Box<Replica>, Errand)>,
    returned: Receiver<Box<Replica>>,
}

impl Worker {
    fn start(name: &str, put_aside: fn()) -> io::Result<Worker> {
        let (errands, received) = sync_channel::<(Box<Replica>, Errand)>(1);
        let (give_back, returned) = sync_channel(1);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            put_aside();
            for (mut replica, errand) in received {
                errand(&mut replica);
                if give_back.send(replica).is_err() {
                    return;
                }
            }
        })?;
        Ok(Worker { errands, returned })
    }

    /// Hands it the copy. The result is there when the copy is back.
    fn begin<T: Send + 'static>(
        &self,
        replica: Box<Replica>,
        errand: impl FnOnce(&mut Replica) -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let (done, doing) = sync_channel(1);
        let errand = move |replica: &mut Replica| {
            // Nobody waits for what was given up.
            let _ = done.send(errand(replica));
        };
        self.errands.send((replica, Box::new(errand))).ok()?;
        Some(doing)
    }
}

fn lower() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::warn!("jobq: queries run at the priority of all else: {error}");
    }
}

fn idle() {
    // Where the idle policy is not allowed, a low priority still is.
    lower();
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, IDLE);
    // The call is refused because of the niceness that it also sets, if that would raise the
    // priority.
    if let Err(error) = set
        && thread_schedule_policy().ok() != Some(IDLE)
    {
        tracing::warn!("jobq: long queries run at a low priority only: {error:?}");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;
    use crate::query::Query;

    fn workers() -> SqliteWorkers {
        let limits = QueryLimits { time: Duration::from_secs(1), answer_bytes_max: 1 << 20 };
        SqliteWorkers::start(limits).expect("the threads start")
    }

    fn policy() -> ThreadSchedulePolicy {
        thread_schedule_policy().expect("a thread has a policy")
    }

    #[test]
    fn the_copy_is_kept_at_low_priority_and_nothing_else_is() {
        let before = (getpriority_process(Some(gettid())), policy());
        let mut workers = workers();
        let niceness = workers.run(|_| getpriority_process(Some(gettid())));
        assert_eq!(niceness, Ok(Ok(NICENESS)));
        assert_ne!(workers.run(|_| policy()), Ok(IDLE));
        assert_eq!((getpriority_process(Some(gettid())), policy()), before);
    }

    #[test]
    fn a_long_query_goes_on_where_nobody_else_wants_to_be() {
        let mut workers = workers();
        let (sender, tries) = sync_channel(8);
        let slow = "[[\"=\", \"length(replace(hex(printf('%9000d', id)), '20', 'abc'))\", 1]]";
        let slow = Query::read(slow).expect("it is one");
        workers.run(|replica| replica.fill_for_tests(2_000)).expect("the copy is here");
        let ask = move |replica: &Replica| {
            sender.send(policy() == IDLE).expect("it is waited for");
            replica.list(&slow, None)
        };
        assert_eq!(workers.query(ask, || false).map(|answer| answer.is_ok()), Ok(true));
        assert_eq!(tries.iter().take(2).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_short_query_is_answered_at_the_first_try() {
        let mut workers = workers();
        let (sender, tries) = sync_channel(8);
        let all = Query::default();
        let ask = move |replica: &Replica| {
            sender.send(()).expect("it is waited for");
            replica.list(&all, None)
        };
        assert_eq!(workers.query(ask, || false), Ok(Ok(Vec::new())));
        assert_eq!(tries.iter().count(), 1);
    }

    #[test]
    fn a_query_that_nobody_waits_for_is_ended() {
        let limits = QueryLimits { time: Duration::from_secs(3_600), answer_bytes_max: 1 << 20 };
        let mut workers = SqliteWorkers::start(limits).expect("the threads start");
        workers.run(|replica| replica.fill_for_tests(100_000)).expect("the copy is here");
        let endless = "[[\"=\", \"lower(hex(printf('%9000d', id)))\", 1]]";
        let endless = Query::read(endless).expect("it is one");
        let answer = workers.query(move |replica| replica.list(&endless, None), || true);
        let code = answer.map(|answer| answer.map_err(|refusal| refusal.code));
        assert_eq!(code, Ok(Err("stopping")));
        let all = workers.query(|replica| replica.list(&Query::default(), Some(1)), || false);
        assert_eq!(all.map(|found| found.is_ok()), Ok(true), "the next one runs");
    }

    #[test]
    fn a_query_that_does_not_come_out_of_a_step_is_given_up_and_others_run_once_it_has_ended() {
        let mut workers = workers();
        workers.stuck = Duration::from_millis(20);
        let (let_go, held) = sync_channel::<()>(1);
        let held = std::sync::Mutex::new(held);
        let stuck = move |_: &Replica| {
            let _ = held.lock().expect("one asks").recv();
            Ok(())
        };
        assert_eq!(workers.query(stuck, || false), Err(Unavailable::GivenUp));
        assert_eq!(workers.run(|_| ()), Err(Unavailable::Elsewhere));
        assert_eq!(workers.query(|_| Ok(()), || false), Err(Unavailable::Elsewhere));
        let_go.send(()).expect("it is waited for");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !workers.is_here() {
            assert!(std::time::Instant::now() < deadline, "the copy has not come back");
            std::thread::yield_now();
        }
        assert_eq!(workers.query(|_| Ok(()), || false), Ok(Ok(())));
    }
}
