//! Queues and their settings.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_core::queue::QueueSettings;
use spindle_core::state::QueueListing;
use spindle_core::{State as Core, Status};
use spindle_engine::Which;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, JsonBody, QueuePath};
use crate::naming;
use crate::submit::Backoff;
use spindle_http::{Answered, Code, Problem, ProblemBody};

const LIMIT: usize = 100;
const LIMIT_MAX: usize = 512;

/// A queue's numbers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
    /// Nothing is leased from it.
    paused: bool,
    /// Its jobs by status.
    jobs: Counts,
    /// How long ago the ready job whose turn is next was submitted. With one priority in use that
    /// is the oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ready_age_ms: Option<u64>,
}

/// Jobs by status.
#[derive(Serialize, ToSchema)]
pub(crate) struct Counts {
    scheduled: usize,
    ready: usize,
    leased: usize,
    parked: usize,
    done: usize,
    dead: usize,
}

/// A queue with what was set for it.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueueInFull {
    #[serde(flatten)]
    queue: Queue,
    /// Clients of all doors that wait for a job of it now, up to 1,000.
    waiting_leases: usize,
    settings: Settings,
}

/// What is set for a queue. What is left out is the protocol's default.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Most leases of a job that says nothing itself; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    /// Most failures of a job that says nothing itself; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fails_max: Option<u32>,
    /// Wait between failures of a job that says nothing itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    /// Lease length of a job without TTR, for workers that are not bound to a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttr_default_ms: Option<u64>,
    /// How long done jobs are kept that say nothing themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
    /// How long dead jobs are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_dead_ms: Option<u64>,
    /// Most unfinished jobs; a submit above it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jobs_max: Option<u64>,
    /// Most finished jobs kept; the oldest go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_max: Option<u64>,
}

impl Settings {
    fn of(settings: &QueueSettings) -> Settings {
        Settings {
            attempts_max: settings.attempts_max,
            fails_max: settings.fails_max,
            backoff: settings.backoff.map(Backoff::from),
            ttr_default_ms: settings.ttr_default_ms,
            keep_ms: settings.keep_ms,
            keep_dead_ms: settings.keep_dead_ms,
            jobs_max: settings.jobs_max,
            finished_max: settings.finished_max,
        }
    }

    /// Everything the API knows of is replaced; what other doors set stays.
    fn put(&self, settings: &mut QueueSettings) {
        settings.attempts_max = self.attempts_max;
        settings.fails_max = self.fails_max;
        settings.backoff = self.backoff.map(Into::into);
        settings.ttr_default_ms = self.ttr_default_ms;
        settings.keep_ms = self.keep_ms;
        settings.keep_dead_ms = self.keep_dead_ms;
        settings.jobs_max = self.jobs_max;
        settings.finished_max = self.finished_max;
    }
}

/// Which queues to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// At most so many, 1 to 512; 100 if not said.
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    cursor: Option<String>,
}

/// A page of queues.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page {
    /// The queues, in the order of their names.
    queues: Vec<Queue>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// List the queues that have jobs or settings, by name. A list for people: the numbers may be a
/// moment ahead of the disk.
#[utoipa::path(get, path = "/api/v1/queues", tag = "queues", params(Asked),
    responses(
        (status = 200, description = "A page of queues", body = Page),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let limit = asked.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::new(Code::OutOfRange, "limit is 1 to 512"));
    }
    let after = asked.cursor.map(|text| naming::from_base64("cursor", &text)).transpose()?;
    let now_ms = api.engine().now_ms();
    let (queues, last) = api.engine().look(|state| {
        let listed: Vec<QueueListing> = state
            .queues_from(after.as_deref().unwrap_or_default(), after.is_some())
            .take(limit + 1)
            .collect();
        let last = listed.get(limit).and(listed.get(limit - 1)).map(|queue| queue.name.clone());
        let queues: Vec<Queue> =
            listed.iter().take(limit).map(|queue| told(state, queue, now_ms)).collect();
        (queues, last)
    });
    Ok(Json(Page { queues, next_cursor: last.map(|name| naming::to_base64(&name)) }))
}

fn told(state: &Core, queue: &QueueListing, now_ms: u64) -> Queue {
    let (name, name_base64) = naming::told(&queue.name);
    let count = |status: Status| queue.counts[status as usize];
    let next = (count(Status::Ready) > 0).then(|| state.ready_jobs(&queue.name, 0).next());
    Queue {
        name,
        name_base64,
        paused: queue.paused,
        jobs: Counts {
            scheduled: count(Status::Scheduled),
            ready: count(Status::Ready),
            leased: count(Status::Leased),
            parked: count(Status::Parked),
            done: count(Status::Done),
            dead: count(Status::Dead),
        },
        next_ready_age_ms: next.flatten().map(|job| now_ms.saturating_sub(job.created_ms())),
    }
}

