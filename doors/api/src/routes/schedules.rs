//! Schedules: jobs that come by the clock.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use spindle_access::{Role, Target};
use spindle_core::job::Origin;
use spindle_core::schedule::{Progress, SCHEDULE_NAME_BYTES_MAX, Schedule};
use spindle_core::{JobId, Rejection};
use spindle_engine::{Audit, Engine, Expected, Refused, ScheduleNow, SchedulePage, Timing};
use spindle_http::{Answered, Code, Pass, Problem};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, JsonBody, SchedulePath};
use crate::numbers::bounded;
use crate::object::Object;
use crate::precondition::{Precondition, revision_of, tag_of};
use crate::schedule::{self, ScheduleBody, ScheduleShown};

const LIMIT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 512;
/// How many of the next times are shown by default.
const TIMES: usize = 10;
pub(crate) const TIMES_MAX: usize = 100;

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SchedulePaging {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    cursor: Option<String>,
    /// Only those whose newest time came to one of these, parted by commas: `submitted`, `missed`,
    /// `overlapped`, `pending`, `refused`.
    #[param(format = "schedule-outcomes")]
    outcome: Option<String>,
}

/// How much is shown.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Shown {
    /// How many times that lie ahead, 0 to 100; 10 by default.
    #[param(minimum = 0, maximum = 100)]
    times: Option<usize>,
}

/// Whether it is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DryRun {
    /// Only say what would come of it.
    #[serde(default)]
    dry_run: bool,
}

/// A page of schedules.
#[derive(Serialize, ToSchema)]
pub(crate) struct Schedules {
    /// The schedules, by name.
    schedules: Vec<ScheduleShown>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// All schedules that there are to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleSet {
    /// By name. Those that are not among them are removed.
    #[schema(value_type = BTreeMap<String, ScheduleBody>)]
    schedules: BTreeMap<String, Object<ScheduleBody>>,
}

/// What a set of schedules changed, by name.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Applied {
    /// New ones.
    created: Vec<String>,
    /// Other than before.
    changed: Vec<String>,
    /// Removed.
    removed: Vec<String>,
    /// As before.
    unchanged: usize,
}

/// A job that was submitted.
#[derive(Serialize, ToSchema)]
pub(crate) struct Run {
    /// Its number.
    job: u64,
}

/// List the schedules.
#[utoipa::path(get, path = "/api/v1/schedules",
    operation_id = "list_schedules", tag = "schedules", params(SchedulePaging),
    responses(
        (status = 200, description = "A page of schedules", body = Schedules),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(
    State(api): State<Api>,
    mut pass: Pass,
    Args(paging): Args<SchedulePaging>,
) -> Answered<Json<Schedules>> {
    let limit = bounded("limit", paging.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let outcomes = paging.outcome.as_deref().map(schedule::outcomes).transpose()?;
    let (mut views, mut after) = (Vec::new(), paging.cursor);
    let next_cursor = loop {
        let room = limit - views.len();
        let page = api.engine().schedules().list(after.as_deref(), room, outcomes.as_deref());
        let SchedulePage { schedules, next } = api.bridge().durable(page).await;
        views.extend(schedules);
        if next.is_none() || views.len() == limit {
            break next;
        }
        after = next;
        tokio::task::yield_now().await;
    };
    let schedules = views.into_iter().map(|view| shown(&api, &mut pass, view, 1)).collect();
    Ok(Json(Schedules { schedules, next_cursor }))
}

/// The payload is shown only to clients that may inspect the queue.
fn shown(api: &Api, pass: &mut Pass, view: ScheduleNow, times: usize) -> ScheduleShown {
    let queue = Target::Queue(&view.schedule.job.queue);
    let with_payload = pass.allows_as(Role::Inspect, queue).is_ok();
    ScheduleShown::of(view, api.engine().now_ms(), times, with_payload)
}

/// One schedule, if its jobs are in a queue of the caller's.
async fn found(api: &Api, pass: &mut Pass, name: &str) -> Answered<ScheduleNow> {
    let view = api.bridge().durable(api.engine().schedules().get(name)).await;
    let view = view.ok_or_else(no_schedule)?;
    let may = pass.allows(Target::Queue(&view.schedule.job.queue));
    may.map_err(|denied| if pass.is_limited() { no_schedule() } else { denied.into() })?;
    Ok(view)
}

fn no_schedule() -> Problem {
    Problem::new(Code::ScheduleNotFound, "there is no schedule of that name")
}

fn changed() -> Problem {
    let detail = "the schedule is another one by now: read it again and decide anew";
    Problem::new(Code::RevisionMismatch, detail)
}

fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Rejected(Rejection::Stale) => changed(),
        other => other.into(),
    }
}

