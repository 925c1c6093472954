//! Nothing leaves before it is on disk.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use serde_json::json;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::harness::{Bench, json as json_request, request};

fn start(bench: &Bench, request: Request<Body>) -> JoinHandle<Response> {
    let site = bench.site.clone();
    tokio::spawn(async move { site.oneshot(request).await.unwrap() })
}

/// The answer is not there, however long one looks.
async fn is_held(answer: &JoinHandle<Response>) -> bool {
    for _ in 0..20 {
        if answer.is_finished() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

#[tokio::test]
async fn every_answer_waits_for_the_disk() {
    let bench = Bench::new();
    for _ in 0..8 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    bench.submit(json!({ "queue": "free" })).await;
    let leased = bench.lease("q").await;
    let token = leased["lease_token"].as_str().unwrap();
    let post = |path: &str| request(Method::POST, path).body(Body::empty()).unwrap();
    let get = |path: &str| request(Method::GET, path).body(Body::empty()).unwrap();
    let body = json!({ "queue": "q" });
    bench.log.hold(true);
    let mut held = Vec::new();
    for (what, request, status) in [
        ("submit", json_request(Method::POST, "/api/v1/jobs", &body), 201),
        ("what reveals a submit", get("/api/v1/jobs/10"), 200),
        ("cancel", post("/api/v1/jobs/2/cancel"), 200),
        ("what reveals a cancel", post("/api/v1/jobs/2/cancel"), 409),
        ("park", post("/api/v1/jobs/3/park"), 200),
        ("edit", json_request(Method::PATCH, "/api/v1/jobs/4", &json!({ "priority": 1 })), 200),
        ("delete", request(Method::DELETE, "/api/v1/jobs/5").body(Body::empty()).unwrap(), 204),
        ("what reveals a delete", get("/api/v1/jobs/5"), 404),
        ("pause", post("/api/v1/queues/q/pause"), 200),
        ("why", get("/api/v1/jobs/5/why"), 404),
        ("list", get("/api/v1/jobs"), 200),
        ("purge", post("/api/v1/queues/free/purge"), 200),
        (
            "extend",
            json_request(
                Method::POST,
                &format!("/api/v1/leases/{token}/extend"),
                &json!({ "ttr_ms": 1000 }),
            ),
            200,
        ),
        ("complete", post(&format!("/api/v1/leases/{token}/complete")), 204),
        ("no job", json_request(Method::POST, "/api/v1/lease", &json!({ "queues": ["x"] })), 204),
    ] {
        let answer = start(&bench, request);
        assert!(is_held(&answer).await, "{what} did not wait");
        held.push((what, answer, status));
    }
    // What was on disk before can be told at once.
    assert_eq!(bench.get("/api/v1/jobs/6").await.status, StatusCode::OK);
    bench.log.hold(false);
    for (what, answer, status) in held {
        assert_eq!(answer.await.unwrap().status().as_u16(), status, "{what}");
    }
}

#[tokio::test]
async fn a_lease_of_a_durable_job_waits_only_where_a_rule_needs_it() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "plain", "attempts_max": 0 })).await;
    bench.submit(json!({ "queue": "counted" })).await;
    bench.log.hold(true);
    let lease =
        |queue: &str| json_request(Method::POST, "/api/v1/lease", &json!({ "queues": [queue] }));
    assert_eq!(bench.send(lease("plain")).await.status, StatusCode::OK);
    let answer = start(&bench, lease("counted"));
    assert!(is_held(&answer).await, "its attempt must never be given twice");
    bench.log.hold(false);
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_submit_waits_for_room_and_then_goes_on() {
    let options =
        spindle_engine::Options { undurable_bytes_max: 1000, ..spindle_engine::Options::default() };
    let bench = Bench::with(|_| {}, options);
    let body = json!({ "queue": "q", "payload": "x".repeat(800) });
    let submit = || json_request(Method::POST, "/api/v1/jobs", &body);
    bench.log.hold(true);
    let answers: Vec<_> = (0..4).map(|_| start(&bench, submit())).collect();
    for answer in &answers {
        assert!(is_held(answer).await);
    }
    assert!(bench.engine.observe().gauges().waits > 0, "some wait for room");
    bench.log.hold(false);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), StatusCode::CREATED);
    }
    assert_eq!(bench.engine.observe().gauges().jobs, 4);
}
