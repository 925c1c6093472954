//! Jobs that wait for others.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::Bench;

async fn job(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()
}

async fn status(bench: &Bench, id: u64) -> String {
    job(bench, id).await["status"].as_str().unwrap().to_owned()
}

async fn complete(bench: &Bench, queue: &str, result: Value) -> Value {
    let leased = bench.lease(queue).await;
    let token = leased["lease_token"].as_str().unwrap();
    let path = format!("/api/v1/leases/{token}/complete");
    bench.post(&path, json!({ "result": result })).await;
    leased
}

async fn batch(bench: &Bench, jobs: Value) -> Vec<Value> {
    let reply = bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["answers"].as_array().unwrap().clone()
}

/// Two jobs in `resize`, and a third one in `mail` after both.
async fn with_three(on_dead: &str) -> Bench {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.submit(json!({ "queue": "resize" })).await;
    }
    let body = json!({ "queue": "mail", "after": [2, 1, 2], "on_dead": on_dead });
    assert_eq!(bench.submit(body).await, 3);
    bench
}

#[tokio::test]
async fn a_job_is_blocked_until_those_before_it_are_done_and_its_worker_reads_their_results() {
    let bench = with_three("cancel").await;
    let shown = job(&bench, 3).await;
    let before =
        |one: &str, two: &str| json!([{ "id": 1, "status": one }, { "id": 2, "status": two }]);
    assert_eq!(shown["after"], before("ready", "ready"));
    assert_eq!((&shown["status"], &shown["on_dead"]), (&json!("blocked"), &json!("cancel")));
    let list = bench.get("/api/v1/jobs?status=blocked").await.json();
    assert_eq!(list["jobs"].as_array().unwrap().len(), 1);
    let queue = bench.get("/api/v1/queues/mail").await.json();
    assert_eq!((&queue["jobs"]["blocked"], &queue["jobs"]["ready"]), (&json!(1), &json!(0)));

    let first = complete(&bench, "resize", json!({ "pages": 3 })).await;
    assert_eq!(status(&bench, 3).await, "blocked");
    complete(&bench, "resize", json!("two")).await;
    let leased = bench.lease("mail").await;
    assert_eq!((&leased["id"], &leased["after"]), (&json!(3), &before("done", "done")));
    let token = leased["lease_token"].as_str().unwrap();
    let read = bench.get(&format!("/api/v1/leases/{token}/after/1")).await.json();
    assert_eq!((&read["status"], &read["queue"]), (&json!("done"), &json!("resize")));
    assert_eq!(read["result"]["value"], json!({ "pages": 3 }));
    let path = format!("/api/v1/leases/{token}/after/3");
    bench.get(&path).await.is_problem(400, "out_of_range");
    let ended = first["lease_token"].as_str().unwrap();
    for id in ["0", "-1", "x"] {
        let path = format!("/api/v1/leases/{ended}/after/{id}");
        bench.get(&path).await.is_problem(400, "out_of_range");
    }
    let path = format!("/api/v1/leases/{ended}/after/1");
    bench.get(&path).await.is_problem(409, "lease_not_live");
}

#[tokio::test]
async fn why_names_those_it_waits_for_and_says_how_they_stand() {
    let bench = with_three("wait").await;
    let asked = json!({ "queues": ["resize"], "worker": "w1" });
    bench.post("/api/v1/lease", asked).await;
    bench.call(Method::POST, "/api/v1/jobs/2/cancel").await;
    let why = bench.get("/api/v1/jobs/3/why").await.json();
    let reason = &why["reasons"][0];
    assert_eq!((&why["runnable"], &reason["code"]), (&json!(false), &json!("blocked")));
    let text = "it waits for jobs 1, 2: 1 is leased by w1; 2 is dead";
    assert_eq!((&reason["text"], &reason["command"]), (&json!(text), &json!("spindle retry 2")));
}

