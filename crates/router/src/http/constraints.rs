//! Constraints, which are on all shards, each with the jobs of its own.
//!
//! A constraint's settings are the same everywhere, and clients are shown the first shard's revision of
//! it. Its counts are added up, value by value.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::asked::{Asked, Head};
use super::flock::written;
use super::place::said;
use super::router::{Outcome, Routing, json, whole_if_ok};
use super::shards::{Missed, Refusal, whole};
use super::submit::number;
use super::sums::{add, given_limit, list, objects, objects_of};
use super::table::About;
use crate::Shard;

/// Buckets that are shown with a constraint, as one server does.
const BUCKETS_TOLD: usize = 16;
/// The key of the one bucket that a constraint without `per` has.
const NO_VALUE: &str = "0000000000000000";

type Fields = Map<String, Value>;

/// `PUT /api/v1/constraints/{name}`: by all shards, and shown as `GET` shows it.
pub(super) async fn put(routing: &Routing, asked: Asked) -> Outcome {
    let mut answers = routing.every(asked).await?;
    let (first, answer) = answers.remove(0);
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let mut all = vec![(first, read(first, &whole(body, first).await?)?)];
    for (shard, answer) in answers {
        all.push((shard, read(shard, &whole(answer.into_body(), shard).await?)?));
    }
    Ok(tagged(head.status, &head.headers, joined(routing, all)))
}

/// What is asked about constraints.
pub(super) async fn answer(routing: &Routing, about: About, head: &Head) -> Outcome {
    match about {
        About::Page => page(routing, head).await,
        About::One => show(routing, head).await,
        About::Buckets => buckets(routing, head).await,
        About::Held => held(routing, head).await,
    }
}

