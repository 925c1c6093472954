//! What workers do.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use spindle_core::JobId;
use tower::ServiceExt;

use crate::harness::{Bench, Reply, json as json_request, until};

async fn end(bench: &Bench, leased: &Value, how: &str, body: Value) -> Reply {
    let token = leased["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/{how}"), body).await
}

async fn job(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()
}

#[tokio::test]
async fn a_job_goes_from_submit_over_lease_to_done() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "payload": { "n": 1 }, "ttr_ms": 5000 })).await;
    let asked = json!({ "queues": ["other", "q"], "worker": "w1" });
    let leased = bench.post("/api/v1/lease", asked).await.json();
    for (field, value) in [
        ("id", json!(1)),
        ("uuid", json!("7370696e-646c-8000-8000-000000000001")),
        ("handle", json!("H:box:1")),
        ("queue", json!("q")),
        ("attempt", json!(1)),
        ("lease_ms", json!(5000)),
        ("deadline_at", json!("2026-01-02T03:04:10.678Z")),
        ("payload_type", json!("json")),
        ("payload", json!({ "n": 1 })),
    ] {
        assert_eq!(leased[field], value, "{field}");
    }
    let answer = job(&bench, 1).await;
    let lease = json!({
        "attempt": 1, "door": "api", "worker": "w1", "bound": false,
        "started_at": "2026-01-02T03:04:05.678Z", "deadline_at": "2026-01-02T03:04:10.678Z",
    });
    assert_eq!((&answer["status"], &answer["lease"]), (&json!("leased"), &lease));
    assert!(!answer.to_string().contains(leased["lease_token"].as_str().unwrap()));
    bench.pass(1000);
    let done = end(&bench, &leased, "complete", json!({ "result": [true] })).await;
    assert_eq!((done.status, done.body.len()), (StatusCode::NO_CONTENT, 0));
    let answer = job(&bench, 1).await;
    assert_eq!(answer["status"], "done");
    let result = json!({ "success": true, "type": "json", "bytes": 6, "value": [true] });
    assert_eq!(answer["result"], result);
    assert_eq!(answer["kept_until"], "2026-01-02T04:04:06.678Z", "an hour, unless asked");
    let attempt = json!({
        "attempt": 1, "outcome": "completed", "door": "api", "worker": "w1",
        "started_at": "2026-01-02T03:04:05.678Z", "ended_at": "2026-01-02T03:04:06.678Z",
    });
    assert_eq!(answer["history"], json!([attempt]));
}

#[tokio::test]
async fn the_highest_priority_of_all_named_queues_goes_first() {
    let bench = Bench::new();
    for (queue, priority) in [("a", 1), ("b", 3), ("a", 2), ("b", 3), ("c", 9)] {
        bench.submit(json!({ "queue": queue, "priority": priority })).await;
    }
    let mut order = Vec::new();
    for _ in 0..4 {
        let asked = json!({ "queues": ["a"], "queues_base64": ["Yg=="] });
        order.push(bench.post("/api/v1/lease", asked).await.json()["id"].as_u64().unwrap());
    }
    assert_eq!(order, [2, 4, 3, 1]);
}

#[tokio::test]
async fn without_work_and_wait_the_answer_is_empty() {
    let bench = Bench::new();
    let answer = bench.post("/api/v1/lease", json!({ "queues": ["q"] })).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
}

