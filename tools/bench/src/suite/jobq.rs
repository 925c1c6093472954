//! The gates of what changes a job of Jobq's, against a script that does the same with Python's
//! sqlite3: one process, one table, each change committed as SQLite does unless told otherwise.

use super::plain::compare_rates_beside_echo;
use super::session::Session;
use crate::jobs::Jobs;
use crate::report::Figures;
use crate::scenario::{Setting, alternate, measure, unchecked, warm_up};
use crate::server::{Echo, Server};
use crate::target::Door;
use crate::wire::Wire;
use crate::wire::http::Submits;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const CONNECTIONS: usize = 8;
const AT_LEAST: f64 = 30.0;
/// The script gets a share of the jobs: it is that much slower.
const SCRIPT_SHARE: u64 = 30;
const SCRIPT_JOBS_MIN: u64 = 100;
const SCRIPT: &str = include_str!("jobq_peer.py");

/// What is done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is created.
    Create,
    /// Its state is set.
    State,
}

/// Creates or changes of state over 8 connections.
pub(super) fn changes(session: &mut Session<'_>, change: Change) -> Result<()> {
    let (setting, count) = (session.setting, session.sizes.lifecycle);
    let scripted = (count / SCRIPT_SHARE).max(SCRIPT_JOBS_MIN);
    let what = match change {
        Change::Create => "creates",
        Change::State => "changes of state",
    };
    let name = format!("Jobq: {what}, {CONNECTIONS} connections");
    let title = format!("{count} {name}; {scripted} by the script");
    let servers = [
        session.spindle_at(Door::Jobq, "always"),
        session.python_sqlite(),
        session.echo(Echo::Synced),
    ];
    let scenario = alternate(&title, &servers, session.runs, |server| match (server, change) {
        (Server::PythonSqlite { python }, _) => scripts(setting, python, change, scripted),
        (Server::Echo { .. }, _) | (_, Change::Create) => {
            setting.submit(server, (CONNECTIONS, 1), count)
        }
        (_, Change::State) => states(setting, server, count),
    })?;
    let [ours, script, echo] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let gate = format!("{name} / Python's sqlite3");
    let series = [ours, script, echo];
    let judgement = compare_rates_beside_echo(&gate, series, CONNECTIONS, AT_LEAST)?;
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// Sets the state of each of so many jobs, on a fresh server.
fn states(setting: Setting<'_>, server: &Server, count: u64) -> Result<Figures> {
    let running = server.start(setting.bounds)?;
    let jobs = Jobs::fresh(setting.payload_bytes);
    let before = warm_up(count);
    setting.fill(&running, &jobs, 0, before + count)?;
    let play = |first, count| {
        let mut plan = setting.plan(&running, &jobs).submitting(count, CONNECTIONS, 1);
        (plan.first, plan.wire) = (first, Wire::Http(Submits::JobqState));
        measure(&running, &plan, &mut unchecked())
    };
    play(0, before)?;
    play(before, count)
}

/// Has the script do the same on a fresh file.
fn scripts(setting: Setting<'_>, python: &Path, change: Change, count: u64) -> Result<Figures> {
    let folder = tempfile::Builder::new()
        .prefix("spindle-bench-")
        .tempdir_in(setting.bounds.folder())
        .context("cannot make a folder for the script")?;
    let what = match change {
        Change::Create => "create",
        Change::State => "state",
    };
    let output = Command::new(python)
        .args(["-c", SCRIPT, what, &count.to_string(), &setting.payload_bytes.to_string()])
        .arg(folder.path().join("jobs.sqlite"))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the script failed: {said}");
    let elapsed_s: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Figures::of_rate(count, elapsed_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Bounds;
    use std::time::Duration;

    #[test]
    fn the_script_does_as_much_as_it_is_told_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Some(folder.path().to_owned());
        let bounds = Bounds { deadline: Duration::from_secs(60), dir, json: None };
        let setting = Setting { bounds: &bounds, payload_bytes: 64 };
        for change in [Change::Create, Change::State] {
            let figures = scripts(setting, Path::new("python3"), change, 20).unwrap();
            assert_eq!(figures.jobs, 20);
            assert!(figures.elapsed_s > 0.0);
        }
        assert!(scripts(setting, Path::new("false"), Change::Create, 20).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
