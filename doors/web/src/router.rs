//! The table of routes.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use spindle_core::job::Origin;
use spindle_http::{Entrance, Problem, nothing_here};

use crate::actions;
use crate::enter::enter;
use crate::face::{dressed, face};
use crate::live::live;
use crate::needs::NEEDS;
use crate::pages::{
    assets, audit, batch, batches, bytes, constraint, constraints, job, job_table, jobd, jobs,
    login, overview, queue, queues, schedule, schedules, server, submit, theme, workers,
};
use crate::web::Web;

impl Web {
    /// All pages, for `spindle_http::site`.
    pub fn router(&self) -> Router {
        let routes = Router::new()
            .route("/", get(overview::show))
            .route("/queues", get(queues::list))
            .route("/queue", get(queue::show))
            .route("/queue/settings", get(actions::settings::show).post(actions::settings::save))
            .route("/queue/{action}", get(actions::queue::ask).post(actions::queue::act))
            .route("/jobs", get(jobs::list))
            .route("/dead", get(jobs::dead))
            .route("/scheduled", get(jobs::scheduled))
            .route("/search", get(jobs::search))
            .route("/jobs/all/{action}", get(actions::many::ask).post(actions::many::act))
            .route("/jobs/{id}", get(job::show))
            .route("/jobs/{id}/bytes/{which}", get(bytes::download))
            .route("/jobs/{id}/{action}", get(actions::job::ask).post(actions::job::act))
            .route("/workers", get(workers::list))
            .route("/jobd", get(jobd::list))
            .route("/jobd/{action}", get(actions::jobd::ask).post(actions::jobd::act))
            .route("/schedules", get(schedules::list))
            .route("/schedule", get(schedule::show))
            .route(
                "/schedule/edit",
                get(actions::schedule_form::show).post(actions::schedule_form::save),
            )
            .route("/schedule/{action}", get(actions::schedule::ask).post(actions::schedule::act))
            .route("/batches", get(batches::list))
            .route("/batches/{id}", get(batch::show))
            .route("/batches/{id}/seal", get(actions::batch::ask_seal).post(actions::batch::seal))
            .route(
                "/batches/{id}/cancel",
                get(actions::batch::ask_cancel).post(actions::batch::cancel),
            )
            .route("/constraints", get(constraints::list))
            .route("/constraint", get(constraint::show))
            .route(
                "/constraint/edit",
                get(actions::constraint::show).post(actions::constraint::save),
            )
            .route(
                "/constraint/remove",
                get(actions::constraint::ask_remove).post(actions::constraint::remove),
            )
            .route("/audit", get(audit::list))
            .route("/server", get(server::show))
            .route("/submit", get(submit::show).post(submit::take))
            .route("/live", get(live))
            .route("/login", get(login::show).post(login::begin))
            .route("/logout", post(login::end))
            .route("/theme", post(theme::choose))
            .route("/columns", post(job_table::choose))
            .route("/assets/{name}", get(assets::file))
            .with_state(self.clone());
        let entrance = Entrance {
            door: Origin::Api,
            access: self.options().access.clone(),
            table: NEEDS,
            base: "",
            refuse: |denied| Problem::from(denied).into_response(),
            check: |_| Ok(()),
        };
        entrance
            .admit(routes)
            .layer(from_fn_with_state(self.clone(), enter))
            .layer(from_fn(dressed))
            .layer(from_fn_with_state(self.clone(), face))
    }

    /// Serves paths that no door has: a page for people, a problem for programs.
    pub fn lost(&self) -> Router {
        Router::new().fallback(nothing_here).layer(from_fn_with_state(self.clone(), face))
    }
}
