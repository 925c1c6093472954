//! Requests that bring one job or one batch, or move a job.

use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use spindle_core::JobId;
use spindle_http::{Code, Problem, whole_or_null, work_on_bytes};

use super::asked::{Asked, Head};
use super::place::{Place, QueueNamed, queue_of, said};
use super::router::{Outcome, Routing, check_named};
use super::shards::Refusal;
use crate::{Placement, Shard};

/// What a job to submit says of where it belongs. Its types are those of the API or laxer.
#[derive(Deserialize)]
pub(super) struct JobSaid {
    queue: Option<String>,
    queue_base64: Option<String>,
    #[serde(default, deserialize_with = "whole_or_null")]
    batch: Option<u64>,
    #[serde(default)]
    after: Vec<Value>,
    pub r#ref: Option<String>,
}

impl JobSaid {
    /// The shard of its queue.
    pub fn shard(&self, placement: Placement) -> Option<Shard> {
        let name = queue_of(self.queue.as_deref(), self.queue_base64.as_deref())?;
        Some(placement.of(&name))
    }

    /// The numbers of what it belongs to and waits for.
    pub fn linked(&self) -> impl Iterator<Item = u64> + '_ {
        self.batch.into_iter().chain(self.after.iter().filter_map(number))
    }

    /// The names of the jobs of its request that it waits for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.after.iter().filter_map(Value::as_str)
    }
}

/// A number of a job, which may be written with a zero fraction.
pub(super) fn number(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

/// Refuses what does not lie together.
pub(super) fn check_together(
    placement: Placement,
    shard: Shard,
    linked: impl Iterator<Item = u64>,
) -> Result<(), Problem> {
    for id in linked {
        let other = Shard::of_job(JobId(id));
        // A number of no shard is nowhere: the shard says so.
        if other != shard && placement.has(other) {
            let detail = format!(
                "{id} is on shard {other}, and the queue is on shard {shard}: jobs that wait for each \
                 other and the jobs of a batch are in queues of one shard"
            );
            return Err(Problem::new(Code::SeveralShards, detail).with("shard", other.0));
        }
    }
    Ok(())
}

/// `POST /api/v1/jobs`
pub(super) async fn one(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let job = read::<JobSaid>(&bytes).await;
    let shard = job.as_ref().and_then(|job| job.shard(routing.placement));
    send(routing, &head, bytes, shard, job.iter().flat_map(JobSaid::linked)).await
}

/// What a batch to open says of where it belongs.
#[derive(Deserialize)]
struct BatchSaid {
    queue: Option<String>,
    queue_base64: Option<String>,
    #[serde(default, deserialize_with = "whole_or_null")]
    parent: Option<u64>,
}

/// `POST /api/v1/batches`
pub(super) async fn batch(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let batch = read::<BatchSaid>(&bytes).await;
    let queue = batch.as_ref().and_then(|batch| {
        let BatchSaid { queue, queue_base64, .. } = batch;
        queue_of(queue.as_deref(), queue_base64.as_deref())
    });
    let shard = queue.map(|queue| routing.placement.of(&queue));
    send(routing, &head, bytes, shard, batch.iter().filter_map(|batch| batch.parent)).await
}

async fn send(
    routing: &Routing,
    head: &Head,
    bytes: Bytes,
    shard: Option<Shard>,
    linked: impl Iterator<Item = u64>,
) -> Outcome {
    // Without a queue it is refused, by any shard.
    let Some(shard) = shard else {
        return routing.pass_read(head, bytes, Shard::FIRST).await;
    };
    check_named(head, shard)?;
    check_together(routing.placement, shard, linked)?;
    routing.pass_read(head, bytes, shard).await
}

/// `PATCH /api/v1/jobs/{id}`
pub(super) async fn edit(routing: &Routing, segment: &str, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let wanted = read::<QueueNamed>(&bytes).await.and_then(|to| to.shard(routing.placement));
    let place = match head.shard {
        Some(shard) => Place::On(shard),
        None => routing.placement.of_job_named(segment),
    };
    match (place, wanted) {
        (Place::On(shard), Some(wanted)) if wanted != shard => Err(stays(shard, wanted).into()),
        (Place::On(shard), _) => routing.pass_read(&head, bytes, shard).await,
        (Place::Somewhere, None) => routing.find_read(&head, bytes).await,
        (Place::Somewhere, Some(wanted)) => {
            let answer = routing.pass_read(&head, bytes, wanted).await?;
            if answer.status() != StatusCode::NOT_FOUND {
                return Ok(answer);
            }
            match elsewhere(routing, &head).await? {
                Some(shard) => Err(stays(shard, wanted).into()),
                None => Ok(answer),
            }
        }
    }
}

/// The shard that has what a path names.
pub(super) async fn elsewhere(routing: &Routing, head: &Head) -> Result<Option<Shard>, Refusal> {
    for shard in routing.placement.shards() {
        let request = head.other(Method::GET, &head.path, Bytes::new());
        let answer: Response<Body> = routing.shards.send(shard, &head.peer, request).await?;
        if answer.status().is_success() {
            return Ok(Some(shard));
        }
        if answer.status() != StatusCode::NOT_FOUND {
            return Err(Refusal::Answer(Box::new(answer)));
        }
    }
    Ok(None)
}

fn stays(shard: Shard, wanted: Shard) -> Problem {
    let detail = format!(
        "the job is on shard {shard}, and that queue is on shard {wanted}: a job stays on its shard"
    );
    Problem::new(Code::SeveralShards, detail).with("shard", shard.0)
}

/// What a body says, read beside the threads that serve if it is long.
pub(super) async fn read<T: serde::de::DeserializeOwned + Send + 'static>(
    bytes: &Bytes,
) -> Option<T> {
    let bytes = bytes.clone();
    work_on_bytes(bytes.len(), move || said(&bytes)).await
}
