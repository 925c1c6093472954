//! Queues and their settings.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_core::audit::Action;
use spindle_core::job::Origin;
use spindle_core::queue::QueueSettings;
use spindle_core::state::{QueueListing, ScanFilter};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{Audit, Engine, QueueTraffic, QueueView, Refused, ScannedJob, Tally};
use tokio::select;
use tokio::time::{Instant, sleep_until};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::deletion::{Deletion, UndoAsked};
use crate::extract::{Args, QueuePath};
use crate::numbers::{bounded, wait_ms};
use crate::settings::Settings;
use crate::{instant, naming};
use spindle_http::{Answered, Code, Pass, Problem, slice_turn};

const LIMIT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 512;
/// Stretches of a walk for a queue's oldest job.
const OLDEST_STRETCHES_MAX: usize = 16;
/// The end of a foreground job writes no record, so a drain checks by itself this often.
const DRAIN_LOOK: Duration = Duration::from_millis(250);

/// A queue's numbers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    name_base64: Option<String>,
    /// Nothing is leased from it.
    paused: bool,
    /// Its jobs by status.
    jobs: Counts,
    /// Parked, done and dead jobs that are deleted, while that can be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<usize>,
    /// Bytes of the payloads of its unfinished jobs.
    payload_bytes: u64,
    /// How long ago the ready job whose turn is next was submitted. With one priority in use that
    /// is the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ready_age_ms: Option<u64>,
    /// What went through it in the last 50 to 60 seconds.
    last_minute: Counted,
    /// Clients of all doors that wait for a job of it now, up to 1,000.
    waiting_leases: usize,
    /// When a worker last asked for its jobs, since the server began.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_asked_at: Option<String>,
    /// In a list: the most unfinished jobs it may hold, if that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_max: Option<u64>,
    /// In a list: the most bytes their payloads may have, if that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_max: Option<u64>,
}

/// What went through a queue.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Counted {
    /// Jobs submitted.
    submitted: u64,
    /// Leases given.
    leased: u64,
    /// Jobs done.
    completed: u64,
    /// Attempts that ended and left their job to be tried again.
    requeued: u64,
    /// Jobs that died.
    died: u64,
}

impl From<Tally> for Counted {
    fn from(tally: Tally) -> Counted {
        let Tally { submitted, leased, completed, requeued, died, failed: _ } = tally;
        Counted { submitted, leased, completed, requeued, died }
    }
}

/// A queue in full; its entity tag is that of its settings.
pub(super) type QueueAnswer = ([(HeaderName, HeaderValue); 1], Json<QueueInFull>);

/// Jobs by status.
#[derive(Serialize, ToSchema)]
pub(crate) struct Counts {
    scheduled: usize,
    ready: usize,
    leased: usize,
    parked: usize,
    blocked: usize,
    done: usize,
    dead: usize,
}

/// A queue with what was set for it.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueueInFull {
    #[serde(flatten)]
    queue: Queue,
    /// How long ago its oldest ready job was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ready_age_ms: Option<u64>,
    /// What went through it since the server began.
    since_start: Counted,
    settings: Settings,
}

/// Which queues to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// At most this many, 1 to 512; 100 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(format = "base64")]
    cursor: Option<String>,
}

