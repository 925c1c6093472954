//! A folder that is taken away from a running log: nothing is acknowledged from then on, and nothing of the folder that
//! stands at its path is touched.

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use spindle_log::{Ack, FileLog, FileLogOptions, Log, LogError, OpenError, Position, SyncPolicy};
use spindle_testkit::disk::SimDisk;

use common::{append_numbered, check_numbered, numbered, open};

fn options(sync: SyncPolicy) -> FileLogOptions {
    FileLogOptions { segment_bytes: 4096, background: false, sync, ..FileLogOptions::default() }
}

fn open_dir(path: &Path) -> FileLog {
    FileLog::open_dir(path, options(SyncPolicy::Always)).expect("sound")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).expect("copied");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    names.sort_unstable();
    names
}

fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| (name.clone(), fs::read(folder.join(&name)).expect("readable"));
    names(folder).into_iter().map(read).collect()
}

/// What the log says from now on. Where it does not wait for the disk, it need not notice at once.
fn lost(log: &FileLog, sync: SyncPolicy) -> String {
    let deadline = Instant::now() + Duration::from_secs(120);
    let error = loop {
        let at = log.next();
        log.submit(at, &numbered(at, 100)).expect("submitted");
        if let Ack::Fatal(error) = log.next_ack() {
            break error;
        }
        assert!(sync != SyncPolicy::Always && Instant::now() < deadline, "acknowledged");
    };
    assert!(matches!(error, LogError::FolderLost { .. }), "{error}");
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::FolderLost { .. })));
    assert!(log.trim_before(log.next()).is_err() && log.end().is_err() && log.check().is_err());
    error.to_string()
}

type Change = fn(data: &Path, aside: &Path);

const CHANGES: [(&str, Change, &str); 6] = [
    (
        "removed lock",
        |data, _| fs::remove_file(data.join("lock")).expect("done"),
        "its lock file was removed",
    ),
    (
        "replaced lock",
        |data, _| {
            fs::write(data.join("lock.new"), "1\n").expect("done");
            fs::rename(data.join("lock.new"), data.join("lock")).expect("done");
        },
        "its lock file was replaced",
    ),
    ("moved", |data, aside| fs::rename(data, aside).expect("done"), "the folder was moved"),
    (
        "replaced by a copy",
        |data, aside| {
            fs::rename(data, aside).expect("done");
            copy(aside, data);
        },
        "the folder was moved",
    ),
    (
        "replaced by another log",
        |data, aside| {
            fs::rename(data, aside).expect("done");
            append_numbered(&open_dir(data), 30, 1500);
        },
        "the folder was moved",
    ),
    ("removed", |data, _| fs::remove_dir_all(data).expect("done"), "the folder was moved, removed"),
];

#[test]
fn nothing_is_acknowledged_once_the_folder_is_another_one() {
    for sync in [SyncPolicy::Always, SyncPolicy::Os] {
        for (what, change, reason) in CHANGES {
            let parent = tempfile::tempdir().expect("a directory");
            let (data, aside) = (parent.path().join("data"), parent.path().join("aside"));
            let log = FileLog::open_dir(&data, options(sync)).expect("sound");
            append_numbered(&log, 10, 1500);
            assert!(log.check().is_ok());
            change(&data, &aside);
            let before = data.exists().then(|| bytes(&data));
            let message = lost(&log, sync);
            assert!(
                message.contains(reason) && message.contains("another server"),
                "{what}: {message}"
            );
            drop(log);
            // In the folder that was moved it may go on as after a crash; the other one is not its own.
            if !what.ends_with("lock") {
                assert_eq!(data.exists().then(|| bytes(&data)), before, "{what}");
            }
        }
    }
}