#[tokio::test]
async fn what_a_lease_gets_wrong_is_told() {
    let bench = Bench::new();
    for (body, code) in [
        (json!({}), "out_of_range"),
        (json!({ "queues": [] }), "out_of_range"),
        (json!({ "queues": [""] }), "out_of_range"),
        (json!({ "queues": vec!["q"; 1025] }), "out_of_range"),
        (json!({ "queues": ["q"], "wait_s": 301 }), "out_of_range"),
        (json!({ "queues": ["q"], "timeout_ms": 0 }), "out_of_range"),
        (json!({ "queues": ["q"], "worker": "w".repeat(257) }), "out_of_range"),
        (json!({ "queues_base64": ["*"] }), "out_of_range"),
        (json!({ "queues": "q" }), "bad_field"),
        (json!({ "queues": ["q"], "wait_s": -1 }), "bad_field"),
        (json!({ "queue": "q" }), "bad_field"),
    ] {
        let answer = bench.post("/api/v1/lease", body.clone()).await;
        assert_eq!(answer.json()["code"], code, "{body}");
        answer.is_problem(400, code);
    }
    let most = json!({ "queues": vec!["q"; 1024], "worker": "w".repeat(256), "timeout_ms": 1 });
    assert_eq!(bench.post("/api/v1/lease", most).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_waiting_worker_gets_the_job_when_it_comes() {
    let bench = Bench::new();
    let asked = json!({ "queues": ["q"], "wait_s": 300 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &asked,
    )));
    bench.waits(1).await;
    let id = bench.submit(json!({ "queue": "q", "payload": "x" })).await;
    let answer = Reply::of(waiting.await.unwrap().unwrap()).await.json();
    assert_eq!((&answer["id"], &answer["payload"]), (&json!(id), &json!("x")));
    bench.waits(0).await;
}

#[tokio::test]
async fn a_wait_ends_empty_when_its_time_is_over_and_when_the_server_stops() {
    let bench = Bench::new();
    let start = |wait_s: u64| {
        let asked = json!({ "queues": ["q"], "wait_s": wait_s });
        let request = json_request(Method::POST, "/api/v1/lease", &asked);
        tokio::spawn(bench.site.clone().oneshot(request))
    };
    let waiting = start(5);
    bench.waits(1).await;
    bench.pass(4999);
    assert_eq!(bench.engine.observe().gauges().waits, 1);
    bench.pass(1);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::NO_CONTENT);
    let waiting = start(300);
    bench.waits(1).await;
    bench.engine.stop_leasing();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_worker_that_left_gets_no_job() {
    let bench = Bench::new();
    let asked = json!({ "queues": ["q"], "wait_s": 300 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &asked,
    )));
    bench.waits(1).await;
    waiting.abort();
    bench.waits(0).await;
    bench.submit(json!({ "queue": "q" })).await;
    let answer = job(&bench, 1).await;
    assert_eq!((&answer["status"], &answer["attempts"]), (&json!("ready"), &json!(0)));
}

#[tokio::test]
async fn a_lease_whose_answer_never_left_is_undone() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let asked = json!({ "queues": ["q"] });
    let request = json_request(Method::POST, "/api/v1/lease", &asked);
    let response = bench.site.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(job(&bench, 1).await["status"], "leased");
    // The connection broke before it took the body.
    drop(response);
    let answer = job(&bench, 1).await;
    assert_eq!((&answer["status"], &answer["attempts"]), (&json!("ready"), &json!(0)));
    let leased = bench.lease("q").await;
    assert_eq!(leased["attempt"], 1);
    assert_eq!(job(&bench, 1).await["status"], "leased", "what was taken stays leased");
}

#[tokio::test]
async fn a_waiter_that_leaves_as_its_job_comes_gives_it_back() {
    let bench = Bench::new();
    let asked = json!({ "queues": ["q"], "wait_s": 300 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &asked,
    )));
    bench.waits(1).await;
    // The job is handed over while the log holds the answer back.
    bench.log.hold(true);
    let submitting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/jobs",
        &json!({ "queue": "q" }),
    )));
    bench.waits(0).await;
    until(|| bench.engine.inspect(|state| state.status(JobId(1)).is_some())).await;
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.is_err());
    bench.log.hold(false);
    assert_eq!(submitting.await.unwrap().unwrap().status(), StatusCode::CREATED);
    let shown = job(&bench, 1).await;
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("ready"), &json!(0)));
}

