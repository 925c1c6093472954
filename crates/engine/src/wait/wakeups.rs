//! Sleepers: workers that want to be called when there is work, and come for it themselves.
//!
//! Who calls: a door whose workers go to sleep (Gearman's PRE_SLEEP, the draft's worker_sleep).
//! What comes: [`Answer::Called`], once, which ends the sleep and waits for no record. As many
//! sleepers are called as there are jobs they could lease.
//!
//! Sleepers and those who wait for a lease are served in turn: the one who has waited longest comes
//! first, whichever it is. A sleeper's turn needs time, because it has to come; without more, every
//! job would go to somebody who waits before it does. So a call reserves: for 100 ms those who wait
//! leave one job of the queue, and one start under each label of it, to whoever was called (see
//! [`Reservations`]). What a reservation cannot do:
//!
//! - It refuses nobody. A lease that does not wait takes what is there, reserved or not; a wait that
//!   ends while something is reserved takes that before it ends with nothing.
//! - It strands no job. When the one who was called has come, is gone, or has had its 100 ms, the
//!   queue's turns go on at once.
//! - It is not given twice in vain. Who did not come in its time is called after all who wait, and
//!   reserves nothing, until it asks for a job again.
//! - It costs nothing where nobody both sleeps and waits: leases that wait are the only ones that
//!   look at it, and where more jobs are ready than sleepers were called for they find one.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use spindle_core::command::{Lease, Select};
use spindle_core::job::{Label, Origin, Status};
use spindle_core::{Decision, Event, Found, JobId, Rejection, Reservations, decide_lease};

use super::waits::{Caller, Sleep, Turn, Wait, WaitFor};
use crate::answer::Answer;
use crate::door::{ConnectionId, Gate, Ticket};
use crate::engine::{Engine, Refused};
use crate::inner::Inner;

/// How long one who was called has time to come for the job.
pub(crate) const CALL_MS: u64 = 100;

/// What a worker that goes to sleep is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// There is work: it need not sleep.
    Called,
    /// It sleeps; the call comes as this ticket's answer.
    Asleep(Ticket),
}

/// Sleepers that were called and have not come yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    by_connection: HashMap<ConnectionId, Call>,
    due: BTreeSet<(u64, ConnectionId)>,
    /// What they all come for: others are not called for it.
    called: Reservations,
    /// What those of them come for who reserve it: those who wait leave it.
    reserved: Reservations,
    /// Those whose last call was in vain.
    missed: HashSet<ConnectionId>,
    /// Queues in which a job was left that somebody was called for.
    left: BTreeSet<Bytes>,
}

/// What somebody was called for.
#[derive(Debug)]
struct Call {
    job: ScanFilter,
    reserves: bool,
    due_ms: u64,
}

/// A job that could be leased: its queue, and the labels it would start under.
#[derive(Debug)]
struct ScanFilter {
    queue: Bytes,
    labels: Vec<Label>,
}

/// What a lease leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// It takes what is there.
    Nothing,
    /// What is reserved for those who were called.
    Reserved,
    /// All that somebody was called for.
    Called,
}

impl Calls {
    fn add(&mut self, connection: ConnectionId, job: ScanFilter, reserves: bool, now_ms: u64) {
        self.called.add(&job.queue, &job.labels);
        if reserves {
            self.reserved.add(&job.queue, &job.labels);
        }
        let due_ms = now_ms.saturating_add(CALL_MS);
        self.due.insert((due_ms, connection));
        self.by_connection.insert(connection, Call { job, reserves, due_ms });
    }

    fn remove(&mut self, connection: ConnectionId) -> Option<Call> {
        let call = self.by_connection.remove(&connection)?;
        self.due.remove(&(call.due_ms, connection));
        self.called.remove(&call.job.queue, &call.job.labels);
        if call.reserves {
            self.reserved.remove(&call.job.queue, &call.job.labels);
        }
        Some(call)
    }

    fn due(&self, now_ms: u64) -> Option<ConnectionId> {
        self.due.first().filter(|(due, _)| *due <= now_ms).map(|(_, connection)| *connection)
    }

    /// Whether those who wait have to leave something.
    pub fn reserves_any(&self) -> bool {
        !self.reserved.is_empty()
    }

    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }
}

