//! Queues that move between shards.

use std::collections::HashMap;

use serde_json::{Value, json};
use spindle_core::{Command, JobId};
use spindle_router::{Shard, Spread};
use spindle_testkit::wait_until;

use crate::shards::{Sharded, receive};

/// Tells the first shard and the router that a queue has moved to the second shard.
fn move_queue(sharded: &Sharded, queue: &str) {
    let name = || bytes::Bytes::copy_from_slice(queue.as_bytes());
    let know = Command::KnowPlace { queue: name(), version: 1, shard: 1, settings: None };
    for shard in [0, 1] {
        sharded.engines[shard].moves().go_on(&know);
    }
    sharded.engines[0].moves().go_on(&Command::SealQueue { queue: name(), version: 1 });
    let spread = Spread { drains: Some(Shard(0)), to: Shard(1), is_open: true };
    assert!(sharded.placement.set_moved(HashMap::from([(name(), spread)])));
}

fn shard_of(job: &Value) -> u8 {
    Shard::of_job(JobId(job["id"].as_u64().unwrap_or_else(|| panic!("{job}")))).0
}

#[test]
fn a_job_comes_to_the_new_shard_unless_it_belongs_to_what_is_on_the_old_one() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(0, 0);
    let key = [("idempotency-key", "order-4711")];
    let body = json!({ "queue": queue }).to_string();
    let first = sharded.send("POST", "/api/v1/jobs", &key, Some(&body)).json();
    let batch = sharded.post("/api/v1/batches", json!({ "queue": queue })).json();
    move_queue(&sharded, &queue);

    let again = sharded.send("POST", "/api/v1/jobs", &key, Some(&body)).json();
    assert_eq!((&again["id"], &again["existing"]), (&first["id"], &json!(true)));
    let new = sharded.post("/api/v1/jobs", json!({ "queue": queue })).json();
    assert_eq!(shard_of(&new), 1);
    for bound in [
        json!({ "queue": queue, "after": [first["id"]] }),
        json!({ "queue": queue, "batch": batch["id"] }),
    ] {
        assert_eq!(shard_of(&sharded.post("/api/v1/jobs", bound).json()), 0);
    }
    let opened = sharded.post("/api/v1/batches", json!({ "queue": queue })).json();
    assert_eq!(shard_of(&opened), 1);
    let refused = json!({ "queue": queue, "after": [first["id"], new["id"]] });
    sharded.post("/api/v1/jobs", refused).is_problem(422, "several_shards");
    sharded
        .post("/api/v1/jobs?shard=0", json!({ "queue": queue }))
        .is_problem(422, "several_shards");
    sharded
        .post("/api/v1/jobs?shard=2", json!({ "queue": queue }))
        .is_problem(422, "several_shards");
    // A wrong field is reported as usual.
    let wrong = json!({ "queue": queue, "ttl_ms": 0 });
    sharded.post("/api/v1/jobs", wrong).is_problem(400, "out_of_range");
}

