//! What `spindle verify` says of folders, and what a repair leaves.

mod common;

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use spindle_log::{
    Log, OpenError, Position,
    copy::StillLog,
    disk::{Disk, DiskFile, FolderLock, LockError},
    no_parts,
    verify::{Dropped, VerifyReport, verify, verify_with},
};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use common::{append_numbered, check_numbered, numbered, open, segments, try_open, used_bytes};

fn folder() -> SimDisk {
    let disk = SimDisk::new(1);
    append_numbered(&open(&disk), 100, 100);
    disk
}

fn files(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect()
}

#[test]
fn a_sound_folder_is_counted_and_left_as_it_is() {
    let disk = folder();
    let before = files(&disk);
    for repair in [false, true] {
        let report = verify(&disk, repair);
        assert!(report.is_sound());
        assert_eq!((report.first, report.next, report.records), (Position(0), Position(100), 100));
        assert_eq!(report.bytes, 100 * 144);
        assert_eq!(report.segments.len(), segments(&disk).len());
        assert_eq!(report.segments.iter().map(|segment| segment.records).sum::<u64>(), 100);
        assert_eq!((report.tail, report.damage, report.repair), (None, None, None));
        assert_eq!(files(&disk), before);
    }
}

#[test]
fn a_torn_tail_is_shown_and_is_no_damage() {
    let disk = folder();
    let last = segments(&disk).pop().expect("a segment");
    let end = used_bytes(&disk, &last);
    disk.flip_bit(&last, end - 1, 2);
    let mut dropped = Vec::new();
    let report = verify_with(&disk, false, no_parts, &mut |_| {}, &mut |it| dropped.push(it));
    assert!(report.is_sound());
    assert_eq!(report.next, Position(99));
    let tail = report.tail.expect("a tail");
    assert_eq!((tail.file, tail.position), (last, Position(99)));
    assert_eq!((tail.offset, tail.bytes, tail.whole_records), (end as u64 - 140, 140, 0));
    assert!(matches!(
        dropped[..],
        [Dropped::Unreadable { from: Position(99), to: Some(Position(100)) }]
    ));
}

#[test]
fn a_repair_cuts_at_the_damage_and_saves_the_rest() {
    let disk = folder();
    let names = segments(&disk);
    let bad = names[1].clone();
    let original = disk.contents(&bad).expect("there");
    disk.flip_bit(&bad, 64 + 144 * 3 + 60, 2);
    let before: BTreeMap<_, _> = disk
        .names()
        .into_iter()
        .map(|name| (name.clone(), disk.contents(&name).expect("there")))
        .collect();
    let damaged_bytes = disk.contents(&bad).expect("there");
    let report = verify(&disk, false);
    assert!(!report.is_sound());
    let damage = report.damage.expect("damage");
    let position = report.segments[0].records + 3;
    assert_eq!((damage.file.as_str(), damage.offset), (bad.as_str(), 64 + 144 * 3));
    assert_eq!(damage.position, Position(position));
    assert_eq!(damage.behind, names[2..]);
    assert!(matches!(try_open(&disk), Err(OpenError::Corrupt { .. })), "it changed nothing");

    let repair = verify(&disk, true).repair.expect("repaired");
    assert_eq!(repair.saved.len(), names.len(), "the cut segment, those behind it and the bounds");
    assert_eq!(repair.folder, "repair-1");
    for name in &names[1..] {
        let saved = disk.contents(&format!("repair-1/{name}")).expect("saved");
        assert_eq!(saved, if *name == bad { damaged_bytes.clone() } else { before[name].clone() });
    }
    assert_eq!(disk.contents("repair-1/bounds").as_ref(), before.get("bounds"));
    assert_eq!(disk.contents(&bad).expect("there")[..64 + 144 * 3], original[..64 + 144 * 3]);
    let report = verify(&disk, false);
    assert!(report.is_sound() && report.tail.is_none());
    assert_eq!(report.saved_earlier, ["repair-1"]);
    check_numbered(&open(&disk), 0, position, 100);
}

