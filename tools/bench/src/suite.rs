//! Every suite: what is done to Spindle, through which door, beside which peers, and what is wanted.
//!
//! A suite is a row of [`SUITES`]. To make another, add a row: `--only` and `--help` know it by its
//! name, [`run`](crate::run) plays its [`Load`], and each of its gates is judged by the median of
//! the ratios that the rounds had.

use crate::figures::Figure;
use crate::nodes::{self, Keeper};
use crate::run;
use crate::workers::Language;
use clap::ValueEnum;
use serde::Serialize;

/// One suite.
#[derive(Debug)]
pub(crate) struct Suite {
    /// What `--only` selects it by.
    pub(crate) name: &'static str,
    /// Which of Spindle's doors gets the load.
    pub(crate) door: Door,
    /// Whether that is over TLS.
    pub(crate) security: Security,
    /// Flags for Spindle in addition to those of every suite.
    pub(crate) flags: &'static [&'static str],
    /// What is done.
    pub(crate) load: Load,
    /// The number of jobs in a run.
    pub(crate) jobs: u64,
    /// The peers that every round measures after Spindle.
    pub(crate) peers: &'static [Peer],
    /// What the figures are judged by.
    pub(crate) gates: &'static [Gate],
}

/// A door of Spindle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Door {
    Workq,
    Gearman,
    /// The native API.
    Api,
    Jobq,
}

/// What Spindle asks of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// It has no certificate.
    Plain,
    /// It has one, and clients use plain connections.
    Offered,
    /// Clients use TLS.
    Used,
    /// It wants a token, and is given one that is limited to some queues. Nothing is encrypted.
    Tokens,
}

/// What is done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Jobs are submitted over so many connections, and leased and completed over as many.
    LifeCycles { connections: usize },
    /// The same in short turns, on servers that stay: their order changes from turn to turn, and the
    /// two of each turn are compared.
    LifeCyclesInTurns { connections: usize },
    /// Jobs are submitted, so many requests outstanding on each connection.
    Submits { connections: usize, depth: usize },
    /// Jobs arrive at half the rate that Spindle has just taken them at, whatever the server does.
    /// A latency counts from when the job should have been sent (open loop).
    OpenLoop { connections: usize },
    /// Jobs that wait already, in this order, are leased and completed over so many connections.
    Drains { connections: usize, order: Order },
    /// As many connections as there are jobs ask for something and idle.
    Idle,
    /// The server takes jobs that nobody leases, is killed, and starts again.
    Waiting,
    /// The same; before the kill, life cycles, submits and drains over 8 connections a side take
    /// turns with those of a second server, which has a thousand jobs waiting.
    WaitingBesideFew,
    /// The door is flooded, in each way there is, beside clients of all doors that ask for little:
    /// see [`shares`](crate::shares). As many jobs wait for those that need some.
    Floods,
    /// All jobs wait. Life cycles over 8 connections a side go on while every web page is read, and
    /// then beside open pages and without: see [`pages`](crate::pages).
    Pages,
    /// All jobs wait, and are backed up beside a load: see [`backups`](crate::backups).
    Backups,
    /// As many schedules as there are jobs wait, and fire beside life cycles: see
    /// [`schedules`](crate::schedules).
    Schedules,
    /// Three nodes share a log beside a server that has its own: see [`nodes`].
    Nodes(Keeper),
    /// Queues on one log and on several, whose servers are slow: see [`nodes`].
    Shards,
    /// A worker of a client library does jobs of a task that does nothing: see
    /// [`workers`](crate::workers).
    Workers(Language),
}

/// The order of the waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Their age.
    Age,
    /// The turn of their key: the queue is fair, and has so many.
    Turns { keys: u64 },
    /// Each waits for the end of the one before it.
    Chain,
}

