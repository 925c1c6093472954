//! Whether the web pages stay fast while many jobs wait and others run, and what open pages cost.
//!
//! One server has all jobs waiting, in [`QUEUES`] queues, and some dead ones. While life cycles go
//! through a queue of their own, every page is read again and again over one connection, as is
//! `/healthz`, which does next to nothing: a page may take ten times as long as that plus 20 ms.
//! Then the same life cycles run in turn without viewers, with open pages, and with feeds alone.

mod viewers;

use crate::figures::Figures;
use crate::http::HttpClient;
use crate::load::{self, Checker, Jobs, Plan};
use crate::run;
use crate::server::{Server, free_address};
use crate::stats::Latencies;
use crate::wire::Wire;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use viewers::Watch;

/// A run has one life cycle for this many waiting jobs.
pub(crate) const WAITING_PER_CYCLE: u64 = 8;
/// How often each page is read in a round.
pub(crate) const REQUESTS: u32 = 40;
/// The largest size of a page.
pub(crate) const BYTES_MAX: f64 = 100_000.0;
/// The viewers while life cycles run; in the first case there are none.
pub(crate) const VIEWERS: [Viewers; 3] = [
    Viewers { feeds: 0, read: false, rate_min: None },
    Viewers { feeds: 10, read: true, rate_min: Some(0.98) },
    Viewers { feeds: 1_000, read: false, rate_min: None },
];

/// The path that every page is compared with. It answers without looking at any job.
const PLAIN: &str = "/healthz";
/// Over how many queues the jobs are spread.
const QUEUES: u64 = 100;
const DEAD_JOBS: u32 = 200;
const DEAD_QUEUE: &str = "bench-dead";
const CONNECTIONS: usize = 8;
/// The name of a schedule, and of a constraint that is full, so that its page looks for the jobs
/// that wait.
const NAME: &str = "bench";
const BATCH_JOBS: u32 = 200;
const BATCH_QUEUE: &str = "bench-batch";

/// The longest that 95 of 100 requests for a page may take, in microseconds, where a plain request
/// takes `plain_us`.
pub(crate) fn p95_us_max(plain_us: f64) -> f64 {
    10.0 * plain_us + 20_000.0
}

/// People who look on.
#[derive(Clone, Copy)]
pub(crate) struct Viewers {
    /// How many have a page open, which follows what happens.
    feeds: usize,
    /// Whether each reads its page anew when something has happened, as a page in view does.
    read: bool,
    /// The least share of the rate without viewers that must be left, if there is such a bound.
    pub(crate) rate_min: Option<f64>,
}

impl Viewers {
    /// For people.
    pub(crate) fn title(self) -> String {
        match (self.feeds, self.read) {
            (0, _) => "nobody looking".to_owned(),
            (feeds, true) => format!("{feeds} open pages"),
            (feeds, false) => format!("{feeds} live feeds"),
        }
    }
}

/// Something to read.
struct Page {
    /// For people.
    name: &'static str,
    path: String,
}

/// A server full of jobs.
pub(crate) struct Site {
    life: run::Site,
    http: SocketAddr,
    /// What is read: [`PLAIN`], and the pages.
    pages: Vec<Page>,
}

impl Site {
    /// Starts one and fills it.
    pub(crate) fn open(program: &Path, dir: &Path, jobs: u64) -> Result<Self> {
        let (gearman, http) = (free_address()?, free_address()?);
        let server = Server::SpindleDoors { program: program.to_owned(), gearman, http };
        let life = run::Site::open(&server, dir)?;
        let mut queue = String::new();
        for _ in 0..QUEUES {
            let jobs_of_it = Jobs::fresh(Wire::Workq);
            let plan = Plan::submits(jobs / QUEUES, CONNECTIONS, 32);
            load::run(life.target(), &jobs_of_it, plan, &mut Checker::default())?;
            jobs_of_it.queue().clone_into(&mut queue);
        }
        let dead = die(http).context("jobs that are dead")?;
        let batch = furnish(http, &queue).context("a schedule, a constraint and a batch")?;
        Ok(Self { life, http, pages: pages(&queue, dead, batch) })
    }

    /// What [`Self::read`] reads.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &'static str> {
        self.pages.iter().map(|page| page.name)
    }

    /// Reads everything so often, in turn, while life cycles run.
    pub(crate) fn read(&mut self, requests: u32, cycles: u64) -> Result<Vec<Figures>> {
        let Self { life, http, pages } = self;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| -> Result<()> {
                while !is_over.load(Ordering::Relaxed) {
                    life.play(Plan::life_cycles(cycles, CONNECTIONS))?;
                }
                Ok(())
            });
            let measured = read(*http, pages, requests);
            is_over.store(true, Ordering::Relaxed);
            load.join().ok().context("the load panicked")??;
            measured
        })
    }

    /// Life cycles while these viewers have pages open.
    pub(crate) fn cycle(&mut self, viewers: Viewers, cycles: u64) -> Result<Figures> {
        let pages = if viewers.read { &self.pages[1..] } else { &[] };
        let paths = pages.iter().map(|page| page.path.clone()).collect();
        let watch = Watch::begin(self.http, viewers.feeds, paths)?;
        let figures = self.life.play(Plan::life_cycles(cycles, CONNECTIONS))?;
        watch.end()?;
        Ok(figures)
    }
}

