//! A server that is one node of several on a shared log: it follows, leads, and follows again, in one
//! process and at the same addresses. With shards it does that on several logs at once.
//!
//! The addresses of the doors are claimed once (`listeners`). On one log, a [`Passage`] accepts connections
//! there and hands clients on while the node follows; while it leads, its own doors (`leading`) accept there.
//! On several logs (`shards`), routers accept there, and each log has doors that do not listen.
//! Signals, failures and requests to step down come as [`Event`]s to one thread of each log, which runs its
//! life (`life`).

mod answers;
mod leading;
mod life;
mod pages;
mod routers;
mod shards;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context;
use spindle_budget::{Budgets, Trimmer};
use spindle_cluster::{
    Carrier, HeldDoor, Node, NodeError, NodeOptions, OpenLog, Passage, ShardSeat, Threshold,
};
use spindle_engine::SystemClock;
use spindle_net::BindError;
use spindle_notify::NotifyState;
use spindle_otlp::Exporter;

use crate::{
    access::Entrance,
    budgets::budgets,
    config::{Config, Resolved},
    descriptors::{self, Connection},
    exit::{self, Code},
    listeners::Listeners,
    serve::{engine_options, host_name, not_bound, notify},
    shared_log::opener,
    signals, starts,
    tls::Tls,
    traces, webhooks,
};
use life::{Event, Parts, live};

/// What all logs of a process share. It lives as long as the process.
struct Base {
    tls: Tls,
    entrance: Entrance,
    budgets: Budgets,
    trimmer: Trimmer,
    connections_max: usize,
}

impl Base {
    /// Returns the exporter of traces separately, if there is one, because it has to end last.
    fn begin(config: &Config) -> anyhow::Result<(Base, Option<Exporter>)> {
        let tls = Tls::load(config)?;
        let entrance = Entrance::open(config)?;
        // Whether webhooks can be sent should be known now, not when this node first leads.
        webhooks::prepare(config)?;
        own_folder(config)?;
        let exporter = traces::start(config, host_name())?;
        starts::tokens(config);
        let budgets = budgets(config);
        let trimmer = Trimmer::start(&budgets).context("cannot start threads")?;
        let connections_max =
            descriptors::connections(config.connections_max, Connection::of(config));
        Ok((Base { tls, entrance, budgets, trimmer, connections_max }, exporter))
    }
}

/// Serves until a signal or a failure ends it.
pub fn run(resolved: &Resolved) -> anyhow::Result<Code> {
    for name in &resolved.unknown_environment {
        tracing::warn!("{name} in the environment is no setting; `spindle config` lists all");
    }
    let (events, inbox) = channel();
    watch_signals(&events)?;
    descriptors::raise_limit();
    let config = &resolved.config;
    let opens = (0..config.shards).map(|shard| opener(config, shard));
    serve(resolved, opens.collect::<anyhow::Result<_>>()?, events, &inbox)
}

