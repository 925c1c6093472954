//! The table of routes.

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::get;
use spindle_core::job::Origin;
use spindle_engine::Engine;
use spindle_http::{Code, Entrance, Problem, ProblemBody};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::door::{LightJq, Options};
use crate::needs::NEEDS;
use crate::routes::{constraints, done, jobs, polling, workers};
use crate::{body, document};

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
        let description = document::json(&described().split_for_parts().1);
        LightJq::described(engine, options, description)
    }

    /// All routes.
    pub fn router(&self) -> Router {
        let (router, _) = described().split_for_parts();
        let routes = router
            .route("/lightjq/openapi.json", get(openapi))
            .method_not_allowed_fallback(wrong_method)
            .with_state(self.clone());
        let entrance = Entrance {
            door: Origin::Lightjq,
            access: self.options().access.clone(),
            table: NEEDS,
            base: "",
            refuse: |denied| Problem::from(denied).into_response(),
            check: |_| Ok(()),
        };
        entrance.admit(routes).layer(from_fn(body::problems_as_asked))
    }
}

/// The routes, which the OpenAPI document is made of: it cannot leave one out.
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

async fn openapi(State(door): State<LightJq>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], door.openapi().to_owned())
}

async fn wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not take that method; see Allow")
}
