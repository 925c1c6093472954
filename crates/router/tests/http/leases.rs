//! Jobs for workers from several shards.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::Shutdown;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use spindle_core::JobId;
use spindle_router::Shard;
use spindle_testkit::{wait_until, wait_until_async};
use tower::ServiceExt;

use crate::shards::{Sharded, receive};

fn queues(sharded: &Sharded) -> Vec<String> {
    (0..3).map(|shard| sharded.queue_on(shard, 0)).collect()
}

fn shard_of(job: &Value) -> u8 {
    Shard::of_job(JobId(job["id"].as_u64().unwrap())).0
}

fn ready(sharded: &Sharded, queue: &str) -> Value {
    sharded.get(&format!("/api/v1/queues/{queue}")).json()["jobs"]["ready"].clone()
}

#[test]
fn a_lease_is_of_one_shard_and_its_token_leads_there() {
    let sharded = Sharded::new();
    for shard in 0..3 {
        let queue = sharded.queue_on(shard, 0);
        let id = sharded.submit(json!({ "queue": queue, "payload": "x" }));
        let reply = sharded.post("/api/v1/lease", json!({ "queues": [queue], "worker": "w" }));
        reply.is(200);
        let job = reply.json();
        assert_eq!((&job["id"], &job["payload"]), (&json!(id), &json!("x")));
        let at = format!("/api/v1/leases/{}", job["lease_token"].as_str().unwrap());
        sharded.post(&format!("{at}/extend"), json!({ "ttr_ms": 60_000 })).is(200);
        sharded.post(&format!("{at}/progress"), json!({ "numerator": 1 })).is(204);
        sharded.post(&format!("{at}/complete"), json!({ "result": 7 })).is(204);
        sharded.post(&format!("{at}/complete"), json!({})).is_problem(409, "lease_not_live");
        assert_eq!(sharded.get(&format!("/api/v1/jobs/{id}")).json()["status"], "done");
    }
    sharded.post("/api/v1/leases/x/extend", json!({ "ttr_ms": 1 })).is_problem(400, "out_of_range");
}

#[test]
fn a_worker_gets_jobs_of_whichever_of_its_shards_has_one() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    sharded.post("/api/v1/lease", json!({ "queues": queues })).is(204);
    for queue in &queues {
        sharded.submit(json!({ "queue": queue }));
    }
    let mut from = BTreeSet::new();
    for _ in 0..3 {
        let reply = sharded.post("/api/v1/lease", json!({ "queues": queues }));
        reply.is(200);
        from.insert(shard_of(&reply.json()));
    }
    assert_eq!(from.len(), 3);
    sharded.post("/api/v1/lease", json!({ "queues": queues })).is(204);
}

#[test]
fn a_count_is_filled_from_several_shards() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    for queue in &queues {
        sharded.submit(json!({ "queue": queue }));
        sharded.submit(json!({ "queue": queue }));
    }
    let lease =
        |count: u64| sharded.post("/api/v1/lease", json!({ "queues": queues, "count": count }));
    let four = lease(4).json();
    assert_eq!(four["jobs"].as_array().unwrap().len(), 4);
    let two = lease(100).json();
    assert_eq!(two["jobs"].as_array().unwrap().len(), 2);
    lease(1).is(204);
    // They are leased, and stay so.
    for queue in &queues {
        let queue = sharded.get(&format!("/api/v1/queues/{queue}")).json();
        assert_eq!(queue["jobs"]["leased"], 2);
    }
}

#[test]
fn a_worker_waits_at_all_of_its_shards_and_the_others_hear_when_one_was_first() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    for (shard, count) in [(2, None), (0, None), (1, Some(5))] {
        let mut body = json!({ "queues": queues, "wait_s": 60 });
        if let Some(count) = count {
            body["count"] = json!(count);
        }
        let mut worker = sharded.begin("POST", "/api/v1/lease", "", &body.to_string());
        for each in 0..3 {
            wait_until("a wait at each shard", || sharded.waits(each) == 1);
        }
        let id = sharded.submit(json!({ "queue": queues[shard] }));
        let (status, text) = receive(&mut worker);
        let job: Value = serde_json::from_str(&text).unwrap();
        let job = if count.is_some() { &job["jobs"][0] } else { &job };
        assert_eq!((status, &job["id"]), (200, &json!(id)), "{text}");
        for each in 0..3 {
            wait_until("no wait any more", || sharded.waits(each) == 0);
        }
    }
    // So later jobs are for others.
    for queue in &queues {
        sharded.submit(json!({ "queue": queue }));
        assert_eq!(ready(&sharded, queue), 1);
    }
}

