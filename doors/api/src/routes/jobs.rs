//! Reading and changing one job.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use spindle_core::command::{Command, Edit};
use spindle_core::{JobId, Rejection};
use spindle_engine::{JobRef, RetryError};
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::{JobPath, JsonBody, OptionalBody};
use crate::precondition::if_match;
use crate::typed::{self, Kind, present};
use crate::view::Job;
use crate::{instant, naming, reading};
use spindle_http::{Answered, ProblemBody, no_job, whole_or_null};

/// A job with its payload and its result.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "show_job", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 200, description = "The job; ETag is its revision", body = Job),
        (status = "4XX", description = "No such job", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn show(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Response> {
    told(&api, which).await
}

pub(super) async fn told(api: &Api, which: JobRef) -> Answered<Response> {
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
    #[serde(default, deserialize_with = "whole_or_null")]
    priority: Option<i64>,
    /// Another time to run (RFC 3339), or `now`.
    run_at: Option<String>,
}

/// Change a job that no worker has. With `If-Match` only if it is still what was read.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}",
    operation_id = "edit_job", tag = "jobs", request_body = EditBody,
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
fn revision_wanted(headers: &HeaderMap) -> Answered<Option<u32>> {
    let Some(tag) = if_match(headers)?.filter(|tag| *tag != "*") else { return Ok(None) };
    let inside = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let revision = inside.and_then(|text| text.parse().ok());
    // A tag that never was one of ours matches nothing.
    revision.map(Some).ok_or_else(|| Rejection::Stale.into())
}

async fn change(api: &Api, which: JobRef, headers: &HeaderMap, edit: Edit) -> Answered<Response> {
    let revision = revision_wanted(headers)?;
    let id = find(api, which).await?;
    let command = Command::Edit(Box::new(Edit { id, revision, ..edit }));
    api.desk().change(|engine| engine.execute(&command)).await?;
    told(api, JobRef::Id(id)).await
}

pub(super) async fn find(api: &Api, which: JobRef) -> Answered<JobId> {
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
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", operation_id = "delete_job", tag = "jobs",
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
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(("id" = String, Path, description = "Its number, its UUID or its Gearman handle")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn cancel(State(api): State<Api>, JobPath(which): JobPath) -> Answered<Response> {
    let id = find(&api, which).await?;
    api.desk().change(|engine| engine.execute(&Command::Cancel { id })).await?;
    told(&api, JobRef::Id(id)).await
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
    /// What `payload_base64` is; `bytes` if not said. `json` is taken if it is JSON.
    payload_type: Option<Kind>,
}

/// Let a done or dead job run again, with all its tries; with another payload if one is given.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs",
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
        .call(|engine| match engine.retry(JobRef::Id(id), payload.clone()) {
            Ok(gate) => Ok(Ok(gate)),
            Err(RetryError::Refused(refused)) => Err(refused),
            Err(RetryError::Fetch(error)) => Ok(Err(error)),
        })
        .await?;
    api.desk().durable(retried?).await;
    told(&api, JobRef::Id(id)).await
}

/// Keep a waiting job aside until it is released.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/park", operation_id = "park_job", tag = "jobs",
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
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", operation_id = "release_job", tag = "jobs",
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