#[tokio::test]
async fn a_lease_is_as_short_as_the_shorter_of_job_and_worker() {
    let bench = Bench::new();
    for (ttr, timeout, length) in [
        (Some(5000), Some(100), 100),
        (Some(50), Some(100), 50),
        (None, None, 60_000),
        (None, Some(100), 100),
    ] {
        bench.submit(json!({ "queue": "q", "ttr_ms": ttr })).await;
        let asked = json!({ "queues": ["q"], "timeout_ms": timeout });
        let leased = bench.post("/api/v1/lease", asked).await.json();
        assert_eq!(leased["lease_ms"], length);
    }
}

#[tokio::test]
async fn a_lease_is_extended_from_now() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000 })).await;
    let leased = bench.lease("q").await;
    bench.pass(900);
    let answer = end(&bench, &leased, "extend", json!({ "ttr_ms": 2000 })).await;
    assert_eq!(
        answer.json(),
        json!({ "lease_ms": 2000, "deadline_at": "2026-01-02T03:04:08.578Z" })
    );
    bench.pass(1999);
    assert_eq!(job(&bench, 1).await["status"], "leased");
    bench.pass(1);
    assert_eq!(job(&bench, 1).await["status"], "scheduled", "it waits out its backoff");
    let answer = end(&bench, &leased, "extend", json!({ "ttr_ms": 2000 })).await;
    answer.is_problem(409, "lease_not_live");
    for ttr_ms in [0, 31 * 24 * 3_600_000 + 1u64] {
        let answer = end(&bench, &leased, "extend", json!({ "ttr_ms": ttr_ms })).await;
        answer.is_problem(400, "out_of_range");
    }
    end(&bench, &leased, "extend", json!({})).await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn a_failed_job_is_tried_again_until_its_tries_are_spent() {
    let bench = Bench::new();
    let backoff = json!({ "base_ms": 1000 });
    bench.submit(json!({ "queue": "q", "fails_max": 2, "backoff": backoff })).await;
    let leased = bench.lease("q").await;
    let body = json!({ "message": "no route", "error": "E1", "code": "net", "result": 7 });
    assert_eq!(end(&bench, &leased, "fail", body).await.status, StatusCode::NO_CONTENT);
    let answer = job(&bench, 1).await;
    assert_eq!((&answer["status"], &answer["fails"]), (&json!("scheduled"), &json!(1)));
    assert_eq!(answer["run_at"], "2026-01-02T03:04:06.678Z");
    let result = json!({
        "success": false, "type": "json", "bytes": 1, "value": 7, "message": "no route",
        "error": "E1", "code": "net",
    });
    assert_eq!(answer["result"], result);
    bench.pass(1000);
    let leased = bench.lease("q").await;
    assert_eq!(leased["attempt"], 2);
    let token = leased["lease_token"].as_str().unwrap();
    let answer = bench.call(Method::POST, &format!("/api/v1/leases/{token}/fail")).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "the body may be left out");
    assert_eq!(job(&bench, 1).await["status"], "dead");
}

#[tokio::test]
async fn a_job_tells_how_each_attempt_ended_and_what_was_said() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000, "backoff": { "base_ms": 0 } })).await;
    let long = "\u{e9}".repeat(200);
    for (message, error, code) in [("no route", "E1", "net"), (&long, &long, &long[..64])] {
        let leased = bench.lease("q").await;
        let words = json!({ "message": message, "error": error, "code": code });
        end(&bench, &leased, "fail", words).await;
    }
    bench.lease("q").await;
    bench.pass(1000);
    let leased = bench.lease("q").await;
    end(&bench, &leased, "complete", json!({})).await;
    let answer = job(&bench, 1).await["history"].clone();
    let words = |at: usize| json!([answer[at]["message"], answer[at]["error"], answer[at]["code"]]);
    assert_eq!(words(0), json!(["no route", "E1", "net"]));
    assert_eq!(words(1), json!([long[..256], long[..256], long[..64]]));
    for (at, outcome) in [(2, "timeout"), (3, "completed")] {
        assert_eq!(
            (&answer[at]["outcome"], words(at)),
            (&json!(outcome), json!([null, null, null]))
        );
    }
}