/// A page of queues.
#[derive(Serialize, ToSchema)]
#[schema(as = QueuePage)]
pub(crate) struct Page {
    /// The queues, in the order of their names.
    queues: Vec<Queue>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// List the queues that have jobs or settings, by name. A list for people: the numbers may be a
/// moment ahead of the disk.
#[utoipa::path(get, path = "/api/v1/queues",
    operation_id = "list_queues", tag = "queues", params(Asked),
    responses(
        (status = 200, description = "A page of queues", body = Page),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let after = asked.cursor.map(|text| naming::from_base64("cursor", &text)).transpose()?;
    let mut views = api.engine().queues().views(after.as_deref(), limit + 1);
    let more = views.len() > limit;
    views.truncate(limit);
    let last = views.last().filter(|_| more).map(|view| view.listing.name.clone());
    let queues = views.iter().map(|view| {
        let mut queue = numbers_of(view, api.engine().now_ms());
        note_traffic(api.engine(), &view.listing.name, &mut queue);
        queue
    });
    let queues = queues.collect();
    Ok(Json(Page { queues, next_cursor: last.map(|name| naming::to_base64(&name)) }))
}

fn numbers_of(view: &QueueView, now_ms: u64) -> Queue {
    let QueueListing { name, counts, paused } = &view.listing;
    let (name, name_base64) = naming::text_or_base64(name);
    let count = |status: Status| counts[status as usize];
    Queue {
        name,
        name_base64,
        paused: *paused,
        jobs: Counts {
            scheduled: count(Status::Scheduled),
            ready: count(Status::Ready),
            leased: count(Status::Leased),
            parked: count(Status::Parked),
            blocked: count(Status::Blocked),
            done: count(Status::Done),
            dead: count(Status::Dead),
        },
        deleted: (view.deleted > 0).then_some(view.deleted),
        payload_bytes: view.payload_bytes,
        next_ready_age_ms: view.next_ready_ms.map(|ms| now_ms.saturating_sub(ms)),
        last_minute: Counted::default(),
        waiting_leases: 0,
        last_asked_at: None,
        jobs_max: view.settings.jobs_max,
        bytes_max: view.settings.bytes_max,
    }
}

/// Adds what the engine's state does not keep: the traffic of the queue and its waiting workers.
fn note_traffic(engine: &Engine, name: &Bytes, queue: &mut Queue) -> QueueTraffic {
    let traffic = engine.observe().traffic(name);
    queue.last_minute = traffic.last_minute.into();
    queue.waiting_leases = engine.observe().waiting_leases(name);
    queue.last_asked_at = traffic.asked_ms.map(instant::shown);
    traffic
}

/// When the oldest ready job of a queue was submitted. None if there is none, or if it is not
/// found without a long walk.
pub(crate) fn oldest_ready_ms(engine: &Engine, queue: &Bytes) -> Option<u64> {
    let filter = ScanFilter {
        statuses: vec![Status::Ready],
        queue: Some(queue.clone()),
        ..ScanFilter::default()
    };
    let mut from = Some(JobId(0));
    for _ in 0..OLDEST_STRETCHES_MAX {
        let page = engine.jobs().scan(from?, &filter, 1);
        let page = page.without_waiting("an age for people, as of a moment ago");
        if let Some(ScannedJob::Live(image)) = page.found.first() {
            return Some(image.created_ms);
        }
        from = page.next;
    }
    None
}

/// A queue with its settings. A queue that only has waiting workers counts too.
#[utoipa::path(get, path = "/api/v1/queues/{name}", operation_id = "show_queue", tag = "queues",
    params(QueuePath),
    responses(
        (status = 200, description = "The queue", body = QueueInFull),
        (status = "4XX", description = "No such queue")))]
pub(crate) async fn show(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<QueueAnswer> {
    shown(&api, &name).await
}

pub(super) async fn shown(api: &Api, name: &Bytes) -> Answered<QueueAnswer> {
    let view = api.bridge().durable(api.engine().queues().view(name)).await;
    Ok(in_full(api, &view.ok_or_else(no_queue)?))
}

fn in_full(api: &Api, view: &QueueView) -> QueueAnswer {
    let (engine, name) = (api.engine(), &view.listing.name);
    let mut queue = numbers_of(view, engine.now_ms());
    let settings = Settings::of(&view.settings);
    let traffic = note_traffic(engine, name, &mut queue);
    // In this answer they are part of the settings.
    (queue.jobs_max, queue.bytes_max) = (None, None);
    let age = |ms: u64| engine.now_ms().saturating_sub(ms);
    let tag = settings.tag();
    let body = QueueInFull {
        queue,
        oldest_ready_age_ms: oldest_ready_ms(engine, name).map(age),
        since_start: traffic.total.into(),
        settings,
    };
    ([(header::ETAG, tag)], Json(body))
}

pub(super) fn no_queue() -> Problem {
    Problem::new(Code::QueueNotFound, "the queue has no jobs and no settings")
}

/// Whether a queue that is not there may come to be.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PauseAsked {
    /// `false`: a queue that is not there is 404, and nothing is paused. `true` by default: it is
    /// there by being paused.
    create: Option<bool>,
}

/// Give out no more jobs of a queue. Those that are leased go on.
#[utoipa::path(post, path = "/api/v1/queues/{name}/pause",
    operation_id = "pause_queue", tag = "queues",
    params(QueuePath, PauseAsked),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn pause(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    Args(asked): Args<PauseAsked>,
    pass: Pass,
) -> Answered<QueueAnswer> {
    pause_now(&api, &name, asked.create, &pass, Action::Pause).await
}

async fn pause_now(
    api: &Api,
    name: &Bytes,
    create: Option<bool>,
    pass: &Pass,
    action: Action,
) -> Answered<QueueAnswer> {
    let create = create.unwrap_or(true);
    change_paused(api, name, pass, action, true, create).await
}

/// Give out a queue's jobs again.
#[utoipa::path(post, path = "/api/v1/queues/{name}/resume",
    operation_id = "resume_queue", tag = "queues", params(QueuePath),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn resume(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    pass: Pass,
) -> Answered<QueueAnswer> {
    change_paused(&api, &name, &pass, Action::Resume, false, false).await
}