/// A schedule, with the times that lie ahead.
#[utoipa::path(get, path = "/api/v1/schedules/{name}",
    operation_id = "show_schedule", tag = "schedules", params(SchedulePath, Shown),
    responses(
        (status = 200, description = "The schedule; ETag is its revision", body = ScheduleShown),
        (status = "4XX", description = "No such schedule")))]
pub(crate) async fn show(
    State(api): State<Api>,
    SchedulePath(name): SchedulePath,
    mut pass: Pass,
    Args(asked): Args<Shown>,
) -> Answered<Response> {
    let times = bounded("times", asked.times.unwrap_or(TIMES), 0..=TIMES_MAX)?;
    let view = found(&api, &mut pass, &name).await?;
    let tag = tag_of(view.progress.revision);
    Ok((tag, Json(shown(&api, &mut pass, view, times))).into_response())
}

/// The revision that the request's preconditions demand, given the current schedule if there is
/// one.
fn expected(headers: &HeaderMap, view: Option<&ScheduleNow>) -> Answered<Expected> {
    let revision = match Precondition::of(headers)? {
        Precondition::None => return Ok(Expected::Any),
        Precondition::Absent => return Ok(Expected::Nothing),
        Precondition::Never => None,
        Precondition::Exists => view.map(|view| view.progress.revision),
        Precondition::Tag(tag) => revision_of(tag),
    };
    revision.map(Expected::Revision).ok_or_else(changed)
}

/// Reads a body. A schedule that would never fire is refused, but one that ended and is the same as
/// before may stay.
fn read(
    api: &Api,
    name: &str,
    body: ScheduleBody,
    known: Option<&Schedule>,
) -> Answered<(Schedule, Timing)> {
    if !(1..=SCHEDULE_NAME_BYTES_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
        let detail = "a schedule's name is 1 to 100 bytes, without control characters";
        return Err(Problem::out_of_range(detail));
    }
    let now_ms = api.engine().now_ms();
    let schedule = body.into_schedule(name, now_ms)?;
    let of_name = |error: spindle_engine::TimingError| {
        Problem::out_of_range(format!("schedule {name}: {error}"))
    };
    let timing = Timing::of(&schedule).map_err(of_name)?;
    if known != Some(&schedule) {
        timing.first_after(now_ms).map_err(of_name)?;
    }
    Ok((schedule, timing))
}

