//! How long the engine's calls take on one thread, without sockets: `call_rate [jobs] [records]`;
//! on average, and the longest, which bounds how long any of them held the lock.
//!
//! A number to compare before and after a change, not a test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use spindle_core::command::{Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Policy, Type};
use spindle_engine::{
    Caller, ConnectionId, Delivery, Engine, JobRef, LeaseReply, Mailbox, NewJob, Options, Payload,
    SystemClock, WorkResult,
};
use spindle_log::MemoryLog;

/// Why no answer waits for the log.
const NOBODY: &str = "nobody is answered: only the time is measured";

struct Nobody;

impl Mailbox for Nobody {
    fn deliver(&self, _: Delivery) {}
    fn durable_moved(&self) {}
}

fn uuid(number: u64) -> [u8; 16] {
    let number = number + 1; // the nil UUID names nobody
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(mixed) << 64 | u128::from(number)).to_be_bytes()
}

/// What this thread has computed so far: on a shared machine the clock on the wall also tells how
/// long others did.
fn busy() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it").into()
}

/// Calls of one kind.
struct Calls {
    what: &'static str,
    began: Instant,
    count: u32,
    longest: Duration,
}

impl Calls {
    fn of(what: &'static str) -> Self {
        Self { what, began: Instant::now(), count: 0, longest: Duration::ZERO }
    }

    fn timed<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = busy();
        let outcome = call();
        self.longest = self.longest.max(busy().saturating_sub(began));
        self.count += 1;
        outcome
    }

    fn report(&self) {
        let each = self.began.elapsed() / self.count.max(1);
        println!(
            "{}: {each:?} each, commits included; the longest {:?} of CPU",
            self.what, self.longest
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let jobs: u64 = args.next().unwrap_or(1_000_000);
    let batch: u64 = args.next().unwrap_or(256);
    let log = Arc::new(MemoryLog::new());
    let mut options = Options::default();
    options.defaults.policies = [(Origin::Workq, Policy::ONCE)].into_iter().collect();
    let engine = Engine::open(log, Arc::new(SystemClock::new()), options).expect("starts");
    let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Nobody) };
    let payload = Payload::new(vec![7u8; 256], Type::Bytes);
    let queue = Bytes::from_static(b"bench");

    let mut calls = Calls::of("submit");
    for number in 0..jobs {
        let empty = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), queue.clone(), Origin::Workq, empty);
        submit.uuid = Some(uuid(number));
        submit.ttr_ms = Some(60_000);
        submit.ttl_ms = Some(3_600_000);
        let job = NewJob { submit, payload: payload.clone() };
        calls.timed(|| engine.jobs().submit(job)).without_waiting(NOBODY).expect("is taken");
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    calls.report();

    let mut calls = Calls::of("lease");
    for number in 0..jobs {
        let request = Lease {
            queues: vec![queue.clone()],
            select: Select::RandomQueue { draw: number },
            holder: 1,
            bound: false,
            timeout_ms: None,
            door: Origin::Workq,
            worker: Bytes::new(),
            payload_bytes_max: 1 << 20,
        };
        let reply = calls.timed(|| engine.leases().take(&caller, request, 0));
        match reply.without_waiting(NOBODY).expect("is taken") {
            LeaseReply::Leased(job) => drop(engine.leases().payload(&job).expect("is there")),
            other => panic!("{other:?}"),
        }
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    calls.report();

    let mut calls = Calls::of("complete");
    for number in 0..jobs {
        let result = WorkResult { success: true, retry: true, ..WorkResult::default() };
        let job = JobRef::Uuid(uuid(number));
        let finished = calls.timed(|| engine.jobs().finish_unfinished(job, result));
        finished.without_waiting(NOBODY).expect("is taken");
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    calls.report();
}
