//! Batches: jobs that belong together.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_access::{Denied, Target};
use spindle_core::batch::Batch;
use spindle_core::command::OpenBatch;
use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Audit, Engine, Gated, Refused};
use spindle_http::{Answered, Code, Pass, Problem, slice_turn, whole_or_null};
use utoipa::ToSchema;

use crate::api::Api;
use crate::batch::BatchShown;
use crate::extract::{Args, BatchPath, JsonBody};
use crate::naming;
use crate::numbers::{bounded, cursor_number, wait_ms};

/// How long a batch is kept once it has ended, if its opening does not say: a day.
const KEEP_MS: u64 = 24 * 60 * 60 * 1000;
const LIMIT: usize = 100;
/// Batches in one page of a list.
pub(crate) const LIMIT_MAX: usize = 512;
/// Jobs cancelled between two looks at who else waits.
const STRETCH_JOBS: usize = 128;
/// After this long a request that cancels answers with what it has done.
const TIME_MAX: Duration = Duration::from_secs(2);

/// A batch to open.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBatch {
    /// The queue that says who may see and change the batch, 1 to 512 bytes. Its jobs may be of any
    /// queue.
    #[schema(example = "mail", min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// That queue in base64, for a name that is no UTF-8.
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// A name for people, at most 256 bytes.
    #[serde(default)]
    #[schema(max_length = 256)]
    name: String,
    /// A name that no other batch has, 1 to 256 bytes: the same opening again is answered with the
    /// batch that it opened, as long as that is kept.
    #[schema(min_length = 1, max_length = 256)]
    key: Option<String>,
    /// The number of the open batch that it belongs to.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1)]
    parent: Option<u64>,
    /// How long it is kept once it has ended; by default a day.
    #[serde(default, deserialize_with = "whole_or_null")]
    keep_ms: Option<u64>,
}

/// Which page of a list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BatchPaging {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(pattern = "^[0-9]{1,15}$")]
    cursor: Option<String>,
}

/// A page of batches.
#[derive(Serialize, ToSchema)]
pub(crate) struct Batches {
    /// The batches, the newest first.
    batches: Vec<BatchShown>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What the cancelling of a batch did.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchCancelled {
    /// How many jobs this request has cancelled.
    cancelled: usize,
    /// There are more: make the same request again.
    is_partial: bool,
    /// The batch as it is now; not there if it is not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<BatchShown>,
}

/// A batch; one in a queue that the token does not cover is answered as not found.
async fn found(api: &Api, pass: &mut Pass, id: JobId) -> Answered<Batch> {
    let batch = api.bridge().durable(api.engine().batches().get(id)).await;
    let batch = batch.ok_or(Rejection::NoBatch(id))?;
    match pass.allows(Target::Queue(&batch.queue)) {
        Ok(()) => Ok(batch),
        Err(Denied::Queue) => Err(Rejection::NoBatch(id).into()),
        Err(denied) => Err(denied.into()),
    }
}

/// Open a batch. Jobs are added by their field `batch` until it is sealed.
#[utoipa::path(post, path = "/api/v1/batches",
    operation_id = "open_batch", tag = "batches", request_body = NewBatch,
    responses(
        (status = 201, description = "It is open", body = BatchShown),
        (status = 200, description = "It was opened before, by this key", body = BatchShown),
        (status = "4XX", description = "Refused"),
        (status = "5XX", description = "Not now")))]
