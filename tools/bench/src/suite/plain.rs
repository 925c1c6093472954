//! The gates that compare rates and latencies of the same load on different servers.

use super::session::Session;
use crate::gate::{Bound, Judgement};
use crate::report::{Scenario, Series, spread_text};
use crate::scenario::alternate;
use crate::server::Echo;
use crate::stats::Spread;
use anyhow::{Context, Result};

/// Life cycles with as many workers as producers, against beanstalkd in memory and synced.
pub(super) fn lifecycle(
    session: &mut Session<'_>,
    connections: usize,
    of_memory: f64,
    of_synced: f64,
) -> Result<()> {
    let mut servers = vec![session.spindle(), session.beanstalkd(false), session.beanstalkd(true)];
    servers.extend(session.workq_peers()?);
    let count = session.sizes.lifecycle;
    let title = format!("{count} life cycles, {connections} producers, {connections} workers");
    let setting = session.setting;
    let scenario = alternate(&title, &servers, session.runs, |server| {
        setting.lifecycle(server, (connections, connections), count)
    })?;
    let [ours, memory, synced, ..] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let gate = format!("life cycle {connections}+{connections}");
    let rate = |gate: &str, theirs, bound| compare_rates(gate, ours, theirs, bound);
    let cpu = |series: &Series| series.each(|run| run.server_cpu_us_per_job);
    let (our_cpu, their_cpu) = (cpu(ours), cpu(memory));
    let cpu_judgement = Judgement::ratio(
        &format!("{gate}: server CPU per job / beanstalkd in memory"),
        &our_cpu,
        &their_cpu,
        Bound::AtMost(1.6),
    )
    .context("no CPU time was read")?
    .between(&ours.sync, with_unit(&our_cpu, 1, "us"), with_unit(&their_cpu, 1, "us"));
    session.judgements.extend([
        rate(&format!("{gate} / beanstalkd in memory"), memory, of_memory)?,
        rate(&format!("{gate} / beanstalkd -b -f 0"), synced, of_synced)?,
        cpu_judgement,
    ]);
    session.scenarios.push(scenario);
    Ok(())
}

/// The rate of submits against that of the echo server.
pub(super) fn submit_rate(
    session: &mut Session<'_>,
    connections: usize,
    depth: usize,
    of_echo: f64,
) -> Result<()> {
    let count = if depth == 1 { session.sizes.submit } else { session.sizes.pipelined };
    let scenario = submits(session, connections, depth, count)?;
    let [ours, echo, whole, synced, ..] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let gate = format!("submits, {connections} connections, {depth} deep / echo");
    let of_whole = compare_rates(&gate, ours, whole, of_echo)?;
    let of_synced = compare_rates(&gate, ours, synced, of_echo)?;
    let judgement = compare_rates(&gate, ours, echo, of_echo)?.noting(format!(
        "the echo answers with the 5 bytes Spindle does; of one that sends requests back: {} x, \
         of one that syncs every turn before it answers: {} x",
        spread_text(Some(of_whole.figure), 3),
        spread_text(Some(of_synced.figure), 3)
    ));
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// The p99 of submits over 8 connections against 3 times the echo server's and a sync.
pub(super) fn submit_latency(session: &mut Session<'_>) -> Result<()> {
    let scenario = submits(session, 8, 1, session.sizes.submit)?;
    let [ours, echo, ..] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let p99 = |series: &Series| series.each(|run| run.add.map(|add| add.p99_us));
    let judgement =
        against_echo(session, "submits, 8 connections: p99", (3.0, &p99(ours), &p99(echo)))?;
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// Judges latencies against `times` x (echo's latency) + one sync of this disk.
pub(super) fn against_echo(
    session: &Session<'_>,
    gate: &str,
    (times, ours, echo): (f64, &[f64], &[f64]),
) -> Result<Judgement> {
    let sync_us = session.machine.sync_us;
    let limits: Vec<f64> = echo.iter().map(|echo| times * echo + sync_us).collect();
    let gate = format!("{gate} / (echo x {times} + sync)");
    let judgement =
        Judgement::ratio(&gate, ours, &limits, Bound::AtMost(1.0)).context("no latency")?;
    let looser = Spread::of(echo.iter().map(|echo| times * (echo + sync_us)));
    let note = format!(
        "echo {}, sync {sync_us:.0} us; read as {times} x (echo + sync) the limit is {}",
        with_unit(echo, 0, "us"),
        spread_text(looser, 0)
    );
    let sync = session.spindle().sync_mode();
    Ok(judgement.between(&sync, with_unit(ours, 0, "us"), with_unit(&limits, 0, "us")).noting(note))
}

fn submits(
    session: &Session<'_>,
    connections: usize,
    depth: usize,
    count: u64,
) -> Result<Scenario> {
    let mut servers = vec![session.spindle(), session.echo(Echo::Answer)];
    servers.extend([session.echo(Echo::Whole), session.echo(Echo::Synced)]);
    servers.extend(session.workq_peers()?);
    let title = format!("{count} submits, {connections} connections, {depth} deep");
    alternate(&title, &servers, session.runs, |server| {
        session.setting.submit(server, (connections, depth), count)
    })
}

/// Judges a rate of ours against one of theirs.
pub(super) fn compare_rates(
    gate: &str,
    ours: &Series,
    theirs: &Series,
    at_least: f64,
) -> Result<Judgement> {
    let (our, their) = (ours.rates(), theirs.rates());
    let judgement = Judgement::ratio(gate, &our, &their, Bound::AtLeast(at_least));
    let judgement = judgement.context("no run was made")?;
    Ok(judgement.between(&ours.sync, with_unit(&our, 0, "/s"), with_unit(&their, 0, "/s")))
}

/// A gate of rates that names the bound of the disk beside it: what an echo of lines that syncs
/// each turn before it answers reaches over so many connections.
pub(super) fn compare_rates_beside_echo(
    gate: &str,
    [ours, theirs, echo]: [&Series; 3],
    connections: usize,
    at_least: f64,
) -> Result<Judgement> {
    let most = compare_rates(gate, echo, theirs, at_least)?;
    Ok(compare_rates(gate, ours, theirs, at_least)?.noting(format!(
        "an echo of lines that syncs each turn before it answers, the most that {connections} \
         connections can have of this disk: {} x",
        spread_text(Some(most.figure), 2)
    )))
}

pub(super) fn with_unit(figures: &[f64], digits: usize, unit: &str) -> String {
    format!("{} {unit}", spread_text(Spread::of(figures.iter().copied()), digits))
}