/// Serves on the logs that these open, by shard, until an event ends it.
fn serve(
    resolved: &Resolved,
    opens: Vec<OpenLog>,
    events: Sender<Event>,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Code> {
    match <[OpenLog; 1]>::try_from(opens) {
        Ok([open]) => serve_one(resolved, open, events, inbox),
        Err(opens) => shards::serve(resolved, opens, &events, inbox),
    }
}

/// Serves on one log.
fn serve_one(
    resolved: &Resolved,
    open: OpenLog,
    events: Sender<Event>,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Code> {
    let config = &resolved.config;
    let (base, exporter) = Base::begin(config)?;
    let options = engine_options(config, exporter.as_ref().map(Exporter::sink));
    let (listeners, addresses) = claim(config.doors())?;
    let cluster = cluster_listener(config)?;
    let node = start_node(config, &base.tls, open, cluster.as_ref().map(|(_, at)| *at), None)?;
    let (carrier, threshold) = (start_carrier()?, Threshold::of(&node));
    if let Some((listener, _)) = cluster {
        carrier.let_in(listener, &[&threshold]).context("cannot use the cluster's address")?;
    }
    let asks = config.http.is_some_and(|addr| config.asks(addr));
    let answer = answers::of(&node, asks);
    let passage = pass(&carrier, &threshold, &listeners, Some(answer), base.connections_max)?;
    let asked = events.clone();
    node.on_step_down(move || drop(asked.send(Event::StepDown)));
    greet(resolved, &node, &addresses);
    let parts = Parts {
        resolved,
        tls: &base.tls,
        entrance: &base.entrance,
        budgets: &base.budgets,
        trimmer: &base.trimmer,
        connections_max: base.connections_max,
        listeners,
        shard: None,
        node,
        seats: Vec::new(),
        pages: None,
        threshold,
        passage: Some(passage),
        events,
    };
    let ended = live(&parts, &options, inbox);
    parts.node.stop();
    drop(parts);
    drop(carrier);
    ended?;
    drop(base);
    drop(exporter);
    tracing::info!("stopped");
    Ok(Code::Ok)
}

/// Says that the node has begun.
fn greet(resolved: &Resolved, node: &Node, addresses: &Addresses) {
    let doors: Vec<String> = addresses.iter().map(|(door, at)| format!("{door} on {at}")).collect();
    tracing::info!(
        "spindle {}: node {}, {}, the log is {}",
        env!("CARGO_PKG_VERSION"),
        node.name(),
        doors.join(", "),
        resolved.written("log")
    );
    notify(&[NotifyState::Ready]);
}

/// Makes the folder for this node's own files. Warns if there is a log in it, which may have been meant to be
/// served.
fn own_folder(config: &Config) -> anyhow::Result<()> {
    let folder = config.data.display();
    std::fs::create_dir_all(&config.data)
        .with_context(|| format!("cannot make the folder {folder}"))?;
    let entries =
        std::fs::read_dir(&config.data).with_context(|| format!("cannot read {folder}"))?;
    let is_segment = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".segment");
    if entries.flatten().any(|entry| is_segment(&entry.file_name())) {
        tracing::warn!(
            "{folder} has a log in it, which is not used: --log names another one (`spindle export` and `import` \
             bring jobs from one to the other)"
        );
    }
    Ok(())
}

fn watch_signals(events: &Sender<Event>) -> anyhow::Result<()> {
    // Nobody listens when the server is ending anyway.
    let (ends, reloads) = (events.clone(), events.clone());
    let watched = signals::on_hangup(move || drop(reloads.send(Event::Reload))).and_then(|()| {
        let first = move |ending| drop(ends.send(Event::Signal(ending)));
        signals::watch(first, |ending| {
            tracing::warn!("second {}: ending at once; nothing acknowledged is lost", ending.name);
        })
    });
    watched.context("cannot watch for signals")
}

type Addresses = Vec<(&'static str, SocketAddr)>;

/// Claims the addresses of doors that clients may connect to whichever node leads.
fn claim(
    doors: impl Iterator<Item = (&'static str, SocketAddr)>,
) -> anyhow::Result<(Listeners, Addresses)> {
    let mut listeners = Listeners::default();
    let mut addresses = Vec::new();
    for (door, addr) in doors {
        let kept = listeners.keep(door, addr);
        let local = kept.map_err(|source| not_bound(BindError { door, addr, source }))?;
        addresses.push((door, local));
    }
    Ok((listeners, addresses))
}

/// Claims the cluster's address, if there is one.
fn cluster_listener(
    config: &Config,
) -> anyhow::Result<Option<(std::net::TcpListener, SocketAddr)>> {
    let Some(addr) = config.cluster_listen else {
        tracing::warn!(
            "clients that come to other nodes will not reach this one while it leads: see --cluster-listen"
        );
        return Ok(None);
    };
    let door = "cluster-listen";
    let claimed = spindle_net::listen(addr);
    claimed.map(Some).map_err(|source| not_bound(BindError { door, addr, source }))
}

/// Makes the node of one log. `cluster` is the address for other nodes.
fn start_node(
    config: &Config,
    tls: &Tls,
    open: OpenLog,
    cluster: Option<SocketAddr>,
    shard: Option<ShardSeat>,
) -> anyhow::Result<Node> {
    let node = Node::start(NodeOptions {
        name: config.node.clone().unwrap_or_else(host_name),
        advertise: config.advertise.clone().or(cluster.map(|at| at.to_string())),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::new(SystemClock::new()),
        open,
        shard,
        tls: tls.between_nodes().clone(),
    });
    node.map_err(|error| match error {
        NodeError::Name(_) => exit::Failure::with(Code::Usage, format!("--node: {error}")),
        NodeError::Thread(_) => error.into(),
    })
}

fn start_carrier() -> anyhow::Result<Carrier> {
    Carrier::start().context("cannot start what hands clients on to the leader")
}

/// Begins to hand on the clients of doors whose sockets are kept. `answer` answers HTTP requests that need no leader.
fn pass(
    carrier: &Carrier,
    threshold: &Threshold,
    listeners: &Listeners,
    answer: Option<spindle_cluster::LocalAnswer>,
    connections_max: usize,
) -> anyhow::Result<Passage> {
    let held = listeners.handles().context("cannot use the doors' addresses")?;
    let held = held.into_iter().map(|(name, listener)| {
        let answer = answer.clone().filter(|_| name == "http");
        HeldDoor { name, listener, answer }
    });
    let passage = Passage::start(carrier, threshold, held.collect(), connections_max);
    passage.context("cannot start what hands clients on to the leader")
}