/// What Spindle is measured beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// beanstalkd in memory.
    Beanstalkd,
    /// beanstalkd with its binlog synced on every write (`-b DIR -f 0`).
    BeanstalkdSynced,
    /// gearmand, which keeps everything in memory.
    Gearmand,
    /// The echo that syncs: the most that one thread can answer from this disk.
    EchoSynced,
    /// An axum handler that reads a request and keeps nothing, on as many threads as Spindle has
    /// for HTTP.
    BareAxum,
    /// A script that commits each job to one table with Python's sqlite3.
    PythonSqlite,
    /// Spindle itself with a certificate, over plain connections.
    PlainSpindle,
    /// Spindle itself, without tokens.
    OpenSpindle,
    /// Spindle itself, whose leases do not wait for their record.
    EarlyLeases,
    /// Spindle itself, with a thousand jobs waiting.
    FewWaiting,
    /// Spindle itself, with jobs whose order is that of their age.
    ByAge,
}

/// A figure, and what it must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) figure: Figure,
    /// The peer whose figure it is divided by, if it is not judged by itself.
    pub(crate) beside: Option<Peer>,
    /// Without one the figure is printed and not judged.
    pub(crate) bound: Option<Bound>,
}

/// What a figure, or its ratio to a peer's, must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};
use Figure::{LeaseP50, PeakMemory, Rate, ServerCpu, StartTime, SubmitP99};

/// Jobs that wait at [`Peer::FewWaiting`].
pub(crate) const FEW: u64 = 1_000;

const fn of(peer: Peer, figure: Figure, bound: Bound) -> Gate {
    Gate { figure, beside: Some(peer), bound: Some(bound) }
}

/// A ratio that is only reported, without a bound.
const fn known(peer: Peer, figure: Figure) -> Gate {
    Gate { figure, beside: Some(peer), bound: None }
}

const fn alone(figure: Figure, bound: Bound) -> Gate {
    Gate { figure, beside: None, bound: Some(bound) }
}

/// Life cycles through Workq beside beanstalkd.
const fn life_cycles(name: &'static str, connections: usize, gates: &'static [Gate]) -> Suite {
    Suite {
        name,
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::LifeCycles { connections },
        jobs: 60_000,
        peers: &[Peer::Beanstalkd, Peer::BeanstalkdSynced],
        gates,
    }
}

/// Life cycles in which a lease waits for its record, beside those in which it does not.
const fn durable_leases(name: &'static str, connections: usize) -> Suite {
    const GATES: &[Gate] = &[known(Peer::EarlyLeases, Rate), known(Peer::EarlyLeases, LeaseP50)];
    Suite {
        name,
        door: Door::Workq,
        security: Security::Plain,
        flags: &["--durable-leases"],
        load: Load::LifeCycles { connections },
        jobs: 60_000,
        peers: &[Peer::EarlyLeases],
        gates: GATES,
    }
}

/// Submits to Workq beside the echo that syncs.
const fn workq_submits(
    name: &'static str,
    connections: usize,
    depth: usize,
    jobs: u64,
    gates: &'static [Gate],
) -> Suite {
    Suite {
        name,
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::Submits { connections, depth },
        jobs,
        peers: &[Peer::EchoSynced],
        gates,
    }
}

/// Submits to the API beside a bare handler.
const fn api_submits(name: &'static str, connections: usize, gates: &'static [Gate]) -> Suite {
    Suite {
        name,
        door: Door::Api,
        security: Security::Plain,
        flags: &[],
        load: Load::Submits { connections, depth: 1 },
        jobs: 60_000,
        peers: &[Peer::BareAxum],
        gates,
    }
}

/// Floods of a door; the bounds are in [`shares`](crate::shares).
const fn floods(name: &'static str, door: Door) -> Suite {
    Suite {
        name,
        door,
        security: Security::Plain,
        flags: &[],
        load: Load::Floods,
        jobs: 200_000,
        peers: &[],
        gates: &[],
    }
}

/// Drains of waiting jobs, compared with jobs in the order of their age.
const fn drains(name: &'static str, load: Load, jobs: u64, gates: &'static [Gate]) -> Suite {
    let (door, security) = (Door::Workq, Security::Plain);
    Suite { name, door, security, flags: &[], load, jobs, peers: &[Peer::ByAge], gates }
}

