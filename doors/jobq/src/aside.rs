//! The copy of the jobs on threads of its own, so that no other door waits for a query. They never
//! hold the engine's lock, which is why they may be slow: the engine is asked by `clerk.rs`.
//!
//! There are two of them, and the copy is with one at a time. The first is of low priority: it
//! takes changes in, and makes a short try at each query. A query that takes longer goes on at the
//! second, which gets only what nobody else wants of the processors, and gives way at once when
//! somebody does: a low priority alone still makes others wait for the end of its turn, which was
//! measured to slow another door by a quarter. Should the second get nearly nothing, because the
//! machine is busy all the time, the first has the query to its end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

use crate::mirror::{Mirror, QueryLimits};
use crate::query::Try;
use crate::refusal::Answered;

/// About a tenth of a processor that others want as well, and all of one that nobody wants.
const NICENESS: i32 = 10;

/// Gets a processor when nobody else wants it.
const IDLE: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);

type Errand = Box<dyn FnOnce(&mut Mirror) + Send>;

/// The copy, for whoever has something done with it. It goes when this is dropped.
pub struct Aside {
    low: Worker,
    idle: Worker,
    /// None: a thread that had it has ended.
    mirror: Option<Box<Mirror>>,
}

impl Aside {
    /// Makes an empty copy and starts its threads.
    pub fn start(limits: QueryLimits) -> io::Result<Aside> {
        let mirror = Mirror::new(limits).map_err(io::Error::other)?;
        let low = Worker::start("spindle-sqlite", lower)?;
        let idle = Worker::start("spindle-sqlidle", idle)?;
        Ok(Aside { low, idle, mirror: Some(Box::new(mirror)) })
    }

    /// Has something done with the copy, and waits for it. None: its thread has ended.
    pub fn run<T: Send + 'static>(
        &mut self,
        errand: impl FnOnce(&mut Mirror) -> T + Send + 'static,
    ) -> Option<T> {
        let mirror = self.mirror.take()?;
        let (mirror, done) = self.low.run(mirror, errand)?;
        self.mirror = Some(mirror);
        Some(done)
    }

    /// Has the copy asked something, in as many tries as it takes. None: its thread has ended.
    pub fn query<T: Send + 'static>(
        &mut self,
        ask: impl Fn(&Mirror) -> Answered<T> + Send + Sync + 'static,
    ) -> Option<Answered<T>> {
        let ask = Arc::new(ask);
        let tries = [(&self.low, Try::Short), (&self.idle, Try::WhileFed), (&self.low, Try::Whole)];
        for (worker, one) in tries {
            let ask = Arc::clone(&ask);
            let mirror = self.mirror.take()?;
            let (mirror, answer) = worker.run(mirror, move |mirror| mirror.try_to(one, &*ask))?;
            self.mirror = Some(mirror);
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}

/// A thread that has something done with the copy, and gives it back.
struct Worker {
    errands: SyncSender<(Box<Mirror>, Errand)>,
    returned: Receiver<Box<Mirror>>,
}

impl Worker {
    fn start(name: &str, put_aside: fn()) -> io::Result<Worker> {
        let (errands, received) = sync_channel::<(Box<Mirror>, Errand)>(1);
        let (give_back, returned) = sync_channel(1);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            put_aside();
            for (mut mirror, errand) in received {
                errand(&mut mirror);
                if give_back.send(mirror).is_err() {
                    return;
                }
            }
        })?;
        Ok(Worker { errands, returned })
    }

    fn run<T: Send + 'static>(
        &self,
        mirror: Box<Mirror>,
        errand: impl FnOnce(&mut Mirror) -> T + Send + 'static,
    ) -> Option<(Box<Mirror>, T)> {
        let (done, doing) = sync_channel(1);
        let errand = move |mirror: &mut Mirror| {
            // Who asked waits for it.
            let _ = done.send(errand(mirror));
        };
        self.errands.send((mirror, Box::new(errand))).ok()?;
        Some((self.returned.recv().ok()?, doing.recv().ok()?))
    }
}

fn lower() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::warn!("jobq: queries run at the priority of all else: {error}");
    }
}

fn idle() {
    // Where it cannot be had, a low priority still can.
    lower();
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, IDLE);
    // It is refused for the niceness it sets besides, when that is a step up.
    if let Err(error) = set
        && thread_schedule_policy().ok() != Some(IDLE)
    {
        tracing::warn!("jobq: long queries run at a low priority only: {error:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::getpriority_process;

    use super::*;
    use crate::query::Query;

    fn aside() -> Aside {
        let limits = QueryLimits { time: Duration::from_secs(1), answer_bytes_max: 1 << 20 };
        Aside::start(limits).expect("the threads start")
    }

    fn policy() -> ThreadSchedulePolicy {
        thread_schedule_policy().expect("a thread has a policy")
    }

    #[test]
    fn the_copy_is_kept_at_low_priority_and_nothing_else_is() {
        let before = (getpriority_process(Some(gettid())), policy());
        let mut aside = aside();
        let niceness = aside.run(|_| getpriority_process(Some(gettid())));
        assert_eq!(niceness, Some(Ok(NICENESS)));
        assert_ne!(aside.run(|_| policy()), Some(IDLE));
        assert_eq!((getpriority_process(Some(gettid())), policy()), before);
    }

    #[test]
    fn a_long_query_goes_on_where_nobody_else_wants_to_be() {
        let mut aside = aside();
        let (tell, told) = sync_channel(8);
        let slow = "[[\"=\", \"length(replace(hex(printf('%9000d', id)), '20', 'abc'))\", 1]]";
        let slow = Query::read(slow).expect("it is one");
        aside.run(|mirror| mirror.fill_for_tests(2_000));
        let answer = aside.query(move |mirror| {
            tell.send(policy() == IDLE).expect("it is waited for");
            mirror.list(&slow, None)
        });
        assert_eq!(answer.map(|answer| answer.is_ok()), Some(true));
        assert_eq!(told.iter().take(2).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_short_query_is_answered_at_the_first_try() {
        let mut aside = aside();
        let (tell, told) = sync_channel(8);
        let all = Query::default();
        let answer = aside.query(move |mirror| {
            tell.send(()).expect("it is waited for");
            mirror.list(&all, None)
        });
        assert_eq!(answer.map(|answer| answer.ok()), Some(Some("[]".to_owned())));
        assert_eq!(told.iter().count(), 1);
    }
}
