//! Why a job does not run: one query of the engine. The words are in `reasons.rs`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use spindle_core::{JobImage, Status};
use spindle_engine::{Explanation, JobNow};
use spindle_http::{Answered, no_job};
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::JobPath;
use crate::reasons::{
    Reason, blocked, constrained, last_attempt, of_status, paused, placed, takes_turns, workers,
};
use crate::view::{status_word, waits};

/// Why a job is where it is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Why {
    /// The job.
    id: u64,
    /// Where it stands.
    status: &'static str,
    /// Whether a worker that asked now would get it, or one that comes before it.
    runnable: bool,
    /// All that is known, what matters most first.
    reasons: Vec<Reason>,
}

/// Why a job is not running: its status, its queue, what comes before it, what holds it back.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", operation_id = "explain_job", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "What is known", body = Why),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn why(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Json<Why>> {
    let found = api.bridge().durable(api.engine().jobs().explain(which)?).await;
    Ok(Json(Why::of(found.ok_or_else(no_job)?)))
}

impl Why {
    fn of(found: Explanation) -> Why {
        let Explanation { image, now, before, waits_for, fair, waiting_leases, has_sleepers } =
            found;
        let status = image.status();
        let mut reasons: Vec<Reason> = of_status(&image, &now.tries).into_iter().collect();
        reasons.extend(blocked(&image, &waits_for));
        let mut runnable = status == Status::Ready;
        let waits = waits(status);
        if waits {
            let held = holding(&image, now);
            runnable &= held.is_empty();
            reasons.extend(held);
        }
        if status == Status::Ready {
            reasons.extend(before.map(placed));
            reasons.extend(fair.map(takes_turns));
            reasons.push(workers(waiting_leases, waiting_leases == 0 && has_sleepers));
        }
        if waits {
            reasons.extend(last_attempt(&image));
        }
        Why { id: image.id, status: status_word(status), runnable, reasons }
    }
}

/// What would prevent the job from starting even if it were ready.
fn holding(image: &JobImage, now: JobNow) -> Vec<Reason> {
    let paused = now.is_queue_paused.then(|| paused(&image.queue));
    paused.into_iter().chain(now.held_back.into_iter().map(constrained)).collect()
}