/// Put a schedule, new or changed. One whose times stay the same keeps its next one. With `dry_run`
/// nothing is put, and the answer is the schedule as it would be.
#[utoipa::path(put, path = "/api/v1/schedules/{name}",
    operation_id = "put_schedule", tag = "schedules", request_body = ScheduleBody,
    params(
        SchedulePath, DryRun,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "Only if there is one with this entity tag; `*`: if there is one"),
        ("If-None-Match" = Option<String>, Header, format = "star",
            description = "`*`: only if there is none")),
    responses(
        (status = 200, description = "The schedule as it is now", body = ScheduleShown),
        (status = 201, description = "It is new", body = ScheduleShown),
        (status = 412, description = "It changed meanwhile"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn put(
    State(api): State<Api>,
    SchedulePath(name): SchedulePath,
    headers: HeaderMap,
    mut pass: Pass,
    Args(DryRun { dry_run }): Args<DryRun>,
    JsonBody { value, .. }: JsonBody<ScheduleBody>,
) -> Answered<Response> {
    let known = api.bridge().durable(api.engine().schedules().get(&name)).await;
    let (schedule, timing) = read(&api, &name, value, known.as_ref().map(|known| &known.schedule))?;
    pass.allows(Target::Queue(&schedule.job.queue))?;
    if let Some(known) = &known {
        pass.allows(Target::Queue(&known.schedule.job.queue))?;
    }
    let mut expected = expected(&headers, known.as_ref())?;
    if dry_run {
        let view = ScheduleNow { schedule, progress: Progress::default(), is_running: false };
        return Ok(Json(shown(&api, &mut pass, view, TIMES)).into_response());
    }
    // The schedule that access was checked for must be the one that is changed.
    if expected == Expected::Any && pass.is_limited() {
        let revision = known.as_ref().map(|known| known.progress.revision);
        expected = revision.map_or(Expected::Nothing, Expected::Revision);
    }
    let mut audit = pass.audit(Origin::Api);
    let put =
        |engine: &Engine| engine.people(&mut audit).put_schedule(&schedule, &timing, expected);
    let put = api.bridge().change(put).await.map_err(refused)?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    let view = found(&api, &mut pass, &name).await?;
    let tag = tag_of(view.progress.revision);
    Ok((status, tag, Json(shown(&api, &mut pass, view, TIMES))).into_response())
}

/// Remove a schedule. Its jobs stay.
#[utoipa::path(delete, path = "/api/v1/schedules/{name}",
    operation_id = "remove_schedule", tag = "schedules",
    params(
        SchedulePath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "Only if it has this entity tag")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 412, description = "It changed meanwhile"),
        (status = "4XX", description = "No such schedule")))]
pub(crate) async fn remove(
    State(api): State<Api>,
    SchedulePath(name): SchedulePath,
    headers: HeaderMap,
    mut pass: Pass,
) -> Answered<StatusCode> {
    let view = found(&api, &mut pass, &name).await?;
    let expected = exactly(&headers, &view)?;
    let mut audit = pass.audit(Origin::Api);
    let remove = |engine: &Engine| engine.people(&mut audit).remove_schedule(&name, expected);
    api.bridge().change(remove).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Demands the schedule that was looked at, and not one that took its place meanwhile.
fn exactly(headers: &HeaderMap, view: &ScheduleNow) -> Answered<Expected> {
    match expected(headers, Some(view))? {
        Expected::Any => Ok(Expected::Revision(view.progress.revision)),
        expected => Ok(expected),
    }
}

/// Pause a schedule: times that come until it is resumed are passed over.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/pause",
    operation_id = "pause_schedule", tag = "schedules", params(SchedulePath),
    responses(
        (status = 200, description = "The schedule as it is now", body = ScheduleShown),
        (status = "4XX", description = "No such schedule")))]
pub(crate) async fn pause(
    api: State<Api>,
    path: SchedulePath,
    headers: HeaderMap,
    pass: Pass,
) -> Answered<Json<ScheduleShown>> {
    set_paused(api, path, headers, pass, true).await
}

/// Resume a schedule: it goes on with its first time from now.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/resume",
    operation_id = "resume_schedule", tag = "schedules", params(SchedulePath),
    responses(
        (status = 200, description = "The schedule as it is now", body = ScheduleShown),
        (status = "4XX", description = "No such schedule")))]
pub(crate) async fn resume(
    api: State<Api>,
    path: SchedulePath,
    headers: HeaderMap,
    pass: Pass,
) -> Answered<Json<ScheduleShown>> {
    set_paused(api, path, headers, pass, false).await
}

