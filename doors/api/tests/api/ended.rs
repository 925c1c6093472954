//! The answers to a worker whose lease is over.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Bench, Reply};

/// Every way to use a lease.
const WAYS: [&str; 4] = ["extend", "complete", "fail", "release"];

async fn used(bench: &Bench, leased: &Value, how: &str) -> Reply {
    let token = leased["lease_token"].as_str().unwrap();
    let path = format!("/api/v1/leases/{token}/{how}");
    match how {
        "extend" => bench.post(&path, json!({ "ttr_ms": 1000 })).await,
        "release" => bench.call(Method::POST, &path).await,
        _ => bench.post(&path, json!({})).await,
    }
}

/// Whichever way the lease is used, the answer gives this reason.
async fn over(bench: &Bench, leased: &Value, reason: &str) {
    for how in WAYS {
        let answer = used(bench, leased, how).await;
        answer.is_problem(409, "lease_not_live");
        assert_eq!(answer.json()["reason"], reason, "{how}: {}", answer.text());
    }
}

async fn leased(bench: &Bench) -> Value {
    let job = json!({ "queue": "q", "ttr_ms": 1000, "backoff": { "base_ms": 0 } });
    bench.submit(job).await;
    bench.lease("q").await
}

async fn act(bench: &Bench, leased: &Value, action: &str) -> Reply {
    bench.call(Method::POST, &format!("/api/v1/jobs/{}/{action}", leased["id"])).await
}

#[tokio::test]
async fn a_cancelled_job_ends_its_lease_as_cancelled() {
    let bench = Bench::new();
    let lease = leased(&bench).await;
    act(&bench, &lease, "cancel").await;
    over(&bench, &lease, "cancelled").await;
    // Also when somebody lets it run again since.
    act(&bench, &lease, "retry").await;
    over(&bench, &lease, "cancelled").await;
    // And when the lease had run out before.
    let lease = leased(&bench).await;
    bench.pass(1000);
    act(&bench, &lease, "cancel").await;
    over(&bench, &lease, "cancelled").await;
}

#[tokio::test]
async fn a_worker_that_fails_a_job_with_the_code_cancelled_did_not_cancel_it() {
    let bench = Bench::new();
    let lease = leased(&bench).await;
    let token = lease["lease_token"].as_str().unwrap();
    let failed = json!({ "code": "cancelled", "retry": false });
    bench.post(&format!("/api/v1/leases/{token}/fail"), failed).await;
    over(&bench, &lease, "finished").await;
}

#[tokio::test]
async fn an_end_that_was_told_before_is_told_as_finished() {
    let bench = Bench::new();
    let lease = leased(&bench).await;
    assert_eq!(used(&bench, &lease, "complete").await.status, 204);
    over(&bench, &lease, "finished").await;
    let lease = leased(&bench).await;
    assert_eq!(used(&bench, &lease, "fail").await.status, 204);
    over(&bench, &lease, "finished").await;
}

#[tokio::test]
async fn a_lease_that_ran_out_says_whether_somebody_else_has_the_job() {
    let bench = Bench::new();
    let first = leased(&bench).await;
    bench.pass(1000);
    over(&bench, &first, "timeout").await;
    let second = bench.lease("q").await;
    over(&bench, &first, "leased_again").await;
    assert_eq!(used(&bench, &second, "complete").await.status, 204);
    over(&bench, &first, "finished").await;
}

#[tokio::test]
async fn the_last_lease_of_a_job_ran_out_as_any_other() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000, "attempts_max": 1 })).await;
    let lease = bench.lease("q").await;
    bench.pass(1000);
    assert_eq!(bench.get("/api/v1/jobs/1").await.json()["status"], "dead");
    over(&bench, &lease, "timeout").await;
}

#[tokio::test]
async fn a_lease_that_was_given_back_says_so() {
    let bench = Bench::new();
    let lease = leased(&bench).await;
    assert_eq!(used(&bench, &lease, "release").await.status, 204);
    over(&bench, &lease, "released").await;
}

#[tokio::test]
async fn a_job_that_is_gone_has_no_lease_any_more() {
    let bench = Bench::new();
    let lease = leased(&bench).await;
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{}", lease["id"])).await;
    let job = json!({ "queue": "q", "ttl_ms": 500 });
    bench.submit(job).await;
    let expired = bench.lease("q").await;
    bench.pass(500);
    for (lease, how) in WAYS.iter().flat_map(|how| [(&lease, how), (&expired, how)]) {
        let answer = used(&bench, lease, how).await;
        answer.is_problem(410, "lease_gone");
        assert_eq!(answer.json()["reason"], Value::Null);
    }
}
