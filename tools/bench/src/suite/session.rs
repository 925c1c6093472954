//! One session of the suite: how large its runs are, and what it has found so far.

use super::jobq::Change;
use super::{gearman, heavy, http, jobq, lists, plain, polls};
use crate::cli;
use crate::gate::{Gate, Judgement, Verdict};
use crate::machine::{Machine, require_disk};
use crate::report::{Report, Scenario};
use crate::scenario::{Setting, echo_frame_bytes};
use crate::server::{Echo, Server};
use crate::target::Door;
use crate::wire::Wire;
use crate::wire::http::Submits;
use anyhow::{Result, bail};
use clap::ValueEnum;

/// Bytes of a payload in all gates.
const PAYLOAD_BYTES: usize = 256;
const LIFECYCLE_JOBS: u64 = 60_000;
const LIFECYCLE_JOBS_QUICK: u64 = 2_000;

/// How many jobs the runs have.
pub(super) struct Sizes {
    pub(super) lifecycle: u64,
    pub(super) submit: u64,
    pub(super) pipelined: u64,
    /// Old jobs that the log has to carry forward.
    pub(super) live: u64,
    /// Jobs that are submitted and completed on top of them.
    pub(super) churn: u64,
    pub(super) waiting: u64,
    pub(super) waiting_few: u64,
    /// Jobs of Jobq that polls look through.
    pub(super) polled: u64,
}

impl Sizes {
    fn of(args: &cli::Suite) -> Self {
        let usual = if args.quick { LIFECYCLE_JOBS_QUICK } else { LIFECYCLE_JOBS };
        let lifecycle = args.jobs.unwrap_or(usual);
        Self {
            lifecycle,
            submit: lifecycle * 2,
            pipelined: lifecycle * 6,
            live: lifecycle,
            churn: lifecycle * 5,
            waiting: if args.quick { 20_000 } else { 1_000_000 },
            waiting_few: 1_000,
            polled: if args.quick { 5_000 } else { 100_000 },
        }
    }
}

/// What the gates share.
pub(super) struct Session<'a> {
    pub(super) args: &'a cli::Suite,
    pub(super) setting: Setting<'a>,
    pub(super) sizes: Sizes,
    pub(super) runs: u32,
    pub(super) machine: Machine,
    pub(super) scenarios: Vec<Scenario>,
    pub(super) judgements: Vec<Judgement>,
}

/// `suite`.
pub(crate) fn run(args: &cli::Suite) -> Result<()> {
    let folder = args.bounds.folder();
    require_disk(&folder)?;
    let mut session = Session {
        args,
        setting: Setting { bounds: &args.bounds, payload_bytes: PAYLOAD_BYTES },
        sizes: Sizes::of(args),
        runs: args.runs.unwrap_or(if args.quick { 2 } else { 5 }),
        machine: Machine::inspect(&folder)?,
        scenarios: vec![],
        judgements: vec![],
    };
    eprintln!("{}", session.machine.describe());
    let mut failures = vec![];
    for &gate in Gate::value_variants() {
        if !args.only.is_empty() && !args.only.contains(&gate) {
            continue;
        }
        // A gate that cannot be measured must not cost the figures of the others.
        if let Err(error) = session.measure(gate) {
            eprintln!("{gate:?}: {error:#}");
            failures.push(format!("{gate:?}: {error:#}"));
        }
    }
    session.finish(&failures)
}

impl Session<'_> {
    fn measure(&mut self, gate: Gate) -> Result<()> {
        match gate {
            Gate::Lifecycle8 => plain::lifecycle(self, 8, 0.65, 3.3),
            Gate::Lifecycle64 => plain::lifecycle(self, 64, 0.8, 5.0),
            Gate::Submit64 => plain::submit_rate(self, 64, 1, 0.75),
            Gate::Submit8 => plain::submit_latency(self),
            Gate::Carry8 => heavy::carry_forward(self),
            Gate::Submit8x32 => plain::submit_rate(self, 8, 32, 0.26),
            Gate::Memory => heavy::memory(self),
            Gate::Waiting => heavy::waiting(self),
            Gate::Restart => heavy::restart(self),
            Gate::GearmanSubmit8 => gearman::submits(self, 1),
            Gate::GearmanSubmit8x32 => gearman::submits(self, 32),
            Gate::GearmanDrain8 => gearman::drain(self),
            Gate::GearmanLifecycle8 => gearman::lifecycle(self),
            Gate::GearmanMemory => gearman::memory(self),
            Gate::GearmanRoundtrip8 => gearman::roundtrip(self),
            Gate::ApiSubmit8 => http::submits(self, Door::Api, Submits::Api),
            Gate::ApiBatch8 => http::batches(self),
            Gate::LightjqSubmit8 => http::submits(self, Door::Lightjq, Submits::Lightjq),
            Gate::JobqCreate8 => jobq::changes(self, Change::Create),
            Gate::JobqState8 => jobq::changes(self, Change::State),
            Gate::JobqPoll => polls::polls(self),
            Gate::ListMillion => lists::lists(self),
        }
    }

    /// The server that has to reach the gates.
    pub(super) fn spindle(&self) -> Server {
        self.spindle_at(Door::Workq, "always")
    }

    /// The same at another door, with another sync mode.
    pub(super) fn spindle_at(&self, door: Door, sync: &str) -> Server {
        self.spindle_beside(door, sync, None)
    }

    /// The same with another door beside.
    pub(super) fn spindle_beside(&self, door: Door, sync: &str, beside: Option<Door>) -> Server {
        let program = self.args.spindle.clone();
        Server::Spindle { program, sync: sync.to_owned(), door, beside }
    }

    /// Python's sqlite3, which is run and no server.
    pub(super) fn python_sqlite(&self) -> Server {
        Server::PythonSqlite { python: self.args.python.clone() }
    }

    /// gearmand, in memory.
    pub(super) fn gearmand(&self) -> Server {
        Server::Gearmand { program: self.args.gearmand_program.clone() }
    }

    /// beanstalkd, in memory or synced.
    pub(super) fn beanstalkd(&self, synced: bool) -> Server {
        Server::Beanstalkd { program: self.args.beanstalkd_program.clone(), synced }
    }

    /// The echo server for this suite's submits.
    pub(super) fn echo(&self, kind: Echo) -> Server {
        Server::Echo { frame_bytes: echo_frame_bytes(PAYLOAD_BYTES), kind }
    }

    /// The peers that speak Workq.
    pub(super) fn workq_peers(&self) -> Result<Vec<Server>> {
        self.peers(Wire::Workq)
    }

    /// The peers that speak this protocol.
    pub(super) fn peers(&self, wire: Wire) -> Result<Vec<Server>> {
        let peers = Server::peers(&self.args.peers)?;
        Ok(peers.into_iter().filter(|peer| peer.wire() == wire).collect())
    }

    fn finish(self, failures: &[String]) -> Result<()> {
        let missed = self.judgements.iter().filter(|gate| gate.verdict == Verdict::NotMet).count();
        let judged = self.judgements.len();
        let report =
            Report { machine: self.machine, scenarios: self.scenarios, gates: self.judgements };
        report.publish(self.args.bounds.json.as_deref())?;
        if !failures.is_empty() {
            bail!("{} gates could not be measured:\n{}", failures.len(), failures.join("\n"));
        }
        if self.args.quick {
            println!("\n--quick: the runs are too small to judge by.");
        } else if missed > 0 {
            bail!("{missed} of {judged} gates are not met");
        }
        Ok(())
    }
}
