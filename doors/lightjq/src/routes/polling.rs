//! Waiting for a job's end.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use spindle_engine::{Answer, JobRef};
use spindle_http::{Answered, Code, Pass, Problem};

use crate::body::Wanted;
use crate::door::LightJq;
use crate::extract::{JobPath, PollTimeout, Reads};
use crate::routes::schema;

/// A job as it stands once it is done, or failed for good.
#[utoipa::path(get, path = "/job/{id}/polling", operation_id = "poll_job", tag = "pushers",
    params(JobPath, PollTimeout),
    responses(
        (status = 200, description = "The job, which is over", body = schema::Job),
        (status = 408, description = "It is not over yet"),
        (status = "4XX", description = "No such job, or it is gone")))]
pub(crate) async fn polling(
    State(door): State<LightJq>,
    JobPath(id): JobPath,
    reads: Reads,
    mut pass: Pass,
    wanted: Wanted,
    PollTimeout(wait): PollTimeout,
) -> Answered<Response> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let until_ms = door.engine().now_ms().saturating_add(wait_ms);
    loop {
        pass.allows_job(door.bridge(), JobRef::Id(id)).await?;
        let job = door.job_answer(id, &reads).await?;
        if job.status.is_finished() {
            return wanted.answer(StatusCode::OK, job.packed).await;
        }
        let left_ms = until_ms.saturating_sub(door.engine().now_ms());
        let ended = door.bridge().result(id, left_ms).await?;
        if matches!(ended, Some(Answer::TimedOut)) {
            return Err(Problem::new(Code::PollTimeout, "the job is not over yet: ask again"));
        }
    }
}
