//! Carry-forward beside jobs that change at that very moment.

use std::sync::Arc;

use spindle_core::command::{Lease, Select};
use spindle_core::job::Origin;
use spindle_core::{JobId, Status};
use spindle_engine::{Committed, Engine, JobRef, Options};
use spindle_log::disk::SimDisk;
use spindle_log::{FileLog, FileLogOptions, Log};
use spindle_testkit::{ManualEngine, commit_all, lease_from, new_job, submit_to, take};

fn submit(engine: &Engine, queue: &str, payload: Vec<u8>) -> JobId {
    let mut submit = submit_to(queue, Origin::Workq);
    submit.ttl_ms = Some(3_600_000);
    submit.ttr_ms = Some(150);
    submit.attempts_max = Some(1);
    let (id, _) = engine.submit(new_job(submit, &payload)).expect("is taken");
    assert_eq!(engine.commit_once(), Committed::Some);
    id
}

#[test]
fn a_job_whose_last_lease_runs_out_while_it_is_carried_keeps_its_payload() {
    let disk = SimDisk::new(1);
    let options =
        FileLogOptions { segment_bytes: 64 << 10, background: false, ..FileLogOptions::default() };
    let log = Arc::new(FileLog::open(Arc::new(disk), options).unwrap());
    let options = Options { payload_memory_bytes: 0, ..Options::default() };
    let ManualEngine { engine, clock } = ManualEngine::open(log.clone(), 1_000, options);

    let payload = vec![7; 500];
    let watched = submit(&engine, "watched", payload.clone());
    let select = Select::RandomQueue { draw: 0 };
    take(
        &engine,
        Lease { select, payload_bytes_max: 1 << 20, ..lease_from("watched", Origin::Workq) },
    );
    for _ in 0..200 {
        let id = submit(&engine, "other", vec![1; 2_000]);
        engine.delete(JobRef::Id(id)).unwrap();
    }
    commit_all(&engine);
    assert!(engine.compaction_step().unwrap(), "a round begins");
    // The step below still finds the job leased; what is due happens before it is told again.
    clock.advance(200);
    while engine.compaction_step().unwrap() {
        commit_all(&engine);
    }

    assert!(engine.trims() > 0 && log.first().0 > 1);
    let (image, _) = engine.job(JobRef::Id(watched)).unwrap();
    let image = image.expect("dead jobs are kept");
    assert_eq!(image.status(), Status::Dead);
    let place = image.payload.expect("it had one");
    assert_eq!(engine.payload(watched, &place).expect("it has it still"), payload);
}
