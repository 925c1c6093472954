//! Who works, and on what.

use axum::http::Method;
use serde_json::{Value, json};
use spindle_core::command::Lease;
use spindle_core::job::Origin;
use spindle_engine::ConnectionId;
use spindle_testkit::{lease_from, take};
use tower::ServiceExt;

use crate::harness::{Bench, json as json_request};

async fn workers(bench: &Bench) -> Vec<Value> {
    bench.get("/api/v1/workers").await.json()["workers"].as_array().unwrap().clone()
}

async fn lease_as(bench: &Bench, worker: &str, queues: Value) -> Value {
    let answer = bench.post("/api/v1/lease", json!({ "queues": queues, "worker": worker })).await;
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

#[tokio::test]
async fn workers_are_told_with_what_they_ask_for_and_what_they_have() {
    let bench = Bench::new();
    assert_eq!(workers(&bench).await, [Value::Null; 0]);
    for _ in 0..3 {
        bench.submit(json!({ "queue": "a" })).await;
    }
    lease_as(&bench, "ann", json!(["a", "b"])).await;
    lease_as(&bench, "ann", json!(["a", "b"])).await;
    bench.pass(1000);
    lease_as(&bench, "bob", json!(["c"])).await;
    let answer = workers(&bench).await;
    let (ann, bob) = (&answer[0], &answer[1]);
    assert_eq!((&ann["name"], &ann["door"]), (&json!("ann"), &json!("api")));
    assert_eq!((&ann["queues"], &ann["queues_count"]), (&json!(["a", "b"]), &json!(2)));
    assert_eq!(ann["seen_at"], "2026-01-02T03:04:05.678Z");
    let held = json!({
        "id": 1, "queue": "a", "attempt": 1, "started_at": "2026-01-02T03:04:05.678Z",
        "deadline_at": "2026-01-02T03:05:05.678Z",
    });
    assert_eq!((&ann["jobs"][0], ann["jobs"].as_array().unwrap().len()), (&held, 2));
    assert_eq!((&bob["name"], &bob["jobs"]), (&json!("bob"), &json!([])));
    assert_eq!(bob["seen_at"], "2026-01-02T03:04:06.678Z");
}

#[tokio::test]
async fn a_worker_of_another_door_is_known_by_its_connection_and_goes_with_it() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a" })).await;
    let worker = "perl".into();
    let lease = Lease { holder: 77, bound: true, worker, ..lease_from("a", Origin::Gearman) };
    take(&bench.engine, lease);
    drop(bench.engine.turn());
    let answer = workers(&bench).await;
    assert_eq!((&answer[0]["door"], &answer[0]["connection"]), (&json!("gearman"), &json!(77)));
    assert_eq!((&answer[0]["name"], &answer[0]["jobs"][0]["id"]), (&json!("perl"), &json!(1)));
    bench.engine.waits().connection_gone(ConnectionId(77), None);
    drop(bench.engine.turn());
    assert_eq!(workers(&bench).await, [Value::Null; 0]);
}

#[tokio::test]
async fn who_has_a_job_and_was_forgotten_is_told_all_the_same() {
    let bench = Bench::new();
    let day_ms = 24 * 3_600_000;
    bench.submit(json!({ "queue": "a", "ttr_ms": day_ms })).await;
    lease_as(&bench, "ann", json!(["a"])).await;
    bench.pass(2 * 3_600_000);
    let answer = workers(&bench).await;
    assert_eq!(answer.len(), 1);
    assert_eq!((&answer[0]["name"], &answer[0]["seen_at"]), (&json!("ann"), &Value::Null));
    assert_eq!(answer[0]["jobs"][0]["id"], 1);
    bench.get("/api/v1/workers?cursor=x").await.is_problem(400, "bad_field");
}

