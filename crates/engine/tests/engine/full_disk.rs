//! An engine whose disk is full: changes that free space go on, and do free it.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{
    Committed, Engine, JobRef, JobUpdate, NewJob, Options, Payload, Refused, Room, Updated,
    WorkResult,
};
use spindle_log::{FileLog, FileLogOptions, Log, Space};
use spindle_testkit::ManualClock;
use spindle_testkit::disk::SimDisk;

use crate::harness::{TakeApart, somebody};

pub const SEGMENT_BYTES: u64 = 64 << 10;
const PAYLOAD_BYTES: usize = 2_000;

pub fn start(disk: &SimDisk) -> (Engine, Arc<FileLog>) {
    start_with(disk, Options::default())
}

pub fn start_with(disk: &SimDisk, options: Options) -> (Engine, Arc<FileLog>) {
    let clock = Arc::new(ManualClock::new(1_000));
    start_at(disk, clock, options)
}

fn start_at(disk: &SimDisk, clock: Arc<ManualClock>, options: Options) -> (Engine, Arc<FileLog>) {
    // One step must fit into a part of the reserve.
    let engine_options = Options { compaction_bytes: 8 << 10, ..options };
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        background: false,
        ..FileLogOptions::default()
    };
    let log = Arc::new(FileLog::open(Arc::new(disk.clone()), options).expect("a sound folder"));
    (Engine::open(log.clone(), clock, engine_options).expect("a sound log"), log)
}

pub fn uuid(number: u64) -> [u8; 16] {
    // Not from 0: the nil UUID names no job.
    u128::from(number + 1).to_be_bytes()
}

pub fn submit(engine: &Engine, number: u64) -> Result<(), Refused> {
    submit_sized(engine, number, PAYLOAD_BYTES)
}

pub fn submit_sized(engine: &Engine, number: u64, bytes: usize) -> Result<(), Refused> {
    let payload = BytesRef::empty(Type::Bytes);
    let mut submit = Submit::new(JobId(0), Bytes::from_static(b"q"), Origin::Workq, payload);
    submit.uuid = Some(uuid(number));
    submit.ttl_ms = Some(3_600_000);
    let payload = Payload::new(vec![number as u8; bytes], Type::Bytes);
    engine.jobs().submit(NewJob { submit, payload }).value()?;
    assert_eq!(engine.commit_once(), Committed::Some);
    Ok(())
}

fn finish(engine: &Engine, number: u64, bytes: usize) -> Result<(), Refused> {
    let result = Payload::new(vec![1; bytes], Type::Bytes);
    let done = WorkResult { result, success: true, ..Default::default() };
    engine.jobs().finish_unfinished(JobRef::Uuid(uuid(number)), done).value()
}

/// Submits jobs until the disk is full; returns how many were taken.
pub fn fill(engine: &Engine, log: &FileLog) -> u64 {
    let taken = (0..10_000).take_while(|number| submit(engine, *number).is_ok()).count();
    assert_eq!(log.space(), Space::ReserveOnly);
    assert_eq!(submit(engine, 20_000), Err(Refused::DiskFull));
    taken as u64
}

/// Lets compaction do what it wants to.
pub fn compaction(engine: &Engine) {
    let mut steps = 0;
    while engine.compaction_step().expect("a log that works") {
        steps += 1;
        assert!(steps < 10_000, "compaction finds no end");
        while engine.commit_once() == Committed::Some {}
    }
}

#[test]
fn deleting_a_third_on_a_full_disk_makes_room_again() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    disk.set_capacity(Some(disk.used() + 40 * SEGMENT_BYTES));
    let taken = fill(&engine, &log);
    for number in (0..taken).filter(|number| number.is_multiple_of(3)) {
        engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value().unwrap();
        assert_eq!(engine.commit_once(), Committed::Some, "the reserve is gone at {number}");
        compaction(&engine);
    }
    assert_eq!(log.space(), Space::Ample);
    submit(&engine, 20_000).unwrap();
    drop((engine, log));
    let (engine, _log) = start(&disk);
    for number in 0..taken {
        let found = engine.jobs().find(JobRef::Uuid(uuid(number))).value();
        assert_eq!(found.is_none(), number.is_multiple_of(3), "{number}");
    }
}