#[test]
fn a_worker_that_hangs_up_while_it_waits_gets_none() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    for asked in [&queues[..1], &queues[..]] {
        let body = json!({ "queues": asked, "wait_s": 60 }).to_string();
        let worker = sharded.begin("POST", "/api/v1/lease", "", &body);
        for each in 0..asked.len() {
            wait_until("a wait", || sharded.waits(each as u8) == 1);
        }
        worker.shutdown(Shutdown::Both).unwrap();
        drop(worker);
        for each in 0..3 {
            wait_until("no wait any more", || sharded.waits(each) == 0);
        }
    }
    sharded.submit(json!({ "queue": queues[0] }));
    assert_eq!(ready(&sharded, &queues[0]), 1);
}

#[test]
fn jobs_that_two_shards_give_at_once_are_not_lost() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    for _ in 0..40 {
        let body = json!({ "queues": queues, "wait_s": 60 }).to_string();
        let mut worker = sharded.begin("POST", "/api/v1/lease", "", &body);
        for each in 0..3 {
            wait_until("a wait at each shard", || sharded.waits(each) == 1);
        }
        // All at once, bypassing the router.
        std::thread::scope(|scope| {
            for (shard, queue) in queues.iter().enumerate() {
                let address = sharded.address_of(shard as u8);
                scope.spawn(move || {
                    let body = json!({ "queue": queue }).to_string();
                    let answer = ureq::post(format!("http://{address}/api/v1/jobs"))
                        .header("content-type", "application/json")
                        .send(body);
                    assert_eq!(answer.unwrap().status(), 201);
                });
            }
        });
        let (status, text) = receive(&mut worker);
        assert_eq!(status, 200, "{text}");
        // One is leased, the others are ready, at once or soon.
        wait_until("two ready jobs", || {
            queues.iter().filter(|queue| ready(&sharded, queue) == 1).count() == 2
        });
        for _ in 0..2 {
            let reply = sharded.post("/api/v1/lease", json!({ "queues": queues }));
            // A job that was given back by a release has had an attempt.
            let attempt = reply.json()["attempt"].clone();
            assert!(attempt == 1 || attempt == 2, "{reply:?}");
        }
        for queue in &queues {
            assert_eq!(ready(&sharded, queue), 0);
        }
    }
}

#[test]
fn an_answer_that_no_connection_takes_gives_its_jobs_back() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (round, body) in [
        json!({ "queues": [queues[1]] }),
        json!({ "queues": queues }),
        json!({ "queues": queues, "count": 2 }),
    ]
    .into_iter()
    .enumerate()
    {
        let id = sharded.submit(json!({ "queue": queues[1] }));
        // Released: the attempt counts.
        runtime.block_on(async {
            let request = Request::post("/api/v1/lease").header("host", "localhost");
            let request = request.body(Body::from(body.to_string())).unwrap();
            let answer = sharded.routes.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), 200, "{round}");
            assert_eq!(ready(&sharded, &queues[1]), 0);
            drop(answer);
            wait_until_async(|| ready(&sharded, &queues[1]) == 1).await;
        });
        let path = format!("/api/v1/jobs/{id}");
        assert_eq!(sharded.get(&path).json()["attempts"], 1);
        sharded.call("DELETE", &path, None).is(204);
    }
}

