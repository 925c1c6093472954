//! Several jobs in one lease, and reports about several leases.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use spindle_core::{JobId, Status};
use tower::ServiceExt;

use crate::harness::{Bench, Reply, json as json_request};

async fn lease(bench: &Bench, count: u64) -> Reply {
    bench.post("/api/v1/lease", json!({ "queues": ["q"], "count": count })).await
}

/// Jobs 1 to `count`, leased.
async fn leased(bench: &Bench, count: u64) -> Vec<Value> {
    for number in 0..count {
        bench.submit(json!({ "queue": "q", "payload": number })).await;
    }
    let leased = lease(bench, count).await.json();
    leased["jobs"].as_array().unwrap().clone()
}

async fn report(bench: &Bench, reports: Value) -> Reply {
    bench.post("/api/v1/leases/batch", json!({ "leases": reports })).await
}

async fn status(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()["status"].clone()
}

fn ids(jobs: &Value) -> Vec<u64> {
    jobs["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_worker_gets_as_many_jobs_as_are_ready_up_to_its_count() {
    let bench = Bench::new();
    for priority in [1, 1, 5, 1] {
        bench.submit(json!({ "queue": "q", "priority": priority, "payload": priority })).await;
    }
    let first = lease(&bench, 3).await.json();
    assert_eq!(ids(&first), [3, 1, 2], "in the order in which they are worked");
    assert_eq!(
        (&first["jobs"][0]["payload"], &first["jobs"][0]["attempt"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(ids(&lease(&bench, 3).await.json()), [4]);
    assert_eq!(lease(&bench, 3).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_count_of_one_gives_a_list_and_no_count_a_job() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    assert_eq!(ids(&lease(&bench, 1).await.json()), [1]);
    assert_eq!(bench.lease("q").await["id"], 2);
}

#[tokio::test]
async fn a_count_is_one_to_a_hundred() {
    let bench = Bench::new();
    for count in [0, 101] {
        lease(&bench, count).await.is_problem(400, "out_of_range");
    }
    assert_eq!(leased(&bench, 100).await.len(), 100);
}

#[tokio::test]
async fn who_waits_gets_what_comes_first() {
    let bench = Bench::new();
    let asked = json!({ "queues": ["q"], "count": 9, "wait_s": 300 });
    let request = json_request(Method::POST, "/api/v1/lease", &asked);
    let waiting = tokio::spawn(bench.site.clone().oneshot(request));
    bench.waits(1).await;
    bench.submit(json!({ "queue": "q" })).await;
    let answer = Reply::of(waiting.await.unwrap().unwrap()).await.json();
    assert_eq!(ids(&answer), [1]);
}

#[tokio::test]
async fn large_payloads_are_for_the_next_request() {
    let bench = Bench::new();
    for _ in 0..4 {
        bench.submit(json!({ "queue": "q", "payload": "x".repeat(600_000) })).await;
    }
    assert_eq!(ids(&lease(&bench, 4).await.json()), [1, 2], "none after a mebibyte");
    assert_eq!(ids(&lease(&bench, 4).await.json()), [3, 4]);
}

#[tokio::test]
async fn leases_whose_answer_never_left_are_all_undone() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    let asked = json!({ "queues": ["q"], "count": 3 });
    let request = json_request(Method::POST, "/api/v1/lease", &asked);
    let response = bench.site.clone().oneshot(request).await.unwrap();
    assert_eq!(status(&bench, 3).await, "leased");
    drop(response);
    for id in 1..=3 {
        let job = bench.get(&format!("/api/v1/jobs/{id}")).await.json();
        assert_eq!((&job["status"], &job["attempts"]), (&json!("ready"), &json!(0)));
    }
}

#[tokio::test]
async fn each_report_is_taken_or_refused_for_itself() {
    let bench = Bench::new();
    let jobs = leased(&bench, 6).await;
    let token = |at: usize| jobs[at]["lease_token"].clone();
    bench.call(Method::DELETE, "/api/v1/jobs/6").await;
    let answer = report(
        &bench,
        json!([
            { "lease_token": token(0), "complete": { "result": [1] } },
            { "lease_token": token(1), "fail": { "message": "no", "retry": false } },
            { "lease_token": token(2), "release": {} },
            { "lease_token": token(3), "extend": { "ttr_ms": 90_000 } },
            { "lease_token": token(0), "complete": {} },
            { "lease_token": token(4) },
            { "lease_token": token(4), "complete": {}, "release": {} },
            { "lease_token": token(4), "extend": { "ttr_ms": 0 } },
            { "lease_token": "x", "complete": {} },
            { "lease_token": token(5), "complete": {} },
            7,
        ]),
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let answer = answer.json();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(4), &json!(7)));
    let answers = answer["answers"].as_array().unwrap();
    let extended = json!({ "lease_ms": 90_000, "deadline_at": "2026-01-02T03:05:35.678Z" });
    let ended = json!({ "ended": true });
    assert_eq!(answers[..4], [ended.clone(), ended.clone(), ended, extended]);
    let codes: Vec<_> = answers[4..].iter().map(|answer| &answer["problem"]["code"]).collect();
    let gone = "lease_gone";
    let expected = [
        "lease_not_live",
        "bad_field",
        "bad_field",
        "out_of_range",
        "out_of_range",
        gone,
        "bad_field",
    ];
    assert_eq!(json!(codes), json!(expected));
    assert_eq!(answers[4]["problem"]["reason"], "finished");
    for (id, expected) in [(1, "done"), (2, "dead"), (3, "ready"), (4, "leased"), (5, "leased")] {
        assert_eq!(status(&bench, id).await, expected, "job {id}");
    }
    let done = bench.get("/api/v1/jobs/1").await.json();
    assert_eq!(done["result"]["value"], json!([1]));
}

#[tokio::test]
async fn reports_are_told_once_all_of_them_are_on_disk() {
    let bench = Bench::new();
    let jobs = leased(&bench, 50).await;
    let reports: Vec<_> = jobs
        .iter()
        .map(|job| json!({ "lease_token": job["lease_token"], "complete": {} }))
        .collect();
    bench.log.hold(true);
    let asked = report(&bench, json!(reports));
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "nothing is on disk yet");
    assert!(
        bench.engine.inspect(|state| state.status(JobId(50))) == Some(Status::Done),
        "all have ended"
    );
    bench.log.hold(false);
    assert_eq!(asked.await.json()["taken"], 50);
}

#[tokio::test]
async fn there_are_one_to_a_hundred_reports() {
    let bench = Bench::new();
    let jobs = leased(&bench, 1).await;
    let extend = json!({ "lease_token": jobs[0]["lease_token"], "extend": { "ttr_ms": 1 } });
    report(&bench, json!([])).await.is_problem(400, "out_of_range");
    report(&bench, json!(vec![extend.clone(); 101])).await.is_problem(400, "out_of_range");
    assert_eq!(report(&bench, json!(vec![extend; 100])).await.json()["taken"], 100);
    bench.post("/api/v1/leases/batch", json!({ "jobs": [] })).await.is_problem(400, "bad_field");
}

/// Reports on leases, and asks for the next jobs.
async fn report_and_lease(bench: &Bench, reports: Value, lease: Value) -> Reply {
    bench.post("/api/v1/leases/batch", json!({ "leases": reports, "lease": lease })).await
}

#[tokio::test]
async fn the_next_jobs_come_with_the_answer_to_the_reports() {
    let bench = Bench::new();
    for number in 0..4 {
        bench.submit(json!({ "queue": "q", "payload": number })).await;
    }
    let jobs = lease(&bench, 2).await.json();
    let reports = json!([
        { "lease_token": jobs["jobs"][0]["lease_token"], "complete": {} },
        { "lease_token": jobs["jobs"][1]["lease_token"], "fail": { "retry": false } },
    ]);
    let answer = report_and_lease(&bench, reports.clone(), json!({ "queues": ["q"], "count": 9 }));
    let answer = answer.await.json();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(2), &json!(0)));
    assert_eq!(ids(&answer["lease"]), [3, 4]);
    assert_eq!(answer["lease"]["jobs"][0]["payload"], 2);

    // Nothing is ready: the list is empty. What was reported once is told as if it had come alone.
    let again = report_and_lease(&bench, reports, json!({ "queues": ["q"] })).await.json();
    assert_eq!((&again["refused"], &again["lease"]["jobs"]), (&json!(2), &json!([])));
    assert_eq!(again["answers"][0]["problem"]["reason"], "finished");
    let token = &answer["lease"]["jobs"][1]["lease_token"];
    let alone = report(&bench, json!([{ "lease_token": token, "release": {} }])).await.json();
    assert_eq!(alone["lease"], Value::Null, "nobody asked");
}