#[test]
fn a_round_begun_with_room_is_cut_down_when_the_disk_is_full() {
    let disk = SimDisk::new(1);
    let (engine, _log) = start(&disk);
    // Two thirds are dead, so that a round of many segments begins.
    for number in 0..1_200 {
        submit(&engine, number).unwrap();
        if !number.is_multiple_of(3) {
            engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value().unwrap();
        }
    }
    while engine.commit_once() == Committed::Some {}
    assert!(engine.compaction_step().unwrap());
    disk.set_capacity(Some(disk.used()));
    for number in 10_000.. {
        match submit(&engine, number) {
            Ok(()) => {}
            Err(Refused::DiskFull) => break,
            Err(refused) => panic!("{refused}"),
        }
    }
    compaction(&engine);
    assert!(engine.trims() > 0);
    assert_eq!(engine.commit_once(), Committed::Nothing, "something waits for room for ever");
    submit(&engine, 30_000).unwrap();
}

#[test]
fn carrying_leaves_room_for_the_deletes_that_make_it_needless() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    disk.set_capacity(Some(disk.used() + 40 * SEGMENT_BYTES));
    let taken = fill(&engine, &log);
    // The reserve is nearly gone, and the oldest segment is all alive: appending it again would
    // take more than is left.
    let mut number = taken / 2;
    while log.room_bytes() > SEGMENT_BYTES / 2 {
        finish(&engine, number, 300).unwrap();
        assert_eq!(engine.commit_once(), Committed::Some);
        number += 1;
    }
    compaction(&engine);
    assert!(log.room_bytes() > SEGMENT_BYTES / 8, "{} bytes are left", log.room_bytes());
    for number in 0..taken / 2 {
        engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value().unwrap();
        assert_eq!(engine.commit_once(), Committed::Some, "the reserve is gone at {number}");
        compaction(&engine);
    }
    submit(&engine, 20_000).unwrap();
}

#[test]
fn a_step_of_carrying_is_never_more_than_the_reserve_can_take() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    disk.set_capacity(Some(disk.used() + 40 * SEGMENT_BYTES));
    // How much room these take when they are appended again is not known before they are read.
    for number in 50_000..50_040 {
        submit_sized(&engine, number, 7_000).unwrap();
        finish(&engine, number, 100).unwrap();
        engine.commit_once();
    }
    let taken = fill(&engine, &log);
    let mut number = 0;
    while log.room_bytes() > SEGMENT_BYTES / 2 {
        finish(&engine, number, 300).unwrap();
        assert_eq!(engine.commit_once(), Committed::Some);
        number += 1;
    }
    compaction(&engine);
    assert_eq!(engine.commit_once(), Committed::Nothing, "something waits for room for ever");
    engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(taken - 1))).value().unwrap();
    assert_eq!(engine.commit_once(), Committed::Some);
}

#[test]
fn a_result_too_large_for_a_full_disk_is_refused_and_holds_nothing_up() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    disk.set_capacity(Some(disk.used() + 10 * SEGMENT_BYTES));
    fill(&engine, &log);
    let room = log.room_bytes() as usize;
    assert_eq!(finish(&engine, 0, room), Err(Refused::DiskFull));
    assert_eq!(finish(&engine, 0, room / 2 + 1), Err(Refused::DiskFull));
    let words = vec![b'e'; room / 4 + 1];
    let failed =
        WorkResult { message: words.clone().into(), error: words.into(), ..WorkResult::default() };
    let refused = engine.jobs().finish_unfinished(JobRef::Uuid(uuid(0)), failed).value();
    assert_eq!(refused, Err(Refused::DiskFull));
    assert_eq!(engine.commit_once(), Committed::Nothing);
    finish(&engine, 0, room / 2).unwrap();
    assert_eq!(engine.commit_once(), Committed::Some);
    finish(&engine, 1, 4_096).unwrap();
    engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(2))).value().unwrap();
    assert_eq!(engine.commit_once(), Committed::Some);
}

/// Changes the youngest jobs until the disk takes no more changes.
fn exhaust(engine: &Engine, taken: u64) {
    for number in (0..taken).rev() {
        match engine.room(0) {
            Room::There => {
                engine
                    .people(&mut somebody())
                    .delete(JobRef::Uuid(uuid(number)))
                    .value()
                    .expect("the job is there");
                assert_eq!(engine.commit_once(), Committed::Some);
            }
            Room::Later => compaction(engine),
            Room::Exhausted => return,
        }
    }
    panic!("the disk is large enough for all deletions");
}

