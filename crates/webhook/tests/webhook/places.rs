//! Where a restart goes on.

use std::sync::Arc;

use spindle_engine::{Engine, FeedId};
use spindle_log::{FileLog, FileLogOptions, Log};
use spindle_testkit::wait_until;
use tempfile::TempDir;

use crate::receiver::{Receiver, dead, engine, hook, memory, options, start};

fn file_log(folder: &TempDir) -> Arc<dyn Log> {
    let options = FileLogOptions {
        segment_bytes: 64 * 1024,
        parts_of: spindle_engine::record::checked_parts,
        ..FileLogOptions::default()
    };
    Arc::new(FileLog::open_dir(folder.path(), options).unwrap())
}

/// Whether the log remembers of a hook that it has reported something: its place is behind an event then,
/// and not before a record.
fn has_told(engine: &Engine, receiver: &Receiver) -> bool {
    let name = hook(receiver, "dead").consumer();
    engine.feed().consumer(&name).is_some_and(|place| place.index > 0)
}

#[test]
fn what_happened_while_the_hook_was_away_is_told_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let first = engine(file_log(&folder));
    dead(&first, "q", "before there was a hook");
    let hooks = start(&first, &receiver, "dead", &options());
    dead(&first, "q", "reported");
    assert_eq!(receiver.next().json()["job"]["message"], "reported");
    // The receiver has heard it, but until its answer is read it would be sent again.
    wait_until("the hook has heard that it was taken", || has_told(&first, &receiver));
    drop(hooks);
    dead(&first, "q", "while it was away");
    first.stop();
    drop(first);
    let second = engine(file_log(&folder));
    let hooks = start(&second, &receiver, "dead", &options());
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
    let refuses = Receiver::start(|_| 503);
    let first = engine(file_log(&folder));
    let hooks = start(&first, &refuses, "dead", &options());
    dead(&first, "q", "important");
    let id = refuses.next().json()["id"].clone();
    drop(hooks);
    first.stop();
    drop(first);
    // Receives the earlier tries, until nothing more comes: later requests are from the second engine.
    while !refuses.is_quiet() {}
    let second = engine(file_log(&folder));
    let hooks = start(&second, &refuses, "dead", &options());
    let answer = refuses.next().json();
    assert_eq!((&answer["id"], &answer["job"]["message"]), (&id, &"important".into()));
    drop(hooks);
    second.stop();
}

#[test]
fn a_hook_whose_place_lies_beyond_the_end_of_the_log_begins_there() {
    let receiver = Receiver::start(|_| 200);
    let engine = memory();
    let beyond = FeedId { position: engine.durable().0 + 1_000, index: 1 };
    engine.feed().move_consumer(&hook(&receiver, "dead").consumer(), beyond).unwrap();
    let hooks = start(&engine, &receiver, "dead", &options());
    // The hook reports nothing until it has found that out.
    while receiver.is_quiet() {
        dead(&engine, "q", "fresh");
    }
    drop(hooks);
    engine.stop();
}

#[test]
fn a_hook_that_is_told_of_no_dead_jobs_is_not_remembered() {
    let receiver = Receiver::start(|_| 200);
    let engine = memory();
    let hooks = start(&engine, &receiver, "older=1h", &options());
    dead(&engine, "q", "nobody asked");
    drop(hooks);
    assert_eq!(engine.feed().consumer(&hook(&receiver, "older=1h").consumer()), None);
    engine.stop();
}
