//! How many records of 300 bytes a log on three NATS servers commits a second, by how many are on their
//! way, and how fast they are read back.
//!
//! ```text
//! cargo xtask nats-server
//! cargo run --release -p spindle-log-nats --example append_nats [URL]
//! ```
//!
//! Without a URL it starts three servers that sync always, in temporary folders. It appends for four
//! seconds each with 1, 4, 16 and 64 records submitted, of which the log has 16 on their way at most,
//! reads the last ones back, and ends. With a URL it makes streams named after the one of the URL, which
//! are left there.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use spindle_log::{Ack, Log, Record};
use spindle_log_nats::{IN_FLIGHT_MAX, NatsLog, NatsLogOptions, SyncCheck};
use spindle_testkit::NatsServers;

const RECORD_BYTES: usize = 300;
const MEASURE: Duration = Duration::from_secs(3);

fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let servers = url.is_none().then(NatsServers::three);
    let options = match (&url, &servers) {
        (Some(url), _) => NatsLogOptions::from_url(url)?,
        (None, Some(servers)) => NatsLogOptions {
            servers: servers.urls(),
            sync: SyncCheck::Monitoring(servers.monitoring()),
            ..NatsLogOptions::default()
        },
        (None, None) => bail!("no servers"),
    };
    let mut last = options.clone();
    for in_flight in [1, 4, 16, 64] {
        last = NatsLogOptions {
            stream: format!("{}-append-{in_flight}", options.stream),
            in_flight_max: in_flight.min(IN_FLIGHT_MAX),
            ..options.clone()
        };
        let log = NatsLog::open(&last)?;
        // The first ones are sent one by one.
        append(&log, 1, |committed, _| committed < IN_FLIGHT_MAX)?;
        append(&log, in_flight, |_, time| time < MEASURE / 4)?;
        let began = Instant::now();
        let committed = append(&log, in_flight, |_, time| time < MEASURE)?;
        let rate = committed as f64 / began.elapsed().as_secs_f64();
        println!("{in_flight:>2} in flight: {rate:>6.0} commits/s");
    }
    read_back(&last)
}

/// Appends while `goes_on` says so. Returns how many were committed.
fn append(
    log: &NatsLog,
    in_flight: usize,
    goes_on: impl Fn(usize, Duration) -> bool,
) -> Result<usize> {
    let record = Record { epoch: 1, bytes: vec![b'x'; RECORD_BYTES].into() };
    let (began, mut on_their_way, mut committed) = (Instant::now(), 0, 0);
    loop {
        let more = goes_on(committed, began.elapsed());
        while more && on_their_way < in_flight {
            log.submit(log.next(), &record)?;
            on_their_way += 1;
        }
        if on_their_way == 0 {
            return Ok(committed);
        }
        match log.next_ack() {
            Ack::Committed(_) => committed += 1,
            other => bail!("not committed: {other:?}"),
        }
        on_their_way -= 1;
    }
}

fn read_back(options: &NatsLogOptions) -> Result<()> {
    // Opened anew, it has none of them in memory.
    let log = NatsLog::open(options)?;
    let (began, mut records) = (Instant::now(), 0);
    for stored in log.read(log.first())? {
        stored?;
        records += 1;
    }
    let rate = f64::from(records) / began.elapsed().as_secs_f64();
    println!("read back: {records} records, {rate:.0} records/s");
    Ok(())
}
