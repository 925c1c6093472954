//! Metrics, health, and the description of the API.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::bench::{Bench, json as json_request};

async fn metrics(bench: &Bench) -> String {
    let told = bench.get("/metrics").await;
    assert_eq!(told.status, StatusCode::OK);
    assert!(told.header("content-type").starts_with("application/openmetrics-text"));
    told.text().to_owned()
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|told| told == line), "{line}\nis not in\n{text}");
}

#[tokio::test]
async fn metrics_count_what_happened_and_what_is_there() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.submit(json!({ "queue": "q\"\n", "fails_max": 2 })).await;
    }
    for (how, body) in
        [("complete", json!({})), ("fail", json!({ "retry": false })), ("fail", json!({}))]
    {
        let leased = bench.lease("q\"\n").await;
        let token = leased["lease_token"].as_str().unwrap();
        bench.post(&format!("/api/v1/leases/{token}/{how}"), body).await;
    }
    bench.pass(2500);
    let text = metrics(&bench).await;
    for line in [
        "spindle_jobs_submitted_total 3",
        "spindle_leases_total 3",
        "spindle_jobs_completed_total 1",
        "spindle_jobs_died_total 1",
        "spindle_attempts_requeued_total 1",
        "spindle_jobs_kept 3",
        "spindle_jobs_finished_kept 2",
        "spindle_queues 1",
        "spindle_disk_full 0",
        "spindle_clock_held 0",
        "spindle_connections{door=\"http\"} 0",
        "spindle_queue_jobs{queue=\"q\\\"\\n\",status=\"done\"} 1",
        "spindle_queue_jobs{queue=\"q\\\"\\n\",status=\"ready\"} 1",
        "spindle_queue_next_ready_age_seconds{queue=\"q\\\"\\n\"} 2",
        "spindle_queue_oldest_ready_age_seconds{queue=\"q\\\"\\n\"} 2",
        "spindle_queue_submitted_total{queue=\"q\\\"\\n\"} 3",
        "spindle_queue_leased_total{queue=\"q\\\"\\n\"} 3",
        "spindle_queue_completed_total{queue=\"q\\\"\\n\"} 1",
        "spindle_queue_requeued_total{queue=\"q\\\"\\n\"} 1",
        "spindle_queue_died_total{queue=\"q\\\"\\n\"} 1",
        "# EOF",
    ] {
        has(&text, line);
    }
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
    };
    assert_eq!(value("spindle_log_durable_position"), bench.engine.durable().0);
    assert!(value("spindle_log_bytes") > 0);
    assert_eq!(value("spindle_finished_bytes"), bench.engine.gauges().finished_bytes);
    assert!(value("spindle_finished_bytes") > 0);
}

#[tokio::test]
async fn finished_jobs_that_are_dropped_are_told_by_the_cap_that_did_it() {
    let bench = Bench::new();
    let settings =
        json_request(Method::PUT, "/api/v1/queues/q/settings", &json!({ "finished_max": 1 }));
    assert_eq!(bench.send(settings).await.status, StatusCode::OK);
    for _ in 0..3 {
        bench.submit(json!({ "queue": "q" })).await;
        let leased = bench.lease("q").await;
        let token = leased["lease_token"].as_str().unwrap();
        bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
    }
    bench.pass(1);
    let text = metrics(&bench).await;
    has(&text, "spindle_finished_dropped_total{cap=\"queue\"} 2");
    has(&text, "spindle_finished_dropped_total{cap=\"count\"} 0");
    has(&text, "spindle_finished_dropped_total{cap=\"bytes\"} 0");
}

#[tokio::test]
async fn queues_beyond_the_largest_hundred_share_one_label() {
    let bench = Bench::new();
    for queue in 0..103 {
        bench.submit(json!({ "queue": format!("q{queue}") })).await;
    }
    bench.submit(json!({ "queue": "q102" })).await;
    let text = metrics(&bench).await;
    let labels = text.lines().filter(|line| line.starts_with("spindle_queue_jobs{")).count();
    assert_eq!(labels, 101 * 6);
    has(&text, "spindle_queue_jobs{queue=\"q102\",status=\"ready\"} 2");
    has(&text, "spindle_queue_jobs{queue=\"(others)\",status=\"ready\"} 3");
}

