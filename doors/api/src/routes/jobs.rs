//! Submitting, reading and changing jobs.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_core::command::{Command, Edit};
use spindle_core::job::Key;
use spindle_core::{JobId, Rejection, address};
use spindle_engine::{NewJob, Refused, RetryError, Which};
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::{JobPath, JsonBody, OptionalBody};
use crate::submit::{NewJobBody, UniqueMode};
use crate::typed::{self, Kind, present};
use crate::view::Job;
use crate::{instant, keys, naming, reading};
use spindle_http::{Answered, Code, Problem, ProblemBody, no_job};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A key can be free again when the job that had it is looked at: then the submit is made again.
const SUBMIT_TRIES: usize = 4;

/// A job that was taken.
#[derive(Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// Its number.
    id: u64,
    /// The UUID by which Workq's clients know it.
    uuid: String,
    /// The handle by which Gearman's clients know it.
    handle: String,
    /// It was there already: the same request came before, or another job has the unique key.
    existing: bool,
}

/// Submit a job. The answer comes when the job is on disk.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", request_body = NewJobBody,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "1 to 255 bytes. The same request with the same key makes one job, however \
                       often it is sent, as long as that job is kept.")),
    responses(
        (status = 201, description = "The job is taken", body = Submitted),
        (status = 200, description = "The job was there already", body = Submitted),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = "5XX", description = "Not now", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    JsonBody { value, raw }: JsonBody<NewJobBody>,
) -> Answered<Response> {
    let mode = value.unique.as_ref().map(|unique| unique.mode).unwrap_or_default();
    let mut job = value.into_new_job()?;
    let once = match headers.get(IDEMPOTENCY_KEY) {
        None => None,
        Some(key) => {
            keys::check("Idempotency-Key", key.as_bytes())?;
            let once = keys::once(key.as_bytes(), &raw);
            // First, so that it is the one a refusal names.
            job.submit.keys.splice(0..0, once.clone());
            Some(once)
        }
    };
    for _ in 0..SUBMIT_TRIES {
        match submit_once(&api, &job, once.as_ref(), mode).await? {
            Some((id, existing)) => return taken(&api, id, existing).await,
            None => continue,
        }
    }
    Err(Problem::new(Code::Busy, "the key changes hands too fast"))
}

/// Submits, or finds the job that is the answer instead. None: it went meanwhile.
async fn submit_once(
    api: &Api,
    job: &NewJob,
    once: Option<&[Key; 2]>,
    mode: UniqueMode,
) -> Answered<Option<(JobId, bool)>> {
    let refused = match api.desk().call(|engine| engine.submit(job.clone())).await {
        Ok((id, gate)) => {
            api.desk().durable(gate).await;
            return Ok(Some((id, false)));
        }
        Err(refused) => refused,
    };
    let Refused::Rejected(Rejection::KeyTaken(other), _) = refused else {
        return Err(refused.into());
    };
    let (image, gate) = api.engine().job(Which::Id(other))?;
    api.desk().durable(gate).await;
    let Some(image) = image else { return Ok(None) };
    match once.and_then(|once| keys::is_same(&image, once)) {
        Some(true) => Ok(Some((other, true))),
        Some(false) => {
            let detail = "the idempotency key came with another request before: use a new one";
            Err(Problem::new(Code::KeyReused, detail).with("job", other.0))
        }
        None if mode == UniqueMode::Existing => Ok(Some((other, true))),
        None => Err(refused.into()),
    }
}

async fn taken(api: &Api, id: JobId, existing: bool) -> Answered<Response> {
    // The API's own jobs have no UUID but the one every door computes. An existing one may.
    let body = Submitted {
        id: id.0,
        uuid: naming::uuid_of(id, None),
        handle: address::gearman_handle(&api.options().host, id),
        existing,
    };
    let status = if existing { StatusCode::OK } else { StatusCode::CREATED };
    let location = HeaderValue::try_from(format!("/api/v1/jobs/{id}"))
        .expect("a path of ASCII letters and digits");
    Ok((status, [(header::LOCATION, location)], Json(body)).into_response())
}

