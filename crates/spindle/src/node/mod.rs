//! A server that is one node of several on a shared log: it follows, leads, and follows again, in one
//! process and at the same addresses.
//!
//! The addresses of the doors are claimed once (`listeners`). While the node follows, a
//! [`Passage`] accepts there and hands clients on; what it leads with (`leading`) accepts there
//! while it leads. Signals, failures and requests to step down come as [`Event`]s to one thread, which
//! runs all of this.

mod answers;
mod leading;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use sd_notify::NotifyState;
use spindle_budget::{Budgets, Trimmer};
use spindle_cluster::{
    FollowError, HeldDoor, Leadership, Node, NodeError, NodeOptions, OpenLog, Passage,
};
use spindle_engine::{Failure, Options, SystemClock};
use spindle_net::BindError;
use spindle_otlp::Exporter;

use crate::{
    access::Entrance,
    budgets::budgets,
    config::{Config, Resolved},
    descriptors,
    exit::{self, Code},
    listeners::Listeners,
    serve::{engine_options, host_name, not_bound, notify},
    shared_log::opener,
    signals::{self, Ending},
    starts,
    tls::Tls,
    traces, webhooks,
};
use leading::{Ended, lead};

/// What happens to a node.
enum Event {
    /// Somebody wants the server to end.
    Signal(Ending),
    /// Somebody wants files to be read anew.
    Reload,
    /// Following has ended: this node leads, or cannot follow.
    Followed(Box<Result<Leadership, FollowError>>),
    /// The engine of an epoch has failed.
    Failed(u64, Failure),
    /// Somebody wants another node to lead.
    StepDown,
    /// All connections of a leader are closed.
    Closed,
}

/// What lives as long as the process.
struct Parts<'a> {
    resolved: &'a Resolved,
    tls: Tls,
    entrance: Entrance,
    budgets: Budgets,
    connections_max: usize,
    listeners: Listeners,
    node: Node,
    passage: Passage,
    events: Sender<Event>,
}

/// Serves until a signal or a failure ends it.
pub fn run(resolved: &Resolved) -> anyhow::Result<Code> {
    for name in &resolved.unknown_environment {
        tracing::warn!("{name} in the environment is no setting; `spindle config` lists all");
    }
    let (events, inbox) = channel();
    watch_signals(&events)?;
    descriptors::raise_limit();
    let open = opener(&resolved.config)?;
    serve(resolved, open, events, &inbox)
}

