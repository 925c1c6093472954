//! Why a job does not run.

use axum::http::Method;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Bench, json as json_request};

async fn why(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}/why")).await.json()
}

fn codes(why: &Value) -> Vec<&str> {
    why["reasons"].as_array().unwrap().iter().map(|r| r["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_ready_job_knows_its_place_and_who_waits() {
    let bench = Bench::new();
    for priority in [0, 0, 1] {
        bench.submit(json!({ "queue": "q", "priority": priority })).await;
    }
    let answer = why(&bench, 2).await;
    assert_eq!((&answer["status"], &answer["runnable"]), (&json!("ready"), &json!(true)));
    assert_eq!(codes(&answer), ["position", "nobody_waits"]);
    assert_eq!(answer["reasons"][0]["before"], 2);
    assert_eq!(why(&bench, 3).await["reasons"][0]["before"], 0);
    bench.get("/api/v1/jobs/9/why").await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_paused_queue_is_named_and_its_waiting_workers_too() {
    let bench = Bench::new();
    bench.call(Method::POST, "/api/v1/queues/q/pause").await;
    bench.submit(json!({ "queue": "q" })).await;
    let asked = json!({ "queues": ["q"], "wait_s": 300 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &asked,
    )));
    bench.waits(1).await;
    let answer = why(&bench, 1).await;
    assert_eq!(
        (codes(&answer), &answer["runnable"]),
        (vec!["paused", "position", "workers_wait"], &json!(false),)
    );
    waiting.abort();
}

#[tokio::test]
async fn other_statuses_say_what_they_wait_for() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "run_at": "2030-01-01T00:00:00Z" })).await;
    let answer = why(&bench, 1).await;
    assert_eq!(codes(&answer), ["scheduled"]);
    assert_eq!(answer["reasons"][0]["until"], "2030-01-01T00:00:00.000Z");
    bench.submit(json!({ "queue": "q", "parked": true })).await;
    assert_eq!(codes(&why(&bench, 2).await), ["parked"]);
    let backoff = json!({ "base_ms": 1000 });
    bench.submit(json!({ "queue": "q", "fails_max": 2, "backoff": backoff })).await;
    let asked = json!({ "queues": ["q"], "worker": "w1" });
    let leased = bench.post("/api/v1/lease", asked).await.json();
    let answer = why(&bench, 3).await;
    assert_eq!((codes(&answer), &answer["reasons"][0]["worker"]), (vec!["leased"], &json!("w1")));
    assert_eq!(answer["reasons"][0]["until"], "2026-01-02T03:05:05.678Z");
    let token = leased["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/fail"), json!({ "code": "net" })).await;
    let answer = why(&bench, 3).await;
    assert_eq!(codes(&answer), ["backoff", "last_attempt"]);
    assert_eq!(answer["reasons"][0]["until"], "2026-01-02T03:04:06.678Z");
    bench.call(Method::POST, "/api/v1/jobs/3/cancel").await;
    let answer = why(&bench, 3).await;
    assert_eq!(codes(&answer), ["dead"]);
    assert!(answer["reasons"][0]["text"].as_str().unwrap().contains("cancelled"), "{answer}");
}

/// The text of a reason.
fn text<'a>(why: &'a Value, code: &str) -> &'a str {
    let reasons = why["reasons"].as_array().unwrap();
    let found = reasons.iter().find(|reason| reason["code"] == code);
    found.unwrap_or_else(|| panic!("{code} in {why}"))["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_job_that_failed_says_why_and_which_try_it_waits_for() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000 })).await;
    let error = "tray 2\n  at feed (tray.c:7)";
    let words = json!({ "code": "exit_9", "message": "no paper\nat all", "error": error });
    let said = "\"tray 2\" (no paper, code exit_9)";
    for fails in 1..=5 {
        let leased = bench.lease("q").await;
        let token = leased["lease_token"].as_str().unwrap();
        bench.post(&format!("/api/v1/leases/{token}/fail"), words.clone()).await;
        let answer = why(&bench, 1).await;
        if fails == 5 {
            let dead = format!("no try is left: try 5 of 5 failed: {said}");
            assert_eq!(text(&answer, "dead"), dead);
            assert_eq!(codes(&answer), ["dead"]);
            break;
        }
        let next = format!("it waits until its backoff is over, for try {} of 5", fails + 1);
        assert_eq!(text(&answer, "backoff"), next);
        assert_eq!(text(&answer, "last_attempt"), format!("the last attempt failed: {said}"));
        bench.pass(3_600_000);
        let answer = why(&bench, 1).await;
        assert_eq!(codes(&answer), ["position", "nobody_waits", "last_attempt"], "ready again");
        assert_eq!(text(&answer, "last_attempt"), format!("the last attempt failed: {said}"));
    }
}

#[tokio::test]
async fn a_job_whose_workers_are_lost_says_so() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000, "attempts_max": 2 })).await;
    bench.lease("q").await;
    bench.pass(1000);
    let answer = why(&bench, 1).await;
    let next = "it waits until its backoff is over, for attempt 2 of 2";
    assert_eq!(text(&answer, "backoff"), next);
    assert_eq!(text(&answer, "last_attempt"), "the last attempt timed out");
    bench.pass(5000);
    bench.lease("q").await;
    bench.pass(1000);
    let answer = why(&bench, 1).await;
    let dead = "no attempt is left: attempt 2 of 2 timed out";
    assert_eq!(text(&answer, "dead"), dead);
}

/// Two jobs under a constraint of their queue.
async fn constrain(bench: &Bench, limits: Value) {
    let mut body = json!({ "queue": "q" });
    body.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
    let put = bench.send(json_request(Method::PUT, "/api/v1/constraints/slow", &body)).await;
    assert_eq!(put.status, 201, "{}", put.text());
    for _ in 0..2 {
        bench.submit(json!({ "queue": "q" })).await;
    }
}

#[tokio::test]
async fn a_constraint_that_holds_a_job_back_is_named() {
    let bench = Bench::new();
    constrain(&bench, json!({ "running_max": 1 })).await;
    assert_eq!(codes(&why(&bench, 1).await), ["position", "nobody_waits"]);
    bench.lease("q").await;
    let answer = why(&bench, 2).await;
    assert_eq!(codes(&answer)[0], "constraint");
    assert_eq!(
        (&answer["reasons"][0]["constraint"], &answer["runnable"]),
        (&json!("slow"), &json!(false))
    );
    assert_eq!(answer["reasons"][0]["until"], Value::Null);
}

#[tokio::test]
async fn a_rate_says_when_it_frees() {
    let bench = Bench::new();
    constrain(&bench, json!({ "rate": { "count": 1, "per_ms": 2000 } })).await;
    bench.lease("q").await;
    bench.pass(500);
    let answer = why(&bench, 2).await;
    assert_eq!(codes(&answer)[0], "constraint");
    assert_eq!(answer["reasons"][0]["until"], "2026-01-02T03:04:07.678Z");
    bench.pass(1500);
    assert_eq!(why(&bench, 2).await["runnable"], true);
    bench.lease("q").await;
}
