//! A quick look at a folder says what a start says.

mod common;

use spindle_log::{FileLog, Log, Position, disk::Disk, no_parts, quick_look};
use spindle_testkit::disk::SimDisk;

use common::{append_numbered, open, segments, try_open};

/// Records, more than fit in a few segments.
const RECORDS: u64 = 200;

fn folder(in_order: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let log: FileLog = open(&disk);
    append_numbered(&log, RECORDS, 100);
    let end = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(end).expect("trimmed");
    if in_order {
        log.end().expect("ended");
    }
    drop(log);
    assert!(segments(&disk).len() >= 5);
    disk
}

/// Changes a folder, and compares what a quick look and a start say.
#[track_caller]
fn compare(in_order: bool, what: &str, change: impl FnOnce(&SimDisk)) -> Option<String> {
    let disk = folder(in_order);
    change(&disk);
    let look = quick_look(&disk, no_parts, false);
    assert_eq!(look.segments, segments(&disk).len(), "{what}");
    let said = look.refusal.map(|error| error.to_string());
    let started = try_open(&disk).err().map(|error| error.to_string());
    assert_eq!(said, started, "{what}, in order: {in_order}");
    said
}

fn put(disk: &SimDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.contents(name).expect("there");
    change(&mut bytes);
    disk.put(name, bytes);
}

#[test]
fn what_is_missing_cut_or_overwritten_is_said_as_a_start_says_it() {
    for in_order in [false, true] {
        assert_eq!(compare(in_order, "nothing", |_| {}), None);
        let all = segments(&folder(in_order)).len();
        for nth in 0..all {
            let name = |disk: &SimDisk| segments(disk)[nth].clone();
            let removed = compare(in_order, "removed", |disk| disk.remove(&name(disk)).unwrap());
            assert!(removed.is_some(), "{nth}");
            for len in [0, 10, 64, 100, 2000] {
                let cut = |disk: &SimDisk| put(disk, &name(disk), |bytes| bytes.truncate(len));
                let said = compare(in_order, &format!("{nth} cut to {len}"), cut);
                // All that is behind the end of the log may be cut from the newest one.
                assert!(said.is_some() || nth + 1 == all, "{nth} {len}");
            }
            for at in [0, 9, 13, 17, 25, 61] {
                let flip = |disk: &SimDisk| disk.flip_bit(&name(disk), at, 1);
                assert!(compare(in_order, &format!("{nth} flipped at {at}"), flip).is_some());
            }
        }
        let said = compare(in_order, "bounds removed", |disk| disk.remove("bounds").unwrap());
        assert!(said.is_some());
        let random = |disk: &SimDisk| put(disk, "bounds", |bytes| bytes.fill(0xa5));
        assert!(compare(in_order, "bounds overwritten", random).is_some());
        let foreign = |disk: &SimDisk| {
            for name in disk.names() {
                disk.remove(&name).unwrap();
            }
            disk.put("notes.txt", vec![1]);
        };
        assert!(compare(in_order, "foreign", foreign).is_some());
    }
}

#[test]
fn the_newest_record_is_found_and_the_end_of_a_live_log_is_not_judged() {
    let disk = folder(false);
    let look = quick_look(&disk, no_parts, false);
    assert_eq!(look.newest.map(|it| it.position), Some(Position(RECORDS - 1)));
    let newest = segments(&disk).pop().expect("there");
    disk.remove(&newest).unwrap();
    assert!(quick_look(&disk, no_parts, false).refusal.is_some());
    assert!(quick_look(&disk, no_parts, true).refusal.is_none());
    let oldest = segments(&disk)[0].clone();
    disk.remove(&oldest).unwrap();
    assert!(quick_look(&disk, no_parts, true).refusal.is_some());
}
