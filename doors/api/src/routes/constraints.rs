//! Constraints: limits on the jobs their matchers match, whichever door those came through.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_core::Rejection;
use spindle_core::job::Origin;
use spindle_engine::{BucketLine, ConstraintView, Engine, Expected, Refused};
use spindle_http::{Answered, Code, ConstraintBody, ConstraintShown, Pass, Problem};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, ConstraintPath, JsonBody};
use crate::instant;
use crate::naming;
use crate::numbers::{bad_cursor, bounded};
use crate::precondition::{Precondition, revision_of, tag_of};

const LIMIT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 512;
/// The most buckets shown with a constraint; all of them are in a list of their own.
const BUCKETS_TOLD: usize = 16;

/// A constraint with its first buckets.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConstraintInFull {
    #[serde(flatten)]
    constraint: ConstraintShown,
    /// Its first buckets; without `per` there is one at most.
    buckets: Vec<Bucket>,
    /// There are more: where their list goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets_cursor: Option<String>,
}

/// What is left of a constraint for one value.
#[derive(Serialize, ToSchema)]
pub(crate) struct Bucket {
    /// The value's hash, in hexadecimal; not there without `per`. `ffffffffffffffff` is shared by
    /// jobs whose values have no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hash: Option<String>,
    /// Jobs leased.
    running: u64,
    /// Unfinished jobs.
    jobs: u64,
    /// Starts that are left now, if there is a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// Whether one more job may start now.
    admits: bool,
    /// When a token comes, if one is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    frees_at: Option<String>,
}

impl Bucket {
    fn of(line: BucketLine) -> Bucket {
        Bucket {
            value_hash: (line.value != 0).then(|| format!("{:016x}", line.value)),
            running: line.running,
            jobs: line.jobs,
            tokens: line.tokens,
            admits: line.admits,
            frees_at: line.frees_ms.map(instant::shown),
        }
    }
}

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    cursor: Option<String>,
}

/// Which page of a list of buckets.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BucketPaging {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(pattern = "^[0-9a-fA-F]{16}$")]
    cursor: Option<String>,
}

fn checked(limit: Option<usize>) -> Answered<usize> {
    bounded("limit", limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)
}

/// A page of constraints.
#[derive(Serialize, ToSchema)]
pub(crate) struct Constraints {
    /// The constraints, by name.
    constraints: Vec<ConstraintInFull>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A page of buckets.
#[derive(Serialize, ToSchema)]
pub(crate) struct Buckets {
    /// The buckets, by the hash of their value.
    buckets: Vec<Bucket>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// How much of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HeldArgs {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
}

/// Who waits for a constraint.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldQueues {
    /// The queues, those with the most jobs first.
    queues: Vec<HeldQueue>,
    /// There may be more queues, or more jobs: not all were looked at, or not all are shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// A queue whose jobs wait for a constraint.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldQueue {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its name in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    queue_base64: Option<String>,
    /// Ready jobs that cannot start now.
    jobs: u64,
}

impl HeldQueue {
    fn of((queue, jobs): (Bytes, usize)) -> HeldQueue {
        let (queue, queue_base64) = naming::text_or_base64(&queue);
        HeldQueue { queue, queue_base64, jobs: jobs as u64 }
    }
}

/// List the constraints, with their first buckets.
#[utoipa::path(get, path = "/api/v1/constraints",
    operation_id = "list_constraints", tag = "constraints", params(Paging),
    responses(
        (status = 200, description = "A page of constraints", body = Constraints),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(
    State(api): State<Api>,
    Args(paging): Args<Paging>,
) -> Answered<Json<Constraints>> {
    let limit = checked(paging.limit)?;
    let views = api.engine().constraints().list(paging.cursor.as_deref(), limit + 1);
    let mut views = api.bridge().durable(views).await;
    let more = views.len() > limit;
    views.truncate(limit);
    let next_cursor = views.last().filter(|_| more).map(|view| view.name.clone());
    let constraints = views.iter().map(|view| in_full(&api, view)).collect();
    Ok(Json(Constraints { constraints, next_cursor }))
}

fn in_full(api: &Api, view: &ConstraintView) -> ConstraintInFull {
    let (lines, next) = api.engine().constraints().buckets(&view.name, 0, BUCKETS_TOLD);
    ConstraintInFull {
        constraint: ConstraintShown::of(view, api.engine().constraints().relabelling()),
        buckets: lines.into_iter().map(Bucket::of).collect(),
        buckets_cursor: next.map(cursor),
    }
}

fn cursor(value: u64) -> String {
    format!("{value:016x}")
}

/// A constraint.
#[utoipa::path(get, path = "/api/v1/constraints/{name}",
    operation_id = "show_constraint", tag = "constraints", params(ConstraintPath),
    responses(
        (status = 200, description = "The constraint; ETag is its revision",
            body = ConstraintInFull),
        (status = "4XX", description = "No such constraint")))]
pub(crate) async fn show(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
) -> Answered<Response> {
    shown(&api, &name, StatusCode::OK).await
}

async fn shown(api: &Api, name: &str, status: StatusCode) -> Answered<Response> {
    let view = api.engine().constraints().get(name);
    let view = api.bridge().durable(view).await.ok_or_else(no_constraint)?;
    Ok((status, tag_of(view.revision), Json(in_full(api, &view))).into_response())
}

