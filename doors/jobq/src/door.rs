//! What all handlers share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use spindle_access::Access;
use spindle_engine::Engine;
use spindle_http::{BodyLimits, EngineBridge};

use crate::query_thread::QueryThread;
use crate::replica::QueryLimits;

/// The settings of the door.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which clients are let in.
    pub access: Access,
    /// The limits on request bodies.
    pub body: BodyLimits,
    /// How long a query may compute.
    pub query_time: Duration,
    /// Most bytes of a list.
    pub answer_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::open(),
            body: BodyLimits::default(),
            query_time: Duration::from_secs(2),
            answer_bytes_max: 64 << 20,
        }
    }
}

/// Jobq's door. Clones share one instance.
#[derive(Clone)]
pub struct Jobq {
    shared: Arc<Shared>,
    /// The generation of clients that the requests come from.
    clients: Clients,
}

/// Which generation of Jobq's client an address is for. At the address for all of them, the
/// generation is taken from the request where it shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clients {
    All,
    First,
    Newest,
}

struct Shared {
    bridge: EngineBridge,
    query_thread: QueryThread,
    options: Options,
}

impl Jobq {
    /// The door of an engine; each engine has one. Starts the thread that answers queries, which
    /// ends with the door.
    pub fn new(engine: Engine, options: Options) -> io::Result<Jobq> {
        let limits =
            QueryLimits { time: options.query_time, answer_bytes_max: options.answer_bytes_max };
        let query_thread = QueryThread::start(engine.clone(), limits)?;
        let shared = Arc::new(Shared { bridge: EngineBridge::new(engine), query_thread, options });
        Ok(Jobq { shared, clients: Clients::All })
    }

    /// Begins the orderly end: queries end now, and are answered. Does not wait.
    pub fn stop(&self) {
        self.shared.query_thread.stop();
    }

    /// The same door at the address of one generation of clients.
    pub(crate) fn only_for(&self, clients: Clients) -> Jobq {
        Jobq { shared: Arc::clone(&self.shared), clients }
    }

    pub(crate) fn clients(&self) -> Clients {
        self.clients
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.shared.bridge
    }

    pub(crate) fn query_thread(&self) -> &QueryThread {
        &self.shared.query_thread
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }
}
