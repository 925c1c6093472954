//! The gates of the HTTP doors' submits, against a bare axum handler that keeps nothing.

use super::plain::{compare_rates, compare_rates_beside_echo};
use super::session::Session;
use crate::scenario::alternate;
use crate::server::{Echo, Server};
use crate::target::Door;
use crate::wire::http::{BATCH_JOBS, Submits};
use anyhow::Result;

const CONNECTIONS: usize = 8;

/// One job a request, to a door.
pub(super) fn submits(session: &mut Session<'_>, door: Door, submits: Submits) -> Result<()> {
    let count = session.sizes.submit / 2;
    let name = format!("{submits:?} submits over HTTP, {CONNECTIONS} connections");
    let spindle = session.spindle_at(door, "always");
    let servers = [spindle, Server::Axum { submits }, session.echo(Echo::Synced)];
    let setting = session.setting;
    let scenario = alternate(&format!("{count} {name}"), &servers, session.runs, |server| {
        setting.submit(server, (CONNECTIONS, 1), count)
    })?;
    let [ours, bare, echo] = scenario.series.as_slice() else {
        anyhow::bail!("a series is missing");
    };
    let (gate, series) = (format!("{name} / bare axum"), [ours, bare, echo]);
    let judgement = compare_rates_beside_echo(&gate, series, CONNECTIONS, 0.6)?;
    session.judgements.push(judgement);
    session.scenarios.push(scenario);
    Ok(())
}

/// A hundred jobs a request: at least five times as many jobs as one by one.
pub(super) fn batches(session: &mut Session<'_>) -> Result<()> {
    let count = session.sizes.submit / 20;
    let name = format!("requests of {BATCH_JOBS} jobs over HTTP, {CONNECTIONS} connections");
    let servers =
        [session.spindle_at(Door::ApiBatch, "always"), session.spindle_at(Door::Api, "always")];
    let setting = session.setting;
    let scenario = alternate(&format!("{count} {name}"), &servers, session.runs, |server| {
        setting.submit(server, (CONNECTIONS, 1), count)
    })?;
    let [batch, single] = scenario.series.as_slice() else { anyhow::bail!("a series is missing") };
    let at_least = 5.0 / BATCH_JOBS as f64;
    let judgement = compare_rates(&format!("{name} / requests of one"), batch, single, at_least)?;
    session
        .judgements
        .push(judgement.noting("requests are counted: in jobs it is a hundred times the ratio"));
    session.scenarios.push(scenario);
    Ok(())
}
