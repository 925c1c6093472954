//! Many jobs in one request, and unique keys that replace.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Bench, Reply, json as json_request};

async fn batch(bench: &Bench, jobs: Value) -> Reply {
    bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await
}

async fn status(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()["status"].clone()
}

#[tokio::test]
async fn each_job_of_a_batch_is_taken_or_refused_for_itself() {
    let bench = Bench::new();
    let shown = batch(
        &bench,
        json!([
            { "queue": "q", "payload": [1] },
            { "queue": "" },
            { "queue": "q", "unique": { "key": "k" } },
            [1, 2],
            { "queue": "q", "unique": { "key": "k" } },
            { "queue": "q", "unique": { "key": "k", "mode": "existing" } },
            { "queue": "q", "tags": ["last"] },
        ]),
    )
    .await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.text());
    let shown = shown.json();
    assert_eq!((&shown["taken"], &shown["refused"]), (&json!(4), &json!(3)));
    let answers = shown["answers"].as_array().unwrap();
    let ids: Vec<Value> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(json!(ids), json!([1, null, 2, null, null, 2, 3]));
    let codes: Vec<&str> =
        answers.iter().filter_map(|answer| answer["problem"]["code"].as_str()).collect();
    assert_eq!(codes, ["out_of_range", "bad_field", "key_taken"]);
    assert_eq!((&answers[2]["existing"], &answers[5]["existing"]), (&json!(false), &json!(true)));
    assert_eq!(answers[4]["problem"]["job"], 2);
    assert_eq!(bench.get("/api/v1/jobs/1").await.json()["payload"], json!([1]));
    assert_eq!(bench.get("/api/v1/jobs/3").await.json()["tags"], json!(["last"]));
}

#[tokio::test]
async fn a_batch_is_told_once_all_of_it_is_on_disk() {
    let bench = Bench::new();
    bench.log.hold(true);
    let jobs: Vec<Value> = (0..200).map(|n| json!({ "queue": "q", "payload": n })).collect();
    let asked = batch(&bench, json!(jobs));
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "nothing is on disk yet");
    assert_eq!(bench.engine.observe().gauges().jobs, 200);
    bench.log.hold(false);
    assert_eq!(asked.await.json()["taken"], 200);
}

#[tokio::test]
async fn a_batch_is_an_object_with_one_to_a_thousand_jobs() {
    let bench = Bench::new();
    let thousand = vec![json!({ "queue": "q" }); 1001];
    batch(&bench, json!([])).await.is_problem(400, "out_of_range");
    batch(&bench, json!(thousand)).await.is_problem(400, "out_of_range");
    bench.post("/api/v1/jobs/batch", json!([{ "queue": "q" }])).await.is_problem(400, "bad_field");
    bench.post("/api/v1/jobs/batch", json!({ "job": [] })).await.is_problem(400, "bad_field");
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
    assert_eq!(batch(&bench, json!(thousand[1..])).await.json()["taken"], 1000);
    assert_eq!(bench.engine.observe().gauges().jobs, 1000);
}

#[tokio::test]
async fn a_batch_that_is_sent_twice_with_one_key_is_one_batch() {
    let bench = Bench::new();
    let send = async |jobs: Value| {
        let mut request =
            json_request(Method::POST, "/api/v1/jobs/batch", &json!({ "jobs": jobs }));
        request.headers_mut().insert("idempotency-key", "import 7".parse().unwrap());
        bench.send(request).await.json()
    };
    let jobs = json!([{ "queue": "q", "payload": 1 }, { "queue": "q", "payload": 1 }]);
    let first = send(jobs.clone()).await;
    let second = send(jobs.clone()).await;
    assert_eq!(bench.engine.observe().gauges().jobs, 2);
    for place in 0..2 {
        assert_eq!(first["answers"][place]["id"], second["answers"][place]["id"]);
        assert_eq!(second["answers"][place]["existing"], true);
    }
    let other = send(json!([{ "queue": "q", "payload": 2 }])).await;
    assert_eq!(other["answers"][0]["problem"]["code"], "idempotency_key_reused");
}

