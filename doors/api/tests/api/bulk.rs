//! The same action on all jobs that a filter means.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Bench, Reply};

async fn bulk(bench: &Bench, body: Value) -> Reply {
    bench.post("/api/v1/jobs/bulk", body).await
}

async fn count(bench: &Bench, query: &str) -> usize {
    let page = bench.get(&format!("/api/v1/jobs?limit=1000&{query}")).await.json();
    page["jobs"].as_array().unwrap().len()
}

async fn submit_many(bench: &Bench, queue: &str, count: usize) {
    let jobs: Vec<Value> = (0..count).map(|_| json!({ "queue": queue })).collect();
    let answer = bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await;
    assert_eq!(answer.json()["taken"], count);
}

#[tokio::test]
async fn what_is_counted_first_is_what_is_done_then() {
    let bench = Bench::new();
    submit_many(&bench, "a", 300).await;
    submit_many(&bench, "b", 10).await;
    bench.lease("a").await;
    bench.call(Method::POST, "/api/v1/jobs/5/cancel").await;
    let ask = |dry_run: bool| json!({ "filter": { "queue": "a" }, "action": "cancel", "dry_run": dry_run });
    let counted = bulk(&bench, ask(true)).await.json();
    let expected = json!({
        "dry_run": true, "matched": 300, "changed": 299, "refused": { "job_finished": 1 },
    });
    assert_eq!(counted, expected);
    assert_eq!(count(&bench, "status=dead").await, 1, "nothing was done");
    let done = bulk(&bench, ask(false)).await.json();
    assert_eq!((&done["changed"], &done["refused"]), (&counted["changed"], &counted["refused"]));
    assert_eq!(count(&bench, "queue=a&status=dead").await, 300);
    assert_eq!(count(&bench, "queue=b&status=ready").await, 10);
}

#[tokio::test]
async fn every_action_does_what_it_does_to_one_job() {
    let bench = Bench::new();
    submit_many(&bench, "q", 5).await;
    let act = async |body: Value| bulk(&bench, body).await.json()["changed"].as_u64().unwrap();
    assert_eq!(act(json!({ "filter": { "queue": "q" }, "action": "park" })).await, 5);
    assert_eq!(count(&bench, "status=parked").await, 5);
    assert_eq!(act(json!({ "filter": { "status": "parked" }, "action": "release" })).await, 5);
    let edit = json!({
        "filter": { "status": "ready" }, "action": "edit", "queue": "r", "priority": 7,
        "run_at": "2030-01-01T00:00:00Z",
    });
    assert_eq!(act(edit).await, 5);
    let page = bench.get("/api/v1/jobs?queue=r&status=scheduled").await.json();
    assert_eq!(page["jobs"].as_array().unwrap().len(), 5);
    assert_eq!(page["jobs"][4]["priority"], 7);
    assert_eq!(act(json!({ "filter": { "queue": "r" }, "action": "cancel" })).await, 5);
    assert_eq!(act(json!({ "filter": { "status": "dead" }, "action": "retry" })).await, 5);
    assert_eq!(count(&bench, "queue=r&status=ready").await, 5);
    assert_eq!(act(json!({ "filter": { "queue": "r" }, "action": "delete" })).await, 5);
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
}

#[tokio::test]
async fn what_cannot_be_done_is_counted_by_its_reason() {
    let bench = Bench::new();
    submit_many(&bench, "q", 4).await;
    bench.lease("q").await;
    bench.call(Method::POST, "/api/v1/jobs/2/cancel").await;
    let parked = bulk(&bench, json!({ "filter": { "queue": "q" }, "action": "park" })).await.json();
    assert_eq!(parked["changed"], 2);
    assert_eq!(parked["refused"], json!({ "job_finished": 1, "job_leased": 1 }));
    let retried = bulk(&bench, json!({ "filter": { "queue": "q" }, "action": "retry" })).await;
    assert_eq!(retried.json()["refused"], json!({ "job_not_finished": 3 }));
}

#[tokio::test]
async fn a_bulk_action_needs_to_be_told_what_it_is_about() {
    let bench = Bench::new();
    submit_many(&bench, "q", 1).await;
    for (body, code) in [
        (json!({ "action": "delete" }), "out_of_range"),
        (json!({ "filter": {}, "action": "delete" }), "out_of_range"),
        (json!({ "filter": { "queue": "q" } }), "bad_field"),
        (json!({ "filter": { "queue": "q" }, "action": "burn" }), "bad_field"),
        (json!({ "filter": ["q"], "action": "delete" }), "bad_field"),
        (json!({ "filter": { "colour": "q" }, "action": "delete" }), "bad_field"),
        (json!({ "filter": { "status": "red" }, "action": "delete" }), "out_of_range"),
        (json!({ "filter": { "queue": "q" }, "action": "edit" }), "bad_field"),
        (json!({ "filter": { "status": "ready" }, "action": "delete", "queue": "q" }), "bad_field"),
        (json!({ "filter": { "queue": "q" }, "action": "park", "cursor": "7" }), "out_of_range"),
    ] {
        bulk(&bench, body).await.is_problem(400, code);
    }
    assert_eq!(bench.engine.observe().gauges().jobs, 1);
}

#[tokio::test]
async fn jobs_that_come_after_the_first_request_are_not_meant() {
    let bench = Bench::new();
    submit_many(&bench, "q", 3).await;
    let asked = json!({ "filter": { "queue": "q" }, "action": "delete", "cursor": "2-3" });
    let done = bulk(&bench, asked).await.json();
    assert_eq!(done["changed"], 1, "of 1, 2 and 3, those from 2 on and before 3");
    assert_eq!(count(&bench, "queue=q").await, 2);
}

#[tokio::test]
async fn a_bulk_action_is_told_once_it_is_on_disk() {
    let bench = Bench::new();
    submit_many(&bench, "q", 200).await;
    bench.log.hold(true);
    let asked = bulk(&bench, json!({ "filter": { "queue": "q" }, "action": "delete" }));
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "nothing of it is on disk yet");
    bench.log.hold(false);
    assert_eq!(asked.await.json()["changed"], 200);
}

#[tokio::test]
async fn what_is_done_to_some_is_done_to_no_other() {
    let bench = Bench::new();
    submit_many(&bench, "a", 5).await;
    bench.call(Method::POST, "/api/v1/jobs/4/cancel").await;
    let ask = |dry_run: bool| json!({ "filter": { "ids": "2,4,77" }, "action": "cancel", "dry_run": dry_run });
    let expected = json!({ "job_finished": 1 });
    for dry_run in [true, false] {
        let answer = bulk(&bench, ask(dry_run)).await.json();
        assert_eq!((&answer["matched"], &answer["changed"]), (&json!(2), &json!(1)));
        assert_eq!(answer["refused"], expected);
    }
    assert_eq!(count(&bench, "status=dead").await, 2);
    let log = bench.get("/api/v1/audit?action=cancel").await.json();
    assert_eq!(log["entries"][0]["detail"], "all with ids 2,4,77");
    assert_eq!(log["entries"][0]["count"], 1);
}
