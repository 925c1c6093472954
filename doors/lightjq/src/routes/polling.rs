//! Waiting for a job's end.

use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use spindle_engine::Answer;
use spindle_http::{Answered, Code, Problem, ProblemBody};
use std::time::Duration;

use crate::body::Wanted;
use crate::door::LightJq;
use crate::routes::schema;
use crate::routes::shown::{JobPath, Reads};

/// The longest wait: proxies and clients give up sooner.
const WAIT_S_MAX: f64 = 300.0;
/// The wait of who does not say.
const WAIT_S: f64 = 5.0;

#[derive(Deserialize)]
struct Asked {
    timeout: Option<f64>,
}

/// How long a request is willing to wait.
pub(crate) struct Patience(pub Duration);

impl FromRequestParts<LightJq> for Patience {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        let Query(asked) = Query::<Asked>::try_from_uri(&parts.uri)
            .map_err(|error| Problem::new(Code::BadField, error.body_text()))?;
        let wait_s = asked.timeout.unwrap_or(WAIT_S);
        if !(0.0..=WAIT_S_MAX).contains(&wait_s) {
            let detail = "`timeout` must be a number of seconds from 0 to 300";
            return Err(Problem::new(Code::OutOfRange, detail));
        }
        Ok(Patience(Duration::from_secs_f64(wait_s)))
    }
}

/// A job as it stands once it is done, or failed for good.
#[utoipa::path(get, path = "/job/{id}/polling", operation_id = "poll_job", tag = "pushers",
    params(("id" = String, Path, description = "The job_id",
        pattern = "^[1-9][0-9]{0,15}$"),
        ("timeout" = Option<f64>, Query, minimum = 0, maximum = 300,
            description = "How long to wait, in seconds, at most 300; 5 if not said")),
    responses(
        (status = 200, description = "The job, which is over",
            content((schema::Job = "application/msgpack"), (schema::Job = "application/json"))),
        (status = 408, description = "It is not over yet",
            content((ProblemBody = "application/msgpack"),
                (ProblemBody = "application/problem+json"))),
        (status = "4XX", description = "No such job, or it is gone",
            content((ProblemBody = "application/msgpack"),
                (ProblemBody = "application/problem+json")))))]
pub(crate) async fn polling(
    State(door): State<LightJq>,
    JobPath(id): JobPath,
    reads: Reads,
    wanted: Wanted,
    Patience(wait): Patience,
) -> Answered<Response> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let until_ms = door.engine().now_ms().saturating_add(wait_ms);
    loop {
        let told = door.told(id, &reads).await?;
        if told.status.is_finished() {
            return wanted.answer(StatusCode::OK, told.packed);
        }
        let left_ms = until_ms.saturating_sub(door.engine().now_ms());
        let caller = door.desk().caller();
        let waiting =
            door.desk().take(|engine| engine.wait_for_result(&caller, id, left_ms, false));
        // None: it has ended since it was looked at.
        let Some(ticket) = waiting.await? else { continue };
        let (answer, gate) = door.desk().wait(caller, ticket).answered().await;
        if matches!(answer, Answer::TimedOut) {
            door.desk().durable(gate).await;
            let detail = "the job is not over yet: ask again";
            return Err(Problem::new(Code::PollTimeout, detail));
        }
    }
}
