//! Why a job does not run: only what is known. The words are in `reasons.rs`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use spindle_core::{JobId, JobImage, Status};
use spindle_engine::JobNow;
use spindle_http::{Answered, no_job};
use tokio::task::yield_now;
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::JobPath;
use crate::reasons::{Reason, constrained, last_attempt, of_status, paused, placed, workers};
use crate::view::status_word;

/// Jobs looked at in one hold of the lock, and how many holds there are.
const STEP_JOBS: usize = 512;
const STEPS_MAX: usize = 40;

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
    let image = api.bridge().durable(api.engine().jobs().get(which)?).await;
    let image = image.ok_or_else(no_job)?;
    let status = image.status();
    let now = api.engine().jobs().now(&image);
    let mut reasons = vec![];
    reasons.extend(of_status(&image, &now.tries));
    let mut runnable = status == Status::Ready;
    if matches!(status, Status::Ready | Status::Scheduled | Status::Parked) {
        let held = holding(&image, now);
        runnable &= held.is_empty();
        reasons.extend(held);
    }
    if status == Status::Ready {
        reasons.extend(position(&api, &image).await);
        reasons.push(waiting(&api, &image));
    }
    if matches!(status, Status::Ready | Status::Scheduled | Status::Parked) {
        reasons.extend(last_attempt(&image));
    }
    Ok(Json(Why { id: image.id, status: status_word(status), runnable, reasons }))
}

/// What would hold it back even if it were ready.
fn holding(image: &JobImage, now: JobNow) -> Vec<Reason> {
    let paused = now.is_queue_paused.then(|| paused(&image.queue));
    paused.into_iter().chain(now.held_back.into_iter().map(constrained)).collect()
}

/// How many ready jobs of its queue come before it. Counted in steps, while the line moves.
async fn position(api: &Api, image: &JobImage) -> Option<Reason> {
    let mut before = 0;
    for _ in 0..STEPS_MAX {
        let queues = api.engine().queues();
        let (seen, found) = queues.position(&image.queue, JobId(image.id), before, STEP_JOBS);
        if found {
            return Some(placed(before + seen, false));
        }
        if seen < STEP_JOBS {
            // It was leased or changed meanwhile.
            return None;
        }
        before += seen;
        yield_now().await;
    }
    Some(placed(before, true))
}

/// Whether a worker waits for its queue.
fn waiting(api: &Api, image: &JobImage) -> Reason {
    let observe = api.engine().observe();
    let count = observe.waiting_leases(&image.queue);
    workers(count, count == 0 && observe.has_sleepers(&image.queue))
}