#[test]
fn of_a_move_that_a_node_has_not_heard_of_its_clients_are_told_to_ask_again() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(0, 0);
    let first = sharded.post("/api/v1/jobs", json!({ "queue": queue })).json();
    move_queue(&sharded, &queue);
    sharded.placement.set_moved(HashMap::new());
    let job = || json!({ "queue": queue });
    sharded.post("/api/v1/jobs", job()).is_problem(503, "shard_unavailable");
    sharded.post("/api/v1/batches", job()).is_problem(503, "shard_unavailable");
    sharded.post("/api/v1/jobs?shard=0", job()).is_problem(422, "several_shards");
    let bound = json!({ "queue": queue, "after": [first["id"]] });
    assert_eq!(shard_of(&sharded.post("/api/v1/jobs", bound.clone()).json()), 0);

    // With many jobs: one shard's answer, and two shards' answers joined.
    let other = sharded.queue_on(2, 0);
    for (jobs, taken) in [
        (vec![job(), bound.clone()], vec![1]),
        (
            vec![job(), bound, json!({ "queue": other }), json!({ "queue": other, "ttl_ms": 0 })],
            vec![1, 2],
        ),
    ] {
        let answer = sharded.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).json();
        let answers = answer["answers"].as_array().unwrap();
        assert_eq!(
            (&answer["taken"], answers.len()),
            (&json!(taken.len()), jobs.len()),
            "{answer}"
        );
        assert_eq!(answers[0]["problem"]["code"], "shard_unavailable", "{answer}");
        let is_taken = |place: &usize| answers[*place]["id"].is_u64();
        assert!(taken.iter().all(is_taken), "{answer}");
    }
    let named = sharded.post("/api/v1/jobs/batch?shard=0", json!({ "jobs": [job()] })).json();
    assert_eq!(named["answers"][0]["problem"]["code"], "several_shards", "{named}");

    let schedule = json!({ "expression": "@daily", "job": job() });
    let path = "/api/v1/schedules/hourly";
    sharded.call("PUT", path, Some(schedule.clone())).is_problem(503, "shard_unavailable");
    let all = json!({ "schedules": { "hourly": schedule } });
    sharded.call("PUT", "/api/v1/schedules", Some(all)).is_problem(503, "shard_unavailable");
}

#[test]
fn settings_of_a_queue_that_has_gone_elsewhere_are_to_be_sent_again() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(0, 0);
    move_queue(&sharded, &queue);
    let know = Command::LeaveQueue { queue: queue.clone().into(), version: 1 };
    sharded.engines[0].moves().go_on(&know);
    sharded.placement.set_moved(HashMap::new());
    let settings = json!({ "ttr_default_ms": 5000 });
    let path = format!("/api/v1/queues/{queue}/settings");
    sharded.call("PUT", &path, Some(settings)).is_problem(503, "shard_unavailable");
}

#[test]
fn of_many_jobs_each_comes_to_where_it_belongs() {
    let sharded = Sharded::new();
    let [queue, other] = [0, 2].map(|shard| sharded.queue_on(shard, 0));
    let path = "/api/v1/jobs/batch";
    let before = json!({ "jobs": [{ "queue": queue }, { "queue": other }] }).to_string();
    let key = [("idempotency-key", "a")];
    let first = sharded.send("POST", path, &key, Some(&before)).json();
    move_queue(&sharded, &queue);
    let jobs = json!([
        { "queue": queue, "ref": "a" },
        { "queue": other },
        { "queue": queue, "after": ["a"] },
        { "queue": queue, "after": [first["answers"][0]["id"]] },
        { "queue": queue, "ttl_ms": 0 },
        { "queue": other, "after": ["a"] },
    ]);
    let reply = sharded.post(path, json!({ "jobs": jobs }));
    reply.is(200);
    let answer = reply.json();
    let answers = answer["answers"].as_array().unwrap();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(4), &json!(2)), "{answer}");
    assert_eq!([0, 1, 2, 3].map(|place: usize| shard_of(&answers[place])), [1, 2, 1, 0]);
    let code = |place: usize| answers[place]["problem"]["code"].as_str().unwrap();
    assert_eq!((code(4), code(5)), ("out_of_range", "several_shards"));
    // The same request again gives the same jobs, wherever they are.
    let again = sharded.send("POST", path, &key, Some(&before)).json();
    for place in [0, 1] {
        assert_eq!(again["answers"][place]["id"], first["answers"][place]["id"]);
        assert_eq!(again["answers"][place]["existing"], true);
    }
}

#[test]
fn workers_get_the_jobs_of_both_shards() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(0, 0);
    let old = sharded.submit(json!({ "queue": queue }));
    move_queue(&sharded, &queue);
    let new = sharded.submit(json!({ "queue": queue }));
    let leased = sharded.post("/api/v1/lease", json!({ "queues": [queue], "count": 10 })).json();
    let jobs = leased["jobs"].as_array().unwrap();
    let mut ids: Vec<u64> = jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [old, new]);
    for job in jobs {
        let token = job["lease_token"].as_str().unwrap();
        sharded.post(&format!("/api/v1/leases/{token}/complete"), json!({})).is(204);
    }
}

