//! Sleepers: workers that want to be called when there is work, and come for it themselves.
//!
//! Called by doors whose workers go to sleep (Gearman's PRE_SLEEP, the draft's worker_sleep). The
//! answer is one [`Answer::Called`](crate::Answer::Called), which ends the sleep and waits for no
//! record. As many sleepers are called as there are jobs they could lease.
//!
//! Sleepers and waiting leases are served in one line, the longest waiter first. Serving a sleeper takes time, because
//! it has to come; without a reservation, every job would go to a waiting lease before it does. So a call reserves: for
//! 100 ms waiting leases leave one job of the queue, and one start under each label of it, to the called sleeper (see
//! [`Reservations`](spindle_core::Reservations)). A reservation has limits:
//!
//! - It refuses nobody. A lease that does not wait takes what is there, reserved or not; a wait that
//!   ends while something is reserved takes that before it ends with nothing.
//! - It strands no job. When the called sleeper has come, is gone, or has had its 100 ms, the next
//!   in line is served at once.
//! - It is not given twice in vain. A sleeper that did not come in its time is called after all
//!   others, and reserves nothing, until it asks for a job again.
//! - It costs nothing unless a queue has both sleepers and waiting leases: only leases that wait
//!   look at it, and where more jobs are ready than sleepers were called for, they find one.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_core::job::Status;

use super::calls::Spare;
use super::list::{Caller, Sleep, Wait, WaitFor};
use crate::answer::Refused;
use crate::door::{ConnectionId, Ticket};
use crate::inner::Inner;
use crate::views::Waits;

/// What becomes of a worker that goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepReply {
    /// There is work: it need not sleep.
    Called,
    /// It sleeps; the call comes as this ticket's answer.
    Asleep(Ticket),
}

impl Waits<'_> {
    /// Sleeps until there is something to lease from these queues.
    pub fn sleep(
        &self,
        caller: &Caller,
        queues: Vec<Bytes>,
        payload_bytes_max: u32,
    ) -> Result<SleepReply, Refused> {
        let mut inner = self.0.enter();
        if inner.end_call(caller.connection) {
            // It sleeps again instead of coming.
            inner.waiting.calls.set_missed(caller.connection, true);
            inner.serve_waiting();
        }
        inner.check_waits()?;
        let is_late = inner.waiting.calls.has_missed(caller.connection);
        let sleep = Sleep { queues: queues.into_iter().collect(), payload_bytes_max, is_late };
        if inner.call_at_once(caller.connection, &sleep) {
            return Ok(SleepReply::Called);
        }
        let ticket = inner.add_wait(caller, WaitFor::Sleep(Box::new(sleep)), None)?;
        Ok(SleepReply::Asleep(ticket))
    }

    /// A sleeper is to be called for one more queue, and keeps its place in line.
    pub fn sleep_also(&self, ticket: Ticket, queue: Bytes) -> Result<SleepReply, Refused> {
        let mut inner = self.0.enter();
        let Some(Wait { caller, request: WaitFor::Sleep(sleep), .. }) =
            inner.waiting.list.find(ticket)
        else {
            // Its call is on its way.
            return Ok(SleepReply::Asleep(ticket));
        };
        let connection = caller.connection;
        let alone = Sleep { queues: BTreeSet::from([queue.clone()]), ..**sleep };
        if inner.call_at_once(connection, &alone) {
            inner.waiting.list.remove(ticket);
            return Ok(SleepReply::Called);
        }
        inner.waiting.list.add_queue(ticket, queue);
        Ok(SleepReply::Asleep(ticket))
    }

    /// A sleeper is no longer to be called for a queue.
    pub fn sleep_without(&self, ticket: Ticket, queue: &Bytes) {
        self.0.enter().waiting.list.remove_queue(ticket, queue);
    }
}

impl Inner {
    /// Calls a worker at once instead of letting it sleep, if there is a job it could lease that no
    /// sleeper was called for.
    fn call_at_once(&mut self, connection: ConnectionId, sleep: &Sleep) -> bool {
        let state = &self.state;
        let is_ready =
            |name: &&Bytes| state.queue(name).is_some_and(|queue| queue.count(Status::Ready) > 0);
        let ready: Vec<Bytes> = sleep.queues.iter().filter(is_ready).cloned().collect();
        if self.stopping || ready.is_empty() {
            return false;
        }
        let Some(job) = self.callable(ready, sleep.payload_bytes_max, Spare::Called) else {
            return false;
        };
        self.waiting.calls.add(connection, job, !sleep.is_late, self.now_ms);
        true
    }

