//! Backups of a log that keeps no files, and logs that are filled from them.

use std::sync::Arc;

use spindle_backup::{BackupError, Found, RecordSource, Records, Taken, back_up_records, fill};
use spindle_log::{Ack, Log, Position, ReadError, Record, SharedLog, Stored, no_parts};
use spindle_testkit::{disk::SimDisk, shared_log::SharedLogHandle, shared_log::SharedMemoryLog};

use crate::harness::{MANNER, append, checked, open, restored, take_live};

/// A log with records made by the test, of which some can be dropped at its beginning.
struct Shared {
    log_id: &'static str,
    first: u64,
    records: Vec<Record>,
    /// How many of the next reads a trim precedes.
    trims: u64,
}

impl Shared {
    fn of(records: u64) -> Shared {
        let mut shared = Shared { log_id: "one", first: 0, records: Vec::new(), trims: 0 };
        shared.append(records);
        shared
    }

    fn append(&mut self, count: u64) {
        let from = self.records.len() as u64;
        let record = |at: u64| Record { epoch: 1 + at / 10, bytes: format!("record {at}").into() };
        self.records.extend((from..from + count).map(record));
    }
}

impl RecordSource for Shared {
    fn look(&mut self) -> Result<Found, BackupError> {
        let (first, end) = (Position(self.first), Position(self.records.len() as u64));
        Ok(Found { log_id: self.log_id.to_owned(), first, end })
    }

    fn read(&mut self, from: Position, _: Option<&Stored>) -> Result<Records<'_>, ReadError> {
        if self.trims > 0 {
            self.trims -= 1;
            self.first += 7;
        }
        let first = Position(self.first);
        if from < first {
            return Err(ReadError::Trimmed { position: from, first });
        }
        let stored = |at: u64| {
            let Record { epoch, bytes } = self.records[at as usize].clone();
            Ok(Stored { position: Position(at), epoch, bytes, damaged: false })
        };
        Ok(Box::new((from.0..self.records.len() as u64).map(stored)))
    }

    fn is_same(&self, in_log: &Stored, in_copy: &Stored) -> bool {
        (in_log.epoch, &in_log.bytes) == (in_copy.epoch, &in_copy.bytes)
    }
}

fn take(source: &mut Shared, to: &SimDisk) -> Result<Taken, BackupError> {
    back_up_records(to, source, MANNER, "2030-01-31T08:00:00Z".to_owned(), &mut |_| {})
}

/// That a backup is sound, and what a server finds after its restore are the records from `first` to `end`.
#[track_caller]
fn holds(backup: &SimDisk, first: u64, end: u64) {
    assert_eq!(checked(backup).findings, []);
    let found = restored(backup);
    let expected: Vec<_> =
        (first..end).map(|at| (Position(at), format!("record {at}").into())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_backup_is_continued_where_it_ended_and_survives_a_crash() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(30);
    let taken = take(&mut shared, &to).unwrap();
    assert!(!taken.begun_anew);
    holds(&to, 0, 30);
    shared.append(20);
    let again = take(&mut shared, &to).unwrap();
    assert!(again.copied_bytes < taken.copied_bytes && !again.begun_anew, "{again:?}");
    to.crash();
    holds(&to, 0, 50);
    let nothing = take(&mut shared, &to).unwrap();
    assert_eq!((nothing.copied_bytes, &nothing.manifest.segments), (0, &again.manifest.segments));
}

#[test]
fn copies_are_closed_and_dropped_with_what_the_log_drops() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(0);
    let large = |epoch| Record { epoch, bytes: vec![b'x'; 4 * 1024 * 1024].into() };
    shared.records.extend((1..40).map(large));
    let taken = take(&mut shared, &to).unwrap();
    let firsts: Vec<_> = taken.manifest.segments.iter().map(|kept| kept.facts.first.0).collect();
    assert_eq!(firsts, [0, 16, 32]);
    assert_eq!(checked(&to).findings, []);
    shared.first = 20;
    shared.records.push(large(40));
    let taken = take(&mut shared, &to).unwrap();
    assert_eq!((taken.manifest.first, taken.dropped), (Position(16), 1));
    assert_eq!(checked(&to).findings, []);
    assert_eq!(restored(&to).len(), 24);
}

