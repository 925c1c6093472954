//! Records that are longer than a segment get segments that are long enough.

mod common;

use std::sync::Arc;

use spindle_log::{
    Ack, FileLog, FileLogOptions, Log, Position, Space, SubmitError, disk::RealDisk,
};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use common::{append, append_numbered, check_numbered, numbered, open, segments, small, try_open};

const SEGMENT_BYTES: u64 = 4096;
/// As long as three segments.
const LONG: usize = 3 * 4096;

fn len(disk: &SimDisk, name: &str) -> u64 {
    disk.contents(name).expect("there").len() as u64
}

fn check_mixed(log: &FileLog, lens: &[usize]) {
    let found: Vec<_> = common::contents(log).into_iter().map(|(_, bytes)| bytes).collect();
    let expected: Vec<_> = (0..)
        .zip(lens)
        .map(|(position, len)| numbered(Position(position), *len).bytes.to_vec())
        .collect();
    assert!(found == expected, "{} of {} records", found.len(), expected.len());
}

#[test]
fn a_segment_that_begins_with_a_long_record_is_longer_by_it() {
    for background in [false, true] {
        let disk = SimDisk::new(1);
        let options = || FileLogOptions { background, ..small() };
        let log = FileLog::open(Arc::new(disk.clone()), options()).expect("an empty folder");
        assert_eq!(log.record_bytes_max(), FileLogOptions::default().record_bytes_max);
        let lens = [10, 100, LONG, 100, LONG, LONG, 8 * LONG, 4000, 3968, 4096, 5];
        for (position, len) in (0..).zip(lens) {
            append(&log, &numbered(Position(position), len));
        }
        check_mixed(&log, &lens);
        append_numbered(&log, 50, 100);
        log.trim_before(Position(8)).expect("trimmed");
        append_numbered(&log, 100, 100);
        drop(log);
        disk.crash();
        let log = FileLog::open(Arc::new(disk.clone()), options()).expect("sound");
        assert_eq!((log.first() <= Position(8), log.next()), (true, Position(161)));
        drop(log);
        assert!(spindle_log::verify::verify(&disk, false).is_sound());
        let last = segments(&disk).pop().expect("a segment");
        assert_eq!(len(&disk, &last), SEGMENT_BYTES, "no file of a long record is used again");
    }
}

#[test]
fn a_record_just_fits_a_segment_or_makes_it_longer() {
    // A segment's header and a frame's take 64 and 40 bytes.
    let fits = SEGMENT_BYTES as usize - 64 - 40;
    for (len_of_record, file_bytes) in [(fits, SEGMENT_BYTES), (fits + 1, 2 * SEGMENT_BYTES - 56)] {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        append(&log, &numbered(Position(0), 10));
        append(&log, &numbered(Position(1), len_of_record));
        let last = segments(&disk).pop().expect("a segment");
        assert_eq!(len(&disk, &last), file_bytes, "{len_of_record}");
        // As much as another segment has.
        let behind = file_bytes > SEGMENT_BYTES;
        let count = segments(&disk).len();
        append(&log, &numbered(Position(2), fits - 8));
        assert_eq!(segments(&disk).len() == count, behind);
    }
}

/// The power goes during each operation of an append of a long record.
#[test]
fn a_long_record_survives_power_cuts_once_it_is_acknowledged() {
    for seed in 0..20 {
        for operations in 0.. {
            let disk = SimDisk::new(seed);
            let log = open(&disk);
            append_numbered(&log, 3, 100);
            disk.cut_power_after(operations);
            let acknowledged = 3 + append_long(&log);
            let finished = disk.is_powered();
            drop(log);
            disk.crash();
            let at = format!("seed {seed}, {operations} operations");
            let log = try_open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
            let next = log.next().0 as usize;
            assert!(next >= acknowledged, "{at}: {next} of {acknowledged}");
            check_mixed(&log, &[100, 100, 100, LONG, 100, 2 * LONG][..next]);
            append_numbered(&log, 1, LONG);
            if finished {
                assert_eq!(acknowledged, 6);
                break;
            }
        }
    }
}