pub(crate) async fn open(
    State(api): State<Api>,
    mut pass: Pass,
    JsonBody { value, .. }: JsonBody<NewBatch>,
) -> Answered<Response> {
    let queue = naming::queue(value.queue.as_deref(), value.queue_base64.as_deref())?;
    pass.allows(Target::Queue(&queue))?;
    if value.key.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::out_of_range("key has 1 to 256 bytes"));
    }
    let parent = value.parent.map(JobId);
    if let Some(parent) = parent {
        found(&api, &mut pass, parent).await?;
    }
    let open = OpenBatch {
        id: JobId(0),
        queue,
        name: value.name,
        key: value.key.map(Bytes::from).unwrap_or_default(),
        parent,
        keep_ms: value.keep_ms.unwrap_or(KEEP_MS),
    };
    let wanted = open.clone();
    let opened = api.bridge().change(move |engine: &Engine| engine.batches().open(open.clone()));
    let (status, id) = match opened.await {
        Ok(id) => (StatusCode::CREATED, id),
        Err(Refused::Rejected(Rejection::KeyTaken(id))) => (StatusCode::OK, id),
        Err(refused) => return Err(refused.into()),
    };
    let batch = api.bridge().durable(api.engine().batches().get(id)).await;
    let batch = batch.ok_or(Rejection::NoBatch(id))?;
    // The client may open batches of this queue, but it may know nothing of another one.
    if batch.queue != wanted.queue {
        return Err(Problem::new(Code::KeyReused, "a batch of another queue has the key"));
    }
    if batch.parent != parent.map_or(0, |parent| parent.0) {
        let detail = format!("batch {id} has the key, and another parent");
        return Err(Problem::new(Code::KeyReused, detail));
    }
    let location = HeaderValue::try_from(format!("/api/v1/batches/{id}"))
        .expect("a path of ASCII letters and digits");
    let body = Json(BatchShown::of(batch));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// List batches, the newest first.
#[utoipa::path(get, path = "/api/v1/batches",
    operation_id = "list_batches", tag = "batches", params(BatchPaging),
    responses(
        (status = 200, description = "A page", body = Batches),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(
    State(api): State<Api>,
    Args(asked): Args<BatchPaging>,
) -> Answered<Json<Batches>> {
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let below = cursor_number(asked.cursor.as_deref())?.map(JobId);
    let page = api.engine().batches().list(below, limit + 1);
    let mut batches = api.bridge().durable(page).await;
    let is_partial = batches.len() > limit;
    batches.truncate(limit);
    let next_cursor = batches.last().filter(|_| is_partial).map(|last| last.id.to_string());
    Ok(Json(Batches { batches: batches.into_iter().map(BatchShown::of).collect(), next_cursor }))
}

/// A batch, and how its jobs stand. Its jobs are `GET /api/v1/jobs?batch=`.
#[utoipa::path(get, path = "/api/v1/batches/{id}",
    operation_id = "show_batch", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "The batch", body = BatchShown),
        (status = "4XX", description = "There is no such batch")))]
pub(crate) async fn show(
    State(api): State<Api>,
    BatchPath(id): BatchPath,
    mut pass: Pass,
) -> Answered<Json<BatchShown>> {
    Ok(Json(BatchShown::of(found(&api, &mut pass, id).await?)))
}

/// How long to wait.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndAsked {
    #[serde(default)]
    wait_s: u64,
}

/// Wait until a batch has ended. The answer is the batch as it was at its end, or as it is when the
/// wait is over: its `status` says which.
#[utoipa::path(get, path = "/api/v1/batches/{id}/wait",
    operation_id = "wait_for_batch", tag = "batches",
    params(BatchPath,
        ("wait_s" = Option<u64>, Query, maximum = 300,
            description = "At most this many seconds; 0 (the default) does not wait")),
    responses(
        (status = 200, description = "The batch", body = BatchShown),
        (status = "4XX", description = "There is no such batch")))]
pub(crate) async fn wait(
    State(api): State<Api>,
    BatchPath(id): BatchPath,
    Args(asked): Args<EndAsked>,
    mut pass: Pass,
) -> Answered<Json<BatchShown>> {
    let wait_ms = wait_ms(asked.wait_s)?;
    let mut batch = found(&api, &mut pass, id).await?;
    if wait_ms > 0 && batch.ended_ms.is_none() {
        batch = match api.bridge().batch_end(id, wait_ms).await? {
            Some(ended) => ended,
            None => found(&api, &mut pass, id).await?,
        };
        pass.allows(Target::Queue(&batch.queue))?;
    }
    Ok(Json(BatchShown::of(batch)))
}

