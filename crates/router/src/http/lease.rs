//! Jobs for workers, from whichever of their queues' shards has one.
//!
//! Each shard is asked without waiting, in random order: the first one with a job gives the answer. If none
//! has a job, all are asked at once to wait, and the first answer wins. A job that another shard gives all
//! the same is given back.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_core::queue::QUEUE_NAME_BYTES_MAX;
use spindle_http::{whole, whole_or_null};

use super::asked::{Asked, Head};
use super::flock::written;
use super::place::{queue_of, said};
use super::router::{Outcome, Routing};
use super::shards::{Missed, Refusal};
use super::submit::read;
use super::take_back::{Answer, Asker, Guard, guarded};
use crate::{Placement, Shard};

/// As the API: no further job is leased once answers have so many bytes together.
const MANY_BYTES_MAX: usize = 1024 * 1024;
/// The longest wait that the API takes; any shard refuses a longer one.
const WAIT_S_MAX: u64 = 300;

/// The fields of a worker's request that say where its jobs are.
#[derive(Deserialize)]
pub(super) struct LeaseSaid {
    #[serde(default)]
    queues: Vec<String>,
    #[serde(default)]
    queues_base64: Vec<String>,
    #[serde(default, deserialize_with = "whole")]
    wait_s: u64,
    #[serde(default, deserialize_with = "whole_or_null")]
    count: Option<u64>,
}

/// The queues of one shard.
#[derive(PartialEq, Eq, Default)]
struct Named {
    queues: Vec<String>,
    queues_base64: Vec<String>,
}

/// A request for jobs of several shards.
pub(super) struct Wanted {
    by_shard: Vec<(Shard, Named)>,
    wait: Duration,
    count: Option<u64>,
    /// The request's other fields, which each shard is told.
    fields: IndexMap<String, Box<RawValue>>,
}

/// Where jobs are to be leased.
#[derive(PartialEq)]
pub(super) enum Where {
    /// All of the queues are on one shard, or it refuses the request.
    On(Shard),
    Several(Box<Wanted>),
}

/// Compares two readings of the same request: they are equal if the same shards are asked for the same queues.
impl PartialEq for Wanted {
    fn eq(&self, other: &Wanted) -> bool {
        self.by_shard == other.by_shard
    }
}

impl LeaseSaid {
    /// Which shards are asked; `raw` is the whole body.
    pub fn place(self, raw: &[u8], placement: &Placement) -> Where {
        let LeaseSaid { queues, queues_base64, wait_s, count } = self;
        let mut by_shard = BTreeMap::<Shard, Named>::new();
        // A request that a shard would refuse goes whole to one shard.
        let fits = match (queues.len(), queues_base64.len()) {
            (one, 0) | (0, one) => one <= 1024,
            (one, other) => one.max(other) <= 512,
        };
        let is_wait = wait_s <= WAIT_S_MAX && count.is_none_or(|count| (1..=100).contains(&count));
        let mut is_refused = !fits || !is_wait;
        for queue in queues {
            is_refused |= !is_name(queue.as_bytes());
            for shard in placement.all_of(queue.as_bytes()) {
                by_shard.entry(shard).or_default().queues.push(queue.clone());
            }
        }
        for queue in queues_base64 {
            match queue_of(None, Some(&queue)).filter(|name| is_name(name)) {
                Some(name) => {
                    for shard in placement.all_of(&name) {
                        by_shard.entry(shard).or_default().queues_base64.push(queue.clone());
                    }
                }
                None => is_refused = true,
            }
        }
        let first = by_shard.first_key_value().map_or(Shard::FIRST, |(shard, _)| *shard);
        let fields: Option<IndexMap<String, Box<RawValue>>> = said(raw);
        match fields {
            Some(mut fields) if !is_refused && by_shard.len() > 1 => {
                for known in ["queues", "queues_base64", "wait_s", "count"] {
                    fields.shift_remove(known);
                }
                let by_shard = by_shard.into_iter().collect();
                let wait = Duration::from_secs(wait_s);
                Where::Several(Box::new(Wanted { by_shard, wait, count, fields }))
            }
            _ => Where::On(first),
        }
    }
}

fn is_name(name: &[u8]) -> bool {
    (1..=QUEUE_NAME_BYTES_MAX).contains(&name.len())
}

