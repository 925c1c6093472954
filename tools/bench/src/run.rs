//! Does to one server what a row of the table asks for.
//!
//! Every run accounts for every job: the payloads that workers get are compared byte by byte, each
//! job must be handed out and finished exactly once, and afterwards the server itself must count as
//! many jobs as were acknowledged and not finished.

use crate::figures::Figures;
use crate::load::{self, Checker, Jobs, Plan, Socket, Target};
use crate::order;
use crate::peer::sqlite;
use crate::process;
use crate::server::{Running, Server};
use crate::suite::{Load, Order};
use crate::wire::{Wire, waiting_jobs};
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// The most log space of a waiting job, including the space prepared ahead.
pub(crate) const DISK_BYTES_PER_JOB: u64 = 600;
/// Every server first gets a twentieth of the run, at least this many jobs, as a warm-up that is
/// not counted.
const WARM_UP_JOBS_MIN: u64 = 200;
/// A script gets one in this many of the jobs, because it is that much slower than a server.
const SCRIPT_SHARE: u64 = 30;
/// A run among waiting jobs has one job for this many of them.
const WAITING_PER_JOB: u64 = 500;
/// The number of turns of a run in turns.
pub(crate) const TURNS: u64 = 10;
/// What a connection of Workq asks for before it idles, and how the answer begins.
const IDLE_WORKQ: (&[u8], &[u8]) = (b"inspect server\r\n", b"+OK");
/// The same over HTTP.
const IDLE_HTTP: (&[u8], &[u8]) =
    (b"GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200");

/// Measures a fresh server once. `half_load` is half the rate that the first server of the round
/// took in closed loop, once it is known.
pub(crate) fn once(
    server: &Server,
    load: Load,
    jobs: u64,
    half_load: &mut Option<f64>,
    dir: &Path,
) -> Result<Figures> {
    if let Server::PythonSqlite { python } = server {
        return sqlite::creates(python, dir, jobs / SCRIPT_SHARE);
    }
    let mut site = Site::open(server, dir)?;
    let warm_up = warm_up(jobs);
    match load {
        Load::LifeCycles { connections } => {
            site.play(Plan::life_cycles(warm_up, connections))?;
            site.play(Plan::life_cycles(jobs, connections))
        }
        Load::Submits { connections, depth } => {
            site.play(Plan::submits(warm_up, connections, depth))?;
            site.play(Plan::submits(jobs, connections, depth))
        }
        Load::OpenLoop { connections } => {
            let plan = Plan::submits(jobs, connections, 1);
            let full = site.play(plan)?.rate_per_s.context("a run has a rate")?;
            site.play(Plan { rate_per_s: Some(*half_load.get_or_insert(full / 2.0)), ..plan })
        }
        Load::Drains { connections, order } => {
            site.play(Plan::life_cycles(warm_up, connections))?;
            site.let_wait(server, jobs, order)?;
            site.play(Plan::drains(jobs, connections))
        }
        Load::Idle => site.idle(jobs),
        Load::LifeCyclesInTurns { .. }
        | Load::Floods
        | Load::Pages
        | Load::Backups
        | Load::Schedules
        | Load::Nodes(_)
        | Load::Shards
        | Load::Workers(_) => {
            bail!("that is measured in another way")
        }
        Load::Waiting | Load::WaitingBesideFew => {
            let filled = site.fill(jobs)?;
            Ok(Figures { start_s: site.restart()?.start_s, ..filled })
        }
    }
}

/// The number of warm-up jobs before `jobs` jobs are counted.
pub(crate) fn warm_up(jobs: u64) -> u64 {
    (jobs / 20).max(WARM_UP_JOBS_MIN)
}

