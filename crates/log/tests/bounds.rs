//! Where a log must begin and end: what is missing there is noticed, and no crash looks like it.

mod common;

use std::sync::Arc;

use bytes::Bytes;

use spindle_log::{
    Ack, FileLog, FileLogOptions, Log, OpenError, Position, Record,
    disk::Disk,
    no_parts, quick_look,
    verify::{Dropped, verify, verify_with},
};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use common::{append_numbered, check_numbered, open, segments, small, try_open, used_bytes};

/// A trimmed log of 100 records, stopped in order or not.
fn folder(in_order: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    let end = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(end).expect("trimmed");
    if in_order {
        log.end().expect("ended");
    }
    drop(log);
    assert!(segments(&disk).len() >= 3);
    disk
}

/// Makes a folder look like one of a release that knew no bounds.
fn without_bounds(disk: &SimDisk) {
    for name in segments(disk) {
        let mut bytes = disk.contents(&name).expect("there");
        bytes[28..32].fill(0);
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        disk.put(&name, bytes);
    }
    remove(disk, "bounds");
}

fn remove(disk: &SimDisk, name: &str) {
    disk.remove(name).and_then(|()| disk.sync_folder()).expect("removed");
}

/// Returns why and where a folder is refused; checks that verifying says the same and changes
/// nothing.
fn refusal(disk: &SimDisk) -> (Position, &'static str) {
    let files = || -> Vec<_> {
        let names = disk.names().into_iter().filter(|name| name != "lock");
        names.map(|name| (name.clone(), disk.contents(&name))).collect()
    };
    let before = files();
    let error = try_open(disk).err().expect("refused");
    let message = error.to_string();
    assert!(
        message.contains("spindle verify --repair") && !message.contains("move it"),
        "{message}"
    );
    let OpenError::Corrupt { position, reason, .. } = error else { panic!("{message}") };
    let damage = verify(disk, false).damage.expect("damage");
    assert_eq!((damage.position, damage.reason), (position, reason));
    assert_eq!(files(), before, "a refused folder was changed");
    (position, reason)
}

/// The positions that a repair drops: those that can be read, and those that cannot.
fn repair(disk: &SimDisk) -> (Vec<u64>, Vec<(u64, Option<u64>)>) {
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    let report = verify_with(disk, true, no_parts, &mut |_| {}, &mut |dropped| match dropped {
        Dropped::Record { stored, .. } => readable.push(stored.position.0),
        Dropped::Unreadable { from, to } => unreadable.push((from.0, to.map(|to| to.0))),
    });
    let repair = report.repair.expect("repaired");
    assert!(
        repair
            .saved
            .iter()
            .all(|file| disk.contents(&format!("{}/{file}", repair.folder)).is_some())
    );
    assert!(verify(disk, false).is_sound());
    (readable, unreadable)
}

#[test]
fn a_missing_oldest_segment_is_noticed_and_all_that_is_left_is_kept() {
    for in_order in [false, true] {
        let disk = folder(in_order);
        let names = segments(&disk);
        let (first, second) = (open(&disk).first(), names[1].clone());
        let second_first: u64 = second.trim_end_matches(".segment").parse().expect("a number");
        remove(&disk, &names[0]);
        assert_eq!(refusal(&disk), (first, "the oldest segment is missing"));
        let (readable, unreadable) = repair(&disk);
        assert_eq!(readable, (second_first..100).collect::<Vec<_>>());
        assert_eq!(unreadable, [(first.0, Some(second_first))]);
        let log = open(&disk);
        assert_eq!((log.first(), log.next()), (first, first));
    }
}

#[test]
fn a_folder_that_lost_all_its_segments_is_no_new_one() {
    let disk = folder(true);
    let first = open(&disk).first();
    for name in segments(&disk) {
        remove(&disk, &name);
    }
    assert_eq!(refusal(&disk), (first, "the oldest segment is missing"));
    assert_eq!(repair(&disk).1, [(first.0, Some(100))]);
    assert_eq!(open(&disk).next(), first);
}

#[test]
fn a_segment_without_its_magic_is_damaged() {
    for nth in 0..3 {
        let disk = folder(false);
        let name = segments(&disk)[nth].clone();
        disk.flip_bit(&name, 3, 1);
        let first: u64 = name.trim_end_matches(".segment").parse().expect("a number");
        assert_eq!(refusal(&disk), (Position(first), "the file does not begin like a segment"));
        // The salt is still there, so that every record can be read.
        assert_eq!(repair(&disk), ((first..100).collect(), vec![]));
        assert_eq!(open(&disk).next(), Position(first));
    }
}

