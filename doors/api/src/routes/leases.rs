//! What workers do: lease jobs, and report how they ended.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_access::Target;
use spindle_core::address;
use spindle_core::command::{Claim, Extend, Lease, Select};
use spindle_core::job::{Cause, Origin};
use spindle_engine::{Engine, FetchError, Gated, LeasedJob, Payload, Refused, WorkResult};
use utoipa::ToSchema;

use crate::api::Api;
use crate::ended::{LeaseRefusal, lease_ended};
use crate::extract::{JobPath, JsonBody, LeasePath, OptionalBody};
use crate::numbers::{bounded, wait_ms};
use crate::routes::jobs;
use crate::typed::{self, Kind, json_answer, present, to_json};
use crate::view::AfterShown;
use crate::{instant, naming};
use spindle_http::{Answered, Code, GuardedBody, LeaseGuard, Pass, Problem};
use spindle_http::{whole, whole_or_null, work_on_bytes};

/// Jobs that one request may lease, and leases that one request may report on.
pub(crate) const LEASES_MAX: usize = 100;
/// With `count`, no further job is leased once payloads have so many bytes together: the answer is
/// built in memory, and another request gets the rest.
const MANY_BYTES_MAX: usize = 1024 * 1024;
/// Queues one lease may name.
pub(crate) const QUEUES_MAX: usize = 1024;
/// A worker's name.
pub(crate) const WORKER_CHARS_MAX: usize = 256;
/// Texts that come with the end of an attempt.
pub(crate) const MESSAGE_CHARS_MAX: usize = 4096;
pub(crate) const CODE_CHARS_MAX: usize = 64;
/// A lease is extended by at most this much at once: a month.
pub(crate) const EXTEND_MS_MAX: u64 = 31 * 24 * 3_600_000;

/// A worker's request for a job, or for several.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseBody {
    /// The queues, at most 1,024; with `queues_base64`, at most 512 of each. The job of the highest
    /// priority is given, then the oldest.
    #[serde(default)]
    #[schema(example = json!(["mail"]), max_items = 1024, min_length = 1, max_length = 512)]
    queues: Vec<String>,
    /// Queues whose names are no UTF-8, in base64.
    #[serde(default)]
    #[schema(max_items = 1024, format = "queue-base64")]
    queues_base64: Vec<String>,
    /// How long to wait for a job, in seconds, at most 300; 0 does not wait.
    #[serde(default, deserialize_with = "whole")]
    #[schema(maximum = 300)]
    wait_s: u64,
    /// The worker's own limit: the lease lasts at most so long.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1)]
    timeout_ms: Option<u64>,
    /// The worker's name, for people, at most 256 characters.
    #[serde(default)]
    #[schema(max_length = 256)]
    worker: String,
    /// Up to so many jobs at once, at most 100: those that are ready, in one list. Without it one
    /// job is leased.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1, maximum = 100)]
    count: Option<u64>,
}

/// A job for a worker.
#[derive(Serialize, ToSchema)]
pub(crate) struct Leased {
    /// The job's number.
    id: u64,
    /// The UUID by which Workq's clients know it.
    uuid: String,
    /// The handle by which Gearman's clients know it.
    handle: String,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// Which attempt it is, from 1.
    attempt: u32,
    /// Who has this may end the lease: keep it to yourself.
    lease_token: String,
    /// How long the lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// When it runs out, by the server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
    /// What the payload is.
    payload_type: Kind,
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    /// The jobs that it waited for, as they stand now. Their results are at
    /// `/api/v1/leases/{token}/after/{id}`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<AfterShown>,
    /// The trace it was submitted in (W3C Trace Context), for the worker to go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "traceparent")]
    traceparent: Option<String>,
}

/// Jobs for a worker that asked for several.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeasedMany {
    /// One or more, the first to be worked on first.
    #[schema(min_items = 1, max_items = 100)]
    jobs: Vec<Leased>,
}

/// What a request for jobs is answered with.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only described: each is written as it is")]
pub(crate) enum LeaseAnswer {
    /// A job.
    One(Box<Leased>),
    /// Jobs, if the request has a `count`.
    Many(LeasedMany),
}

