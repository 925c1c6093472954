//! Records of which only parts that carry their own checksum are damaged.

mod common;

use spindle_log::{
    Ack, CheckedPart, FileLog, FileLogOptions, Log, OpenError, Position, Record, Stored,
    verify::{VerifyReport, verify, verify_with},
};
use spindle_testkit::disk::SimDisk;

use common::{open_shown, record, segments, small, used_bytes};

const FIRST: &str = "00000000000000000000.segment";
const FRAME_HEADER_BYTES: usize = 40;
const SEGMENT_HEADER_BYTES: usize = 64;
/// Length and checksum of the part, the part, four bytes behind it.
const PART: std::ops::Range<usize> = 8..48;
const RECORD_BYTES: usize = 52;
const FRAME_BYTES: usize = 96;

/// Believes whatever a record says about the part in it.
fn parts_of(record: &[u8]) -> Vec<CheckedPart> {
    let word = |at: usize| record.get(at..at + 4).and_then(|word| word.try_into().ok());
    let (Some(len), Some(crc)) = (word(0), word(4)) else { return Vec::new() };
    vec![CheckedPart {
        offset: PART.start as u32,
        len: u32::from_le_bytes(len),
        crc: u32::from_le_bytes(crc),
    }]
}

fn parted(position: Position) -> Record {
    let part = [position.0 as u8; PART.end - PART.start];
    let mut bytes = (part.len() as u32).to_le_bytes().to_vec();
    bytes.extend(crc32c::crc32c(&part).to_le_bytes());
    bytes.extend(part);
    bytes.extend(b"rest");
    assert_eq!(bytes.len(), RECORD_BYTES);
    record(bytes)
}

fn try_open(disk: &SimDisk) -> Result<FileLog, OpenError> {
    open_shown(disk, FileLogOptions { parts_of, ..small() })
}

fn open(disk: &SimDisk) -> FileLog {
    try_open(disk).expect("a folder to start on")
}

/// Appends batches of records, each batch one write and one sync.
fn append(log: &FileLog, batches: &[u64]) {
    for count in batches {
        for _ in 0..*count {
            log.submit(log.next(), &parted(log.next())).expect("submitted");
        }
        for _ in 0..*count {
            assert!(matches!(log.next_ack(), Ack::Committed(_)));
        }
    }
}

fn folder(batches: &[u64]) -> SimDisk {
    let disk = SimDisk::new(1);
    append(&open(&disk), batches);
    disk
}

fn frame_start(position: usize) -> usize {
    SEGMENT_HEADER_BYTES + position * FRAME_BYTES
}

/// Where a record's part begins in the first segment.
fn part_start(position: usize) -> usize {
    frame_start(position) + FRAME_HEADER_BYTES + PART.start
}

/// Reads the log from its beginning; says which records are damaged, and checks all others.
fn damaged(log: &FileLog) -> Vec<u64> {
    let stored: Vec<Stored> =
        log.read(log.first()).expect("readable").map(|stored| stored.expect("given")).collect();
    assert_eq!(stored.len() as u64, log.next().0 - log.first().0);
    for stored in &stored {
        let written = parted(stored.position).bytes;
        assert_eq!(stored.bytes[..PART.start], written[..PART.start]);
        assert_eq!(stored.bytes[PART.end..], written[PART.end..]);
        assert_eq!(stored.bytes == written, !stored.damaged, "record {}", stored.position);
    }
    stored.iter().filter(|stored| stored.damaged).map(|stored| stored.position.0).collect()
}

fn report(disk: &SimDisk, repair: bool) -> VerifyReport {
    let mut handed = Vec::new();
    let report =
        verify_with(disk, repair, parts_of, &mut |stored| handed.push(stored), &mut |_| {});
    let damaged: Vec<_> = handed.iter().filter(|s| s.damaged).map(|s| s.position).collect();
    let answer: Vec<_> = report.damaged_parts.iter().map(|record| record.position).collect();
    assert_eq!(damaged, answer);
    report
}

#[test]
fn a_flipped_bit_in_a_part_is_told_and_in_any_other_byte_of_the_frame_refused() {
    let disk = folder(&[1, 1, 1, 1, 1]);
    for byte in 0..FRAME_HEADER_BYTES + RECORD_BYTES {
        let at = frame_start(2) + byte;
        let bit = (byte % 8) as u32;
        disk.flip_bit(FIRST, at, bit as _);
        let in_part = byte.checked_sub(FRAME_HEADER_BYTES).is_some_and(|at| PART.contains(&at));
        match try_open(&disk) {
            Ok(log) => {
                assert!(in_part, "byte {byte} was not noticed");
                assert_eq!(log.next(), Position(5));
                assert_eq!(damaged(&log), [2]);
            }
            Err(OpenError::Corrupt { position, offset, .. }) => {
                assert!(!in_part, "byte {byte} is in the part");
                assert_eq!((position, offset), (Position(2), frame_start(2) as u64));
            }
            Err(other) => panic!("byte {byte}: {other}"),
        }
        disk.flip_bit(FIRST, at, bit as _);
    }
    assert_eq!(damaged(&open(&disk)), [0; 0]);
}

