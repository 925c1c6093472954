//! How many records of 300 bytes a log in PostgreSQL commits a second, by how many are on their way, and
//! how fast they are read back.
//!
//! ```text
//! cargo run --release -p spindle-log-pgsql --example append_pgsql [URL]
//! ```
//!
//! Without a URL it starts a server and a synchronous standby in temporary folders. It appends for four
//! seconds each with 1, 4, 16 and 64 records on their way, reads all of them back, and ends. With a URL
//! it uses the schema `append_example`, which is left there.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::time::{Duration, Instant};

use spindle_log::{Ack, Log, Record, SharedLog};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};
use spindle_testkit::{PostgresServer, wait_until};

const RECORD_BYTES: usize = 300;
const MEASURE: Duration = Duration::from_secs(3);

/// A primary whose commits wait for its standby.
fn pair() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start(&[]);
    let standby = primary.standby("other");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'");
    primary.sql("SELECT pg_reload_conf()");
    wait_until("the standby", || {
        primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    });
    (primary, standby)
}

fn main() {
    let url = std::env::args().nth(1);
    let servers = url.is_none().then(pair);
    let url = url.or_else(|| servers.as_ref().map(|(primary, _)| primary.url("spindle"))).unwrap();
    let options = PgsqlLogOptions::from_url(&url).unwrap().with_schema("append_example").unwrap();
    let log = PgsqlLog::open(&options).unwrap();
    let follower = PgsqlLog::open(&options).unwrap();
    let first = log.next();
    for in_flight in [1, 4, 16, 64] {
        append(&log, in_flight, MEASURE / 4);
        let (records, seconds) = append(&log, in_flight, MEASURE);
        println!("{in_flight:>2} in flight: {:>6.0} commits/s", records as f64 / seconds);
    }
    let begin = Instant::now();
    let next = follower.refresh().unwrap();
    let found = begin.elapsed();
    let read = follower.read(first).unwrap().inspect(|stored| assert!(stored.is_ok())).count();
    assert_eq!(read as u64, next.0 - first.0);
    let seconds = begin.elapsed().as_secs_f64();
    let rate = read as f64 / seconds;
    println!("end found in {found:?}; read back: {read} records, {rate:.0} records/s");
}

/// Keeps this many records on their way, and says how many were committed in how many seconds.
fn append(log: &PgsqlLog, in_flight: u64, time: Duration) -> (u64, f64) {
    let bytes = bytes::Bytes::from(vec![7; RECORD_BYTES]);
    let (begin, first) = (Instant::now(), log.next());
    let mut answered = first;
    while begin.elapsed() < time {
        while log.next().0 - answered.0 < in_flight {
            log.submit(log.next(), &Record { epoch: 1, bytes: bytes.clone() }).unwrap();
        }
        answered = committed(log);
    }
    while answered < log.next() {
        answered = committed(log);
    }
    (answered.0 - first.0, begin.elapsed().as_secs_f64())
}

fn committed(log: &PgsqlLog) -> spindle_log::Position {
    match log.next_ack() {
        Ack::Committed(position) => position.next(),
        other => panic!("{other:?}"),
    }
}
