//! One server: the contract, and streams that are not as they should be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Source, StorageType};
use spindle_log::{Ack, Log, LogError, Position, ReadError, SharedLog, Space};
use spindle_log_nats::NatsLog;
use spindle_testkit::{NatsServers, NatsSetup, log_conformance, wait_until};

use crate::harness::{
    Admin, append, append_counting, check, open, open_quick, options, quick_options, quick_server,
    record, refusal,
};

type Change = fn(&mut Config);

#[test]
fn the_contract_is_kept() {
    let servers = quick_server();
    let mut streams = 0;
    log_conformance::run(&mut || {
        streams += 1;
        let mut options = quick_options(&servers);
        options.stream = format!("log-{streams}");
        Arc::new(NatsLog::open(&options).expect("opens"))
    });
}

#[test]
fn records_and_trims_survive_a_crash_of_the_server() {
    let mut servers = NatsServers::one();
    let log = open(&servers);
    append(&log, 1, 100);
    let end = log.segment_end_before(Position(20)).expect("a closed run");
    log.trim_before(end).expect("trimmed");
    servers.crash(0);
    servers.restart(0);
    servers.await_ready();
    append(&log, 1, 5);
    check(&log, end.0, 105);
    drop(log);
    let log = open(&servers);
    assert_eq!((log.first(), log.next()), (end, Position(105)));
    check(&log, end.0, 105);
    assert!(log.bytes_on_disk() > 0 && log.segment_end_before(end).is_some());
    let trimmed = log.read(Position(0)).err();
    assert!(matches!(trimmed, Some(ReadError::Trimmed { first, .. }) if first == end));
}

#[test]
fn each_wrong_setting_of_a_stream_is_refused_by_name() {
    let servers = NatsServers::one();
    drop(open(&servers));
    let admin = Admin::of(&servers);
    let sound = admin.config();
    admin.delete_stream();
    let changes: [(&str, Change); 12] = [
        ("`subjects` must be", |c| c.subjects.push("spindle.more".to_owned())),
        ("`retention` must be limits", |c| {
            (c.retention, c.allow_direct) = (RetentionPolicy::WorkQueue, true);
        }),
        ("`storage` must be file", |c| c.storage = StorageType::Memory),
        ("`discard` must be new", |c| c.discard = DiscardPolicy::Old),
        ("`max_age` must be 0", |c| c.max_age = Duration::from_secs(60)),
        ("`max_msgs_per_subject` must be -1", |c| c.max_messages_per_subject = 5),
        ("`max_msg_size` must be -1", |c| c.max_message_size = 1000),
        ("`deny_purge` must be false", |c| c.deny_purge = true),
        ("`allow_rollup_hdrs` must be false", |c| c.allow_rollup = true),
        ("`allow_direct` must be true", |c| c.allow_direct = false),
        ("`republish` must be", |c| c.republish = None),
        ("`mirror and sources` must be none", |c| {
            let name = "other".to_owned();
            c.sources = Some(vec![Source { name, ..Source::default() }]);
        }),
    ];
    let other = Config { name: "other".to_owned(), ..Config::default() };
    admin.create(other);
    for (sentence, change) in changes {
        let mut config = sound.clone();
        change(&mut config);
        admin.create(config);
        let error = refusal(&options(&servers)).to_string();
        assert!(error.contains(sentence), "{sentence}: {error}");
        admin.delete_stream();
    }
    admin.create(sound);
    open(&servers);
}

#[test]
fn a_stream_of_somebody_else_is_refused() {
    let servers = NatsServers::one();
    let admin = Admin::of(&servers);
    drop(open(&servers));
    let mut config = admin.config();
    let publish = || {
        let sent = admin.context.publish("spindle.log", "hello".into());
        admin.runtime.block_on(async { sent.await.expect("sent").await.expect("stored") });
    };
    publish();
    let error = refusal(&options(&servers)).to_string();
    assert!(error.contains("message 1: it has no header Spindle-Record"), "{error}");
    admin.delete_stream();
    config.metadata.clear();
    admin.create(config);
    let error = refusal(&options(&servers)).to_string();
    assert!(error.contains("has no `spindle-log`") && error.contains("another stream"), "{error}");
}