#[test]
fn the_records_handed_over_are_those_a_repair_keeps() {
    let disk = folder();
    let names = segments(&disk);
    disk.flip_bit(&names[1], 64 + 144 * 3 + 60, 2);
    for repair in [false, true, false] {
        let mut seen = Vec::new();
        let report =
            verify_with(&disk, repair, no_parts, &mut |stored| seen.push(stored), &mut |_| {});
        assert_eq!(seen.len() as u64, report.records);
        for (at, stored) in seen.iter().enumerate() {
            let expected = numbered(Position(at as u64), 100);
            assert_eq!(stored.position, Position(at as u64));
            assert_eq!((stored.epoch, &stored.bytes), (expected.epoch, &expected.bytes));
        }
    }
    let kept = verify(&disk, false).records;
    check_numbered(&open(&disk), 0, kept, 100);
}

#[test]
fn a_damaged_header_costs_the_segment_but_not_the_positions() {
    let disk = folder();
    let names = segments(&disk);
    disk.flip_bit(&names[1], 20, 2);
    let report = verify(&disk, true);
    let damage = report.damage.expect("damage");
    assert_eq!((damage.file.as_str(), damage.offset), (names[1].as_str(), 0));
    check_numbered(&open(&disk), 0, damage.position.0, 100);

    disk.flip_bit(&names[0], 30, 2);
    verify(&disk, true).repair.expect("repaired");
    let log = open(&disk);
    assert_eq!(log.first(), log.next());
    append_numbered(&log, 50, 100);
    drop(log);
    check_numbered(&open(&disk), 0, 50, 100);
}

#[test]
fn a_missing_segment_is_damage() {
    let disk = folder();
    let names = segments(&disk);
    disk.remove(&names[1]).and_then(|()| disk.sync_folder()).expect("removed");
    let report = verify(&disk, true);
    let damage = report.damage.expect("damage");
    assert_eq!((damage.file.as_str(), damage.behind.len()), (names[0].as_str(), names.len() - 2));
    check_numbered(&open(&disk), 0, damage.position.0, 100);
}

/// What a repair drops: records, and positions of which nothing can be read.
#[derive(Default, PartialEq, Eq)]
struct Listed {
    records: Vec<(u64, Vec<u8>)>,
    unreadable: Vec<(u64, Option<u64>)>,
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let positions: Vec<_> = self.records.iter().map(|(position, _)| position).collect();
        write!(f, "records {positions:?}, unreadable {:?}", self.unreadable)
    }
}

/// Verifies, with what it lists as dropped.
fn listed(disk: &SimDisk, repair: bool) -> (VerifyReport, Listed) {
    let mut listed = Listed::default();
    let report = verify_with(disk, repair, no_parts, &mut |_| {}, &mut |one| match one {
        Dropped::Record { stored, .. } => {
            listed.records.push((stored.position.0, stored.bytes.to_vec()));
        }
        Dropped::Unreadable { from, to } => listed.unreadable.push((from.0, to.map(|to| to.0))),
    });
    (report, listed)
}

/// What is done to a folder.
type DoDamage = fn(&SimDisk);

/// Damage of each kind, done to a folder of 100 records in some segments.
const DAMAGES: [(&str, DoDamage); 9] = [
    ("a record", |disk| flip(disk, 1, 64 + 144 * 3 + 60)),
    ("the first record", |disk| flip(disk, 0, 64 + 60)),
    ("a record of the newest segment", |disk| {
        let newest = segments(disk).len() - 1;
        flip(disk, newest, 64 + 144 + 60);
    }),
    ("a header", |disk| flip(disk, 1, 20)),
    ("the first header", |disk| flip(disk, 0, 20)),
    ("a segment", |disk| lose(disk, &segments(disk)[1])),
    ("the oldest segment", |disk| lose(disk, &segments(disk)[0])),
    ("the newest segment", |disk| lose(disk, &segments(disk)[segments(disk).len() - 1])),
    ("the bounds", |disk| lose(disk, "bounds")),
];

