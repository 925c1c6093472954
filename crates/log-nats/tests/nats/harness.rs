//! Logs on servers of a test's own, writers that do as the contract says, and an administrator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::stream::{Config, Info, Stream};
use async_nats::jetstream::{self, Context};
use spindle_log::{Ack, Log, Position, Record, Stored};
use spindle_log_nats::{NatsLog, NatsLogOptions, OpenError, SyncCheck};
use spindle_testkit::{NatsServers, NatsSetup, PATIENCE};
use tokio::runtime::Runtime;

/// What a log on these servers is opened with. Runs are short, and a busy machine has time to
/// answer.
pub fn options(servers: &NatsServers) -> NatsLogOptions {
    NatsLogOptions {
        servers: servers.urls(),
        replicas: servers.urls().len(),
        sync: SyncCheck::Monitoring(servers.monitoring()),
        run_bytes: 4096,
        answer_timeout: Duration::from_secs(20),
        ..NatsLogOptions::default()
    }
}

/// A server that does not sync, for tests that append much and kill no server.
pub fn quick_server() -> NatsServers {
    NatsServers::start(NatsSetup { sync_interval: "\"2m\"", ..NatsSetup::default() })
}

/// What a log on it is opened with.
pub fn quick_options(servers: &NatsServers) -> NatsLogOptions {
    NatsLogOptions { sync: SyncCheck::Os, ..options(servers) }
}

pub fn open_quick(servers: &NatsServers) -> NatsLog {
    open_at(&quick_options(servers))
}

pub fn open(servers: &NatsServers) -> NatsLog {
    open_at(&options(servers))
}

pub fn open_at(options: &NatsLogOptions) -> NatsLog {
    NatsLog::open(options).expect("opens")
}

/// Why it does not open.
#[track_caller]
pub fn refusal(options: &NatsLogOptions) -> OpenError {
    match NatsLog::open(options) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

pub fn record(epoch: u64, number: u64) -> Record {
    Record { epoch, bytes: format!("record {number:->100}").into() }
}

/// Appends records in order, as many at once as the log likes, until all are committed, and counts
/// how often it had to begin again.
fn append_all(log: &NatsLog, records: &[Record], again: &AtomicU64) {
    let first = log.next();
    let at = |index: usize| Position(first.0 + index as u64);
    let (mut sent, mut committed) = (0, 0);
    let mut moved = Instant::now();
    while committed < records.len() {
        while sent < records.len() && sent - committed < log.in_flight_max() {
            log.submit(at(sent), &records[sent]).expect("submitted");
            sent += 1;
        }
        match log.next_ack() {
            Ack::Committed(position) => {
                assert_eq!(position, at(committed));
                committed += 1;
                moved = Instant::now();
            }
            Ack::Unknown(position) => {
                assert_eq!(position, at(committed));
                for behind in committed + 1..sent {
                    assert!(matches!(log.next_ack(), Ack::Unknown(p) if p == at(behind)));
                }
                assert_eq!(log.next(), at(committed), "the end goes back");
                let space = log.space();
                assert!(moved.elapsed() < PATIENCE, "{committed} committed, then none ({space:?})");
                sent = committed;
                again.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("not committed: {other:?}"),
        }
    }
}

/// Appends this many records of an epoch; their numbers are their positions.
pub fn append(log: &NatsLog, epoch: u64, count: u64) {
    append_counting(log, epoch, count, &AtomicU64::new(0));
}

/// The same, and counts how often it had to begin again.
pub fn append_counting(log: &NatsLog, epoch: u64, count: u64, again: &AtomicU64) {
    let numbers = log.next().0..log.next().0 + count;
    let records: Vec<Record> = numbers.map(|number| record(epoch, number)).collect();
    append_all(log, &records, again);
}

pub fn all(log: &dyn Log, from: Position) -> Vec<Stored> {
    log.read(from).expect("readable").map(|stored| stored.expect("sound")).collect()
}

/// The log holds the records of `from..to` that [`append`] has made, and no others.
#[track_caller]
pub fn check(log: &dyn Log, from: u64, to: u64) {
    let stored = all(log, Position(from));
    assert_eq!(stored.len() as u64, to - from, "another number of records");
    for (number, stored) in (from..to).zip(stored) {
        assert_eq!(stored.position, Position(number));
        assert_eq!(stored.bytes, record(0, number).bytes);
    }
}

/// An administrator with a client of its own.
pub struct Admin {
    pub context: Context,
    pub runtime: Runtime,
}

impl Admin {
    pub fn of(servers: &NatsServers) -> Admin {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let context = runtime.block_on(async {
            jetstream::new(async_nats::connect(servers.urls()).await.expect("connected"))
        });
        Admin { context, runtime }
    }

    pub fn create(&self, config: Config) {
        self.runtime.block_on(self.context.create_stream(config)).expect("made");
    }

    pub fn stream(&self) -> Stream<Info> {
        self.runtime.block_on(self.context.get_stream("spindle")).expect("there")
    }

    /// The settings of the log's stream, after a log was opened.
    pub fn config(&self) -> Config {
        self.stream().cached_info().config.clone()
    }

    pub fn update(&self, change: impl FnOnce(&mut Config)) {
        let mut config = self.config();
        change(&mut config);
        self.runtime.block_on(self.context.update_stream(config)).expect("changed");
    }

    /// Drops the older half of the messages.
    pub fn purge_half(&self) {
        let stream = self.stream();
        let state = &stream.cached_info().state;
        let purge =
            stream.purge().sequence(u64::midpoint(state.first_sequence, state.last_sequence));
        self.runtime.block_on(async { purge.await }).expect("purged");
    }

    pub fn delete_stream(&self) {
        self.runtime.block_on(self.context.delete_stream("spindle")).expect("deleted");
    }

    /// Which server leads the stream, by its name.
    pub fn leader(&self) -> Option<String> {
        let stream = self.runtime.block_on(self.context.get_stream("spindle")).ok()?;
        stream.cached_info().cluster.as_ref()?.leader.clone()
    }
}
