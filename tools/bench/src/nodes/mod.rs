//! Three nodes on a log that they share, beside one server with a log of its own: what the life
//! cycles of jobs cost there, how far followers lag meanwhile, and how long clients wait when a
//! leader is killed and how long a new node takes to catch up.
//!
//! All of it runs on one machine, so that processes wait for each other's turn, and not for a network.

mod keeper;
mod shards;
mod slow;

use crate::figures::Figures;
use crate::http::HttpClient;
use crate::load::{self, Checker, Jobs, Plan, Target};
use crate::run;
use crate::server::{self, Process, Server, free_address};
use crate::stats::Latencies;
use crate::suite::{Bound, Door, Load, Security};
use crate::wire::{Wire, waiting_jobs};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) use keeper::Keeper;
use keeper::Keeping;
pub(crate) use shards::{DISK_BYTES_PER_S, PAYLOAD_BYTES, RATE_MIN, SHARDS, Spread};

/// Producers of the life cycles, and as many workers.
pub(crate) const CONNECTIONS: usize = 64;
/// Jobs that wait when a node is new, for each life cycle.
pub(crate) const WAITING_PER_CYCLE: u64 = 16;
/// How soon after the leader a follower must have 99 of 100 records.
pub(crate) const LAG_US_MAX: Bound = Bound::AtMost(10_000.0);
/// The longest that clients of other nodes may wait when the leader is killed, 95 times of 100.
pub(crate) const OUTAGE_S_MAX: Bound = Bound::AtMost(2.0);
/// The same when the server that leads the stream is killed; most of it is its election.
pub(crate) const LOG_OUTAGE_S_MAX: Bound = Bound::AtMost(12.0);
/// The time within which a new node must have all waiting jobs.
pub(crate) const CATCH_UP_S_MAX: Bound = Bound::AtMost(5.0);
/// How often the leader is killed, and how often that of the log is.
pub(crate) const KILLS: u32 = 20;
pub(crate) const LOG_KILLS: u32 = 5;
/// The pause between two checks of a follower's position.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Nothing here takes longer unless it is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the nodes go on after one has taken over, before the next is killed.
const SETTLE_TIME: Duration = Duration::from_millis(500);
const NAMES: [&str; 3] = ["one", "two", "three"];
const CLUSTER_PATH: &str = "/api/v1/cluster";

/// A node that runs.
struct Node {
    name: String,
    workq: SocketAddr,
    http: SocketAddr,
    // Before the folder, so that the process is gone when the folder goes.
    _process: Process,
    _folder: TempDir,
}

impl Node {
    /// Starts one that has nothing yet.
    fn start(program: &Path, dir: &Path, url: &str, name: &str, more: &[&str]) -> Result<Self> {
        let (http, cluster) = (free_address()?, free_address()?);
        let command = |data: &Path, workq: SocketAddr| {
            let mut command = Command::new(program);
            command.args(["serve", "--log", url, "--node", name, "--data"]).arg(data);
            command.args(["--cluster-listen", &cluster.to_string()]);
            command.args(["--workq", &workq.to_string(), "--http", &http.to_string()]);
            command.args(["--gearman", "off", "--jobd-master", "off"]).args(more);
            Ok(command)
        };
        let (workq, process, folder) = server::start(&format!("node {name}"), dir, command)?;
        Ok(Self { name: name.to_owned(), workq, http, _process: process, _folder: folder })
    }

    /// The node that it takes for the leader, once it has all records.
    fn leader(&self) -> Option<String> {
        let status = status(self.http).ok()?;
        let is_behind = of_node(&status, &self.name)?["lag"].as_u64()? > 0;
        (!is_behind).then(|| status["leader"].as_str().map(str::to_owned))?
    }
}

/// A node's status of the cluster. The node answers this itself, and then closes the connection.
fn status(http: SocketAddr) -> Result<Value> {
    HttpClient::connect(http)?.ask_json("GET", CLUSTER_PATH, &Value::Null)
}

