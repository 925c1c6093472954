//! Metrics, health, and the description of the API.

use std::io::Write;
use std::process::{Command, Stdio};

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};
use spindle_limits::{DoorPlaces, PlaceLimits, Places};

use crate::harness::{Bench, json as json_request, request};

async fn metrics(bench: &Bench) -> String {
    let answer = bench.get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(answer.header("vary"), "accept");
    answer.text().to_owned()
}

async fn open_metrics(bench: &Bench) -> String {
    let accept = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";
    let request = request(Method::GET, "/metrics").header(header::ACCEPT, accept);
    let answer = bench.send(request.body(Body::empty()).unwrap()).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, kind));
    answer.text().to_owned()
}

/// Asks promtool (the Debian package prometheus) whether it finds anything to say.
fn check_with_promtool(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test needs promtool: install the Debian package prometheus");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let answer = child.wait_with_output().unwrap();
    let said = [answer.stdout, answer.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(answer.status.success() && said.is_empty(), "{}: {said}\n{text}", answer.status);
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_numbers() {
    let bench = Bench::with(
        |options| options.line_connections = vec![("workq", Default::default())],
        Default::default(),
    );
    for queue in ["q", "with \"quotes\"", "back\\slash\\", "two\nlines", "{a=\"b\"} 1", "caf\u{e9}"]
    {
        bench.submit(json!({ "queue": queue })).await;
    }
    bench.submit(json!({ "queue_base64": "cf8=", "run_at": "2026-01-02T03:04:06.678Z" })).await;
    let leased = bench.lease("q").await;
    let token = leased["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
    bench.pass(2000);
    let text = metrics(&bench).await;
    for line in [
        "spindle_queue_submitted_total{queue=\"with \\\"quotes\\\"\"} 1",
        "spindle_queue_submitted_total{queue=\"back\\\\slash\\\\\"} 1",
        "spindle_queue_submitted_total{queue=\"two\\nlines\"} 1",
        "spindle_queue_submitted_total{queue=\"q\u{fffd}\"} 1",
        "# TYPE spindle_queue_submitted_total counter",
        "# TYPE spindle_leases_total counter",
    ] {
        has(&text, line);
    }
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    check_with_promtool(&text);
}

#[tokio::test]
async fn queues_that_differ_only_in_what_is_no_utf8_are_told_as_one() {
    let bench = Bench::new();
    for name in ["cf4=", "cf8=", "cf8="] {
        bench.submit(json!({ "queue_base64": name })).await;
    }
    bench.pass(3000);
    let text = metrics(&bench).await;
    has(&text, "spindle_queue_jobs{queue=\"q\u{fffd}\",status=\"ready\"} 3");
    has(&text, "spindle_queue_submitted_total{queue=\"q\u{fffd}\"} 3");
    has(&text, "spindle_queue_oldest_ready_age_seconds{queue=\"q\u{fffd}\"} 3");
}

#[tokio::test]
async fn those_who_ask_for_openmetrics_get_it() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let text = open_metrics(&bench).await;
    for line in [
        "# TYPE spindle_jobs_submitted counter",
        "spindle_jobs_submitted_total 1",
        "# UNIT spindle_log_bytes bytes",
    ] {
        has(&text, line);
    }
    assert!(text.ends_with("# EOF\n"));
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let timeless = lines.filter(|line| !line.starts_with("spindle_commit"));
        let mut samples: Vec<String> = timeless.map(str::to_owned).collect();
        samples.sort_unstable();
        samples
    };
    assert_eq!(samples(&metrics(&bench).await), samples(&text));
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|answer| answer == line), "{line}\nis not in\n{text}");
}