/// Connections that idle. Those of HTTP last as long as the suite does.
const fn idle(name: &'static str, door: Door, security: Security, gates: &'static [Gate]) -> Suite {
    let flags: &[_] = match door {
        Door::Api => &["--http-idle-timeout", "1h"],
        _ => &[],
    };
    Suite { name, door, security, flags, load: Load::Idle, jobs: 10_000, peers: &[], gates }
}

/// Workers of our client library; their peers are in [`workers`](crate::workers).
const fn workers(name: &'static str, language: Language) -> Suite {
    let (door, security, load) = (Door::Api, Security::Plain, Load::Workers(language));
    Suite { name, door, security, flags: &[], load, jobs: 10_000, peers: &[], gates: &[] }
}

/// Nodes that share a log; the bounds are in [`nodes`].
const fn shared(name: &'static str, keeper: Keeper) -> Suite {
    let (door, security, load) = (Door::Workq, Security::Plain, Load::Nodes(keeper));
    Suite { name, door, security, flags: &[], load, jobs: 60_000, peers: &[], gates: &[] }
}

/// Queues on several logs.
const fn sharded(name: &'static str) -> Suite {
    let (door, security, load) = (Door::Workq, Security::Plain, Load::Shards);
    Suite { name, door, security, flags: &[], load, jobs: 4_000, peers: &[], gates: &[] }
}