#[tokio::test]
async fn a_failure_that_must_not_be_retried_is_final() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "fails_max": 0 })).await;
    let leased = bench.lease("q").await;
    end(&bench, &leased, "fail", json!({ "retry": false })).await;
    assert_eq!(job(&bench, 1).await["status"], "dead");
    for (field, most) in [("message", 4096), ("error", 4096), ("code", 64)] {
        let id = bench.submit(json!({ "queue": "q", "fails_max": 0 })).await;
        let leased = bench.lease("q").await;
        let answer = end(&bench, &leased, "fail", json!({ field: "x".repeat(most + 1) })).await;
        answer.is_problem(400, "out_of_range");
        let answer = end(&bench, &leased, "fail", json!({ field: "x".repeat(most) })).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{field}");
        assert_eq!(job(&bench, id).await["result"][field].as_str().unwrap().len(), most);
        bench.call(Method::DELETE, &format!("/api/v1/jobs/{id}")).await;
    }
}

#[tokio::test]
async fn the_words_of_a_failure_are_limited_in_letters_not_in_bytes() {
    let bench = Bench::new();
    let widest = "\u{1f980}".repeat(4096);
    let words = json!({ "message": widest, "error": widest, "code": "\u{1f980}".repeat(64) });
    let id = bench.submit(json!({ "queue": "q", "fails_max": 1 })).await;
    let leased = bench.lease("q").await;
    for (field, letters) in [("message", 4097), ("error", 4097), ("code", 65)] {
        let mut one_more = words.clone();
        one_more[field] = json!("\u{1f980}".repeat(letters));
        end(&bench, &leased, "fail", one_more).await.is_problem(400, "out_of_range");
    }
    assert_eq!(end(&bench, &leased, "fail", words.clone()).await.status, StatusCode::NO_CONTENT);
    let answer = job(&bench, id).await;
    for field in ["message", "error", "code"] {
        assert_eq!(answer["result"][field], words[field], "{field}");
    }
}

#[tokio::test]
async fn a_released_job_is_for_others_and_its_attempt_counts() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let leased = bench.lease("q").await;
    let token = leased["lease_token"].as_str().unwrap();
    let answer = bench.call(Method::POST, &format!("/api/v1/leases/{token}/release")).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(bench.lease("q").await["attempt"], 2);
    end(&bench, &leased, "complete", json!({})).await.is_problem(409, "lease_not_live");
}

