//! The gate of Jobq's polls: what one costs beside a scan of the same rows by SQLite in memory, and
//! what other doors notice of polls without a pause.
//!
//! SQLite is the same version as in the server, built the same way: the ratio tells what the door
//! adds to it.

use super::plain::{compare_rates, with_unit};
use super::session::Session;
use crate::ask::Asker;
use crate::gate::{Bound, Judgement};
use crate::jobs::Jobs;
use crate::report::{Figures, Scenario, Series};
use crate::scenario::{exactly_once, measure, unchecked};
use crate::server::Running;
use crate::stats::Latencies;
use crate::target::Door;
use crate::wire::Wire;
use crate::wire::http::Submits;
use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Polls, and scans, of a round: their median counts.
const POLLS: u64 = 11;
const POLL_MAX_SCANS: f64 = 2.0;
const MEANWHILE_MIN: f64 = 0.9;
/// Connections that create the jobs, and those of each side of the load beside the polls.
const FILLING: usize = 64;
const CONNECTIONS: usize = 8;

/// What a poll looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// The job that a scan meets last.
    Last,
    /// No job.
    None,
}

impl Sought {
    fn word(self) -> &'static str {
        match self {
            Self::Last => "LAST",
            Self::None => "NEVER",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Last => "the last one matches",
            Self::None => "none matches",
        }
    }

    /// The match keeps its state, so that the next poll finds it at the end again.
    fn body(self) -> String {
        let word = self.word();
        format!(
            "{{\"query\": [[\"=\", \"json_extract(state, '$[0]')\", \"'{word}'\"]], \
             \"state\": [\"{word}\"]}}"
        )
    }

    fn status(self) -> u16 {
        if self == Self::Last { 200 } else { 404 }
    }
}

/// All of the gate.
pub(super) fn polls(session: &mut Session<'_>) -> Result<()> {
    let server = session.spindle_beside(Door::Workq, "always", Some(Door::Jobq));
    let running = server.start(session.setting.bounds)?;
    let jobq = running.beside.context("Jobq's door was asked for")?;
    let count = session.sizes.polled;
    let jobs = Jobs::fresh(session.setting.payload_bytes);
    let mut plan = session.setting.plan(&running, &jobs).submitting(count, FILLING, 1);
    (plan.address, plan.wire) = (jobq, Wire::Http(Submits::JobqCreate));
    measure(&running, &plan, &mut unchecked()).context("while creating the jobs")?;
    let mut asker = Asker::connect(jobq)?;
    let told = asker.post(&format!("/api/v0/job/{count}/state"), "[\"LAST\"]")?;
    ensure!(told.status == 200, "the last job's state was not set: {}", told.status);
    let rows = rows(count, session.setting.payload_bytes)?;
    for sought in [Sought::Last, Sought::None] {
        against_scans(session, &mut asker, &rows, sought)?;
    }
    meanwhile(session, &running, jobq)
}

/// The jobs as rows of a table in memory.
fn rows(count: u64, payload_bytes: usize) -> Result<Connection> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, payload TEXT, events TEXT, state TEXT,
         modified INTEGER); BEGIN",
    )?;
    let payload = format!("{{\"d\": \"{}\"}}", "x".repeat(payload_bytes));
    let events = "[[\"job_created\", {\"timestamp\": \"1767323045\"}]]";
    let mut insert = db.prepare("INSERT INTO job VALUES (?1, ?2, ?3, ?4, 1767323045)")?;
    for number in 1..=count {
        let state = if number == count { "[\"LAST\"]" } else { "[\"CREATED\"]" };
        insert.execute((number.cast_signed(), &payload, events, state))?;
    }
    drop(insert);
    db.execute_batch("COMMIT")?;
    Ok(db)
}

fn scan(rows: &Connection, sought: Sought) -> Result<Duration> {
    let began = Instant::now();
    let sql = format!("SELECT id FROM job WHERE json_extract(state, '$[0]') = '{}'", sought.word());
    let mut statement = rows.prepare(&sql)?;
    let found = statement.query_map([], |row| row.get::<_, i64>(0))?.count();
    let elapsed = began.elapsed();
    ensure!(found == usize::from(sought == Sought::Last), "the scan found {found} rows");
    Ok(elapsed)
}

fn poll(asker: &mut Asker, sought: Sought, body: &str) -> Result<Duration> {
    let told = asker.post("/api/v0/job/poll", body)?;
    let said = String::from_utf8_lossy(told.body);
    ensure!(told.status == sought.status(), "a poll was answered with {}: {said}", told.status);
    Ok(told.latency)
}

