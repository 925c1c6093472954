//! What `spindle verify` says of folders, and what a repair leaves.

mod common;

use std::collections::BTreeMap;

use spindle_log::{
    Log, OpenError, Position,
    disk::Disk,
    no_parts,
    verify::{Dropped, verify, verify_with},
};
use spindle_testkit::disk::SimDisk;

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

#[test]
fn a_repair_that_a_crash_interrupts_can_be_run_again() {
    for operations in 0..30 {
        let disk = folder();
        let names = segments(&disk);
        disk.flip_bit(&names[1], 64 + 144 * 3 + 60, 2);
        let before: BTreeMap<_, _> =
            files(&disk).into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect();
        let position = verify(&disk, false).damage.expect("damage").position;
        disk.cut_power_after(operations);
        let report = verify(&disk, true);
        let finished = disk.is_powered();
        assert_eq!(report.failure.is_none(), finished);
        disk.crash();
        let report = verify(&disk, true);
        assert!(report.failure.is_none());
        assert_eq!(report.damage.is_none(), report.repair.is_none());
        assert!(!finished || report.damage.is_none(), "a finished repair did not last");
        check_numbered(&open(&disk), 0, position.0, 100);
        let originals: Vec<_> =
            disk.names().iter().filter(|name| name.starts_with("repair-")).cloned().collect();
        for name in &names[1..] {
            let kept = originals.iter().find(|kept| kept.ends_with(name));
            let kept =
                kept.unwrap_or_else(|| panic!("{name} is gone after {operations} operations"));
            assert_eq!(
                disk.contents(kept).as_ref(),
                before.get(name),
                "{name} after {operations} operations"
            );
        }
    }
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
