//! Engines, and the calls that tests make most.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::command::{Claim, Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{
    Caller, Committed, ConnectionId, Engine, Gated, LeaseReply, NewJob, Options, Payload,
};
use spindle_log::Log;

use crate::{Letters, ManualClock};

/// An engine whose clock stands still until a test moves it.
#[derive(Clone)]
pub struct ManualEngine {
    /// The engine.
    pub engine: Engine,
    /// Its clock.
    pub clock: Arc<ManualClock>,
}

impl ManualEngine {
    /// Opens an engine on a log, at this time. None of its threads runs: nothing becomes durable,
    /// and nothing that is due happens, until the test does it or [`spawn`]s them.
    pub fn open(log: Arc<dyn Log>, now_ms: u64, options: Options) -> ManualEngine {
        let clock = Arc::new(ManualClock::new(now_ms));
        let engine = Engine::open(log, clock.clone(), options).unwrap();
        ManualEngine { engine, clock }
    }

    /// Lets time pass, and runs what is due by then.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
    }
}

/// Starts the engine's threads; a log that fails fails the test.
pub fn spawn(engine: &Engine) {
    engine.spawn(|failure| panic!("the log failed: {failure}")).unwrap();
}

/// Makes durable what was decided so far, on an engine whose threads do not run.
pub fn commit_all(engine: &Engine) {
    while engine.commit_once() == Committed::Some {}
}

/// A submit that sets nothing but the queue.
pub fn submit_to(queue: &str, origin: Origin) -> Submit {
    let queue = Bytes::copy_from_slice(queue.as_bytes());
    Submit::new(JobId(0), queue, origin, BytesRef::empty(Type::Bytes))
}

/// The job that a submit and its payload make.
pub fn new_job(submit: Submit, payload: &[u8]) -> NewJob {
    NewJob { submit, payload: Payload::new(Bytes::copy_from_slice(payload), Type::Bytes) }
}

/// A lease from one queue, by priority, that no connection is bound to.
pub fn lease_from(queue: &str, door: Origin) -> Lease {
    Lease {
        queues: vec![Bytes::copy_from_slice(queue.as_bytes())],
        select: Select::ByPriority,
        holder: 1,
        bound: false,
        timeout_ms: None,
        door,
        worker: Bytes::new(),
        payload_bytes_max: u32::MAX,
    }
}

/// The engine's answer, durable or not: a test, unlike a client, is not misled by a crash.
pub fn opened<T>(gated: Gated<T>) -> T {
    gated.without_waiting("a test looks at it, and nothing leaves the process")
}

/// A caller on a connection that never reads its deliveries.
pub fn caller(connection: u64) -> Caller {
    Caller { connection: ConnectionId(connection), mailbox: Arc::new(Letters::default()) }
}

/// Leases a job that must be there, and returns what is needed to finish it.
#[track_caller]
pub fn take(engine: &Engine, lease: Lease) -> Claim {
    match opened(engine.leases().take(&caller(lease.holder), lease, 0)).unwrap() {
        LeaseReply::Leased(job) => {
            Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt }
        }
        other => panic!("a job was to be there, not {other:?}"),
    }
}