fn flip(disk: &SimDisk, segment: usize, offset: usize) {
    disk.flip_bit(&segments(disk)[segment], offset, 2);
}

fn lose(disk: &SimDisk, name: &str) {
    disk.remove(name).and_then(|()| disk.sync_folder()).expect("removed");
}

/// The files of a log that was ended in order, but for the bounds if an older release wrote it.
fn damaged(damage: DoDamage, keeps_bounds: bool, seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    log.end().expect("ended");
    drop(log);
    if !keeps_bounds {
        lose(&disk, "bounds");
        for name in segments(&disk) {
            let mut bytes = disk.contents(&name).expect("there");
            bytes[28] = 0;
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            disk.put(&name, bytes);
        }
    }
    damage(&disk);
    disk
}

/// How a repair is interrupted.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    PowerCut,
    Failure(Operation),
}

const INTERRUPTIONS: [Interruption; 6] = [
    Interruption::PowerCut,
    Interruption::Failure(Operation::Create),
    Interruption::Failure(Operation::Write),
    Interruption::Failure(Operation::Sync),
    Interruption::Failure(Operation::Rename),
    Interruption::Failure(Operation::SyncFolder),
];

/// Repairs and interrupts it at the `nth` operation. Says whether it was.
fn interrupted(disk: &SimDisk, how: Interruption, nth: u64) -> bool {
    match how {
        Interruption::PowerCut => disk.cut_power_after(nth),
        Interruption::Failure(operation) => disk.fail(operation, nth, Fault::InputOutput),
    }
    let failure = verify(disk, true).failure;
    let met = !disk.is_powered() || !disk.forget_faults() && failure.is_some();
    assert_eq!(failure.is_some(), met);
    disk.crash();
    met
}

/// Repairs again and again, interrupted at every operation, and judges what the last one lists and leaves.
fn judge_interrupted(name: &str, damage: DoDamage, keeps_bounds: bool, how: Interruption) {
    for nth in 0..200 {
        let disk = damaged(damage, keeps_bounds, nth);
        let before: BTreeMap<_, _> =
            files(&disk).into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect();
        let (report, dropped) = listed(&disk, false);
        let at = report.damage.expect("damage").position;
        let met = interrupted(&disk, how, nth);
        let twice = met && interrupted(&disk, how, nth / 2);
        let case = format!("{name}, bounds {keeps_bounds}, {how:?} at {nth}, twice {twice}");
        let (report, again) = listed(&disk, true);
        assert!(report.failure.is_none(), "{case}: {:?}", report.failure);
        assert_eq!(again, dropped, "{case}");
        let (report, after) = listed(&disk, false);
        assert!(report.is_sound(), "{case}: {:?}", report.damage);
        assert_eq!(after, dropped, "{case}: it is still listed before a server starts");
        assert_eq!(report.repaired_since_start, report.saved_earlier, "{case}");
        check_numbered(&open(&disk), report.first.0, at.0, 100);
        let kept: Vec<_> =
            disk.names().into_iter().filter(|name| name.starts_with("repair-")).collect();
        for (name, bytes) in before.iter().filter(|(name, _)| !name.ends_with(".spare")) {
            let is_kept = |other: &&String| disk.contents(other).as_ref() == Some(bytes);
            let own = format!("/{name}");
            let mut copies = kept.iter().filter(|other| other.ends_with(&own)).chain([name]);
            let is_same = disk.contents(name).is_some_and(|now| {
                // Of a segment that stays, no byte of a record is another one.
                name.ends_with(".segment") && now.starts_with(bytes.trim_ascii_end())
            });
            assert!(is_same || copies.any(|it| is_kept(&it)), "{case}: {name} is gone");
        }
        assert!(!disk.names().iter().any(|name| name.ends_with(".begun")), "{case}");
        assert_eq!(listed(&disk, false).1, Listed::default(), "{case}: a server has started");
        if !met {
            return;
        }
    }
    panic!("{name}: a repair without an end");
}

