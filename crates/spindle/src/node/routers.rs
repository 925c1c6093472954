//! The doors of a node whose queues are on several logs: routers, at the addresses that clients connect to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use spindle_cluster::{Carrier, Node, Whereabouts};
use spindle_engine::Door;
use spindle_http::{
    Names, Site,
    listen::{self, Handle, HttpConfig},
};
use spindle_limits::Places;
use spindle_net::{BindError, BoundDoor, NetConfig, Server, ServerHandle};
use spindle_router::gearman::{GearmanOptions, GearmanRouter};
use spindle_router::{
    Network, NoLog, Placement, Reach, Shard, Sockets, Spread, http::HttpRouter, workq::WorkqRouter,
};

use super::{Base, answers, pages::ShardsPulse};
use crate::{
    config::{Config, Resolved},
    http::Pages,
    serve::{line_limits, not_bound},
    starts,
};

/// The routers at work. Dropping them closes all their connections.
pub(super) struct Routers {
    lines: ServerHandle,
    http: Option<Handle>,
    placement: Placement,
    network: Arc<Sockets>,
    pages: Pages,
    pulse: Arc<ShardsPulse>,
}

impl Routers {
    /// Claims the addresses of the doors, and routes their clients.
    pub fn open(
        resolved: &Resolved,
        base: &Base,
        carrier: &Carrier,
        reach: Arc<dyn Reach>,
        nodes: &[Node],
    ) -> anyhow::Result<Routers> {
        let config = &resolved.config;
        let placement = Placement::over(config.shards);
        let places = Places::new(config.place_limits(base.connections_max))
            .when_many_left(base.trimmer.bell());
        let network = Arc::new(Sockets::new(carrier.handle().clone(), Arc::clone(&reach)));
        let bound = lines(config, base, &(Arc::clone(&network) as Arc<dyn Network>), &placement)?;
        let limits = line_limits(config);
        let (budgets, of_lines) = (base.budgets.clone(), places.clone());
        let net = NetConfig { limits, budgets, places: of_lines, ..NetConfig::default() };
        let lines = Server::start(Arc::new(NoLog), bound, net)?;
        let open = |addr| http(config, base, &reach, &placement, (addr, nodes, places));
        let http = config.http.map(open).transpose()?;
        let pulse = ShardsPulse::of(nodes);
        let pages = Pages {
            api: HttpRouter::new(reach, placement.clone()).router(),
            pulse: Arc::clone(&pulse) as _,
        };
        let routers = Routers { lines, http, placement, network, pages, pulse };
        starts::doors(config, &routers.local_addrs());
        Ok(routers)
    }

    /// The addresses that clients connect to.
    pub fn local_addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        let http = self.http.iter().map(|http| ("http", http.local_addr()));
        self.lines.local_addrs().iter().copied().chain(http).collect()
    }

    /// What web pages query.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Tells web pages if something has happened.
    pub fn look(&self) {
        self.pulse.look();
    }

    /// From now on, routes requests for queues that were moved to their new shards.
    pub fn follow_moves(&self, moved: &[Whereabouts]) {
        let spread = |it: &Whereabouts| {
            let (drains, to) = (it.drains.map(Shard), Shard(it.to));
            (it.queue.clone(), Spread { drains, to, is_open: it.is_open })
        };
        if self.placement.set_moved(moved.iter().map(spread).collect()) {
            self.network.wake_all();
        }
    }

    /// Ends all connections in order, within this time.
    pub fn shutdown(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.http.iter().for_each(Handle::begin_shutdown);
        let lines_in_time = self.lines.shutdown(timeout);
        let http_in_time = self.http.as_ref().is_none_or(|http| http.finish(deadline));
        if !(lines_in_time && http_in_time) {
            tracing::warn!("some answers were not ready in time; see --shutdown-timeout");
        }
    }

    /// Closes everything now, unanswered.
    pub fn abort(&self) {
        self.lines.abort();
        self.http.iter().for_each(Handle::abort);
    }
}

/// The routers of lines and packets, at their addresses.
fn lines(
    config: &Config,
    base: &Base,
    network: &Arc<dyn Network>,
    placement: &Placement,
) -> anyhow::Result<Vec<BoundDoor>> {
    let mut doors: Vec<(Arc<dyn Door>, SocketAddr)> = Vec::new();
    if let Some(addr) = config.workq {
        let limits = spindle_workq::wire::Limits::default();
        let router = WorkqRouter::new(Arc::clone(network), placement.clone(), limits);
        doors.push((Arc::new(router.with_access(base.entrance.door(config, addr))), addr));
    }
    if let Some(addr) = config.gearman {
        let access = base.entrance.door(config, addr);
        let options = GearmanOptions { access, ..GearmanOptions::default() };
        let router = GearmanRouter::new(Arc::clone(network), placement.clone(), options);
        doors.push((Arc::new(router), addr));
    }
    let bind = |(door, addr): (Arc<dyn Door>, SocketAddr)| {
        let tls = base.tls.of_door(config, door.name(), addr);
        let bound = spindle_net::bind(door, addr).map_err(not_bound)?;
        Ok(bound.with_tls(tls))
    };
    doors.into_iter().map(bind).collect()
}

/// The router of HTTP, at its address. It answers requests about this node itself.
fn http(
    config: &Config,
    base: &Base,
    reach: &Arc<dyn Reach>,
    placement: &Placement,
    (addr, nodes, places): (SocketAddr, &[Node], Places),
) -> anyhow::Result<Handle> {
    let bound = listen::bind(addr).map_err(|source| {
        let door = "http";
        not_bound(BindError { door, addr, source })
    })?;
    let bound = bound.with_tls(base.tls.of_door(config, "http", addr));
    let router = HttpRouter::new(Arc::clone(reach), placement.clone());
    let own = answers::of_shards(nodes, config.asks(addr));
    let names = Names::new(bound.local_addr().ip()).with_hosts(config.http_hosts.clone());
    let routes = Router::new().merge(own).merge(router.router());
    // Forwarded requests are counted by the shard that receives them.
    let site = Site::with(routes, names, base.entrance.door(config, addr), None);
    let limits =
        listen::Limits { head_time: config.http_idle_timeout, ..listen::Limits::default() };
    let budgets = base.budgets.clone();
    let serving = HttpConfig { limits, budgets, places, ..HttpConfig::default() };
    let started = bound.start(site, Arc::new(NoLog), serving, Arc::default());
    started.context("http: cannot start serving")
}
