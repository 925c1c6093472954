//! How long the engine's calls take on one thread, without sockets: `call_rate [jobs] [records]`.
//!
//! A number to compare before and after a change, not a test.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use spindle_core::command::{Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{
    Caller, ConnectionId, Delivery, Engine, LeaseReply, Mailbox, NewJob, Options, SystemClock,
    Which, WorkResult,
};
use spindle_log::MemoryLog;

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

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let jobs: u64 = args.next().unwrap_or(1_000_000);
    let batch: u64 = args.next().unwrap_or(256);
    let log = Arc::new(MemoryLog::new());
    let engine =
        Engine::open(log, Arc::new(SystemClock::new()), Options::default()).expect("starts");
    let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Nobody) };
    let payload = Bytes::from(vec![7u8; 256]);
    let queue = Bytes::from_static(b"bench");
    let report = |what: &str, start: Instant| {
        let each = start.elapsed().as_nanos() as u64 / jobs;
        println!("{what}: {each} ns each");
    };

    let start = Instant::now();
    for number in 0..jobs {
        let empty = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), queue.clone(), Origin::Workq, empty);
        submit.uuid = Some(uuid(number));
        submit.ttr_ms = Some(60_000);
        submit.ttl_ms = Some(3_600_000);
        engine
            .submit(NewJob { submit, payload: payload.clone(), kind: Type::Bytes })
            .expect("is taken");
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    report("submit", start);

    let start = Instant::now();
    for number in 0..jobs {
        let wish = Lease {
            queues: vec![queue.clone()],
            select: Select::RandomQueue { draw: number },
            holder: 1,
            bound: false,
            timeout_ms: None,
            door: Origin::Workq,
            worker: Bytes::new(),
            payload_bytes_max: 1 << 20,
        };
        match engine.lease(&caller, wish, 0).expect("is taken") {
            LeaseReply::Leased(job, _) => drop(engine.leased_payload(&job).expect("is there")),
            other => panic!("{other:?}"),
        }
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    report("lease", start);

    let start = Instant::now();
    for number in 0..jobs {
        let result = WorkResult { success: true, retry: true, ..WorkResult::default() };
        engine.finish_unfinished(Which::Uuid(uuid(number)), result, Type::Bytes).expect("is taken");
        if number % batch == 0 {
            engine.commit_once();
        }
    }
    report("complete", start);
}
