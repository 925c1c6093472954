//! The gates of the Gearman door, against gearmand, which keeps everything in memory.
//!
//! Spindle is measured twice: with `--sync always`, where JOB_CREATED means on disk, and with
//! `--sync os`, which survives a crash of the process but not of the machine.

use super::plain::{compare_rates, with_unit};
use super::session::Session;
use crate::gate::{Bound, Judgement};
use crate::jobs::Jobs;
use crate::report::{Figures, Scenario, Series};
use crate::scenario::{FILL, alternate, measure, unchecked};
use crate::server::Server;
use crate::target::Door;
use crate::wire::Wire;
use anyhow::{Context, Result};

const CONNECTIONS: usize = 8;

/// Background submits; `depth` outstanding on each connection.
pub(super) fn submits(session: &mut Session<'_>, depth: usize) -> Result<()> {
    let count = if depth == 1 { session.sizes.submit } else { session.sizes.pipelined };
    let name = format!("background submits, {CONNECTIONS} connections, {depth} deep");
    let setting = session.setting;
    rates(session, &name, count, [1.0, 1.0], |server| {
        setting.submit(server, (CONNECTIONS, depth), count)
    })
}

/// Working off a backlog of background jobs.
pub(super) fn drain(session: &mut Session<'_>) -> Result<()> {
    let (setting, count) = (session.setting, session.sizes.lifecycle);
    let name = format!("background jobs worked off, {CONNECTIONS} workers");
    rates(session, &name, count, [0.75, 1.0], |server| setting.drain(server, CONNECTIONS, count))
}

/// Whole life cycles of background jobs.
pub(super) fn lifecycle(session: &mut Session<'_>) -> Result<()> {
    let (setting, count) = (session.setting, session.sizes.lifecycle);
    let name = format!("life cycles of background jobs, {CONNECTIONS}+{CONNECTIONS}");
    rates(session, &name, count, [0.75, 1.0], |server| {
        setting.lifecycle(server, (CONNECTIONS, CONNECTIONS), count)
    })
}

/// Memory with a million waiting background jobs.
pub(super) fn memory(session: &mut Session<'_>) -> Result<()> {
    let (setting, count) = (session.setting, session.sizes.waiting);
    let name = format!("{count} waiting background jobs: peak resident memory");
    let servers = [session.spindle_at(Door::Gearman, "always"), session.gearmand()];
    let title = format!("Gearman: {name}; the rate is that of the fill");
    let scenario = alternate(&title, &servers, session.runs, |server| {
        let running = server.start(setting.bounds)?;
        let jobs = Jobs::fresh(setting.payload_bytes);
        let (connections, depth) = FILL;
        let mut plan = setting.plan(&running, &jobs).submitting(count, connections, depth);
        plan.deadline *= 5;
        measure(&running, &plan, &mut unchecked())
    })?;
    let [ours, theirs] = scenario.series.as_slice() else { anyhow::bail!("a series is missing") };
    let peak =
        |series: &Series| series.each(|run| run.resident_peak_kib.map(|kib| kib as f64 / 1024.0));
    let judgement = against(ours, theirs, &name, ("MiB", 0), Bound::AtMost(0.25), peak)?;
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// Latency of foreground jobs, from the submit to its result.
pub(super) fn roundtrip(session: &mut Session<'_>) -> Result<()> {
    let (setting, count) = (session.setting, session.sizes.lifecycle);
    let name = format!("foreground round trips, {CONNECTIONS}+{CONNECTIONS}: p50");
    let scenario = alternated(session, &name, count, |server| {
        setting.roundtrip(server, (CONNECTIONS, CONNECTIONS), count)
    })?;
    let [always, os, theirs, ..] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let p50 = |series: &Series| series.each(|run: &Figures| run.add.map(|add| add.p50_us));
    for ours in [always, os] {
        let judgement = against(ours, theirs, &name, ("us", 0), Bound::AtMost(1.2), p50)?;
        session.judgements.push(judgement);
    }
    session.scenarios.push(scenario);
    Ok(())
}

/// Judges the rate of Spindle with `--sync always` and with `--sync os`.
fn rates(
    session: &mut Session<'_>,
    name: &str,
    count: u64,
    [of_always, of_os]: [f64; 2],
    run: impl FnMut(&Server) -> Result<Figures>,
) -> Result<()> {
    let scenario = alternated(session, name, count, run)?;
    let [always, os, theirs, ..] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let gate = format!("Gearman: {name} / gearmand");
    session.judgements.extend([
        compare_rates(&gate, always, theirs, of_always)?,
        compare_rates(&gate, os, theirs, of_os)?,
    ]);
    session.scenarios.push(scenario);
    Ok(())
}

fn alternated(
    session: &Session<'_>,
    name: &str,
    count: u64,
    run: impl FnMut(&Server) -> Result<Figures>,
) -> Result<Scenario> {
    let spindle = |sync| session.spindle_at(Door::Gearman, sync);
    let mut servers = vec![spindle("always"), spindle("os"), session.gearmand()];
    servers.extend(session.peers(Wire::Gearman)?);
    alternate(&format!("Gearman: {count} {name}"), &servers, session.runs, run)
}

/// Judges a figure of ours against the same of theirs.
fn against(
    ours: &Series,
    theirs: &Series,
    name: &str,
    (unit, digits): (&str, usize),
    bound: Bound,
    figure: impl Fn(&Series) -> Vec<f64>,
) -> Result<Judgement> {
    let (our, their) = (figure(ours), figure(theirs));
    let judgement = Judgement::ratio(&format!("Gearman: {name} / gearmand"), &our, &their, bound);
    let judgement = judgement.with_context(|| format!("{name}: no run has this figure"))?;
    Ok(judgement.between(
        &ours.sync,
        with_unit(&our, digits, unit),
        with_unit(&their, digits, unit),
    ))
}
