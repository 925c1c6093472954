//! Backups of a log that grows and is trimmed.

use bytes::Bytes;
use spindle_backup::{BackupError, Listing, Manner, Source, SourceError, back_up};
use spindle_log::disk::Disk;
use spindle_log::{FileLog, Log, Position};
use spindle_testkit::disk::SimDisk;

use crate::harness::{
    Live, MANNER, append, checked, contents, listing_of, open, restored, take, take_live,
    take_still,
};

#[test]
fn what_was_in_the_log_is_in_the_backup() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 70);
    log.trim_before(Position(30)).unwrap();
    let taken = take_live(&log, &to);
    assert_eq!((taken.manifest.first, taken.manifest.end), (log.first(), Position(70)));
    assert!(taken.manifest.segments.len() > 1 && checked(&to).is_sound());
    assert_eq!(restored(&to), contents(&log));
}

#[test]
fn a_second_backup_copies_what_is_new_and_drops_what_was_trimmed() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 70);
    let first = take_live(&log, &to);
    assert_eq!((first.copied_bytes, first.dropped), (first.manifest.bytes(), 0));
    let same = take_live(&log, &to);
    assert_eq!((same.copied_bytes, same.manifest), (0, first.manifest.clone()));
    append(&log, 33);
    let grown = take_live(&log, &to);
    assert_eq!(grown.copied_bytes, grown.manifest.bytes() - first.manifest.bytes());
    assert_eq!(restored(&to), contents(&log));
    log.trim_before(Position(60)).unwrap();
    let trimmed = take_live(&log, &to);
    let gone = grown.manifest.segments.len() - trimmed.manifest.segments.len();
    assert_eq!((trimmed.copied_bytes, trimmed.dropped), (0, gone));
    assert!(gone > 0 && checked(&to).is_sound());
    let copies = to.names().into_iter().filter(|name| name.ends_with(".copy")).count();
    assert_eq!(copies, trimmed.manifest.segments.len());
    assert_eq!(restored(&to), contents(&log));
}

#[test]
fn a_copy_that_lost_its_end_is_made_anew() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 70);
    let kept = take_live(&log, &to).manifest.segments.remove(0);
    let mut bytes = to.contents(&kept.file).unwrap();
    bytes.truncate(kept.facts.bytes as usize - 1);
    Disk::remove(&to, &kept.file).unwrap();
    to.put(&kept.file, bytes);
    assert_eq!(take_live(&log, &to).copied_bytes, kept.facts.bytes);
    assert_eq!(checked(&to).findings, []);
}

#[test]
fn copies_that_rotted_are_made_anew() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 70);
    let copies = take_live(&log, &to).manifest.segments;
    append(&log, 30);
    // A payload, and a frame's header.
    to.flip_bit(&copies[0].file, 150, 1);
    to.flip_bit(&copies[1].file, 70, 1);
    assert_eq!(checked(&to).findings.len(), 2);
    // Who does not ask is not told.
    let trusting = to.copy();
    let manner = Manner { trusts_kept: true, ..MANNER };
    let taken = back_up(&trusting, &mut Live(&log), manner, "now".to_owned(), &mut |_| {});
    assert_eq!((taken.unwrap().renewed, checked(&trusting).findings.len()), (0, 2));
    let taken = take_live(&log, &to);
    let rotten: u64 = copies[..2].iter().map(|kept| kept.facts.bytes).sum();
    let new = taken.manifest.bytes() - copies.iter().map(|kept| kept.facts.bytes).sum::<u64>();
    assert_eq!((taken.copied_bytes, taken.renewed), (rotten + new, 2));
    assert_eq!(checked(&to).findings, []);
    assert_eq!(restored(&to), contents(&log));
    assert_eq!(take_live(&log, &to).renewed, 0);
}

