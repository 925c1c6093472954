//! What all handlers share, and the table of routes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get, post};
use spindle_engine::Engine;
use spindle_http::{BodyLimits, Desk};

use crate::clerk::Clerk;
use crate::mirror::QueryLimits;
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
pub struct Jobq(Arc<Shared>);

struct Shared {
    desk: Desk,
    clerk: Clerk,
    options: Options,
}

impl Jobq {
    /// The door to an engine; there is one at each. Starts the thread that answers queries, which
    /// ends with the door.
    pub fn new(engine: Engine, options: Options) -> io::Result<Jobq> {
        let limits =
            QueryLimits { time: options.query_time, answer_bytes_max: options.answer_bytes_max };
        let clerk = Clerk::start(engine.clone(), limits)?;
        Ok(Jobq(Arc::new(Shared { desk: Desk::new(engine), clerk, options })))
    }

    /// All routes. What is not theirs below `/api/v0` is a 404 in the same form.
    pub fn router(&self) -> Router {
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

    pub(crate) fn desk(&self) -> &Desk {
        &self.0.desk
    }

    pub(crate) fn clerk(&self) -> &Clerk {
        &self.0.clerk
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }
}
