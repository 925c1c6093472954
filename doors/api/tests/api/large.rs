//! Large bodies are worked on beside the thread that serves.

use axum::http::StatusCode;
use serde_json::{Value, json};
use spindle_http::SMALL_BYTES_MAX;
use spindle_testkit::on_serving_thread;

use crate::harness::{Bench, Reply};

/// What a request comes to, and whether it was worked on beside the thread that serves.
fn asked(request: impl Future<Output = Reply>) -> (Reply, bool) {
    let (reply, others) = on_serving_thread(request);
    assert!(reply.status.is_success(), "{}", reply.text());
    (reply, others > 0)
}

/// A job's way through the API with a payload and a result as they are in bodies: the steps that were
/// worked on beside the thread.
fn way(payload: &Value, result: &Value) -> Vec<&'static str> {
    let bench = Bench::new();
    let mut beside = Vec::new();
    let mut note = |step, (reply, was_beside): (Reply, bool)| {
        if was_beside {
            beside.push(step);
        }
        reply
    };
    let of = |field: &str, bytes: &Value| match bytes {
        Value::String(text) => json!({ format!("{field}_base64"): text }),
        other => json!({ field: other }),
    };
    let mut job = of("payload", payload);
    job["queue"] = json!("q");
    note("submit", asked(bench.post("/api/v1/jobs", job.clone())));
    note("batch", asked(bench.post("/api/v1/jobs/batch", json!({ "jobs": [job] }))));
    let shown = note("show", asked(bench.get("/api/v1/jobs/1")));
    assert_eq!(of("payload", payload)["payload"], shown.json()["payload"]);
    let lease = json!({ "queues": ["q"] });
    let leased = note("lease", asked(bench.post("/api/v1/lease", lease)));
    let base64 = &of("payload", payload)["payload_base64"];
    assert_eq!(*base64, leased.json()["payload_base64"]);
    let token = leased.json()["lease_token"].as_str().unwrap().to_owned();
    let complete = format!("/api/v1/leases/{token}/complete");
    let completed = note("complete", asked(bench.post(&complete, of("result", result))));
    assert_eq!(completed.status, StatusCode::NO_CONTENT);
    let done = note("show done", asked(bench.get("/api/v1/jobs/1")));
    assert_eq!(of("result", result)["result"], done.json()["result"]["value"]);
    assert_eq!(of("result", result)["result_base64"], done.json()["result"]["base64"]);
    beside
}

#[test]
fn small_payloads_and_results_are_worked_on_at_once() {
    assert_eq!(way(&json!([1]), &json!("AAAA")), Vec::<&str>::new());
}

#[test]
fn large_payloads_are_worked_on_beside_the_thread_that_serves() {
    let with_payload = ["submit", "batch", "show", "lease", "show done"];
    let base64 = json!("AAAA".repeat(SMALL_BYTES_MAX));
    assert_eq!(way(&base64, &json!([1])), with_payload);
    let list = json!(["x".repeat(SMALL_BYTES_MAX)]);
    assert_eq!(way(&list, &json!([1])), with_payload);
}

#[test]
fn large_results_are_worked_on_beside_the_thread_that_serves() {
    let with_result = ["complete", "show done"];
    let base64 = json!("AAAA".repeat(SMALL_BYTES_MAX));
    assert_eq!(way(&json!([1]), &base64), with_result);
    assert_eq!(way(&json!([1]), &json!(["x".repeat(SMALL_BYTES_MAX)])), with_result);
}
