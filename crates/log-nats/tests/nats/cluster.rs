//! Three servers, some of which fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nix::sys::signal::Signal;
use spindle_log::{Log, LogServerRole, LogServerState, Position, SharedLog};
use spindle_log_nats::{NatsLog, NatsLogOptions, OpenError};
use spindle_testkit::{NatsServers, NatsSetup, PATIENCE, log_conformance, wait_until};

use crate::harness::{Admin, append_counting, check, open_at, options, quick_options, refusal};

/// For all tests that kill no server. They do not sync: that only matters when all are killed.
fn quick_servers() -> &'static NatsServers {
    static SERVERS: LazyLock<&NatsServers> = LazyLock::new(|| {
        let setup = NatsSetup { servers: 3, sync_interval: "\"2m\"", ..NatsSetup::default() };
        NatsServers::start(setup).shared()
    });
    *SERVERS
}

/// A log of its own on them.
fn fresh() -> NatsLogOptions {
    static STREAMS: AtomicU64 = AtomicU64::new(0);
    let stream = format!("log-{}", STREAMS.fetch_add(1, Ordering::Relaxed));
    NatsLogOptions { stream, ..quick_options(quick_servers()) }
}

#[test]
fn the_contract_is_kept_on_three_servers() {
    log_conformance::run(&mut || Arc::new(open_at(&fresh())));
}

#[test]
fn the_contract_is_kept_on_three_servers_between_two_writers() {
    log_conformance::run_shared(&mut || {
        let options = fresh();
        [Arc::new(open_at(&options)), Arc::new(open_at(&options))]
    });
}

#[test]
fn too_few_replicas_are_refused() {
    let mut options = fresh();
    options.replicas = 1;
    drop(NatsLog::open(&options).expect("opens"));
    options.replicas = 3;
    let error = refusal(&options).to_string();
    assert!(error.contains("`num_replicas` must be 3 or more (it is 1)"), "{error}");
}

#[test]
fn three_replicas_on_one_server_are_refused() {
    let servers = NatsServers::one();
    let mut options = options(&servers);
    (options.replicas, options.open_timeout) = (3, Duration::ZERO);
    assert!(matches!(refusal(&options), OpenError::JetStream { doing: "make", .. }));
}

/// Does not wait long for servers that are gone.
fn open_impatient(servers: &NatsServers) -> NatsLog {
    let answer_timeout = Duration::from_secs(2);
    NatsLog::open(&NatsLogOptions { answer_timeout, ..options(servers) }).expect("opens")
}

/// Appends until told to stop. Returns how many records are committed.
fn write(log: &NatsLog, stop: &AtomicBool, again: &AtomicU64) -> u64 {
    while !stop.load(Ordering::Relaxed) {
        append_counting(log, 1, 20, again);
    }
    log.next().0
}

/// Runs `harm` under the load of a writer, and checks that exactly what it appended is there, in
/// order, for it, for a follower that was there, and for one that comes later.
fn under_load(servers: &mut NatsServers, harm: impl FnOnce(&mut NatsServers, &NatsLog)) {
    let (log, follower) = (open_impatient(servers), open_impatient(servers));
    let (stop, again) = (AtomicBool::new(false), AtomicU64::new(0));
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&log, &stop, &again));
        wait_until("the first hundred", || log.next() > Position(100));
        harm(servers, &log);
        let before = log.next();
        wait_until("the writer to go on", || log.next().0 > before.0 + 200);
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("it went on")
    });
    assert!(again.into_inner() > 0, "the writer has noticed nothing");
    check(&log, 0, written);
    let mut end = follower.next();
    while end.0 < written {
        end = follower.wait_beyond(end, PATIENCE).expect("noticed");
    }
    check(&follower, 0, written);
    // A log opens while one of three servers is away, too.
    check(&open_impatient(servers), 0, written);
}

fn leader(servers: &NatsServers) -> usize {
    let admin = Admin::of(servers);
    let mut leader = None;
    wait_until("a leader", || {
        leader = admin.leader();
        leader.is_some()
    });
    servers.index_of(&leader.unwrap_or_default())
}

#[test]
fn nothing_is_lost_or_doubled_when_the_leader_of_the_stream_is_killed() {
    under_load(&mut NatsServers::three(), |servers, log| {
        let leader = leader(servers);
        let name = format!("n{leader}");
        let states = |log: &NatsLog| {
            let states = log.health().servers.into_iter().map(|it| (it.name, (it.role, it.state)));
            states.collect::<BTreeMap<_, _>>()
        };
        let all_are_current = |log: &NatsLog| {
            let states = states(log);
            states.len() == 3 && states.values().all(|(_, state)| *state == LogServerState::Current)
        };
        wait_until("it says that all are well", || all_are_current(log));
        assert_eq!(states(log)[&name].0, LogServerRole::Leader);
        servers.crash(leader);
        let away = (LogServerRole::Replica, LogServerState::Away);
        wait_until("it says who is away", || states(log).get(&name) == Some(&away));
        assert!(log.health().wrong.is_none(), "the new leader says so");
    });
}

#[test]
fn nothing_is_lost_or_doubled_when_the_leader_of_the_stream_sleeps() {
    under_load(&mut NatsServers::three(), |servers, log| {
        let leader = leader(servers);
        servers.signal(leader, Signal::SIGSTOP);
        // Records that it sent were in nobody's hands; it wakes up when the others have gone on.
        let before = log.next();
        wait_until("a new leader", || log.next().0 > before.0 + 100);
        servers.signal(leader, Signal::SIGCONT);
    });
}

#[test]
fn nothing_is_lost_or_doubled_when_all_servers_are_killed() {
    under_load(&mut NatsServers::three(), |servers, _| {
        (0..3).for_each(|index| servers.crash(index));
        (0..3).for_each(|index| servers.restart(index));
        servers.await_ready();
    });
}
