//! What all handlers share, and the table of routes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use spindle_engine::Engine;
use spindle_http::{BodyLimits, Code, EngineBridge, Problem, ProblemBody};
use tokio::sync::watch;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::names::JobNames;
use crate::push::{Pusher, pusher};
use crate::registry::{Registry, WorkerLine};
use crate::routes::{constraints, done, jobs, polling, workers};
use crate::{body, document};

/// What the door is told at its start. Tests shorten the times.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of requests' bodies.
    pub body: BodyLimits,
    /// Workers may give any address to be pushed to, not only their own.
    pub allow_urls: bool,
    /// A worker that asks for jobs is lost when it has none and has not asked for so long.
    pub lost_after_ms: u64,
    /// A worker that is pushed to is lost when pushes have failed for so long.
    pub drop_after_ms: u64,
    /// How often that is looked at.
    pub sweep_every: Duration,
    /// How long a worker may take to accept a job.
    pub push_time: Duration,
    /// The wait after a push that failed; it doubles.
    pub pause_min: Duration,
    /// The longest such wait.
    pub pause_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            body: BodyLimits::default(),
            allow_urls: false,
            lost_after_ms: 60_000,
            drop_after_ms: 30_000,
            sweep_every: Duration::from_secs(1),
            push_time: Duration::from_secs(10),
            pause_min: Duration::from_millis(500),
            pause_max: Duration::from_secs(8),
        }
    }
}

/// The LightJQ door. Clones are the same.
#[derive(Clone)]
pub struct LightJq(Arc<Shared>);

pub(crate) struct Shared {
    pub bridge: EngineBridge,
    pub options: Options,
    pub registry: Mutex<Registry>,
    pub names: JobNames,
    pub pusher: Pusher,
    stopping: watch::Sender<bool>,
    is_swept: std::sync::Once,
    description: String,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "LightJQ",
        description = "Jobs for workers. Bodies are MessagePack (application/msgpack), or JSON \
                       (application/json) where Content-Type or Accept say so.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(ProblemBody)),
    tags(
        (name = "pushers", description = "Submitting jobs and asking for results"),
        (name = "workers", description = "Registering, taking jobs, telling how they went"),
        (name = "constraints", description = "Limits on jobs that match"),
    )
)]
struct Described;

impl LightJq {
    /// The door of an engine.
    pub fn new(engine: Engine, options: Options) -> LightJq {
        let description = described().split_for_parts().1;
        LightJq(Arc::new(Shared {
            bridge: EngineBridge::new(engine),
            options,
            registry: Mutex::default(),
            names: JobNames::new(),
            pusher: pusher(),
            stopping: watch::Sender::new(false),
            is_swept: std::sync::Once::new(),
            description: document::json(&description),
        }))
    }

    /// All routes.
    pub fn router(&self) -> Router {
        let (router, _) = described().split_for_parts();
        router
            .route("/lightjq/openapi.json", get(openapi))
            .method_not_allowed_fallback(wrong_method)
            .layer(from_fn(body::problems_as_asked))
            .with_state(self.clone())
    }

    /// What the door offers, as an OpenAPI document in JSON.
    pub fn openapi(&self) -> &str {
        &self.0.description
    }

    /// The server stops: no jobs are pushed any more, and workers that wait for one are told that
    /// there is none.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// The workers that are registered, in the order they came.
    pub fn workers(&self) -> Vec<WorkerLine> {
        self.registry().lines()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    pub(crate) fn bridge(&self) -> &EngineBridge {
        &self.0.bridge
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.0.bridge.engine()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    /// Begins to look after workers, with the first of them: then there is a runtime to do it in.
    pub(crate) fn begin_sweeping(&self) {
        self.0.is_swept.call_once(|| drop(tokio::spawn(self.clone().sweep())));
    }
}

/// The routes that the OpenAPI document tells of: it cannot leave one out.
fn described() -> OpenApiRouter<LightJq> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(jobs::submit))
        .routes(routes!(jobs::show, jobs::delete))
        .routes(routes!(polling::polling))
        .routes(routes!(workers::register, workers::leave))
        .routes(routes!(workers::next_job))
        .routes(routes!(done::done))
        .routes(routes!(constraints::put, constraints::show, constraints::remove))
}

async fn openapi(axum::extract::State(door): axum::extract::State<LightJq>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], door.openapi().to_owned()).into_response()
}

async fn wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not take that method; see Allow")
}
