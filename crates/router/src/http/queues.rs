//! Requests about one queue, also while it is moving between shards.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::asked::{Asked, Head};
use super::lists::one_queue;
use super::place::said;
use super::router::{Outcome, Routing, json, named_of};
use super::shards::{Refusal, whole};
use super::submit::offer;
use crate::Shard;

/// The routes of a queue in the path. `shards` are those that may have jobs of it; the one that takes its jobs
/// comes last.
pub(super) async fn queue(routing: &Routing, asked: Asked, shards: Vec<Shard>) -> Outcome {
    let shards = named_of(&asked.head, shards)?;
    let only_asks = matches!(asked.head.method, Method::GET | Method::HEAD);
    if let [shard] = shards[..]
        && only_asks
    {
        return routing.pass(asked, shard).await;
    }
    let (head, bytes) = asked.read(routing.limits).await?;
    if shards.len() == 1 {
        return offer(routing, &head, &bytes, &shards).await?.answer(&head);
    }
    let answers = match only_asks {
        true => ask_all(routing, &head, &shards).await?,
        false => change_all(routing, &head, &bytes, &shards).await?,
    };
    // Settings are the same everywhere.
    if head.path.ends_with("/settings") {
        let first = answers.into_iter().next();
        return Ok(first.map_or_else(|| json(Vec::new()), |(_, answer)| answer));
    }
    joined(answers).await
}

/// The answers of all shards; the shard that takes the queue's jobs comes first. The answer of a shard that does
/// not know the queue counts only if no shard knows it.
async fn ask_all(
    routing: &Routing,
    head: &Head,
    shards: &[Shard],
) -> Result<Vec<(Shard, Response)>, Refusal> {
    let (mut known, mut unknown) = (Vec::new(), None);
    for shard in shards.iter().rev() {
        let answer = routing.pass_read(head, Bytes::new(), *shard).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => drop(unknown.get_or_insert((*shard, answer))),
            status if status.is_success() => known.push((*shard, answer)),
            _ => return Err(Refusal::Answer(Box::new(answer))),
        }
    }
    if known.is_empty() {
        known.extend(unknown);
    }
    Ok(known)
}

/// Has all shards do the same, beginning with the shard that takes the queue's jobs. The request's conditions are
/// sent to that shard only.
async fn change_all(
    routing: &Routing,
    head: &Head,
    bytes: &Bytes,
    shards: &[Shard],
) -> Result<Vec<(Shard, Response)>, Refusal> {
    let mut answers = Vec::new();
    let mut head = head.clone();
    for shard in shards.iter().rev() {
        let answer = routing.pass_read(&head, bytes.clone(), *shard).await?;
        if !answer.status().is_success() {
            return Err(Refusal::Answer(Box::new(answer)));
        }
        answers.push((*shard, answer));
        head = head.unconditional();
    }
    Ok(answers)
}

/// One answer, with the numbers of all.
async fn joined(answers: Vec<(Shard, Response)>) -> Outcome {
    let mut sum: Option<(axum::http::response::Parts, Bytes)> = None;
    for (shard, answer) in answers {
        let (parts, body) = answer.into_parts();
        let body = whole(body, shard).await?;
        sum = Some(match sum {
            None => (parts, body),
            Some((parts, first)) => {
                let both = said::<Box<RawValue>>(&first).zip(said::<Box<RawValue>>(&body));
                let body = both.map_or(first, |(first, other)| {
                    one_queue(&first, &other).get().to_owned().into_bytes().into()
                });
                (parts, body)
            }
        });
    }
    Ok(match sum {
        Some((mut parts, body)) => {
            parts.headers.remove(axum::http::header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(body))
        }
        None => json(Vec::new()),
    })
}
