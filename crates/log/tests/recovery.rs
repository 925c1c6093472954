//! What opening a folder does with a torn tail, with damage, and with files that are not its own.

mod common;

use std::fs;

use spindle_log::{Ack, FileLog, FileLogOptions, Log, OpenError, Position, ReadError};
use spindle_testkit::disk::SimDisk;

use common::{
    append, append_numbered, check_numbered, contents, numbered, open, record, segments, try_open,
    used_bytes,
};

const FRAME_HEADER_BYTES: usize = 40;
const SEGMENT_HEADER_BYTES: usize = 64;
const FIRST: &str = "00000000000000000000.segment";

/// A folder with `count` records of 21 bytes (frames of 64) in its first segment.
fn folder_with(count: u64) -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, count, 21);
    drop(log);
    let bytes = disk.contents(FIRST).expect("the first segment");
    (disk, bytes)
}

fn frame_start(position: usize) -> usize {
    SEGMENT_HEADER_BYTES + position * 64
}

#[test]
fn a_log_goes_on_where_it_ended() {
    let disk = SimDisk::new(1);
    for boot in 0..20 {
        let log = open(&disk);
        check_numbered(&log, 0, boot * 30, 50);
        append_numbered(&log, 30, 50);
    }
    assert!(segments(&disk).len() > 10);
}

#[test]
fn a_tail_torn_at_any_byte_of_the_last_frame_is_cut() {
    let (disk, whole) = folder_with(5);
    let end = frame_start(4) + FRAME_HEADER_BYTES + 21;
    assert_eq!(used_bytes(&disk, FIRST), end);
    for torn_at in frame_start(4)..end {
        let mut bytes = whole.clone();
        bytes[torn_at..].fill(0);
        disk.put(FIRST, bytes);
        let log = open(&disk);
        check_numbered(&log, 0, 4, 21);
        assert!(used_bytes(&disk, FIRST) <= frame_start(4), "the torn bytes are still there");
        append_numbered(&log, 2, 33);
        let next = contents(&log);
        assert_eq!(next.len(), 6);
        assert_eq!(next[5].1, numbered(Position(5), 33).bytes);
    }
}

#[test]
fn a_segment_that_became_shorter_is_cut_at_the_last_whole_frame() {
    let (disk, whole) = folder_with(5);
    // The last three bytes of a frame of 21 are padding: nothing is lost with them.
    let kept = |len| (len + 3 - SEGMENT_HEADER_BYTES) / 64;
    for len in [
        frame_start(5) - 3,
        frame_start(5) - 4,
        frame_start(4) + 3,
        frame_start(4),
        frame_start(3) + 63,
    ] {
        disk.put(FIRST, whole[..len].to_vec());
        let log = open(&disk);
        check_numbered(&log, 0, kept(len) as u64, 21);
        append_numbered(&log, 10, 21);
        drop(log);
        let log = open(&disk);
        assert_eq!(log.next().0 as usize, kept(len) + 10);
        drop(log);
        for name in segments(&disk).into_iter().skip(1).chain(["bounds".to_owned()]) {
            // Back to a folder of one segment for the next round.
            disk_remove(&disk, &name);
        }
    }
}

fn disk_remove(disk: &SimDisk, name: &str) {
    use spindle_log::disk::Disk;
    disk.remove(name).and_then(|()| disk.sync_folder()).expect("removed");
}

