//! Constraints: limits on the jobs their matchers match, whichever door those came through.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use spindle_core::{Rejection, State as Core, Status};
use spindle_engine::{BucketLine, ConstraintView, Expected, HeldBack, Refused, held_back};
use spindle_http::{Answered, Code, ConstraintBody, ConstraintShown, Problem, ProblemBody};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, ConstraintPath, JsonBody};
use crate::instant;
use crate::precondition::{if_match, if_none_match};

const LIMIT: usize = 100;
const LIMIT_MAX: usize = 512;
/// Buckets told with a constraint: the others have a list of their own.
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

/// A constraint that keeps a job from starting now.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldBy {
    /// Its name.
    pub constraint: String,
    /// So many of its jobs run, and no more may: it frees when one of them ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u64>,
    /// It lets none of its jobs start, and whether this one is among them is still to be found out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmatched: bool,
    /// When it lets one start by time alone, as far as its rate goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees_at: Option<String>,
}

impl HeldBy {
    fn of(held: HeldBack) -> HeldBy {
        let HeldBack { constraint, running_max, frees_ms, unmatched } = held;
        HeldBy { constraint, running_max, unmatched, frees_at: frees_ms.map(instant::shown) }
    }

    /// What holds a job back that might start.
    pub fn all(state: &Core, image: &spindle_core::JobImage, now_ms: u64) -> Vec<HeldBy> {
        let waits = matches!(image.status(), Status::Ready | Status::Scheduled | Status::Parked);
        if !waits {
            return Vec::new();
        }
        held_back(state, image, now_ms).into_iter().map(HeldBy::of).collect()
    }
}

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most so many, 1 to 512; 100 if not said.
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    cursor: Option<String>,
}

impl Paging {
    fn limit(&self) -> Answered<usize> {
        let limit = self.limit.unwrap_or(LIMIT);
        if (1..=LIMIT_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Problem::new(Code::OutOfRange, "limit is 1 to 512"))
    }
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

/// List the constraints, with their first buckets.
#[utoipa::path(get, path = "/api/v1/constraints",
    operation_id = "list_constraints", tag = "constraints", params(Paging),
    responses(
        (status = 200, description = "A page of constraints", body = Constraints),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(api): State<Api>,
    Args(paging): Args<Paging>,
) -> Answered<Json<Constraints>> {
    let limit = paging.limit()?;
    let (mut views, gate) = api.engine().constraints(paging.cursor.as_deref(), limit + 1);
    api.desk().durable(gate).await;
    let more = views.len() > limit;
    views.truncate(limit);
    let next_cursor = views.last().filter(|_| more).map(|view| view.name.clone());
    let constraints = views.iter().map(|view| in_full(&api, view)).collect();
    Ok(Json(Constraints { constraints, next_cursor }))
}

fn in_full(api: &Api, view: &ConstraintView) -> ConstraintInFull {
    let (lines, next) = api.engine().buckets(&view.name, 0, BUCKETS_TOLD);
    ConstraintInFull {
        constraint: ConstraintShown::of(view, api.engine().relabelling()),
        buckets: lines.into_iter().map(Bucket::of).collect(),
        buckets_cursor: next.map(cursor),
    }
}

fn cursor(value: u64) -> String {
    format!("{value:016x}")
}

/// A constraint.
#[utoipa::path(get, path = "/api/v1/constraints/{name}",
    operation_id = "show_constraint", tag = "constraints",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "The constraint; ETag is its revision",
            body = ConstraintInFull),
        (status = "4XX", description = "No such constraint", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
) -> Answered<Response> {
    shown(&api, &name, StatusCode::OK).await
}

async fn shown(api: &Api, name: &str, status: StatusCode) -> Answered<Response> {
    let (view, gate) = api.engine().constraint(name);
    api.desk().durable(gate).await;
    let view = view.ok_or_else(no_constraint)?;
    let tag = format!("\"{}\"", view.revision);
    let tag = HeaderValue::try_from(tag).expect("digits in quotes");
    Ok((status, [(header::ETAG, tag)], Json(in_full(api, &view))).into_response())
}

fn no_constraint() -> Problem {
    Problem::new(Code::ConstraintNotFound, "there is no constraint of that name")
}