/// The entry of a node in a status.
fn of_node<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["nodes"].as_array()?.iter().find(|node| node["node"] == name)
}

/// The position behind the last record that a node has, as it reports.
fn position((name, http): &(String, SocketAddr)) -> Result<u64> {
    let status = status(*http)?;
    let position = of_node(&status, name).and_then(|node| node["position"].as_u64());
    position.with_context(|| format!("{name} says nothing of itself: {status}"))
}

/// Nodes, what keeps their log, and what they were sent.
pub(crate) struct Site {
    program: PathBuf,
    dir: PathBuf,
    // Dropped before the servers that they work on.
    nodes: Vec<Node>,
    keeping: Keeping,
    jobs: Jobs,
    submitted: u64,
    finished: u64,
    checker: Checker,
}

impl Site {
    /// Starts servers, and nodes on them.
    pub(crate) fn open(program: &Path, dir: &Path, keeper: Keeper) -> Result<Self> {
        let keeping = keeper.start();
        let mut site = Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nodes: vec![],
            keeping,
            jobs: Jobs::fresh(Wire::Workq),
            submitted: 0,
            finished: 0,
            checker: Checker::default(),
        };
        for name in NAMES {
            site.add(name)?;
        }
        site.leader()?;
        Ok(site)
    }

    fn add(&mut self, name: &str) -> Result<()> {
        self.nodes.push(Node::start(&self.program, &self.dir, &self.keeping.url(), name, &[])?);
        Ok(())
    }

    /// The node that leads, once all agree on it and have all records.
    fn leader(&self) -> Result<usize> {
        let began = Instant::now();
        loop {
            let said: Vec<_> = self.nodes.iter().map(Node::leader).collect();
            let leads = |node: &Node| said.iter().all(|leader| leader.as_ref() == Some(&node.name));
            if let Some(at) = self.nodes.iter().position(leads) {
                return Ok(at);
            }
            ensure!(began.elapsed() < PATIENCE, "the nodes agree on no leader: {said:?}");
            thread::sleep(LOOK_PAUSE);
        }
    }

    /// Life cycles at the leader.
    pub(crate) fn cycle(&mut self, count: u64) -> Result<Figures> {
        let leader = self.leader()?;
        let target = Target { address: self.nodes[leader].workq, tls: None, token: None };
        let plan = Plan { first: self.submitted, ..Plan::life_cycles(count, CONNECTIONS) };
        let outcome = load::run(&target, &self.jobs, plan, &mut self.checker)?;
        self.submitted += plan.submits;
        self.finished += plan.finishes;
        self.account()?;
        Ok(Figures {
            rate_per_s: Some(count as f64 / outcome.elapsed.as_secs_f64()),
            submit: outcome.submit.percentiles(),
            lease: outcome.lease.percentiles(),
            finish: outcome.finish.percentiles(),
            ..Figures::default()
        })
    }

    /// The same, and how much later than the leader a follower has its records meanwhile.
    pub(crate) fn cycle_watched(&mut self, count: u64) -> Result<Figures> {
        let leader = self.leader()?;
        let of = |at: usize| (self.nodes[at].name.clone(), self.nodes[at].http);
        let (ahead, behind) = (of(leader), of((leader + 1) % self.nodes.len()));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let lag = scope.spawn(|| lag(&ahead, &behind, &is_over));
            let figures = self.cycle(count);
            is_over.store(true, Ordering::Relaxed);
            let lag = lag.join().ok().context("who looks at followers panicked")??;
            Ok(Figures { lag: lag.percentiles(), ..figures? })
        })
    }

    /// Kills the leader again and again. Measures how long it takes until a client of another node
    /// is answered again, and checks that one of the other nodes has taken over.
    pub(crate) fn kill_leaders(&mut self, times: u32) -> Result<Figures> {
        let mut latencies = Latencies::new();
        for _ in 0..times {
            let leader = self.leader()?;
            // Dropped, it is killed.
            let killed = self.nodes.remove(leader).name;
            latencies.record(self.answer_time()?);
            self.add(&killed)?;
            self.leader()?;
            thread::sleep(SETTLE_TIME);
        }
        self.account()?;
        Ok(Figures { outage: latencies.percentiles(), ..Figures::default() })
    }

    /// The same with the server that leads the stream, where there is one.
    pub(crate) fn kill_leaders_of_log(&mut self, times: u32) -> Result<Option<Figures>> {
        let mut latencies = Latencies::new();
        for _ in 0..times {
            self.leader()?;
            let Some(killed) = self.keeping.kill_leader() else { return Ok(None) };
            latencies.record(self.answer_time()?);
            self.keeping.restart(killed);
            thread::sleep(SETTLE_TIME);
        }
        self.account()?;
        Ok(Some(Figures { outage: latencies.percentiles(), ..Figures::default() }))
    }

    /// How long it takes from now until a submit is acknowledged.
    fn answer_time(&self) -> Result<Duration> {
        let began = Instant::now();
        let body = json!({ "queue": "bench-outage" });
        let node = self.nodes.first().context("there are nodes")?;
        loop {
            let asked = HttpClient::connect(node.http)
                .and_then(|mut client| client.ask_json("POST", "/api/v1/jobs", &body));
            match asked {
                Ok(_) => return Ok(began.elapsed()),
                Err(error) if began.elapsed() > PATIENCE => {
                    return Err(error.context("nobody answers any more"));
                }
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Lets so many jobs wait.
    pub(crate) fn fill(&mut self, count: u64) -> Result<()> {
        let leader = self.leader()?;
        let target = Target { address: self.nodes[leader].workq, tls: None, token: None };
        let plan = Plan { first: self.submitted, ..Plan::submits(count, 8, 32) };
        load::run(&target, &self.jobs, plan, &mut self.checker)?;
        self.submitted += count;
        self.account()
    }

    /// From the start of a new node to when it has all records.
    pub(crate) fn catch_up(&mut self) -> Result<Figures> {
        let began = Instant::now();
        self.add("new")?;
        self.leader()?;
        let took = began.elapsed();
        self.nodes.pop();
        Ok(Figures { catch_up_s: Some(took.as_secs_f64()), ..Figures::default() })
    }

    /// Every job is either finished or there.
    fn account(&self) -> Result<()> {
        self.checker.verdict(self.finished)?;
        let leader = self.leader()?;
        let (address, queue) = (self.nodes[leader].workq, self.jobs.queue());
        let counted = waiting_jobs(Wire::Workq, address, None, queue)?;
        let expected = self.submitted - self.finished;
        ensure!(counted == expected, "{counted} jobs wait, and not {expected}");
        Ok(())
    }
}

/// How long after the leader a follower has a record, measured repeatedly. The time to ask both is
/// included.
fn lag(
    ahead: &(String, SocketAddr),
    behind: &(String, SocketAddr),
    is_over: &AtomicBool,
) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    while !is_over.load(Ordering::Relaxed) {
        let reached = position(ahead)?;
        let began = Instant::now();
        while position(behind)? < reached {
            if began.elapsed() > PATIENCE {
                bail!("a follower does not follow");
            }
        }
        latencies.record(began.elapsed());
        thread::sleep(LOOK_PAUSE);
    }
    Ok(latencies)
}

/// The same life cycles on a server with a log of its own.
pub(crate) fn cycle_alone(program: &Path, dir: &Path, count: u64) -> Result<Figures> {
    let program = program.to_owned();
    let server =
        Server::Spindle { program, door: Door::Workq, security: Security::Plain, flags: &[] };
    let load = Load::LifeCycles { connections: CONNECTIONS };
    run::once(&server, load, count, &mut None, dir)
}