#[test]
fn a_deleted_message_is_damage_and_what_is_before_it_can_be_read() {
    let servers = NatsServers::one();
    drop(open(&servers));
    let admin = Admin::of(&servers);
    let mut config = admin.config();
    admin.delete_stream();
    // The log's own streams allow no deletion of messages.
    config.deny_delete = false;
    admin.create(config);
    append(&open(&servers), 1, 5);
    admin.runtime.block_on(admin.stream().delete_message(3)).expect("deleted");
    let log = open(&servers);
    let read: Vec<_> = log.read(Position(0)).expect("begins").collect();
    let error = read.iter().find_map(|read| read.as_ref().err()).expect("an error").to_string();
    assert!(
        error.contains("message 3 of the stream spindle") && error.contains("missing"),
        "{error}"
    );
    assert!(log.read_at(Position(2), 0, 1).is_err());
    assert_eq!(log.read_at(Position(3), 0, 6).expect("there"), "record");
}

#[test]
fn a_message_cannot_be_deleted_from_a_stream_that_the_log_has_made() {
    let servers = NatsServers::one();
    append(&open(&servers), 1, 5);
    let admin = Admin::of(&servers);
    admin.runtime.block_on(admin.stream().delete_message(3)).expect_err("refused");
    check(&open(&servers), 0, 5);
}

#[test]
fn a_stream_that_was_made_anew_stops_the_log() {
    let servers = NatsServers::one();
    let log = open(&servers);
    append(&log, 1, 5);
    let admin = Admin::of(&servers);
    let config = admin.config();
    admin.delete_stream();
    admin.create(config);
    wait_until("the log to notice", || log.check().is_err());
    let error = log.check().expect_err("stopped").to_string();
    assert!(error.contains("was deleted and made anew"), "{error}");
    assert!(log.submit(log.next(), &record(1, 5)).is_err());
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::NothingSubmitted)));
    assert!(log.refresh().is_err());
    assert!(log.wait_beyond(Position(99), Duration::from_secs(600)).is_err());
}

#[test]
fn an_append_to_a_stream_that_is_gone_stops_the_log() {
    let servers = NatsServers::one();
    let log = open(&servers);
    append(&log, 1, 5);
    Admin::of(&servers).delete_stream();
    let at = log.next();
    wait_until("a fatal answer", || match log.submit(at, &record(1, 5)) {
        Ok(()) => matches!(log.next_ack(), Ack::Fatal(_)),
        Err(_) => true,
    });
    let error = log.check().expect_err("stopped").to_string();
    assert!(
        error.contains("ends at position 0, and this process knows records up to 5"),
        "{error}"
    );
}

#[test]
fn a_full_stream_is_waited_for() {
    let servers = NatsServers::one();
    let log = open(&servers);
    let admin = Admin::of(&servers);
    admin.update(|config| config.max_bytes = 64 * 1024);
    let again = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| append_counting(&log, 1, 400, &again));
        wait_until("a record that does not fit", || again.load(Ordering::Relaxed) > 0);
        assert_eq!(log.space(), Space::ReserveOnly);
        admin.update(|config| config.max_bytes = -1);
    });
    check(&log, 0, 400);
    wait_until("room", || log.space() == Space::Ample);
}

#[test]
fn a_trim_makes_room_in_a_full_stream() {
    let servers = quick_server();
    let log = open_quick(&servers);
    Admin::of(&servers).update(|config| config.max_bytes = 64 * 1024);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&log, 1, 1000));
        while !writer.is_finished() {
            if log.space() == Space::ReserveOnly
                && let Some(end) = log.segment_end_before(log.first())
            {
                log.trim_before(end).expect("trimmed");
            }
        }
    });
    assert!(log.first() > Position(0));
    check(&log, log.first().0, 1000);
}

/// A purge that a server makes while it stores records can leave it with a wrong count.
#[test]
fn records_are_taken_after_somebody_else_has_purged() {
    let servers = NatsServers::one();
    let log = open(&servers);
    let admin = Admin::of(&servers);
    for round in 1..=20 {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| append(&log, 1, 100));
            wait_until("half of them", || log.next().0 > round * 100 - 50);
            admin.purge_half();
            writer.join().expect("all were taken");
        });
    }
    log.refresh().expect("asked");
    check(&log, log.first().0, 2000);
}

#[test]
fn a_server_that_takes_short_messages_only_is_refused() {
    let more = "max_payload: 65536";
    let servers = NatsServers::start(NatsSetup { more, ..NatsSetup::default() });
    let error = refusal(&options(&servers)).to_string();
    assert!(error.contains("65536") && error.contains("raise max_payload"), "{error}");
}
