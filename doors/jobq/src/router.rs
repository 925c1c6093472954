//! The table of routes.

use axum::Router;
use axum::middleware::map_response;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use spindle_core::job::Origin;
use spindle_http::Entrance;

use crate::door::{Clients, Jobq};
use crate::needs::NEEDS;
use crate::refusal::Refusal;
use crate::{refusal, routes};

/// The addresses for one generation only: what its client puts before `/api/v0`.
const FIRST: &str = "/jobq/first";
const NEWEST: &str = "/jobq/newest";

impl Jobq {
    /// All routes. Any other path below `/api/v0` is a 404 in the same form.
    pub fn router(&self) -> Router {
        let of = |clients, base| {
            self.only_for(clients).routes(base).layer(map_response(refusal::in_text))
        };
        let (first, newest) = (of(Clients::First, FIRST), of(Clients::Newest, NEWEST));
        self.routes("").nest(FIRST, first).nest(NEWEST, newest)
    }

    /// `base` is where they are.
    fn routes(&self, base: &'static str) -> Router {
        let routes = Router::new()
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
            .with_state(self.clone());
        let entrance = Entrance {
            door: Origin::Jobq,
            access: self.options().access.clone(),
            table: NEEDS,
            base,
            refuse: |denied| Refusal::from(denied).into_response(),
            check: |_| Ok(()),
        };
        entrance.admit(routes)
    }
}
