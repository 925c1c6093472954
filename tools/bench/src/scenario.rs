//! The sub-commands that measure one scenario, and the measurements the suite shares with them.

use crate::check::Checker;
use crate::cli::{Bounds, Common, Drain, Lifecycle, Memory, Openloop, Roundtrip, Submit};
use crate::jobs::Jobs;
use crate::load::{self, Outcome, Plan};
use crate::machine::{Machine, require_disk};
use crate::process;
use crate::report::{Figures, Report, Scenario, Series};
use crate::server::{Running, Server};
use crate::wire::Wire;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Every server first gets a twentieth of the run, at least this many jobs, that nobody counts.
const WARM_UP_JOBS_MIN: u64 = 200;
/// Connections and depth that fill a server quickly.
pub(crate) const FILL: (usize, usize) = (8, 32);
/// A fill may take this many deadlines: it is no measurement, and it may be a million jobs.
const FILL_DEADLINES: u32 = 5;

/// What a run is made of besides its plan.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Deadline and folder.
    pub(crate) bounds: &'a Bounds,
    /// Bytes of a payload.
    pub(crate) payload_bytes: usize,
}

impl<'a> Setting<'a> {
    fn of(common: &'a Common) -> Self {
        Self { bounds: &common.bounds, payload_bytes: common.payload_bytes }
    }

    /// A plan against `running` for `jobs`, with nothing in it yet.
    pub(crate) fn plan<'j>(&self, running: &Running, jobs: &'j Jobs) -> Plan<'j> {
        Plan::new(running.address, running.wire(), jobs, self.bounds.deadline)
    }

    /// Whole life cycles on a fresh server, each job exactly once.
    pub(crate) fn lifecycle(
        &self,
        server: &Server,
        (producers, workers): (usize, usize),
        count: u64,
    ) -> Result<Figures> {
        ensure!(server.wire().has_workers(), "{} is only submitted to", server.name());
        let running = server.start(self.bounds)?;
        let play = |count| {
            let jobs = Jobs::fresh(self.payload_bytes);
            let plan = self.plan(&running, &jobs);
            let plan = plan.submitting(count, producers, 1).working(count, workers);
            exactly_once(&running, &plan, count)
        };
        play(warm_up(count))?;
        play(count)
    }

    /// Submits on a fresh server.
    pub(crate) fn submit(
        &self,
        server: &Server,
        (connections, depth): (usize, usize),
        count: u64,
    ) -> Result<Figures> {
        let running = server.start(self.bounds)?;
        let warm_up_jobs = Jobs::fresh(self.payload_bytes);
        let plan = self.plan(&running, &warm_up_jobs);
        measure(&running, &plan.submitting(warm_up(count), connections, depth), &mut unchecked())?;
        let jobs = Jobs::fresh(self.payload_bytes);
        let plan = self.plan(&running, &jobs).submitting(count, connections, depth);
        measure(&running, &plan, &mut unchecked())
    }

    /// Lets `count` jobs wait, from number `first` on.
    pub(crate) fn fill(
        &self,
        running: &Running,
        jobs: &Jobs,
        first: u64,
        count: u64,
    ) -> Result<()> {
        let (connections, depth) = FILL;
        let mut plan = self.plan(running, jobs).submitting(count, connections, depth);
        plan.first = first;
        plan.deadline *= FILL_DEADLINES;
        load::run(&plan, &mut unchecked()).context("while filling the server")?;
        Ok(())
    }

    /// Foreground jobs on a fresh server: each submitter waits for the result of its own job.
    pub(crate) fn roundtrip(
        &self,
        server: &Server,
        (clients, workers): (usize, usize),
        count: u64,
    ) -> Result<Figures> {
        ensure!(server.wire().is_gearman(), "{} has no foreground jobs", server.name());
        let running = server.start(self.bounds)?;
        let play = |count| {
            let jobs = Jobs::fresh(self.payload_bytes);
            let mut plan = self.plan(&running, &jobs);
            plan = plan.submitting(count, clients, 1).working(count, workers);
            plan.wire = Wire::GearmanForeground;
            exactly_once(&running, &plan, count)
        };
        play(warm_up(count))?;
        play(count)
    }

    /// Works off a backlog on a fresh server, each job exactly once.
    pub(crate) fn drain(&self, server: &Server, workers: usize, count: u64) -> Result<Figures> {
        ensure!(server.wire().has_workers(), "{} is only submitted to", server.name());
        let running = server.start(self.bounds)?;
        let jobs = Jobs::fresh(self.payload_bytes);
        self.fill(&running, &jobs, 0, count)?;
        exactly_once(&running, &self.plan(&running, &jobs).working(count, workers), count)
    }

    fn openloop(&self, server: &Server, args: &Openloop) -> Result<Figures> {
        let running = server.start(self.bounds)?;
        let jobs = Jobs::fresh(self.payload_bytes);
        let count = (f64::from(args.rate) * args.time.as_secs_f64()) as u64;
        let finishes = if args.workers == 0 { 0 } else { count };
        let mut plan = self.plan(&running, &jobs);
        plan = plan.submitting(count, args.connections, 1).working(finishes, args.workers);
        plan.rate_per_s = Some(f64::from(args.rate));
        plan.deadline += args.time;
        let mut checker = Checker::default();
        let figures = measure(&running, &plan, &mut checker)?;
        checker.verdict(finishes)?;
        Ok(figures)
    }

    fn memory(&self, server: &Server, args: &Memory) -> Result<Figures> {
        let running = server.start(self.bounds)?;
        let jobs = Jobs::fresh(self.payload_bytes);
        let (connections, depth) = FILL;
        let mut plan = self.plan(&running, &jobs);
        plan = plan.submitting(args.waiting, connections, depth);
        plan.deadline *= FILL_DEADLINES;
        let filled = measure(&running, &plan, &mut unchecked())?;
        if args.lifecycles == 0 {
            return Ok(filled);
        }
        let mut plan = self.plan(&running, &jobs);
        plan = plan.submitting(args.lifecycles, 8, 1).working(args.lifecycles, 8);
        plan.first = args.waiting;
        let mut checker = Checker::default();
        let figures = measure(&running, &plan, &mut checker)?;
        checker.verdict(args.lifecycles)?;
        Ok(figures)
    }
}