/// Put a constraint, new or changed. Jobs that come from now on fall under it; those that are there
/// are matched one after the other (`relabelled`, `remaining`). A `running_max` of 0 holds for them
/// at once. `notes` says which payloads it cannot read.
#[utoipa::path(put, path = "/api/v1/constraints/{name}",
    operation_id = "put_constraint", tag = "constraints",
    request_body = ConstraintBody,
    params(
        ("name" = String, Path, description = "Its name, 1 to 255 bytes, percent-encoded"),
        ("If-Match" = Option<String>, Header,
            description = "Only if there is one with this entity tag; `*`: if there is one"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none")),
    responses(
        (status = 200, description = "The constraint as it is now", body = ConstraintInFull),
        (status = 201, description = "It is new", body = ConstraintInFull),
        (status = 412, description = "It changed meanwhile", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn put(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    headers: HeaderMap,
    JsonBody { value, .. }: JsonBody<ConstraintBody>,
) -> Answered<Response> {
    let spec = value.into_spec()?;
    if !(1..=255).contains(&name.len()) {
        return Err(Problem::new(Code::OutOfRange, "a constraint's name is 1 to 255 bytes"));
    }
    let expected = expected(&api, &name, &headers)?;
    let put = api.desk().call(|engine| engine.put_constraint(&name, &spec, expected)).await;
    let put = put.map_err(refused)?;
    api.desk().durable(put.gate).await;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    shown(&api, &name, status).await
}

/// Remove a constraint. Jobs it holds back may start.
#[utoipa::path(delete, path = "/api/v1/constraints/{name}",
    operation_id = "remove_constraint", tag = "constraints",
    params(
        ("name" = String, Path, description = "Its name, percent-encoded"),
        ("If-Match" = Option<String>, Header,
            description = "Only if it has this entity tag")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 412, description = "It changed meanwhile", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = "4XX", description = "No such constraint", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    headers: HeaderMap,
) -> Answered<StatusCode> {
    let expected = expected(&api, &name, &headers)?;
    let removed = api.desk().change(|engine| engine.remove_constraint(&name, expected)).await;
    removed.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the request says must be there.
fn expected(api: &Api, name: &str, headers: &HeaderMap) -> Answered<Expected> {
    match (if_match(headers)?, if_none_match(headers)?) {
        (None, false) => Ok(Expected::Any),
        (None, true) => Ok(Expected::Nothing),
        // There cannot be one, and none.
        (Some(_), true) => Err(changed()),
        (Some("*"), false) => {
            let there = api.engine().constraint(name).0.map(|view| view.revision);
            there.map(Expected::Revision).ok_or_else(changed)
        }
        (Some(tag), false) => {
            let digits = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let revision = digits.and_then(|text| text.parse().ok());
            // A tag that never was one of ours matches nothing.
            revision.map(Expected::Revision).ok_or_else(changed)
        }
    }
}

fn changed() -> Problem {
    let detail = "the constraint is another one by now: read it again and decide anew";
    Problem::new(Code::RevisionMismatch, detail)
}

fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Rejected(Rejection::Stale, _) => changed(),
        Refused::Rejected(Rejection::NoConstraint, _) => no_constraint(),
        other => other.into(),
    }
}

/// List a constraint's buckets. A list for people: the numbers may be a moment ahead of the disk.
#[utoipa::path(get, path = "/api/v1/constraints/{name}/buckets",
    operation_id = "list_buckets", tag = "constraints",
    params(("name" = String, Path, description = "Its name, percent-encoded"), Paging),
    responses(
        (status = 200, description = "A page of buckets", body = Buckets),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn buckets(
    State(api): State<Api>,
    ConstraintPath(name): ConstraintPath,
    Args(paging): Args<Paging>,
) -> Answered<Json<Buckets>> {
    let limit = paging.limit()?;
    let from = paging.cursor.as_deref().map(read_cursor).transpose()?.unwrap_or(0);
    let (view, gate) = api.engine().constraint(&name);
    api.desk().durable(gate).await;
    view.ok_or_else(no_constraint)?;
    let (lines, next) = api.engine().buckets(&name, from, limit);
    let buckets = lines.into_iter().map(Bucket::of).collect();
    Ok(Json(Buckets { buckets, next_cursor: next.map(cursor) }))
}

fn read_cursor(text: &str) -> Answered<u64> {
    let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = if hex { u64::from_str_radix(text, 16).ok() } else { None };
    value.ok_or_else(|| {
        Problem::new(Code::OutOfRange, "cursor is the next_cursor of the page before")
    })
}