/// The figures of each page.
fn read(http: SocketAddr, pages: &[Page], requests: u32) -> Result<Vec<Figures>> {
    let mut client = HttpClient::connect(http)?;
    let mut taken: Vec<_> = pages.iter().map(|_| (Latencies::new(), 0)).collect();
    // The first round warms up.
    for round in 0..=requests {
        for (page, (latencies, bytes)) in pages.iter().zip(&mut taken) {
            let before = Instant::now();
            let body = get(&mut client, &page.path)?;
            if round > 0 {
                latencies.record(before.elapsed());
            }
            *bytes = body.len().max(*bytes);
        }
    }
    let figures = |(latencies, bytes): (Latencies, usize)| Figures {
        request: latencies.percentiles(),
        answer_bytes: Some(bytes as f64),
        ..Figures::default()
    };
    Ok(taken.into_iter().map(figures).collect())
}

/// The body of a page, which must be there.
fn get(client: &mut HttpClient, path: &str) -> Result<Vec<u8>> {
    let (status, body) = client.ask("GET", path, "")?;
    ensure!(status == 200, "GET {path} was answered {status}");
    Ok(body)
}

/// Everything that is read; the pages about a single thing are those of `queue`, `job`, `batch`,
/// and the things named [`NAME`].
fn pages(queue: &str, job: u64, batch: u64) -> Vec<Page> {
    let fixed = [
        PLAIN,
        "/",
        "/queues",
        "/jobs",
        "/dead",
        "/scheduled",
        "/workers",
        "/schedules",
        "/batches",
        "/constraints",
        "/jobd",
        "/audit",
        "/server",
        "/submit",
    ];
    let about = [
        Page { name: "a queue", path: format!("/queue?queue={queue}") },
        Page { name: "a queue's jobs", path: format!("/jobs?queue={queue}") },
        Page { name: "a job", path: format!("/jobs/{job}") },
        Page { name: "a schedule", path: format!("/schedule?name={NAME}") },
        Page { name: "a batch", path: format!("/batches/{batch}") },
        Page { name: "a constraint", path: format!("/constraint?name={NAME}") },
    ];
    let fixed = fixed.into_iter().map(|path| Page { name: path, path: path.to_owned() });
    fixed.chain(about).collect()
}

/// Makes a schedule, a constraint that holds a queue's jobs back, and a batch, whose number it gives.
fn furnish(http: SocketAddr, queue: &str) -> Result<u64> {
    let mut client = HttpClient::connect(http)?;
    let schedule = json!({"expression": "@daily", "job": {"queue": BATCH_QUEUE}});
    client.ask_json("PUT", &format!("/api/v1/schedules/{NAME}"), &schedule)?;
    // Given as a pattern, so that other pages also look for the jobs that wait for it.
    let constraint = json!({"queue_glob": queue, "running_max": 0});
    client.ask_json("PUT", &format!("/api/v1/constraints/{NAME}"), &constraint)?;
    let batch = client.ask_json("POST", "/api/v1/batches", &json!({"queue": BATCH_QUEUE}))?;
    let batch = batch["id"].as_u64().context("a batch has a number")?;
    for number in 0..BATCH_JOBS {
        let job = json!({"queue": BATCH_QUEUE, "batch": batch, "payload": {"number": number}});
        client.ask_json("POST", "/api/v1/jobs", &job)?;
    }
    Ok(batch)
}

/// Lets some jobs die, and returns the number of the last.
fn die(http: SocketAddr) -> Result<u64> {
    let mut client = HttpClient::connect(http)?;
    let mut post = |path: &str, body: Value| client.ask_json("POST", path, &body);
    let mut last = 0;
    for number in 0..DEAD_JOBS {
        let job = json!({"queue": DEAD_QUEUE, "payload": {"number": number}});
        last = post("/api/v1/jobs", job)?["id"].as_u64().context("a job has a number")?;
        let lease = post("/api/v1/lease", json!({"queues": [DEAD_QUEUE]}))?;
        let token = lease["lease_token"].as_str().context("a lease has a token")?;
        let error = format!("connection {number} refused");
        let report = json!({"message": error, "retry": false});
        post(&format!("/api/v1/leases/{token}/fail"), report)?;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_take_ten_times_a_plain_request_and_twenty_milliseconds() {
        assert_eq!(p95_us_max(0.0), 20_000.0);
        assert_eq!(p95_us_max(500.0), 25_000.0);
    }

    #[test]
    fn viewers_are_told_apart_and_the_first_are_nobody() {
        let titles = VIEWERS.map(Viewers::title);
        assert_eq!(titles, ["nobody looking", "10 open pages", "1000 live feeds"]);
    }
}