/// Lease a job, or several that are ready, or wait for one. A worker that hangs up while it waits
/// gets none.
#[utoipa::path(post, path = "/api/v1/lease",
    operation_id = "lease_job", tag = "leases", request_body = LeaseBody,
    responses(
        (status = 200, description = "A job; with `count`, jobs", body = LeaseAnswer),
        (status = 204, description = "Nothing to do"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn lease(
    State(api): State<Api>,
    mut pass: Pass,
    JsonBody { value, .. }: JsonBody<LeaseBody>,
) -> Answered<Response> {
    let in_list = value.count.is_some();
    let wanted = Wanted::new(value, &mut pass)?;
    let until_ms = api.engine().now_ms().saturating_add(wanted.wait_ms);
    loop {
        let left_ms = until_ms.saturating_sub(api.engine().now_ms());
        let leased = api.bridge().durable(wanted.take(&api, left_ms).await).await?;
        if leased.is_empty() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let shown = hand_out(&api, &mut pass, leased, move |jobs, bytes| match jobs.as_slice() {
            [] => None,
            [job, ..] if !in_list => Some(to_json(job, bytes)),
            _ => Some(to_json(&LeasedMany { jobs }, bytes)),
        });
        if let (Some(text), guards) = shown.await? {
            return Ok(json_answer(Body::new(GuardedBody::new(text, guards))));
        }
    }
}

/// What a worker wants, checked.
pub(super) struct Wanted {
    lease: Lease,
    pub(super) wait_ms: u64,
    count: usize,
}

impl Wanted {
    /// # Errors
    ///
    /// The request is malformed, or its client may not have jobs of these queues.
    pub(super) fn new(body: LeaseBody, pass: &mut Pass) -> Answered<Wanted> {
        let wait_ms = wait_ms(body.wait_s)?;
        let count =
            body.count.map_or(Ok(1), |count| bounded("count", count, 1..=LEASES_MAX as u64))?;
        let lease = lease_of(body)?;
        pass.allows(Target::Queues(&mut lease.queues.iter().map(AsRef::as_ref)))?;
        Ok(Wanted { lease, wait_ms, count: count as usize })
    }

    /// Leases what is ready, or waits for the first job up to `wait_ms`.
    pub(super) async fn take(&self, api: &Api, wait_ms: u64) -> Gated<Result<Vec<Held>, Refused>> {
        api.bridge().lease_many(&self.lease, wait_ms, self.count, MANY_BYTES_MAX).await
    }
}

fn lease_of(body: LeaseBody) -> Answered<Lease> {
    let out_of_range = |detail: &str| Err(Problem::out_of_range(detail));
    let fits = match (body.queues.len(), body.queues_base64.len()) {
        (0, 0) => false,
        (one, 0) | (0, one) => one <= QUEUES_MAX,
        (one, other) => one.max(other) <= QUEUES_MAX / 2,
    };
    if !fits {
        return out_of_range("a lease names 1 to 1024 queues, in two lists up to 512 each");
    }
    if body.timeout_ms == Some(0) {
        return out_of_range("timeout_ms is at least 1");
    }
    if body.worker.chars().count() > WORKER_CHARS_MAX {
        return out_of_range("worker has at most 256 characters");
    }
    let plain = body.queues.iter().map(|name| naming::queue(Some(name), None));
    let coded = body.queues_base64.iter().map(|name| naming::queue(None, Some(name)));
    Ok(Lease {
        queues: plain.chain(coded).collect::<Answered<_>>()?,
        select: Select::ByPriority,
        holder: 0,
        bound: false,
        timeout_ms: body.timeout_ms,
        door: Origin::Api,
        worker: Bytes::from(body.worker),
        payload_bytes_max: u32::MAX,
    })
}

/// A job that is leased, and the guard that takes the lease back.
pub(super) type Held = (LeasedJob, LeaseGuard);

/// Writes the answer that hands jobs out; `write` gets the jobs whose payload is there, and about
/// how many bytes they are. The answer comes with the guard that undoes their leases unless it is
/// sent.
pub(super) async fn hand_out<T: Send + 'static>(
    api: &Api,
    pass: &mut Pass,
    leased: Vec<Held>,
    write: impl FnOnce(Vec<Leased>, usize) -> T + Send + 'static,
) -> Answered<(T, Vec<LeaseGuard>)> {
    // The client may have waited for a while; if it may not have one of the jobs any more, the
    // leases are given up.
    for (job, _) in &leased {
        pass.allows(Target::Queue(&job.queue))?;
    }
    let bytes = leased.iter().map(|(job, _)| job.payload.len as usize).sum();
    let reader = api.clone();
    let work = move || {
        let (jobs, guards, bytes) = with_payloads(&reader, leased)?;
        Ok((write(jobs, bytes), guards))
    };
    work_on_bytes(bytes, work).await
}

/// The jobs whose payload can be given out, the guards that undo their leases, and the bytes of the
/// payloads.
fn with_payloads(
    api: &Api,
    leased: Vec<Held>,
) -> Result<(Vec<Leased>, Vec<LeaseGuard>, usize), FetchError> {
    let _turn = api.bridge().turn();
    let (mut jobs, mut guards, mut bytes) = (vec![], vec![], 0);
    for (job, guard) in leased {
        match api.engine().leases().payload(&job) {
            Ok(Some(payload)) => {
                jobs.push(shown(api, &job, &payload));
                guards.push(guard);
                bytes += payload.len();
            }
            none => {
                // The engine has ended this lease. Undoing it again could hit a lease that another
                // worker has by now.
                guard.done();
                none?;
            }
        }
    }
    Ok((jobs, guards, bytes))
}

fn shown(api: &Api, job: &LeasedJob, payload: &[u8]) -> Leased {
    let kind = Kind::of(job.payload.kind);
    let (queue, queue_base64) = naming::text_or_base64(&job.queue);
    let (payload, payload_base64) = typed::shown(payload, kind);
    let deadline_ms = job.length_ms.map(|length| api.engine().now_ms().saturating_add(length));
    Leased {
        id: job.id.0,
        uuid: naming::uuid_of(job.id, job.uuid),
        handle: address::gearman_handle(&api.options().host, job.id),
        queue,
        queue_base64,
        attempt: job.attempt,
        lease_token: naming::token(job.id, job.epoch, job.attempt),
        lease_ms: job.length_ms,
        deadline_at: deadline_ms.map(instant::shown),
        payload_type: kind,
        payload,
        payload_base64,
        after: job.after.iter().cloned().map(AfterShown::from).collect(),
        traceparent: job.trace.map(|trace| trace.to_string()),
    }
}

/// More time.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendBody {
    /// The lease lasts so long from now.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 2_678_400_000_u32)]
    ttr_ms: u64,
}

