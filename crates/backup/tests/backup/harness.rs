//! A log to back up, and a folder to back it up to.

use std::sync::Arc;

use bytes::Bytes;
use spindle_backup::{
    BackupError, Checked, FolderSource, Listing, Manner, Source, SourceError, Taken, back_up,
    check, restore,
};
use spindle_log::{
    Ack, CheckedPart, FileLog, FileLogOptions, Log, Position, Record, copy::SegmentFacts,
};
use spindle_testkit::disk::SimDisk;

pub const MANNER: Manner = Manner { parts_of: payload_of, rests: false, trusts_kept: false };

/// How many digits the checksum has that a record begins with. All behind it is the payload.
const SUM_DIGITS: usize = 8;

/// The payload of a record that [`append`] made. As with a server's records, damage to it alone leaves the record sound.
pub fn payload_of(record: &[u8]) -> Vec<CheckedPart> {
    let Some((sum, payload)) = record.split_at_checked(SUM_DIGITS) else { return Vec::new() };
    let sum = std::str::from_utf8(sum).ok().and_then(|sum| u32::from_str_radix(sum, 16).ok());
    let part = |crc| CheckedPart { offset: SUM_DIGITS as u32, len: payload.len() as u32, crc };
    sum.map(part).into_iter().collect()
}

pub fn options() -> FileLogOptions {
    let parts_of = payload_of;
    FileLogOptions { segment_bytes: 4096, background: false, parts_of, ..FileLogOptions::default() }
}

pub fn open(disk: &SimDisk) -> FileLog {
    FileLog::open(Arc::new(disk.clone()), options()).expect("a sound folder")
}

pub fn append(log: &FileLog, count: u64) {
    for _ in 0..count {
        let at = log.next();
        let payload = format!("record {at} {}", "x".repeat(100 + at.0 as usize % 50));
        let bytes = format!("{:08x}{payload}", crc32c::crc32c(payload.as_bytes()));
        log.submit(at, &Record { epoch: 1, bytes: bytes.into() }).expect("room");
        assert!(matches!(log.next_ack(), Ack::Committed(_)));
    }
}

/// All records, with their positions.
pub fn contents(log: &FileLog) -> Vec<(Position, Bytes)> {
    let read = log.read(log.first()).expect("readable");
    read.map(|stored| stored.map(|it| (it.position, it.bytes)).expect("sound")).collect()
}

pub fn listing_of(log: &FileLog) -> Listing {
    let segments = log.segments().expect("files").expect("readable");
    let segments: Vec<SegmentFacts> = segments.iter().map(|it| it.facts().clone()).collect();
    let (first, end) = (segments[0].first, segments[segments.len() - 1].next);
    Listing { format: 1, first, end, segments }
}

/// A log that is open, as a server's is.
pub struct Live<'a>(pub &'a FileLog);

impl Source for Live<'_> {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        Ok(listing_of(self.0))
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let segment = self.0.segment(first).expect("readable").ok_or(SourceError::Gone)?;
        Ok(segment.read(offset, len).expect("readable"))
    }
}

/// Takes a backup of any source.
pub fn take(source: &mut dyn Source, to: &SimDisk) -> Result<Taken, BackupError> {
    back_up(to, source, MANNER, "2030-01-31T08:00:00Z".to_owned(), &mut |_| {})
}

/// Takes a backup of a log that is open.
pub fn take_live(log: &FileLog, to: &SimDisk) -> Taken {
    take(&mut Live(log), to).expect("a backup")
}

/// Takes a backup of a folder that no server works on.
pub fn take_still(from: &SimDisk, to: &SimDisk) -> Taken {
    take(&mut FolderSource::open(from, payload_of).expect("a sound folder"), to).expect("a backup")
}

pub fn checked(backup: &SimDisk) -> Checked {
    check(backup, payload_of).expect("a backup")
}

/// What a server finds after a restore.
pub fn restored(backup: &SimDisk) -> Vec<(Position, Bytes)> {
    let to = SimDisk::new(7);
    restore(backup, Arc::new(to.clone()), payload_of, &mut |_| {}).expect("restored");
    to.crash();
    contents(&open(&to))
}
