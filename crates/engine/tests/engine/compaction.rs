//! Compaction beside jobs that change at that very moment.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::command::{Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Status, Type};
use spindle_engine::{
    Caller, Committed, ConnectionId, Delivery, Engine, JobRef, LeaseReply, Mailbox, NewJob, Options,
};
use spindle_log::{FileLog, FileLogOptions, Log};
use spindle_testkit::ManualClock;
use spindle_testkit::disk::SimDisk;

use crate::harness::{TakeApart, bytes, somebody};

struct Nobody;

impl Mailbox for Nobody {
    fn deliver(&self, _: Delivery) {}
    fn durable_moved(&self) {}
}

fn submit(engine: &Engine, queue: &'static [u8], payload: Vec<u8>) -> JobId {
    let place = BytesRef::empty(Type::Bytes);
    let mut submit = Submit::new(JobId(0), Bytes::from_static(queue), Origin::Workq, place);
    submit.ttl_ms = Some(3_600_000);
    submit.ttr_ms = Some(150);
    submit.attempts_max = Some(1);
    let new = NewJob { submit, payload: bytes(&payload) };
    let id = engine.jobs().submit(new).value().expect("is taken");
    assert_eq!(engine.commit_once(), Committed::Some);
    id
}

fn lease() -> Lease {
    Lease {
        queues: vec![Bytes::from_static(b"watched")],
        select: Select::RandomQueue { draw: 0 },
        holder: 1,
        bound: false,
        timeout_ms: None,
        door: Origin::Workq,
        worker: Bytes::new(),
        payload_bytes_max: 1 << 20,
    }
}

#[test]
fn a_job_whose_last_lease_runs_out_while_it_is_carried_keeps_its_payload() {
    let disk = SimDisk::new(1);
    let options =
        FileLogOptions { segment_bytes: 64 << 10, background: false, ..FileLogOptions::default() };
    let log = Arc::new(FileLog::open(Arc::new(disk), options).unwrap());
    let clock = Arc::new(ManualClock::new(1_000));
    let options = Options { payload_memory_bytes: 0, ..Options::default() };
    let engine = Engine::open(log.clone(), clock.clone(), options).unwrap();

    let payload = vec![7; 500];
    let watched = submit(&engine, b"watched", payload.clone());
    let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Nobody) };
    let leased = engine.leases().take(&caller, lease(), 0).value().unwrap();
    assert!(matches!(leased, LeaseReply::Leased(..)));
    for _ in 0..200 {
        let id = submit(&engine, b"other", vec![1; 2_000]);
        engine.people(&mut somebody()).delete(JobRef::Id(id)).value().unwrap();
    }
    while engine.commit_once() == Committed::Some {}
    assert!(engine.compaction_step().unwrap(), "a round begins");
    // The step below still finds the job leased; what is due happens before it is compacted.
    clock.advance(200);
    while engine.compaction_step().unwrap() {
        while engine.commit_once() == Committed::Some {}
    }

    assert!(engine.trims() > 0 && log.first().0 > 1);
    let image = engine.jobs().get(JobRef::Id(watched)).unwrap().value();
    let image = image.expect("dead jobs are kept");
    assert_eq!(image.status(), Status::Dead);
    let place = image.payload.expect("it had one");
    assert_eq!(engine.jobs().payload(watched, &place).expect("it has it still"), payload);
}