/// Seal a batch: no job is added any more, and it ends when all of its jobs have. A batch is sealed
/// once.
#[utoipa::path(post, path = "/api/v1/batches/{id}/seal",
    operation_id = "seal_batch", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "The batch", body = BatchShown),
        (status = "4XX", description = "There is no such batch, or it is sealed already")))]
pub(crate) async fn seal(
    State(api): State<Api>,
    BatchPath(id): BatchPath,
    mut pass: Pass,
) -> Answered<Json<BatchShown>> {
    found(&api, &mut pass, id).await?;
    let sealed = api.bridge().change(|engine: &Engine| engine.batches().seal(id)).await?;
    Ok(Json(BatchShown::of(sealed)))
}

/// Cancel a batch: it is sealed, and its unfinished jobs are cancelled, those of batches in it too,
/// whatever their queues are. A request that would take more than about two seconds says that there
/// are more (`is_partial`): the same request goes on.
#[utoipa::path(post, path = "/api/v1/batches/{id}/cancel",
    operation_id = "cancel_batch", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "What was done, and that is on disk", body = BatchCancelled),
        (status = "4XX", description = "There is no such batch")))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    BatchPath(id): BatchPath,
    mut pass: Pass,
) -> Answered<Json<BatchCancelled>> {
    let batch = found(&api, &mut pass, id).await?;
    let (queue, detail) = (Some(batch.queue), format!("batch {id}"));
    let mut audit = Audit::of_many(pass.actor(Origin::Api), queue, &detail);
    let (mut cancelled, mut is_partial) = (0, false);
    let (mut left, started) = (vec![id], Instant::now());
    while let Some(batch) = left.pop() {
        let cancel = |engine: &Engine| engine.people(&mut audit).cancel_batch(batch);
        match api.bridge().change(cancel).await {
            Ok(()) => {}
            // A batch in this batch has ended and was removed meanwhile.
            Err(Refused::Rejected(Rejection::NoBatch(_))) if batch != id => continue,
            Err(refused) => return Err(refused.into()),
        }
        let mut from = Some(JobId(0));
        while let Some(at) = from {
            if started.elapsed() > TIME_MAX {
                is_partial = true;
                break;
            }
            let stretch = cancel_some(&api, &mut audit, batch, at).await?;
            cancelled += stretch.cancelled;
            left.extend(stretch.batches);
            from = stretch.next;
        }
    }
    let batch = api.bridge().durable(api.engine().batches().get(id)).await;
    Ok(Json(BatchCancelled { cancelled, is_partial, batch: batch.map(BatchShown::of) }))
}

/// Some members of a batch.
struct Stretch {
    cancelled: usize,
    batches: Vec<JobId>,
    next: Option<JobId>,
}

/// Cancels the unfinished ones of the next members of a batch.
async fn cancel_some(api: &Api, audit: &mut Audit, batch: JobId, from: JobId) -> Answered<Stretch> {
    api.bridge().room(0).await?;
    let slice = slice_turn().await;
    let turn = api.bridge().turn();
    let engine = api.engine();
    let (mut stretch, mut done) =
        (Stretch { cancelled: 0, batches: Vec::new(), next: None }, Gated::open(()));
    let members = done.absorb(engine.batches().members(batch, from, STRETCH_JOBS + 1));
    for (place, id) in members.into_iter().enumerate() {
        if place == STRETCH_JOBS || !engine.has_room() {
            stretch.next = Some(id);
            break;
        }
        match done.absorb(engine.people(audit).cancel(id)) {
            Ok(()) => stretch.cancelled += 1,
            Err(Refused::Rejected(Rejection::NotFound)) => stretch.batches.push(id),
            // It has ended, or is deleted.
            Err(Refused::Rejected(_)) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    drop((turn, slice));
    api.bridge().durable(done).await;
    Ok(stretch)
}
