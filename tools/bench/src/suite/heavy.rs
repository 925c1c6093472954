//! The gates that need a server with a past: many waiting jobs, a churned log, a restart.

use super::plain::{against_echo, compare_rates};
use super::session::Session;
use crate::check::Checker;
use crate::gate::{Bound, Judgement};
use crate::jobs::Jobs;
use crate::report::{Figures, Scenario, Series, spread_text};
use crate::scenario::{FILL, alternate, measure, unchecked};
use crate::server::{Echo, Running, Server, ready_jobs};
use crate::stats::Spread;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// A churning client finishes the job it submitted this many jobs ago.
const CHURN_LAG: u64 = 1_000;
const MEMORY_MAX_MIB: f64 = 220.0;
const RESTART_MAX_S: f64 = 2.0;
const RESTART_MAX_CATS: f64 = 4.0;
const RESTART_LIMIT: Duration = Duration::from_secs(120);

/// The p99.9 of submits while old jobs are carried forward in the log: 8 connections submit and
/// complete in turn, on top of jobs that stay.
pub(super) fn carry_forward(session: &mut Session<'_>) -> Result<()> {
    let servers = [session.spindle(), session.echo(Echo::Answer)];
    let (live, churn) = (session.sizes.live, session.sizes.churn);
    let lag = CHURN_LAG.min(churn / 2);
    let title =
        format!("{churn} submits, each followed by a complete, 8 connections, {live} jobs stay");
    let mut trimmed = vec![];
    let scenario = alternate(&title, &servers, session.runs, |server| {
        if matches!(server, Server::Echo { .. }) {
            return session.setting.submit(server, (8, 1), session.sizes.submit);
        }
        let running = server.start(session.setting.bounds)?;
        let data = running.data().context("a server of ours has a folder")?;
        let jobs = Jobs::fresh(session.setting.payload_bytes);
        session.setting.fill(&running, &jobs, 0, live)?;
        let mut plan = session.setting.plan(&running, &jobs).submitting(churn, 8, 1);
        (plan.first, plan.finishes, plan.churn_lag) = (live, churn - lag, Some(lag));
        let watch = FolderWatch::start(data);
        let figures = measure(&running, &plan, &mut unchecked())?;
        trimmed.push(watch.stop()?);
        Ok(figures)
    })?;
    let [ours, echo] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let p999 = |series: &Series| series.each(|run| run.add.map(|add| add.p999_us));
    let gate = "submits while the log carries forward, 8 connections: p99.9";
    let judgement = against_echo(session, gate, (10.0, &p999(ours), &p999(echo)))?;
    let note = format!("files of the log that went in each run: {trimmed:?}; {}", judgement.note);
    session.judgements.push(judgement.noting(note));
    session.scenarios.push(scenario);
    ensure!(
        session.args.quick || trimmed.iter().all(|&files| files > 0),
        "the log gave no file back in a run ({trimmed:?}): its p99.9 is not one of carrying forward"
    );
    Ok(())
}