#[test]
fn a_missing_newest_segment_is_noticed_after_any_stop() {
    for in_order in [false, true] {
        let disk = folder(in_order);
        let last = segments(&disk).pop().expect("a segment");
        let first: u64 = last.trim_end_matches(".segment").parse().expect("a number");
        remove(&disk, &last);
        assert_eq!(refusal(&disk), (Position(first), "the newest segment is missing"));
        repair(&disk);
        assert_eq!(open(&disk).next(), Position(first));
    }
}

#[test]
fn a_segment_that_a_crash_left_without_a_note_is_missed_once_it_has_records() {
    let mut named = 0;
    for (cut, seed) in (0..24).flat_map(|cut| (0..6).map(move |seed| (cut, seed))) {
        let disk = SimDisk::new(seed);
        let log = open(&disk);
        // In the second segment, and the third one soon.
        append_numbered(&log, 53, 100);
        let before = segments(&disk).len();
        disk.cut_power_after(cut);
        while disk.is_powered() {
            let at = log.next();
            if log.submit(at, &Record { epoch: 1, bytes: Bytes::from(vec![7; 100]) }).is_ok() {
                log.next_ack();
            }
        }
        drop(log);
        disk.crash();
        let log = open(&disk);
        append_numbered(&log, 1, 100);
        drop(log);
        let names = segments(&disk);
        named += usize::from(names.len() > before);
        let last = names.last().expect("a segment");
        let first: u64 = last.trim_end_matches(".segment").parse().expect("a number");
        remove(&disk, last);
        assert_eq!(refusal(&disk), (Position(first), "the newest segment is missing"), "{cut}");
    }
    assert!(named > 0, "no crash came after a segment got its name");
}

#[test]
fn records_missing_at_the_end_are_noticed_after_an_orderly_stop() {
    for in_order in [false, true] {
        let disk = folder(in_order);
        let log = open(&disk);
        append_numbered(&log, 2, 100);
        if in_order {
            log.end().expect("ended");
        }
        drop(log);
        let last = segments(&disk).pop().expect("a segment");
        disk.flip_bit(&last, used_bytes(&disk, &last) - 1, 2);
        if !in_order {
            // It cannot be distinguished from a torn tail.
            assert_eq!(open(&disk).next(), Position(101));
            continue;
        }
        assert_eq!(refusal(&disk), (Position(101), "records are missing at the end of the log"));
        assert_eq!(repair(&disk), (vec![], vec![(101, Some(102))]));
        assert_eq!(open(&disk).next(), Position(101));
    }
}

/// A trim notes how far the log is: that much is known after a crash, too.
#[test]
fn records_that_were_there_at_a_trim_are_missed_after_any_stop() {
    let disk = folder(false);
    let last = segments(&disk).pop().expect("a segment");
    disk.flip_bit(&last, used_bytes(&disk, &last) - 1, 2);
    assert_eq!(refusal(&disk), (Position(99), "records are missing at the end of the log"));
}

#[test]
fn an_end_of_another_time_is_noticed() {
    let disk = folder(true);
    let ended = disk.contents("bounds").expect("bounds");
    let log = open(&disk);
    append_numbered(&log, 1, 100);
    drop(log);
    disk.put("bounds", ended.clone());
    let reason = "there are records behind the place where the log ended when it was last stopped";
    assert_eq!(refusal(&disk), (Position(101), reason));
    assert_eq!(repair(&disk), (vec![], vec![]));
    assert_eq!(open(&disk).next(), Position(101));

    // As many records, but others.
    let disk = folder(true);
    let last = segments(&disk).pop().expect("a segment");
    let bytes = disk.contents(&last).expect("there");
    let end = used_bytes(&disk, &last).next_multiple_of(8);
    let mut cut = bytes.clone();
    cut[end - 144..].fill(0);
    disk.put(&last, cut);
    without_bounds(&disk);
    append_numbered(&open(&disk), 1, 99);
    disk.put("bounds", ended);
    let reason = "the last record is not the one that the log ended with when it was last stopped";
    assert_eq!(refusal(&disk), (Position(100), reason));
}

#[test]
fn a_log_goes_on_after_its_end_whether_it_was_closed_or_not() {
    let disk = folder(true);
    for round in 1..4 {
        let log = open(&disk);
        let first = log.first().0;
        append_numbered(&log, 1, 100);
        log.end().expect("ended");
        append_numbered(&log, 1, 100);
        drop(log);
        disk.crash();
        check_numbered(&open(&disk), first, 100 + 2 * round, 100);
    }
    assert!(!verify(&disk, false).ended_in_order);
    open(&disk).end().expect("ended");
    assert!(verify(&disk, false).ended_in_order);
}

