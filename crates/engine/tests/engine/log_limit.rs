//! A log that is as long as it may be, on a disk that has room.

use std::sync::Arc;

use spindle_engine::{Committed, Engine, JobRef, Options, Refused};
use spindle_log::{FileLog, Log, Space};
use spindle_testkit::disk::SimDisk;

use crate::full_disk::{SEGMENT_BYTES, compaction, start_with, submit, uuid};
use crate::harness::{Bench, TakeApart, new_job, plain, somebody};

const LOG_BYTES_MAX: u64 = 20 * SEGMENT_BYTES;

fn start(disk: &SimDisk) -> (Engine, Arc<FileLog>) {
    start_with(disk, Options { log_bytes_max: LOG_BYTES_MAX, ..Options::default() })
}

#[test]
fn new_jobs_are_refused_while_the_log_is_as_long_as_it_may_be_and_taken_when_it_is_shorter() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    let mut taken = 0;
    while submit(&engine, taken).is_ok() {
        taken += 1;
    }
    assert_eq!(submit(&engine, 20_000), Err(Refused::LogFull));
    assert!((LOG_BYTES_MAX..LOG_BYTES_MAX + 4_096).contains(&log.bytes_on_disk()));
    assert!(engine.observe().gauges().is_log_full && log.space() == Space::Ample);
    // All of it lives: nothing is gained by copying it.
    compaction(&engine);
    assert_eq!((engine.trims(), submit(&engine, 20_000)), (0, Err(Refused::LogFull)));
    for number in (0..taken).filter(|number| number.is_multiple_of(3)) {
        engine
            .people(&mut somebody())
            .delete(JobRef::Uuid(uuid(number)))
            .value()
            .expect("deletes go on");
        assert_eq!(engine.commit_once(), Committed::Some);
    }
    // Far less is dead than what begins a round of a log that may be as long as it likes.
    compaction(&engine);
    assert!(engine.trims() > 0 && log.bytes_on_disk() < LOG_BYTES_MAX);
    submit(&engine, 20_000).unwrap();
    assert!(!engine.observe().gauges().is_log_full);
}

#[test]
fn a_log_one_byte_below_its_limit_takes_a_job() {
    let unlimited = Bench::new();
    unlimited.add("q", b"x");
    unlimited.commit();
    let bytes = unlimited.log.bytes_on_disk();
    for (log_bytes_max, taken) in [(bytes + 1, true), (bytes, false)] {
        let bench = Bench::with(Options { log_bytes_max, ..Options::default() });
        bench.add("q", b"x");
        bench.commit();
        assert_eq!(bench.log.bytes_on_disk(), bytes);
        let second = bench.engine.jobs().submit(new_job(plain("q"), b"x")).value();
        assert_eq!(second.is_ok(), taken, "{log_bytes_max}");
    }
}