/// All suites, in the order they run.
pub(crate) const SUITES: &[Suite] = &[
    life_cycles(
        "lifecycle-8",
        8,
        &[
            of(Peer::Beanstalkd, Rate, AtLeast(0.75)),
            of(Peer::BeanstalkdSynced, Rate, AtLeast(6.0)),
            of(Peer::Beanstalkd, ServerCpu, AtMost(1.2)),
        ],
    ),
    life_cycles(
        "lifecycle-64",
        64,
        &[
            of(Peer::Beanstalkd, Rate, AtLeast(1.0)),
            known(Peer::BeanstalkdSynced, Rate),
            known(Peer::Beanstalkd, ServerCpu),
        ],
    ),
    workq_submits("submit-8", 8, 1, 120_000, &[of(Peer::EchoSynced, Rate, AtLeast(0.8))]),
    workq_submits("submit-16", 16, 1, 120_000, &[of(Peer::EchoSynced, Rate, AtLeast(0.75))]),
    workq_submits("submit-64", 64, 1, 120_000, &[of(Peer::EchoSynced, Rate, AtLeast(0.75))]),
    workq_submits("submit-8x32", 8, 32, 360_000, &[of(Peer::EchoSynced, Rate, AtLeast(0.5))]),
    Suite {
        name: "tls-submit-64",
        door: Door::Workq,
        security: Security::Used,
        flags: &[],
        load: Load::Submits { connections: 64, depth: 1 },
        jobs: 120_000,
        peers: &[Peer::PlainSpindle],
        gates: &[of(Peer::PlainSpindle, Rate, AtLeast(0.6)), known(Peer::PlainSpindle, ServerCpu)],
    },
    // The cost of a token is a fraction of the variation from run to run that a rate over few
    // connections has because of disk syncs and other processes. The server's own CPU time for a
    // life cycle includes everything done for a token, and varies far less: on a machine that
    // compiled meanwhile, the middle half of 30 turns lay within 0.95..1.06 of it, and within
    // 0.81..1.21 of the rate. Where the processor bounds the rate, the rate loses as much. So the
    // gate is on this CPU time.
    Suite {
        name: "token-lifecycle-8",
        door: Door::Workq,
        security: Security::Tokens,
        flags: &[],
        load: Load::LifeCyclesInTurns { connections: 8 },
        jobs: 60_000,
        peers: &[Peer::OpenSpindle],
        gates: &[of(Peer::OpenSpindle, ServerCpu, AtMost(1.02)), known(Peer::OpenSpindle, Rate)],
    },
    durable_leases("durable-leases-8", 8),
    durable_leases("durable-leases-64", 64),
    idle("idle-10k", Door::Workq, Security::Plain, &[alone(PeakMemory, AtMost(120.0))]),
    idle("idle-tls-10k", Door::Workq, Security::Used, &[alone(PeakMemory, AtMost(350.0))]),
    idle("idle-http-10k", Door::Api, Security::Plain, &[alone(PeakMemory, AtMost(120.0))]),
    idle("idle-http-tls-10k", Door::Api, Security::Used, &[alone(PeakMemory, AtMost(350.0))]),
    Suite {
        name: "half-load-64",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::OpenLoop { connections: 64 },
        jobs: 120_000,
        peers: &[Peer::EchoSynced],
        gates: &[alone(SubmitP99, AtMost(1000.0)), known(Peer::EchoSynced, SubmitP99)],
    },
    Suite {
        name: "gearman-submit-8",
        door: Door::Gearman,
        security: Security::Plain,
        flags: &[],
        load: Load::Submits { connections: 8, depth: 1 },
        jobs: 120_000,
        peers: &[Peer::Gearmand],
        gates: &[of(Peer::Gearmand, Rate, AtLeast(0.7))],
    },
    Suite {
        name: "gearman-lifecycle-8",
        door: Door::Gearman,
        security: Security::Plain,
        flags: &[],
        load: Load::LifeCycles { connections: 8 },
        jobs: 60_000,
        peers: &[Peer::Gearmand],
        gates: &[of(Peer::Gearmand, Rate, AtLeast(0.8))],
    },
    api_submits("api-submit-8", 8, &[of(Peer::BareAxum, Rate, AtLeast(0.33))]),
    api_submits("api-submit-64", 64, &[of(Peer::BareAxum, Rate, AtLeast(0.4))]),
    Suite {
        name: "jobq-create-8",
        door: Door::Jobq,
        security: Security::Plain,
        flags: &[],
        load: Load::Submits { connections: 8, depth: 1 },
        jobs: 20_000,
        peers: &[Peer::PythonSqlite],
        gates: &[of(Peer::PythonSqlite, Rate, AtLeast(22.0))],
    },
    floods("shares-workq", Door::Workq),
    floods("shares-gearman", Door::Gearman),
    floods("shares-api", Door::Api),
    drains(
        "fair-100k",
        Load::Drains { connections: 8, order: Order::Turns { keys: 100_000 } },
        200_000,
        &[of(Peer::ByAge, Rate, AtLeast(0.8)), known(Peer::ByAge, ServerCpu)],
    ),
    // One worker on both sides: of a chain, there is never more than one job to work on.
    drains(
        "chain-10k",
        Load::Drains { connections: 1, order: Order::Chain },
        10_000,
        &[of(Peer::ByAge, Rate, AtLeast(0.33)), known(Peer::ByAge, ServerCpu)],
    ),
    Suite {
        name: "pages-1m",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::Pages,
        jobs: 1_000_000,
        peers: &[],
        gates: &[],
    },
    Suite {
        name: "backup-1m",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::Backups,
        jobs: 1_000_000,
        peers: &[],
        gates: &[],
    },
    Suite {
        name: "schedules-10k",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::Schedules,
        jobs: 10_000,
        peers: &[],
        gates: &[],
    },
    shared("nodes-nats", Keeper::Nats),
    shared("nodes-pgsql", Keeper::Postgres),
    sharded("shards-nats"),
    workers("python-worker", Language::Python),
    workers("node-worker", Language::Node),
    Suite {
        name: "waiting-1m",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::Waiting,
        jobs: 1_000_000,
        peers: &[],
        gates: &[alone(PeakMemory, AtMost(190.0)), alone(StartTime, AtMost(1.0))],
    },
    Suite {
        name: "waiting-10m",
        door: Door::Workq,
        security: Security::Plain,
        flags: &[],
        load: Load::WaitingBesideFew,
        jobs: 10_000_000,
        peers: &[Peer::FewWaiting],
        gates: &[
            of(Peer::FewWaiting, Rate, AtLeast(0.85)),
            alone(PeakMemory, AtMost(1.6 * 1024.0)),
            alone(StartTime, AtMost(12.0)),
        ],
    },
];

/// What `--against` measures without `--only`.
pub(crate) const AGAINST: [&str; 2] = ["lifecycle-8", "submit-64"];