impl Engine {
    /// Sleeps until there is something to lease from these queues.
    pub fn sleep(
        &self,
        caller: &Caller,
        queues: Vec<Bytes>,
        payload_bytes_max: u32,
    ) -> Result<Slept, Refused> {
        let mut inner = self.enter();
        if inner.end_call(caller.connection) {
            // It sleeps again instead of coming.
            inner.calls.missed.insert(caller.connection);
            inner.dispatch();
        }
        if inner.waits.len() >= inner.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        let is_late = inner.calls.missed.contains(&caller.connection);
        let sleep = Sleep { queues: queues.into_iter().collect(), payload_bytes_max, is_late };
        if inner.finds_work(caller.connection, &sleep) {
            return Ok(Slept::Called);
        }
        let request = WaitFor::Sleep(Box::new(sleep));
        let wait = Wait { caller: caller.clone(), request, deadline_ms: None };
        Ok(Slept::Asleep(inner.waits.add(wait)))
    }

    /// A sleeper is to be called for one more queue, and keeps its turn.
    pub fn sleep_also(&self, ticket: Ticket, queue: Bytes) -> Result<Slept, Refused> {
        let mut inner = self.enter();
        let Some(Wait { caller, request: WaitFor::Sleep(sleep), .. }) = inner.waits.find(ticket)
        else {
            // Its call is on its way.
            return Ok(Slept::Asleep(ticket));
        };
        let connection = caller.connection;
        let alone = Sleep { queues: BTreeSet::from([queue.clone()]), ..**sleep };
        if inner.finds_work(connection, &alone) {
            inner.waits.remove(ticket);
            return Ok(Slept::Called);
        }
        inner.waits.add_queue(ticket, queue);
        Ok(Slept::Asleep(ticket))
    }

    /// A sleeper is no longer to be called for a queue.
    pub fn sleep_without(&self, ticket: Ticket, queue: &Bytes) {
        self.enter().waits.remove_queue(ticket, queue);
    }
}

impl Inner {
    /// Calls one who would sleep at once, if there is something it could lease that nobody was
    /// called for.
    fn finds_work(&mut self, connection: ConnectionId, sleep: &Sleep) -> bool {
        let state = &self.state;
        let is_ready =
            |name: &&Bytes| state.queue(name).is_some_and(|queue| queue.count(Status::Ready) > 0);
        let ready: Vec<Bytes> = sleep.queues.iter().filter(is_ready).cloned().collect();
        if self.stopping || ready.is_empty() {
            return false;
        }
        let Some(job) = self.scan(ready, sleep.payload_bytes_max, Spare::Called) else {
            return false;
        };
        self.calls.add(connection, job, !sleep.is_late, self.now_ms);
        true
    }

    /// Whether somebody who waits could lease a job of a queue.
    pub fn has_unreserved(&mut self, queue: &Bytes) -> bool {
        self.scan(vec![queue.clone()], u32::MAX, Spare::Reserved).is_some()
    }

    /// Whether some sleeper could lease a job of a queue that nobody was called for.
    pub fn has_uncalled(&mut self, queue: &Bytes) -> bool {
        self.scan(vec![queue.clone()], u32::MAX, Spare::Called).is_some()
    }

    /// The job a lease would take now. Ready jobs may be held back by a pause or a constraint: to
    /// call somebody for those would make it come and go without end.
    fn scan(
        &mut self,
        queues: Vec<Bytes>,
        payload_bytes_max: u32,
        leave: Spare,
    ) -> Option<ScanFilter> {
        let request = Lease {
            queues,
            select: Select::ByPriority,
            holder: 0,
            bound: true,
            timeout_ms: None,
            door: Origin::Gearman,
            worker: Bytes::new(),
            payload_bytes_max,
        };
        let mut decision = std::mem::take(&mut self.decision);
        let decided = self.decide_leaving(&request, leave, &mut decision);
        let job = decision.events.iter().find_map(|(event, _)| match event {
            Event::Leased(leased) => Some(JobId(leased.id)),
            _ => None,
        });
        self.decision = decision;
        decided.ok()?;
        match self.state.job(job?)? {
            Found::Live(job) => {
                Some(ScanFilter { queue: job.queue().clone(), labels: job.labels().to_vec() })
            }
            Found::Finished(_) => None,
        }
    }

    /// Decides a lease that leaves something to those who were called.
    pub fn decide_leaving(
        &mut self,
        request: &Lease,
        leave: Spare,
        decision: &mut Decision,
    ) -> Result<(), Rejection> {
        loop {
            let reserved = match leave {
                Spare::Nothing => &Reservations::NONE,
                Spare::Reserved => &self.calls.reserved,
                Spare::Called => &self.calls.called,
            };
            #[cfg(test)]
            {
                self.decided += 1;
            }
            let decided = decide_lease(&self.state, request, reserved, self.now_ms, decision);
            if decision.blocked.is_empty() {
                self.calls.left.extend(decision.left.drain(..));
                return decided;
            }
            self.state.apply_hints(decision, self.now_ms);
        }
    }