/// The loads that run while `waiting` jobs wait; just as many wait afterwards.
pub(crate) fn among_waiting(waiting: u64) -> [(&'static str, Plan); 3] {
    let count = (waiting / WAITING_PER_JOB).max(1);
    [
        ("life cycles", Plan::life_cycles(count, 8)),
        ("submits", Plan::submits(count, 8, 1)),
        ("drains", Plan::drains(count, 8)),
    ]
}

/// A running server, and what it was sent since its first start.
pub(crate) struct Site {
    running: Running,
    target: Target,
    jobs: Jobs,
    submitted: u64,
    finished: u64,
    checker: Checker,
}

impl Site {
    /// Starts a server on an empty folder.
    pub(crate) fn open(server: &Server, dir: &Path) -> Result<Self> {
        let running = server.start(dir)?;
        let target = running.target()?;
        let jobs = Jobs::fresh(running.wire());
        Ok(Self { running, target, jobs, submitted: 0, finished: 0, checker: Checker::default() })
    }

    /// The address of the server, and how to talk to it.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// How many threads of the server have a name with this beginning.
    pub(crate) fn threads_named(&self, start: &str) -> Result<usize> {
        process::threads_named(self.running.pid(), start)
    }

    /// What the server has used so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.running.pid())
    }

    /// Lets so many jobs wait.
    pub(crate) fn fill(&mut self, jobs: u64) -> Result<Figures> {
        self.play(Plan::submits(jobs, 8, 32))
    }

    /// Lets so many jobs wait in an order.
    fn let_wait(&mut self, server: &Server, jobs: u64, order: Order) -> Result<()> {
        let Server::SpindleDoors { http, .. } = server else { bail!("that takes an HTTP door") };
        self.jobs.let_server_name();
        order::submit(*http, &self.jobs, self.submitted..self.submitted + jobs, order)?;
        self.submitted += jobs;
        Ok(())
    }

    /// Opens `connections` connections, sends a request on each, and leaves them open. Returns the
    /// server's peak resident memory meanwhile.
    fn idle(&mut self, connections: u64) -> Result<Figures> {
        let (request, expected) = match self.running.wire() {
            Wire::Workq => IDLE_WORKQ,
            Wire::Api => IDLE_HTTP,
            wire => bail!("nothing is asked for over {wire:?} before it idles"),
        };
        let mut open = vec![];
        for _ in 0..connections {
            let mut socket = Socket::connect(&self.target)?;
            socket.write_all(request)?;
            let mut answer = vec![0; expected.len()];
            socket.read_exact(&mut answer)?;
            let said = String::from_utf8_lossy(&answer);
            ensure!(answer == expected, "a connection was answered {said:?}");
            open.push(socket);
        }
        let resident_peak_kib = process::resident_peak_kib(self.running.pid())?;
        let resident_peak_mib = Some(resident_peak_kib as f64 / 1024.0);
        Ok(Figures { resident_peak_mib, ..Figures::default() })
    }

    /// Plays a plan, reads what it cost the server, and accounts for every job.
    pub(crate) fn play(&mut self, plan: Plan) -> Result<Figures> {
        let pid = self.running.pid();
        let plan = Plan { first: self.submitted, ..plan };
        let before = process::cpu_time(pid)?;
        let outcome = load::run(&self.target, &self.jobs, plan, &mut self.checker)?;
        let cpu = process::cpu_time(pid)?.saturating_sub(before);
        let resident_peak_kib = process::resident_peak_kib(pid)?;
        self.submitted += plan.submits;
        self.finished += plan.finishes;
        self.account()?;
        let jobs = plan.submits.max(plan.finishes) as f64;
        Ok(Figures {
            rate_per_s: Some(jobs / outcome.elapsed.as_secs_f64()),
            arrivals_per_s: plan.rate_per_s,
            submit: outcome.submit.percentiles(),
            lease: outcome.lease.percentiles(),
            finish: outcome.finish.percentiles(),
            server_cpu_us_per_job: Some(cpu.as_secs_f64() * 1e6 / jobs),
            resident_peak_mib: Some(resident_peak_kib as f64 / 1024.0),
            ..Figures::default()
        })
    }

    /// Kills the server and starts it again on the same folder: the time from the start of its
    /// process to its first answer. What it acknowledged must be there.
    pub(crate) fn restart(&mut self) -> Result<Figures> {
        let queue = self.jobs.queue().to_owned();
        let wire = self.running.wire();
        let took =
            self.running.restart(|address| waiting_jobs(wire, address, None, &queue).map(drop))?;
        self.account().context("after the start")?;
        Ok(Figures { start_s: Some(took.as_secs_f64()), ..Figures::default() })
    }

    fn account(&self) -> Result<()> {
        self.checker.verdict(self.finished)?;
        if !self.running.keeps_jobs() {
            return Ok(());
        }
        let token = self.running.target()?.token;
        let (wire, address) = (self.running.wire(), self.running.address);
        let counted = waiting_jobs(wire, address, token.as_deref(), self.jobs.queue())?;
        let expected = self.submitted - self.finished;
        ensure!(
            counted == expected,
            "the server counts {counted} waiting jobs, and not the {expected} that it has \
             acknowledged and that nobody has finished"
        );
        Ok(())
    }
}