async fn set_paused(
    State(api): State<Api>,
    SchedulePath(name): SchedulePath,
    headers: HeaderMap,
    mut pass: Pass,
    paused: bool,
) -> Answered<Json<ScheduleShown>> {
    let view = found(&api, &mut pass, &name).await?;
    let expected = exactly(&headers, &view)?;
    let schedule = Schedule { paused, ..view.schedule };
    let timing = Timing::of(&schedule).map_err(|error| Problem::out_of_range(error.to_string()))?;
    let mut audit = pass.audit(Origin::Api);
    let put =
        |engine: &Engine| engine.people(&mut audit).put_schedule(&schedule, &timing, expected);
    api.bridge().change(put).await.map_err(refused)?;
    let view = found(&api, &mut pass, &name).await?;
    Ok(Json(shown(&api, &mut pass, view, TIMES)))
}

/// Submit a schedule's job now, whatever its times are, and whether it is paused or its last job
/// runs.
#[utoipa::path(post, path = "/api/v1/schedules/{name}/run",
    operation_id = "run_schedule", tag = "schedules", params(SchedulePath),
    responses(
        (status = 201, description = "The job", body = Run),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn run(
    State(api): State<Api>,
    SchedulePath(name): SchedulePath,
    headers: HeaderMap,
    mut pass: Pass,
) -> Answered<(StatusCode, Json<Run>)> {
    let view = found(&api, &mut pass, &name).await?;
    let expected = exactly(&headers, &view)?;
    let mut audit = pass.audit(Origin::Api);
    let run = |engine: &Engine| engine.people(&mut audit).run_schedule(&view.schedule, expected);
    let JobId(job) = api.bridge().change(run).await.map_err(refused)?;
    Ok((StatusCode::CREATED, Json(Run { job })))
}

/// Put all schedules that there are to be, and remove the others. All of them are read first: when
/// one is refused, nothing changes. Schedules change one after the other; a request that breaks off
/// can be made again. With `dry_run` it only says what would change.
#[utoipa::path(put, path = "/api/v1/schedules",
    operation_id = "apply_schedules", tag = "schedules", request_body = ScheduleSet,
    params(DryRun),
    responses(
        (status = 200, description = "What changed", body = Applied),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn apply(
    State(api): State<Api>,
    pass: Pass,
    Args(DryRun { dry_run }): Args<DryRun>,
    JsonBody { value, .. }: JsonBody<ScheduleSet>,
) -> Answered<Json<Applied>> {
    let mut known = all(&api).await;
    let mut applied = Applied::default();
    let mut changes = Vec::new();
    for (name, Object(body)) in value.schedules {
        let before = known.remove(&name);
        let (schedule, timing) = read(&api, &name, body, before.as_ref())?;
        match &before {
            None => applied.created.push(name),
            Some(before) if *before != schedule => applied.changed.push(name),
            Some(_) => {
                applied.unchanged += 1;
                continue;
            }
        }
        changes.push((schedule, timing));
    }
    applied.removed = known.into_keys().collect();
    if dry_run {
        return Ok(Json(applied));
    }
    let mut audit = Audit::of_many(pass.actor(Origin::Api), None, "all schedules");
    for (schedule, timing) in &changes {
        let put = |engine: &Engine| {
            engine.people(&mut audit).put_schedule(schedule, timing, Expected::Any)
        };
        api.bridge().change(put).await.map_err(refused)?;
    }
    for name in &applied.removed {
        let remove =
            |engine: &Engine| engine.people(&mut audit).remove_schedule(name, Expected::Any);
        match api.bridge().change(remove).await {
            Ok(()) | Err(Refused::Rejected(Rejection::NoSchedule)) => {}
            Err(other) => return Err(refused(other)),
        }
    }
    Ok(Json(applied))
}

/// All schedules by name.
async fn all(api: &Api) -> BTreeMap<String, Schedule> {
    let mut all = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = api.engine().schedules().list(after.as_deref(), LIMIT_MAX, None);
        let SchedulePage { schedules, next } = api.bridge().durable(page).await;
        all.extend(schedules.into_iter().map(|view| (view.schedule.name.clone(), view.schedule)));
        if next.is_none() {
            return all;
        }
        after = next;
    }
}