/// Peak memory with a million waiting jobs.
pub(super) fn memory(session: &mut Session<'_>) -> Result<()> {
    let count = session.sizes.waiting;
    let title = format!("memory with {count} waiting jobs; the rate is that of the fill");
    let scenario = alternate(&title, &[session.spindle()], session.runs, |server| {
        let running = server.start(session.setting.bounds)?;
        let jobs = Jobs::fresh(session.setting.payload_bytes);
        let (connections, depth) = FILL;
        let mut plan = session.setting.plan(&running, &jobs).submitting(count, connections, depth);
        plan.deadline *= 5;
        measure(&running, &plan, &mut unchecked())
    })?;
    let [ours] = scenario.series.as_slice() else { anyhow::bail!("a series is missing") };
    let mib = |figure: fn(&Figures) -> Option<u64>| {
        Spread::of(ours.each(|run| figure(run).map(|kib| kib as f64 / 1024.0)))
    };
    let peak = mib(|run| run.resident_peak_kib).context("no memory was read")?;
    let now = spread_text(mib(|run| run.resident_kib), 1);
    let slowest = Spread::of(ours.each(|run| run.add.map(|add| add.max_us / 1000.0)));
    let gate = format!("{count} waiting jobs: peak resident memory");
    let judgement = Judgement::absolute(&gate, peak, "MiB", Bound::AtMost(MEMORY_MAX_MIB))
        .between(&ours.sync, format!("{} MiB", spread_text(Some(peak), 1)), "-".to_owned())
        .noting(format!(
            "resident after the fill: {now} MiB; slowest submit of the fill: {} ms",
            spread_text(slowest, 1)
        ));
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// A server that stays up over rounds, with jobs that wait in one queue.
struct Site {
    running: Running,
    jobs: Jobs,
    next: u64,
    finished: u64,
    checker: Checker,
}

impl Site {
    fn open(session: &Session<'_>, waiting: u64) -> Result<Self> {
        let running = session.spindle().start(session.setting.bounds)?;
        let jobs = Jobs::fresh(session.setting.payload_bytes);
        session.setting.fill(&running, &jobs, 0, waiting)?;
        Ok(Self { running, jobs, next: waiting, finished: 0, checker: Checker::default() })
    }

    /// Submits `adds` and finishes `finishes` jobs over 8 connections for each that is not zero.
    fn play(&mut self, session: &Session<'_>, adds: u64, finishes: u64) -> Result<Figures> {
        let connections = |count: u64| if count == 0 { 0 } else { 8 };
        let mut plan = session.setting.plan(&self.running, &self.jobs);
        plan = plan.submitting(adds, connections(adds), 1);
        plan = plan.working(finishes, connections(finishes));
        plan.first = self.next;
        self.next += adds;
        self.finished += finishes;
        let figures = measure(&self.running, &plan, &mut self.checker)?;
        self.checker.verdict(self.finished)?;
        Ok(figures)
    }
}

/// Rates with a million waiting jobs against those with a thousand, payloads in the page cache.
pub(super) fn waiting(session: &mut Session<'_>) -> Result<()> {
    let (many, few) = (session.sizes.waiting, session.sizes.waiting_few);
    let count = session.sizes.lifecycle / 3;
    let mut sites = [Site::open(session, many)?, Site::open(session, few)?];
    let kinds = [("life cycles", count, count), ("submits", count, 0), ("drains", 0, count)];
    let sync = session.spindle().sync_mode();
    let mut series = kinds.map(|_| {
        [many, few].map(|waiting| Series {
            server: format!("spindle, {waiting} waiting"),
            sync: sync.clone(),
            runs: vec![],
        })
    });
    // The first round warms up and is not counted.
    for round in 0..=session.runs {
        for ((name, adds, finishes), series) in kinds.iter().zip(&mut series) {
            for (site, series) in sites.iter_mut().zip(series) {
                let figures = site.play(session, *adds, *finishes)?;
                eprintln!(
                    "{name}: {round}/{} {}: {:.0} jobs/s",
                    session.runs, series.server, figures.rate_per_s
                );
                if round > 0 {
                    series.runs.push(figures);
                }
            }
        }
    }
    for ((name, ..), [with_many, with_few]) in kinds.into_iter().zip(series) {
        let gate = format!("{name} with {many} waiting / with {few}");
        session.judgements.push(compare_rates(&gate, &with_many, &with_few, 0.9)?);
        let title = format!("{count} {name} among waiting jobs, 8 connections a side");
        session.scenarios.push(Scenario { title, series: vec![with_many, with_few] });
    }
    Ok(())
}

/// Time to serve again on a million waiting jobs and a churned log.
pub(super) fn restart(session: &mut Session<'_>) -> Result<()> {
    let live = session.sizes.waiting;
    let lag = CHURN_LAG.min(live / 2);
    let jobs = Jobs::fresh(session.setting.payload_bytes);
    let mut running = session.spindle().start(session.setting.bounds)?;
    session.setting.fill(&running, &jobs, 0, live)?;
    let (connections, depth) = FILL;
    let mut plan = session.setting.plan(&running, &jobs).submitting(live, connections, depth);
    (plan.first, plan.finishes, plan.churn_lag) = (live, live - lag, Some(lag));
    plan.deadline *= 5;
    measure(&running, &plan, &mut unchecked()).context("while churning the log")?;

    let data = running.data().context("a server of ours has a folder")?;
    let (mut starts, mut cats) = (vec![], vec![]);
    for round in 1..=session.runs {
        let signal = if round % 2 == 1 { Signal::SIGKILL } else { Signal::SIGTERM };
        running.stop(signal)?;
        cats.push(cat(&data)?.as_secs_f64());
        let start = running.restart(RESTART_LIMIT)?.as_secs_f64();
        let ready = ready_jobs(running.address, jobs.queue())?;
        let expected = live + lag;
        ensure!(
            ready == expected,
            "{ready} jobs wait after the restart, not {expected}: acknowledged work was lost"
        );
        eprintln!("restart: {round}/{} after {signal}: {start:.2} s", session.runs);
        starts.push(start);
    }
    let start = Spread::of(starts).context("no restart was made")?;
    let cat = Spread::of(cats).context("no file was read")?;
    let limit = RESTART_MAX_S.max(RESTART_MAX_CATS * cat.median);
    let gate = format!("restart on {live} waiting jobs and as many finished");
    let log_mib = files_of(&data)?.iter().map(|file| file.1).sum::<u64>() >> 20;
    let judgement = Judgement::absolute(&gate, start, "s", Bound::AtMost(limit))
        .between(
            &session.spindle().sync_mode(),
            format!("{} s", spread_text(Some(start), 2)),
            format!("cat of the same files {} s", spread_text(Some(cat), 2)),
        )
        .noting(format!("{log_mib} MiB on disk; SIGKILL and SIGTERM in turn; page cache warm"));
    session.judgements.push(judgement);
    Ok(())
}

/// The time `cat` needs for all files of a folder once they are in the page cache.
fn cat(folder: &Path) -> Result<Duration> {
    let files = files_of(folder)?;
    let read_all = || -> Result<Duration> {
        let began = Instant::now();
        let mut cat = Command::new("cat");
        cat.args(files.iter().map(|file| &file.0)).stdin(Stdio::null()).stdout(Stdio::null());
        ensure!(cat.status().context("cannot run cat")?.success(), "cat failed");
        Ok(began.elapsed())
    };
    read_all()?;
    read_all()
}

/// All files under a folder, with their sizes.
fn files_of(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut files = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => folders.push(path),
                Ok(metadata) if metadata.is_file() => files.push((path, metadata.len())),
                // A file that went while we looked is not there; a lock or a socket is not data.
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Counts the files that go from a folder while a run is on: a log that carries forward gives its
/// oldest files back.
struct FolderWatch {
    stop: Sender<()>,
    watcher: JoinHandle<Result<usize>>,
}

impl FolderWatch {
    const PERIOD: Duration = Duration::from_millis(50);

    fn start(folder: PathBuf) -> Self {
        let (stop, stopped) = channel();
        Self { stop, watcher: spawn(move || Self::watch(&folder, &stopped)) }
    }

    fn watch(folder: &Path, stopped: &Receiver<()>) -> Result<usize> {
        let mut departures = Departures::default();
        loop {
            departures.look(folder)?;
            if stopped.recv_timeout(Self::PERIOD) != Err(RecvTimeoutError::Timeout) {
                departures.look(folder)?;
                return Ok(departures.gone);
            }
        }
    }

    fn stop(self) -> Result<usize> {
        // A watcher that is gone has an error to report, below.
        let _watching = self.stop.send(());
        self.watcher.join().map_err(|_panic| anyhow::anyhow!("watching the folder failed"))?
    }
}

/// How many files went from a folder between two looks at it.
#[derive(Default)]
struct Departures {
    seen: HashSet<PathBuf>,
    gone: usize,
}

impl Departures {
    fn look(&mut self, folder: &Path) -> Result<()> {
        let found: HashSet<_> = files_of(folder)?.into_iter().map(|file| file.0).collect();
        self.gone += self.seen.difference(&found).count();
        self.seen = found;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_go_are_counted_and_files_that_come_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        fs::create_dir(file("inner")).unwrap();
        for name in ["a", "b", "inner/c"] {
            fs::write(file(name), "12345").unwrap();
        }
        let mut departures = Departures::default();
        departures.look(folder.path()).unwrap();
        assert_eq!(departures.gone, 0);
        fs::rename(file("a"), file("d")).unwrap();
        fs::remove_file(file("inner/c")).unwrap();
        fs::write(file("e"), "12345").unwrap();
        departures.look(folder.path()).unwrap();
        assert_eq!(departures.gone, 2);
    }

    #[test]
    fn a_watch_that_is_stopped_at_once_still_answers() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FolderWatch::start(folder.path().to_owned()).stop().unwrap(), 0);
        assert!(FolderWatch::start(folder.path().join("absent")).stop().is_err());
    }

    #[test]
    fn cat_reads_the_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "12345").unwrap();
        assert!(cat(folder.path()).unwrap() > Duration::ZERO);
    }
}