#[test]
fn a_flipped_bit_is_refused_where_a_later_record_proves_the_damage() {
    let (disk, whole) = folder_with(5);
    for position in 0..4 {
        let start = frame_start(position);
        for byte in start..start + FRAME_HEADER_BYTES + 21 {
            disk.put(FIRST, whole.clone());
            disk.flip_bit(FIRST, byte, (byte % 8) as u8);
            let error = try_open(&disk).err().expect("damage");
            let message = error.to_string();
            assert!(message.contains("spindle verify --repair"), "{message}");
            let OpenError::Corrupt { file, offset, position: at, .. } = error else {
                panic!("{message}")
            };
            assert_eq!((file.as_str(), offset as usize), (FIRST, start));
            assert_eq!(at, Position(position as u64));
            assert_ne!(disk.contents(FIRST), Some(whole.clone()), "a refused folder is unchanged");
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_can_not_be_told_from_a_torn_tail() {
    let (disk, whole) = folder_with(5);
    let start = frame_start(4);
    for byte in start..start + FRAME_HEADER_BYTES + 21 {
        disk.put(FIRST, whole.clone());
        disk.flip_bit(FIRST, byte, (byte % 8) as u8);
        check_numbered(&open(&disk), 0, 4, 21);
    }
}

#[test]
fn records_written_together_do_not_vouch_for_each_other() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    for at in (0..5).map(Position) {
        log.submit(at, &numbered(at, 21)).expect("submitted");
    }
    for _ in 0..5 {
        assert!(matches!(log.next_ack(), Ack::Committed(_)));
    }
    drop(log);
    let torn = disk.contents(FIRST).expect("the first segment");
    // A power cut in that one write may well have lost the second record and kept the others.
    disk.flip_bit(FIRST, frame_start(1) + 50, 3);
    check_numbered(&open(&disk), 0, 1, 21);
    // But a record written after the sync proves that all five had been durable.
    disk.put(FIRST, torn);
    append_numbered(&open(&disk), 1, 21);
    disk.flip_bit(FIRST, frame_start(1) + 50, 3);
    assert!(matches!(try_open(&disk), Err(OpenError::Corrupt { position: Position(1), .. })));
}

#[test]
fn damage_in_a_closed_segment_is_refused_whatever_follows_in_it() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    drop(log);
    let names = segments(&disk);
    assert!(names.len() >= 3);
    let closed = names[1].clone();
    let last_byte = used_bytes(&disk, &closed) - 1;
    disk.flip_bit(&closed, last_byte, 0);
    let error = try_open(&disk).err().expect("damage");
    assert!(matches!(error, OpenError::Corrupt { ref file, .. } if *file == closed), "{error}");
    disk.flip_bit(&closed, last_byte, 0);
    disk.flip_bit(&closed, 17, 0);
    let error = try_open(&disk).err().expect("damage");
    assert!(matches!(error, OpenError::Corrupt { offset: 0, .. }), "{error}");
    disk.flip_bit(&closed, 17, 0);
    check_numbered(&open(&disk), 0, 100, 100);
}

#[test]
fn a_record_that_rots_while_the_log_is_open_is_told_by_a_read() {
    let (disk, _) = folder_with(5);
    let log = open(&disk);
    disk.flip_bit(FIRST, frame_start(2) + 45, 1);
    let stored: Vec<_> = log.read(Position(0)).expect("readable").collect();
    assert_eq!(stored.len(), 3, "nothing comes after the damage");
    let damaged = stored[2].as_ref().expect_err("damage");
    assert!(
        matches!(damaged, ReadError::Damaged { position: Position(2), offset, .. }
            if *offset as usize == frame_start(2)),
        "{damaged}"
    );
}

#[test]
fn bytes_that_look_like_a_later_record_prove_nothing() {
    // A client stores a copy of a real frame of this very file as a record; then a power cut tears
    // the record's own header off.
    let (disk, bytes) = folder_with(5);
    let mut forged = bytes[frame_start(4)..frame_start(5)].to_vec();
    let forged_position = &mut forged[8..16];
    forged_position.copy_from_slice(&900u64.to_le_bytes());
    forged[24..32].copy_from_slice(&899u64.to_le_bytes());
    let mut payload = vec![1; 8];
    // The checksum that the frame would have if there were no salt.
    let crc = crc32c::crc32c(&forged[4..FRAME_HEADER_BYTES + 21]);
    forged[..4].copy_from_slice(&crc.to_le_bytes());
    payload.extend(forged);
    let log = open(&disk);
    append(&log, &record(payload));
    drop(log);
    let mut bytes = disk.contents(FIRST).expect("the first segment");
    bytes[frame_start(5)..frame_start(5) + FRAME_HEADER_BYTES].fill(0);
    disk.put(FIRST, bytes);
    check_numbered(&open(&disk), 0, 5, 21);
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let disk = SimDisk::new(1);
    disk.put("notes.txt", b"dear diary".to_vec());
    let error = try_open(&disk).err().expect("foreign");
    assert!(matches!(error, OpenError::Foreign { ref file, .. } if file == "notes.txt"), "{error}");
    assert_eq!(disk.names(), ["notes.txt"]);
}

#[test]
fn a_second_server_is_told_who_holds_the_folder() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("data");
    let options = || FileLogOptions { segment_bytes: 4096, ..FileLogOptions::default() };
    let log = FileLog::open_dir(&path, options()).expect("a new folder");
    append_numbered(&log, 3, 50);
    let error = FileLog::open_dir(&path, options()).err().expect("held");
    let message = error.to_string();
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert!(message.contains(&path.display().to_string()), "{message}");
    drop(log);
    check_numbered(&FileLog::open_dir(&path, options()).expect("free again"), 0, 3, 50);
}

#[test]
fn a_path_that_can_be_no_folder_is_named() {
    let parent = tempfile::tempdir().expect("a directory");
    let file = parent.path().join("file");
    fs::write(&file, "x").expect("written");
    for path in [file.clone(), file.join("below")] {
        let error = FileLog::open_dir(&path, FileLogOptions::default()).err().expect("refused");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_log_reopens_with_other_sizes() {
    let disk = SimDisk::new(1);
    append_numbered(&open(&disk), 60, 100);
    let reopen = |segment_bytes, record_bytes_max| {
        let options = FileLogOptions { segment_bytes, record_bytes_max, ..common::small() };
        FileLog::open(std::sync::Arc::new(disk.clone()), options).expect("a sound folder")
    };
    let log = reopen(16 * 1024, 12 * 1024);
    check_numbered(&log, 0, 60, 100);
    append(&log, &numbered(Position(60), 100));
    let large = append(&log, &record(vec![9; 12 * 1024]));
    assert_eq!(log.read_at(large, 12 * 1024 - 1, 1).expect("readable"), vec![9]);
    drop(log);
    let log = reopen(4096, 100);
    assert_eq!(log.next(), large.next());
    assert_eq!(log.read_at(large, 0, 2).expect("readable"), vec![9, 9]);
}
