//! Numbers of all shards, added up.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use spindle_http::ProblemBody;

use super::asked::{Asked, Head};
use super::flock::written;
use super::lists::with_param;
use super::metrics;
use super::place::said;
use super::router::{Outcome, Routing, json, queue_in};
use super::shards::{Missed, Refusal};
use super::submit::number;
use super::table::Sum;
use crate::Shard;

/// Adds up the numbers of all shards; a request about one queue goes to that queue's shard.
pub(super) async fn sum(routing: &Routing, sum: Sum, asked: Asked) -> Outcome {
    if let (Sum::History | Sum::Failures, Some(queue)) = (sum, queue_in(&asked.head)) {
        let shard = routing.placement.of(&queue);
        return routing.pass(asked, shard).await;
    }
    let head = &asked.head;
    match sum {
        Sum::Server => server(routing, head).await,
        Sum::History => history(routing, head).await,
        Sum::QueuesHistory => queues_history(routing, head).await,
        Sum::Failures => failures(routing, head).await,
        Sum::Metrics => metrics::metrics(routing, head).await,
    }
}

/// The answers of all shards as objects.
pub(super) async fn objects(
    routing: &Routing,
    head: &Head,
) -> Result<Vec<Map<String, Value>>, Refusal> {
    let answers = routing.gather(head, |_| head.query.clone()).await?;
    let read = |(shard, bytes): &(Shard, Bytes)| {
        said(bytes).ok_or_else(|| Refusal::from(Missed::BrokeOff(*shard)))
    };
    answers.iter().map(read).collect()
}

fn count(object: &Map<String, Value>, field: &str) -> u64 {
    object.get(field).and_then(number).unwrap_or(0)
}

pub(super) fn list(object: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    match object.remove(field) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

pub(super) fn objects_of(values: Vec<Value>) -> impl Iterator<Item = Map<String, Value>> {
    values.into_iter().filter_map(|value| match value {
        Value::Object(object) => Some(object),
        _ => None,
    })
}

/// Puts sums of fields into the first of two objects.
pub(super) fn add(to: &mut Map<String, Value>, from: &Map<String, Value>, fields: &[&str]) {
    for field in fields.iter().filter(|field| from.contains_key(**field)) {
        let sum = count(to, field) + count(from, field);
        to.insert((*field).to_owned(), sum.into());
    }
}

/// Puts the higher values of fields into the first of two objects.
pub(super) fn raise(to: &mut Map<String, Value>, from: &Map<String, Value>, fields: &[&str]) {
    for field in fields.iter().filter(|field| from.contains_key(**field)) {
        let most = count(to, field).max(count(from, field));
        to.insert((*field).to_owned(), most.into());
    }
}

/// Points of time of several shards, those of one time added up.
fn points<'a>(of_all: impl Iterator<Item = &'a mut Vec<Value>>) -> Vec<Value> {
    let mut by_time: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for point in of_all.flat_map(|points| objects_of(std::mem::take(points))) {
        let at = point.get("at").and_then(Value::as_str).unwrap_or_default().to_owned();
        match by_time.get_mut(&at) {
            Some(sum) => add_point(sum, &point),
            None => drop(by_time.insert(at, point)),
        }
    }
    by_time.into_values().map(Value::Object).collect()
}

fn add_point(sum: &mut Map<String, Value>, point: &Map<String, Value>) {
    add(sum, point, &["submitted", "done", "failed", "dead", "ready", "commits", "count"]);
    // What is known of the time is known of all shards; of latencies the worst shard's.
    raise(sum, point, &["seen_ms", "commit_p50_us", "commit_p99_us"]);
}

/// `GET /api/v1/history`
async fn history(routing: &Routing, head: &Head) -> Outcome {
    let mut all = objects(routing, head).await?;
    let mut of_all: Vec<Vec<Value>> = all.iter_mut().map(|it| list(it, "points")).collect();
    let mut answer = all.into_iter().next().unwrap_or_default();
    answer.insert("points".to_owned(), points(of_all.iter_mut()).into());
    Ok(json(written(&answer)))
}

pub(super) fn given_limit(head: &Head, usual: usize, most: usize) -> usize {
    let given = head.params("limit").next();
    let given = given.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    given.unwrap_or(usual).clamp(1, most)
}

