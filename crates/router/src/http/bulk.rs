//! The same action on many jobs, wherever they are: one shard after the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_http::{Code, Problem};

use super::asked::{Asked, Head};
use super::flock::written;
use super::lists::shard_of_jobs;
use super::place::{queue_of, said};
use super::router::{Outcome, Routing, json, name_a_shard, whole_if_ok};
use super::shards::{Missed, Refusal};
use super::submit::read;
use crate::{Placement, Shard};

/// After this time no further shard is asked: the answer says where to go on.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The fields of a bulk action that say where its jobs are.
#[derive(Deserialize)]
struct BulkSaid {
    #[serde(default)]
    filter: FilterSaid,
    cursor: Option<String>,
    queue: Option<String>,
    queue_base64: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FilterSaid {
    ids: Option<String>,
    batch: Option<String>,
    queue: Option<String>,
    queue_base64: Option<String>,
    deleted_by: Option<String>,
}

impl FilterSaid {
    fn shard(&self, placement: &Placement) -> Option<Shard> {
        let queue = queue_of(self.queue.as_deref(), self.queue_base64.as_deref());
        shard_of_jobs(placement, queue.as_deref(), self.batch.as_deref(), self.ids.as_deref())
    }
}

/// `POST /api/v1/jobs/bulk`
pub(super) async fn bulk(routing: &Routing, asked: Asked) -> Outcome {
    let (head, bytes) = asked.read(routing.limits).await?;
    let Some(said) = read::<BulkSaid>(&bytes).await else {
        return routing.pass_read(&head, bytes, head.shard.unwrap_or(Shard::FIRST)).await;
    };
    let placement = &routing.placement;
    let to = queue_of(said.queue.as_deref(), said.queue_base64.as_deref());
    let to = to.map(|queue| placement.of(&queue));
    let of = head.shard.or_else(|| said.filter.shard(placement));
    if let Some(to) = to.filter(|to| of != Some(*to)) {
        return Err(stays(to).into());
    }
    if let Some(shard) = of {
        let answer = routing.pass_read(&head, bytes, shard).await?;
        return saying_shard(answer, shard).await;
    }
    if said.filter.deleted_by.is_some() {
        let why = "requests that delete are numbered by each shard for itself; name a queue or jobs in \
                   the filter, or";
        return Err(name_a_shard(why).into());
    }
    all(routing, &head, &bytes, said.cursor.as_deref()).await
}

/// One shard's answer. The number of a deletion is the shard's own, so the shard is named with it.
async fn saying_shard(answer: Response, shard: Shard) -> Outcome {
    if answer.status() != StatusCode::OK {
        return Ok(answer);
    }
    let bytes = whole_if_ok(answer, shard).await?;
    let mut done: Done = said(&bytes).ok_or(Missed::BrokeOff(shard))?;
    done.shard = done.deletion.as_ref().map(|_| shard.0);
    Ok(json(written(&done)))
}

fn stays(to: Shard) -> Problem {
    let detail = format!(
        "the queue that jobs are to be moved to is on shard {to}: jobs stay on their shard, so the \
         filter has to name a queue or jobs of it, or the request ?shard={to}"
    );
    Problem::new(Code::SeveralShards, detail).with("shard", to.0)
}

/// What one shard, or several, did.
#[derive(Default, Serialize, Deserialize)]
struct Done {
    dry_run: bool,
    matched: u64,
    changed: u64,
    refused: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deletion: Option<Box<RawValue>>,
    /// The shard whose request the deletion is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Asks all shards from the cursor on. A deletion that can be undone is one shard's, so the answer ends
/// with that shard.
async fn all(routing: &Routing, head: &Head, bytes: &Bytes, cursor: Option<&str>) -> Outcome {
    let (mut shard, mut cursor) = match cursor {
        None => (Shard::FIRST, None),
        Some(cursor) => read_cursor(cursor, &routing.placement)?,
    };
    let (mut all, began) = (Done::default(), Instant::now());
    loop {
        let done = one(routing, head, with_cursor(bytes, cursor.take()), shard).await?;
        all.dry_run = done.dry_run;
        all.matched += done.matched;
        all.changed += done.changed;
        for (code, count) in done.refused {
            *all.refused.entry(code).or_default() += count;
        }
        let next = Shard(shard.0.saturating_add(1));
        let next = Some(next).filter(|next| routing.placement.has(*next) && *next != shard);
        all.next_cursor = match (done.next_cursor, next) {
            (Some(cursor), _) => Some(format!("{shard}.{cursor}")),
            (None, Some(next)) => Some(format!("{next}.")),
            (None, None) => None,
        };
        if done.deletion.is_some() {
            all.deletion = done.deletion;
            all.shard = Some(shard.0);
        }
        let goes_on = all.next_cursor.as_deref().is_some_and(|cursor| cursor.ends_with('.'));
        match next {
            Some(next) if goes_on && all.deletion.is_none() && began.elapsed() < TIME_MAX => {
                shard = next;
            }
            _ => return Ok(json(written(&all))),
        }
    }
}

async fn one(routing: &Routing, head: &Head, bytes: Bytes, shard: Shard) -> Result<Done, Refusal> {
    let answer = routing.pass_read(head, bytes, shard).await?;
    let bytes = whole_if_ok(answer, shard).await?;
    said(&bytes).ok_or_else(|| Missed::BrokeOff(shard).into())
}

/// The body with another cursor.
fn with_cursor(bytes: &Bytes, cursor: Option<String>) -> Bytes {
    let fields: Option<IndexMap<String, Box<RawValue>>> = said(bytes);
    let Some(mut fields) = fields else { return bytes.clone() };
    fields.shift_remove("cursor");
    if let Some(cursor) = cursor.and_then(|cursor| to_raw_value(&cursor).ok()) {
        fields.insert("cursor".to_owned(), cursor);
    }
    written(&fields).into()
}

fn read_cursor(text: &str, placement: &Placement) -> Result<(Shard, Option<String>), Problem> {
    let read = text.split_once('.').and_then(|(shard, cursor)| {
        let shard = shard.parse().ok().map(Shard).filter(|shard| placement.has(*shard))?;
        Some((shard, Some(cursor.to_owned()).filter(|cursor| !cursor.is_empty())))
    });
    read.ok_or_else(|| Problem::out_of_range("cursor is the next_cursor of the request before"))
}
