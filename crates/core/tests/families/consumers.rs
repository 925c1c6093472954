//! Following the feed.

use spindle_core::command::Compact;
use spindle_core::consumer::{CONSUMER_NAME_BYTES_MAX, CONSUMERS_MAX, Consumer};
use spindle_core::{Command, Rejection};

use crate::harness::Server;

fn consumer(name: &str, position: u64, index: u32) -> Consumer {
    Consumer { name: name.to_owned().into(), position, index }
}

fn moved(name: &str, position: u64, index: u32) -> Command {
    Command::MoveConsumer(consumer(name, position, index))
}

#[test]
fn a_consumer_is_where_it_moved_last_and_a_move_to_there_is_none() {
    let mut server = Server::new();
    assert_eq!(server.then(moved("hook", 7, 2)), ["ConsumerMoved"]);
    assert!(server.then(moved("hook", 7, 2)).is_empty());
    assert_eq!(server.then(moved("hook", 6, 9)), ["ConsumerMoved"], "a log that was cut");
    assert_eq!(server.then(moved("other", 7, 2)), ["ConsumerMoved"]);
    let consumers = &server.state.server().consumers;
    assert_eq!(consumers.find(b"hook"), Some(&consumer("hook", 6, 9)));
    assert_eq!(consumers.find(b"nobody"), None);
}

#[test]
fn a_name_has_its_limits() {
    let mut server = Server::new();
    let longest = "x".repeat(CONSUMER_NAME_BYTES_MAX);
    assert_eq!(server.then(moved(&longest, 0, 0)), ["ConsumerMoved"]);
    for name in [String::new(), longest + "x"] {
        let refused = server.refused(moved(&name, 0, 0));
        assert_eq!(refused, Rejection::OutOfRange("the name of a consumer"));
    }
}

#[test]
fn the_consumer_that_has_not_moved_for_longest_is_forgotten() {
    let mut server = Server::new();
    for number in 0..CONSUMERS_MAX {
        server.given(moved(&number.to_string(), 1, 0));
    }
    server.given(moved("0", 2, 0));
    assert_eq!(server.state.server().consumers.moved.len(), CONSUMERS_MAX);
    server.given(moved("one more", 1, 0));
    let consumers = &server.state.server().consumers;
    assert_eq!(consumers.moved.len(), CONSUMERS_MAX);
    let found = ["0", "1", "2"].map(|name| consumers.find(name.as_bytes()).is_some());
    assert_eq!(found, [true, false, true]);
}

#[test]
fn consumers_survive_compaction() {
    let mut server = Server::new();
    server.given(moved("early", 3, 1));
    server.given(moved("late", 5, 0));
    server.given(moved("early", 4, 0));
    let below = server.position;
    server.given(Command::Compact(Compact::Server));
    server.given(moved("new", 9, 9));
    for folded in [server.folded(0), server.folded(below)] {
        assert_eq!(folded.server().consumers, server.state.server().consumers);
    }
}
