//! What all handlers share, and the table of routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use spindle_engine::Engine;
use spindle_http::{BodyLimits, EngineBridge, ProblemBody};
use tokio::sync::watch;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept::accept;
use crate::document::document;
use crate::ended::LeaseEndedBody;
use crate::routes::{
    bulk, clock, constraints, docs, events, health, jobs, leases, list, queues, server, settings,
    submit, wait, why, workers,
};

/// What the API is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name in the handles by which Gearman's clients know jobs.
    pub host: String,
    /// What a request's body must keep to.
    pub body: BodyLimits,
    /// Open HTTP connections, for the metrics.
    pub connections: Arc<AtomicUsize>,
    /// Open connections of the other doors, by the doors' names, for the metrics.
    pub line_connections: Vec<(&'static str, Arc<AtomicUsize>)>,
    /// The doors that are open, this one included, and where they listen.
    pub addresses: Vec<(&'static str, SocketAddr)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host: "localhost".to_owned(),
            body: BodyLimits::default(),
            connections: Arc::default(),
            line_connections: Vec::new(),
            addresses: Vec::new(),
        }
    }
}

/// The native API. Clones are the same.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    bridge: EngineBridge,
    options: Options,
    started_ms: u64,
    stopping: watch::Sender<bool>,
    description: String,
    page: String,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Spindle",
        description = "Jobs, queues, leases and events of a Spindle server. Errors are \
                       application/problem+json with a stable `code`.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(LeaseEndedBody, ProblemBody)),
    tags(
        (name = "jobs", description = "Submitting, reading and changing jobs"),
        (name = "leases", description = "What workers do"),
        (name = "constraints", description = "Limits on jobs, whichever door they came through"),
        (name = "queues", description = "Queues and their settings"),
        (name = "workers", description = "Who works, and on what"),
        (name = "server", description = "Events, the clock, health and metrics"),
    )
)]
struct Described;

impl Api {
    /// The API of an engine.
    pub fn new(engine: Engine, options: Options) -> Api {
        let description = described().split_for_parts().1;
        let document = document(&description);
        let (description, page) = (document.to_string(), docs::page(&document));
        let (stopping, _) = watch::channel(false);
        let started_ms = engine.now_ms();
        let bridge = EngineBridge::new(engine);
        Api(Arc::new(Shared { bridge, options, started_ms, stopping, description, page }))
    }

    /// All routes, for `spindle_http::site`.
    pub fn router(&self) -> Router {
        let (router, _) = described().split_for_parts();
        router
            .route("/api/openapi.json", get(docs::openapi))
            .route("/api/docs", get(docs::docs))
            .layer(from_fn(accept))
            .with_state(self.clone())
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

    pub(crate) fn page(&self) -> &str {
        &self.0.page
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.0.bridge
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.bridge.engine()
    }

    /// When it was made, by the engine's clock.
    pub(crate) fn started_ms(&self) -> u64 {
        self.0.started_ms
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
}

/// The routes that the OpenAPI document tells of: it cannot leave one out.
pub(crate) fn described() -> OpenApiRouter<Api> {
    let described: Description = Described::openapi();
    OpenApiRouter::with_openapi(described)
        .routes(routes!(submit::submit, list::list))
        .routes(routes!(submit::batch))
        .routes(routes!(bulk::bulk))
        .routes(routes!(jobs::show, jobs::edit, jobs::delete))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(leases::extend_for))
        .routes(routes!(jobs::park))
        .routes(routes!(jobs::release))
        .routes(routes!(wait::wait))
        .routes(routes!(why::why))
        .routes(routes!(constraints::list))
        .routes(routes!(constraints::show, constraints::put, constraints::remove))
        .routes(routes!(constraints::buckets))
        .routes(routes!(leases::lease))
        .routes(routes!(leases::extend))
        .routes(routes!(leases::complete))
        .routes(routes!(leases::fail))
        .routes(routes!(leases::release))
        .routes(routes!(queues::list))
        .routes(routes!(queues::show))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(queues::drain))
        .routes(routes!(queues::purge))
        .routes(routes!(settings::show, settings::set))
        .routes(routes!(workers::list))
        .routes(routes!(events::events))
        .routes(routes!(server::show))
        .routes(routes!(clock::accept))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}
