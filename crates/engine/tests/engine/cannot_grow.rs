//! An engine whose log can prepare no further segment, for a reason other than room: as on a full disk, changes that
//! free space go on, and the refusals give the reason.

use std::sync::Arc;

use spindle_engine::{
    Caller, Committed, ConnectionId, Engine, JobRef, Mailbox, Options, Refused, Room, StartError,
};
use spindle_log::{FileLog, FileLogOptions, Log, Space};
use spindle_testkit::disk::{Fault, Operation, SimDisk};
use spindle_testkit::{ManualClock, wait_until};

use crate::full_disk::{SEGMENT_BYTES, compaction, start, submit, uuid};
use crate::harness::{Letters, TakeApart, somebody};

/// A log of some segments that can prepare no more of them, and how many jobs are in it.
fn stuck(disk: &SimDisk) -> (Engine, Arc<FileLog>, u64) {
    let (engine, log) = start(disk);
    for number in 0..1_300 {
        submit(&engine, number).expect("the log grows");
    }
    for attempt in 0..10_000 {
        disk.fail(Operation::Create, attempt, Fault::InputOutput);
    }
    let more = (1_300..10_000).take_while(|number| submit(&engine, *number).is_ok()).count();
    assert_eq!(log.space(), Space::CannotGrow);
    (engine, log, 1_300 + more as u64)
}

fn delete(engine: &Engine, number: u64) {
    engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value().expect("it is there");
    assert_eq!(engine.commit_once(), Committed::Some, "the reserve is gone at {number}");
}

#[test]
fn new_jobs_are_refused_until_deletes_have_freed_a_segment() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = stuck(&disk);
    assert_eq!(submit(&engine, 20_000), Err(Refused::LogCannotGrow));
    let gauges = engine.observe().gauges();
    assert!(gauges.log_cannot_grow && !gauges.is_disk_full);
    for number in (0..taken).filter(|number| number.is_multiple_of(3)) {
        delete(&engine, number);
        compaction(&engine);
    }
    // No file was made: a segment that was trimmed is used again.
    assert_eq!(log.space(), Space::Ample);
    submit(&engine, 20_000).expect("there is room");
    assert!(!engine.observe().gauges().log_cannot_grow);
    drop((engine, log));
    disk.forget_faults();
    let (engine, _log) = start(&disk);
    for number in 0..taken {
        let found = engine.jobs().find(JobRef::Uuid(uuid(number))).value();
        assert_eq!(found.is_none(), number.is_multiple_of(3), "{number}");
    }
}

#[test]
fn changes_are_refused_when_nothing_more_is_to_be_gained_and_taken_when_it_can_grow_again() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = stuck(&disk);
    let letters: Arc<dyn Mailbox> = Arc::new(Letters::default());
    let caller = Caller { connection: ConnectionId(7), mailbox: letters };
    // The youngest first: the oldest segment is alive, and no round would gain anything.
    let mut numbers = (0..taken).rev();
    while engine.room(0) != Room::Exhausted {
        while engine.has_room() {
            delete(&engine, numbers.next().expect("more jobs than the reserve has room for"));
        }
        compaction(&engine);
    }
    assert_eq!(engine.wait_for_room(&caller, 0), Err(Refused::LogCannotGrow));
    disk.forget_faults();
    log.maintain();
    compaction(&engine);
    assert_eq!(engine.wait_for_room(&caller, 0), Ok(None));
    submit(&engine, 20_000).expect("it grows again");
}

/// Fills the log to its very end, without asking whether there is room.
fn fill(engine: &Engine, taken: u64) {
    let delete = |number| engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value();
    let mut numbers = 0..taken;
    while engine.commit_once() != Committed::Full {
        numbers.by_ref().find(|number| delete(*number).is_ok()).expect("more jobs");
    }
}

#[test]
fn a_server_stops_though_what_it_has_decided_finds_no_room() {
    let disk = SimDisk::new(1);
    let (engine, _log, taken) = stuck(&disk);
    fill(&engine, taken);
    engine.spawn(|failure| panic!("{failure}")).expect("threads");
    let stopping = std::thread::spawn(move || engine.stop());
    wait_until("it has stopped", || stopping.is_finished());
}

#[test]
fn a_server_that_cannot_begin_in_a_log_that_cannot_grow_says_so() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = stuck(&disk);
    fill(&engine, taken);
    drop((engine, log));
    let clock = Arc::new(ManualClock::new(1_000));
    let options =
        FileLogOptions { segment_bytes: SEGMENT_BYTES, background: false, ..Default::default() };
    let log = Arc::new(FileLog::open(Arc::new(disk), options).expect("a sound folder"));
    let refused = Engine::open(log, clock, Options::default()).err();
    assert!(matches!(refused, Some(StartError::LogCannotGrow)), "{refused:?}");
}
