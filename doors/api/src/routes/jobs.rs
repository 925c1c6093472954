//! Reading and changing one job.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use spindle_access::Target;
use spindle_core::command::Edit;
use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Engine, JobRef, Payload};
use utoipa::ToSchema;

use crate::api::Api;
use crate::deletion::{Deletion, UndoAsked};
use crate::extract::{Args, JobPath, JsonBody, OptionalBody};
use crate::precondition::{if_match, revision_of, tag_of};
use crate::reading::{self, ShowAsked};
use crate::typed::{self, Kind, json_answer, present};
use crate::view::Job;
use crate::{instant, naming};
use spindle_http::{Answered, Pass, no_job, whole_or_null};

/// A job with its payload and its result.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", operation_id = "show_job", tag = "jobs",
    params(JobPath, ShowAsked),
    responses(
        (status = 200, description = "The job; ETag is its revision", body = Job),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn show(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<ShowAsked>,
    mut pass: Pass,
) -> Answered<Response> {
    answer_within(&api, which, asked.bytes_max()?, &mut pass).await
}

pub(super) async fn answer(api: &Api, which: JobRef, pass: &mut Pass) -> Answered<Response> {
    answer_within(api, which, u32::MAX, pass).await
}

async fn answer_within(
    api: &Api,
    which: JobRef,
    bytes_max: u32,
    pass: &mut Pass,
) -> Answered<Response> {
    let (revision, job) = reading::job(api, which, bytes_max, pass).await?;
    Ok((tag_of(revision), json_answer(job)).into_response())
}

/// What may be changed while no worker has the job.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// Another queue.
    #[schema(min_length = 1, max_length = 512)]
    pub queue: Option<String>,
    /// Another queue, in base64.
    #[schema(format = "queue-base64")]
    pub queue_base64: Option<String>,
    /// Another priority.
    #[serde(default, deserialize_with = "whole_or_null")]
    pub priority: Option<i64>,
    /// Another time to run (RFC 3339), or `now`.
    #[schema(format = "time-or-now")]
    pub run_at: Option<String>,
}

impl EditBody {
    pub fn read(&self) -> Answered<Edit> {
        let queue = match (&self.queue, &self.queue_base64) {
            (None, None) => None,
            (name, base64) => Some(naming::queue(name.as_deref(), base64.as_deref())?),
        };
        let run_at_ms = self.run_at.as_deref().map(|text| instant::read("run_at", text));
        let run_at_ms = run_at_ms.transpose()?;
        Ok(Edit { queue, priority: self.priority, run_at_ms, ..Edit::default() })
    }
}