/// A queue with its settings. A queue that only has waiting workers counts too.
#[utoipa::path(get, path = "/api/v1/queues/{name}", tag = "queues",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "The queue", body = QueueInFull),
        (status = "4XX", description = "No such queue", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<Json<QueueInFull>> {
    shown(&api, &name).await
}

async fn shown(api: &Api, name: &[u8]) -> Answered<Json<QueueInFull>> {
    let (listing, gate) = api.engine().queue(name);
    api.desk().durable(gate).await;
    let Some(listing) = listing else {
        return Err(no_queue());
    };
    let now_ms = api.engine().now_ms();
    let (queue, settings) = api.engine().look(|state| {
        let settings = state.queue(name).map(|queue| Settings::of(queue.settings()));
        (told(state, &listing, now_ms), settings.unwrap_or_default())
    });
    let waiting_leases = api.engine().waiting_leases(name);
    Ok(Json(QueueInFull { queue, waiting_leases, settings }))
}

fn no_queue() -> Problem {
    Problem::new(Code::QueueNotFound, "the queue has no jobs and no settings")
}

/// Give out no more jobs of a queue. Those that are leased go on.
#[utoipa::path(post, path = "/api/v1/queues/{name}/pause", tag = "queues",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn pause(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<Json<QueueInFull>> {
    change(&api, &name, |settings| settings.paused = true).await
}

/// Give out a queue's jobs again.
#[utoipa::path(post, path = "/api/v1/queues/{name}/resume", tag = "queues",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn resume(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<Json<QueueInFull>> {
    let (known, gate) = api.engine().queue(&name);
    if known.is_none() {
        api.desk().durable(gate).await;
        return Err(no_queue());
    }
    change(&api, &name, |settings| settings.paused = false).await
}

/// Replace a queue's settings; what is left out becomes the default. Pausing is not among them.
#[utoipa::path(put, path = "/api/v1/queues/{name}/settings", tag = "queues",
    request_body = Settings,
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn set(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    JsonBody { value, .. }: JsonBody<Settings>,
) -> Answered<Json<QueueInFull>> {
    if value.ttr_default_ms == Some(0) {
        return Err(Problem::new(Code::OutOfRange, "ttr_default_ms is at least 1"));
    }
    change(&api, &name, |settings| value.put(settings)).await
}

async fn change(
    api: &Api,
    name: &bytes::Bytes,
    change: impl Fn(&mut QueueSettings),
) -> Answered<Json<QueueInFull>> {
    api.desk().change(|engine| engine.change_queue(name, &change)).await?;
    match shown(api, name).await {
        // Setting everything to its default lets an empty queue go: that is what it is now.
        Err(problem) if problem.code == Code::QueueNotFound => {
            let listing =
                QueueListing { name: name.clone(), counts: [0; Status::ALL.len()], paused: false };
            let queue = api.engine().look(|state| told(state, &listing, 0));
            let waiting_leases = api.engine().waiting_leases(name);
            Ok(Json(QueueInFull { queue, waiting_leases, settings: Settings::default() }))
        }
        other => other,
    }
}

/// What a purge took away.
#[derive(Serialize, ToSchema)]
pub(crate) struct Purged {
    /// So many jobs are gone.
    deleted: usize,
}

/// Delete a queue's ready and scheduled jobs. Leased, parked and finished ones stay.
#[utoipa::path(post, path = "/api/v1/queues/{name}/purge", tag = "queues",
    params(("name" = String, Path, description = "Its name, percent-encoded")),
    responses(
        (status = 200, description = "They are gone", body = Purged),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn purge(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<Json<Purged>> {
    // Only what is there now: with producers at work it would never end.
    let (_, gate) = api.engine().find(Which::Id(spindle_core::JobId(0)));
    api.desk().durable(gate).await;
    let most = api.engine().queue(&name).0.map_or(0, |queue| {
        queue.counts[Status::Ready as usize] + queue.counts[Status::Scheduled as usize]
    });
    let mut deleted = 0;
    while deleted < most {
        let (count, gate) = api.desk().call(|engine| engine.empty_queue(&name)).await?;
        api.desk().durable(gate).await;
        deleted += count;
        if count == 0 {
            break;
        }
    }
    Ok(Json(Purged { deleted }))
}