impl Suite {
    /// What it does, for people, with `jobs` divided by `divisor`.
    pub(crate) fn title(&self, divisor: u64) -> String {
        let (door, jobs) = (self.door, self.jobs / divisor);
        let how = match self.security {
            Security::Used => " over TLS",
            Security::Tokens => ", with a token",
            Security::Plain | Security::Offered => "",
        };
        match self.load {
            Load::LifeCycles { connections } => {
                format!(
                    "{jobs} life cycles through {door:?}{how}, {connections} producers and {connections} workers"
                )
            }
            Load::LifeCyclesInTurns { connections } => {
                let turns = run::TURNS;
                format!(
                    "{jobs} life cycles through {door:?}{how} in {turns} turns, {connections} \
                     producers and {connections} workers"
                )
            }
            Load::Submits { connections, depth } => {
                format!("{jobs} submits to {door:?}{how}, {connections} connections, {depth} deep")
            }
            Load::OpenLoop { connections } => format!(
                "{jobs} submits to {door:?} at half the rate that Spindle takes, {connections} \
                 connections; latency from the intended time"
            ),
            Load::Drains { connections, order } => {
                let which = match order {
                    Order::Age => "of which the oldest is next".to_owned(),
                    Order::Turns { keys } => format!("of up to {keys} keys that take turns"),
                    Order::Chain => "each after the one before it".to_owned(),
                };
                format!("{jobs} jobs that wait, {which}, {connections} workers of {door:?}")
            }
            Load::Idle => format!("{jobs} idle connections to {door:?}{how}: memory"),
            Load::Waiting => {
                format!("{jobs} waiting jobs: memory, and the start after a kill")
            }
            Load::Floods => format!(
                "{door:?} is flooded: p99 of clients of all doors that ask for little, beside \
                 their p99 before; {jobs} jobs a purge"
            ),
            Load::Pages => format!(
                "{jobs} waiting jobs and life cycles: web pages, and what open ones cost the life \
                 cycles"
            ),
            Load::Backups => {
                format!("{jobs} waiting jobs: what their backup costs the load beside it")
            }
            Load::Schedules => format!(
                "{jobs} schedules: what they cost while none is due, and how late they fire beside \
                 life cycles"
            ),
            Load::Workers(language) => format!(
                "{jobs} jobs that do nothing, by one process of a worker in {language:?}, beside \
                 other libraries"
            ),
            Load::Nodes(keeper) => {
                let (keeper, connections) = (keeper.title(), nodes::CONNECTIONS);
                format!(
                    "three nodes on {keeper}: {jobs} life cycles through {door:?}, {connections} \
                     producers and {connections} workers, beside one server; followers; leaders \
                     that are killed; a new node with {} jobs waiting",
                    jobs * nodes::WAITING_PER_CYCLE
                )
            }
            Load::Shards => format!(
                "{jobs} life cycles through {door:?} with payloads of {} bytes in 32 queues and three \
                 nodes, on one log and on {}; the disk of each server of NATS takes {} MB/s",
                nodes::PAYLOAD_BYTES,
                nodes::SHARDS,
                nodes::DISK_BYTES_PER_S / 1_000_000
            ),
            Load::WaitingBesideFew => format!(
                "{jobs} waiting jobs: memory, rates beside those with {FEW} waiting, \
                 and the start after a kill"
            ),
        }
    }
}

impl Bound {
    /// Whether a figure reaches it.
    pub(crate) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_gate_names_a_peer_of_its_suite() {
        for (place, suite) in SUITES.iter().enumerate() {
            assert!(SUITES[..place].iter().all(|before| before.name != suite.name));
            for gate in suite.gates {
                assert!(gate.beside.is_none_or(|peer| suite.peers.contains(&peer)), "{suite:?}");
            }
        }
        assert!(AGAINST.iter().all(|name| SUITES.iter().any(|suite| suite.name == *name)));
    }

    #[test]
    fn a_bound_is_met_exactly_at_its_number() {
        assert!(AtLeast(0.65).is_met(0.65) && !AtLeast(0.65).is_met(0.6499));
        assert!(AtMost(1.6).is_met(1.6) && !AtMost(1.6).is_met(1.6001));
    }
}