    /// A connection asks for a job, or is gone: its call, if there was one, is over. Serve the waiting clients when it
    /// has its job: what it leaves is for others.
    pub(crate) fn end_call_of(&mut self, connection: ConnectionId) {
        self.waiting.calls.set_missed(connection, false);
        self.end_call(connection);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use spindle_core::audit::Actor;
    use spindle_core::command::{Lease, Select, Submit};
    use spindle_core::job::Origin;
    use spindle_core::queue::LimitScope;
    use spindle_core::{BytesRef, JobId, Type};
    use spindle_log::MemoryLog;

    use super::*;
    use crate::answer::LeaseReply;
    use crate::audit::Audit;
    use crate::call::NewJob;
    use crate::clock::SystemClock;
    use crate::commit::Payload;
    use crate::constraints::Expected;
    use crate::door::{Delivery, Mailbox};
    use crate::engine::Engine;
    use crate::options::Options;
    use spindle_matching::{ConstraintSpec, Matcher};

    const TEST: &str = "nobody is answered";

    #[derive(Default)]
    struct Letters(Mutex<Vec<Delivery>>);

    impl Mailbox for Letters {
        fn deliver(&self, delivery: Delivery) {
            self.0.lock().unwrap().push(delivery);
        }

        fn durable_moved(&self) {}
    }

    struct Bench {
        engine: Engine,
        letters: Arc<Letters>,
    }

    impl Bench {
        fn new() -> Bench {
            let clock = Arc::new(SystemClock::new());
            let engine = Engine::open(Arc::new(MemoryLog::new()), clock, Options::default());
            Bench { engine: engine.unwrap(), letters: Arc::default() }
        }

        fn caller(&self, connection: u64) -> Caller {
            let mailbox = self.letters.clone() as Arc<dyn Mailbox>;
            Caller { connection: ConnectionId(connection), mailbox }
        }

        fn add(&self, queue: &Bytes) {
            let payload = BytesRef::empty(Type::Bytes);
            let submit = Submit::new(JobId(0), queue.clone(), Origin::Gearman, payload);
            let submitted =
                self.engine.jobs().submit(NewJob { submit, payload: Payload::default() });
            submitted.without_waiting(TEST).unwrap();
        }

        fn lease(&self, connection: u64, queue: &Bytes, wait_ms: u64) -> LeaseReply {
            let request = Lease {
                queues: vec![queue.clone()],
                select: Select::ByPriority,
                holder: connection,
                bound: true,
                timeout_ms: None,
                door: Origin::Gearman,
                worker: Bytes::new(),
                payload_bytes_max: u32::MAX,
            };
            let reply = self.engine.leases().take(&self.caller(connection), request, wait_ms);
            reply.without_waiting(TEST).unwrap()
        }

        /// Leases decided while this is done.
        fn decided(&self, done: impl FnOnce()) -> u64 {
            let before = self.engine.shared.inner.lock().decided;
            done();
            self.engine.shared.inner.lock().decided - before
        }

        fn heard(&self) -> Vec<u64> {
            let letters = std::mem::take(&mut *self.letters.0.lock().unwrap());
            letters.into_iter().map(|letter| letter.connection.0).collect()
        }
    }

    #[test]
    fn a_job_costs_the_same_however_many_names_are_slept_for() {
        const NAMES: u64 = 100_000;
        const PER_WORKER: u64 = 1000;
        let bench = Bench::new();
        let name = |number: u64| Bytes::from(format!("function {number}"));
        for worker in 0..NAMES / PER_WORKER {
            let first = worker * PER_WORKER;
            let caller = bench.caller(worker);
            let slept = bench.engine.waits().sleep(&caller, vec![name(first)], u32::MAX);
            let Ok(SleepReply::Asleep(ticket)) = slept else {
                panic!("there is nothing to do yet")
            };
            let learns = |number| {
                let slept = bench.engine.waits().sleep_also(ticket, name(number));
                assert_eq!(slept, Ok(SleepReply::Asleep(ticket)));
            };
            assert_eq!(bench.decided(|| (first + 1..first + PER_WORKER).for_each(learns)), 0);
        }
        for number in [0, 41_234, NAMES - 1] {
            let decided = bench.decided(|| bench.add(&name(number)));
            assert!(decided <= 2, "{decided} leases were decided");
            assert_eq!(bench.heard(), [number / PER_WORKER]);
        }
        // One who is gone is called for none of its thousand names.
        let gone = ConnectionId(7);
        assert_eq!(bench.decided(|| bench.engine.waits().connection_gone(gone, None)), 0);
        bench.add(&name(7 * PER_WORKER + 5));
        assert_eq!(bench.heard(), [0; 0]);
        let waits = &bench.engine.shared.inner.lock().waiting.list;
        assert!((0..PER_WORKER).all(|number| !waits.has_asleep(&name(7 * PER_WORKER + number))));
    }

    #[test]
    fn a_job_that_cannot_be_leased_costs_no_walk_along_those_who_wait_and_sleep() {
        let bench = Bench::new();
        let queue = Bytes::from_static(b"q");
        let spec = ConstraintSpec { matcher: Matcher::default(), rate: None, running_max: Some(1) };
        let mut somebody = Audit::new(Actor::default());
        let people = bench.engine.people(&mut somebody);
        let put = people.put_constraint("one", &spec, LimitScope::Whole, Expected::Any);
        put.without_waiting(TEST).unwrap();
        bench.add(&queue);
        assert!(matches!(bench.lease(1, &queue, 0), LeaseReply::Leased(..)));
        for connection in (2..2000).step_by(2) {
            assert!(matches!(bench.lease(connection, &queue, 60_000), LeaseReply::Waiting(_)));
            let caller = bench.caller(connection + 1);
            let slept = bench.engine.waits().sleep(&caller, vec![queue.clone()], u32::MAX);
            assert!(matches!(slept, Ok(SleepReply::Asleep(_))));
        }
        for _ in 0..3 {
            let decided = bench.decided(|| bench.add(&queue));
            assert!(decided <= 8, "{decided} leases were decided");
            assert_eq!(bench.heard(), [0; 0]);
        }
        // One goes, one is served.
        let decided = bench.decided(|| bench.engine.waits().connection_gone(ConnectionId(1), None));
        assert!(decided <= 8, "{decided} leases were decided");
        assert_eq!(bench.heard(), [2]);
    }
}
