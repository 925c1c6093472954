//! What pushers do: submit jobs, ask for them, take them back.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use spindle_access::Target;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::payload::Type;
use spindle_core::{BytesRef, JobId};
use spindle_engine::{Engine, JobRef, NewJob, Payload};
use spindle_http::{Answered, Pass, Trace};

use crate::body::{Body, Wanted};
use crate::door::LightJq;
use crate::extract::{JobPath, Reads};
use crate::routes::schema;
use crate::wire::{self, Pack};

/// How long a wanted result is kept until it is read.
const KEEP_MS: u64 = 24 * 3_600_000;
/// How long it is kept after it was read; also how long a job without a result is kept, so that
/// clients can ask whether it was done.
const KEEP_READ_MS: u64 = 5 * 60_000;

/// Submit a job. The answer comes when the job is on disk.
#[utoipa::path(post, path = "/job", operation_id = "submit_job", tag = "pushers",
    request_body = schema::NewJob,
    responses(
        (status = 201, description = "The job is taken", body = schema::Submitted),
        (status = "4XX", description = "Refused"),
        (status = "5XX", description = "Not now")))]
pub(crate) async fn submit(
    State(door): State<LightJq>,
    mut pass: Pass,
    Trace(trace): Trace,
    wanted: Wanted,
    body: Body,
) -> Answered<Response> {
    let mut job = new_job(body.read(wire::NewJob::decode).await?);
    job.submit.trace = trace;
    pass.allows(Target::Queue(&job.submit.queue))?;
    // Noted before the job is submitted, so that workers that take all names wait for this one
    // already.
    door.shared().names.note(door.engine(), &job.submit.queue);
    let bytes = job.payload.len();
    let id = door.bridge().change_with(bytes, |engine| engine.jobs().submit(job)).await?;
    let mut pack = Pack::new();
    pack.map(1).text("job_id").text(&id.to_string());
    let mut response = wanted.answer(StatusCode::CREATED, pack.into_bytes()).await?;
    let location = HeaderValue::try_from(format!("/job/{id}")).expect("a path of ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn new_job(job: wire::NewJob) -> NewJob {
    let tries = job.max_retry.map(|count| count.saturating_add(1));
    let submit = Submit {
        // Smaller goes first here, higher in the core.
        priority: -i64::from(job.priority),
        ttr_ms: Some(job.timeout_ms),
        attempts_max: tries,
        fails_max: tries,
        keep_ms: Some(if job.keep_result { KEEP_MS } else { KEEP_READ_MS }),
        keep_read_ms: job.keep_result.then_some(KEEP_READ_MS),
        drop_result: !job.keep_result,
        ..Submit::new(JobId(0), Bytes::new(), Origin::Lightjq, BytesRef::NONE)
    };
    let submit = Submit { queue: job.name, ..submit };
    NewJob { submit, payload: Payload::new(job.argument, Type::Msgpack) }
}

/// A job as it stands.
#[utoipa::path(get, path = "/job/{id}", operation_id = "show_job", tag = "pushers",
    params(JobPath),
    responses(
        (status = 200, description = "The job", body = schema::Job),
        (status = "4XX", description = "No such job, or it is gone")))]
pub(crate) async fn show(
    State(door): State<LightJq>,
    JobPath(id): JobPath,
    reads: Reads,
    wanted: Wanted,
) -> Answered<Response> {
    let job = door.job_answer(id, &reads).await?;
    wanted.answer(StatusCode::OK, job.packed).await
}

/// Take back a job that nobody works on.
#[utoipa::path(delete, path = "/job/{id}", operation_id = "delete_job", tag = "pushers",
    params(JobPath),
    responses(
        (status = 204, description = "It is gone"),
        (status = 409, description = "A worker has it, or it is over"),
        (status = "4XX", description = "No such job, or it is gone")))]
pub(crate) async fn delete(
    State(door): State<LightJq>,
    JobPath(id): JobPath,
    pass: Pass,
) -> Answered<StatusCode> {
    let mut audit = pass.audit(Origin::Lightjq);
    let delete = |engine: &Engine| engine.people(&mut audit).delete_waiting(JobRef::Id(id));
    door.bridge().change(delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