#[test]
fn damaged_parts_stay_told_while_the_log_goes_on_and_in_closed_segments() {
    let disk = folder(&[1; 200]);
    assert!(segments(&disk).len() >= 3);
    for position in [0, 1, 7] {
        disk.flip_bit(FIRST, part_start(position) + 5, 3);
    }
    for boot in 0..3 {
        let log = open(&disk);
        assert_eq!(log.next(), Position(200 + boot * 2));
        assert_eq!(damaged(&log), [0, 1, 7]);
        append(&log, &[2]);
    }
    let report = report(&disk, false);
    assert!(!report.is_sound() && report.damage.is_none());
    assert_eq!(report.records, 206);
    assert_eq!(
        (&*report.damaged_parts[2].file, report.damaged_parts[2].offset),
        (FIRST, frame_start(7) as u64)
    );
    // Without a word about parts it is damage like any other.
    assert_eq!(verify(&disk, false).damage.expect("damage").position, Position(0));
}

#[test]
fn a_repair_keeps_records_of_which_only_parts_are_damaged() {
    let disk = folder(&[1; 20]);
    disk.flip_bit(FIRST, part_start(3), 0);
    let before = disk.contents(FIRST);
    let repaired = report(&disk, true);
    assert!(repaired.repair.is_none());
    assert_eq!(disk.contents(FIRST), before);
    // Real damage further on is cut all the same.
    disk.flip_bit(FIRST, frame_start(9) + 8, 0);
    let repaired = report(&disk, true);
    assert_eq!(repaired.damage.expect("damage").position, Position(9));
    let log = open(&disk);
    assert_eq!((log.next(), damaged(&log)), (Position(9), vec![3]));
}

/// The frames that proved it to be durable are gone: the bounds do now.
#[test]
fn a_damaged_record_at_the_end_of_what_a_repair_keeps_stays() {
    let disk = folder(&[1; 20]);
    disk.flip_bit(FIRST, part_start(8), 0);
    disk.flip_bit(FIRST, frame_start(9) + 8, 0);
    assert_eq!(report(&disk, true).damage.expect("damage").position, Position(9));
    for _ in 0..2 {
        let log = open(&disk);
        assert_eq!((log.next(), damaged(&log)), (Position(9), vec![8]));
    }
}

#[test]
fn a_damaged_last_record_of_a_log_that_was_ended_stays() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, &[1, 1]);
    log.end().expect("ended");
    drop(log);
    disk.flip_bit(FIRST, part_start(1), 0);
    let log = open(&disk);
    assert_eq!((log.next(), damaged(&log)), (Position(2), vec![1]));
}

#[test]
fn a_batch_that_a_crash_tore_inside_a_part_is_the_tail_and_goes_whole() {
    let disk = folder(&[1, 1, 3]);
    let mut bytes = disk.contents(FIRST).expect("there");
    bytes[part_start(2) + 8..part_start(2) + 20].fill(0);
    disk.put(FIRST, bytes);
    assert_eq!(report(&disk, false).tail.expect("a tail").position, Position(2));
    let log = open(&disk);
    assert_eq!((log.next(), damaged(&log)), (Position(2), vec![]));
    assert!(used_bytes(&disk, FIRST) <= frame_start(2), "the torn bytes are still there");
    append(&log, &[1, 1]);
    drop(log);
    let log = open(&disk);
    assert_eq!((log.next(), damaged(&log)), (Position(4), vec![]));
}

#[test]
fn a_synced_record_with_a_damaged_part_stays_when_the_tail_behind_it_is_torn() {
    // What proves record 2 is the last frame of a batch whose first one is torn.
    let disk = folder(&[1, 1, 1, 2]);
    disk.flip_bit(FIRST, part_start(2) + 1, 0);
    let mut bytes = disk.contents(FIRST).expect("there");
    bytes[frame_start(3)..frame_start(3) + 20].fill(0);
    disk.put(FIRST, bytes);
    let log = open(&disk);
    assert_eq!((log.next(), damaged(&log)), (Position(3), vec![2]));
}
