//! How many files a log has open.
#![cfg(target_os = "linux")]

use std::{collections::HashMap, fs, path::Path};

use spindle_log::{FileLog, FileLogOptions, Log, Position, Record};

const SEGMENT_BYTES: u64 = 8 * 1024;

/// How many descriptors of this process lead to each segment of a folder, the newest one left out: it is appended to.
fn settled(folder: &Path) -> Vec<usize> {
    let mut counts = HashMap::<_, usize>::new();
    for entry in fs::read_dir("/proc/self/fd").expect("Linux has it").flatten() {
        let Ok(file) = fs::read_link(entry.path()) else { continue };
        let is_segment = file.extension().is_some_and(|kind| kind == "segment");
        if is_segment && file.parent() == Some(folder) {
            *counts.entry(file).or_default() += 1;
        }
    }
    let newest = counts.keys().max().cloned().expect("a log has a segment");
    counts.remove(&newest);
    counts.into_values().collect()
}

#[test]
fn a_segment_that_is_only_read_takes_one_descriptor() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let folder = folder.path().canonicalize().expect("it is there");
    let options = || FileLogOptions { segment_bytes: SEGMENT_BYTES, ..FileLogOptions::default() };
    let log = FileLog::open_dir(&folder, options()).expect("opened");
    for position in 0..20 {
        let record = Record { epoch: 1, bytes: vec![7; 3000].into() };
        log.submit(Position(position), &record).expect("submitted");
        log.next_ack();
    }
    assert_eq!(log.next(), Position(20));
    let grown = settled(&folder);
    assert_eq!(log.open_files(), grown.len() + 1);
    assert!(grown.len() >= 8 && grown.iter().all(|open| *open == 1), "{grown:?}");
    drop(log);
    let log = FileLog::open_dir(&folder, options()).expect("opened again");
    let opened = settled(&folder);
    assert!(opened.len() == grown.len() && opened.iter().all(|open| *open == 1), "{opened:?}");
    drop(log);
}
