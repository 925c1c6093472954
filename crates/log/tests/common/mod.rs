//! What the tests of the file log share.

#![expect(dead_code, reason = "each test program uses a part of this")]

use std::sync::Arc;

use spindle_log::{
    Ack, FileLog, FileLogOptions, Log, OpenError, Position, Record, Stored, SyncPolicy,
};
use spindle_testkit::disk::SimDisk;

/// Short segments and no threads: everything happens when and where a test says.
pub fn small() -> FileLogOptions {
    FileLogOptions { segment_bytes: 4096, background: false, ..FileLogOptions::default() }
}

pub fn with_sync(sync: SyncPolicy) -> FileLogOptions {
    FileLogOptions { sync, ..small() }
}

pub fn open(disk: &SimDisk) -> FileLog {
    try_open(disk).expect("a sound folder")
}

pub fn try_open(disk: &SimDisk) -> Result<FileLog, OpenError> {
    open_shown(disk, small())
}

/// Opens a log and checks that exactly its records were shown meanwhile.
pub fn open_shown(disk: &SimDisk, options: FileLogOptions) -> Result<FileLog, OpenError> {
    let parts = |stored: Stored| (stored.position, stored.epoch, stored.bytes, stored.damaged);
    let (mut shown, mut ended) = (Vec::new(), false);
    let log = FileLog::open_with(Arc::new(disk.clone()), options, &mut |record| match record {
        Some(stored) if !ended => shown.push(parts(stored)),
        None if !ended => ended = true,
        after => panic!("{after:?} behind the end"),
    })?;
    // Without power nothing is read.
    if disk.is_powered() {
        let stored = log.read(log.first()).expect("readable");
        let stored: Vec<_> = stored.map(|stored| parts(stored.expect("sound"))).collect();
        assert_eq!(shown, stored, "shown and in the log");
        assert!(ended);
    }
    Ok(log)
}

pub fn record(bytes: impl Into<Vec<u8>>) -> Record {
    Record { epoch: 1, bytes: bytes.into().into() }
}

/// A record that is unlike those of other positions.
pub fn numbered(position: Position, bytes: usize) -> Record {
    let mut text = format!("{position}:").into_bytes();
    text.resize(bytes.max(text.len()), (position.0 % 251) as u8);
    record(text)
}

pub fn append(log: &FileLog, record: &Record) -> Position {
    let at = log.next();
    log.submit(at, record).expect("submitted");
    assert!(matches!(log.next_ack(), Ack::Committed(position) if position == at));
    at
}

pub fn append_numbered(log: &FileLog, count: u64, bytes: usize) {
    for _ in 0..count {
        append(log, &numbered(log.next(), bytes));
    }
}

/// All records, oldest first.
pub fn contents(log: &dyn Log) -> Vec<(Position, Vec<u8>)> {
    let stored = log.read(log.first()).expect("readable");
    stored.map(|stored| stored.expect("sound")).map(|s| (s.position, s.bytes.to_vec())).collect()
}

pub fn check_numbered(log: &FileLog, first: u64, next: u64, bytes: usize) {
    assert_eq!((log.first(), log.next()), (Position(first), Position(next)));
    let expected: Vec<_> = (first..next)
        .map(Position)
        .map(|position| (position, numbered(position, bytes).bytes.to_vec()))
        .collect();
    assert_eq!(contents(log), expected);
}

/// The names of a folder's segments, oldest first.
pub fn segments(disk: &SimDisk) -> Vec<String> {
    let is_segment = |name: &String| name.ends_with(".segment") && !name.contains('/');
    disk.names().into_iter().filter(is_segment).collect()
}

/// Where the last frame of a segment ends, for records that hold no zero byte at their end.
pub fn used_bytes(disk: &SimDisk, name: &str) -> usize {
    let bytes = disk.contents(name).expect("the segment exists");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}
