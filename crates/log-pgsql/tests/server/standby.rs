//! A server whose commits wait for a standby.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use spindle_log::{Ack, Log, LogLag, LogServerRole, LogServerState, Position, SharedLog};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};
use spindle_testkit::{PostgresServer, wait_until};

use crate::harness::{
    append, append_many, appender, check_fed, fatal, feed, impatient, is_waiting, options,
    options_at, record, submit, texts, wait_for,
};

/// A primary whose commits wait for its standby.
fn pair() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start(&[]);
    let standby = primary.standby("other");
    wait_for_standby(&primary, true);
    (primary, standby)
}

fn wait_for_standby(primary: &PostgresServer, yes: bool) {
    let names = if yes { "other" } else { "" };
    primary.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
    primary.sql("SELECT pg_reload_conf()");
    wait_for(primary, &format!("current_setting('synchronous_standby_names') = '{names}'"));
    // Commits wait, or not, when the process that makes checkpoints knows it.
    primary.sql("CHECKPOINT");
    if yes {
        wait_for(primary, "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')");
    }
}

/// Kills the standby. Its process that receives what the primary commits may outlive the first one by
/// a moment, so the primary is asked whether it is gone, too.
fn lose_standby(primary: &PostgresServer, standby: &mut PostgresServer) {
    standby.kill();
    wait_for(primary, "NOT EXISTS (SELECT FROM pg_stat_replication)");
}

/// A log on whichever of the two is the primary.
fn on_both(one: &PostgresServer, two: &PostgresServer, schema: &str) -> PgsqlLogOptions {
    let url = format!("postgres://spindle@{},{}/postgres", one.address(), two.address());
    options_at(&url, schema)
}

/// What a log says of its standbys: name, state, whether commits wait for it, and whether it says how far it is.
fn standbys(log: &PgsqlLog) -> Vec<(String, LogServerState, Option<bool>, bool)> {
    let servers = log.health().servers.into_iter();
    let standbys = servers.filter(|server| server.role == LogServerRole::Replica);
    let told = |it: spindle_log::LogServer| {
        let has_lag = matches!(it.lag, Some(LogLag::Bytes(_)));
        (it.name, it.state, it.is_synchronous, has_lag)
    };
    standbys.map(told).collect()
}

#[test]
fn it_says_how_its_standbys_are_as_far_as_its_role_may_know() {
    let (mut primary, mut standby) = pair();
    let log = PgsqlLog::open(&options(&primary, "health")).unwrap();
    let well = ("other".to_owned(), LogServerState::Current, Some(true), true);
    wait_until("it says that the standby is well", || standbys(&log) == [well.clone()]);
    let first = log.health().servers.swap_remove(0);
    let leads = (LogServerRole::Leader, LogServerState::Current);
    assert_eq!((first.name.as_str(), (first.role, first.state)), (primary.address(), leads));

    primary.sql("CREATE ROLE humble LOGIN; GRANT CREATE ON DATABASE postgres TO humble");
    let humble = PgsqlLog::open(&options_at(&primary.url("humble"), "humble")).unwrap();
    wait_until("it has heard something", || humble.health().heard.is_some());
    let [(_, state, synchronous, has_lag)] = &standbys(&humble)[..] else { panic!("one standby") };
    assert_eq!((*state, *synchronous, *has_lag), (LogServerState::Unknown, None, false));
    primary.sql("GRANT pg_read_all_stats TO humble");
    wait_until("it may know", || standbys(&humble) == [well.clone()]);

    // What a standby that is away leaves behind.
    lose_standby(&primary, &mut standby);
    primary.sql("SELECT pg_create_physical_replication_slot('third', true)");
    let away = ("third".to_owned(), LogServerState::Away, None, false);
    wait_until("the standby is gone, and another one away", || standbys(&log) == [away.clone()]);
    primary.kill();
    wait_until("it says why it knows nothing newer", || log.health().wrong.is_some());
    assert_eq!(standbys(&log), [away], "what was heard before");
}

/// Passes on the next answer.
fn answer<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    log: &'scope PgsqlLog,
) -> Receiver<Ack> {
    let (sender, receiver) = channel();
    scope.spawn(move || sender.send(log.next_ack()));
    receiver
}

