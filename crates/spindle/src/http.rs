//! The HTTP door of a running server: its routes, its listener, its end.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Instant,
};

use anyhow::Context;
use axum::Router;
use spindle_access::Access;
use spindle_api::{Api, Options};
use spindle_budget::Budgets;
use spindle_cluster::{Arriving, Node};
use spindle_engine::Engine;
use spindle_history::History;
use spindle_http::{
    Names, Site,
    listen::{Handle, HttpConfig, HttpListener, Limits},
};
use spindle_jobd_master::MasterHandle;
use spindle_jobq::Jobq;
use spindle_lightjq::LightJq;
use spindle_limits::Places;
use spindle_web::{Pulse, Web};

use crate::{config::Resolved, web};

/// What web pages query if the queues are spread over several logs.
#[derive(Clone)]
pub struct Pages {
    /// The native API, over all of them.
    pub api: Router,
    /// Says when something has happened on one of them.
    pub pulse: Arc<dyn Pulse>,
}

/// The doors beside it, by their names.
pub struct OtherDoors {
    /// Their open connections, where they are counted.
    pub connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    /// Handshakes of TLS over all doors, by how they ended.
    pub handshakes: Vec<(&'static str, Arc<AtomicU64>)>,
    /// Until when the certificate is valid, in seconds since 1970; none without TLS.
    pub certificate_expires: Option<Arc<AtomicU64>>,
    /// Where they listen.
    pub addresses: Vec<(&'static str, SocketAddr)>,
    /// The memory that their clients and those of HTTP may together make the server hold.
    pub budgets: Budgets,
    /// How many connections all of them may have.
    pub places: Places,
    /// What the server did in the last hour and day.
    pub history: History,
    /// The jobd master, if there is one.
    pub jobd_master: Option<MasterHandle>,
    /// This node, if it is one of several.
    pub node: Option<Node>,
    /// Its seats at all shards, if there are several.
    pub seats: Vec<Node>,
    /// What the web pages query, if that is more than the engine.
    pub pages: Option<Pages>,
}

/// The HTTP door at work. Dropping it closes it at once.
pub struct Http {
    api: Api,
    jobq: Jobq,
    lightjq: LightJq,
    web: Web,
    handle: Handle,
}

impl Http {
    /// Serves the clients that `access` admits, at an address that was claimed.
    pub fn open(
        engine: Engine,
        bound: HttpListener,
        access: Access,
        host: String,
        resolved: &Resolved,
        others: OtherDoors,
    ) -> anyhow::Result<Http> {
        let config = &resolved.config;
        let OtherDoors {
            connections,
            handshakes,
            certificate_expires,
            mut addresses,
            budgets,
            places,
            history,
            jobd_master,
            node,
            seats,
            pages,
        } = others;
        let line_connections = connections;
        let connections = Arc::<AtomicUsize>::default();
        addresses.push(("http", bound.local_addr()));
        let web = web::options(resolved, access.clone(), host.clone());
        let options = Options {
            access: access.clone(),
            host,
            connections: Arc::clone(&connections),
            line_connections,
            handshakes,
            certificate_expires,
            addresses,
            budgets: budgets.clone(),
            places: places.clone(),
            history,
            jobd_master,
            cluster: node,
            shards: seats,
            data: (!config.memory).then(|| config.data.clone()),
            ..Options::default()
        };
        let jobq = spindle_jobq::Options {
            access: access.clone(),
            query_time: config.jobq_query_time,
            answer_bytes_max: config.jobq_list_bytes_max,
            ..spindle_jobq::Options::default()
        };
        let jobq = Jobq::new(engine.clone(), jobq)
            .context("jobq: cannot start the thread that answers queries")?;
        let lightjq = spindle_lightjq::Options {
            access: access.clone(),
            allow_urls: config.lightjq_allow_urls,
            budgets: budgets.clone(),
            places: places.clone(),
            ..spindle_lightjq::Options::default()
        };
        let lightjq = LightJq::new(engine.clone(), lightjq);
        let committer = Arc::new(engine.clone());
        let spans = engine.observe().span_sink();
        let api = Api::new(engine.clone(), options);
        let web = match pages {
            Some(Pages { api, pulse }) => Web::with_pulse(engine, api, pulse, web),
            None => Web::new(engine, api.router(), web),
        };
        let routes = Router::new().merge(api.router()).merge(jobq.router()).merge(lightjq.router());
        let routes = routes.merge(web.router());
        let names = Names::new(bound.local_addr().ip()).with_hosts(config.http_hosts.clone());
        let routes = Site::with(routes, names, access, spans).with_fallback(web.lost());
        let limits = Limits { head_time: config.http_idle_timeout, ..Limits::default() };
        let serving = HttpConfig { limits, budgets, places, ..HttpConfig::default() };
        let handle = bound
            .start(routes, committer, serving, connections)
            .context("http: cannot start serving")?;
        Ok(Http { api, jobq, lightjq, web, handle })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// Serves a connection that was accepted elsewhere. False if it is closed.
    pub fn adopt(&self, stream: TcpStream, client: Arriving) -> bool {
        match client {
            Arriving::At(address) => self.handle.adopt(stream, address),
            Arriving::Known(peer) => self.handle.adopt_known(stream, peer),
        }
    }

    /// Begins the orderly end: event streams and Jobq's queries end, answers under way are given. Does not wait.
    pub fn begin_shutdown(&self) {
        self.api.stop();
        self.jobq.stop();
        self.lightjq.stop();
        self.web.stop();
        self.handle.begin_shutdown();
    }

    /// Waits for the orderly end until the deadline. True when nothing was left.
    pub fn finish(&self, deadline: Instant) -> bool {
        self.handle.finish(deadline)
    }

    /// Closes everything now, unanswered.
    pub fn abort(&self) {
        self.handle.abort();
    }
}