/// When a lease runs out now.
#[derive(Serialize, ToSchema)]
pub(crate) struct Extended {
    /// So long from now.
    lease_ms: u64,
    /// The same, by the server's clock.
    deadline_at: String,
}

/// Let a lease last longer: a heartbeat.
#[utoipa::path(post, path = "/api/v1/leases/{token}/extend",
    operation_id = "extend_lease", tag = "leases", request_body = ExtendBody, params(LeasePath),
    responses(
        (status = 200, description = "It lasts longer", body = Extended),
        LeaseRefusal))]
pub(crate) async fn extend(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
    JsonBody { value, .. }: JsonBody<ExtendBody>,
) -> Answered<Json<Extended>> {
    let ttr_ms = checked_ttr_ms(&value)?;
    let extend = |engine: &Engine| engine.leases().extend(Extend { claim, ttr_ms });
    extended(&api, claim, ttr_ms, extend).await
}

pub(super) fn checked_ttr_ms(body: &ExtendBody) -> Answered<u64> {
    bounded("ttr_ms", body.ttr_ms, 1..=EXTEND_MS_MAX)
}

async fn extended(
    api: &Api,
    claim: Claim,
    ttr_ms: u64,
    extend: impl FnOnce(&Engine) -> Gated<Result<(), Refused>>,
) -> Answered<Json<Extended>> {
    if let Err(refused) = api.bridge().change(extend).await {
        return Err(lease_ended(api, claim, refused).await);
    }
    Ok(Json(Extended::now(api, ttr_ms)))
}

impl Extended {
    pub(super) fn now(api: &Api, ttr_ms: u64) -> Extended {
        let deadline_at = instant::shown(api.engine().now_ms().saturating_add(ttr_ms));
        Extended { lease_ms: ttr_ms, deadline_at }
    }
}

/// Give whoever has a job more time: for people, who have no token.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/extend",
    operation_id = "extend_job", tag = "jobs", request_body = ExtendBody, params(JobPath),
    responses(
        (status = 200, description = "The lease lasts longer", body = Extended),
        (status = "4XX", description = "No such job, or nobody has it")))]
pub(crate) async fn extend_for(
    State(api): State<Api>,
    JobPath(which): JobPath,
    pass: Pass,
    JsonBody { value, .. }: JsonBody<ExtendBody>,
) -> Answered<Json<Extended>> {
    let ttr_ms = checked_ttr_ms(&value)?;
    let id = jobs::find(&api, which).await?;
    let mut audit = pass.audit(Origin::Api);
    let extend = |engine: &Engine| engine.people(&mut audit).extend(id, ttr_ms);
    extended(&api, Claim::Unfinished { id }, ttr_ms, extend).await.map_err(|problem| match problem
        .code
    {
        Code::LeaseNotLive | Code::JobFinished => {
            Problem::new(Code::LeaseNotLive, "no worker has the job")
        }
        _ => problem,
    })
}