#[test]
fn a_copy_that_rotted_is_named_before_anything_is_written() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(0);
    let large = |epoch| Record { epoch, bytes: vec![b'x'; 4 * 1024 * 1024].into() };
    shared.records.extend((1..40).map(large));
    let oldest = take(&mut shared, &to).unwrap().manifest.segments[0].file.clone();
    to.flip_bit(&oldest, 3_000_000, 1);
    shared.records.push(large(40));
    let before = to.names();
    let error = take(&mut shared, &to).unwrap_err();
    assert!(matches!(&error, BackupError::Damaged { file, .. } if *file == oldest), "{error}");
    assert!(error.to_string().contains("take a backup to a new folder (damaged at"), "{error}");
    assert_eq!(to.names(), before);
    // A copy that the log has dropped is not needed any more.
    shared.first = 16;
    assert_eq!(take(&mut shared, &to).unwrap().dropped, 1);
    assert_eq!(checked(&to).findings, []);
}

#[test]
fn a_log_that_dropped_what_would_follow_is_copied_anew() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(30);
    take(&mut shared, &to).unwrap();
    shared.append(20);
    shared.first = 40;
    let taken = take(&mut shared, &to).unwrap();
    assert!(taken.begun_anew);
    assert_eq!(taken.dropped, 1);
    holds(&to, 40, 50);
}

#[test]
fn a_log_that_is_trimmed_while_it_is_read_is_read_again() {
    let to = SimDisk::new(1);
    let mut shared = Shared { trims: 3, ..Shared::of(30) };
    take(&mut shared, &to).unwrap();
    holds(&to, 21, 30);
    let mut shared = Shared { trims: u64::MAX, ..Shared::of(3000) };
    let error = take(&mut shared, &SimDisk::new(2)).unwrap_err();
    assert!(matches!(error, BackupError::TooFast(_)), "{error}");
}

#[test]
fn another_log_is_refused_and_the_backup_stays() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(30);
    take(&mut shared, &to).unwrap();
    let refused = |source: &mut Shared, word: &str| {
        let error = take(source, &to).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, BackupError::OtherLog { .. }) && text.contains(word), "{text}");
        holds(&to, 0, 30);
    };
    refused(&mut Shared { log_id: "other", ..Shared::of(40) }, "is another one");
    refused(&mut Shared::of(20), "it ends at 20, the backup at 30");
    let mut other = Shared::of(40);
    other.records[29].bytes = "something else".into();
    refused(&mut other, "record 29 is not as it was");
    // Logs in files go to folders of their own, whatever they are.
    let files = SimDisk::new(2);
    let log = open(&files);
    append(&log, 5);
    let error = crate::harness::take(&mut crate::harness::Live(&log), &to).unwrap_err();
    assert!(error.to_string().contains("shared by several servers"), "{error}");
    let of_files = SimDisk::new(3);
    take_live(&log, &of_files);
    let error = take(&mut shared, &of_files).unwrap_err();
    assert!(matches!(error, BackupError::OtherLog { .. }), "{error}");
    let error = take(&mut Shared::of(0), &SimDisk::new(4)).unwrap_err();
    assert!(matches!(error, BackupError::Empty), "{error}");
}

#[test]
fn a_record_that_is_missing_or_a_full_disk_leaves_the_backup_as_it_was() {
    let to = SimDisk::new(1);
    let mut shared = Shared::of(30);
    take(&mut shared, &to).unwrap();
    to.set_capacity(Some(to.used() + 100));
    shared.append(1000);
    let error = take(&mut shared, &to).unwrap_err();
    assert!(matches!(error, BackupError::Failed { operation: "write", .. }), "{error}");
    to.set_capacity(None);
    holds(&to, 0, 30);
    take(&mut shared, &to).unwrap();
    holds(&to, 0, 1030);
    // A copy that has rotted is not continued.
    to.flip_bit(&to.names().into_iter().find(|name| name.ends_with(".copy")).unwrap(), 200, 1);
    shared.append(1);
    let error = take(&mut shared, &to).unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
}