#[tokio::test]
async fn the_death_of_one_cancels_those_behind_it_and_says_so() {
    let bench = with_three("cancel").await;
    bench.submit(json!({ "queue": "mail", "after": [3], "on_dead": "run" })).await;
    bench.call(Method::POST, "/api/v1/jobs/1/cancel").await;
    assert_eq!((status(&bench, 3).await, status(&bench, 4).await), ("dead".into(), "ready".into()));
    let shown = job(&bench, 3).await;
    let message = "job 1, which it waited for, is dead";
    assert_eq!(shown["result"]["code"], "after_dead");
    assert_eq!(shown["result"]["message"], message);
    let why = bench.get("/api/v1/jobs/3/why").await.json();
    assert_eq!(why["reasons"][0]["text"], format!("it was cancelled: {message}"));
}

#[tokio::test]
async fn what_cannot_be_waited_for_is_refused_with_its_number() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let submit = |body: Value| bench.post("/api/v1/jobs", body);
    let gone = submit(json!({ "queue": "q", "after": [1, 9] })).await;
    gone.is_problem(404, "after_not_found");
    assert_eq!(gone.json()["job"], 9);
    for (body, code) in [
        (json!({ "queue": "q", "after": (1..=101).collect::<Vec<u64>>() }), "out_of_range"),
        (json!({ "queue": "q", "after": ["a"] }), "bad_field"),
        (json!({ "queue": "q", "after": [1], "on_dead": "panic" }), "bad_field"),
        (json!({ "queue": "q", "after": [1.5] }), "bad_field"),
        (json!({ "queue": "q", "ref": "no spaces" }), "out_of_range"),
    ] {
        submit(body.clone()).await.is_problem(400, code);
    }
    let refused = submit(json!({ "queue": "q", "after": [null] })).await.json();
    let detail = "after has numbers of jobs and batches, or refs of jobs of the request";
    assert!(refused["detail"].as_str().unwrap().contains(detail), "{refused}");
}

#[tokio::test]
async fn numbers_may_have_a_fraction_of_nothing_and_on_dead_may_come_alone() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let waiting = bench.submit(json!({ "queue": "q", "after": [1.0] })).await;
    assert_eq!(job(&bench, waiting).await["status"], "blocked");
    let free = bench.submit(json!({ "queue": "q", "on_dead": "run" })).await;
    let shown = job(&bench, free).await;
    assert_eq!((&shown["status"], &shown["on_dead"]), (&json!("ready"), &json!(null)));
}

#[tokio::test]
async fn jobs_of_a_batch_name_each_other_in_any_order() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let answers = batch(
        &bench,
        json!([
            { "queue": "q", "after": ["b", "a", 1], "ref": "c" },
            { "queue": 7, "ref": "broken" },
            { "queue": "q", "after": ["a"], "ref": "b" },
            { "queue": "q", "ref": "a" },
            { "queue": "q", "after": ["broken"] },
            { "queue": "q", "after": [77], "ref": "d" },
            { "queue": "q", "after": ["d"] },
        ]),
    )
    .await;
    let id = |at: usize| answers[at]["id"].as_u64();
    let code = |at: usize| answers[at]["problem"]["code"].as_str();
    assert_eq!((id(3), id(2), id(0)), (Some(2), Some(3), Some(4)));
    assert_eq!(code(1), Some("bad_field"));
    assert_eq!([4, 5, 6].map(code), [Some("after_not_found"); 3]);
    let detail = "job 6 of the request, which it waits for, is refused";
    assert_eq!(answers[6]["problem"]["detail"], detail);
    let after = job(&bench, 4).await["after"].clone();
    let ids: Vec<&Value> = after.as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!(3)]);
}

#[tokio::test]
async fn a_circle_refuses_the_batch_and_names_it() {
    let bench = Bench::new();
    let jobs = json!([
        { "queue": "q", "ref": "a", "after": ["b"] },
        { "queue": "q", "ref": "b", "after": ["a"] },
        { "queue": "q" },
    ]);
    let refused = bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await;
    refused.is_problem(400, "bad_field");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.ends_with("in a circle: a after b after a"), "{detail}");
    assert_eq!(bench.get("/api/v1/jobs").await.json()["jobs"], json!([]));
}