#[tokio::test]
async fn metrics_count_what_happened_and_what_is_there() {
    let bench = Bench::new();
    for _ in 0..3 {
        let job = json!({ "queue": "q\"\n", "backoff": { "base_ms": 0 } });
        bench.submit(job).await;
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
        "spindle_log_cannot_grow 0",
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
    ] {
        has(&text, line);
    }
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
    };
    assert_eq!(value("spindle_log_durable_position"), bench.engine.durable().0);
    assert!(value("spindle_log_bytes") > 0);
    assert_eq!(value("spindle_finished_bytes"), bench.engine.observe().gauges().finished_bytes);
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
    assert_eq!(labels, 101 * 7);
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
async fn a_servers_certificate_says_when_it_expires() {
    let expires = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_800_000_000));
    let kept = Some(std::sync::Arc::clone(&expires));
    let bench = Bench::with(|options| options.certificate_expires = kept, Default::default());
    let name = "spindle_tls_certificate_expires_timestamp_seconds";
    let text = metrics(&bench).await;
    has(&text, &format!("# TYPE {name} gauge"));
    has(&text, &format!("{name} 1800000000"));
    check_with_promtool(&text);
    // Another certificate is in force.
    expires.store(1_900_000_000, std::sync::atomic::Ordering::Relaxed);
    has(&metrics(&bench).await, &format!("{name} 1900000000"));
    assert!(!metrics(&Bench::new()).await.contains(name));
}

#[tokio::test]
async fn connections_without_a_place_are_counted_by_the_limit() {
    let places = Places::new(PlaceLimits { total: 3, door: 2, address: 1 });
    let (one, other) = (places.door("workq"), places.door("http"));
    let take = |door: &DoorPlaces, address: &str| door.take(address.parse().unwrap()).ok();
    let held = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "192.0.2.3:1"];
    let _held = held.map(|address| take(&one, address));
    let _others = held.map(|address| take(&other, address));
    let bench = Bench::with(|options| options.places = places, Default::default());
    let text = metrics(&bench).await;
    for line in [
        "{door=\"workq\",limit=\"address\"} 1",
        "{door=\"workq\",limit=\"door\"} 1",
        "{door=\"workq\",limit=\"server\"} 0",
        "{door=\"http\",limit=\"server\"} 3",
    ] {
        has(&text, &format!("spindle_connections_refused_total{line}"));
    }
}

#[tokio::test]
async fn health_says_ok() {
    let bench = Bench::new();
    for path in ["/healthz", "/readyz"] {
        let answer = bench.get(path).await;
        assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "status": "ok" })));
    }
    bench.engine.stop_leasing();
    let answer = bench.get("/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json(), json!({ "status": "stopping" }));
}

