//! What the server says of itself.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::http::Method;
use serde_json::json;

use crate::harness::Bench;

#[tokio::test]
async fn the_server_tells_its_version_its_doors_and_how_it_is() {
    let change = |options: &mut spindle_api::Options| {
        options.line_connections = vec![("workq", Arc::new(AtomicUsize::new(7)))];
        options.addresses = vec![
            ("workq", "127.0.0.1:9922".parse().unwrap()),
            ("http", "127.0.0.1:7420".parse().unwrap()),
            ("jobd-master", "127.0.0.1:7081".parse().unwrap()),
        ];
    };
    let bench = Bench::with(change, Default::default());
    bench.submit(json!({ "queue": "q" })).await;
    let dead = bench.submit(json!({ "queue": "q" })).await;
    bench.call(Method::POST, &format!("/api/v1/jobs/{dead}/cancel")).await;
    bench.pass(90_000);
    let mut answer = bench.get("/api/v1/server").await.json();
    assert!(answer.as_object_mut().unwrap().remove("log_bytes").unwrap().is_u64());
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_at": "2026-01-02T03:04:05.678Z",
        "uptime_ms": 90_000,
        "status": "ok",
        "disk_full": false,
        "clock_held": false,
        "doors": [
            { "name": "workq", "address": "127.0.0.1:9922", "connections": 7 },
            { "name": "http", "address": "127.0.0.1:7420", "connections": 0 },
            { "name": "jobd-master", "address": "127.0.0.1:7081" },
        ],
        "jobs": 2, "jobs_finished": 1, "queues": 1, "waits": 0,
    });
    assert_eq!(answer, expected);
    bench.log.fill(true);
    let answer = bench.get("/api/v1/server").await.json();
    assert_eq!((&answer["status"], &answer["disk_full"]), (&json!("disk_full"), &json!(true)));
}