/// How many jobs a server gets before those that count.
pub(crate) fn warm_up(count: u64) -> u64 {
    (count / 20).max(WARM_UP_JOBS_MIN)
}

/// For runs in which nothing is delivered.
pub(crate) fn unchecked() -> Checker {
    Checker::default()
}

/// Plays a plan that must deliver and finish each of `count` jobs exactly once and leave none.
pub(crate) fn exactly_once(running: &Running, plan: &Plan<'_>, count: u64) -> Result<Figures> {
    let mut checker = Checker::default();
    let figures = measure(running, plan, &mut checker)?;
    checker.verdict(count)?;
    ensure!(load::is_drained(plan)?, "every job was finished, and yet the server had one more");
    Ok(figures)
}

/// Plays a plan and reads what it cost the server.
pub(crate) fn measure(
    running: &Running,
    plan: &Plan<'_>,
    checker: &mut Checker,
) -> Result<Figures> {
    let cpu = || running.pid.map(process::cpu_time).transpose();
    let before = cpu()?;
    let outcome = load::run(plan, checker)?;
    let after = cpu()?;
    let used = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let resident = running.pid.map(process::resident).transpose()?;
    let mut figures = figures_of(plan, &outcome, used);
    figures.resident_kib = resident.map(|resident| resident.now_kib);
    figures.resident_peak_kib = resident.map(|resident| resident.peak_kib);
    Ok(figures)
}

fn figures_of(plan: &Plan<'_>, outcome: &Outcome, cpu: Option<Duration>) -> Figures {
    let jobs = plan.adds.max(plan.finishes);
    Figures {
        add: outcome.add.percentiles(),
        lease: outcome.lease.percentiles(),
        finish: outcome.finish.percentiles(),
        server_cpu_us_per_job: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / jobs as f64),
        ..Figures::of_rate(jobs, outcome.elapsed.as_secs_f64())
    }
}