/// A job with its payload and its result.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 200, description = "The job; ETag is its revision", body = Job),
        (status = "4XX", description = "No such job", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn show(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Response> {
    told(&api, which).await
}

async fn told(api: &Api, which: Which) -> Answered<Response> {
    let (revision, job) = reading::job(api, which).await?;
    let tag = HeaderValue::try_from(etag(revision)).expect("digits in quotes");
    Ok(([(header::ETAG, tag)], Json(job)).into_response())
}

fn etag(revision: u32) -> String {
    format!("\"{revision}\"")
}

/// What may be changed while no worker has the job.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// Another queue.
    queue: Option<String>,
    /// Another queue, in base64.
    queue_base64: Option<String>,
    /// Another priority.
    priority: Option<i64>,
    /// Another time to run (RFC 3339), or `now`.
    run_at: Option<String>,
}

/// Change a job that no worker has. With `If-Match` only if it is still what was read.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}", tag = "jobs", request_body = EditBody,
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = 412, description = "It changed meanwhile", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn edit(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
    JsonBody { value, .. }: JsonBody<EditBody>,
) -> Answered<Response> {
    let queue = match (&value.queue, &value.queue_base64) {
        (None, None) => None,
        (name, base64) => Some(naming::queue(name.as_deref(), base64.as_deref())?),
    };
    let run_at_ms = value.run_at.map(|text| instant::read("run_at", &text)).transpose()?;
    let edit = Edit { queue, priority: value.priority, run_at_ms, ..Edit::default() };
    change(&api, which, &headers, edit).await
}

/// The revision a request insists on.
fn if_match(headers: &HeaderMap) -> Answered<Option<u32>> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    if value.as_bytes() == b"*" {
        return Ok(None);
    }
    let revision = value
        .to_str()
        .ok()
        .and_then(|text| text.strip_prefix('"')?.strip_suffix('"'))
        .and_then(|text| text.parse().ok());
    // A tag that never was one of ours matches nothing.
    revision.map(Some).ok_or_else(|| Rejection::Stale.into())
}

async fn change(api: &Api, which: Which, headers: &HeaderMap, edit: Edit) -> Answered<Response> {
    let revision = if_match(headers)?;
    let id = find(api, which).await?;
    let command = Command::Edit(Box::new(Edit { id, revision, ..edit }));
    api.desk().change(|engine| engine.execute(&command)).await?;
    told(api, Which::Id(id)).await
}

async fn find(api: &Api, which: Which) -> Answered<JobId> {
    let (found, gate) = api.engine().find(which);
    match found {
        Some((id, _)) => Ok(id),
        None => {
            api.desk().durable(gate).await;
            Err(no_job())
        }
    }
}

/// Delete a job, whatever its status. A worker that has it finds its lease gone.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "No such job", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(api): State<Api>,
    JobPath(which): JobPath,
) -> Answered<StatusCode> {
    api.desk().change(|engine| engine.delete(which)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End a job as dead, with code `cancelled`. Those who wait for it are told.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn cancel(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Response> {
    let id = find(&api, which).await?;
    api.desk().change(|engine| engine.execute(&Command::Cancel { id })).await?;
    told(&api, Which::Id(id)).await
}

/// A new payload for a retry.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// The new payload: any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The new payload in base64.
    payload_base64: Option<String>,
    /// What `payload_base64` is; `bytes` if not said.
    payload_type: Option<Kind>,
}

/// Let a done or dead job run again, with all its tries; with another payload if one is given.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "jobs",
    request_body = Option<RetryBody>,
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn retry(
    State(api): State<Api>,
    JobPath(which): JobPath,
    OptionalBody(body): OptionalBody<RetryBody>,
) -> Answered<Response> {
    let keeps = body.payload.is_none() && body.payload_base64.is_none();
    let base64 = body.payload_base64.as_deref();
    let payload = typed::read("payload", body.payload, base64, body.payload_type)?;
    let payload = (!keeps).then_some(payload);
    let id = find(&api, which).await?;
    let retried = api
        .desk()
        .call(|engine| match engine.retry(Which::Id(id), payload.clone()) {
            Ok(gate) => Ok(Ok(gate)),
            Err(RetryError::Refused(refused)) => Err(refused),
            Err(RetryError::Fetch(error)) => Ok(Err(error)),
        })
        .await?;
    api.desk().durable(retried?).await;
    told(&api, Which::Id(id)).await
}

/// Keep a waiting job aside until it is released.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/park", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn park(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
) -> Answered<Response> {
    change(&api, which, &headers, Edit { parked: Some(true), ..Edit::default() }).await
}

/// Let a parked job run when its time has come.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn release(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
) -> Answered<Response> {
    change(&api, which, &headers, Edit { parked: Some(false), ..Edit::default() }).await
}
