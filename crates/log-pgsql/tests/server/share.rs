//! Several nodes on one log.

use std::sync::mpsc::channel;
use std::time::Duration;

use spindle_log::{ANNOUNCEMENT_BYTES_MAX, Log, Position, SharedLog};
use spindle_log_pgsql::PgsqlLog;
use spindle_testkit::{PATIENCE, wait_until};

use crate::harness::{append, append_many, fresh, record, server, texts};

#[test]
fn a_follower_notices_what_another_one_appends() {
    let (leader, options) = fresh();
    let follower = PgsqlLog::open(&options).unwrap();
    let mut seen = Position(0);
    for count in [1, 5, 300, 300] {
        append_many(&leader, count);
        while seen < leader.next() {
            seen = follower.wait_beyond(seen, PATIENCE).unwrap();
            assert_eq!(follower.next(), seen);
        }
    }
    assert_eq!(texts(&follower), texts(&leader));
    assert_eq!(follower.bytes_on_disk(), leader.bytes_on_disk());
    assert_eq!(follower.segment_end_before(Position(0)), leader.segment_end_before(Position(0)));
    assert_eq!(follower.wait_beyond(seen, Duration::ZERO).unwrap(), seen);
}

#[test]
fn a_follower_that_hears_nothing_looks() {
    let (log, options) = fresh();
    append(&log, &record(1, "one"));
    let follower = PgsqlLog::open(&options).unwrap();
    let schema = options.schema();
    server().sql(&format!("INSERT INTO {schema}.records_0 VALUES (1, 1, 'two')"));
    assert_eq!(follower.wait_beyond(Position(1), PATIENCE).unwrap(), Position(2));
    assert_eq!(texts(&follower), ["one", "two"]);
}

#[test]
fn a_refresh_finds_all_that_was_committed_before() {
    let (leader, options) = fresh();
    let follower = PgsqlLog::open(&options).unwrap();
    for round in 1..20 {
        append_many(&leader, 40);
        assert_eq!(follower.refresh().unwrap(), Position(round * 40));
    }
    assert_eq!(texts(&follower).len(), 760);
}

#[test]
fn announcements_arrive_whole() {
    let (one, options) = fresh();
    let two = PgsqlLog::open(&options).unwrap();
    let (sender, heard) = channel();
    two.on_announcement(Box::new(move |bytes| sender.send(bytes.to_vec()).unwrap()));
    let long: Vec<u8> = (0..ANNOUNCEMENT_BYTES_MAX).map(|at| at as u8).collect();
    // It is not known when the others listen: the first announcements may come before that.
    wait_until("an announcement", || {
        one.announce(b"is anybody there?");
        heard.try_recv().is_ok()
    });
    one.announce(&[0; ANNOUNCEMENT_BYTES_MAX + 1]);
    wait_until("the long one", || {
        one.announce(&long);
        heard.try_iter().any(|bytes| bytes == long)
    });
}