/// Measures every server once per round, so that whatever drifts hits all of them alike.
pub(crate) fn alternate(
    title: &str,
    servers: &[Server],
    runs: u32,
    mut run: impl FnMut(&Server) -> Result<Figures>,
) -> Result<Scenario> {
    let mut series: Vec<Series> = servers
        .iter()
        .map(|server| Series { server: server.name(), sync: server.sync_mode(), runs: vec![] })
        .collect();
    for round in 1..=runs {
        for (server, series) in servers.iter().zip(&mut series) {
            let figures = run(server)
                .with_context(|| format!("{title}: {} ({})", series.server, series.sync))?;
            eprintln!(
                "{title}: {round}/{runs} {} ({}): {:.0} jobs/s",
                series.server, series.sync, figures.rate_per_s
            );
            series.runs.push(figures);
        }
    }
    Ok(Scenario { title: title.to_owned(), series })
}

/// The length of a submit of `payload_bytes`, which the echo server must know.
pub(crate) fn echo_frame_bytes(payload_bytes: usize) -> usize {
    Jobs::fresh(payload_bytes).add_bytes(Wire::Workq)
}

fn single(
    common: &Common,
    title: &str,
    with_echo: bool,
    run: impl FnMut(&Server) -> Result<Figures>,
) -> Result<()> {
    let frame_bytes = with_echo.then(|| echo_frame_bytes(common.payload_bytes));
    let servers = Server::chosen(common, frame_bytes)?;
    let folder = common.bounds.folder();
    require_disk(&folder)?;
    let machine = Machine::inspect(&folder)?;
    let scenario = alternate(title, &servers, common.runs, run)?;
    let report = Report { machine, scenarios: vec![scenario], gates: vec![] };
    report.publish(common.bounds.json.as_deref())
}

/// `lifecycle`.
pub(crate) fn lifecycle(args: &Lifecycle) -> Result<()> {
    let Lifecycle { common, producers, workers, jobs } = args;
    let bytes = common.payload_bytes;
    let title =
        format!("{jobs} life cycles of {bytes} B, {producers} producers, {workers} workers");
    single(common, &title, false, |server| {
        Setting::of(common).lifecycle(server, (*producers, *workers), *jobs)
    })
}

/// `submit`.
pub(crate) fn submit(args: &Submit) -> Result<()> {
    let Submit { common, connections, depth, jobs } = args;
    let bytes = common.payload_bytes;
    let title = format!("{jobs} submits of {bytes} B, {connections} connections, {depth} deep");
    single(common, &title, true, |server| {
        Setting::of(common).submit(server, (*connections, *depth), *jobs)
    })
}

/// `drain`.
pub(crate) fn drain(args: &Drain) -> Result<()> {
    let Drain { common, workers, jobs } = args;
    let title = format!("{jobs} waiting jobs of {} B, {workers} workers", common.payload_bytes);
    single(common, &title, false, |server| Setting::of(common).drain(server, *workers, *jobs))
}

/// `roundtrip`.
pub(crate) fn roundtrip(args: &Roundtrip) -> Result<()> {
    let Roundtrip { common, clients, workers, jobs } = args;
    let bytes = common.payload_bytes;
    let title = format!(
        "{jobs} foreground round trips of {bytes} B, {clients} clients, {workers} workers; \
         add is from the submit to its result"
    );
    single(common, &title, false, |server| {
        Setting::of(common).roundtrip(server, (*clients, *workers), *jobs)
    })
}

/// `openloop`.
pub(crate) fn openloop(args: &Openloop) -> Result<()> {
    let Openloop { common, rate, time, connections, workers } = args;
    let title = format!(
        "open loop: {rate} jobs/s of {} B arriving for {time:?}, {connections} connections, \
         {workers} workers; latency from the intended time",
        common.payload_bytes
    );
    single(common, &title, *workers == 0, |server| Setting::of(common).openloop(server, args))
}

/// `memory`.
pub(crate) fn memory(args: &Memory) -> Result<()> {
    let Memory { common, waiting, lifecycles } = args;
    let bytes = common.payload_bytes;
    let title = match lifecycles {
        0 => {
            format!("memory with {waiting} waiting jobs of {bytes} B; the rate is that of the fill")
        }
        _ => format!("{lifecycles} life cycles with {waiting} waiting jobs of {bytes} B"),
    };
    single(common, &title, false, |server| Setting::of(common).memory(server, args))
}