#[tokio::test]
async fn a_job_that_is_given_back_may_be_the_next_one() {
    let bench = Bench::new();
    let jobs = leased(&bench, 1).await;
    let reports = json!([{ "lease_token": jobs[0]["lease_token"], "release": {} }]);
    let answer = report_and_lease(&bench, reports, json!({ "queues": ["q"] })).await.json();
    assert_eq!(ids(&answer["lease"]), [1], "a list, without a count as well");
}

#[tokio::test]
async fn a_lease_that_is_refused_takes_back_no_report() {
    let bench = Bench::new();
    for (wrong, code) in [
        (json!({ "queues": [] }), "out_of_range"),
        (json!({ "queues": ["q"], "count": 0 }), "out_of_range"),
        (json!({ "queues": ["q"], "count": 101 }), "out_of_range"),
        (json!({ "queues": ["q"], "wait_s": 301 }), "out_of_range"),
        (json!({ "queues": ["q"], "colour": 1 }), "bad_field"),
        (json!(7), "bad_field"),
    ] {
        bench.submit(json!({ "queue": "q" })).await;
        let job = bench.lease("q").await;
        let reports = json!([{ "lease_token": job["lease_token"], "complete": {} }]);
        let answer = report_and_lease(&bench, reports, wrong).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.json()["lease"]["problem"]["code"], code);
        assert_eq!(answer.json()["taken"], 1);
        assert_eq!(status(&bench, job["id"].as_u64().unwrap()).await, "done");
    }
}