/// Change a job that no worker has. With `If-Match` only if it is still what was read.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}",
    operation_id = "edit_job", tag = "jobs", request_body = EditBody,
    params(JobPath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = 412, description = "It changed meanwhile"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn edit(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
    mut pass: Pass,
    JsonBody { value, .. }: JsonBody<EditBody>,
) -> Answered<Response> {
    let edit = value.read()?;
    if let Some(queue) = &edit.queue {
        pass.allows(Target::Queue(queue))?;
    }
    change(&api, which, &headers, pass, edit).await
}

/// The revision that a request's `If-Match` demands.
fn revision_wanted(headers: &HeaderMap) -> Answered<Option<u32>> {
    let Some(tag) = if_match(headers)?.filter(|tag| *tag != "*") else { return Ok(None) };
    // A tag that never was one of ours matches nothing.
    revision_of(tag).map(Some).ok_or_else(|| Rejection::Stale.into())
}

async fn change(
    api: &Api,
    which: JobRef,
    headers: &HeaderMap,
    mut pass: Pass,
    edit: Edit,
) -> Answered<Response> {
    let revision = revision_wanted(headers)?;
    let id = find(api, which).await?;
    let edit = Edit { id, revision, ..edit };
    let mut audit = pass.audit(Origin::Api);
    api.bridge().change(|engine| engine.people(&mut audit).edit(&edit)).await?;
    answer(api, JobRef::Id(id), &mut pass).await
}

pub(super) async fn find(api: &Api, which: JobRef) -> Answered<JobId> {
    let found = api.engine().jobs().find(which);
    let found = api.bridge().durable(found).await;
    found.map(|(id, _)| id).ok_or_else(no_job)
}

/// Delete a job, whatever its status. A worker that has it finds its lease gone.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", operation_id = "delete_job", tag = "jobs",
    params(JobPath, UndoAsked),
    responses(
        (status = 200, description = "It is deleted, and that can be undone", body = Deletion),
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn delete(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<UndoAsked>,
    pass: Pass,
) -> Answered<Response> {
    let undo_ms = asked.undo_ms()?;
    let mut audit = pass.audit(Origin::Api);
    let delete = |engine: &Engine| engine.people(&mut audit).delete_for(which, undo_ms);
    Ok(match api.bridge().change(delete).await? {
        Some(deletion) => Json(Deletion::from(deletion)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Undo a job's deletion while that is possible. It is as it was before; one that a worker had is
/// ready, or dead if it has no attempt left.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/undo", operation_id = "undo_delete", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn undo(
    State(api): State<Api>,
    JobPath(which): JobPath,
    mut pass: Pass,
) -> Answered<Response> {
    let id = find(&api, which).await?;
    let mut audit = pass.audit(Origin::Api);
    api.bridge().change(|engine| engine.people(&mut audit).undo(id)).await?;
    answer(&api, JobRef::Id(id), &mut pass).await
}

/// End a job as dead, with code `cancelled`. Clients that wait for it get their answer.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    JobPath(which): JobPath,
    mut pass: Pass,
) -> Answered<Response> {
    let id = find(&api, which).await?;
    let mut audit = pass.audit(Origin::Api);
    api.bridge().change(|engine| engine.people(&mut audit).cancel(id)).await?;
    answer(&api, JobRef::Id(id), &mut pass).await
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
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    /// What `payload_base64` is; `bytes` by default. `json` is taken if it is JSON.
    payload_type: Option<Kind>,
}

/// Let a done or dead job run again, with all its tries; with another payload if one is given.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs",
    request_body = Option<RetryBody>, params(JobPath),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn retry(
    State(api): State<Api>,
    JobPath(which): JobPath,
    mut pass: Pass,
    OptionalBody(body): OptionalBody<RetryBody>,
) -> Answered<Response> {
    let keeps = body.payload.is_none() && body.payload_base64.is_none();
    let RetryBody { payload, payload_base64, payload_type } = body;
    let payload = typed::read_any("payload", payload, payload_base64, payload_type).await?;
    let payload = (!keeps).then(|| Payload::new(payload.0, payload.1));
    let id = find(&api, which).await?;
    api.bridge().room(0).await?;
    let mut audit = pass.audit(Origin::Api);
    let retried = {
        let _turn = api.bridge().turn();
        api.engine().people(&mut audit).retry(JobRef::Id(id), payload)
    };
    api.bridge().durable(retried).await?;
    answer(&api, JobRef::Id(id), &mut pass).await
}

/// Keep a waiting job aside until it is released.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/park", operation_id = "park_job", tag = "jobs",
    params(JobPath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn park(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
    pass: Pass,
) -> Answered<Response> {
    change(&api, which, &headers, pass, Edit { parked: Some(true), ..Edit::default() }).await
}

/// Let a parked job run when its time has come.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", operation_id = "release_job", tag = "jobs",
    params(JobPath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "The ETag of the job as it was read")),
    responses(
        (status = 200, description = "The job as it is now", body = Job),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn release(
    State(api): State<Api>,
    JobPath(which): JobPath,
    headers: HeaderMap,
    pass: Pass,
) -> Answered<Response> {
    change(&api, which, &headers, pass, Edit { parked: Some(false), ..Edit::default() }).await
}