#[tokio::test]
async fn each_job_of_a_batch_can_have_an_idempotency_key_of_its_own() {
    let bench = Bench::new();
    let job = |key: &str, n: u64| json!({ "queue": "q", "payload": n, "idempotency_key": key });
    let first = batch(&bench, json!([job("a", 1), job("b", 2)])).await.json();
    assert_eq!(first["taken"], 2);
    // Another batch, other places.
    let second =
        batch(&bench, json!([job("c", 3), job("b", 2), job("a", 9), job("", 1)])).await.json();
    let answers = second["answers"].as_array().unwrap();
    assert_eq!((&answers[0]["id"], &answers[0]["existing"]), (&json!(3), &json!(false)));
    assert_eq!((&answers[1]["id"], &answers[1]["existing"]), (&json!(2), &json!(true)));
    assert_eq!(answers[2]["problem"]["code"], "idempotency_key_reused");
    assert_eq!(answers[3]["problem"]["code"], "out_of_range");
    let found = bench.get("/api/v1/jobs?idempotency_key=b").await.json();
    assert_eq!(found["jobs"][0]["id"], 2);

    let alone = bench.submit(job("d", 4)).await;
    let again = bench.post("/api/v1/jobs", job("d", 4)).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::OK, &json!(alone)));
    let mut request = json_request(Method::POST, "/api/v1/jobs", &job("e", 5));
    request.headers_mut().insert("idempotency-key", "header".parse().unwrap());
    assert_eq!(bench.send(request).await.status, StatusCode::CREATED, "the field goes first");
    assert_eq!(bench.get("/api/v1/jobs?idempotency_key=header").await.json()["jobs"], json!([]));
    bench.post("/api/v1/jobs", job("\u{e9}", 6)).await.is_problem(400, "out_of_range");
    bench.post("/api/v1/jobs", job(&"k".repeat(256), 6)).await.is_problem(400, "out_of_range");
    bench.submit(job(&"k".repeat(255), 6)).await;
}

#[tokio::test]
async fn a_job_that_replaces_takes_the_place_of_the_waiting_one() {
    let bench = Bench::new();
    let replacing = |n: u64| {
        let unique = json!({ "key": "report", "mode": "replace" });
        json!({ "queue": "q", "payload": n, "unique": unique })
    };
    assert_eq!(bench.submit(replacing(1)).await, 1);
    assert_eq!(bench.submit(replacing(2)).await, 2);
    bench.get("/api/v1/jobs/1").await.is_problem(404, "job_not_found");
    assert_eq!(bench.get("/api/v1/jobs/2").await.json()["payload"], 2);
    let leased = bench.lease("q").await;
    assert_eq!(leased["id"], 2);
    let refused = bench.post("/api/v1/jobs", replacing(3)).await;
    refused.is_problem(409, "job_leased");
    assert_eq!(refused.json()["job"], 2);
    assert_eq!(status(&bench, 2).await, "leased");
    bench.call(Method::POST, "/api/v1/jobs/2/cancel").await;
    assert_eq!(bench.submit(replacing(3)).await, 3);
    assert_eq!(status(&bench, 2).await, "dead", "a finished job is not replaced: its key is free");
    let answer = batch(&bench, json!([replacing(4), replacing(5), replacing(6)])).await.json();
    assert_eq!(answer["taken"], 3);
    assert_eq!(bench.engine.observe().gauges().jobs, 2, "the dead one and the last one");
}

#[tokio::test]
async fn objects_within_objects_are_no_lists_either() {
    let bench = Bench::new();
    for (path, body) in [
        ("/api/v1/jobs", json!({ "queue": "q", "backoff": [100, 2000] })),
        ("/api/v1/jobs", json!({ "queue": "q", "unique": ["k"] })),
        ("/api/v1/jobs", json!({ "queue": "q", "unique": "k" })),
    ] {
        bench.post(path, body).await.is_problem(400, "bad_field");
    }
    let settings = json_request(
        Method::PUT,
        "/api/v1/queues/q/settings",
        &json!({ "backoff": [100, 2000, 5000, 0] }),
    );
    bench.send(settings).await.is_problem(400, "bad_field");
    let null = json!({ "queue": "q", "backoff": null, "unique": null });
    assert_eq!(bench.post("/api/v1/jobs", null).await.status, StatusCode::CREATED);
}
