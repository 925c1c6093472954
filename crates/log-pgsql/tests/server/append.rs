//! One writer, two writers, and a writer whose answers get lost.

use spindle_log::{Ack, Log, Position, SharedLog};
use spindle_log_pgsql::PgsqlLog;

use crate::harness::{
    append, append_many, appender, fresh, is_waiting, record, server, submit, texts, wait_for,
};

#[test]
fn a_log_is_as_it_was_when_it_is_opened_again() {
    let (log, options) = fresh();
    append_many(&log, 700);
    let (next, bytes, id) = (log.next(), log.bytes_on_disk(), log.log_id());
    let (end, kept) = (log.segment_end_before(log.first()), texts(&log));
    drop(log);
    let log = PgsqlLog::open(&options).unwrap();
    assert_eq!((log.next(), log.bytes_on_disk(), log.log_id()), (next, bytes, id));
    assert_eq!((log.segment_end_before(log.first()), texts(&log)), (end, kept));
    log.trim_before(next).unwrap();
    let first = log.first();
    drop(log);
    let log = PgsqlLog::open(&options).unwrap();
    assert_eq!((log.first(), log.next()), (first, next));
    assert_eq!(append(&log, &record(2, "more")), next);
}

#[test]
fn of_two_writers_one_wins_and_the_other_one_learns_of_it() {
    let (one, options) = fresh();
    let two = PgsqlLog::open(&options).unwrap();
    append(&one, &record(1, "one"));
    for text in ["two", "more"] {
        submit(&two, &record(2, text));
    }
    let ack = two.next_ack();
    let Ack::Conflict { at: Position(0), stored: Some(stored) } = ack else { panic!("{ack:?}") };
    assert_eq!((stored.epoch, &*stored.bytes), (1, &b"one"[..]));
    assert!(matches!(two.next_ack(), Ack::Conflict { at: Position(1), .. }));
    two.submit(two.next(), &record(2, "still")).unwrap_err();
    drop(two);
    let two = PgsqlLog::open(&options).unwrap();
    append(&two, &record(2, "two"));
    assert_eq!(one.refresh().unwrap(), Position(2));
    assert_eq!(texts(&one), ["one", "two"]);
}

#[test]
fn writers_that_race_get_each_position_once() {
    let (_, options) = fresh();
    let won = |writer: u64| {
        let log = PgsqlLog::open(&options).unwrap();
        let mut won = Vec::new();
        let mut log = Some(log);
        while won.len() < 20 {
            let open = log.take().unwrap_or_else(|| PgsqlLog::open(&options).unwrap());
            let at = submit(&open, &record(writer, &format!("{writer}")));
            match open.next_ack() {
                Ack::Committed(position) if position == at => won.push(at),
                Ack::Conflict { .. } => continue,
                other => panic!("{other:?}"),
            }
            log = Some(open);
        }
        won
    };
    let (one, two) = std::thread::scope(|scope| {
        let (one, two) = (scope.spawn(|| won(1)), scope.spawn(|| won(2)));
        (one.join().unwrap(), two.join().unwrap())
    });
    let log = PgsqlLog::open(&options).unwrap();
    assert_eq!(log.next(), Position(40));
    for (position, text) in (0..).map(Position).zip(texts(&log)) {
        let (mine, others) = if text == "1" { (&one, &two) } else { (&two, &one) };
        assert!(mine.contains(&position) && !others.contains(&position), "{position} is {text}");
    }
}

#[test]
fn a_record_that_stands_there_already_is_committed() {
    let (one, options) = fresh();
    let two = PgsqlLog::open(&options).unwrap();
    append(&one, &record(1, "same"));
    append(&one, &record(1, "too"));
    for text in ["same", "too", "more"] {
        submit(&two, &record(1, text));
    }
    for at in 0..3 {
        let ack = two.next_ack();
        assert!(matches!(ack, Ack::Committed(Position(p)) if p == at), "{ack:?}");
    }
    assert_eq!(texts(&two), ["same", "too", "more"]);
}

#[test]
fn the_same_bytes_of_another_epoch_are_another_record() {
    let (one, options) = fresh();
    let two = PgsqlLog::open(&options).unwrap();
    append(&one, &record(1, "same"));
    submit(&two, &record(2, "same"));
    assert!(matches!(two.next_ack(), Ack::Conflict { at: Position(0), .. }));
}

#[test]
fn a_writer_does_not_go_on_in_a_run_that_another_one_has_closed() {
    let (one, options) = fresh();
    append_many(&one, 250);
    let two = PgsqlLog::open(&options).unwrap();
    append_many(&one, 20);
    submit(&two, &record(2, "late"));
    assert!(matches!(two.next_ack(), Ack::Conflict { at: Position(250), .. }));
    assert_eq!(one.refresh().unwrap(), Position(270));
    assert_eq!(texts(&one).len(), 270);
}

#[test]
fn an_append_whose_connection_is_lost_is_unknown_and_can_be_made_again() {
    let (log, options) = fresh();
    append(&log, &record(1, "first"));
    let schema = options.schema();
    let hold = format!("BEGIN; LOCK TABLE {schema}.records_0 IN EXCLUSIVE MODE;");
    server().sql(&format!("{hold} PREPARE TRANSACTION 'held_{schema}'"));
    for text in ["one", "two", "three"] {
        submit(&log, &record(1, text));
    }
    wait_for(server(), &is_waiting(&options, "relation"));
    appender(server(), &options, "pg_terminate_backend");
    for at in 1..4 {
        assert_eq!(log.next(), Position(4));
        let ack = log.next_ack();
        assert!(matches!(ack, Ack::Unknown(Position(p)) if p == at), "{ack:?}");
        if at < 3 {
            log.submit(log.next(), &record(1, "too early")).unwrap_err();
        }
    }
    assert_eq!(log.next(), Position(1));
    server().sql(&format!("COMMIT PREPARED 'held_{schema}'"));
    for text in ["one", "two", "three"] {
        append(&log, &record(1, text));
    }
    assert_eq!(texts(&log), ["first", "one", "two", "three"]);
}