async fn names(bench: &Bench) -> Vec<String> {
    let answer = workers(bench).await;
    answer.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_worker_leaves_the_list_a_minute_after_it_was_last_heard_of() {
    let bench = Bench::new();
    lease_as(&bench, "ann", json!(["a"])).await;
    bench.pass(60_000);
    assert_eq!(names(&bench).await, ["ann"]);
    bench.pass(1);
    assert_eq!(names(&bench).await, [""; 0]);
    lease_as(&bench, "ann", json!(["a"])).await;
    assert_eq!(names(&bench).await, ["ann"]);
}

#[tokio::test]
async fn a_worker_in_a_long_poll_is_not_gone() {
    let bench = Bench::new();
    let wish = json!({ "queues": ["a"], "worker": "ann", "wait_s": 300 });
    let request = json_request(Method::POST, "/api/v1/lease", &wish);
    let waiting = tokio::spawn(bench.site.clone().oneshot(request));
    bench.waits(1).await;
    bench.pass(299_000);
    let answer = workers(&bench).await;
    assert_eq!((&answer[0]["name"], &answer[0]["waiting"]), (&json!("ann"), &json!(1)));
    assert_eq!(answer[0]["seen_at"], "2026-01-02T03:09:04.678Z");
    bench.pass(1_000);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 204);
    bench.pass(60_000);
    assert_eq!(names(&bench).await, ["ann"]);
    bench.pass(1);
    assert_eq!(names(&bench).await, [""; 0]);
}

#[tokio::test]
async fn a_worker_with_a_long_job_is_not_gone_and_has_a_minute_after_it() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a", "ttr_ms": 1_800_000 })).await;
    let lease = lease_as(&bench, "ann", json!(["a"])).await;
    bench.pass(1_700_000);
    let answer = workers(&bench).await;
    assert_eq!((&answer[0]["name"], &answer[0]["queues"]), (&json!("ann"), &json!(["a"])));
    assert_eq!(answer[0]["jobs"][0]["id"], 1);
    let token = lease["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
    bench.pass(60_000);
    assert_eq!(names(&bench).await, ["ann"]);
    bench.pass(1);
    assert_eq!(names(&bench).await, [""; 0]);
}

#[tokio::test]
async fn a_heartbeat_is_a_sign_of_life_and_one_with_a_lost_lease_is_not() {
    let bench = Bench::new();
    let at_once = json!({ "base_ms": 0 });
    bench.submit(json!({ "queue": "a", "ttr_ms": 100_000, "backoff": at_once })).await;
    let first = lease_as(&bench, "ann", json!(["a"])).await;
    let extend = async |lease: &Value| {
        let token = lease["lease_token"].as_str().unwrap();
        bench.post(&format!("/api/v1/leases/{token}/extend"), json!({"ttr_ms": 100_000})).await
    };
    bench.pass(90_000);
    assert_eq!(extend(&first).await.status, 200);
    assert_eq!(workers(&bench).await[0]["seen_at"], "2026-01-02T03:05:35.678Z");
    bench.pass(100_000);
    bench.ready(1).await;
    lease_as(&bench, "bob", json!(["a"])).await;
    bench.pass(10_000);
    assert_eq!(extend(&first).await.status, 409);
    let answer = workers(&bench).await;
    assert_eq!((answer.len(), &answer[0]["name"]), (1, &json!("bob")));
    assert_eq!(answer[0]["seen_at"], "2026-01-02T03:07:15.678Z");
}

#[tokio::test]
async fn queues_of_any_name_are_told_apart_from_their_base64() {
    let bench = Bench::new();
    bench.submit(json!({ "queue_base64": "/y8A" })).await;
    let body = json!({ "queues": ["/y8A"], "queues_base64": ["/y8A"], "worker": "ann" });
    bench.post("/api/v1/lease", body).await;
    let answer = &workers(&bench).await[0];
    assert_eq!((&answer["queues"], &answer["queues_base64"]), (&json!(["/y8A"]), &json!(["/y8A"])));
    let job = &answer["jobs"][0];
    assert_eq!((&job["queue"], &job["queue_base64"]), (&Value::Null, &json!("/y8A")));
}