#[test]
fn a_worker_that_waits_is_to_ask_again_when_its_queue_moves() {
    let sharded = Sharded::new();
    let [queue, other] = [0, 1].map(|shard| sharded.queue_on(shard, 0));
    for (queues, shards) in [(vec![&queue], 1), (vec![&queue, &other], 2)] {
        sharded.placement.set_moved(HashMap::new());
        let body = json!({ "queues": queues, "wait_s": 300 }).to_string();
        let mut worker = sharded.begin("POST", "/api/v1/lease", "", &body);
        let waits = || (0..shards).all(|shard| sharded.waits(shard) == 1);
        wait_until("it waits", waits);
        // A move of another queue is no matter to it.
        let unasked = bytes::Bytes::from(sharded.queue_on(2, 0));
        let elsewhere = Spread { drains: Some(Shard(2)), to: Shard(0), is_open: true };
        sharded.placement.set_moved(HashMap::from([(unasked, elsewhere)]));
        assert!(waits());
        let spread = Spread { drains: Some(Shard(0)), to: Shard(2), is_open: true };
        let moved = HashMap::from([(bytes::Bytes::from(queue.clone()), spread)]);
        sharded.placement.set_moved(moved);
        assert_eq!(receive(&mut worker).0, 204);
        wait_until("nobody waits any more", || (0..3).all(|shard| sharded.waits(shard) == 0));
    }
}

#[test]
fn a_queue_is_shown_as_one_and_what_is_set_holds_on_both_shards() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(0, 0);
    let path = format!("/api/v1/queues/{queue}");
    sharded.submit(json!({ "queue": queue }));
    move_queue(&sharded, &queue);
    // Only one of them knows it.
    assert_eq!(sharded.get(&path).json()["jobs"]["ready"], 1);
    for _ in 0..2 {
        sharded.submit(json!({ "queue": queue }));
    }
    assert_eq!(sharded.get(&path).json()["jobs"]["ready"], 3);
    let listed = sharded.get("/api/v1/queues").json();
    let listed = listed["queues"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["jobs"]["ready"]), (1, &json!(3)));
    let jobs = sharded.get(&format!("/api/v1/jobs?queue={queue}")).json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 3);
    sharded.post(&format!("{path}/pause"), json!({})).is(200);
    for shard in ["", "?shard=0", "?shard=1"] {
        assert_eq!(sharded.get(&format!("{path}{shard}")).json()["paused"], true, "{shard}");
    }
    let settings = json!({ "ttr_default_ms": 5000 });
    sharded.call("PUT", &format!("{path}/settings"), Some(settings)).is(200);
    for shard in ["", "?shard=0", "?shard=1"] {
        let shown = sharded.get(&format!("{path}/settings{shard}")).json();
        assert_eq!(shown["ttr_default_ms"], 5000, "{shard}");
    }
    let purged = sharded.post(&format!("{path}/purge"), json!({}));
    purged.is(200);
    assert_eq!(purged.json()["deleted"], 3);
    sharded.get(&format!("{path}?shard=2")).is_problem(422, "several_shards");
}

#[test]
fn people_move_queues_on_the_first_shards_map() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(1, 0);
    let path = format!("/api/v1/queues/{queue}/move");
    let moved = sharded.post(&format!("{path}?to=2"), json!({}));
    moved.is(202);
    assert_eq!(moved.json(), json!({ "name": queue, "shard": 2, "drains": 1 }));
    sharded.post(&format!("{path}?to=2"), json!({})).is(202);
    sharded.post(&format!("{path}?to=0"), json!({})).is_problem(503, "busy");
    sharded.post(&format!("{path}?to=3"), json!({})).is_problem(400, "out_of_range");
    sharded.post(&path, json!({})).is_problem(400, "bad_field");
    sharded.post("/api/v1/queues/jobq/move?to=1", json!({})).is_problem(400, "bad_request");
}
