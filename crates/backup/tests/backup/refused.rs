//! Folders and sources that are refused, and stay as they are.

use std::sync::Arc;

use bytes::Bytes;
use spindle_backup::{BackupError, FolderSource, Listing, Source, SourceError, restore};
use spindle_log::{FileLog, Log, OpenError, Position, no_parts};
use spindle_testkit::disk::SimDisk;

use crate::harness::{
    Live, append, checked, listing_of, open, options, take, take_live, take_still,
};

#[test]
fn a_folder_of_something_else_is_refused_and_not_touched() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 5);
    for name in ["notes.txt", "00000000000000000000.segment", "x.copy"] {
        to.put(name, b"mine".to_vec());
        let error = take(&mut Live(&log), &to).unwrap_err();
        assert!(matches!(&error, BackupError::Foreign { file, .. } if file == name), "{error}");
        assert_eq!(to.names(), [name]);
        spindle_log::disk::Disk::remove(&to, name).unwrap();
    }
}

#[test]
fn a_backup_of_another_log_is_not_replaced() {
    let to = SimDisk::new(2);
    let (one, other) = (SimDisk::new(1), SimDisk::new(4));
    let log = open(&one);
    append(&log, 20);
    take_live(&log, &to);
    let before = checked(&to).manifest;
    let another = open(&other);
    for count in [10, 10, 30] {
        append(&another, count);
        let error = take(&mut Live(&another), &to).unwrap_err();
        assert!(matches!(error, BackupError::OtherLog { .. }), "{error}");
        assert_eq!(checked(&to).manifest, before);
        assert_eq!(checked(&to).findings, []);
    }
}

#[test]
fn a_server_does_not_start_on_a_backup_nor_is_it_taken_for_a_folder_with_a_log() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    append(&open(&from), 20);
    take_still(&from, &to);
    let error = FileLog::open(Arc::new(to.clone()), options()).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    let error = FolderSource::open(&to, no_parts).err().unwrap();
    assert!(matches!(error, OpenError::NoLog { .. }), "{error}");
}

#[test]
fn a_folder_in_use_is_neither_read_nor_written() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 20);
    assert!(matches!(FolderSource::open(&from, no_parts), Err(OpenError::Locked { .. })));
    let held = spindle_log::disk::Disk::lock(&to).unwrap();
    let error = take(&mut Live(&log), &to).unwrap_err();
    assert!(matches!(error, BackupError::InUse { .. }), "{error}");
    drop(held);
    take_live(&log, &to);
}

#[test]
fn a_folder_that_is_not_empty_is_not_restored_to() {
    let (from, backup) = (SimDisk::new(1), SimDisk::new(2));
    append(&open(&from), 20);
    take_still(&from, &backup);
    let error = restore(&backup, Arc::new(from.clone()), no_parts, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    let nothing = SimDisk::new(8);
    let error = restore(&nothing, Arc::new(SimDisk::new(9)), no_parts, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NoBackup { .. }), "{error}");
}

/// A source whose answers do not agree with what it holds.
struct Liar<'a> {
    log: &'a FileLog,
    list: fn(&mut Listing),
    bytes: fn(Vec<u8>) -> Vec<u8>,
}

impl Source for Liar<'_> {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        let mut listing = listing_of(self.log);
        (self.list)(&mut listing);
        Ok(listing)
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let bytes = Live(self.log).read(first, offset, len)?;
        Ok((self.bytes)(bytes.to_vec()).into())
    }
}

#[test]
fn what_a_source_says_is_not_believed() {
    type Lie = (fn(&mut Listing), fn(Vec<u8>) -> Vec<u8>, &'static str);
    let same = |_: &mut Listing| {};
    let lies: [Lie; 9] = [
        (same, |_| Vec::new(), "another number of bytes"),
        (same, |bytes| [bytes, vec![0]].concat(), "another number of bytes"),
        (same, |bytes| vec![0; bytes.len()], "does not begin like a segment"),
        (
            same,
            |mut bytes| {
                bytes[70] ^= 1;
                bytes
            },
            "what came is damaged at byte",
        ),
        (|listing| listing.segments.clear(), |bytes| bytes, "there is no segment"),
        (|listing| listing.segments[1].first = Position(2), |bytes| bytes, "is missing"),
        (|listing| listing.end = Position(1), |bytes| bytes, "begin and end where"),
        (|listing| listing.format = 2, |bytes| bytes, "use a newer one"),
        (
            |listing| listing.segments[0].sum = "0123456789abcdef".parse().unwrap(),
            |bytes| bytes,
            "not what the source listed",
        ),
    ];
    let from = SimDisk::new(1);
    let log = open(&from);
    append(&log, 60);
    for (list, bytes, part) in lies {
        let to = SimDisk::new(2);
        let error = take(&mut Liar { log: &log, list, bytes }, &to).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
        assert!(!to.names().contains(&"manifest.json".to_owned()));
        // The next one is not misled by what this one left.
        take_live(&log, &to);
        assert_eq!(checked(&to).findings, []);
    }
}

/// A source that has its first segment from one log and the others from another.
struct Mixed<'a>([&'a FileLog; 2]);

impl Source for Mixed<'_> {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        let [one, other] = self.0.map(listing_of);
        let segments = [&one.segments[..1], &other.segments[1..]].concat();
        Ok(Listing { segments, ..one })
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let from = self.0[usize::from(first > Position(0))];
        Live(from).read(first, offset, len)
    }
}

#[test]
fn sound_segments_of_two_logs_are_no_backup() {
    let logs = [1, 4].map(|seed| open(&SimDisk::new(seed)));
    logs.iter().for_each(|log| append(log, 60));
    let to = SimDisk::new(2);
    let error = take(&mut Mixed(logs.each_ref()), &to).unwrap_err();
    assert!(error.to_string().contains("does not follow the segment before it"), "{error}");
    assert!(!to.names().contains(&"manifest.json".to_owned()));
}

#[test]
fn a_log_that_ends_before_the_backup_begins_is_another() {
    let to = SimDisk::new(2);
    let log = open(&SimDisk::new(1));
    append(&log, 70);
    log.trim_before(Position(60)).unwrap();
    let before = take_live(&log, &to).manifest;
    let another = open(&SimDisk::new(4));
    append(&another, 10);
    assert!(Position(10) < before.first);
    let error = take(&mut Live(&another), &to).unwrap_err();
    assert!(matches!(error, BackupError::OtherLog { .. }), "{error}");
    assert_eq!(checked(&to).manifest, before);
}