/// `GET /api/v1/history/queues`
async fn queues_history(routing: &Routing, head: &Head) -> Outcome {
    let mut all = objects(routing, head).await?;
    let mut queues: Vec<Value> = all.iter_mut().flat_map(|it| list(it, "queues")).collect();
    let busy = |queue: &Value| -> u64 {
        let points = queue["points"].as_array().into_iter().flatten().filter_map(Value::as_object);
        let fields = ["submitted", "done", "failed", "dead", "ready"];
        points.map(|point| fields.iter().map(|field| count(point, field)).sum::<u64>()).sum()
    };
    queues.sort_by_cached_key(|queue| std::cmp::Reverse(busy(queue)));
    queues.truncate(given_limit(head, 25, 128));
    let mut answer = all.into_iter().next().unwrap_or_default();
    answer.insert("queues".to_owned(), queues.into());
    Ok(json(written(&answer)))
}

/// `GET /api/v1/failures`: all groups of each shard, since one that is rare on each may be frequent.
async fn failures(routing: &Routing, head: &Head) -> Outcome {
    const MOST: usize = 512;
    let limit = given_limit(head, 50, MOST);
    let is_limit = head
        .params("limit")
        .next()
        .is_none_or(|text| std::str::from_utf8(&text).is_ok_and(|text| text.parse() == Ok(limit)));
    // One that is no limit is for a shard to refuse.
    let most = MOST.to_string();
    let asking = match is_limit {
        true => head.asking(with_param(&head.query, "limit", Some(&most))),
        false => head.clone(),
    };
    let mut all = objects(routing, &asking).await?;
    let mut groups: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for group in all.iter_mut().flat_map(|it| objects_of(list(it, "failures"))) {
        let says = group.get("fingerprint").and_then(Value::as_str).unwrap_or_default().to_owned();
        match groups.get_mut(&says) {
            Some(sum) => add_group(sum, group),
            None => drop(groups.insert(says, group)),
        }
    }
    let mut groups: Vec<Map<String, Value>> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(count(group, "count")));
    groups.truncate(limit);
    let mut answer = all.into_iter().next().unwrap_or_default();
    answer.insert("failures".to_owned(), groups.into());
    Ok(json(written(&answer)))
}