/// `GET /api/v1/constraints/{name}`
async fn show(routing: &Routing, head: &Head) -> Outcome {
    let asked = head.with_query(&head.query);
    let answer = routing.shards.send(Shard::FIRST, &head.peer, asked).await?;
    let tag = answer.headers().clone();
    let bytes = whole_if_ok(answer, Shard::FIRST).await?;
    let mut all = vec![(Shard::FIRST, read(Shard::FIRST, &bytes)?)];
    let others = routing.placement.shards().filter(|shard| *shard != Shard::FIRST);
    let others = others.map(|shard| routing.read(head, shard, head.query.clone()));
    for answer in join_all(others).await {
        match answer {
            Ok((shard, bytes)) => all.push((shard, read(shard, &bytes)?)),
            // It is being put or removed just now, or that did not reach every shard.
            Err(Refusal::Answer(answer)) if answer.status() == StatusCode::NOT_FOUND => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(tagged(StatusCode::OK, &tag, joined(routing, all)))
}

/// `GET /api/v1/constraints`: those of the first shard's page.
async fn page(routing: &Routing, head: &Head) -> Outcome {
    let mut pages = objects(routing, head).await?.into_iter();
    let mut page = pages.next().unwrap_or_default();
    let mut by_name: BTreeMap<String, Vec<(Shard, Fields)>> = BTreeMap::new();
    for (shard, mut other) in routing.placement.shards().skip(1).zip(pages) {
        for constraint in objects_of(list(&mut other, "constraints")) {
            by_name.entry(name_of(&constraint)).or_default().push((shard, constraint));
        }
    }
    let first = objects_of(list(&mut page, "constraints"));
    let constraints = first.map(|constraint| {
        let others = by_name.remove(&name_of(&constraint)).unwrap_or_default();
        let all = [(Shard::FIRST, constraint)].into_iter().chain(others);
        Value::Object(joined(routing, all.collect()))
    });
    let constraints = constraints.collect();
    page.insert("constraints".to_owned(), constraints);
    Ok(json(written(&page)))
}

/// `GET /api/v1/constraints/{name}/buckets`
async fn buckets(routing: &Routing, head: &Head) -> Outcome {
    let mut pages = objects(routing, head).await?;
    let pages = pages.iter_mut().map(|page| (list(page, "buckets"), text(page, "next_cursor")));
    let (buckets, next) = added(pages.collect(), given_limit(head, 100, 512));
    let mut page = Fields::new();
    page.insert("buckets".to_owned(), buckets.into());
    if let Some(next) = next {
        page.insert("next_cursor".to_owned(), next.into());
    }
    Ok(json(written(&page)))
}

/// `GET /api/v1/constraints/{name}/held`
async fn held(routing: &Routing, head: &Head) -> Outcome {
    let mut all = objects(routing, head).await?;
    let limit = given_limit(head, 100, 512);
    let mut queues: Vec<Value> = all.iter_mut().flat_map(|it| list(it, "queues")).collect();
    queues.sort_by_key(|queue| std::cmp::Reverse(number(&queue["jobs"])));
    let is_partial =
        queues.len() > limit || all.iter().any(|it| it.get("partial") == Some(&true.into()));
    queues.truncate(limit);
    let mut answer = Fields::new();
    answer.insert("queues".to_owned(), queues.into());
    if is_partial {
        answer.insert("partial".to_owned(), true.into());
    }
    Ok(json(written(&answer)))
}

fn read(shard: Shard, bytes: &[u8]) -> Result<Fields, Refusal> {
    said(bytes).ok_or_else(|| Missed::BrokeOff(shard).into())
}

fn text(fields: &Fields, field: &str) -> Option<String> {
    fields.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn name_of(constraint: &Fields) -> String {
    text(constraint, "name").unwrap_or_default()
}

/// With the first shard's entity tag.
fn tagged(status: StatusCode, headers: &axum::http::HeaderMap, constraint: Fields) -> Response {
    let mut answer = (status, json(written(&constraint))).into_response();
    if let Some(tag) = headers.get(ETAG) {
        answer.headers_mut().insert(ETAG, tag.clone());
    }
    answer
}

/// One constraint, as all shards show it; the first of them says what it is.
fn joined(routing: &Routing, mut all: Vec<(Shard, Fields)>) -> Fields {
    // Only the queue's own shard knows the queue's settings, which notes are about.
    let queue = all.first().and_then(|(_, constraint)| text(constraint, "queue"));
    let home = queue.map_or(Shard::FIRST, |queue| routing.placement.of(queue.as_bytes()));
    let of_home = all.iter().find(|(shard, _)| *shard == home);
    let notes = of_home.and_then(|(_, constraint)| constraint.get("notes").cloned());
    let pages = all.iter_mut().map(|(_, it)| (list(it, "buckets"), text(it, "buckets_cursor")));
    let (buckets, cursor) = added(pages.collect(), BUCKETS_TOLD);
    let mut all = all.into_iter().map(|(_, constraint)| constraint);
    let mut sum = all.next().unwrap_or_default();
    for one in all {
        add(&mut sum, &one, &["buckets_count", "left_out", "relabelled", "remaining"]);
    }
    match notes {
        Some(notes) => drop(sum.insert("notes".to_owned(), notes)),
        None => drop(sum.remove("notes")),
    }
    match cursor {
        Some(cursor) => drop(sum.insert("buckets_cursor".to_owned(), cursor.into())),
        None => {
            sum.remove("buckets_cursor");
            // All values are here, each once even if several shards have it.
            sum.insert("buckets_count".to_owned(), buckets.len().into());
        }
    }
    sum.insert("buckets".to_owned(), buckets.into());
    sum
}

/// Joins pages of buckets, in the order of their values: the numbers of several shards for a value are
/// added up. The joined page ends at the first end of a page whose list goes on.
fn added(pages: Vec<(Vec<Value>, Option<String>)>, limit: usize) -> (Vec<Value>, Option<String>) {
    let end = pages.iter().filter_map(|(_, next)| next.clone()).min();
    let mut by_value: BTreeMap<String, Fields> = BTreeMap::new();
    for bucket in pages.into_iter().flat_map(|(page, _)| objects_of(page)) {
        let value = text(&bucket, "value_hash").unwrap_or_else(|| NO_VALUE.to_owned());
        if end.as_ref().is_some_and(|end| value >= *end) {
            continue;
        }
        match by_value.get_mut(&value) {
            Some(sum) => add_bucket(sum, &bucket),
            None => drop(by_value.insert(value, bucket)),
        }
    }
    let next = by_value.keys().nth(limit).cloned().or(end);
    let buckets = by_value.into_values().take(limit).map(Value::Object).collect();
    (buckets, next)
}

/// A job may start if any shard lets it, or when the first does.
fn add_bucket(sum: &mut Fields, one: &Fields) {
    add(sum, one, &["running", "jobs", "tokens"]);
    let admits = |bucket: &Fields| bucket.get("admits") == Some(&true.into());
    if admits(sum) || admits(one) {
        sum.insert("admits".to_owned(), true.into());
        sum.remove("frees_at");
        return;
    }
    // Times are written so that they compare as texts.
    let frees = [text(sum, "frees_at"), text(one, "frees_at")].into_iter().flatten().min();
    if let Some(frees) = frees {
        sum.insert("frees_at".to_owned(), frees.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn buckets_of_one_value_are_added_up_and_a_page_ends_where_a_shard_goes_on() {
        let bucket = |value: &str, running: u64, admits: bool| json!({ "value_hash": value, "running": running, "jobs": 2, "admits": admits });
        let [a, b, c] = ["000000000000000a", "000000000000000b", "000000000000000c"];
        let pages = || {
            let one = vec![bucket(a, 1, false), bucket(b, 2, true)];
            let other = vec![bucket(a, 2, true), bucket(c, 4, false)];
            vec![(one, Some(c.to_owned())), (other, None)]
        };
        let sum = json!({ "value_hash": a, "running": 3, "jobs": 4, "admits": true });
        let (buckets, next) = added(pages(), 10);
        assert_eq!((buckets, next), (vec![sum.clone(), bucket(b, 2, true)], Some(c.to_owned())));
        assert_eq!(added(pages(), 1), (vec![sum], Some(b.to_owned())));
    }

    #[test]
    fn a_value_that_no_shard_lets_start_frees_when_the_first_does() {
        let bucket = |at: Option<&str>| {
            let mut bucket = json!({ "running": 1, "jobs": 1, "tokens": 0, "admits": false });
            if let Some(at) = at {
                bucket["frees_at"] = at.into();
            }
            (vec![bucket], None)
        };
        let sum = |at: &str| json!({ "running": 2, "jobs": 2, "tokens": 0, "admits": false, "frees_at": at });
        assert_eq!(added(vec![bucket(Some("2")), bucket(Some("1"))], 9), (vec![sum("1")], None));
        assert_eq!(added(vec![bucket(None), bucket(Some("3"))], 9), (vec![sum("3")], None));
    }
}