#[test]
fn what_is_due_on_a_used_up_disk_waits_for_room_and_blocks_nothing() {
    let disk = SimDisk::new(1);
    let clock = Arc::new(ManualClock::new(1_000));
    let (engine, log) = start_at(&disk, clock.clone(), Options::default());
    disk.set_capacity(Some(disk.used() + 40 * SEGMENT_BYTES));
    let taken = fill(&engine, &log);
    exhaust(&engine, taken);
    let room = log.room_bytes();
    clock.advance(7_200_000);
    let jobs = || engine.observe().gauges().jobs;
    let mut held = 0;
    while jobs() > 0 {
        let next_ms = engine.tick_once();
        if engine.observe().gauges().are_timers_held {
            held += 1;
            assert!(jobs() > 0 && next_ms.is_some_and(|ms| ms >= 100), "{next_ms:?}");
        }
        assert!(engine.commit_once() != Committed::Full, "a timer takes more than is left");
        // The deletions that found room make more of it.
        compaction(&engine);
        assert!(held < 100, "what is due waits for ever");
    }
    assert!(held > 0, "{room} bytes were room enough for all");
    assert!(engine.trims() > 0 && log.space() == Space::Ample);
    submit(&engine, 20_000).unwrap();
}

/// Sets the state of one of Jobq's jobs.
fn set_state(engine: &Engine, id: JobId, bytes: usize) -> Result<(), Refused> {
    let text = Bytes::from(format!("\"{}\"", "s".repeat(bytes - 2)));
    let update = JobUpdate { state: Some(text), event: Bytes::from_static(b"[]") };
    match engine.jobs().update(id, None, |_| Ok::<_, ()>(update.clone())).value()? {
        Updated::Done(..) => Ok(()),
        Updated::Declined(..) => unreachable!("it always says yes"),
    }
}

/// Appends to the events of one of Jobq's jobs.
fn append_event(engine: &Engine, id: JobId, bytes: usize) -> Result<(), Refused> {
    let update = JobUpdate { state: None, event: Bytes::from(vec![b'1'; bytes]) };
    engine.jobs().update(id, None, |_| Ok::<_, ()>(update.clone())).value().map(drop)
}

#[test]
fn a_state_or_event_too_large_for_a_full_disk_is_refused_and_holds_nothing_up() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    let mut parked = Submit::new(
        JobId(0),
        Bytes::from_static(b"jobq"),
        Origin::Jobq,
        BytesRef::empty(Type::Json),
    );
    parked.parked = true;
    parked.state = Some(Bytes::from_static(b"[]"));
    let jobq = NewJob { submit: parked, payload: Payload::new(&b"{}"[..], Type::Json) };
    let id = engine.jobs().submit(jobq.clone()).value().unwrap();
    let ended = engine.jobs().submit(jobq).value().unwrap();
    let done = WorkResult { success: true, ..Default::default() };
    engine.jobs().finish_unfinished(JobRef::Id(ended), done).value().unwrap();
    engine.commit_once();
    disk.set_capacity(Some(disk.used() + 10 * SEGMENT_BYTES));
    fill(&engine, &log);
    let too_large = log.room_bytes() as usize / 2 + 1;
    assert_eq!(set_state(&engine, id, too_large), Err(Refused::DiskFull));
    assert_eq!(append_event(&engine, id, too_large), Err(Refused::DiskFull));
    let event = Bytes::from(vec![b'1'; too_large]);
    let refused = engine.jobs().add_event_to_finished(ended, &event).unwrap().value();
    assert_eq!(refused, Err(Refused::DiskFull));
    assert_eq!(engine.commit_once(), Committed::Nothing);
    set_state(&engine, id, 4_000).unwrap();
    append_event(&engine, id, 4_096).unwrap();
    assert_eq!(engine.commit_once(), Committed::Some);
    engine.people(&mut somebody()).delete(JobRef::Id(id)).value().unwrap();
    assert_eq!(engine.commit_once(), Committed::Some);
}