#[test]
fn nothing_is_acknowledged_or_shown_before_the_standby_has_it() {
    let (primary, mut standby) = pair();
    let options = options(&primary, "waits");
    let log = PgsqlLog::open(&options).unwrap();
    let follower = PgsqlLog::open(&options).unwrap();
    let hasty = PgsqlLog::open(&impatient(&options)).unwrap();
    append(&log, &record(1, "one"));
    assert_eq!(follower.refresh().unwrap(), Position(1));
    lose_standby(&primary, &mut standby);
    submit(&log, &record(1, "two"));
    std::thread::scope(|scope| {
        let answer = answer(scope, &log);
        wait_for(&primary, &is_waiting(&options, "SyncRep"));
        assert_eq!(answer.try_recv().unwrap_err(), TryRecvError::Empty);
        hasty.refresh().unwrap_err();
        assert_eq!(texts(&follower), ["one"]);
        standby.restart();
        let ack = answer.recv().unwrap();
        assert!(matches!(ack, Ack::Committed(Position(1))), "{ack:?}");
    });
    assert_eq!(follower.refresh().unwrap(), Position(2));
}

#[test]
fn a_cancelled_wait_for_the_standby_is_no_commit() {
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let (primary, mut standby) = pair();
        let options = options(&primary, "cancelled");
        let log = PgsqlLog::open(&options).unwrap();
        let follower = PgsqlLog::open(&options).unwrap();
        let hasty = PgsqlLog::open(&impatient(&options)).unwrap();
        append(&log, &record(1, "one"));
        lose_standby(&primary, &mut standby);
        submit(&log, &record(1, "two"));
        wait_for(&primary, &is_waiting(&options, "SyncRep"));
        appender(&primary, &options, function);
        let ack = log.next_ack();
        assert!(matches!(ack, Ack::Unknown(Position(1))), "{function}: {ack:?}");
        // The row shows now, and is on no standby.
        assert_eq!(primary.sql("SELECT count(*) FROM cancelled.records_0"), "2");
        hasty.refresh().unwrap_err();
        let end = follower.wait_beyond(Position(1), Duration::from_millis(300)).unwrap();
        assert!(end <= Position(1), "{end} is not committed");
        submit(&log, &record(1, "two"));
        std::thread::scope(|scope| {
            let answer = answer(scope, &log);
            wait_for(
                &primary,
                "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
                 AND query LIKE 'UPDATE cancelled.head%')",
            );
            assert_eq!(answer.try_recv().unwrap_err(), TryRecvError::Empty);
            standby.restart();
            let ack = answer.recv().unwrap();
            assert!(matches!(ack, Ack::Committed(Position(1))), "{ack:?}");
        });
        assert_eq!(follower.refresh().unwrap(), Position(2));
    }
}

#[test]
fn everything_acknowledged_is_on_the_promoted_standby() {
    let (mut primary, standby) = pair();
    let options = on_both(&primary, &standby, "promoted");
    let log = PgsqlLog::open(&options).unwrap();
    let mut killed = false;
    feed(&log, 1_000, |at| {
        if at.0 >= 500 && !killed {
            killed = true;
            primary.kill();
            standby.promote();
            let other = PgsqlLog::open(&options).unwrap();
            assert!(other.next() > at, "{at} is lost, the log ends at {}", other.next());
        }
    });
    check_fed(&log, 1_000);
}

#[test]
fn a_standby_that_had_not_received_everything_is_not_taken_for_the_log() {
    let (mut primary, mut standby) = pair();
    let options = on_both(&primary, &standby, "shorter");
    let log = PgsqlLog::open(&options).unwrap();
    append_many(&log, 10);
    wait_for_standby(&primary, false);
    lose_standby(&primary, &mut standby);
    append_many(&log, 10);
    primary.kill();
    standby.restart();
    standby.promote();
    let text = fatal(&log);
    assert!(text.contains("record 19 is missing"), "{text}");
}

#[test]
fn a_standby_alone_is_refused_with_what_to_do() {
    let (_primary, standby) = pair();
    let error = PgsqlLog::open(&options(&standby, "any")).err().unwrap().to_string();
    assert!(error.contains("is a standby (name the primary"), "{error}");
}