fn no_constraint() -> Problem {
    Problem::new(Code::ConstraintNotFound, "there is no constraint of that name")
}

/// Put a constraint, new or changed. Jobs that come from now on fall under it; those that are there
/// are matched one after the other (`relabelled`, `remaining`). A `running_max` of 0 holds for them
/// at once. `notes` says which payloads it cannot read.
#[utoipa::path(put, path = "/api/v1/constraints/{name}",
    operation_id = "put_constraint", tag = "constraints", request_body = ConstraintBody,
    params(
        ConstraintPath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "Only if there is one with this entity tag; `*`: if there is one"),
        ("If-None-Match" = Option<String>, Header, format = "star",
            description = "`*`: only if there is none")),
    responses(
        (status = 200, description = "The constraint as it is now", body = ConstraintInFull),
        (status = 201, description = "It is new", body = ConstraintInFull),
        (status = 412, description = "It changed meanwhile"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn put(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    headers: HeaderMap,
    pass: Pass,
    JsonBody { value, .. }: JsonBody<ConstraintBody>,
) -> Answered<Response> {
    let scope = value.scope();
    let spec = value.into_spec()?;
    if !(1..=255).contains(&name.len()) {
        return Err(Problem::out_of_range("a constraint's name is 1 to 255 bytes"));
    }
    let expected = expected(&api, &name, &headers).await?;
    let mut audit = pass.audit(Origin::Api);
    let put =
        |engine: &Engine| engine.people(&mut audit).put_constraint(&name, &spec, scope, expected);
    let put = api.bridge().change(put).await;
    let put = put.map_err(refused)?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    shown(&api, &name, status).await
}

/// Remove a constraint. Jobs it holds back may start.
#[utoipa::path(delete, path = "/api/v1/constraints/{name}",
    operation_id = "remove_constraint", tag = "constraints",
    params(
        ConstraintPath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "Only if it has this entity tag")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 412, description = "It changed meanwhile"),
        (status = "4XX", description = "No such constraint")))]
pub(crate) async fn remove(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    headers: HeaderMap,
    pass: Pass,
) -> Answered<StatusCode> {
    let expected = expected(&api, &name, &headers).await?;
    let mut audit = pass.audit(Origin::Api);
    let remove = |engine: &Engine| engine.people(&mut audit).remove_constraint(&name, expected);
    let removed = api.bridge().change(remove).await;
    removed.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The revision that the request's preconditions demand.
async fn expected(api: &Api, name: &str, headers: &HeaderMap) -> Answered<Expected> {
    let revision = match Precondition::of(headers)? {
        Precondition::None => return Ok(Expected::Any),
        Precondition::Absent => return Ok(Expected::Nothing),
        Precondition::Never => None,
        Precondition::Exists => {
            let view = api.bridge().durable(api.engine().constraints().get(name)).await;
            view.map(|view| view.revision)
        }
        Precondition::Tag(tag) => revision_of(tag),
    };
    revision.map(Expected::Revision).ok_or_else(changed)
}

fn changed() -> Problem {
    let detail = "the constraint is another one by now: read it again and decide anew";
    Problem::new(Code::RevisionMismatch, detail)
}

fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Rejected(Rejection::Stale) => changed(),
        Refused::Rejected(Rejection::NoConstraint) => no_constraint(),
        other => other.into(),
    }
}

/// List a constraint's buckets. A list for people: the numbers may be a moment ahead of the disk.
#[utoipa::path(get, path = "/api/v1/constraints/{name}/buckets",
    operation_id = "list_buckets", tag = "constraints",
    params(ConstraintPath, BucketPaging),
    responses(
        (status = 200, description = "A page of buckets", body = Buckets),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn buckets(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    Args(paging): Args<BucketPaging>,
) -> Answered<Json<Buckets>> {
    let limit = checked(paging.limit)?;
    let from = paging.cursor.as_deref().map(read_cursor).transpose()?.unwrap_or(0);
    let view = api.engine().constraints().get(&name);
    api.bridge().durable(view).await.ok_or_else(no_constraint)?;
    let (lines, next) = api.engine().constraints().buckets(&name, from, limit);
    let buckets = lines.into_iter().map(Bucket::of).collect();
    Ok(Json(Buckets { buckets, next_cursor: next.map(cursor) }))
}

/// List the queues whose ready jobs a constraint holds back now, those with the most jobs first. A
/// list for people: the numbers may be a moment ahead of the disk.
#[utoipa::path(get, path = "/api/v1/constraints/{name}/held",
    operation_id = "list_held_queues", tag = "constraints",
    params(ConstraintPath, HeldArgs),
    responses(
        (status = 200, description = "Who waits", body = HeldQueues),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn held(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    Args(args): Args<HeldArgs>,
) -> Answered<Json<HeldQueues>> {
    let limit = checked(args.limit)?;
    let view = api.engine().constraints().get(&name);
    api.bridge().durable(view).await.ok_or_else(no_constraint)?;
    let found = api.engine().constraints().held_queues(&name, limit);
    let queues = found.queues.into_iter().map(HeldQueue::of).collect();
    Ok(Json(HeldQueues { queues, partial: found.is_partial }))
}

fn read_cursor(text: &str) -> Answered<u64> {
    let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    value.ok_or_else(bad_cursor)
}
