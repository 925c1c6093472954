//! A node of a cluster whose queues are on several logs: a life on each, and routers in front of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use spindle_cluster::{Carrier, Crossing, Moving, Node, OpenLog, ShardSeat, Threshold};
use spindle_core::seat::Seat;
use spindle_engine::spans::SpanSink;
use spindle_engine::{Options, Peer};
use spindle_notify::NotifyState;
use spindle_otlp::Exporter;
use spindle_router::{Link, Reach, Reached, Shard};

use super::life::{Event, Parts, live};
use super::routers::Routers;
use super::{Base, claim, cluster_listener, greet, pass, start_carrier, start_node};
use crate::{
    config::{Config, Resolved},
    exit::Code,
    http::Pages,
    jobd_master,
    listeners::Listeners,
    serve::{engine_options, notify},
    signals::Ending,
    tls::Tls,
};

/// Serves on several logs until an event ends it.
pub(super) fn serve(
    resolved: &Resolved,
    opens: Vec<OpenLog>,
    events: &Sender<Event>,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Code> {
    let config = &resolved.config;
    let (base, exporter) = Base::begin(config)?;
    let (listener, cluster) = cluster_listener(config)?.context("--cluster-listen is off")?;
    let nodes = start_nodes(config, &base.tls, opens, cluster)?;
    let thresholds: Vec<Threshold> = nodes.iter().map(Threshold::of).collect();
    let carrier = start_carrier()?;
    let all: Vec<&Threshold> = thresholds.iter().collect();
    carrier.let_in(listener, &all).context("cannot use the cluster's address")?;
    let crossing = Arc::new(Leaders(Crossing::between(&nodes)));
    let routers = Routers::open(resolved, &base, &carrier, crossing, &nodes)?;
    let (masters, of_master) =
        claim(config.doors().filter(|(door, _)| *door == jobd_master::DOOR))?;
    let mut addresses = routers.local_addrs();
    addresses.extend(of_master);
    greet(resolved, &nodes[0], &addresses);
    let spans = exporter.as_ref().map(Exporter::sink);
    let seats = nodes.clone();
    let shards =
        Shards { resolved, base: &base, spans, carrier: &carrier, seats, addresses, events };
    let ended = shards.live(nodes, thresholds, masters, routers, inbox);
    drop(carrier);
    ended?;
    drop(base);
    drop(exporter);
    tracing::info!("stopped");
    Ok(Code::Ok)
}

/// A node for each log, by shard.
fn start_nodes(
    config: &Config,
    tls: &Tls,
    opens: Vec<OpenLog>,
    cluster: SocketAddr,
) -> anyhow::Result<Vec<Node>> {
    let mut own = cluster;
    if own.ip().is_unspecified() {
        own.set_ip(if own.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            [0, 0, 0, 0, 0, 0, 0, 1].into()
        });
    }
    let start = |(open, shard): (OpenLog, u8)| {
        let seat = ShardSeat { shard, own_address: own.to_string() };
        start_node(config, tls, open, Some(cluster), Some(seat))
    };
    opens.into_iter().zip(0..).map(start).collect()
}

/// How routers reach the leaders of shards.
struct Leaders(Crossing);

impl Reach for Leaders {
    fn reach<'a>(&'a self, shard: Shard, door: &'static str, client: &'a Peer) -> Reached<'a> {
        Box::pin(async move {
            let (stream, deposed) = self.0.reach(shard.0, door, client).await?;
            Ok(Link::new(stream, Box::pin(deposed)))
        })
    }
}

/// What the lives on all logs share.
struct Shards<'a> {
    resolved: &'a Resolved,
    base: &'a Base,
    spans: Option<Arc<dyn SpanSink>>,
    carrier: &'a Carrier,
    seats: Vec<Node>,
    /// The addresses that clients connect to.
    addresses: Vec<(&'static str, SocketAddr)>,
    events: &'a Sender<Event>,
}

