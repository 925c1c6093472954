//! Power cuts at every step.

use std::sync::Arc;

use spindle_backup::restore;
use spindle_log::{FileLog, Log, OpenError, Position};
use spindle_log::{copy::segment_file, disk::Disk};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use crate::harness::{
    Live, append, checked, contents, listing_of, open, options, payload_of, restored, take,
    take_live,
};

/// A log at two times, and a backup of the first.
fn begun() -> (SimDisk, FileLog, SimDisk) {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 45);
    take_live(&log, &to);
    append(&log, 45);
    log.trim_before(Position(25)).unwrap();
    (from, log, to)
}

#[test]
fn after_a_power_cut_at_any_step_the_old_backup_or_the_new_one_is_there() {
    let mut was = [0, 0];
    for operations in 0.. {
        let (_from, log, to) = begun();
        let old = checked(&to).manifest;
        to.cut_power_after(operations);
        let done = take(&mut Live(&log), &to).is_ok();
        to.crash();
        let found = checked(&to);
        assert_eq!(found.findings, [], "after {operations} operations");
        let is_new = found.manifest != old;
        assert!(is_new || !done, "a backup that was taken was lost");
        was[usize::from(is_new)] += 1;
        restored(&to);
        let again = take_live(&log, &to);
        assert_eq!(again.manifest.end, log.next());
        assert_eq!(checked(&to).findings, []);
        assert_eq!(restored(&to), contents(&log));
        if done {
            break;
        }
    }
    assert!(was[0] > 10 && was[1] > 1, "{was:?}");
}

#[test]
fn after_a_power_cut_at_any_step_a_damaged_copy_is_the_old_one_or_sound() {
    let mut was = [0, 0];
    for operations in 0.. {
        let (_from, log, to) = begun();
        let rotten = checked(&to).manifest.segments[1].file.clone();
        to.flip_bit(&rotten, 150, 1);
        to.cut_power_after(operations);
        let done = take(&mut Live(&log), &to).is_ok();
        to.crash();
        let found = checked(&to).findings;
        assert!(found.iter().all(|it| it.file == rotten && it.reason.contains("1 more payloads")));
        assert!(found.is_empty() || !done);
        was[usize::from(found.is_empty())] += 1;
        take_live(&log, &to);
        assert_eq!(checked(&to).findings, []);
        assert_eq!(restored(&to), contents(&log));
        assert!(!to.names().contains(&"copy.new".to_owned()));
        if done {
            break;
        }
    }
    assert!(was[0] > 4 && was[1] > 1, "{was:?}");
}

#[test]
fn what_an_interrupted_first_backup_left_is_used_again() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 90);
    to.fail(Operation::Create, 2, Fault::NoSpace);
    assert!(take(&mut Live(&log), &to).is_err());
    let taken = take_live(&log, &to);
    assert!(taken.copied_bytes < taken.manifest.bytes(), "{taken:?}");
    assert_eq!(restored(&to), contents(&log));
}

#[test]
fn what_could_not_be_synced_is_not_believed_later() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 90);
    for nth in 0..3 {
        to.fail(Operation::Sync, nth, Fault::InputOutput);
        assert!(take(&mut Live(&log), &to).is_err());
    }
    take_live(&log, &to);
    to.crash();
    assert_eq!(checked(&to).findings, []);
}

#[test]
fn what_a_killed_backup_wrote_is_synced_by_the_next() {
    let (from, other, to) = (SimDisk::new(1), SimDisk::new(2), SimDisk::new(3));
    let log = open(&from);
    append(&log, 90);
    // All copies are there, and none was synced.
    for kept in take_live(&log, &other).manifest.segments {
        let copy = Disk::create(&to, &kept.file).unwrap();
        copy.write_at(&other.contents(&kept.file).unwrap(), 0).unwrap();
    }
    let taken = take_live(&log, &to);
    assert_eq!(taken.copied_bytes, 0);
    to.crash();
    assert_eq!(checked(&to).findings, []);
}

/// A page of a copy without its bytes, as it was never synced. Only payloads are in it.
fn zero_a_page_of_payloads(disk: &SimDisk, name: &str) {
    let mut bytes = disk.contents(name).unwrap();
    let at = bytes.windows(20).position(|found| found == [b'x'; 20]).unwrap();
    bytes[at..at + 20].fill(0);
    Disk::remove(disk, name).unwrap();
    disk.put(name, bytes);
}

#[test]
fn a_leftover_with_a_damaged_payload_is_not_believed() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 90);
    let copies = take_live(&log, &to).manifest.segments;
    // Without the manifest all copies are leftovers.
    Disk::remove(&to, "manifest.json").unwrap();
    zero_a_page_of_payloads(&to, &copies[1].file);
    let taken = take_live(&log, &to);
    assert_eq!(taken.copied_bytes, copies[1].facts.bytes);
    assert!(taken.manifest.segments.iter().all(|kept| kept.damaged_records == 0));
    assert_eq!(restored(&to), contents(&log));
}

#[test]
fn damage_that_the_source_has_is_copied_as_it_is_and_counted() {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 90);
    let segment = listing_of(&log).segments[1].first;
    drop(log);
    zero_a_page_of_payloads(&from, &segment_file(segment));
    let taken = take_live(&open(&from), &to);
    assert_eq!(taken.manifest.segments[1].damaged_records, 1);
    assert_eq!(checked(&to).findings, []);
}

#[test]
fn after_a_power_cut_at_any_step_a_restore_is_whole_or_refused_and_can_be_run_again() {
    let (_from, log, backup) = begun();
    take_live(&log, &backup);
    let mut refused = 0;
    for operations in 0.. {
        let to = SimDisk::new(9);
        to.cut_power_after(operations);
        let done = restore(&backup, Arc::new(to.clone()), payload_of, &mut |_| {}).is_ok();
        to.crash();
        match FileLog::open(Arc::new(to.clone()), options()) {
            Ok(found) => {
                // Nothing was there yet, or all was.
                let found = contents(&found);
                assert!(found == contents(&log) || (found.is_empty() && !done), "{operations}");
                if done {
                    break;
                }
            }
            Err(OpenError::Unfinished { .. }) => {
                refused += 1;
                restore(&backup, Arc::new(to.clone()), payload_of, &mut |_| {}).unwrap();
                assert_eq!(contents(&open(&to)), contents(&log));
            }
            Err(error) => panic!("after {operations} operations: {error}"),
        }
    }
    assert!(refused > 5, "{refused}");
}