/// The end of an attempt. Everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteBody {
    /// The result: any JSON value, kept as written.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The result in base64.
    #[schema(format = "base64")]
    result_base64: Option<String>,
    /// What `result_base64` is; `bytes` by default. `json` is taken if it is JSON.
    result_type: Option<Kind>,
}

/// The job is done.
#[utoipa::path(post, path = "/api/v1/leases/{token}/complete",
    operation_id = "complete_lease", tag = "leases", request_body = Option<CompleteBody>,
    params(LeasePath),
    responses(
        (status = 204, description = "The job is done, and that is on disk"),
        LeaseRefusal))]
pub(crate) async fn complete(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
    OptionalBody(body): OptionalBody<CompleteBody>,
) -> Answered<StatusCode> {
    finish(&api, claim, body.read().await?).await
}

impl CompleteBody {
    /// The end it tells of.
    pub(super) async fn read(self) -> Answered<WorkResult> {
        let given = (self.result, self.result_base64, self.result_type);
        with_result(WorkResult { success: true, ..WorkResult::default() }, given).await
    }
}

/// How an attempt failed. Everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailBody {
    /// Whether the job may be tried again, as far as it has tries left.
    #[serde(default = "yes")]
    retry: bool,
    /// For people, at most 4096 characters.
    #[serde(default)]
    #[schema(max_length = 4096)]
    message: String,
    /// The error, at most 4096 characters.
    #[serde(default)]
    #[schema(max_length = 4096)]
    error: String,
    /// A code for programs, at most 64 characters.
    #[serde(default)]
    #[schema(max_length = 64)]
    code: String,
    /// What the attempt gave all the same: any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
    /// The same in base64.
    #[schema(format = "base64")]
    result_base64: Option<String>,
    /// What `result_base64` is; `bytes` by default. `json` is taken if it is JSON.
    result_type: Option<Kind>,
}

fn yes() -> bool {
    true
}

/// The attempt failed. The job is tried again, or dead when it has no tries left.
#[utoipa::path(post, path = "/api/v1/leases/{token}/fail",
    operation_id = "fail_lease", tag = "leases", request_body = Option<FailBody>,
    params(LeasePath),
    responses(
        (status = 204, description = "The failure is on disk"),
        LeaseRefusal))]
pub(crate) async fn fail(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
    OptionalBody(body): OptionalBody<FailBody>,
) -> Answered<StatusCode> {
    finish(&api, claim, body.read().await?).await
}

impl FailBody {
    /// The end it tells of.
    pub(super) async fn read(self) -> Answered<WorkResult> {
        let texts = [
            ("message", &self.message, MESSAGE_CHARS_MAX),
            ("error", &self.error, MESSAGE_CHARS_MAX),
            ("code", &self.code, CODE_CHARS_MAX),
        ];
        let too_long = texts.iter().find(|(_, text, max)| text.chars().count() > *max);
        if let Some((name, _, max)) = too_long {
            return Err(Problem::out_of_range(format!("{name} has at most {max} characters")));
        }
        let result = WorkResult {
            retry: self.retry,
            message: Bytes::from(self.message),
            error: Bytes::from(self.error),
            code: Bytes::from(self.code),
            ..WorkResult::default()
        };
        with_result(result, (self.result, self.result_base64, self.result_type)).await
    }
}

/// The fields of a body that carry a result.
type Given = (Option<Box<RawValue>>, Option<String>, Option<Kind>);

async fn with_result(result: WorkResult, (json, base64, kind): Given) -> Answered<WorkResult> {
    let (bytes, kind) = typed::read_any("result", json, base64, kind).await?;
    Ok(WorkResult { result: Payload::new(bytes, kind), ..result })
}

/// Ends an attempt, as a success or a failure.
async fn finish(api: &Api, claim: Claim, result: WorkResult) -> Answered<StatusCode> {
    let bytes = result.result.len();
    let finish = |engine: &Engine| engine.leases().finish(claim, result);
    let finished = api.bridge().change_with(bytes, finish).await;
    match finished {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(refused) => Err(lease_ended(api, claim, refused).await),
    }
}

/// Give a job back untried. The attempt counts all the same.
#[utoipa::path(post, path = "/api/v1/leases/{token}/release",
    operation_id = "release_lease", tag = "leases", params(LeasePath),
    responses(
        (status = 204, description = "Others may have it"),
        LeaseRefusal))]
pub(crate) async fn release(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
) -> Answered<StatusCode> {
    match api.bridge().change(|engine| engine.leases().release(claim, Cause::Released)).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(refused) => Err(lease_ended(&api, claim, refused).await),
    }
}
