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
    let held =
        |name: &str| json!({ "name": name, "bytes": 0, "bytes_max": 268_435_456_u64, "closed": 0 });
    let expected = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_at": "2026-01-02T03:04:05.678Z",
        "uptime_ms": 90_000,
        "status": "ok",
        "disk_full": false,
        "log_cannot_grow": false,
        "clock_held": false,
        "doors": [
            { "name": "workq", "address": "127.0.0.1:9922", "connections": 7, "refused": 0 },
            { "name": "http", "address": "127.0.0.1:7420", "connections": 0, "refused": 0 },
            { "name": "jobd-master", "address": "127.0.0.1:7081", "refused": 0 },
        ],
        "jobs": 2, "jobs_finished": 1, "queues": 1, "waits": 0,
        "budgets": [held("unfinished_input"), held("unread_output")],
        "limits": [],
        "last_minute": {
            "at": "2026-01-02T03:04:35.678Z", "seen_ms": 0, "submitted": 0, "done": 0, "failed": 0,
            "dead": 0, "commits": 0,
        },
    });
    assert_eq!(answer, expected);
    bench.log.fill(true);
    let answer = bench.get("/api/v1/server").await.json();
    assert_eq!((&answer["status"], &answer["disk_full"]), (&json!("disk_full"), &json!(true)));
    bench.log.stop_growth(true);
    let answer = bench.get("/api/v1/server").await.json();
    let said = ["status", "disk_full", "log_cannot_grow"].map(|field| answer[field].clone());
    assert_eq!(said, [json!("log_cannot_grow"), json!(false), json!(true)]);
}

#[tokio::test]
async fn the_server_says_how_near_its_limits_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let engine = spindle_engine::Options {
        log_bytes_max: 1 << 30,
        defaults: spindle_core::Defaults { unfinished_max: 7, ..Default::default() },
        ..Default::default()
    };
    let bench = Bench::with(move |options| options.data = Some(path), engine);
    bench.submit(json!({ "queue": "q" })).await;
    let answer = bench.get("/api/v1/server").await.json();
    let limit = |name: &str| {
        let limits = answer["limits"].as_array().unwrap();
        let found = limits.iter().find(|limit| limit["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} in {answer}"));
        ["used", "max"].map(|field| found[field].as_u64().unwrap())
    };
    assert_eq!(limit("unfinished_jobs"), [1, 7]);
    assert_eq!(limit("log_bytes"), [answer["log_bytes"].as_u64().unwrap(), 1 << 30]);
    let [used, max] = limit("disk_bytes");
    assert!(used < max, "{used} of {max}");
    let reply = bench.get("/metrics").await;
    let metrics = reply.text();
    assert!(metrics.contains("\nspindle_disk_free_bytes "), "{metrics}");
}

#[tokio::test]
async fn a_server_with_a_log_of_its_own_is_its_only_node_and_cannot_step_down() {
    let bench = Bench::new();
    let mut cluster = bench.get("/api/v1/cluster").await.json();
    let position = cluster["nodes"][0].as_object_mut().unwrap().remove("position");
    assert!(position.unwrap().is_u64());
    let expected = json!({
        "shared": false, "node": "box", "role": "leader", "epoch": 1, "leader": "box", "log": null,
        "nodes": [{
            "node": "box", "role": "leader", "live": true, "heard_ms": 0, "epoch": 1,
            "lag": 0, "address": null, "version": env!("CARGO_PKG_VERSION"),
        }],
    });
    assert_eq!(cluster, expected);
    let refused = bench.call(Method::POST, "/api/v1/cluster/step-down").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (409, &json!("not_shared")));
    // Nor is there another shard.
    let refused = bench.call(Method::POST, "/api/v1/queues/mail/move?to=1").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (409, &json!("not_shared")));
}