#[tokio::test]
async fn the_answer_to_reports_waits_for_a_job_as_long_as_it_says() {
    let bench = Bench::new();
    let jobs = leased(&bench, 1).await;
    let reports = json!([{ "lease_token": jobs[0]["lease_token"], "complete": {} }]);
    let asked = json!({ "leases": reports, "lease": { "queues": ["q"], "wait_s": 300 } });
    let request = json_request(Method::POST, "/api/v1/leases/batch", &asked);
    let waiting = tokio::spawn(bench.site.clone().oneshot(request));
    bench.waits(1).await;
    assert_eq!(status(&bench, 1).await, "done");
    bench.submit(json!({ "queue": "q" })).await;
    let answer = Reply::of(waiting.await.unwrap().unwrap()).await.json();
    assert_eq!((&answer["taken"], ids(&answer["lease"])), (&json!(1), vec![2]));
}

#[tokio::test]
async fn next_jobs_whose_answer_never_left_are_given_back_and_the_reports_stay() {
    let bench = Bench::new();
    let jobs = leased(&bench, 1).await;
    bench.submit(json!({ "queue": "q" })).await;
    let reports = json!([{ "lease_token": jobs[0]["lease_token"], "complete": {} }]);
    let asked = json!({ "leases": reports, "lease": { "queues": ["q"] } });
    let request = json_request(Method::POST, "/api/v1/leases/batch", &asked);
    let response = bench.site.clone().oneshot(request).await.unwrap();
    assert_eq!(status(&bench, 2).await, "leased");
    drop(response);
    assert_eq!(status(&bench, 1).await, "done");
    assert_eq!(status(&bench, 2).await, "ready");
}

#[tokio::test]
async fn reports_and_the_next_jobs_wait_for_the_disk_once() {
    let bench = Bench::new();
    let jobs = leased(&bench, 1).await;
    bench.submit(json!({ "queue": "q" })).await;
    bench.log.hold(true);
    let reports = json!([{ "lease_token": jobs[0]["lease_token"], "complete": {} }]);
    let asked = report_and_lease(&bench, reports, json!({ "queues": ["q"] }));
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "nothing is on disk yet");
    let status = |id| bench.engine.inspect(|state| state.status(JobId(id)));
    assert_eq!((status(1), status(2)), (Some(Status::Done), Some(Status::Leased)));
    bench.log.hold(false);
    assert_eq!(ids(&asked.await.json()["lease"]), [2]);
}