#[test]
fn the_newest_copy_that_rotted_is_not_made_anew_of_another_log() {
    let to = SimDisk::new(1);
    let [log, other] = [2, 3].map(|seed| open(&SimDisk::new(seed)));
    append(&log, 5);
    append(&other, 10);
    let kept = take_live(&log, &to).manifest.segments.remove(0);
    to.flip_bit(&kept.file, 150, 1);
    let before = to.contents(&kept.file);
    let error = take(&mut Live(&other), &to).unwrap_err();
    assert!(matches!(error, BackupError::OtherLog { .. }), "{error}");
    assert_eq!(to.contents(&kept.file), before);
    append(&log, 5);
    assert_eq!(take_live(&log, &to).renewed, 1);
    assert_eq!(restored(&to), contents(&log));
}

#[test]
fn a_folder_that_nobody_serves_is_backed_up_to_the_same_place() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 40);
    take_live(&log, &to);
    append(&log, 10);
    let all = contents(&log);
    drop(log);
    let taken = take_still(&from, &to);
    assert!(0 < taken.copied_bytes && taken.copied_bytes < taken.manifest.bytes());
    assert_eq!(restored(&to), all);
}

#[test]
fn a_restored_log_goes_on_and_is_backed_up_to_the_same_place() {
    let (from, to, again) = (SimDisk::new(1), SimDisk::new(2), SimDisk::new(3));
    let log = open(&from);
    append(&log, 40);
    take_live(&log, &to);
    let disk = std::sync::Arc::new(again.clone());
    spindle_backup::restore(&to, disk, spindle_log::no_parts, &mut |_| {}).unwrap();
    let log = open(&again);
    append(&log, 40);
    take_live(&log, &to);
    assert_eq!(restored(&to), contents(&log));
    assert_eq!(log.next(), Position(80));
}

#[test]
fn a_log_without_a_record_keeps_its_position() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    assert_eq!(take_live(&log, &to).manifest.segments.len(), 1);
    assert_eq!(restored(&to), []);
    // The restored log takes records, and more than fit in what it began with.
    let again = SimDisk::new(3);
    let disk = std::sync::Arc::new(again.clone());
    spindle_backup::restore(&to, disk, spindle_log::no_parts, &mut |_| {}).unwrap();
    let log = open(&again);
    append(&log, 1_000);
    let all = contents(&log);
    drop(log);
    assert_eq!(contents(&open(&again)), all);
}

/// A server that writes and trims while it is read.
struct Busy<'a> {
    log: &'a FileLog,
    listings: usize,
}

impl Source for Busy<'_> {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        self.listings += 1;
        Ok(listing_of(self.log))
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let read = Live(self.log).read(first, offset, len);
        if self.listings < 20 {
            append(self.log, 9);
            // What is listed next is gone when it is asked for.
            self.log.trim_before(Position(self.log.first().0 + 60)).unwrap();
        }
        read
    }
}

#[test]
fn segments_that_are_dropped_meanwhile_are_not_waited_for() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 200);
    let mut busy = Busy { log: &log, listings: 0 };
    let taken = take(&mut busy, &to).unwrap();
    assert!(busy.listings > 1, "nothing was dropped meanwhile");
    let kept: Vec<_> = contents(&log)
        .into_iter()
        .filter(|(at, _)| (taken.manifest.first..taken.manifest.end).contains(at))
        .collect();
    let restored = restored(&to);
    let dropped = restored.len() - kept.len();
    assert_eq!(restored[dropped..], kept);
    assert_eq!(restored.len() as u64, taken.manifest.end.0 - taken.manifest.first.0);
}

#[test]
fn a_server_that_drops_for_ever_faster_than_is_copied_ends_the_backup() {
    struct Fleeting<'a>(&'a FileLog);
    impl Source for Fleeting<'_> {
        fn listing(&mut self) -> Result<Listing, SourceError> {
            Ok(listing_of(self.0))
        }

        fn read(&mut self, _: Position, _: u64, _: usize) -> Result<Bytes, SourceError> {
            Err(SourceError::Gone)
        }
    }
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 9);
    let error = take(&mut Fleeting(&log), &to).unwrap_err();
    assert!(error.to_string().contains("dropped segments 100 times"), "{error}");
}