/// A copy of hard links has the same lock file, and is another folder: new segments would not come into it.
#[test]
fn a_copy_of_hard_links_is_another_folder() {
    let parent = tempfile::tempdir().expect("a directory");
    let [data, old] = ["data", "old"].map(|name| parent.path().join(name));
    let log = open_dir(&data);
    append_numbered(&log, 3, 100);
    fs::rename(&data, &old).expect("moved");
    fs::create_dir(&data).expect("made");
    for name in names(&old) {
        fs::hard_link(old.join(&name), data.join(&name)).expect("linked");
    }
    let said = lost(&log, SyncPolicy::Always);
    assert!(said.contains("the folder was moved, removed or replaced"), "{said}");
}

#[test]
fn an_idle_log_says_so_when_it_is_asked() {
    let parent = tempfile::tempdir().expect("a directory");
    let data = parent.path().join("data");
    let log = open_dir(&data);
    assert!(log.check().is_ok());
    fs::remove_file(data.join("lock")).expect("removed");
    assert!(matches!(log.check(), Err(LogError::FolderLost { .. })));
    fs::write(data.join("lock"), "").expect("written");
    assert!(log.check().is_err(), "what was lost once stays lost");
}

#[test]
fn no_trim_reaches_into_a_folder_that_replaced_the_own_one() {
    let parent = tempfile::tempdir().expect("a directory");
    let (data, aside) = (parent.path().join("data"), parent.path().join("aside"));
    let log = open_dir(&data);
    append_numbered(&log, 20, 1500);
    fs::rename(&data, &aside).expect("moved");
    copy(&aside, &data);
    let before = bytes(&data);
    assert!(matches!(log.trim_before(Position(15)), Err(LogError::FolderLost { .. })));
    drop(log);
    assert_eq!(bytes(&data), before);
    check_numbered(&open_dir(&data), 0, 20, 1500);
    check_numbered(&open_dir(&aside), 0, 20, 1500);
}

#[test]
fn a_second_server_finds_the_folder_held_even_without_its_lock_file() {
    let parent = tempfile::tempdir().expect("a directory");
    let data = parent.path().join("data");
    let log = open_dir(&data);
    append_numbered(&log, 3, 100);
    fs::remove_file(data.join("lock")).expect("removed");
    let second = FileLog::open_dir(&data, options(SyncPolicy::Always));
    assert!(matches!(second, Err(OpenError::Locked { .. })));
    assert!(
        !data.join("lock").exists(),
        "the second one made a lock file in a folder that is not its own"
    );
    drop(log);
    check_numbered(&open_dir(&data), 0, 3, 100);
}

#[test]
fn a_link_to_the_folder_that_is_switched_is_noticed() {
    let parent = tempfile::tempdir().expect("a directory");
    let [one, two, link]: [PathBuf; 3] =
        ["one", "two", "link"].map(|name| parent.path().join(name));
    drop(open_dir(&one));
    drop(open_dir(&two));
    symlink(&one, &link).expect("linked");
    let log = open_dir(&link);
    append_numbered(&log, 3, 100);
    fs::remove_file(&link).and_then(|()| symlink(&two, &link)).expect("switched");
    assert!(lost(&log, SyncPolicy::Always).contains("replaced"));
    drop(log);
    assert_eq!(open_dir(&two).next(), Position(0));
}

/// Each step at which the folder may turn out to be lost, on the disk that counts steps.
#[test]
fn a_folder_lost_at_any_time_acknowledges_nothing_more() {
    for records in 0..12 {
        let disk = SimDisk::new(3);
        let log = open(&disk);
        append_numbered(&log, records, 1000);
        disk.take_away();
        let names = disk.names();
        let at = log.next();
        log.submit(at, &numbered(at, 1000)).expect("submitted");
        assert!(
            matches!(log.next_ack(), Ack::Fatal(LogError::FolderLost { .. })),
            "after {records}"
        );
        assert_eq!(disk.names(), names, "names changed after {records} records");
        drop(log);
        disk.kill();
        let next = open(&disk).next();
        assert!((records..=records + 1).contains(&next.0), "{next}");
    }
}
