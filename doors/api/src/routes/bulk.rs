//! The same action on all jobs that a filter means.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_access::Target;
use spindle_core::command::Edit;
use spindle_core::job::Origin;
use spindle_core::{JobId, JobImage, Status};
use spindle_engine::{Audit, Engine, Gated, JobRef, RetryError};
use spindle_http::{Answered, Code, Pass, Problem, slice_turn, whole_or_null};
use utoipa::ToSchema;

use crate::api::Api;
use crate::deletion::{self, Deletion};
use crate::extract::JsonBody;
use crate::filter::JobFilter;
use crate::instant;
use crate::numbers::digits;
use crate::object;
use crate::routes::jobs::EditBody;
use crate::walk::{Order, Walk};

/// After this long a request answers with what it has done, and where to go on.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Jobs acted on between two looks at the clock and at who else waits.
const STRETCH_JOBS: usize = 128;
/// Jobs changed before the bulk waits for the disk. All decisions go to the disk in one order, so a
/// request that comes behind a bulk waits for up to this many.
const JOBS_PER_COMMIT: usize = 512;

/// What to do with jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// End them as dead, with code `cancelled`.
    Cancel,
    /// Delete them, whatever their status; with `undo_ms` so that it can be undone.
    Delete,
    /// Let done and dead ones run again, with all their tries.
    Retry,
    /// Keep waiting ones aside.
    Park,
    /// Let parked ones run when their time has come.
    Release,
    /// Undo the deletion of those that are deleted.
    Undo,
    /// Change waiting ones: another `queue`, `priority` or `run_at`.
    Edit,
}

/// An action on all jobs that a filter means.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkBody {
    /// Which jobs: at least one field of it. Only jobs submitted before the first request count.
    #[serde(default, deserialize_with = "object::optional")]
    #[schema(required, value_type = JobFilter)]
    filter: Option<JobFilter>,
    /// What to do.
    action: Action,
    /// Do nothing, and count what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Where the last request ended: its `next_cursor`.
    #[schema(pattern = "^[0-9]{1,15}-[0-9]{1,15}$")]
    cursor: Option<String>,
    /// With `edit`: another queue.
    #[schema(min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// With `edit`: another queue, in base64.
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// With `edit`: another priority.
    #[serde(default, deserialize_with = "whole_or_null")]
    priority: Option<i64>,
    /// With `edit`: another time to run (RFC 3339), or `now`.
    #[schema(format = "time-or-now")]
    run_at: Option<String>,
    /// With `delete`: for so long it can be undone, up to a day; 0, or not said: they are gone at
    /// once.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(maximum = 86_400_000)]
    undo_ms: Option<u64>,
}

/// What a bulk action did, or would do.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkAnswer {
    /// Nothing was done.
    dry_run: bool,
    /// How many jobs are meant, as far as the walk went.
    matched: usize,
    /// How many are changed, or would be.
    changed: usize,
    /// Those that are meant and cannot be changed, by problem code.
    refused: BTreeMap<&'static str, usize>,
    /// What is deleted is not gone yet: how that is undone. Each request has its own number.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion: Option<Deletion>,
    /// Not all is done: where to go on, with the same body otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Do the same to all jobs that a filter means, or count them. A request that would take more than
/// about two seconds answers with what it has done and a `next_cursor` to go on from.
#[utoipa::path(post, path = "/api/v1/jobs/bulk",
    operation_id = "change_jobs", tag = "jobs", request_body = BulkBody,
    responses(
        (status = 200, description = "What was done, and that is on disk", body = BulkAnswer),
        (status = "4XX", description = "Nothing was done")))]
