//! What all handlers share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use spindle_access::Access;
use spindle_budget::Budgets;
use spindle_cluster::Node;
use spindle_engine::Engine;
use spindle_history::History;
use spindle_http::{BodyLimits, EngineBridge};
use spindle_jobd_master::MasterHandle;
use spindle_limits::Places;
use tokio::sync::watch;

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which clients are let in.
    pub access: Access,
    /// The name in the handles by which Gearman's clients know jobs.
    pub host: String,
    /// The limits on request bodies.
    pub body: BodyLimits,
    /// Open HTTP connections, for the metrics.
    pub connections: Arc<AtomicUsize>,
    /// Open connections of the other doors, by the doors' names, for the metrics.
    pub line_connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    /// Handshakes of TLS by how they ended, for the metrics; empty without TLS.
    pub handshakes: Vec<(&'static str, Arc<AtomicU64>)>,
    /// Until when the server's certificate is valid, in seconds since 1970, for the metrics; none
    /// without TLS.
    pub certificate_expires: Option<Arc<AtomicU64>>,
    /// The doors that are open, this one included, and where they listen.
    pub addresses: Vec<(&'static str, SocketAddr)>,
    /// The budgets for what all clients together make the server hold, for the metrics.
    pub budgets: Budgets,
    /// The connection slots of all doors; the metrics count the connections refused for lack of
    /// one.
    pub places: Places,
    /// What the server did in the last hour and day.
    pub history: History,
    /// The jobd master, if the server runs one.
    pub jobd_master: Option<MasterHandle>,
    /// This node, if the server is one of several on a shared log.
    pub cluster: Option<Node>,
    /// Where queues are spread over several logs: this process's nodes at all of them, by shard.
    pub shards: Vec<Node>,
    /// The folder of the log, for how much room its disk has; none for a log in memory.
    pub data: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::open(),
            host: "localhost".to_owned(),
            body: BodyLimits::default(),
            connections: Arc::default(),
            line_connections: Vec::new(),
            handshakes: Vec::new(),
            certificate_expires: None,
            addresses: Vec::new(),
            budgets: Budgets::default(),
            places: Places::default(),
            history: History::default(),
            jobd_master: None,
            cluster: None,
            shards: Vec::new(),
            data: None,
        }
    }
}

/// The native API. Clones share one instance.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    bridge: EngineBridge,
    options: Options,
    started_ms: u64,
    stopping: watch::Sender<bool>,
    description: String,
}

impl Api {
    /// The API of an engine, with its description.
    pub(crate) fn described(engine: Engine, options: Options, description: String) -> Api {
        let (stopping, _) = watch::channel(false);
        let started_ms = engine.now_ms();
        let bridge = EngineBridge::new(engine);
        Api(Arc::new(Shared { bridge, options, started_ms, stopping, description }))
    }

    /// What the API offers, as an OpenAPI document in JSON.
    pub fn openapi(&self) -> &str {
        &self.0.description
    }

    /// The server stops: event streams end, and `/readyz` says so.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.0.bridge
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.bridge.engine()
    }

    /// When this API was created, by the engine's clock.
    pub(crate) fn started_ms(&self) -> u64 {
        self.0.started_ms
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
}
