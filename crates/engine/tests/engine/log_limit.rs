//! A log that is as long as it may be, on a disk that has room.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::queue::LimitScope;
use spindle_core::schedule::Schedule;
use spindle_engine::{Committed, Engine, Expected, JobRef, JobUpdate, Options, Refused, Timing};
use spindle_log::{FileLog, Log, Space};
use spindle_testkit::disk::SimDisk;

use crate::constraints::{few, in_queue};
use crate::full_disk::{SEGMENT_BYTES, compaction, start_with, submit, uuid};
use crate::harness::{Bench, TakeApart, new_job, plain, somebody};
use crate::updates::created;

const LOG_BYTES_MAX: u64 = 20 * SEGMENT_BYTES;

fn start(disk: &SimDisk) -> (Engine, Arc<FileLog>) {
    start_with(disk, Options { log_bytes_max: LOG_BYTES_MAX, ..Options::default() })
}

#[test]
fn new_jobs_are_refused_while_the_log_is_as_long_as_it_may_be_and_taken_when_it_is_shorter() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    let mut taken = 0;
    while taken < 20_000 && submit(&engine, taken).is_ok() {
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

/// What stays until somebody removes it cannot lengthen the log; what may end it can.
#[test]
fn a_log_that_is_as_long_as_it_may_be_takes_nothing_that_stays() {
    let prepare = |bench: &Bench| {
        put_schedule(bench, "tick", "* * * * *").expect("there is room");
        bench.commit();
        put_constraint(bench, "few", 1).expect("there is room");
        bench.commit();
        let finished = bench.submit(plain("mail"), b"payload");
        bench.finish(finished, true, b"result").expect("it is leased");
        bench.commit();
        let id = bench.submit(created(), b"{}");
        bench.commit();
        (finished, id)
    };
    let unlimited = Bench::new();
    prepare(&unlimited);
    let log_bytes_max = unlimited.log.bytes_on_disk();
    let bench = Bench::with(Options { log_bytes_max, ..Options::default() });
    let (finished, id) = prepare(&bench);
    assert!(bench.engine.observe().gauges().is_log_full);
    let event = Bytes::from_static(b"noted");
    let update = |state: Option<&'static [u8]>| {
        let update = JobUpdate { state: state.map(Bytes::from_static), event: event.clone() };
        let updated = bench.engine.jobs().update(id, None, |_| Ok::<_, ()>(update.clone()));
        updated.value().map(|_| ())
    };
    let to_finished = bench.engine.jobs().add_event_to_finished(finished, &event);
    let to_finished = to_finished.expect("the log can be read").value().map(|_| ());
    for refused in [
        update(None),
        to_finished,
        put_schedule(&bench, "tock", "* * * * *"),
        put_constraint(&bench, "fewer", 1),
    ] {
        assert_eq!(refused, Err(Refused::LogFull));
    }
    update(Some(b"[\"NEXT\"]")).expect("it may be what ends the job");
    put_schedule(&bench, "tick", "0 * * * *").expect("it takes the place of one");
    put_constraint(&bench, "few", 2).expect("it takes the place of one");
}

fn put_schedule(bench: &Bench, name: &str, expression: &str) -> Result<(), Refused> {
    let mut schedule = Schedule {
        name: name.to_owned(),
        expression: expression.to_owned(),
        zone: "UTC".to_owned(),
        ..Schedule::default()
    };
    schedule.job.queue = b"mail".to_vec();
    let timing = Timing::of(&schedule).expect("it can be read");
    let mut audit = somebody();
    let people = bench.engine.people(&mut audit);
    people.put_schedule(&schedule, &timing, Expected::Any).value().map(|_| ())
}

fn put_constraint(bench: &Bench, name: &str, running_max: u64) -> Result<(), Refused> {
    let spec = few(in_queue("q"), running_max);
    let mut audit = somebody();
    let people = bench.engine.people(&mut audit);
    people.put_constraint(name, &spec, LimitScope::Whole, Expected::Any).value().map(|_| ())
}
