//! The history of a running engine, and its file.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use spindle_core::job::Origin;
use spindle_engine::{Engine, Options};
use spindle_history::{Range, Recorder};
use spindle_log::MemoryLog;
use spindle_testkit::{ManualEngine, commit_all, new_job, submit_to};

const START_MS: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn open(now_ms: u64) -> ManualEngine {
    ManualEngine::open(Arc::new(MemoryLog::new()), now_ms, Options::default())
}

fn submit(engine: &Engine, queue: &str) {
    let job = new_job(submit_to(queue, Origin::Api), b"x");
    engine.jobs().submit(job).without_waiting("a test").expect("there is room");
    commit_all(engine);
}

fn start(at: &ManualEngine, folder: &Path) -> Recorder {
    Recorder::start(&at.engine, Some(folder.to_owned())).expect("there is room for a thread")
}

/// The jobs submitted in each point of the last day.
fn submitted(recorder: &Recorder, now_ms: u64) -> Vec<(u64, u32)> {
    let points = recorder.history().book().server(Range::Day, now_ms, 288).points;
    points.into_iter().map(|(at, slot)| (at - START_MS, slot.submitted)).collect()
}

/// Leaves a history with one job in a folder.
fn leave(folder: &Path) {
    let first = open(START_MS);
    let recorder = start(&first, folder);
    submit(&first.engine, "mail");
    first.pass(10_000);
    drop(recorder);
}

#[test]
fn what_an_engine_does_is_seen() {
    let at = open(START_MS);
    let recorder = Recorder::start(&at.engine, None).expect("there is room for a thread");
    submit(&at.engine, "mail");
    submit(&at.engine, "mail");
    at.pass(10_000);
    let history = recorder.history();
    history.look(&at.engine);
    let now_ms = START_MS + 10_000;
    let server = history.book().server(Range::Hour, now_ms, 60).points;
    assert_eq!(server.iter().map(|(_, slot)| slot.submitted).sum::<u32>(), 2);
    let commits: u32 = server.iter().flat_map(|(_, slot)| slot.commits).sum();
    assert!(commits > 0);
    let mail = history.book().queue(b"mail", Range::Hour, now_ms, 60);
    assert_eq!(mail.points.last().expect("a point").1.ready, 2);
}

#[test]
fn a_history_goes_on_after_a_restart_with_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path());
    let second = open(START_MS + 2 * HOUR_MS);
    let recorder = start(&second, folder.path());
    submit(&second.engine, "mail");
    second.pass(10_000);
    recorder.history().look(&second.engine);
    let shown = submitted(&recorder, START_MS + 2 * HOUR_MS + 10_000);
    let jobs: Vec<_> = shown.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(jobs, [(0, 1), (2 * HOUR_MS, 1)], "what lies between is not there");
    let queue = recorder.history().book().queue(b"mail", Range::Day, START_MS + 2 * HOUR_MS, 96);
    assert_eq!(queue.points.len(), 2);
}

#[test]
fn a_history_of_times_that_lie_ahead_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path());
    let earlier = open(START_MS - 2 * HOUR_MS);
    let recorder = start(&earlier, folder.path());
    assert_eq!(submitted(&recorder, START_MS + HOUR_MS), []);
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside_and_stops_no_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    leave(folder.path());
    let whole = fs::read(&path).unwrap();
    let mut newer = whole.clone();
    newer[8] = 2;
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let damaged: [&[u8]; 6] =
        [b"", &whole[..15], &whole[..whole.len() - 1], &newer, &flipped, b"{}"];
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        let later = open(START_MS + 20_000);
        let recorder = start(&later, folder.path());
        assert_eq!(submitted(&recorder, START_MS + 20_000), []);
        assert_eq!(fs::read(folder.path().join("history.unreadable")).unwrap(), bytes);
        drop(recorder);
        assert!(fs::read(&path).unwrap().starts_with(b"spindleH"), "a new one is written");
    }
    fs::write(&path, &whole).unwrap();
    let later = open(START_MS + 20_000);
    assert_eq!(submitted(&start(&later, folder.path()), START_MS + 20_000), [(0, 1)]);
}

#[test]
fn a_file_that_is_too_long_is_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    for (len, is_aside) in [((16 << 20) + 1, true), (16, true)] {
        fs::File::create(&path).unwrap().set_len(len).unwrap();
        let at = open(START_MS);
        drop(start(&at, folder.path()));
        let aside = folder.path().join("history.unreadable");
        assert_eq!(fs::metadata(&aside).map(|found| found.len() == len).ok(), Some(is_aside));
    }
}

#[test]
fn where_nothing_can_be_written_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let at = open(START_MS);
    let recorder = start(&at, &gone);
    submit(&at.engine, "mail");
    at.pass(10_000);
    drop(recorder);
    assert!(!gone.exists());
}

/// Another folder stands at the path: it may be another server's, or is to stay empty.
#[test]
fn nothing_is_written_into_a_folder_that_replaced_the_own_one() {
    let parent = tempfile::tempdir().expect("a folder");
    let [data, old] = ["data", "old"].map(|name| parent.path().join(name));
    fs::create_dir(&data).expect("made");
    let at = open(START_MS);
    let recorder = start(&at, &data);
    fs::rename(&data, &old).expect("moved");
    fs::create_dir(&data).expect("made");
    drop(recorder);
    for folder in [&data, &old] {
        assert_eq!(fs::read_dir(folder).expect("readable").count(), 0, "{}", folder.display());
    }
}

/// A log that has failed may have lost its folder.
#[test]
fn nothing_is_written_once_the_engine_has_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = spindle_testkit::disk::SimDisk::new(1);
    let options = spindle_log::FileLogOptions { background: false, ..Default::default() };
    let log = spindle_log::FileLog::open(Arc::new(disk.clone()), options).expect("a new log");
    let at = ManualEngine::open(Arc::new(log), START_MS, Options::default());
    let recorder = start(&at, folder.path());
    disk.take_away();
    let job = new_job(submit_to("mail", Origin::Api), b"x");
    drop(at.engine.jobs().submit(job));
    at.engine.commit_once();
    assert!(at.engine.failure().is_some());
    drop(recorder);
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
}