#[tokio::test]
async fn tokens_of_ended_leases_end_nothing() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 100, "backoff": { "base_ms": 0 } })).await;
    let late = bench.lease("q").await;
    bench.pass(100);
    let live = bench.lease("q").await;
    for how in ["complete", "fail"] {
        end(&bench, &late, how, json!({})).await.is_problem(409, "lease_not_live");
    }
    let token = late["lease_token"].as_str().unwrap();
    let answer = bench.call(Method::POST, &format!("/api/v1/leases/{token}/release")).await;
    answer.is_problem(409, "lease_not_live");
    assert_eq!(end(&bench, &live, "complete", json!({})).await.status, StatusCode::NO_CONTENT);
    end(&bench, &live, "complete", json!({})).await.is_problem(409, "lease_not_live");
    bench.call(Method::DELETE, "/api/v1/jobs/1").await;
    end(&bench, &live, "complete", json!({})).await.is_problem(410, "lease_gone");
    for token in ["x", "AAAA", &"A".repeat(28)] {
        let answer = bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
        answer.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn results_come_as_json_or_as_bytes() {
    let bench = Bench::new();
    for (body, kind, field, value) in [
        (json!({ "result": null }), "json", "value", Value::Null),
        (json!({ "result_base64": "/w==" }), "bytes", "base64", json!("/w==")),
        (
            json!({ "result_base64": "gA==", "result_type": "msgpack" }),
            "msgpack",
            "base64",
            json!("gA=="),
        ),
        (json!({}), "bytes", "base64", Value::Null),
    ] {
        let id = bench.submit(json!({ "queue": "q" })).await;
        let leased = bench.lease("q").await;
        end(&bench, &leased, "complete", body).await;
        let answer = job(&bench, id).await;
        assert_eq!((&answer["result"]["type"], &answer["result"][field]), (&json!(kind), &value));
    }
    bench.submit(json!({ "queue": "q" })).await;
    let leased = bench.lease("q").await;
    let both = json!({ "result": 1, "result_base64": "" });
    end(&bench, &leased, "complete", both).await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn more_waiters_than_may_wait_are_told_to_come_again() {
    let options = spindle_engine::Options { waits_max: 1, ..spindle_engine::Options::default() };
    let bench = Bench::with(|_| {}, options);
    let asked = json!({ "queues": ["q"], "wait_s": 300 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &asked,
    )));
    bench.waits(1).await;
    let answer = bench.post("/api/v1/lease", asked).await;
    answer.is_problem(429, "too_many");
    assert_eq!(answer.header("retry-after"), "1");
    bench.pass(300_000);
    let ended = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    assert_eq!(ended.unwrap().unwrap().status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_person_gives_a_worker_more_time_without_its_token() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000 })).await;
    let more = json!({ "ttr_ms": 60_000 });
    let early = bench.post("/api/v1/jobs/1/extend", more.clone()).await;
    early.is_problem(409, "lease_not_live");
    bench.lease("q").await;
    let answer = bench.post("/api/v1/jobs/1/extend", more.clone()).await.json();
    assert_eq!(answer, json!({ "lease_ms": 60_000, "deadline_at": "2026-01-02T03:05:05.678Z" }));
    bench.pass(30_000);
    let job = bench.get("/api/v1/jobs/1").await.json();
    assert_eq!(job["status"], "leased");
    assert_eq!(job["lease"]["deadline_at"], "2026-01-02T03:05:05.678Z");
    bench.post("/api/v1/jobs/2/extend", more).await.is_problem(404, "job_not_found");
    let zero = bench.post("/api/v1/jobs/1/extend", json!({ "ttr_ms": 0 })).await;
    zero.is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_worker_that_hangs_up_at_any_moment_keeps_no_job() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    for steps in 1..16 {
        let asked = json!({ "queues": ["q"], "wait_s": 300 });
        bench.hang_up_after(json_request(Method::POST, "/api/v1/lease", &asked), steps).await;
        bench.ready(1).await;
        bench.waits(0).await;
    }
    assert_eq!(bench.lease("q").await["id"], 1);
}

#[tokio::test]
async fn a_worker_that_waits_in_vain_and_hangs_up_leaves_no_wait() {
    let bench = Bench::new();
    for steps in 1..16 {
        let asked = json!({ "queues": ["q"], "wait_s": 300 });
        bench.hang_up_after(json_request(Method::POST, "/api/v1/lease", &asked), steps).await;
        bench.waits(0).await;
    }
}

#[tokio::test]
async fn a_job_keeps_the_trace_of_its_submit_and_gives_it_to_its_worker() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let bench = Bench::new();
    let submit = async |path: &str, body: Value, trace: &'static str| {
        let mut request = json_request(Method::POST, path, &body);
        request.headers_mut().insert("traceparent", trace.parse().unwrap());
        assert!(bench.send(request).await.status.is_success());
    };
    submit("/api/v1/jobs", json!({ "queue": "q" }), TRACE).await;
    submit("/api/v1/jobs/batch", json!({ "jobs": [{ "queue": "q" }, { "queue": "q" }] }), TRACE)
        .await;
    submit("/api/v1/jobs", json!({ "queue": "q" }), "00-malformed").await;
    assert_eq!(job(&bench, 1).await["traceparent"], TRACE);
    for id in 1..=3 {
        let leased = bench.lease("q").await;
        assert_eq!((&leased["id"], &leased["traceparent"]), (&json!(id), &json!(TRACE)));
    }
    let leased = bench.lease("q").await;
    assert_eq!((&leased["id"], leased.get("traceparent")), (&json!(4), None));
}
