//! Who works, and on what.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_core::job::{HeldLease, Origin};
use spindle_core::state::ScanFilter;
use spindle_core::{JobId, JobImage, Status};
use spindle_engine::{Gated, ScannedJob, WorkerView};
use spindle_http::{Answered, door_word};
use tokio::task::yield_now;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::Args;
use crate::numbers::bad_cursor;
use crate::{instant, naming};

/// Leased jobs looked at for one request.
const JOBS_MAX: usize = 20_000;
/// Jobs of one stretch of the walk that finds them.
const STRETCH_JOBS: usize = 128;
/// Stretches of that walk.
const STRETCHES_MAX: usize = 500;

/// Which part of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// Where the last page ended: its `next_cursor`.
    #[param(maximum = 4_294_967_295_u32)]
    cursor: Option<usize>,
}

/// A worker.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct Worker {
    /// Its name, as far as it gave one. Workers of the API that give none are one.
    name: String,
    /// The door it comes through.
    door: &'static str,
    /// Its connection, while its door knows it by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<u64>,
    /// When it first asked for a job, since the server began.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seen_at: Option<String>,
    /// When it was last heard of: it asked for a job, waited for one, extended a lease or ended one.
    /// Not there for one that was not heard of since the server began, or for an hour, and has a
    /// job.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at: Option<String>,
    /// The queues it asked for last, as far as their names are UTF-8; at most 32 of all.
    queues: Vec<String>,
    /// Those whose names are no UTF-8, in base64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues_base64: Vec<String>,
    /// How many it asked for.
    queues_count: usize,
    /// How many of its requests wait for a job now.
    waiting: u32,
    /// The jobs it has.
    jobs: Vec<WorkerJob>,
}

/// A job a worker has.
#[derive(Serialize, ToSchema)]
#[schema(as = Held)]
pub(crate) struct WorkerJob {
    /// Its number.
    id: u64,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// Which attempt it is.
    attempt: u32,
    /// When the lease was given.
    started_at: String,
    /// When it runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
}

/// A page of workers.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkerPage)]
pub(crate) struct Page {
    /// Up to 256 of them, in no order; the last page also has those that only have jobs.
    workers: Vec<Worker>,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// There are more leased jobs than one request looks at: `jobs` may be incomplete.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// The worker that holds a lease or asked for one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Who {
    door: i32,
    holder: u64,
    /// Empty for a worker that is identified by its connection.
    name: Bytes,
}

impl Who {
    fn new(door: Origin, holder: u64, name: &Bytes) -> Who {
        let name = if holder == 0 { name.clone() } else { Bytes::new() };
        Who { door: door as i32, holder, name }
    }
}

/// List the workers that have asked for jobs through any door, and what each has. A worker leaves
/// the list with its connection; one without (the API's) when it has no job, waits for none and was
/// not heard of for a minute. A list for people; after a restart a worker is on it again once it
/// asks again.
#[utoipa::path(get, path = "/api/v1/workers",
    operation_id = "list_workers", tag = "workers", params(Asked),
    responses(
        (status = 200, description = "A page of workers", body = Page),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let from = asked.cursor.unwrap_or(0);
    if from > u32::MAX as usize {
        return Err(bad_cursor());
    }
    let (seen, next) = api.engine().observe().workers(from);
    let (held, partial) = held(&api).await;
    let mut held = api.bridge().durable(held).await;
    let now_ms = api.engine().now_ms();
    let mut workers = Vec::new();
    for worker in &seen {
        let who = Who::new(worker.door, worker.holder, &worker.name);
        let jobs = held.remove(&who).map(|held| held.jobs).unwrap_or_default();
        if !jobs.is_empty() || !worker.is_gone(now_ms) {
            workers.push(shown(worker, jobs));
        }
    }
    // If there are more pages, the remaining workers may be on one of those.
    if from == 0 && next.is_none() {
        let mut unseen: Vec<Worker> = held.into_iter().map(unseen).collect();
        unseen.sort_by_key(|worker| worker.jobs.first().map(|job| job.id));
        workers.extend(unseen);
    }
    Ok(Json(Page { workers, next_cursor: next.map(|next| next.to_string()), partial }))
}

struct Holding {
    lease: HeldLease,
    jobs: Vec<WorkerJob>,
}

/// All leased jobs by the worker that has them, and whether there are more.
async fn held(api: &Api) -> (Gated<HashMap<Who, Holding>>, bool) {
    let filter = ScanFilter { statuses: vec![Status::Leased], ..ScanFilter::default() };
    let mut by_who: HashMap<Who, Holding> = HashMap::new();
    let (mut read, mut from, mut count) = (Gated::open(()), Some(JobId(0)), 0);
    for _ in 0..STRETCHES_MAX {
        let Some(start) = from.filter(|_| count < JOBS_MAX) else { break };
        let page = read.absorb(api.engine().jobs().scan(start, &filter, STRETCH_JOBS));
        from = page.next;
        for scanned in page.found {
            let ScannedJob::Live(image) = scanned else { continue };
            let Some(lease) = &image.lease else { continue };
            let who = Who::new(lease.door(), lease.holder, &lease.worker);
            let holding = by_who
                .entry(who)
                .or_insert_with(|| Holding { lease: (**lease).clone(), jobs: Vec::new() });
            holding.jobs.push(job(&image, lease));
            count += 1;
        }
        yield_now().await;
    }
    (read.map(|()| by_who), from.is_some())
}

fn job(image: &JobImage, lease: &HeldLease) -> WorkerJob {
    let (queue, queue_base64) = naming::text_or_base64(&image.queue);
    WorkerJob {
        id: image.id,
        queue,
        queue_base64,
        attempt: image.attempts,
        started_at: instant::shown(lease.started_ms),
        deadline_at: lease.deadline_ms.map(instant::shown),
    }
}

fn shown(worker: &WorkerView, jobs: Vec<WorkerJob>) -> Worker {
    let (mut queues, mut queues_base64) = (Vec::new(), Vec::new());
    for queue in &worker.queues {
        let (text, base64) = naming::text_or_base64(queue);
        queues.extend(text);
        queues_base64.extend(base64);
    }
    Worker {
        name: String::from_utf8_lossy(&worker.name).into_owned(),
        door: door_word(worker.door),
        connection: (worker.holder != 0).then_some(worker.holder),
        first_seen_at: Some(instant::shown(worker.first_asked_ms)),
        seen_at: Some(instant::shown(worker.last_seen_ms)),
        queues,
        queues_base64,
        queues_count: worker.queues_count,
        waiting: worker.waits,
        jobs,
    }
}

/// A worker that has jobs and was not seen: they are from before the server began.
fn unseen((who, holding): (Who, Holding)) -> Worker {
    Worker {
        name: String::from_utf8_lossy(&holding.lease.worker).into_owned(),
        door: door_word(holding.lease.door()),
        connection: (who.holder != 0).then_some(who.holder),
        jobs: holding.jobs,
        ..Worker::default()
    }
}
