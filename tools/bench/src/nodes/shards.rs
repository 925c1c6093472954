//! Queues on one log and on several, where the log is the limit: each of its servers writes to a slow disk, as if it
//! were a machine of its own. There are as many servers for one log as for several. The disk is
//! slow in bytes per second, not in the time of a commit, because records that come meanwhile share
//! a commit.

use super::keeper::{Keeping, REPLICAS};
use super::{CLUSTER_PATH, LOOK_PAUSE, NAMES, Node, PATIENCE, status};
use crate::figures::Figures;
use crate::load::{self, Checker, Jobs, Plan, Target};
use crate::suite::Bound;
use crate::wire::Wire;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Logs of the second contestant.
pub(crate) const SHARDS: u8 = 4;
/// Enough servers that none needs to keep two logs.
const SERVERS: usize = SHARDS as usize * REPLICAS;
pub(crate) const PAYLOAD_BYTES: usize = 64 << 10;
/// Queues, on whichever shards their names are.
const QUEUES: usize = 32;
/// Producers of each queue, and as many workers.
const CONNECTIONS_PER_QUEUE: usize = 2;
/// Leaders that have not changed for this long will stay, because a node takes over the shards that
/// it is first for after 10 s.
const STEADY: Duration = Duration::from_secs(15);
/// How many bytes a second the disk of each log server accepts.
pub(crate) const DISK_BYTES_PER_S: u64 = 32_000_000;
/// How much faster life cycles must be with [`SHARDS`] shards than with one.
pub(crate) const RATE_MIN: Bound = Bound::AtLeast(1.5);

/// Nodes, what keeps their logs, and what they were sent.
pub(crate) struct Spread {
    // Dropped before the servers that they work on.
    nodes: Vec<Node>,
    keeping: Keeping,
    families: Vec<Family>,
}

/// Jobs of one queue.
struct Family {
    jobs: Jobs,
    submitted: u64,
    checker: Checker,
}

impl Spread {
    /// Starts servers, and nodes on so many logs there. Each server may be given a slow disk.
    pub(crate) fn open(program: &Path, dir: &Path, shards: u8, is_slow: bool) -> Result<Self> {
        let keeping = Keeping::nats(SERVERS);
        let url = keeping.url();
        let count = shards.to_string();
        let more: &[&str] = if shards > 1 { &["--shards", &count] } else { &[] };
        let nodes = NAMES.iter().map(|name| Node::start(program, dir, &url, name, more));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let family = |_| Family {
            jobs: Jobs::sized(Wire::Workq, PAYLOAD_BYTES),
            submitted: 0,
            checker: Checker::default(),
        };
        let families = (0..QUEUES).map(family).collect();
        let spread = Self { nodes, keeping, families };
        // With a single log, its leader stays.
        spread.await_leaders(if shards > 1 { STEADY } else { Duration::ZERO })?;
        if is_slow {
            spread.keeping.slow_down(DISK_BYTES_PER_S)?;
        }
        Ok(spread)
    }

    /// Waits until each log has a leader, by what all nodes say, and it has stayed the same for so long.
    fn await_leaders(&self, steady: Duration) -> Result<()> {
        let (began, mut since, mut before) = (Instant::now(), Instant::now(), vec![]);
        loop {
            let said = self.nodes.iter().map(|node| status(node.http).map(|said| leaders(&said)));
            let now = said.collect::<Result<Vec<_>>>().unwrap_or_default();
            let are_led = !now.is_empty() && now.iter().flatten().all(|leader| !leader.is_null());
            if !are_led || now != before {
                (since, before) = (Instant::now(), now);
            }
            if are_led && since.elapsed() >= steady {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "not all logs have leaders: see {CLUSTER_PATH}");
            thread::sleep(LOOK_PAUSE);
        }
    }

    /// Life cycles in all queues at once, through all nodes.
    pub(crate) fn cycle(&mut self, count: u64) -> Result<Figures> {
        let per_queue = count / QUEUES as u64;
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.workq).collect();
        let began = Instant::now();
        thread::scope(|scope| {
            let threads = self.families.iter_mut().zip(addresses.iter().cycle());
            let threads: Vec<_> = threads
                .map(|(family, address)| {
                    let target = Target { address: *address, tls: None, token: None };
                    scope.spawn(move || family.cycle(&target, per_queue))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().ok().context("the load of a queue panicked")?
            })
        })?;
        let done = (per_queue * QUEUES as u64) as f64;
        let rate_per_s = Some(done / began.elapsed().as_secs_f64());
        Ok(Figures { rate_per_s, ..Figures::default() })
    }
}

impl Family {
    fn cycle(&mut self, target: &Target, count: u64) -> Result<()> {
        let plan = Plan::life_cycles(count, CONNECTIONS_PER_QUEUE);
        let plan = Plan { first: self.submitted, ..plan };
        load::run(target, &self.jobs, plan, &mut self.checker)?;
        self.submitted += count;
        Ok(self.checker.verdict(self.submitted)?)
    }
}

/// Who leads each log, by what a node says.
fn leaders(said: &Value) -> Vec<Value> {
    match said["shards"].as_array() {
        Some(shards) => shards.iter().map(|shard| shard["leader"].clone()).collect(),
        None => vec![said["leader"].clone()],
    }
}