/// How many were acknowledged.
fn append_long(log: &FileLog) -> usize {
    let append = |bytes| {
        let at = log.next();
        log.submit(at, &numbered(at, bytes)).is_ok() && matches!(log.next_ack(), Ack::Committed(_))
    };
    [LONG, 100, 2 * LONG].into_iter().take_while(|bytes| append(*bytes)).count()
}

#[test]
fn a_long_record_without_room_is_refused_until_there_is_some_and_leaves_a_reserve() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 1, 100);
    disk.set_capacity(Some(disk.used() + 1000));
    let long = numbered(Position(1), LONG);
    for _ in 0..2 {
        assert!(matches!(log.submit(Position(1), &long), Err(SubmitError::Full)));
        assert_eq!(log.space(), Space::ReserveOnly);
    }
    // What is shorter still has its place.
    append_numbered(&log, 10, 100);
    let used = disk.used();
    disk.set_capacity(Some(used + LONG as u64 + 40));
    let long = numbered(log.next(), LONG);
    append(&log, &long);
    assert_eq!(log.space(), Space::ReserveOnly, "no other segment can be prepared");
    assert_eq!(log.room_bytes(), SEGMENT_BYTES - 64, "the reserve is as large as ever");
    disk.set_capacity(None);
    log.maintain();
    assert_eq!(log.space(), Space::Ample);
    append_numbered(&log, 100, 100);
}

#[test]
fn another_spare_gives_its_room_to_a_long_record() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 80, 100);
    // One spare more than the one that is always there.
    let oldest = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(oldest).expect("trimmed");
    let spares = |disk: &SimDisk| disk.names().iter().filter(|n| n.ends_with(".spare")).count();
    assert_eq!(spares(&disk), 2);
    disk.set_capacity(Some(disk.used()));
    append_numbered(&log, 1, SEGMENT_BYTES as usize - 56);
    assert_eq!(spares(&disk), 0);
    assert_eq!(log.space(), Space::ReserveOnly);
    let (first, next) = (log.first(), log.next());
    drop(log);
    disk.set_capacity(None);
    disk.crash();
    let log = open(&disk);
    assert_eq!((log.first(), log.next()), (first, next));
}

/// A spare of which the new length may not be durable is not used.
#[test]
fn a_spare_that_cannot_be_made_longer_is_made_anew() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 1, 100);
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    let long = numbered(Position(1), LONG);
    assert!(matches!(log.submit(Position(1), &long), Err(SubmitError::Full)));
    assert_eq!(log.space(), Space::CannotGrow);
    assert!(!disk.names().iter().any(|name| name.ends_with(".spare")));
    append(&log, &long);
    assert_eq!(log.space(), Space::Ample);
    drop(log);
    disk.crash();
    check_mixed(&open(&disk), &[100, LONG]);
}

#[test]
fn a_log_goes_on_with_segments_shorter_than_its_records_in_a_directory() {
    let parent = tempfile::tempdir().expect("a directory");
    for direct in [false, true] {
        let open = |segment_bytes| {
            let disk = RealDisk::create_or_open(parent.path().join(direct.to_string()));
            let disk = disk.expect("a directory").with_direct_access(direct);
            let options = FileLogOptions { segment_bytes, ..FileLogOptions::default() };
            FileLog::open(Arc::new(disk), options).expect("sound")
        };
        append_numbered(&open(1 << 20), 3, 200_000);
        let log = open(64 << 10);
        append_numbered(&log, 7, 200_000);
        log.trim_before(Position(5)).expect("trimmed");
        append_numbered(&log, 2, 200_000);
        drop(log);
        check_numbered(&open(64 << 10), 5, 12, 200_000);
    }
}