    /// It is a sleeper's turn at a queue. Returns whether it was called: if not, there is no job it
    /// could lease.
    pub fn call(&mut self, turn: Turn, queue: &Bytes) -> bool {
        let Some(Wait { caller, request: WaitFor::Sleep(sleep), .. }) =
            self.waits.find(turn.ticket)
        else {
            return false;
        };
        let (connection, payload_bytes_max) = (caller.connection, sleep.payload_bytes_max);
        let queues = vec![queue.clone()];
        let Some(job) = self.scan(queues, payload_bytes_max, Spare::Called) else { return false };
        // It may have several tickets: its last call counts.
        self.end_call(connection);
        self.calls.add(connection, job, !turn.is_late, self.now_ms);
        self.deliver(turn.ticket, Answer::Called, Gate::OPEN);
        true
    }

    /// A connection asks for a job, or is gone: if it was called, that is over. Dispatch when it has
    /// its job: what it leaves is for others.
    pub fn note_came(&mut self, connection: ConnectionId) {
        self.calls.missed.remove(&connection);
        self.end_call(connection);
    }

    /// Ends a connection's call: what was left for it is there for the others. Returns whether there
    /// was one. Dispatch afterwards.
    fn end_call(&mut self, connection: ConnectionId) -> bool {
        let Some(call) = self.calls.remove(connection) else { return false };
        self.wake_queue(&call.job.queue);
        for queue in std::mem::take(&mut self.calls.left) {
            self.wake_queue(&queue);
        }
        true
    }

    /// Those who were called have had their time: others have their turn at what is left.
    pub fn end_due_calls(&mut self, now_ms: u64) {
        let mut any = false;
        while let Some(connection) = self.calls.due(now_ms) {
            self.end_call(connection);
            self.calls.missed.insert(connection);
            any = true;
        }
        if any {
            self.dispatch();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use spindle_core::command::Submit;
    use spindle_core::{BytesRef, Type};
    use spindle_log::MemoryLog;

    use super::*;
    use crate::clock::ManualClock;
    use crate::constraints::{Expected, PutConstraint};
    use crate::door::{Delivery, Mailbox};
    use crate::engine::{LeaseReply, NewJob};
    use crate::options::Options;
    use spindle_matching::{ConstraintSpec, Matcher};

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
            let clock = Arc::new(ManualClock::new(1_000_000));
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
            let job = NewJob { submit, payload: Bytes::new(), kind: Type::Bytes };
            self.engine.submit(job).unwrap();
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
            self.engine.lease(&self.caller(connection), request, wait_ms).unwrap()
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
            let slept = bench.engine.sleep(&caller, vec![name(first)], u32::MAX);
            let Ok(Slept::Asleep(ticket)) = slept else { panic!("there is nothing to do yet") };
            let learns = |number| {
                let slept = bench.engine.sleep_also(ticket, name(number));
                assert_eq!(slept, Ok(Slept::Asleep(ticket)));
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
        assert_eq!(bench.decided(|| bench.engine.connection_gone(gone, None)), 0);
        bench.add(&name(7 * PER_WORKER + 5));
        assert_eq!(bench.heard(), [0; 0]);
        let waits = &bench.engine.shared.inner.lock().waits;
        assert!((0..PER_WORKER).all(|number| !waits.has_asleep(&name(7 * PER_WORKER + number))));
    }

    #[test]
    fn a_job_that_cannot_be_leased_costs_no_walk_along_those_who_wait_and_sleep() {
        let bench = Bench::new();
        let queue = Bytes::from_static(b"q");
        let spec = ConstraintSpec { matcher: Matcher::default(), rate: None, running_max: Some(1) };
        let PutConstraint { .. } =
            bench.engine.put_constraint("one", &spec, Expected::Any).unwrap();
        bench.add(&queue);
        assert!(matches!(bench.lease(1, &queue, 0), LeaseReply::Leased(..)));
        for connection in (2..2000).step_by(2) {
            assert!(matches!(bench.lease(connection, &queue, 60_000), LeaseReply::Waiting(_)));
            let caller = bench.caller(connection + 1);
            let slept = bench.engine.sleep(&caller, vec![queue.clone()], u32::MAX);
            assert!(matches!(slept, Ok(Slept::Asleep(_))));
        }
        for _ in 0..3 {
            let decided = bench.decided(|| bench.add(&queue));
            assert!(decided <= 8, "{decided} leases were decided");
            assert_eq!(bench.heard(), [0; 0]);
        }
        // One goes, one is served.
        let decided = bench.decided(|| bench.engine.connection_gone(ConnectionId(1), None));
        assert!(decided <= 8, "{decided} leases were decided");
        assert_eq!(bench.heard(), [2]);
    }
}
