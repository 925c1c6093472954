//! Several processes with one log.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use spindle_log::{ANNOUNCEMENT_BYTES_MAX, Ack, Log, Position, ReadError, Record, SharedLog};
use spindle_testkit::{NatsServers, PATIENCE, wait_until};

use crate::harness::{all, append, check, open, open_quick, quick_server, record};

#[test]
fn an_identical_record_is_committed_once_and_another_one_is_a_conflict() {
    let servers = NatsServers::one();
    let (one, two, three) = (open(&servers), open(&servers), open(&servers));
    append(&one, 1, 1);
    two.submit(Position(0), &record(1, 0)).expect("submitted");
    assert!(matches!(two.next_ack(), Ack::Committed(Position(0))));
    for number in [0, 1, 2] {
        three.submit(Position(number), &record(2, number)).expect("submitted");
    }
    match three.next_ack() {
        Ack::Conflict { at: Position(0), stored: Some(stored) } => {
            assert_eq!((stored.epoch, stored.bytes), (1, record(1, 0).bytes));
        }
        other => panic!("no conflict: {other:?}"),
    }
    for number in [1, 2] {
        assert!(matches!(three.next_ack(), Ack::Conflict { at, .. } if at == Position(number)));
    }
    check(&open(&servers), 0, 1);
}

#[test]
fn after_a_conflict_a_refresh_shows_the_end() {
    let servers = NatsServers::one();
    let (one, two) = (open(&servers), open(&servers));
    append(&one, 1, 3);
    assert_eq!(two.next(), Position(0), "nobody has asked yet");
    assert_eq!(two.refresh().expect("answered"), Position(3));
    check(&two, 0, 3);
    append(&one, 1, 2);
    two.submit(Position(3), &record(2, 3)).expect("submitted");
    assert!(matches!(two.next_ack(), Ack::Conflict { at: Position(3), .. }));
    assert_eq!(two.refresh().expect("answered"), Position(5));
    append(&two, 2, 1);
    check(&two, 0, 6);
}

#[test]
fn a_straggler_of_the_writer_before_lets_nothing_in_behind_it() {
    let servers = NatsServers::one();
    append(&open(&servers), 1, 3);
    let (newer, older) = (open(&servers), open(&servers));
    append(&newer, 2, 1);
    // What the older writer had on its way comes late, and in the place of the newer one's next.
    assert_eq!(older.refresh().expect("answered"), Position(4));
    append(&older, 1, 1);
    for number in 4..7 {
        newer.submit(Position(number), &record(2, number)).expect("submitted");
    }
    match newer.next_ack() {
        Ack::Conflict { at: Position(4), stored: Some(stored) } => assert_eq!(stored.epoch, 1),
        other => panic!("no conflict: {other:?}"),
    }
    assert!(matches!(newer.next_ack(), Ack::Conflict { at: Position(5), .. }));
    assert!(matches!(newer.next_ack(), Ack::Conflict { at: Position(6), .. }));
    assert_eq!(newer.refresh().expect("answered"), Position(5), "one without the one before it");
    check(&newer, 0, 5);
}

/// Takes the log over with a record of a higher epoch, and appends `count` records more, several at
/// once, until somebody else takes it over. Returns which positions it was told are its own.
fn lead(servers: &NatsServers, count: u64) -> Vec<(Position, String)> {
    let log = open_quick(servers);
    let epoch = all(&log, log.first()).iter().map(|stored| stored.epoch).max().unwrap_or(0) + 1;
    let text = |number: u64| format!("{epoch} {number} {:p}", &raw const log);
    let (mut sent, mut told, mut lost) = (0, Vec::new(), false);
    while !lost && (told.len() as u64) < count {
        // Nothing else is decided before it is known who leads.
        let ahead = if told.is_empty() { 1 } else { log.in_flight_max() as u64 };
        while sent < count && sent < told.len() as u64 + ahead {
            let record = Record { epoch, bytes: text(sent).into() };
            log.submit(log.next(), &record).expect("submitted");
            sent += 1;
        }
        match log.next_ack() {
            Ack::Committed(position) => told.push((position, text(told.len() as u64))),
            Ack::Conflict { .. } | Ack::Unknown(_) => lost = true,
            Ack::Fatal(error) => panic!("{error}"),
        }
    }
    told
}

#[test]
fn of_two_writers_that_race_each_has_whole_what_a_fold_keeps_of_it() {
    const TURNS: usize = 6;
    let servers = quick_server();
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let mine = lead(&servers, 120);
                    told.lock().expect("sound").extend(mine);
                }
            });
        }
    });
    let told: BTreeMap<Position, String> = told.into_inner().expect("sound").into_iter().collect();
    let log = open_quick(&servers);
    let (mut epoch, mut next) = (0, 0);
    for stored in all(&log, Position(0)) {
        let text = String::from_utf8(stored.bytes.to_vec()).expect("text");
        if stored.epoch < epoch {
            // A straggler of the writer before: a fold skips it, and no writer relies on it.
            assert!(!told.contains_key(&stored.position), "{text} was committed and is skipped");
            continue;
        }
        if stored.epoch > epoch {
            (epoch, next) = (stored.epoch, 0);
        }
        assert!(
            text.starts_with(&format!("{epoch} {next} ")),
            "{text} is in the log without the record before it, {next}"
        );
        next += 1;
    }
    for (position, text) in &told {
        let len = u32::try_from(text.len()).expect("short");
        assert_eq!(log.read_at(*position, 0, len).expect("there"), text.as_bytes());
    }
}

#[test]
fn a_follower_notices_what_others_append() {
    let servers = NatsServers::one();
    let (leader, follower) = (open(&servers), open(&servers));
    let mut end = Position(0);
    assert_eq!(follower.wait_beyond(end, Duration::ZERO).expect("nothing"), end);
    for round in 1..=20 {
        append(&leader, 1, 3);
        while end < Position(3 * round) {
            end = follower.wait_beyond(end, PATIENCE).expect("noticed");
        }
        assert_eq!(follower.next(), end);
        check(&follower, 0, end.0);
    }
}

#[test]
fn a_follower_finds_what_another_one_has_trimmed() {
    let servers = NatsServers::one();
    let (leader, follower) = (open(&servers), open(&servers));
    append(&leader, 1, 200);
    assert_eq!(follower.refresh().expect("answered"), Position(200));
    let end = leader.segment_end_before(Position(100)).expect("a closed run");
    leader.trim_before(end).expect("trimmed");
    wait_until("the follower to see the trim", || follower.first() == end);
    let trimmed = follower.read(Position(0)).err();
    assert!(matches!(trimmed, Some(ReadError::Trimmed { first, .. }) if first == end));
    check(&follower, end.0, 200);
}

#[test]
fn announcements_arrive_whole() {
    let servers = NatsServers::one();
    let (one, two) = (open(&servers), open(&servers));
    let (hears, heard) = channel();
    two.on_announcement(Box::new(move |bytes| hears.send(bytes.to_vec()).unwrap_or_default()));
    // Every process that has opened the log on the same server hears what is announced after that.
    one.announce(b"I lead");
    assert_eq!(heard.recv_timeout(PATIENCE).expect("heard"), b"I lead");
    let long: Vec<u8> = (0..ANNOUNCEMENT_BYTES_MAX).map(|at| at as u8).collect();
    one.announce(&[0; ANNOUNCEMENT_BYTES_MAX + 1]);
    one.announce(&long);
    assert_eq!(heard.recv_timeout(PATIENCE).expect("heard"), long);
}
