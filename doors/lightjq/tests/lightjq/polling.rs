//! Waiting for jobs' ends.

use serde_json::json;

use crate::harness::{Bench, ask};

fn poll(id: &str, timeout: &str) -> axum::http::Request<axum::body::Body> {
    ask("GET", &format!("/job/{id}/polling?timeout={timeout}"))
}

#[tokio::test]
async fn who_waits_is_told_at_the_end_and_not_of_failures_before() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "keep_result": true})).await;
    let polled = bench.send(poll(&id, "300"));
    let work = async {
        bench.waits(1).await;
        bench.take(&worker).await;
        bench.done(&worker, json!({"job_id": id, "type": "failure"})).await.is(204);
        bench.pass(1_000);
        bench.take(&worker).await;
        bench.done(&worker, json!({"job_id": id, "type": "success", "result": 7})).await.is(204);
    };
    let (reply, ()) = tokio::join!(polled, work);
    reply.is(200);
    let job = reply.body();
    assert_eq!((&job["status"], &job["result"]), (&json!("done"), &json!(7)));
    assert_eq!(job["retry_count"], 1);
    // It is over already: no wait.
    let again = bench.send(poll(&id, "0")).await;
    assert_eq!(again.body(), job);
}

#[tokio::test]
async fn a_job_that_failed_for_good_is_over_as_well() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    let polled = bench.send(poll(&id, "300"));
    let work = async {
        bench.waits(1).await;
        bench.take(&worker).await;
        bench.done(&worker, json!({"job_id": id, "type": "failure", "error": 1})).await.is(204);
    };
    let (reply, ()) = tokio::join!(polled, work);
    reply.is(200);
    assert_eq!((&reply.body()["status"], &reply.body()["error"]), (&json!("error"), &json!(1)));
}

#[tokio::test]
async fn the_wait_ends_with_408_and_the_job_goes_on() {
    let bench = Bench::new();
    let id = bench.submit_plain("n").await;
    bench.send(poll(&id, "0")).await.is_problem(408, "poll_timeout");
    let polled = bench.send(poll(&id, "5"));
    let time = async {
        bench.waits(1).await;
        bench.pass(4_999);
        assert_eq!(bench.engine.observe().gauges().waits, 1);
        bench.pass(1);
    };
    let (reply, ()) = tokio::join!(polled, time);
    reply.is_problem(408, "poll_timeout");
    assert_eq!(bench.job(&id).await["status"], "queued");
}

#[tokio::test]
async fn a_job_that_is_taken_back_meanwhile_is_not_found() {
    let bench = Bench::new();
    let id = bench.submit_plain("n").await;
    let polled = bench.send(poll(&id, "300"));
    let delete = async {
        bench.waits(1).await;
        bench.delete(&format!("/job/{id}")).await.is(204);
    };
    let (reply, ()) = tokio::join!(polled, delete);
    reply.is_problem(404, "job_not_found");
    bench.send(poll("1000000", "5")).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn waits_that_cannot_be_are_refused() {
    let bench = Bench::new();
    let id = bench.submit_plain("n").await;
    for (timeout, code) in [
        ("-1", "out_of_range"),
        ("301", "out_of_range"),
        ("NaN", "out_of_range"),
        ("inf", "out_of_range"),
        ("soon", "bad_field"),
        ("", "bad_field"),
    ] {
        bench.send(poll(&id, timeout)).await.is_problem(400, code);
    }
}

#[tokio::test]
async fn who_hangs_up_waits_no_more() {
    let bench = Bench::new();
    let id = bench.submit_plain("n").await;
    {
        let polled = bench.send(poll(&id, "300"));
        tokio::pin!(polled);
        tokio::select! {
            reply = &mut polled => panic!("{reply:?}"),
            () = bench.waits(1) => {}
        }
    }
    assert_eq!(bench.engine.observe().gauges().waits, 0);
}

#[tokio::test]
async fn who_hangs_up_at_any_moment_leaves_no_wait() {
    let bench = Bench::new();
    let id = bench.submit_plain("n").await;
    for steps in 1..16 {
        bench.hang_up_after(poll(&id, "300"), steps).await;
        bench.waits(0).await;
    }
}
