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
use super::router::{Outcome, Routing, named_of};
use super::shards::{Refusal, whole};
use crate::{Placement, Shard};

/// The fields of a job that say where it belongs. Their types are those of the API or laxer.
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
    /// The shards that are offered it, in order; none if it names no queue.
    pub fn shards(&self, placement: &Placement) -> Option<Vec<Shard>> {
        let name = queue_of(self.queue.as_deref(), self.queue_base64.as_deref())?;
        Some(placement.all_of(&name))
    }

    /// The numbers of the batch that it belongs to and of the jobs and batches that it waits for.
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

/// The shards that a job or batch is offered: those of its queue or, if it is linked to existing jobs or
/// batches, the one shard that has these. Refused if they are not on one shard of the queue.
pub(super) fn together(
    placement: &Placement,
    shards: Vec<Shard>,
    linked: impl Iterator<Item = u64>,
) -> Result<Vec<Shard>, Problem> {
    let mut bound = shards;
    for id in linked {
        let other = Shard::of_job(JobId(id));
        // A number of no shard belongs to nothing: the shard says so.
        if !placement.has(other) {
            continue;
        }
        if !bound.contains(&other) {
            let shard = bound.last().copied().unwrap_or(Shard::FIRST);
            let detail = format!(
                "{id} is on shard {other}, and the queue is on shard {shard}: jobs that wait for each \
                 other and the jobs of a batch are in queues of one shard"
            );
            return Err(Problem::new(Code::SeveralShards, detail).with("shard", other.0));
        }
        bound = vec![other];
    }
    Ok(bound)
}

/// `POST /api/v1/jobs`
pub(super) async fn one(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let job = read::<JobSaid>(&bytes).await;
    let shards = job.as_ref().and_then(|job| job.shards(&routing.placement));
    send(routing, &head, bytes, shards, job.iter().flat_map(JobSaid::linked)).await
}

/// The fields of a batch that say where it belongs.
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
    let shards = queue.map(|queue| routing.placement.all_of(&queue));
    send(routing, &head, bytes, shards, batch.iter().filter_map(|batch| batch.parent)).await
}

async fn send(
    routing: &Routing,
    head: &Head,
    bytes: Bytes,
    shards: Option<Vec<Shard>>,
    linked: impl Iterator<Item = u64>,
) -> Outcome {
    // Without a queue it is refused, by any shard.
    let Some(shards) = shards else {
        return routing.pass_read(head, bytes, Shard::FIRST).await;
    };
    let shards = named_of(head, shards)?;
    let linked: Vec<u64> = linked.collect();
    let is_bound = !linked.is_empty();
    let shards = together(&routing.placement, shards, linked.into_iter())?;
    match offer(routing, head, &bytes, &shards).await? {
        // The batch or job that it is linked to is on the shard that its queue has left.
        Offered::Elsewhere(answer) if is_bound => Ok(answer),
        offered => offered.answer(head),
    }
}

/// The outcome of an offer.
pub(super) enum Offered {
    Answered(Response<Body>),
    /// None of the shards that this node takes the queue to be on has it.
    Elsewhere(Response<Body>),
}

impl Offered {
    /// The answer. A client that named no shard knows nothing of shards: it is told to ask again, not that
    /// the queue is elsewhere.
    pub fn answer(self, head: &Head) -> Outcome {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::Elsewhere(answer) if head.shard.is_some() => Ok(answer),
            Self::Elsewhere(_) => Err(not_heard_of().into()),
        }
    }
}

/// A shard knows of a move that this node has not heard of yet.
pub(super) fn not_heard_of() -> Problem {
    let detail = "the queue has moved, and this node has not heard of it yet: ask again";
    Problem::new(Code::ShardUnavailable, detail)
}

/// Offers a job or batch to one shard after the other. A shard that says that the queue is elsewhere has none
/// with its name; any other answer is the answer to the client.
pub(super) async fn offer(
    routing: &Routing,
    head: &Head,
    bytes: &Bytes,
    shards: &[Shard],
) -> Result<Offered, Refusal> {
    let mut shards = shards.iter().copied().peekable();
    while let Some(shard) = shards.next() {
        let answer = routing.pass_read(head, bytes.clone(), shard).await?;
        if answer.status() != StatusCode::UNPROCESSABLE_ENTITY {
            return Ok(Offered::Answered(answer));
        }
        let (parts, body) = answer.into_parts();
        let body = whole(body, shard).await?;
        let is_elsewhere = is_elsewhere(&body);
        let answer = Response::from_parts(parts, Body::from(body));
        match (is_elsewhere, shards.peek()) {
            (false, _) => return Ok(Offered::Answered(answer)),
            (true, None) => return Ok(Offered::Elsewhere(answer)),
            (true, Some(_)) => {}
        }
    }
    Err(Problem::new(Code::NotFound, "the queue is on no shard").into())
}

/// Whether a shard's problem is that the queue is on another one.
pub(super) fn is_elsewhere(problem: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Said {
        code: String,
    }
    said(problem).is_some_and(|it: Said| it.code == Code::SeveralShards.as_str())
}

/// `PATCH /api/v1/jobs/{id}`
pub(super) async fn edit(routing: &Routing, segment: &str, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let wanted = read::<QueueNamed>(&bytes).await.and_then(|to| to.shard(&routing.placement));
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