#[tokio::test]
async fn a_batch_sent_twice_is_one_flow() {
    let bench = Bench::new();
    let jobs = json!([
        { "queue": "q", "ref": "a", "idempotency_key": "a" },
        { "queue": "q", "after": ["a"], "idempotency_key": "b" },
    ]);
    let first = batch(&bench, json!([jobs[0]])).await;
    let both = batch(&bench, jobs.clone()).await;
    assert_eq!((&both[0]["id"], &both[0]["existing"]), (&first[0]["id"], &json!(true)));
    assert_eq!(job(&bench, 2).await["after"][0]["id"], first[0]["id"]);
    let again = batch(&bench, jobs).await;
    assert_eq!(again[1]["id"], both[1]["id"]);
}

#[tokio::test]
async fn a_flow_has_what_comes_before_and_what_waits() {
    let bench = with_three("run").await;
    bench.submit(json!({ "queue": "mail", "after": [3] })).await;
    bench.submit(json!({ "queue": "other" })).await;
    complete(&bench, "resize", json!(1)).await;
    let flow = bench.get("/api/v1/jobs/3/flow").await.json();
    let nodes: Vec<(&Value, &Value)> =
        flow["nodes"].as_array().unwrap().iter().map(|it| (&it["id"], &it["status"])).collect();
    let expected = [(1, "done"), (2, "ready"), (3, "blocked"), (4, "blocked")];
    assert_eq!(
        nodes,
        expected
            .map(|(id, status)| (json!(id), json!(status)))
            .each_ref()
            .map(|(id, status)| (id, status))
    );
    let edges = json!([{ "from": 1, "to": 3 }, { "from": 2, "to": 3 }, { "from": 3, "to": 4 }]);
    assert_eq!((&flow["edges"], &flow["is_partial"]), (&edges, &json!(false)));
    assert_eq!(
        (&flow["nodes"][2]["on_dead"], &flow["nodes"][2]["queue"]),
        (&json!("run"), &json!("mail"))
    );

    let near = bench.get("/api/v1/jobs/3/flow?limit=2").await.json();
    assert_eq!((near["nodes"].as_array().unwrap().len(), &near["is_partial"]), (2, &json!(true)));
    let most = bench.get("/api/v1/jobs/3/flow?limit=1000").await.json();
    assert_eq!((&most["nodes"], &most["is_partial"]), (&flow["nodes"], &json!(false)));
    bench.get("/api/v1/jobs/3/flow?limit=1001").await.is_problem(400, "out_of_range");
    bench.get("/api/v1/jobs/99/flow").await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_flow_travels_to_another_server() {
    let from = with_three("run").await;
    let to = Bench::new();
    to.submit(json!({ "queue": "x" })).await;
    let lines = from.get("/api/v1/jobs/export").await.json()["jobs"].clone();
    let import = |jobs: Value| to.post("/api/v1/jobs/import", json!({ "jobs": jobs }));
    // The one that waits comes with a later request, as when a file is long.
    assert_eq!(import(json!([lines[0]])).await.json()["answers"][0]["id"], 2);
    complete(&to, "resize", json!(1)).await;
    let answers = import(json!([lines[2], lines[1]])).await.json()["answers"].clone();
    let shown = job(&to, answers[0]["id"].as_u64().unwrap()).await;
    let before =
        json!([{ "id": 2, "status": "done" }, { "id": answers[1]["id"], "status": "ready" }]);
    assert_eq!((&shown["after"], &shown["status"]), (&before, &json!("blocked")));
    assert_eq!(shown["on_dead"], "run");

    let other = Bench::new();
    let alone = other.post("/api/v1/jobs/import", json!({ "jobs": [lines[2]] })).await.json();
    assert_eq!(alone["answers"][0]["problem"]["code"], "after_not_found");
}
