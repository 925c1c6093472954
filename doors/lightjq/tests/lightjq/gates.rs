//! Nothing is told before it is durable.

use serde_json::json;
use tokio::pin;

use crate::harness::{Bench, Reply, until};

/// What is asked for is decided, and not answered while the log is held back; and answered then.
async fn is_held(bench: &Bench, request: impl Future<Output = Reply>) -> Reply {
    bench.log.hold(true);
    let before = bench.engine.observe().gauges().undurable_bytes;
    pin!(request);
    tokio::select! {
        biased;
        reply = &mut request => panic!("told too early: {reply:?}"),
        () = until(|| bench.engine.observe().gauges().undurable_bytes > before) => {}
    }
    for _ in 0..100 {
        tokio::select! {
            biased;
            reply = &mut request => panic!("told too early: {reply:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    bench.log.hold(false);
    request.await
}

#[tokio::test]
async fn answers_wait_for_the_disk() {
    let bench = Bench::new();
    let worker = bench.worker(2).await;
    let job = json!({"name": "n", "argument": {}});
    let reply = is_held(&bench, bench.post("/job", job)).await;
    reply.is(201);
    let id = reply.body()["job_id"].clone();
    let order = is_held(&bench, bench.next(&worker, "60")).await;
    assert_eq!(order.body()["id"], id);
    let done = json!({"job_id": id, "type": "success"});
    is_held(&bench, bench.done(&worker, done)).await.is(204);
    let id = bench.submit_plain("n").await;
    is_held(&bench, bench.delete(&format!("/job/{id}"))).await.is(204);
}