#[test]
fn an_interrupted_repair_is_run_again_and_lists_all_that_it_drops() {
    for (name, damage) in DAMAGES {
        for keeps_bounds in [true, false] {
            // Only the bounds know that these are missing.
            let needs_bounds = ["the oldest segment", "the newest segment", "the bounds"];
            if !keeps_bounds && needs_bounds.contains(&name) {
                continue;
            }
            for how in INTERRUPTIONS {
                judge_interrupted(name, damage, keeps_bounds, how);
            }
        }
    }
}

#[test]
fn what_an_older_repair_kept_is_not_listed_again() {
    let disk = folder();
    flip(&disk, 1, 64 + 144 * 3 + 60);
    verify(&disk, true).repair.expect("repaired");
    let log = open(&disk);
    append_numbered(&log, 200, 100);
    drop(log);
    let names = segments(&disk);
    let bad = names.len() - 2;
    flip(&disk, bad, 64 + 144 * 3 + 60);
    let (report, dropped) = listed(&disk, true);
    let at = report.damage.expect("damage").position.0;
    assert_eq!(report.repair.expect("repaired").folder, "repair-2");
    assert_eq!(report.saved_earlier, ["repair-1"]);
    assert_eq!(dropped.unreadable, [(at, Some(at + 1))]);
    assert_eq!(dropped.records[0].0, at + 1);
    assert_eq!(listed(&disk, false).0.repaired_since_start, ["repair-2"]);
}

/// A file that was brought back is read where it is now: its records are not dropped any more.
#[test]
fn what_was_brought_back_after_an_interruption_is_not_listed() {
    let disk = folder();
    let names = segments(&disk);
    let whole = disk.contents(&names[1]).expect("there");
    flip(&disk, 1, 64 + 144 * 3 + 60);
    // The marker takes two operations, each file two: the newest is moved, and no other.
    assert!(interrupted(&disk, Interruption::PowerCut, 12));
    disk.put(&names[1], whole);
    let (report, dropped) = listed(&disk, false);
    let damage = report.damage.expect("segments behind it are still missing");
    assert!(report.records > 50, "{damage:?}");
    let positions: Vec<u64> = dropped.records.iter().map(|(position, _)| *position).collect();
    let expected: Vec<u64> = (damage.position.0..100).collect();
    assert_eq!((positions, dropped.unreadable), (expected, Vec::new()));
}

#[test]
fn a_folder_in_use_and_a_folder_without_a_log_are_told() {
    let disk = folder();
    let log = open(&disk);
    assert!(matches!(verify(&disk, true).failure, Some(OpenError::Locked { .. })));
    drop(log);
    let empty = SimDisk::new(1);
    let report = verify(&empty, true);
    assert!(report.is_sound() && report.segments.is_empty());
    assert!(empty.names().is_empty());
}

/// A folder on a file system that nobody may write to.
struct ReadOnly(SimDisk);

impl Disk for ReadOnly {
    fn folder(&self) -> String {
        self.0.folder()
    }
    fn lock(&self) -> Result<FolderLock, LockError> {
        Err(LockError::Failed(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn list_aside(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list_aside(folder)
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn DiskFile>> {
        if write { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { self.0.open(name, false) }
    }
    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        unreachable!()
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!()
    }
    fn move_aside(&self, _: &str, _: &str, _: &str) -> io::Result<()> {
        unreachable!()
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!()
    }
    fn sync_folder(&self) -> io::Result<()> {
        unreachable!()
    }
    fn salt(&self) -> u32 {
        unreachable!()
    }
}

#[test]
fn a_folder_on_a_read_only_file_system_is_read_and_not_repaired() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    drop(log);
    let disk = ReadOnly(disk);
    let report = verify(&disk, false);
    assert!(report.is_sound() && report.records == 100, "{report:?}");
    assert!(StillLog::open(&disk, no_parts).is_ok());
    let failure = verify(&disk, true).failure.expect("it cannot be repaired").to_string();
    assert!(failure.contains("cannot lock") && failure.contains("read-only"), "{failure}");
}