/// Serves on a log that `open` opens, until an event ends it.
fn serve(
    resolved: &Resolved,
    open: OpenLog,
    events: Sender<Event>,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Code> {
    let config = &resolved.config;
    let tls = Tls::load(config)?;
    let entrance = Entrance::open(config)?;
    // Whether they can be sent is said now, not when this node first leads.
    webhooks::prepare(config)?;
    own_folder(config)?;
    let exporter = traces::start(config, host_name())?;
    let options = engine_options(config, exporter.as_ref().map(Exporter::sink));
    starts::tokens(config);
    let budgets = budgets(config);
    let _trimmer = Trimmer::start(&budgets).context("cannot start threads")?;
    let connections_max = descriptors::connections(config.connections_max);
    let (listeners, addresses) = claim(config)?;
    let (node, passage) = start(config, open, &listeners, connections_max)?;
    let asked = events.clone();
    node.on_step_down(move || drop(asked.send(Event::StepDown)));
    let name = node.name().to_owned();
    let doors: Vec<String> = addresses.iter().map(|(door, at)| format!("{door} on {at}")).collect();
    tracing::info!(
        "spindle {}: node {name}, {}, the log is {}",
        env!("CARGO_PKG_VERSION"),
        doors.join(", "),
        resolved.written("log")
    );
    notify(&[NotifyState::Ready]);
    let parts = Parts {
        resolved,
        tls,
        entrance,
        budgets,
        connections_max,
        listeners,
        node,
        passage,
        events,
    };
    let ended = live(&parts, &options, inbox);
    parts.node.stop();
    drop(parts);
    ended?;
    drop(exporter);
    tracing::info!("stopped");
    Ok(Code::Ok)
}

/// The folder for what this node keeps for itself. One that has a log in it may have been meant to be served.
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

type Addresses = Vec<(&'static str, std::net::SocketAddr)>;

/// Claims the addresses of all doors that clients may come to whoever leads.
fn claim(config: &Config) -> anyhow::Result<(Listeners, Addresses)> {
    let mut listeners = Listeners::default();
    let mut addresses = Vec::new();
    for (door, addr) in config.doors() {
        let kept = listeners.keep(door, addr);
        let local = kept.map_err(|source| not_bound(BindError { door, addr, source }))?;
        addresses.push((door, local));
    }
    Ok((listeners, addresses))
}

/// Makes the node and what hands its clients on.
fn start(
    config: &Config,
    open: OpenLog,
    listeners: &Listeners,
    connections_max: usize,
) -> anyhow::Result<(Node, Passage)> {
    let mut cluster = None;
    let mut advertise = config.advertise.clone();
    if let Some(addr) = config.cluster_listen {
        let door = "cluster-listen";
        let (listener, local) = spindle_net::listen(addr)
            .map_err(|source| not_bound(BindError { door, addr, source }))?;
        advertise.get_or_insert(local.to_string());
        cluster = Some(listener);
    } else {
        tracing::warn!(
            "clients that come to other nodes will not reach this one while it leads: see --cluster-listen"
        );
    }
    let node = Node::start(NodeOptions {
        name: config.node.clone().unwrap_or_else(host_name),
        advertise,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::new(SystemClock::new()),
        open,
    });
    let node = node.map_err(|error| match error {
        NodeError::Name(_) => exit::Failure::with(Code::Usage, format!("--node: {error}")),
        NodeError::Thread(_) => error.into(),
    })?;
    let asks = config.http.is_some_and(|addr| config.asks(addr));
    let held = listeners.handles().context("cannot use the doors' addresses")?;
    let held = held.into_iter().map(|(name, listener)| {
        let answer = (name == "http").then(|| answers::of(&node, asks));
        HeldDoor { name, listener, answer }
    });
    let passage = Passage::start(&node, held.collect(), cluster, connections_max);
    let passage = passage.context("cannot start what hands clients on to the leader")?;
    Ok((node, passage))
}

/// Follows and leads in turn, until the process is to end.
fn live(parts: &Parts<'_>, options: &Options, inbox: &Receiver<Event>) -> anyhow::Result<()> {
    loop {
        let Some(leadership) = follow(parts, options, inbox)? else { return Ok(()) };
        match lead(parts, leadership, inbox)? {
            Ended::Server => return Ok(()),
            Ended::Leadership => parts.passage.follow(),
        }
    }
}

/// How long a node that follows may take to notice that it is to stop.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Follows until this node leads; none when the process is to end.
fn follow(
    parts: &Parts<'_>,
    options: &Options,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Option<Leadership>> {
    tracing::info!("following the log");
    let (node, options, events) = (parts.node.clone(), options.clone(), parts.events.clone());
    let body = move || {
        let followed = Box::new(node.follow(&options));
        // Nobody listens when the server is ending anyway.
        drop(events.send(Event::Followed(followed)));
    };
    thread::Builder::new()
        .name("spindle-follow".to_owned())
        .spawn(body)
        .context("cannot start threads")?;
    loop {
        match inbox.recv() {
            Ok(Event::Followed(followed)) => match *followed {
                Ok(leadership) => return Ok(Some(leadership)),
                Err(error) => {
                    return Err(anyhow!(error)).context("this node cannot follow the log");
                }
            },
            Ok(Event::Signal(ending)) => {
                tracing::info!("{}: stopping", ending.name);
                notify(&[NotifyState::Stopping]);
                parts.node.stop();
                // Whoever campaigns on a log that is out of reach does not come back: the process ends
                // all the same, and nobody was answered.
                while let Ok(event) = inbox.recv_timeout(STOP_TIME) {
                    if let Event::Followed(followed) = event {
                        drop(followed);
                        break;
                    }
                }
                return Ok(None);
            }
            Ok(Event::Reload) => parts.reload(),
            // Of an earlier leadership.
            Ok(Event::Failed(..) | Event::StepDown | Event::Closed) => {}
            Err(_) => return Err(anyhow!("nothing watches over the server any more")),
        }
    }
}

impl Parts<'_> {
    fn reload(&self) {
        self.tls.reload();
        self.entrance.reload();
    }
}
