//! What all handlers share, and the table of routes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::routing::{any, get, post};
use spindle_engine::Engine;
use spindle_http::{BodyLimits, EngineBridge};

use crate::query_thread::QueryThread;
use crate::refusal;
use crate::replica::QueryLimits;
use crate::routes;

/// What the door is told at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What a request's body must keep to.
    pub body: BodyLimits,
    /// How long a query may compute.
    pub query_time: Duration,
    /// Most bytes of a list.
    pub answer_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            body: BodyLimits::default(),
            query_time: Duration::from_secs(2),
            answer_bytes_max: 64 << 20,
        }
    }
}

/// Jobq's door. Clones are the same.
#[derive(Clone)]
pub struct Jobq {
    shared: Arc<Shared>,
    /// Whose requests these are.
    clients: Clients,
}

/// Which generation of Jobq's client an address is for. At the address of all it is told from the
/// request, as far as it can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clients {
    All,
    First,
    Newest,
}

/// The addresses for one generation only: what its client is told to put before `/api/v0`.
const FIRST: &str = "/jobq/first";
const NEWEST: &str = "/jobq/newest";

struct Shared {
    bridge: EngineBridge,
    query_thread: QueryThread,
    options: Options,
}

impl Jobq {
    /// The door to an engine; there is one at each. Starts the thread that answers queries, which
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

    /// All routes. What is not theirs below `/api/v0` is a 404 in the same form.
    pub fn router(&self) -> Router {
        let of = |clients| {
            let routes = Jobq { shared: Arc::clone(&self.shared), clients }.routes();
            routes.layer(map_response(refusal::in_text))
        };
        self.routes().nest(FIRST, of(Clients::First)).nest(NEWEST, of(Clients::Newest))
    }

    fn routes(&self) -> Router {
        Router::new()
            .route("/api/v0/job", get(routes::list).post(routes::query))
            .route(
                "/api/v0/job/create",
                post(routes::create).get(routes::nothing_here).delete(routes::nothing_here),
            )
            .route(
                "/api/v0/job/poll",
                post(routes::poll).get(routes::nothing_here).delete(routes::nothing_here),
            )
            .route("/api/v0/job/{id}", get(routes::show).delete(routes::delete))
            .route("/api/v0/job/{id}/state", post(routes::set_state))
            .route("/api/v0/job/{id}/event", post(routes::add_event))
            .route("/api/v0/{*rest}", any(routes::nothing_here))
            .method_not_allowed_fallback(routes::wrong_method)
            .with_state(self.clone())
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