/// How long to wait for a drain.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DrainAsked {
    /// In seconds, at most 300; 0, and what is not said, does not wait.
    #[param(maximum = 300)]
    wait_s: Option<u64>,
    /// `false`: a queue that is not there is 404, and nothing is paused. `true` by default.
    create: Option<bool>,
}

/// How far a drain is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Drained {
    /// No worker has a job of the queue any more.
    drained: bool,
    /// How many still do.
    leased: usize,
}

/// Pause a queue, and wait until no worker has a job of it any more. It stays paused, and its
/// waiting jobs stay.
#[utoipa::path(post, path = "/api/v1/queues/{name}/drain",
    operation_id = "drain_queue", tag = "queues",
    params(QueuePath, DrainAsked),
    responses(
        (status = 200, description = "It is paused, and so far drained", body = Drained),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn drain(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    Args(asked): Args<DrainAsked>,
    pass: Pass,
) -> Answered<Json<Drained>> {
    let wait_ms = wait_ms(asked.wait_s.unwrap_or(0))?;
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    let (mut moves, mut stopping) = (api.bridge().moves(), api.stopping());
    let _: QueueAnswer = pause_now(&api, &name, asked.create, &pass, Action::Drain).await?;
    loop {
        let listing = api.bridge().durable(api.engine().queues().get(&name)).await;
        let leased = listing.map_or(0, |queue| queue.counts[Status::Leased as usize]);
        let is_over = Instant::now() >= deadline || *stopping.borrow();
        if leased == 0 || is_over {
            return Ok(Json(Drained { drained: leased == 0, leased }));
        }
        let next_look = deadline.min(Instant::now() + DRAIN_LOOK);
        select! {
            _ = moves.changed() => {}
            _ = stopping.changed() => {}
            () = sleep_until(next_look) => {}
        }
    }
}

/// Pauses or resumes a queue; one that is not there is made only by `create`.
async fn change_paused(
    api: &Api,
    name: &Bytes,
    pass: &Pass,
    action: Action,
    paused: bool,
    create: bool,
) -> Answered<QueueAnswer> {
    let change = |is_there: bool, settings: &mut QueueSettings| {
        settings.paused = paused;
        if is_there || create { Ok(()) } else { Err(Rejection::NotFound) }
    };
    let mut audit = pass.audit(Origin::Api);
    let done = |engine: &Engine| engine.people(&mut audit).change_queue_seen(action, name, change);
    let done = api.bridge().change(done).await;
    done.map_err(|refused| match refused {
        Refused::Rejected(Rejection::NotFound) => no_queue(),
        other => other.into(),
    })?;
    changed(api, name).await
}

/// The queue after a change.
pub(super) async fn changed(api: &Api, name: &Bytes) -> Answered<QueueAnswer> {
    match shown(api, name).await {
        // An empty queue with default settings is not kept; the answer shows it as empty.
        Err(problem) if problem.code == Code::QueueNotFound => {
            let counts = [0; Status::ALL.len()];
            let listing = QueueListing { name: name.clone(), counts, paused: false };
            let settings = QueueSettings::default();
            Ok(in_full(
                api,
                &QueueView { listing, settings, deleted: 0, payload_bytes: 0, next_ready_ms: None },
            ))
        }
        other => other,
    }
}

/// What a purge took away.
#[derive(Serialize, ToSchema)]
pub(crate) struct Purged {
    /// How many jobs are deleted.
    deleted: usize,
    /// They are not gone yet: how that is undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion: Option<Deletion>,
}

/// Delete a queue's ready and scheduled jobs. Leased, parked and finished ones stay.
#[utoipa::path(post, path = "/api/v1/queues/{name}/purge",
    operation_id = "purge_queue", tag = "queues", params(QueuePath, UndoAsked),
    responses(
        (status = 200, description = "They are gone, or will be", body = Purged),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn purge(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    Args(asked): Args<UndoAsked>,
    pass: Pass,
) -> Answered<Json<Purged>> {
    let (undo_ms, begun_ms) = (asked.undo_ms()?, api.engine().now_ms());
    let mut audit = Audit::of_many(pass.actor(Origin::Api), Some(name.clone()), "");
    // Only the jobs that are there now: with producers at work a purge of all would never end.
    let listing = api.bridge().durable(api.engine().queues().get(&name)).await;
    let most = listing.map_or(0, |queue| {
        queue.counts[Status::Ready as usize] + queue.counts[Status::Scheduled as usize]
    });
    let mut deleted = 0;
    while deleted < most {
        // The turn is given up before the wait for the disk, so that other requests have theirs.
        drop(slice_turn().await);
        let empty = |engine: &Engine| engine.people(&mut audit).empty_queue(&name, undo_ms);
        let count = api.bridge().change(empty).await?;
        deleted += count;
        if count == 0 {
            break;
        }
    }
    Ok(Json(Purged { deleted, deletion: Deletion::of(&audit, begun_ms, undo_ms) }))
}