#[test]
fn reports_go_to_their_shards_and_their_answers_come_in_order() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    let mut ids = Vec::new();
    for queue in queues.iter().chain(&queues) {
        ids.push(sharded.submit(json!({ "queue": queue })));
    }
    let leased = sharded.post("/api/v1/lease", json!({ "queues": queues, "count": 3 })).json();
    let tokens: Vec<&Value> =
        leased["jobs"].as_array().unwrap().iter().map(|job| &job["lease_token"]).collect();
    let body = json!({
        "leases": [
            { "lease_token": tokens[2], "complete": { "result": 1 } },
            { "lease_token": "x", "complete": {} },
            { "lease_token": tokens[0], "extend": { "ttr_ms": 1000 } },
            {},
            { "lease_token": tokens[1], "release": {} },
            { "lease_token": tokens[2], "fail": {} },
        ],
        "lease": { "queues": queues, "count": 2, "worker": "next" },
    });
    let reply = sharded.post("/api/v1/leases/batch", body);
    reply.is(200);
    let answer = reply.json();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(3), &json!(3)));
    let answers = &answer["answers"];
    assert_eq!(answers[0], json!({ "ended": true }));
    assert_eq!(answers[1]["problem"]["code"], "out_of_range");
    assert_eq!(answers[2]["lease_ms"], 1000);
    assert_eq!(answers[3]["problem"]["code"], "bad_field");
    assert_eq!(answers[4], json!({ "ended": true }));
    assert_eq!(answers[5]["problem"]["code"], "lease_not_live");
    assert_eq!(answer["lease"]["jobs"].as_array().unwrap().len(), 2);
    // A lease that is refused takes back no reports.
    let token = &answer["lease"]["jobs"][0]["lease_token"];
    let body = json!({ "leases": [{ "lease_token": token, "release": {} }, { "lease_token": "" }],
        "lease": { "queues": [] } });
    let answer = sharded.post("/api/v1/leases/batch", body).json();
    assert_eq!(answer["answers"][0], json!({ "ended": true }), "{answer}");
    assert_eq!(answer["lease"]["problem"]["code"], "out_of_range", "{answer}");
}

#[test]
fn what_is_wrong_with_a_lease_a_shard_says() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    for (body, code) in [
        (json!({ "queues": [] }), "out_of_range"),
        (json!({ "queues": queues, "wait_s": 301 }), "out_of_range"),
        (json!({ "queues": queues, "count": 0 }), "out_of_range"),
        (json!({ "queues": queues, "count": 101 }), "out_of_range"),
        (json!({ "queues": queues, "timeout_ms": 0 }), "out_of_range"),
        (json!({ "queues": queues, "worker": "w".repeat(257) }), "out_of_range"),
        (json!({ "queues": queues, "unknown": 1 }), "bad_field"),
        (json!({ "queues": [queues[0], queues[1], ""] }), "out_of_range"),
        (json!({ "queues": queues, "queues_base64": ["!"] }), "out_of_range"),
        (json!({ "queues": vec!["q"; 1025] }), "out_of_range"),
        (json!({ "queues": 7 }), "bad_field"),
        (json!([queues]), "bad_field"),
    ] {
        sharded.post("/api/v1/lease", body).is_problem(400, code);
    }
    for text in ["", "{", "\u{0}", "{\"queues\":[\"a\"],\"queues\":[\"b\"]}"] {
        let reply = sharded.send("POST", "/api/v1/lease", &[], Some(text));
        assert_eq!(reply.status, 400, "{reply:?}");
    }
    for body in [json!({ "leases": [] }), json!({ "leases": vec![json!({}); 101] }), json!({})] {
        assert_eq!(sharded.post("/api/v1/leases/batch", body).status, 400);
    }
}

#[test]
fn a_lost_shard_does_not_keep_workers_from_the_jobs_of_others() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    sharded.submit(json!({ "queue": queues[0] }));
    sharded.submit(json!({ "queue": queues[2] }));
    sharded.lose(1);
    let lease = |body: Value| sharded.post("/api/v1/lease", body);
    lease(json!({ "queues": queues })).is(200);
    let jobs = lease(json!({ "queues": queues, "count": 3 })).json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    for body in [json!({ "queues": queues, "wait_s": 60 }), json!({ "queues": [queues[1]] })] {
        let reply = lease(body);
        reply.is_problem(503, "shard_unavailable");
        assert_eq!(reply.json()["shard"], 1);
        assert_eq!(reply.header("retry-after"), "1");
    }
}

#[test]
fn a_shard_that_is_lost_in_a_wait_ends_it() {
    let sharded = Sharded::new();
    let queues = queues(&sharded);
    let body = json!({ "queues": queues, "wait_s": 60 }).to_string();
    let mut worker = sharded.begin("POST", "/api/v1/lease", "Connection: close\r\n", &body);
    for each in 0..3 {
        wait_until("a wait at each shard", || sharded.waits(each) == 1);
    }
    sharded.lose(1);
    let mut text = String::new();
    worker.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 502 ") && text.contains("shard_broke_off"), "{text}");
    wait_until("no wait any more", || sharded.waits(0) + sharded.waits(2) == 0);
}
