//! Waiting for a job's end.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;
use tokio::join;

use crate::harness::{Bench, request};

#[tokio::test]
async fn a_waiter_is_told_the_job_as_it_ended() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let leased = bench.lease("q").await;
    let token = leased["lease_token"].as_str().unwrap();
    let waits = bench.get("/api/v1/jobs/1/wait?wait_s=300");
    let ends = async {
        bench.waits(1).await;
        bench.post(&format!("/api/v1/leases/{token}/complete"), json!({ "result": 7 })).await
    };
    let (answer, _) = join!(waits, ends);
    assert_eq!(answer.status, StatusCode::OK);
    let job = answer.json();
    assert_eq!((&job["status"], &job["result"]["value"]), (&json!("done"), &json!(7)));
    let again = bench.get("/api/v1/jobs/1/wait?wait_s=300").await;
    assert_eq!(again.json()["status"], "done", "there is nothing left to wait for");
}

#[tokio::test]
async fn a_wait_that_is_over_tells_the_job_as_it_is() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    assert_eq!(bench.get("/api/v1/jobs/1/wait").await.json()["status"], "ready");
    let waits = bench.get("/api/v1/jobs/1/wait?wait_s=2");
    let passes = async {
        bench.waits(1).await;
        bench.pass(2_000);
    };
    let (answer, ()) = join!(waits, passes);
    assert_eq!(answer.json()["status"], "ready");
}

#[tokio::test]
async fn a_job_that_goes_meanwhile_is_not_found() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let waits = bench.get("/api/v1/jobs/1/wait?wait_s=300");
    let goes = async {
        bench.waits(1).await;
        bench.call(Method::DELETE, "/api/v1/jobs/1").await
    };
    let (answer, _) = join!(waits, goes);
    answer.is_problem(404, "job_not_found");
    bench.get("/api/v1/jobs/1/wait?wait_s=1").await.is_problem(404, "job_not_found");
    bench.get("/api/v1/jobs/1/wait?wait_s=301").await.is_problem(400, "out_of_range");
    bench.get("/api/v1/jobs/1/wait?wait_s=x").await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn who_hangs_up_at_any_moment_leaves_no_wait() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    for steps in 1..16 {
        let path = "/api/v1/jobs/1/wait?wait_s=300";
        let asked = request(Method::GET, path).body(Body::empty()).unwrap();
        bench.hang_up_after(asked, steps).await;
        bench.waits(0).await;
    }
}