impl Shards<'_> {
    /// Follows and leads each log in turn, until the process is to end or one of them cannot go on.
    fn live(
        &self,
        nodes: Vec<Node>,
        thresholds: Vec<Threshold>,
        masters: Listeners,
        routers: Routers,
        inbox: &Receiver<Event>,
    ) -> anyhow::Result<()> {
        let first = nodes[0].clone();
        let mut masters = Some(masters);
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            let (mut lives, mut failed) = (Vec::new(), Ok(()));
            for ((node, threshold), shard) in nodes.into_iter().zip(thresholds).zip(0..) {
                // The jobd master keeps nothing in the log, so one shard is enough for it: the first.
                let listeners = masters.take().unwrap_or_default();
                let (events, heard) = channel();
                let pages = (shard == 0).then(|| routers.pages().clone());
                let life = Life { shard, node, threshold, listeners, pages };
                let (own, first) = (events.clone(), first.clone());
                let body = move || {
                    let ended = self.live_on(life, own, &heard, &first);
                    // If the process is ending anyway, nobody listens.
                    drop(self.events.send(Event::ShardEnded));
                    ended
                };
                let thread = thread::Builder::new().name(format!("spindle-shard-{shard}"));
                match thread.spawn_scoped(scope, body) {
                    Ok(thread) => lives.push((events, thread)),
                    Err(error) => {
                        failed = Err(error).context("cannot start threads");
                        drop(self.events.send(Event::ShardEnded));
                        break;
                    }
                }
            }
            let mover = thread::Builder::new().name("spindle-moving".to_owned());
            let mover = mover.spawn_scoped(scope, || move_queues(&self.seats, &routers, &ends));
            let mover = mover.context("cannot start threads");
            if mover.is_err() {
                drop(self.events.send(Event::ShardEnded));
            }
            let ended = self.wait_for_end(inbox, &routers, lives);
            ends.store(true, Ordering::Relaxed);
            failed.and(mover.map(drop)).and(ended)
        })
    }

    /// One life, on a thread of its own.
    fn live_on(
        &self,
        life: Life,
        events: Sender<Event>,
        inbox: &Receiver<Event>,
        first: &Node,
    ) -> anyhow::Result<()> {
        let Life { shard, node, threshold, listeners, pages } = life;
        let resolved = self.settings_of(shard);
        let config = &resolved.config;
        std::fs::create_dir_all(&config.data)
            .with_context(|| format!("cannot make the folder {}", config.data.display()))?;
        let seat = Seat { shard, shards: config.shards };
        let options = Options { seat, ..engine_options(config, self.spans.clone()) };
        let max = self.base.connections_max;
        let passage = (!listeners.is_empty())
            .then(|| pass(self.carrier, &threshold, &listeners, None, max))
            .transpose()?;
        let asked = events.clone();
        node.on_step_down(move || drop(asked.send(Event::StepDown)));
        // The first shard's log tells how many shards there are, so no other shard is begun before it.
        if shard > 0 && !first.wait_until_begun() {
            return Ok(());
        }
        let parts = Parts {
            resolved: &resolved,
            tls: &self.base.tls,
            entrance: &self.base.entrance,
            budgets: &self.base.budgets,
            trimmer: &self.base.trimmer,
            connections_max: max,
            listeners: listeners.with_elsewhere(self.addresses.clone()),
            shard: Some(shard),
            node,
            seats: self.seats.clone(),
            // The sessions of web pages are in one place, whichever node a browser connects to.
            pages,
            threshold,
            passage,
            events,
        };
        let ended = live(&parts, &options, inbox);
        parts.node.stop();
        ended.with_context(|| format!("shard {shard} of the {} of --shards", config.shards))
    }

    /// The settings as they are for one shard.
    fn settings_of(&self, shard: u8) -> Resolved {
        let mut resolved = self.resolved.clone();
        let config = &mut resolved.config;
        config.data = config.data.join(format!("shard-{shard}"));
        config.jobd_master = config.jobd_master.filter(|_| shard == 0);
        // This setting is for the whole process, so each shard gets its share.
        config.payload_memory_bytes /= u64::from(config.shards);
        resolved
    }

    /// Ends the routers, then all lives, when the process is to end or one of them has ended.
    fn wait_for_end(
        &self,
        inbox: &Receiver<Event>,
        routers: &Routers,
        lives: Vec<(Sender<Event>, ScopedJoinHandle<'_, anyhow::Result<()>>)>,
    ) -> anyhow::Result<()> {
        let ending = loop {
            match inbox.recv() {
                Ok(Event::Signal(ending)) => break Some(ending),
                Ok(Event::Reload) => {
                    self.base.tls.reload();
                    self.base.entrance.reload();
                }
                Ok(Event::ShardEnded) | Err(_) => break None,
                Ok(_) => {}
            }
        };
        notify(&[NotifyState::Stopping]);
        match ending {
            Some(Ending { name, .. }) => {
                let timeout = self.resolved.config.shutdown_timeout;
                tracing::info!("{name}: stopping, at most {timeout:?} for answers under way");
                routers.shutdown(timeout);
            }
            None => routers.abort(),
        }
        for (events, _) in &lives {
            // A life that has ended already does not receive it.
            drop(events.send(Event::Signal(ending.unwrap_or(Ending::OF_FAILURE))));
        }
        let ended = lives.into_iter().map(|(_, thread)| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("the thread of a shard panicked")))
        });
        // All of them are waited for. The first that failed is why the others had to end.
        ended.collect::<Vec<_>>().into_iter().collect()
    }
}

/// How often to check which queues are to move on.
const MOVED_EVERY: Duration = Duration::from_millis(100);

/// The body of the thread that moves queues on, and tells routers where they are.
fn move_queues(seats: &[Node], routers: &Routers, ends: &AtomicBool) {
    let mut moving = Moving::between(seats.to_vec());
    while !ends.load(Ordering::Relaxed) {
        moving.go_on().iter().for_each(|moved| routers.follow_moves(moved));
        routers.look();
        thread::sleep(MOVED_EVERY);
    }
}

/// What one life is made of.
struct Life {
    shard: u8,
    node: Node,
    threshold: Threshold,
    listeners: Listeners,
    /// What its web pages query, if it has any.
    pages: Option<Pages>,
}