type Step = fn(&FileLog);

/// The power goes during each step of a trim, of an end, and of the first append after one.
#[test]
fn no_crash_looks_like_damage() {
    let steps: [(&str, Step); 4] = [
        ("trim", |log| drop(log.trim_before(Position(90)))),
        ("end", |log| drop(log.end())),
        ("append", |log| {
            drop(
                log.submit(log.next(), &common::numbered(log.next(), 100)).map(|()| log.next_ack()),
            )
        }),
        ("end and trim", |log| drop(log.end().and_then(|()| log.trim_before(Position(90))))),
    ];
    for (step, run) in steps {
        for seed in 0..40 {
            for operations in 0..40 {
                let disk = SimDisk::new(seed);
                let log = open(&disk);
                append_numbered(&log, 100, 100);
                log.end().expect("ended");
                let segments_before = segments(&disk);
                disk.cut_power_after(operations);
                run(&log);
                let finished = disk.is_powered();
                drop(log);
                disk.crash();
                let at = format!("{step}, seed {seed}, {operations} operations");
                let log = try_open(&disk).unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!((100..=101).contains(&log.next().0), "{at}: {}", log.next());
                let (first, next) = (log.first().0, log.next().0);
                check_numbered(&log, first, next, 100);
                let oldest = &segments(&disk)[0];
                assert_eq!(
                    *oldest,
                    format!("{first:0>20}.segment"),
                    "{at}: a trim was not finished"
                );
                assert!(segments_before.contains(oldest), "{at}");
                drop(log);
                assert!(verify(&disk, false).is_sound(), "{at}");
                if finished {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_a_crash_left_of_a_trim_is_removed() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    let old = segments(&disk)[0].clone();
    let bytes = disk.contents(&old).expect("there");
    let end = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(end).expect("trimmed");
    drop(log);
    disk.put(&old, bytes);
    let report = verify(&disk, false);
    assert!(report.is_sound());
    assert_eq!(report.first, end);
    check_numbered(&open(&disk), end.0, 100, 100);
    assert!(!disk.names().contains(&old));
}

#[test]
fn a_folder_of_an_older_release_gets_its_bounds_whatever_crashes_meanwhile() {
    for operations in 0..60 {
        let disk = folder(false);
        without_bounds(&disk);
        let first =
            disk.names().into_iter().find(|name| name.ends_with(".segment")).expect("a segment");
        disk.cut_power_after(operations);
        // It fails where the power goes before it is open.
        drop(try_open(&disk));
        let finished = disk.is_powered();
        disk.crash();
        let log = open(&disk);
        check_numbered(&log, log.first().0, 100, 100);
        drop(log);
        remove(&disk, &first);
        assert_eq!(refusal(&disk).1, "the oldest segment is missing", "{operations} operations");
        if finished {
            return;
        }
    }
    panic!("never finished");
}

#[test]
fn bounds_that_rot_are_noticed() {
    let disk = folder(true);
    for slot in [0, 4096] {
        disk.flip_bit("bounds", slot + 30, 1);
    }
    assert_eq!(
        refusal(&disk),
        (Position(100), "it no longer says where the log must begin and end")
    );
    let first = verify(&disk, false).first;
    assert_eq!(repair(&disk), (vec![], vec![]));
    check_numbered(&open(&disk), first.0, 100, 100);
    assert!(disk.contents("bounds").is_some());
}

const ROTTEN: &str = "it no longer says where the log must begin and end";

/// Damages the slot of the file that was written last, or the other one.
fn damage_slot(disk: &SimDisk, newest: bool, damage: impl Fn(&mut [u8])) {
    let mut bytes = disk.contents("bounds").expect("bounds");
    let sequence = |at: usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().expect("8"));
    let at = if (sequence(0) > sequence(4096)) == newest { 0 } else { 4096 };
    damage(&mut bytes[at..at + 64]);
    disk.put("bounds", bytes);
}

/// How slots rot: a bit here and there, or all of them.
const ROT: [fn(&mut [u8]); 3] = [|slot| slot[20] ^= 1, |slot| slot[0] ^= 0x80, |slot| slot.fill(0)];

/// A copy of what was noted before the last change says less than the folder has.
#[test]
fn an_outdated_slot_is_not_believed_when_the_newer_one_rots() {
    type Prepare = fn() -> SimDisk;
    let cases: [(&str, Prepare); 3] = [
        ("trimmed", || folder(false)),
        ("trimmed, begun anew and trimmed", || {
            let disk = folder(false);
            let log = open(&disk);
            append_numbered(&log, 30, 100);
            log.trim_before(log.segment_end_before(log.first()).expect("closed")).expect("trimmed");
            drop(log);
            disk
        }),
        ("gone on after an orderly end", || {
            let disk = SimDisk::new(1);
            let log = open(&disk);
            append_numbered(&log, 3, 100);
            log.end().expect("ended");
            append_numbered(&log, 1, 100);
            drop(log);
            disk
        }),
    ];
    for ((case, prepare), rot) in cases.iter().flat_map(|case| ROT.map(|rot| (case, rot))) {
        let disk = prepare();
        let report = verify(&disk, false);
        assert!(report.is_sound() && !report.bounds_copy_damaged, "{case}");
        damage_slot(&disk, true, rot);
        assert_eq!(refusal(&disk), (report.next, ROTTEN), "{case}");
        assert_eq!(repair(&disk), (vec![], vec![]), "{case}");
        check_numbered(&open(&disk), report.first.0, report.next.0, 100);
    }
}

/// A crash that tears a slot leaves a folder that the other one fits: the torn one is only noted, and written again.
#[test]
fn a_slot_that_the_folder_does_not_contradict_is_enough() {
    for (in_order, rot) in [false, true].iter().flat_map(|it| ROT.map(|rot| (*it, rot))) {
        let disk = folder(in_order);
        // The start writes both slots anew, and both say the same.
        drop(open(&disk));
        let report = verify(&disk, false);
        for newest in [true, false] {
            damage_slot(&disk, newest, rot);
            let found = verify(&disk, false);
            assert!(found.is_sound() && found.bounds_copy_damaged);
            assert_eq!((found.first, found.next), (report.first, report.next));
            check_numbered(&open(&disk), report.first.0, report.next.0, 100);
            drop(open(&disk));
            assert!(!verify(&disk, false).bounds_copy_damaged);
        }
        // What is missing is still missed.
        damage_slot(&disk, false, rot);
        let last = segments(&disk).pop().expect("a segment");
        remove(&disk, &last);
        assert_eq!(refusal(&disk).1, ROTTEN);
    }
}

/// The second slot of a file is zeros until the first change: it has not rotted.
#[test]
fn the_bounds_of_a_new_log_have_one_slot() {
    let disk = SimDisk::new(1);
    append_numbered(&open(&disk), 3, 100);
    assert!(!verify(&disk, false).bounds_copy_damaged);
    remove(&disk, &segments(&disk)[0]);
    assert_eq!(refusal(&disk), (Position(0), "the oldest segment is missing"));
}

const BOUNDS_MISSED: &str =
    "it is missing, and only it knew whether segments are missing before the first one here";

#[test]
fn bounds_that_are_lost_are_missed_with_the_oldest_segment_and_without() {
    for (in_order, loses_oldest) in [false, true].map(|it| [(it, false), (it, true)]).concat() {
        let disk = folder(in_order);
        remove(&disk, "bounds");
        if loses_oldest {
            remove(&disk, &segments(&disk)[0]);
        }
        let oldest = segments(&disk)[0].clone();
        let first: u64 = oldest.trim_end_matches(".segment").parse().expect("a number");
        assert_eq!(refusal(&disk), (Position(100), BOUNDS_MISSED));
        assert!(quick_look(&disk, no_parts, false).refusal.is_some());
        assert_eq!(repair(&disk), (vec![], vec![]));
        assert!(quick_look(&disk, no_parts, false).refusal.is_none());
        let log = open(&disk);
        check_numbered(&log, first, 100, 100);
        append_numbered(&log, 100, 100);
        drop(log);
        // What the repair noted is believed.
        remove(&disk, &oldest);
        assert_eq!(refusal(&disk), (Position(first), "the oldest segment is missing"));
    }
}

/// The first segment of a folder is there before its bounds.
#[test]
fn bounds_that_are_lost_beside_the_very_first_segment_are_made_again() {
    let disk = SimDisk::new(1);
    append_numbered(&open(&disk), 3, 100);
    remove(&disk, "bounds");
    check_numbered(&open(&disk), 0, 3, 100);
    assert!(disk.contents("bounds").is_some());
}

/// Wherever the power goes during a repair: the next one finds what the last one left.
#[test]
fn a_repair_of_lost_bounds_can_be_interrupted_and_run_again() {
    let mut cut = 0;
    for operations in 0..40 {
        let disk = folder(true);
        remove(&disk, "bounds");
        let first = segments(&disk)[0].trim_end_matches(".segment").parse().expect("a number");
        disk.cut_power_after(operations);
        let report = verify(&disk, true);
        let finished = disk.is_powered();
        assert_eq!(report.failure.is_none() && report.repair.is_some(), finished);
        disk.crash();
        if !verify(&disk, false).is_sound() {
            cut += 1;
            assert_eq!(refusal(&disk), (Position(100), BOUNDS_MISSED));
            repair(&disk);
        }
        check_numbered(&open(&disk), first, 100, 100);
        if finished {
            assert!(cut > 0, "no cut came before the bounds were there");
            return;
        }
    }
    panic!("never finished");
}

#[test]
fn a_full_disk_does_without_bounds_until_there_is_room() {
    let disk = folder(false);
    without_bounds(&disk);
    disk.set_capacity(Some(disk.used()));
    let log = open(&disk);
    let end = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(end).expect("trimmed");
    log.end().expect("ended");
    drop(log);
    assert!(disk.contents("bounds").is_none());
    disk.set_capacity(None);
    check_numbered(&open(&disk), end.0, 100, 100);
    assert!(disk.contents("bounds").is_some());
}

/// A trim needs no new room of a full disk.
#[test]
fn a_trim_needs_no_room_for_the_bounds() {
    let disk = folder(false);
    let log = FileLog::open(Arc::new(disk.clone()), FileLogOptions { ..small() }).expect("sound");
    disk.set_capacity(Some(disk.used()));
    let end = log.segment_end_before(log.first()).expect("closed");
    log.trim_before(end).expect("trimmed");
    assert_eq!(log.first(), end);
}

#[test]
fn bounds_that_cannot_be_written_stop_the_log_for_good() {
    let disk = folder(true);
    let log = open(&disk);
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    let at = log.next();
    log.submit(at, &common::numbered(at, 100)).expect("submitted");
    assert!(matches!(log.next_ack(), Ack::Fatal(_)));
    assert!(log.end().is_err());
    drop(log);
    disk.crash();
    assert_eq!(open(&disk).next(), Position(100));
}

/// Flips bits of any files, in folders that were stopped in order and in others.
#[test]
fn whatever_is_damaged_is_refused_or_harmless_and_a_repair_leaves_a_log_that_opens() {
    let (mut refused, mut opened) = (0, 0);
    for seed in 0..600 {
        let disk = folder(seed % 2 == 0);
        let names: Vec<_> = disk.names().into_iter().filter(|name| name != "lock").collect();
        let random = SimDisk::new(seed);
        for _ in 0..1 + seed % 4 {
            let name = &names[(random.random() % names.len() as u64) as usize];
            let bytes = disk.contents(name).expect("there").len() as u64;
            disk.flip_bit(name, (random.random() % bytes) as usize, (random.random() % 8) as u8);
        }
        let report = verify(&disk, false);
        assert!(report.failure.is_none(), "seed {seed}: {:?}", report.failure);
        assert_eq!(try_open(&disk).is_ok(), report.is_sound(), "seed {seed}");
        if !report.is_sound() {
            refused += 1;
            repair(&disk);
        } else {
            opened += 1;
        }
        let log = open(&disk);
        let (first, next) = (log.first().0, log.next().0);
        check_numbered(&log, first, next, 100);
        // As after a start, or after a crash: no more is lost than at the end.
        assert!(next <= 100, "seed {seed}: {next}");
    }
    assert!(refused > 100 && opened > 20, "{refused} refused, {opened} opened");
}

/// The sync that was to make the log go on fails, and the process ends with it. The next one reads what is on no disk,
/// and has to make it true before it appends.
#[test]
fn an_end_whose_withdrawal_was_never_on_disk_is_withdrawn_by_the_next_start() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 3, 100);
    log.end().expect("ended");
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    let record = Record { epoch: 1, bytes: Bytes::from_static(b"never written") };
    log.submit(log.next(), &record).expect("there is room");
    assert!(matches!(log.next_ack(), Ack::Fatal(_)));
    disk.kill();
    drop(log);
    let log = open(&disk);
    append_numbered(&log, 1, 100);
    disk.crash();
    drop(log);
    check_numbered(&open(&disk), 0, 4, 100);
}
