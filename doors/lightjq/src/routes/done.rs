//! A worker's report on how an attempt went.

use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use spindle_access::Denied;
use spindle_core::Rejection;
use spindle_core::command::Claim;
use spindle_core::payload::Type;
use spindle_engine::{Engine, JobRef, Payload, Refused, WorkResult};
use spindle_http::{Answered, Code, Pass, Problem};

use crate::body::Body;
use crate::door::LightJq;
use crate::extract::Caller;
use crate::routes::schema;
use crate::wire::{Done, Outcome};

/// The job is done, or has failed. Only who has it may say so, and only as long as its time lasts.
#[utoipa::path(post, path = "/done", operation_id = "done", tag = "workers",
    request_body = schema::Done, params(Caller),
    responses(
        (status = 204, description = "It is noted, and that is on disk"),
        (status = 400, description = "Malformed"),
        (status = 404, description = "The worker does not have the job, any more"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn done(
    State(door): State<LightJq>,
    Caller(id): Caller,
    mut pass: Pass,
    body: Body,
) -> Answered<StatusCode> {
    let done = body.read(Done::decode).await?;
    let job = done.job.ok_or_else(not_held)?;
    pass.allows_job(door.bridge(), JobRef::Id(job)).await.map_err(|denied| match denied {
        Denied::Job => not_held(),
        denied => denied.into(),
    })?;
    // The lease itself names its worker, so a worker from an earlier run of the server can end it
    // too.
    let claim = door.engine().leases().claim_of(job, &id.worker_ref());
    let now_ms = door.engine().steady_ms();
    door.registry().seen(id, now_ms);
    let Some(claim) = door.bridge().durable(claim).await else {
        door.let_go(id, job);
        return Err(not_held());
    };
    finish(&door, claim, work_result(done)).await?;
    door.let_go(id, job);
    Ok(StatusCode::NO_CONTENT)
}

fn not_held() -> Problem {
    let detail = "this worker does not have that job (any more): its time ran out, it was given \
                  back, or it is over; drop the work";
    Problem::new(Code::JobNotFound, detail)
}

fn work_result(done: Done) -> WorkResult {
    let worker_finished_at = done.finished_at;
    match done.outcome {
        Outcome::Success { result } => {
            let result = Payload::new(result, Type::Msgpack);
            WorkResult { success: true, result, worker_finished_at, ..WorkResult::default() }
        }
        Outcome::Failure { reason, should_retry, message, error } => WorkResult {
            success: false,
            retry: should_retry,
            message,
            error,
            code: Bytes::from_static(reason.as_str().as_bytes()),
            result: Payload::new(Bytes::new(), Type::Msgpack),
            worker_finished_at,
        },
    }
}

async fn finish(door: &LightJq, claim: Claim, result: WorkResult) -> Answered<()> {
    let bytes = result.result.len();
    let finish = |engine: &Engine| engine.leases().finish(claim, result);
    let finished = door.bridge().change_with(bytes, finish);
    finished.await.map_err(|refused| match refused {
        Refused::Rejected(Rejection::NotHeld | Rejection::NotFound | Rejection::Finished) => {
            not_held()
        }
        other => other.into(),
    })
}
