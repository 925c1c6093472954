//! Deletions that can be undone.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Bench, Reply};

const MINUTE_MS: u64 = 60_000;

async fn delete(bench: &Bench, id: u64) -> Reply {
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{id}?undo_ms={MINUTE_MS}")).await
}

async fn undo(bench: &Bench, id: u64) -> Reply {
    bench.post(&format!("/api/v1/jobs/{id}/undo"), json!({})).await
}

async fn bulk(bench: &Bench, body: Value) -> Value {
    let reply = bench.post("/api/v1/jobs/bulk", body).await;
    reply.is(200);
    reply.json()
}

async fn job(bench: &Bench, id: u64) -> Value {
    let reply = bench.get(&format!("/api/v1/jobs/{id}")).await;
    reply.is(200);
    reply.json()
}

#[tokio::test]
async fn a_deleted_job_is_shown_as_such_and_is_back_after_an_undo() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail", "payload": 7 })).await;
    let before = job(&bench, id).await;
    let deleted = delete(&bench, id).await;
    deleted.is(200);
    let (deletion, shown) = (deleted.json(), job(&bench, id).await);
    assert_eq!((&shown["deletion"], &shown["status"]), (&deletion, &json!("parked")));
    assert_eq!(bench.get("/api/v1/queues/mail").await.json()["deleted"], 1);
    let why = bench.get(&format!("/api/v1/jobs/{id}/why")).await.json();
    assert_eq!(why["reasons"][0]["code"], "deleted");
    assert_eq!(why["reasons"][0]["until"], deletion["until"]);

    let restored = undo(&bench, id).await;
    restored.is(200);
    let restored = restored.json();
    for field in ["status", "payload", "queue", "priority", "created_at"] {
        assert_eq!(restored[field], before[field], "{field}");
    }
    assert!(restored.get("deletion").is_none());
    assert!(bench.get("/api/v1/queues/mail").await.json().get("deleted").is_none());
    bench.pass(2 * MINUTE_MS);
    assert_eq!(job(&bench, id).await["status"], "ready");
    undo(&bench, id).await.is_problem(409, "job_not_deleted");

    delete(&bench, id).await.is(200);
    bench.pass(MINUTE_MS);
    undo(&bench, id).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn nothing_else_is_done_to_a_deleted_job() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let lease = bench.lease("mail").await["lease_token"].as_str().unwrap().to_owned();
    delete(&bench, id).await.is(200);
    for action in ["park", "release", "cancel"] {
        let path = format!("/api/v1/jobs/{id}/{action}");
        bench.post(&path, json!({})).await.is_problem(409, "job_deleted");
    }
    delete(&bench, id).await.is_problem(409, "job_deleted");
    let done = format!("/api/v1/leases/{lease}/complete");
    bench.post(&done, json!({})).await.is_problem(410, "lease_gone");
    let page = bench.get("/api/v1/jobs/export").await.json();
    assert_eq!(page["jobs"], json!([]), "what is deleted does not go elsewhere");
    // Who means it deletes it at once, as ever.
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{id}")).await.is(204);
    bench.get(&format!("/api/v1/jobs/{id}")).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_bulk_deletion_is_undone_by_the_number_of_its_request() {
    let bench = Bench::new();
    let jobs: Vec<Value> = (0..700).map(|_| json!({ "queue": "a" })).collect();
    bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await.is(200);
    bench.post("/api/v1/jobs/7/cancel", json!({})).await.is(200);
    let other = bench.submit(json!({ "queue": "b" })).await;
    let ask = |queue: &str| json!({ "filter": { "queue": queue }, "action": "delete", "undo_ms": MINUTE_MS });
    let done = bulk(&bench, ask("a")).await;
    assert_eq!(done["changed"], 700);
    bulk(&bench, ask("b")).await;
    assert_eq!(bulk(&bench, ask("a")).await["refused"], json!({ "job_deleted": 700 }));

    let request = done["deletion"]["request"].as_u64().unwrap();
    let found = bench.get(&format!("/api/v1/jobs?limit=1000&deleted_by={request}")).await.json();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 700);
    let back = json!({ "filter": { "deleted_by": request.to_string() }, "action": "undo" });
    assert_eq!(bulk(&bench, back.clone()).await["changed"], 700);
    assert_eq!(bulk(&bench, back).await["matched"], 0);
    let counts = bench.get("/api/v1/queues/a").await.json()["jobs"].clone();
    assert_eq!((&counts["ready"], &counts["dead"]), (&json!(699), &json!(1)));
    assert!(job(&bench, other).await.get("deletion").is_some(), "that was another request");
    let log = bench.get("/api/v1/audit?action=undo").await.json();
    let entry = &log["entries"][0];
    let expected = (json!(700), json!(format!("all with deleted_by {request}")));
    assert_eq!((entry["count"].clone(), entry["detail"].clone()), expected);
}