#[tokio::test]
async fn the_clock_can_be_accepted() {
    let bench = Bench::new();
    let answer = bench.call(Method::POST, "/api/v1/clock/accept").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
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
    let answer = bench.get("/api/openapi.json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let document = answer.json();
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
            "delete /api/v1/schedules/{name}",
            "get /api/v1/audit",
            "get /api/v1/backup",
            "get /api/v1/backup/segments/{first}",
            "get /api/v1/batches",
            "get /api/v1/batches/{id}",
            "get /api/v1/batches/{id}/wait",
            "get /api/v1/cluster",
            "get /api/v1/constraints",
            "get /api/v1/constraints/{name}",
            "get /api/v1/constraints/{name}/buckets",
            "get /api/v1/constraints/{name}/held",
            "get /api/v1/events",
            "get /api/v1/failures",
            "get /api/v1/history",
            "get /api/v1/history/queues",
            "get /api/v1/jobd",
            "get /api/v1/jobs",
            "get /api/v1/jobs/export",
            "get /api/v1/jobs/{id}",
            "get /api/v1/jobs/{id}/events",
            "get /api/v1/jobs/{id}/flow",
            "get /api/v1/jobs/{id}/output",
            "get /api/v1/jobs/{id}/wait",
            "get /api/v1/jobs/{id}/why",
            "get /api/v1/leases/{token}/after/{id}",
            "get /api/v1/queues",
            "get /api/v1/queues/{name}",
            "get /api/v1/queues/{name}/settings",
            "get /api/v1/schedules",
            "get /api/v1/schedules/{name}",
            "get /api/v1/server",
            "get /api/v1/workers",
            "get /healthz",
            "get /metrics",
            "get /readyz",
            "patch /api/v1/jobs/{id}",
            "post /api/v1/batches",
            "post /api/v1/batches/{id}/cancel",
            "post /api/v1/batches/{id}/seal",
            "post /api/v1/clock/accept",
            "post /api/v1/cluster/step-down",
            "post /api/v1/jobd/continue",
            "post /api/v1/jobd/pause",
            "post /api/v1/jobs",
            "post /api/v1/jobs/batch",
            "post /api/v1/jobs/bulk",
            "post /api/v1/jobs/import",
            "post /api/v1/jobs/{id}/cancel",
            "post /api/v1/jobs/{id}/extend",
            "post /api/v1/jobs/{id}/output",
            "post /api/v1/jobs/{id}/park",
            "post /api/v1/jobs/{id}/progress",
            "post /api/v1/jobs/{id}/release",
            "post /api/v1/jobs/{id}/retry",
            "post /api/v1/jobs/{id}/undo",
            "post /api/v1/lease",
            "post /api/v1/leases/batch",
            "post /api/v1/leases/{token}/complete",
            "post /api/v1/leases/{token}/extend",
            "post /api/v1/leases/{token}/fail",
            "post /api/v1/leases/{token}/output",
            "post /api/v1/leases/{token}/progress",
            "post /api/v1/leases/{token}/release",
            "post /api/v1/queues/{name}/drain",
            "post /api/v1/queues/{name}/move",
            "post /api/v1/queues/{name}/pause",
            "post /api/v1/queues/{name}/purge",
            "post /api/v1/queues/{name}/resume",
            "post /api/v1/schedules/{name}/pause",
            "post /api/v1/schedules/{name}/resume",
            "post /api/v1/schedules/{name}/run",
            "put /api/v1/constraints/{name}",
            "put /api/v1/queues/{name}/settings",
            "put /api/v1/schedules",
            "put /api/v1/schedules/{name}",
        ]
    );
    check_references(&document, &document);
}

#[tokio::test]
async fn the_page_has_the_colours_that_were_chosen_on_the_pages() {
    let bench = Bench::new();
    for (cookie, theme) in [
        ("spindle_theme=dark", "dark"),
        ("a=b; spindle_theme=light", "light"),
        ("spindle_theme=auto", "auto"),
        ("spindle_theme=\"><script>", "auto"),
        ("other=dark", "auto"),
    ] {
        let request = request(Method::GET, "/api/docs").header(header::COOKIE, cookie);
        let page = bench.send(request.body(Body::empty()).unwrap()).await;
        let page = page.text();
        assert!(page.contains(&format!("<html lang=en data-theme={theme}>")), "{cookie}: {page}");
    }
}

#[tokio::test]
async fn the_page_needs_nothing_from_anywhere() {
    let bench = Bench::new();
    let page = bench.get("/api/docs").await;
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let page = page.text();
    for (file, kind) in [
        ("swagger-ui-bundle.js", "text/javascript"),
        ("swagger-ui-standalone-preset.js", "text/javascript"),
        ("swagger-ui.css", "text/css"),
        ("swagger-initializer.js", "text/javascript"),
        ("favicon-32x32.png", "image/png"),
    ] {
        assert!(page.contains(&format!("=docs/{file}")), "{file}");
        let answer = bench.get(&format!("/api/docs/{file}")).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, kind), "{file}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
    }
    let settings = bench.get("/api/docs/swagger-initializer.js").await;
    let settings = settings.text();
    assert!(settings.contains("\"openapi.json\""), "{settings}");
    for other in ["swagger-ui-es-bundle.js", "oauth2-redirect.html", "..%2fopenapi.json", "x"] {
        bench.get(&format!("/api/docs/{other}")).await.is_problem(404, "not_found");
    }
    // It is read in the order in which things are done, not in that of letters.
    let document = bench.get("/api/openapi.json").await;
    let text = document.text();
    let at = |path: &str| text.find(&format!("\"/api/v1/{path}\"")).unwrap();
    assert!(at("jobs") < at("jobs/{id}") && at("jobs/{id}/why") < at("constraints"), "{text}");
}
