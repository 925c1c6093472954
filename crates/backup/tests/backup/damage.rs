//! Damage to a backup is found, and never restored.

use std::sync::Arc;

use spindle_backup::{BackupError, restore};
use spindle_log::{Log, Position};
use spindle_testkit::disk::SimDisk;

use crate::harness::{append, checked, open, payload_of, take_live};

fn backup() -> SimDisk {
    let (from, to) = (SimDisk::new(1), SimDisk::new(2));
    let log = open(&from);
    append(&log, 60);
    log.trim_before(Position(25)).unwrap();
    take_live(&log, &to);
    to
}

/// It is found, and a restore refuses it and writes nothing.
#[track_caller]
fn is_found(backup: &SimDisk, file: &str) {
    let found = checked(backup);
    assert_eq!(found.findings.first().map(|it| it.file.as_str()), Some(file), "{found:?}");
    let to = SimDisk::new(3);
    let refused = restore(backup, Arc::new(to.clone()), payload_of, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
    assert_eq!(to.names(), [] as [&str; 0]);
}

#[test]
fn a_flipped_bit_anywhere_that_matters_is_found() {
    let copies = checked(&backup()).manifest.segments;
    assert!(copies.len() > 1);
    for kept in copies {
        for nth in 0..60 {
            let backup = backup();
            let offset = (kept.facts.bytes - 1) * nth / 59;
            let bytes = backup.contents(&kept.file).unwrap();
            // Behind a record are up to seven zeros, which are never read.
            let padding = bytes[offset as usize] == 0 && offset > 64;
            backup.flip_bit(&kept.file, offset as usize, 3);
            if padding && checked(&backup).is_sound() {
                continue;
            }
            is_found(&backup, &kept.file);
            // Behind the segment's header it is said where, or that it is in a payload.
            let reason = &checked(&backup).findings[0].reason;
            let is_told = reason.contains("damaged at byte") || reason.contains("more payloads");
            assert!(offset < 64 || is_told, "{offset}: {reason}");
        }
    }
}

#[test]
fn a_missing_copy_and_one_that_lost_its_end_are_found() {
    for (nth, cut) in [(0, None), (1, None), (0, Some(8)), (1, Some(1))] {
        let backup = backup();
        let kept = checked(&backup).manifest.segments[nth].clone();
        let mut bytes = backup.contents(&kept.file).unwrap();
        spindle_log::disk::Disk::remove(&backup, &kept.file).unwrap();
        if let Some(cut) = cut {
            bytes.truncate(kept.facts.bytes as usize - cut);
            backup.put(&kept.file, bytes);
        }
        is_found(&backup, &kept.file);
    }
}

#[test]
fn copies_that_changed_places_are_found() {
    let backup = backup();
    let segments = checked(&backup).manifest.segments;
    let [one, other] = [0, 1].map(|nth| segments[nth].file.clone());
    let [first, second] = [&one, &other].map(|file| backup.contents(file).unwrap());
    for (file, bytes) in [(&one, second), (&other, first)] {
        spindle_log::disk::Disk::remove(&backup, file).unwrap();
        backup.put(file, bytes);
    }
    is_found(&backup, &one);
}

#[test]
fn what_is_behind_a_copy_is_no_part_of_it() {
    let backup = backup();
    let kept = checked(&backup).manifest.segments.pop().unwrap();
    let mut bytes = backup.contents(&kept.file).unwrap();
    bytes.extend_from_slice(&[0xa5; 300]);
    spindle_log::disk::Disk::remove(&backup, &kept.file).unwrap();
    backup.put(&kept.file, bytes);
    assert!(checked(&backup).is_sound());
}

#[test]
fn a_manifest_that_will_not_do_is_refused() {
    let sound = String::from_utf8(backup().contents("manifest.json").unwrap()).unwrap();
    let changed = [
        (String::new(), "EOF"),
        ("{".to_owned(), "EOF"),
        (sound.replace("\"format\": 1", "\"format\": 2"), "newer release"),
        (sound.replace("\"log_format\": 1", "\"log_format\": 2"), "newer release"),
        (sound.replacen(".copy", "/../x.copy", 1), "no name of a copy"),
        (sound.replacen("\"next\"", "\"nxt\"", 1), "missing field"),
        (sound.replacen("\"end\": 60", "\"end\": 61", 1), "begin and end where"),
        (sound.replacen("\"sum\": \"", "\"sum\": \"+", 1), "16 hexadecimal"),
    ];
    for (text, part) in changed {
        assert_ne!(text, sound);
        let backup = backup();
        spindle_log::disk::Disk::remove(&backup, "manifest.json").unwrap();
        backup.put("manifest.json", text.into_bytes());
        let error = spindle_backup::check(&backup, payload_of).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_sound_copy_of_another_log_is_found() {
    let (backup, from, other) = (backup(), SimDisk::new(11), SimDisk::new(12));
    let log = open(&from);
    append(&log, 60);
    log.trim_before(Position(25)).unwrap();
    take_live(&log, &other);
    let kept = checked(&backup).manifest.segments[0].clone();
    spindle_log::disk::Disk::remove(&backup, &kept.file).unwrap();
    backup.put(&kept.file, other.contents(&kept.file).unwrap());
    is_found(&backup, &kept.file);
    assert!(checked(&backup).findings[0].reason.contains("not those that were backed up"));
}

#[test]
fn sound_copies_of_two_logs_are_found_even_if_the_manifest_has_them() {
    let (backup, from, other) = (backup(), SimDisk::new(11), SimDisk::new(12));
    let log = open(&from);
    append(&log, 60);
    log.trim_before(Position(25)).unwrap();
    take_live(&log, &other);
    let [mut mixed, others] = [&backup, &other].map(|it| checked(it).manifest);
    mixed.segments.splice(1.., others.segments.into_iter().skip(1));
    for kept in &mixed.segments[1..] {
        spindle_log::disk::Disk::remove(&backup, &kept.file).unwrap();
        backup.put(&kept.file, other.contents(&kept.file).unwrap());
    }
    spindle_log::disk::Disk::remove(&backup, "manifest.json").unwrap();
    backup.put("manifest.json", serde_json::to_vec(&mixed).unwrap());
    is_found(&backup, &mixed.segments[1].file);
    assert!(checked(&backup).findings[0].reason.contains("does not follow the copy before it"));
}