/// Polls and scans in turn.
fn against_scans(
    session: &mut Session<'_>,
    asker: &mut Asker,
    rows: &Connection,
    sought: Sought,
) -> Result<()> {
    let count = session.sizes.polled;
    let title = format!("polls over {count} jobs of which {}", sought.text());
    let body = sought.body();
    let mut series = ["spindle", "SQLite in memory"].map(|server| Series {
        server: server.to_owned(),
        sync: "--sync always".to_owned(),
        runs: vec![],
    });
    series[1].sync = "none".to_owned();
    // The first round warms up.
    for round in 0..=session.runs {
        let mut latencies = [Latencies::new(), Latencies::new()];
        for _ in 0..POLLS {
            for (side, took) in
                [poll(asker, sought, &body)?, scan(rows, sought)?].iter().enumerate()
            {
                latencies[side].record(*took);
            }
        }
        if round == 0 {
            continue;
        }
        for (series, latencies) in series.iter_mut().zip(&latencies) {
            let figures = Figures::of_latencies(latencies);
            let p50_us = figures.add.map_or(0.0, |add| add.p50_us);
            eprintln!("{title}: {round}/{} {}: {p50_us:.0} us", session.runs, series.server);
            series.runs.push(figures);
        }
    }
    let p50 = |series: &Series| series.each(|run| run.add.map(|add| add.p50_us / 1000.0));
    let (ours, scans) = (p50(&series[0]), p50(&series[1]));
    let gate = format!("Jobq: {title} / one scan by SQLite in memory");
    let judgement = Judgement::ratio(&gate, &ours, &scans, Bound::AtMost(POLL_MAX_SCANS))
        .context("nothing was measured")?
        .between(&series[0].sync, with_unit(&ours, 1, "ms"), with_unit(&scans, 1, "ms"));
    session.judgements.push(judgement);
    let title = format!("{title}; add is the time of one");
    session.scenarios.push(Scenario { title, series: series.into() });
    Ok(())
}

/// The rates of other doors while somebody polls without a pause, and while nobody does.
fn meanwhile(session: &mut Session<'_>, running: &Running, jobq: SocketAddr) -> Result<()> {
    let count = session.sizes.lifecycle / 2;
    for (name, wire) in [
        ("life cycles through Workq", Wire::Workq),
        ("submits to the API", Wire::Http(Submits::Api)),
    ] {
        let mut series = ["with polls", "without"].map(|server| Series {
            server: format!("spindle, {server}"),
            sync: "--sync always".to_owned(),
            runs: vec![],
        });
        let mut polls = vec![];
        for round in 0..=session.runs {
            // Whatever drifts hits both alike.
            let order = if round % 2 == 0 { [true, false] } else { [false, true] };
            for polled in order {
                let poller = polled.then(|| Poller::start(jobq)).transpose()?;
                let figures = play(session, running, wire, count)?;
                let made = poller.map(Poller::stop).transpose()?;
                if round == 0 {
                    continue;
                }
                let series = &mut series[usize::from(!polled)];
                polls.extend(made);
                eprintln!(
                    "{name}: {round}/{} {}: {:.0} jobs/s",
                    session.runs, series.server, figures.rate_per_s
                );
                series.runs.push(figures);
            }
        }
        let [with, without] = &series;
        let gate = format!("{name}, while Jobq polls {} jobs / without", session.sizes.polled);
        let judgement = compare_rates(&gate, with, without, MEANWHILE_MIN)?;
        session.judgements.push(judgement.noting(format!("polls in each run: {polls:?}")));
        let title = format!("{count} {name}, {CONNECTIONS} connections a side");
        session.scenarios.push(Scenario { title, series: series.into() });
    }
    Ok(())
}

fn play(session: &Session<'_>, running: &Running, wire: Wire, count: u64) -> Result<Figures> {
    let jobs = Jobs::fresh(session.setting.payload_bytes);
    let mut plan = session.setting.plan(running, &jobs).submitting(count, CONNECTIONS, 1);
    if wire == Wire::Workq {
        return exactly_once(running, &plan.working(count, CONNECTIONS), count);
    }
    (plan.address, plan.wire) = (running.beside.unwrap_or(plan.address), wire);
    measure(running, &plan, &mut unchecked())
}

/// A client that polls for what is not there, again and again.
struct Poller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Poller {
    /// Returns once its first poll is answered.
    fn start(jobq: SocketAddr) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (first, began): (_, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            let mut asker = Asker::connect(jobq)?;
            let body = Sought::None.body();
            let mut polls = 0;
            while !stopped.load(Ordering::Relaxed) {
                poll(&mut asker, Sought::None, &body)?;
                polls += 1;
                // Only the first one is waited for.
                let _ = first.send(());
            }
            Ok(polls)
        });
        // If it failed, stopping it tells why.
        let _ = began.recv();
        Ok(Self { stop, thread })
    }

    /// How many polls were answered.
    fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the poller panicked"))?
    }
}
