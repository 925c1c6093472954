//! Lists of jobs.

use axum::http::Method;
use serde_json::{Value, json};

use crate::bench::Bench;

async fn ids(bench: &Bench, query: &str) -> Vec<u64> {
    let page = bench.get(&format!("/api/v1/jobs{query}")).await.json();
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

/// Four jobs in each status, two in each of two queues.
async fn crowd(bench: &Bench) {
    for queue in ["a", "b"] {
        bench.submit(json!({ "queue": queue, "payload": 1, "tags": ["red"] })).await;
        bench.submit(json!({ "queue": queue, "run_at": "2030-01-01T00:00:00Z" })).await;
        bench.submit(json!({ "queue": queue, "parked": true, "tags": ["red", "big"] })).await;
        let dead = bench.submit(json!({ "queue": queue, "tags": ["big"] })).await;
        bench.call(Method::POST, &format!("/api/v1/jobs/{dead}/cancel")).await;
    }
}

#[tokio::test]
async fn jobs_are_listed_by_queue_status_and_tag() {
    let bench = Bench::new();
    crowd(&bench).await;
    assert_eq!(ids(&bench, "").await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ids(&bench, "?queue=a").await, [1, 2, 3, 4]);
    assert_eq!(ids(&bench, "?queue_base64=Yg==").await, [5, 6, 7, 8]);
    assert_eq!(ids(&bench, "?status=dead").await, [4, 8]);
    assert_eq!(ids(&bench, "?status=dead&queue=b").await, [8]);
    assert_eq!(ids(&bench, "?status=scheduled").await, [2, 6]);
    assert_eq!(ids(&bench, "?tag=big").await, [3, 4, 7, 8]);
    assert_eq!(ids(&bench, "?tag=big&status=parked&queue=a").await, [3]);
    assert_eq!(ids(&bench, "?queue=c").await, [0; 0]);
}

#[tokio::test]
async fn a_list_leaves_out_what_is_large_and_tells_the_rest() {
    let bench = Bench::new();
    crowd(&bench).await;
    let page = bench.get("/api/v1/jobs?limit=1").await.json();
    let job = &page["jobs"][0];
    assert_eq!((&job["payload"], &job["payload_bytes"]), (&Value::Null, &json!(1)));
    assert_eq!((&job["queue"], &job["tags"]), (&json!("a"), &json!(["red"])));
    let page = bench.get("/api/v1/jobs?status=dead").await.json();
    assert_eq!(page["jobs"][0]["result"]["code"], "cancelled");
    assert_eq!(page["next_cursor"], Value::Null);
}

#[tokio::test]
async fn pages_follow_each_other_without_a_gap() {
    let bench = Bench::new();
    crowd(&bench).await;
    let mut seen = Vec::new();
    let mut path = "/api/v1/jobs?limit=3".to_owned();
    loop {
        let page = bench.get(&path).await.json();
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 3);
        seen.extend(jobs.iter().map(|job| job["id"].as_u64().unwrap()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/jobs?limit=3&cursor={cursor}");
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn a_long_walk_ends_with_a_cursor_and_finds_everything_in_the_end() {
    let bench = Bench::new();
    // More than one request walks: 40 steps of 512.
    let count = 21_000;
    let job = |queue: &'static str| {
        let place = spindle_core::BytesRef::empty(spindle_core::Type::Bytes);
        let origin = spindle_core::job::Origin::Api;
        let id = spindle_core::JobId(0);
        let submit = spindle_core::command::Submit::new(id, queue.as_bytes().into(), origin, place);
        let kind = spindle_core::Type::Bytes;
        spindle_engine::NewJob { submit, payload: b""[..].into(), kind }
    };
    for _ in 1..count {
        bench.engine.submit(job("q")).unwrap();
    }
    bench.engine.submit(job("rare")).unwrap();
    bench.engine.nudge();
    let page = bench.get("/api/v1/jobs?queue=rare").await.json();
    assert_eq!(page["jobs"], json!([]));
    let cursor = page["next_cursor"].as_str().expect("there is more to look through");
    assert_eq!(ids(&bench, &format!("?queue=rare&cursor={cursor}")).await, [count]);
}

#[tokio::test]
async fn what_a_list_gets_wrong_is_told() {
    let bench = Bench::new();
    for query in [
        "?limit=0",
        "?limit=1001",
        "?status=asleep",
        "?queue=",
        "?cursor=x",
        "?cursor=-1",
        "?cursor=%2B1",
        "?queue_base64=!",
        "?status=Ready",
    ] {
        let told = bench.get(&format!("/api/v1/jobs{query}")).await;
        assert_eq!(told.json()["code"], "out_of_range", "{query}");
        told.is_problem(400, "out_of_range");
    }
    for query in ["?limit=many", "?colour=red", "?queue=a&queue_base64=YQ=="] {
        bench.get(&format!("/api/v1/jobs{query}")).await.is_problem(400, "bad_field");
    }
    assert_eq!(ids(&bench, "?limit=1000").await, [0; 0]);
}