fn records(log: &SharedLogHandle) -> Vec<(Position, u64, bytes::Bytes)> {
    let read = log.read(log.first()).unwrap();
    read.map(|stored| stored.map(|it| (it.position, it.epoch, it.bytes)).unwrap()).collect()
}

fn filled(backup: &SimDisk, log: &Arc<SharedLogHandle>) -> Result<(), BackupError> {
    fill(backup, &checked(backup).manifest, &**log as &dyn SharedLog, no_parts, &mut |_| {})
}

#[test]
fn a_log_is_filled_with_the_records_of_a_backup_and_goes_on_where_that_was_interrupted() {
    let backup = SimDisk::new(1);
    let mut shared = Shared { first: 8, ..Shared::of(500) };
    take(&mut shared, &backup).unwrap();
    let memory = SharedMemoryLog::beginning_at(Position(8));
    let interrupted = memory.open();
    for at in 8..100 {
        interrupted.submit(Position(at), &shared.records[at as usize]).unwrap();
        assert!(matches!(interrupted.next_ack(), Ack::Committed(_)));
    }
    filled(&backup, &memory.open()).unwrap();
    let expected: Vec<_> = (8..500)
        .map(|at| (Position(at), shared.records[at as usize].clone()))
        .map(|(at, record)| (at, record.epoch, record.bytes))
        .collect();
    assert_eq!(records(&memory.open()), expected);
    // All of it is there: nothing is left to do.
    filled(&backup, &memory.open()).unwrap();
    assert_eq!(records(&memory.open()), expected);
}

#[test]
fn what_is_unknown_is_submitted_again_until_it_is_known() {
    let backup = SimDisk::new(1);
    take(&mut Shared::of(200), &backup).unwrap();
    let memory = SharedMemoryLog::new();
    let log = memory.open();
    let other = log.clone();
    let (cut, is_cut) = std::sync::mpsc::channel();
    let connect = std::thread::spawn(move || {
        is_cut.recv().unwrap();
        // Once it has been said of a record that it may be in the log or not.
        let mut highest = other.next();
        while other.next() >= highest {
            highest = other.next().max(highest);
            std::thread::yield_now();
        }
        other.cut_off(false);
    });
    let mut count = 0;
    let mut progress = |_| {
        count += 1;
        if count == 50 {
            log.cut_off(true);
            cut.send(()).unwrap();
        }
    };
    let manifest = checked(&backup).manifest;
    fill(&backup, &manifest, &*log as &dyn SharedLog, no_parts, &mut progress).unwrap();
    connect.join().unwrap();
    assert_eq!(records(&memory.open()).len(), 200);
}

#[test]
fn a_log_with_other_records_or_another_writer_is_not_filled() {
    let backup = SimDisk::new(1);
    let mut shared = Shared::of(50);
    take(&mut shared, &backup).unwrap();
    let with = |first: u64, records: &[Record]| {
        let memory = SharedMemoryLog::beginning_at(Position(first));
        let log = memory.open();
        for (at, record) in (first..).zip(records) {
            log.submit(Position(at), record).unwrap();
            assert!(matches!(log.next_ack(), Ack::Committed(_)));
        }
        (memory.len(), filled(&backup, &memory.open()).unwrap_err().to_string(), memory.len())
    };
    let other = Record { epoch: 9, bytes: "a server's".into() };
    let (before, said, after) = with(0, std::slice::from_ref(&other));
    assert!(said.contains("record 0 is another one") && before == after, "{said}");
    let (_, said, _) = with(3, &[]);
    assert!(said.contains("it begins at 3, the backup at 0"), "{said}");
    let longer: Vec<_> = shared.records.iter().chain([&other]).cloned().collect();
    let (_, said, _) = with(0, &longer);
    assert!(said.contains("it ends at 51, the backup at 50"), "{said}");
    // A server that appends meanwhile.
    let memory = SharedMemoryLog::new();
    let log = memory.open();
    let server = memory.open();
    server.submit(Position(0), &other).unwrap();
    assert!(matches!(server.next_ack(), Ack::Committed(_)));
    let said = filled(&backup, &log).unwrap_err().to_string();
    assert!(said.contains("another process has appended record 0"), "{said}");
}