impl Wanted {
    /// What one shard is asked.
    fn body(&self, queues: &Named, wait_s: u64, count: Option<u64>) -> Bytes {
        let mut fields = self.fields.clone();
        let mut put = |name: &str, value: serde_json::Result<Box<RawValue>>| {
            if let Ok(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("queues", to_raw_value(&queues.queues));
        put("queues_base64", to_raw_value(&queues.queues_base64));
        put("wait_s", to_raw_value(&wait_s));
        if let Some(count) = count {
            put("count", to_raw_value(&count));
        }
        written(&fields).into()
    }

    /// The shards in random order, so that none is always the last.
    fn shuffled(&self) -> Vec<&(Shard, Named)> {
        let random = RandomState::new();
        let mut order: Vec<&(Shard, Named)> = self.by_shard.iter().collect();
        order.sort_by_cached_key(|(shard, _)| random.hash_one(shard));
        order
    }
}

/// `POST /api/v1/lease`
pub(super) async fn lease(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let head = Arc::new(head);
    let mut changes = routing.placement.changes();
    let place = place_of(routing, &head, &bytes).await;
    let leased = lease_at(routing, &head, bytes.clone(), &place);
    let mut leased = std::pin::pin!(leased);
    loop {
        tokio::select! {
            biased;
            answer = &mut leased => return answer,
            Ok(()) = changes.changed() => {}
        }
        // A worker that waits at shards where its queues no longer are has its wait ended early, to ask again.
        if place_of(routing, &head, &bytes).await != place {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
}

async fn place_of(routing: &Routing, head: &Head, bytes: &Bytes) -> Where {
    match head.shard {
        Some(shard) => Where::On(shard),
        None => match read::<LeaseSaid>(bytes).await {
            Some(said) => said.place(bytes, &routing.placement),
            None => Where::On(Shard::FIRST),
        },
    }
}

async fn lease_at(routing: &Routing, head: &Arc<Head>, bytes: Bytes, place: &Where) -> Outcome {
    let wanted = match place {
        Where::On(shard) => {
            let asker = Asker::new(&routing.shards, head, *shard);
            return Ok(asker.ask(head.with_bytes(bytes)).await?.map(Body::new));
        }
        Where::Several(wanted) => wanted,
    };
    if wanted.count.is_some() {
        let (jobs, guards) = many(routing, head, wanted).await?;
        return Ok(match jobs.is_empty() {
            true => StatusCode::NO_CONTENT.into_response(),
            false => guarded(written(&Jobs { jobs }), guards),
        });
    }
    Ok(match one(routing, head, wanted).await? {
        Some(answer) => answer.map(Body::new),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Jobs that were leased.
#[derive(Serialize, Deserialize)]
pub(super) struct Jobs {
    pub jobs: Vec<Box<RawValue>>,
}

/// Asks one shard.
pub(super) async fn ask(
    routing: &Routing,
    head: &Arc<Head>,
    shard: Shard,
    body: Bytes,
) -> Result<Answer, Missed> {
    let request = head.other(Method::POST, LEASE, body);
    Asker::new(&routing.shards, head, shard).ask(request).await
}

const LEASE: &str = "/api/v1/lease";

/// One job of whichever shard has one.
async fn one(
    routing: &Routing,
    head: &Arc<Head>,
    wanted: &Wanted,
) -> Result<Option<Answer>, Refusal> {
    let began = Instant::now();
    let mut missed = None;
    for (shard, queues) in wanted.shuffled() {
        match ask(routing, head, *shard, wanted.body(queues, 0, None)).await {
            Ok(answer) if answer.status() == StatusCode::NO_CONTENT => {}
            Ok(answer) => return Ok(Some(answer)),
            // Another shard may have a job all the same.
            Err(why) => drop(missed.get_or_insert(why)),
        }
    }
    match missed {
        Some(missed) => Err(missed.into()),
        None => first_that_comes(routing, head, wanted, None, began).await,
    }
}

/// Waits at all shards at once. After the first answer, the waits at the others are ended.
async fn first_that_comes(
    routing: &Routing,
    head: &Arc<Head>,
    wanted: &Wanted,
    count: Option<u64>,
    began: Instant,
) -> Result<Option<Answer>, Refusal> {
    let left = wanted.wait.saturating_sub(began.elapsed());
    if left.is_zero() {
        return Ok(None);
    }
    let wait_s = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let asked = wanted
        .by_shard
        .iter()
        .map(|(shard, queues)| ask(routing, head, *shard, wanted.body(queues, wait_s, count)));
    let mut waiting: FuturesUnordered<_> = asked.collect();
    while let Some(answer) = waiting.next().await {
        let answer = answer?;
        if answer.status() != StatusCode::NO_CONTENT {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Jobs of several shards: as many as are ready. If none is, waits for the first.
pub(super) async fn many(
    routing: &Routing,
    head: &Arc<Head>,
    wanted: &Wanted,
) -> Result<(Vec<Box<RawValue>>, Vec<Guard>), Refusal> {
    let began = Instant::now();
    let (mut all, mut missed) = (Taken::default(), None);
    let count = wanted.count.unwrap_or(1);
    for (shard, queues) in wanted.shuffled() {
        let left = count.saturating_sub(all.jobs.len() as u64);
        if left == 0 || all.bytes >= MANY_BYTES_MAX {
            break;
        }
        let taken = match ask(routing, head, *shard, wanted.body(queues, 0, Some(left))).await {
            Ok(answer) => all.take(answer, *shard).await,
            Err(missed) => Err(missed.into()),
        };
        // A worker that gets some jobs can ask again for more, and learns then of the refusal.
        if let Err(refusal) = taken {
            missed.get_or_insert(refusal);
        }
    }
    if all.jobs.is_empty() && missed.is_none() {
        let answer = first_that_comes(routing, head, wanted, Some(count), began).await?;
        if let Some(answer) = answer {
            all.take(answer, Shard::FIRST).await?;
        }
    }
    match missed.filter(|_| all.jobs.is_empty()) {
        Some(missed) => Err(missed),
        None => Ok((all.jobs, all.guards)),
    }
}

/// What several shards gave.
#[derive(Default)]
struct Taken {
    jobs: Vec<Box<RawValue>>,
    guards: Vec<Guard>,
    bytes: usize,
}

impl Taken {
    async fn take(&mut self, answer: Answer, shard: Shard) -> Result<(), Refusal> {
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NO_CONTENT => return Ok(()),
            _ => return Err(Refusal::Answer(Box::new(answer.map(Body::new)))),
        }
        let (bytes, guard) = answer.into_body().read().await?;
        let Some(Jobs { jobs }) = said(&bytes) else { return Err(Missed::BrokeOff(shard).into()) };
        self.bytes += bytes.len();
        self.jobs.extend(jobs);
        self.guards.push(guard);
        Ok(())
    }
}