#[tokio::test]
async fn a_purge_can_be_undone() {
    let bench = Bench::new();
    for run_at in [None, Some("2030-01-01T00:00:00Z")] {
        bench.submit(json!({ "queue": "a", "run_at": run_at })).await;
    }
    let reply = bench.post("/api/v1/queues/a/purge?undo_ms=60000", json!({})).await;
    reply.is(200);
    let purged = reply.json();
    assert_eq!(purged["deleted"], 2);
    let request = purged["deletion"]["request"].to_string();
    let back = json!({ "filter": { "queue": "a", "deleted_by": request }, "action": "undo" });
    assert_eq!(bulk(&bench, back).await["changed"], 2);
    let counts = bench.get("/api/v1/queues/a").await.json()["jobs"].clone();
    assert_eq!((&counts["ready"], &counts["scheduled"]), (&json!(1), &json!(1)));
    // Without it, all are gone at once.
    let gone = bench.post("/api/v1/queues/a/purge", json!({})).await.json();
    assert_eq!(gone, json!({ "deleted": 2 }));
}

#[tokio::test]
async fn a_key_that_is_taken_meanwhile_is_not_taken_back() {
    let bench = Bench::new();
    let keyed = json!({ "queue": "mail", "unique": { "key": "once" } });
    let id = bench.submit(keyed.clone()).await;
    delete(&bench, id).await.is(200);
    let new = bench.submit(keyed).await;
    assert_ne!(new, id, "the deleted one does not stand in for it");
    let refused = undo(&bench, id).await;
    refused.is_problem(409, "key_taken");
    assert_eq!(refused.json()["job"], new);
}

#[tokio::test]
async fn the_feed_tells_of_a_deletion_and_of_its_undo() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let deletion = delete(&bench, id).await.json();
    undo(&bench, id).await.is(200);
    let feed = bench.get("/api/v1/events?after=oldest&follow=false").await;
    let events: Vec<Value> = feed
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok())
        .filter(|event: &Value| event["job"] == id)
        .collect();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["submitted", "deleted", "undeleted"]);
    assert_eq!(events[1]["deletion"], deletion);
}

#[tokio::test]
async fn how_long_is_within_bounds_and_goes_with_a_deletion() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    for wrong in ["undo_ms=86400001", "undo_ms=x", "undo_ms=-1", "undo=1"] {
        let path = format!("/api/v1/jobs/{id}?{wrong}");
        assert_eq!(bench.call(Method::DELETE, &path).await.status, 400, "{wrong}");
    }
    let filter = json!({ "queue": "mail" });
    for wrong in [
        json!({ "filter": filter, "action": "park", "undo_ms": 1 }),
        json!({ "filter": filter, "action": "delete", "undo_ms": 86_400_001 }),
        json!({ "filter": { "deleted_by": "x" }, "action": "undo" }),
        json!({ "filter": { "deleted_by": "1,".repeat(64) + "1" }, "action": "undo" }),
    ] {
        let refused = bench.post("/api/v1/jobs/bulk", wrong.clone()).await;
        assert_eq!(refused.status, 400, "{wrong}");
    }
    // At their limits both are taken.
    let other = bench.submit(json!({ "queue": "mail" })).await;
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{other}?undo_ms=86400000")).await.is(200);
    let most = json!({ "filter": { "deleted_by": "1,".repeat(63) + "1" }, "action": "undo" });
    bench.post("/api/v1/jobs/bulk", most).await.is(200);
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{id}?undo_ms=0")).await.is(204);
}
