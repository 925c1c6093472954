//! A full disk whose reserve changes and compaction share.

use std::sync::Arc;

use spindle_engine::{
    Answer, Caller, Committed, ConnectionId, Engine, JobRef, Mailbox, Refused, Room, Ticket,
};
use spindle_log::{FileLog, Log, Space};
use spindle_testkit::disk::SimDisk;

use crate::full_disk::{SEGMENT_BYTES, compaction, fill, start, submit, submit_sized, uuid};
use crate::harness::{Letters, TakeApart, somebody};

/// A full disk, and how many jobs are on it.
fn full(disk: &SimDisk) -> (Engine, Arc<FileLog>, u64) {
    let (engine, log) = start(disk);
    disk.set_capacity(Some(disk.used() + 40 * SEGMENT_BYTES));
    let taken = fill(&engine, &log);
    (engine, log, taken)
}

fn caller(letters: &Arc<Letters>) -> Caller {
    Caller { connection: ConnectionId(7), mailbox: letters.clone() as Arc<dyn Mailbox> }
}

fn delete(engine: &Engine, number: u64) {
    engine.people(&mut somebody()).delete(JobRef::Uuid(uuid(number))).value().expect("it is there");
    assert_eq!(engine.commit_once(), Committed::Some, "the reserve is gone at {number}");
}

/// Deletes jobs one after another as long as changes are let in.
fn delete_while_there_is_room(engine: &Engine, numbers: &mut impl Iterator<Item = u64>) -> usize {
    let mut deleted = 0;
    while engine.has_room() {
        let Some(number) = numbers.next() else { break };
        delete(engine, number);
        deleted += 1;
    }
    deleted
}

#[track_caller]
fn waits(engine: &Engine, letters: &Arc<Letters>) -> Ticket {
    assert_eq!(engine.room(0), Room::Later);
    let ticket = engine.wait_for_room(&caller(letters), 0).expect("compaction is to look first");
    ticket.expect("there is no room")
}

#[test]
fn changes_on_a_full_disk_wait_for_a_compaction_that_had_no_turn() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = full(&disk);
    let letters = Arc::new(Letters::default());
    let mut numbers = 0..taken;
    let mut looks = 0;
    loop {
        // Compaction gets no turn until changes wait for it.
        delete_while_there_is_room(&engine, &mut numbers);
        if numbers.is_empty() {
            break;
        }
        let ticket = waits(&engine, &letters);
        compaction(&engine);
        let answers = letters.take();
        assert!(matches!(&answers[..], [(answered, Answer::Room)] if *answered == ticket));
        looks += 1;
    }
    assert!(looks > 1 && engine.trims() > 0, "{looks} looks, {} trims", engine.trims());
    compaction(&engine);
    assert_eq!(log.space(), Space::Ample);
    submit(&engine, 20_000).unwrap();
}

#[test]
fn changes_leave_a_round_of_compaction_what_it_needs() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = full(&disk);
    // Enough of the oldest jobs are gone for a round to fit, if it begins soon.
    let mut number = 0;
    while !engine.compaction_step().unwrap() {
        delete(&engine, number);
        number += 1;
    }
    let room = log.room_bytes();
    let mut youngest = (number..taken).rev();
    let deleted = delete_while_there_is_room(&engine, &mut youngest);
    assert!(deleted > 0 && room > log.room_bytes());
    let letters = Arc::new(Letters::default());
    waits(&engine, &letters);
    // It comes to its end all the same, and then there is more room than before.
    let trims = engine.trims();
    while engine.trims() == trims {
        assert!(engine.compaction_step().unwrap(), "the round has no room");
        while engine.commit_once() == Committed::Some {}
    }
    assert_eq!(letters.take().len(), 1);
    assert!(engine.has_room());
    assert_eq!(log.space(), Space::Ample);
}

#[test]
fn changes_that_gain_nothing_are_refused_before_the_reserve_is_gone_and_taken_when_there_is_room() {
    let disk = SimDisk::new(1);
    let (engine, log, taken) = full(&disk);
    let letters = Arc::new(Letters::default());
    // The youngest first: the oldest segment is alive, and no round would gain anything.
    let mut numbers = (0..taken).rev();
    let mut looks = 0;
    while engine.room(0) != Room::Exhausted {
        delete_while_there_is_room(&engine, &mut numbers);
        assert!(numbers.clone().next().is_some(), "the disk is large enough for all deletes");
        waits(&engine, &letters);
        compaction(&engine);
        // Every request that waits is answered: it goes on, or is refused.
        assert_eq!(letters.take().len(), 1);
        looks += 1;
        assert!(looks < 100, "the reserve lasts for ever");
    }
    assert_eq!(engine.wait_for_room(&caller(&letters), 0), Err(Refused::DiskFull));
    assert!(log.room_bytes() > 0 && engine.commit_once() == Committed::Nothing);
    disk.set_capacity(None);
    log.maintain();
    compaction(&engine);
    assert_eq!(engine.wait_for_room(&caller(&letters), 0), Ok(None));
    assert!(engine.trims() > 0 || log.space() == Space::Ample);
    submit(&engine, 20_000).unwrap();
}

#[test]
fn changes_behind_a_record_that_does_not_fit_are_refused_and_taken_when_there_is_room() {
    let disk = SimDisk::new(1);
    let (engine, log) = start(&disk);
    // A job of several segments is the oldest, and nearly all behind it is dead: a round begins.
    submit_sized(&engine, 0, 4 * SEGMENT_BYTES as usize).unwrap();
    for number in 1..400 {
        submit(&engine, number).unwrap();
        delete(&engine, number);
    }
    submit(&engine, 1_000).unwrap();
    assert!(engine.compaction_step().unwrap());
    // It appends the job again before it is known that the disk has no room for it.
    disk.set_capacity(Some(disk.used()));
    assert!(log.space() == Space::Ample && engine.compaction_step().unwrap());
    assert_eq!(engine.commit_once(), Committed::Full);
    let letters = Arc::new(Letters::default());
    waits(&engine, &letters);
    compaction(&engine);
    assert!(matches!(&letters.take()[..], [(_, Answer::Room)]));
    assert_eq!(engine.wait_for_room(&caller(&letters), 0), Err(Refused::DiskFull));
    assert_eq!(engine.trims(), 0, "what the round has appended is not in the log");
    disk.set_capacity(None);
    log.maintain();
    while engine.commit_once() == Committed::Some {}
    assert_eq!(engine.wait_for_room(&caller(&letters), 0), Ok(None));
    compaction(&engine);
    assert!(engine.trims() > 0);
    delete(&engine, 1_000);
}