#[tokio::test]
async fn what_takes_time_is_told_as_histograms() {
    let bench = Bench::new();
    let at = "2026-01-02T03:04:06.678Z";
    bench.submit(json!({ "queue": "q", "run_at": at })).await;
    bench.pass(1_030);
    let text = metrics(&bench).await;
    for line in [
        "# TYPE spindle_schedule_lag_seconds histogram",
        "spindle_schedule_lag_seconds_count 1",
        "spindle_schedule_lag_seconds_sum 0.03",
        "spindle_schedule_lag_seconds_bucket{le=\"0.016\"} 0",
        "spindle_schedule_lag_seconds_bucket{le=\"0.032\"} 1",
        "spindle_schedule_lag_seconds_bucket{le=\"+Inf\"} 1",
        "# TYPE spindle_commit_seconds histogram",
        "# TYPE spindle_commit_batch_bytes histogram",
    ] {
        has(&text, line);
    }
    let count = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}_count ")));
        line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
    };
    assert!(count("spindle_commit_seconds") > 0);
    assert_eq!(count("spindle_commit_seconds"), count("spindle_commit_batch_bytes"));
}

#[tokio::test]
async fn connections_of_all_doors_are_told() {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(7));
    let lines = vec![("workq", count)];
    let bench = Bench::with(|options| options.line_connections = lines, Default::default());
    let text = metrics(&bench).await;
    has(&text, "spindle_connections{door=\"workq\"} 7");
    has(&text, "spindle_connections{door=\"http\"} 0");
}

#[tokio::test]
async fn health_says_ok() {
    let bench = Bench::new();
    for path in ["/healthz", "/readyz"] {
        let told = bench.get(path).await;
        assert_eq!((told.status, told.json()), (StatusCode::OK, json!({ "status": "ok" })));
    }
    bench.engine.stop_leasing();
    let told = bench.get("/readyz").await;
    assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(told.json(), json!({ "status": "stopping" }));
}

#[tokio::test]
async fn the_clock_can_be_accepted() {
    let bench = Bench::new();
    let told = bench.call(Method::POST, "/api/v1/clock/accept").await;
    assert_eq!((told.status, told.body.len()), (StatusCode::NO_CONTENT, 0));
}

/// Every reference in a document leads somewhere.
fn check_references(document: &Value, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = target.strip_prefix('#').expect("within the document");
                assert!(document.pointer(pointer).is_some(), "{target}");
            }
            fields.values().for_each(|field| check_references(document, field));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_names_every_route_and_every_type() {
    let bench = Bench::new();
    let told = bench.get("/api/openapi.json").await;
    assert_eq!(told.header("content-type"), "application/json");
    let document = told.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let mut routes: Vec<String> = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{path}");
            routes.push(format!("{method} {path}"));
        }
    }
    routes.sort();
    assert_eq!(
        routes,
        [
            "delete /api/v1/constraints/{name}",
            "delete /api/v1/jobs/{id}",
            "get /api/v1/constraints",
            "get /api/v1/constraints/{name}",
            "get /api/v1/constraints/{name}/buckets",
            "get /api/v1/events",
            "get /api/v1/jobs",
            "get /api/v1/jobs/{id}",
            "get /api/v1/jobs/{id}/wait",
            "get /api/v1/jobs/{id}/why",
            "get /api/v1/queues",
            "get /api/v1/queues/{name}",
            "get /api/v1/server",
            "get /api/v1/workers",
            "get /healthz",
            "get /metrics",
            "get /readyz",
            "patch /api/v1/jobs/{id}",
            "post /api/v1/clock/accept",
            "post /api/v1/jobs",
            "post /api/v1/jobs/batch",
            "post /api/v1/jobs/bulk",
            "post /api/v1/jobs/{id}/cancel",
            "post /api/v1/jobs/{id}/extend",
            "post /api/v1/jobs/{id}/park",
            "post /api/v1/jobs/{id}/release",
            "post /api/v1/jobs/{id}/retry",
            "post /api/v1/lease",
            "post /api/v1/leases/{token}/complete",
            "post /api/v1/leases/{token}/extend",
            "post /api/v1/leases/{token}/fail",
            "post /api/v1/leases/{token}/release",
            "post /api/v1/queues/{name}/drain",
            "post /api/v1/queues/{name}/pause",
            "post /api/v1/queues/{name}/purge",
            "post /api/v1/queues/{name}/resume",
            "put /api/v1/constraints/{name}",
            "put /api/v1/queues/{name}/settings",
        ]
    );
    check_references(&document, &document);
}

#[tokio::test]
async fn the_page_needs_nothing_from_anywhere() {
    let bench = Bench::new();
    let told = bench.get("/api/docs").await;
    assert_eq!(told.header("content-type"), "text/html; charset=utf-8");
    assert!(told.header("content-security-policy").starts_with("default-src 'none'"));
    let page = told.text();
    assert!(!page.contains("<script") && !page.contains("src="));
    for part in
        ["/api/v1/jobs/{id}/why", "lease_token", "idempotency_key_reused", "Idempotency-Key"]
    {
        assert!(page.contains(part), "{part}");
    }
}