fn add_group(sum: &mut Map<String, Value>, mut group: Map<String, Value>) {
    let last = |group: &Map<String, Value>| {
        group.get("last_at").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if last(&group) > last(sum) {
        for field in ["last_at", "last_job"] {
            if let Some(value) = group.remove(field) {
                sum.insert(field.to_owned(), value);
            }
        }
    }
    let mut trends = [list(sum, "trend"), list(&mut group, "trend")];
    sum.insert("trend".to_owned(), points(trends.iter_mut()).into());
    let mut queues = list(sum, "queues");
    queues.extend(list(&mut group, "queues"));
    queues.sort_by_key(|queue| std::cmp::Reverse(number(&queue["count"])));
    sum.insert("queues".to_owned(), queues.into());
    add(sum, &group, &["count"]);
}

/// `GET /api/v1/server`: what the first shard that answers says of itself, with the jobs of all, and what
/// each says. A shard that cannot be reached is shown as that.
async fn server(routing: &Routing, head: &Head) -> Outcome {
    let shards = routing.placement.shards();
    let asked = shards.map(|shard| routing.read(head, shard, head.query.clone()));
    let answers: Vec<_> = routing.placement.shards().zip(join_all(asked).await).collect();
    let (mut sum, mut each): (Option<Map<String, Value>>, Vec<Value>) = (None, Vec::new());
    let mut missing = None;
    for (shard, answer) in answers {
        match answer {
            Ok((_, bytes)) => {
                let mut one: Map<String, Value> = said(&bytes).ok_or(Missed::BrokeOff(shard))?;
                match &mut sum {
                    Some(sum) => add_server(sum, &one),
                    None => sum = Some(one.clone()),
                }
                one.insert("shard".to_owned(), shard.0.into());
                each.push(Value::Object(one));
            }
            Err(refusal @ Refusal::Answer(_)) => return Err(refusal),
            Err(Refusal::Problem(problem)) => {
                let shown = serde_json::to_value(ProblemBody::from(problem.clone()));
                each.push(json!({ "shard": shard.0, "problem": shown.unwrap_or_default() }));
                missing.get_or_insert(problem);
            }
        }
    }
    let (Some(mut sum), missing) = (sum, missing) else {
        return Err(Missed::BrokeOff(Shard::FIRST).into());
    };
    if let Some(problem) = missing {
        sum.insert("status".to_owned(), problem.code.as_str().into());
    }
    sum.insert("shards".to_owned(), each.into());
    Ok(json(written(&sum)))
}

fn add_server(sum: &mut Map<String, Value>, one: &Map<String, Value>) {
    add(sum, one, &["jobs", "jobs_finished", "queues", "waits", "log_bytes"]);
    for field in ["disk_full", "log_cannot_grow", "clock_held"] {
        if one.get(field) == Some(&true.into()) {
            sum.insert(field.to_owned(), true.into());
        }
    }
    let is_ok = |server: &Map<String, Value>| server.get("status") == Some(&"ok".into());
    if is_ok(sum) && !is_ok(one) {
        sum.insert("status".to_owned(), one.get("status").cloned().unwrap_or_default());
    }
    if let (Some(Value::Object(sum)), Some(Value::Object(one))) =
        (sum.get_mut("last_minute"), one.get("last_minute"))
    {
        add_point(sum, one);
    }
    add_limits(sum, one);
}

/// Each shard has limits of its own: what is shown is the one that is nearest.
fn add_limits(sum: &mut Map<String, Value>, one: &Map<String, Value>) {
    let (Some(Value::Array(limits)), Some(Value::Array(others))) =
        (sum.get_mut("limits"), one.get("limits"))
    else {
        return;
    };
    let share = |limit: &Value| {
        let part = |field: &str| limit[field].as_f64().unwrap_or(0.0);
        part("used") / part("max").max(1.0)
    };
    for other in others {
        match limits.iter_mut().find(|limit| limit["name"] == other["name"]) {
            Some(limit) if share(limit) < share(other) => *limit = other.clone(),
            Some(_) => {}
            None => limits.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn points_of_one_time_are_added_up_and_keep_their_order() {
        let one = json!([{ "at": "03:01", "seen_ms": 900, "submitted": 1, "commit_p99_us": 7 },
            { "at": "03:03", "seen_ms": 1000, "submitted": 2, "commit_p99_us": 1 }]);
        let other = json!([{ "at": "03:01", "seen_ms": 1000, "submitted": 4, "commit_p99_us": 3 },
            { "at": "03:02", "seen_ms": 1000, "submitted": 8 }]);
        let mut all = [one, other].map(|points| points.as_array().unwrap().clone());
        let sum = json!([{ "at": "03:01", "seen_ms": 1000, "submitted": 5, "commit_p99_us": 7 },
            { "at": "03:02", "seen_ms": 1000, "submitted": 8 },
            { "at": "03:03", "seen_ms": 1000, "submitted": 2, "commit_p99_us": 1 }]);
        assert_eq!(Value::from(points(all.iter_mut())), sum);
    }

    #[test]
    fn failures_that_say_the_same_are_one_group() {
        let group = |count: u64, at: &str, job: u64, queue: &str| {
            object(json!({ "fingerprint": "away", "count": count, "last_at": at, "last_job": job,
                "queues": [{ "queue": queue, "count": count }], "step_ms": 60_000,
                "trend": [{ "at": "03:01", "count": count }] }))
        };
        let mut sum = group(2, "03:05", 7, "mail");
        add_group(&mut sum, group(3, "03:04", 9, "sms"));
        add_group(&mut sum, group(1, "03:06", 8, "fax"));
        let expected = json!({ "fingerprint": "away", "count": 6, "last_at": "03:06", "last_job": 8,
            "queues": [{ "queue": "sms", "count": 3 }, { "queue": "mail", "count": 2 },
                { "queue": "fax", "count": 1 }],
            "step_ms": 60_000, "trend": [{ "at": "03:01", "count": 6 }] });
        assert_eq!(Value::Object(sum), expected);
    }

    #[test]
    fn of_servers_the_jobs_are_added_up_and_whatever_is_wrong_is_shown() {
        let mut sum =
            object(json!({ "status": "ok", "disk_full": false, "jobs": 2, "version": "1",
            "limits": [{ "name": "log_bytes", "used": 5, "max": 10 }],
            "last_minute": { "at": "03:01", "submitted": 1 } }));
        let other = json!({ "status": "disk_full", "disk_full": true, "jobs": 3, "version": "2",
            "limits": [{ "name": "log_bytes", "used": 9, "max": 10 }, { "name": "other", "used": 0, "max": 1 }],
            "last_minute": { "at": "03:02", "submitted": 2 } });
        add_server(&mut sum, &object(other));
        let expected = json!({ "status": "disk_full", "disk_full": true, "jobs": 5, "version": "1",
            "limits": [{ "name": "log_bytes", "used": 9, "max": 10 }, { "name": "other", "used": 0, "max": 1 }],
            "last_minute": { "at": "03:01", "submitted": 3 } });
        assert_eq!(Value::Object(sum), expected);
    }
}