pub(crate) async fn bulk(
    State(api): State<Api>,
    mut pass: Pass,
    JsonBody { value, .. }: JsonBody<BulkBody>,
) -> Answered<Json<BulkAnswer>> {
    let filter = value.filter.clone().unwrap_or_default();
    if filter == JobFilter::default() {
        let detail = "filter needs at least one field, so that a slip does not change all jobs";
        return Err(Problem::out_of_range(detail));
    }
    let edit = edit(&value)?;
    let undo_ms = deletion::read(value.undo_ms)?;
    if undo_ms > 0 && value.action != Action::Delete {
        return Err(Problem::bad_field("undo_ms goes with the action delete"));
    }
    let begun_ms = api.engine().now_ms();
    let meant = filter.described();
    let mut filter = filter.read(&api)?;
    pass.allows(filter.target())?;
    if let Some(queue) = &edit.queue {
        pass.allows(Target::Queue(queue))?;
    }
    let cursor = value.cursor.as_deref().map(read_cursor).transpose()?;
    if let Some((_, until)) = cursor {
        filter.end_at(until);
    }
    let queue = filter.scan.queue.clone();
    let mut audit = Audit::of_many(pass.actor(Origin::Api), queue, &described(&meant, &edit));
    let mut walk = Walk::new(filter, Order::Asc, cursor.map(|(from, _)| from));
    let mut answer = BulkAnswer {
        dry_run: value.dry_run,
        matched: 0,
        changed: 0,
        refused: BTreeMap::new(),
        deletion: None,
        next_cursor: None,
    };
    let started = Instant::now();
    let mut done = Gated::open(());
    let mut committed = 0;
    while walk.next().is_some() && !walk.is_spent() && started.elapsed() < TIME_MAX {
        let images = walk.stretch(&api, STRETCH_JOBS).await?;
        answer.matched += images.len();
        if answer.changed >= committed + JOBS_PER_COMMIT {
            committed = answer.changed;
            api.bridge().durable(std::mem::replace(&mut done, Gated::open(()))).await;
        }
        let mut slice = Some(slice_turn().await);
        let mut turn = api.bridge().turn();
        for image in &images {
            let acted = match may(value.action, undo_ms, image) {
                Err(code) => Err(Problem::new(code, "")),
                Ok(()) if value.dry_run => Ok(()),
                Ok(()) => {
                    if !api.engine().has_room() {
                        drop((turn, slice.take()));
                        api.bridge().room(0).await?;
                        turn = api.bridge().turn();
                    }
                    let id = JobId(image.id);
                    let acted = act(api.engine(), &mut audit, id, value.action, undo_ms, &edit);
                    done.absorb(acted).map_err(Problem::from)
                }
            };
            match acted {
                Ok(()) => answer.changed += 1,
                Err(problem) if problem.code.status().is_client_error() => {
                    *answer.refused.entry(problem.code.as_str()).or_default() += 1;
                }
                // This is a failure of the request, not of this job; the next request counts what
                // is done so far.
                Err(problem) => return Err(problem),
            }
        }
        drop(turn);
    }
    api.bridge().durable(done.and_then(|()| walk.answer(()))).await;
    answer.deletion = Deletion::of(&audit, begun_ms, undo_ms);
    answer.next_cursor = walk.next().map(|next| format!("{}-{}", next.0, walk.until().0));
    Ok(Json(answer))
}

/// What was asked for, for the audit log.
fn described(meant: &str, edit: &Edit) -> String {
    let queue = edit.queue.as_ref().map(|name| format!("to {}", String::from_utf8_lossy(name)));
    let priority = edit.priority.map(|priority| format!("priority {priority}"));
    let run_at = edit.run_at_ms.map(|ms| format!("run_at {}", instant::shown(ms)));
    let meant = (!meant.is_empty()).then(|| format!("all with {meant}"));
    let said: Vec<String> = [queue, priority, run_at, meant].into_iter().flatten().collect();
    said.join(", ")
}

fn edit(body: &BulkBody) -> Answered<Edit> {
    let (queue, queue_base64) = (body.queue.clone(), body.queue_base64.clone());
    let run_at = body.run_at.clone();
    let edit = EditBody { queue, queue_base64, priority: body.priority, run_at }.read()?;
    match (body.action, edit == Edit::default()) {
        (Action::Edit, true) => Err(Problem::bad_field("edit needs queue, priority or run_at")),
        (Action::Edit, false) | (_, true) => Ok(edit),
        (_, false) => {
            let detail = "queue, priority and run_at go with the action edit; to choose jobs by \
                          their queue, put it into filter";
            Err(Problem::bad_field(detail))
        }
    }
}

/// Whether a job can be acted on, and if not, why. The engine decides the same; this tells it
/// beforehand.
fn may(action: Action, undo_ms: u64, image: &JobImage) -> Result<(), Code> {
    let (status, is_deleted) = (image.status(), image.options().deletion.is_some());
    match action {
        Action::Undo if is_deleted => Ok(()),
        Action::Undo => Err(Code::JobNotDeleted),
        Action::Delete if undo_ms == 0 => Ok(()),
        _ if is_deleted => Err(Code::JobDeleted),
        Action::Delete => Ok(()),
        Action::Retry if status.is_finished() => Ok(()),
        Action::Retry => Err(Code::JobNotFinished),
        _ if status.is_finished() => Err(Code::JobFinished),
        Action::Cancel => Ok(()),
        Action::Park | Action::Release | Action::Edit if status == Status::Leased => {
            Err(Code::JobLeased)
        }
        Action::Park | Action::Release | Action::Edit => Ok(()),
    }
}

/// Acts on one job, within the caller's turn.
fn act(
    engine: &Engine,
    audit: &mut Audit,
    id: JobId,
    action: Action,
    undo_ms: u64,
    edit: &Edit,
) -> Gated<Result<(), RetryError>> {
    let people = engine.people(audit);
    let done = match action {
        Action::Retry => return people.retry(JobRef::Id(id), None),
        Action::Delete => people.delete_for(JobRef::Id(id), undo_ms).map(|done| done.map(drop)),
        Action::Undo => people.undo(id),
        Action::Cancel => people.cancel(id),
        Action::Park => people.edit(&Edit { id, parked: Some(true), ..edit.clone() }),
        Action::Release => people.edit(&Edit { id, parked: Some(false), ..edit.clone() }),
        Action::Edit => people.edit(&Edit { id, ..edit.clone() }),
    };
    done.map(|done| done.map_err(RetryError::from))
}

fn read_cursor(text: &str) -> Answered<(JobId, JobId)> {
    let number = |text: &str| digits(text).map(JobId);
    let read = text.split_once('-').and_then(|(from, until)| Some((number(from)?, number(until)?)));
    read.ok_or_else(|| Problem::out_of_range("cursor is the next_cursor of the request before"))
}
