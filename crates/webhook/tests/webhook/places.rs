//! Where a restart goes on.

use std::{fs, sync::Arc};

use spindle_engine::FeedId;
use spindle_log::{FileLog, FileLogOptions, Log, MemoryLog};
use spindle_testkit::wait_until;
use spindle_webhook::Options;
use tempfile::TempDir;

use crate::receiver::{Receiver, dead, engine, memory, options, start};

fn file_log(folder: &TempDir) -> Arc<dyn Log> {
    let options = FileLogOptions {
        segment_bytes: 64 * 1024,
        parts_of: spindle_engine::record::checked_parts,
        ..FileLogOptions::default()
    };
    Arc::new(FileLog::open_dir(folder.path(), options).unwrap())
}

fn remembering(folder: &TempDir) -> Options {
    Options { folder: Some(folder.path().to_path_buf()), ..options() }
}

/// Whether the one hook of a folder has written down that it has reported something: its place is
/// behind an event then, and not before a record.
fn has_told(folder: &TempDir) -> bool {
    let mut files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let place = files.find(|path| path.extension().is_some_and(|kind| kind == "place"));
    let text = place.map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default();
    text.trim_end().parse().is_ok_and(|place: FeedId| place.index > 0)
}

#[test]
fn what_happened_while_the_hook_was_away_is_told_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let options = remembering(&folder);
    let first = engine(file_log(&folder));
    dead(&first, "q", "before there was a hook");
    let hooks = start(&first, &receiver, "dead", &options);
    dead(&first, "q", "reported");
    assert_eq!(receiver.next().json()["job"]["message"], "reported");
    // The receiver has heard it, but until its answer is read it would be sent again.
    wait_until("the hook has heard that it was taken", || has_told(&folder));
    drop(hooks);
    dead(&first, "q", "while it was away");
    first.stop();
    drop(first);
    let second = engine(file_log(&folder));
    let hooks = start(&second, &receiver, "dead", &options);
    dead(&second, "q", "after");
    for message in ["while it was away", "after"] {
        assert_eq!(receiver.next().json()["job"]["message"], message);
    }
    assert!(receiver.is_quiet(), "what was delivered is not sent again");
    drop(hooks);
    second.stop();
}

#[test]
fn a_delivery_that_was_not_taken_is_made_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = remembering(&folder);
    let refuses = Receiver::start(|_| 503);
    let first = engine(file_log(&folder));
    let hooks = start(&first, &refuses, "dead", &options);
    dead(&first, "q", "important");
    let id = refuses.next().json()["id"].clone();
    drop(hooks);
    first.stop();
    drop(first);
    // What was tried before is heard, and nothing more: what comes now is from the second engine.
    while !refuses.is_quiet() {}
    let second = engine(file_log(&folder));
    let hooks = start(&second, &refuses, "dead", &options);
    let answer = refuses.next().json();
    assert_eq!((&answer["id"], &answer["job"]["message"]), (&id, &"important".into()));
    drop(hooks);
    second.stop();
}

#[test]
fn a_place_of_another_log_is_not_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let options = remembering(&folder);
    let long = engine(Arc::new(MemoryLog::new()));
    let hooks = start(&long, &receiver, "dead", &options);
    for _ in 0..20 {
        dead(&long, "q", "long");
        receiver.next();
    }
    drop(hooks);
    long.stop();
    let fresh = memory();
    let hooks = start(&fresh, &receiver, "dead", &options);
    // It finds that its place lies beyond the end, and begins there; then it hears of this.
    while receiver.is_quiet() {
        dead(&fresh, "q", "fresh");
    }
    drop(hooks);
    fresh.stop();
}
