//! Jobq's lists, queries and polls. Its jobs are on the shards of their queues; those that were created
//! without one are on the first.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::asked::{Asked, Head};
use super::flock::written;
use super::place::said;
use super::router::{Outcome, Routing, json, whole_if_ok};
use super::shards::{Missed, Refusal};
use crate::Shard;

/// The parameters of a list. Shards refuse any that cannot be read here.
#[derive(Default, Deserialize)]
struct Wanted {
    limit: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Listed {
    jobs: Vec<Box<RawValue>>,
}

/// Jobs in the order of their numbers, which is the order of the shards: one shard after the other is asked,
/// until there are as many as are wanted.
pub(super) async fn list(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let wanted: Wanted = said(&bytes).unwrap_or_default();
    let mut left =
        wanted.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut jobs = Vec::new();
    for shard in routing.placement.shards() {
        if left == 0 && shard != Shard::FIRST {
            break;
        }
        let mut more = listed(routing, &head, &bytes, shard).await?;
        more.truncate(left);
        left -= more.len();
        jobs.append(&mut more);
    }
    Ok(json(written(&Listed { jobs })))
}

async fn listed(
    routing: &Routing,
    head: &Head,
    bytes: &Bytes,
    shard: Shard,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let answer = routing.pass_read(head, bytes.clone(), shard).await?;
    let text = whole_if_ok(answer, shard).await?;
    let listed: Listed = said(&text).ok_or(Missed::BrokeOff(shard))?;
    Ok(listed.jobs)
}

/// The first job that matches, of all shards in random order: so that no shard's jobs always come last.
pub(super) async fn poll(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let random = RandomState::new();
    let mut order: Vec<Shard> = routing.placement.shards().collect();
    order.sort_by_cached_key(|shard| random.hash_one(shard));
    routing.find_among(&order, &head, bytes).await
}
