//! Schedules: each is on the shard of its jobs' queue, and no name is on two.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use futures_util::future::join_all;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_http::{Code, Problem};

use super::asked::{Asked, Head};
use super::flock::written;
use super::lists::with_param;
use super::place::{QueueNamed, said};
use super::router::{Outcome, Routing, check_named, json, whole_if_ok};
use super::shards::{Missed, Refusal};
use super::submit::{offer, read};
use crate::{Placement, Shard};

/// The fields of a schedule that say where its jobs are.
#[derive(Deserialize)]
struct ScheduleSaid {
    job: QueueNamed,
}

/// `PUT /api/v1/schedules/{name}`
pub(super) async fn put(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let schedule = read::<ScheduleSaid>(&bytes).await;
    let Some(shard) = schedule.and_then(|it| it.job.shard(&routing.placement)) else {
        return routing.pass_read(&head, bytes, Shard::FIRST).await;
    };
    check_named(&head, shard)?;
    let others = routing.placement.shards().filter(|other| *other != shard);
    let looked = others.map(|other| check_absent(routing, &head, other, shard));
    join_all(looked).await.into_iter().collect::<Result<(), Refusal>>()?;
    offer(routing, &head, &bytes, &[shard]).await?.answer(&head)
}

/// Refuses a schedule whose name another shard has.
async fn check_absent(
    routing: &Routing,
    head: &Head,
    other: Shard,
    shard: Shard,
) -> Result<(), Refusal> {
    let request = head.other(Method::GET, &head.path, Bytes::new());
    let answer = routing.shards.send(other, &head.peer, request).await?;
    match answer.status() {
        StatusCode::NOT_FOUND => Ok(()),
        StatusCode::OK => {
            let detail = format!(
                "the schedule is on shard {other}, and the queue of its jobs would be on shard {shard}: \
                 remove it first"
            );
            Err(Problem::new(Code::SeveralShards, detail).with("shard", other.0).into())
        }
        _ => Err(Refusal::Answer(Box::new(answer))),
    }
}

/// All schedules that there are to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    schedules: IndexMap<String, Box<RawValue>>,
}

#[derive(Serialize)]
struct Part<'a> {
    schedules: IndexMap<&'a str, &'a RawValue>,
}

/// What a set of schedules changed.
#[derive(Default, Serialize, Deserialize)]
struct Applied {
    created: BTreeSet<String>,
    changed: BTreeSet<String>,
    removed: BTreeSet<String>,
    unchanged: u64,
}

/// `PUT /api/v1/schedules`: all shards are asked first what would change, so that nothing changes when
/// one of them refuses its part.
pub(super) async fn apply(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let Some(set) = read::<Set>(&bytes).await else {
        return routing.pass_read(&head, bytes, head.shard.unwrap_or(Shard::FIRST)).await;
    };
    let parts = parts(&set, &routing.placement);
    if let Some(named) = head.shard {
        for (shard, part) in &parts {
            if !part.schedules.is_empty() {
                check_named(&head, *shard)?;
            }
        }
        return routing.pass_read(&head, bytes, named).await;
    }
    let bodies: Vec<(Shard, Bytes)> =
        parts.iter().map(|(shard, part)| (*shard, written(part).into())).collect();
    let would = head.asking(with_param(&head.query, "dry_run", Some("true")));
    let applied = all(routing, &would, &bodies).await?;
    if head.params("dry_run").next().as_deref() == Some(b"true") {
        return Ok(json(written(&applied)));
    }
    Ok(json(written(&all(routing, &head, &bodies).await?)))
}

/// Each shard's part, also for shards that are to have no schedules.
fn parts<'a>(set: &'a Set, placement: &Placement) -> BTreeMap<Shard, Part<'a>> {
    let none = |shard| (shard, Part { schedules: IndexMap::new() });
    let mut parts: BTreeMap<Shard, Part<'_>> = placement.shards().map(none).collect();
    for (name, schedule) in &set.schedules {
        let shard = said::<ScheduleSaid>(schedule.get().as_bytes());
        let shard = shard.and_then(|it| it.job.shard(placement)).unwrap_or(Shard::FIRST);
        if let Some(part) = parts.get_mut(&shard) {
            part.schedules.insert(name, schedule);
        }
    }
    parts
}

async fn all(
    routing: &Routing,
    head: &Head,
    bodies: &[(Shard, Bytes)],
) -> Result<Applied, Refusal> {
    let mut all = Applied::default();
    for (shard, body) in bodies {
        let answer = offer(routing, head, body, &[*shard]).await?.answer(head)?;
        let bytes = whole_if_ok(answer, *shard).await?;
        let one: Applied = said(&bytes).ok_or(Missed::BrokeOff(*shard))?;
        all.created.extend(one.created);
        all.changed.extend(one.changed);
        all.removed.extend(one.removed);
        all.unchanged += one.unchanged;
    }
    // A schedule whose jobs now are in a queue of another shard.
    let moved: Vec<String> = all.created.intersection(&all.removed).cloned().collect();
    for name in moved {
        all.created.remove(&name);
        all.removed.remove(&name);
        all.changed.insert(name);
    }
    Ok(all)
}
