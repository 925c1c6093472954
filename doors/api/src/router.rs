//! The table of routes.

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use spindle_core::job::Origin;
use spindle_engine::Engine;
use spindle_http::{Entrance, Problem, ProblemBody};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::accept::check_accept;
use crate::api::{Api, Options};
use crate::document::text;
use crate::ended::LeaseEndedBody;
use crate::needs::NEEDS;
use crate::routes::{
    activity, audit, backup, batches, bulk, clock, cluster, constraints, docs, events, failures,
    flows, health, history, jobd, jobs, lease_batch, leases, list, moves, queues, reports,
    schedules, server, settings, submit, transfer, wait, why, workers,
};

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
        (name = "batches", description = "Jobs that belong together"),
        (name = "constraints", description = "Limits on jobs, whichever door they came through"),
        (name = "schedules", description = "Jobs that come by the clock"),
        (name = "queues", description = "Queues and their settings"),
        (name = "workers", description = "Who works, and on what"),
        (name = "jobd", description = "The jobd master's workers and their targets"),
        (name = "server",
         description = "Events, the history, failures, the audit log, the clock, backups, health and metrics"),
    )
)]
struct Described;

impl Api {
    /// The API of an engine.
    pub fn new(engine: Engine, options: Options) -> Api {
        Api::described(engine, options, text(&described().split_for_parts().1))
    }

    /// All routes, for `spindle_http::site`.
    pub fn router(&self) -> Router {
        let (router, _) = described().split_for_parts();
        let routes = router
            .route("/api/openapi.json", get(docs::openapi))
            .route("/api/docs", get(docs::docs))
            .route("/api/docs/{name}", get(docs::file))
            .with_state(self.clone());
        let entrance = Entrance {
            door: Origin::Api,
            access: self.options().access.clone(),
            table: NEEDS,
            base: "",
            refuse: |denied| Problem::from(denied).into_response(),
            check: check_accept,
        };
        entrance.admit(routes)
    }
}

/// The routes, which the OpenAPI document is made of: it cannot leave one out.
pub(crate) fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(submit::submit, list::list))
        .routes(routes!(submit::batch))
        .routes(routes!(bulk::bulk))
        .routes(routes!(transfer::export))
        .routes(routes!(transfer::import))
        .routes(routes!(jobs::show, jobs::edit, jobs::delete))
        .routes(routes!(jobs::undo))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(leases::extend_for))
        .routes(routes!(jobs::park))
        .routes(routes!(jobs::release))
        .routes(routes!(wait::wait))
        .routes(routes!(activity::follow))
        .routes(routes!(activity::output, reports::job_output))
        .routes(routes!(reports::job_progress))
        .routes(routes!(reports::lease_progress))
        .routes(routes!(reports::lease_output))
        .routes(routes!(why::why))
        .routes(routes!(flows::flow))
        .routes(routes!(batches::open, batches::list))
        .routes(routes!(batches::show))
        .routes(routes!(batches::wait))
        .routes(routes!(batches::seal))
        .routes(routes!(batches::cancel))
        .routes(routes!(constraints::list))
        .routes(routes!(constraints::show, constraints::put, constraints::remove))
        .routes(routes!(constraints::buckets))
        .routes(routes!(constraints::held))
        .routes(routes!(schedules::list, schedules::apply))
        .routes(routes!(schedules::show, schedules::put, schedules::remove))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(leases::lease))
        .routes(routes!(lease_batch::batch))
        .routes(routes!(leases::extend))
        .routes(routes!(leases::complete))
        .routes(routes!(leases::fail))
        .routes(routes!(leases::release))
        .routes(routes!(flows::before))
        .routes(routes!(queues::list))
        .routes(routes!(queues::show))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(queues::drain))
        .routes(routes!(queues::purge))
        .routes(routes!(moves::start))
        .routes(routes!(settings::show, settings::set))
        .routes(routes!(workers::list))
        .routes(routes!(jobd::list))
        .routes(routes!(jobd::pause))
        .routes(routes!(jobd::go_on))
        .routes(routes!(events::events))
        .routes(routes!(history::show))
        .routes(routes!(history::queues))
        .routes(routes!(failures::list))
        .routes(routes!(server::show))
        .routes(routes!(audit::list))
        .routes(routes!(clock::accept))
        .routes(routes!(cluster::show))
        .routes(routes!(cluster::step_down))
        .routes(routes!(backup::list))
        .routes(routes!(backup::segment))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}
