//! Servers that die.

use std::sync::atomic::{AtomicU64, Ordering};

use spindle_log::{Ack, Log, Position, SharedLog};
use spindle_log_pgsql::PgsqlLog;
use spindle_testkit::{PostgresServer, wait_until};

use crate::harness::{
    append, append_many, appender, check_fed, fatal, feed, fresh, impatient, options, record,
    server, submit,
};

#[test]
fn everything_acknowledged_survives_kills_of_the_server_in_order_and_once() {
    let mut server = PostgresServer::start(&[]);
    let options = options(&server, "killed");
    let log = PgsqlLog::open(&options).unwrap();
    let until = 3_000;
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let feeder = scope.spawn(|| {
            feed(&log, until, |at| acknowledged.store(at.0 + 1, Ordering::Release));
        });
        for kill_at in [300, 1_000, 2_000] {
            wait_until("records", || acknowledged.load(Ordering::Acquire) >= kill_at);
            server.kill();
            server.restart();
            let known = acknowledged.load(Ordering::Acquire);
            let other = PgsqlLog::open(&options).unwrap();
            assert!(
                other.next().0 >= known,
                "{known} acknowledged, the log ends at {}",
                other.next()
            );
        }
        feeder.join().unwrap();
    });
    check_fed(&log, until);
    check_fed(&PgsqlLog::open(&options).unwrap(), until);
}

#[test]
fn while_the_server_is_away_answers_are_unknown_and_an_idle_log_is_well() {
    let mut server = PostgresServer::start(&[]);
    let options = options(&server, "away");
    let log = PgsqlLog::open(&impatient(&options)).unwrap();
    append(&log, &record(1, "before"));
    // All of it: a process that serves a connection may outlive the first one by a statement.
    server.crash();
    submit(&log, &record(1, "meanwhile"));
    assert!(matches!(log.next_ack(), Ack::Unknown(Position(1))));
    log.read_at(Position(0), 0, 1).unwrap_err();
    log.refresh().unwrap_err();
    log.check().unwrap();
    server.restart();
    wait_until("the log goes on", || {
        submit(&log, &record(1, "meanwhile"));
        matches!(log.next_ack(), Ack::Committed(Position(1)))
    });
    wait_until("a read", || log.read_at(Position(0), 0, 6).is_ok_and(|bytes| bytes == "before"));
}

#[test]
fn a_log_that_has_lost_what_was_committed_is_not_gone_on_with() {
    let (log, options) = fresh();
    append_many(&log, 10);
    let schema = options.schema();
    server().sql(&format!("DELETE FROM {schema}.records_0 WHERE position = 9"));
    appender(server(), &options, "pg_terminate_backend");
    let text = fatal(&log);
    assert!(text.contains("record 9 is missing") && text.contains("promoted"), "{text}");
    log.check().unwrap_err();
    log.submit(log.next(), &record(1, "next")).unwrap_err();
}
