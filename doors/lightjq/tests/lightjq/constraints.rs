//! Limits on jobs that match.

use serde_json::json;

use crate::harness::{Bench, packed};

#[tokio::test]
async fn a_constraint_holds_jobs_back_by_their_name_and_argument_until_it_is_lifted() {
    let bench = Bench::new();
    let worker = bench.worker(9).await;
    let limit = json!({"queue": "n", "where": [{"pointer": "/size", "op": "gt", "value": 10}],
        "running_max": 1});
    let put = bench.send(packed("PUT", "/constraint/big", None, &limit)).await;
    put.is(201);
    assert_eq!(put.body()["running_max"], 1);
    bench.send(packed("PUT", "/constraint/big", None, &limit)).await.is(200);
    for size in [50, 60, 5] {
        bench.submit(json!({"name": "n", "argument": {"size": size}})).await;
    }
    let first = bench.take(&worker).await;
    assert_eq!(first["argument"]["size"], 50);
    assert_eq!(bench.take(&worker).await["argument"]["size"], 5, "60 has to wait");
    bench.next(&worker, "0").await.is(204);
    bench.done(&worker, json!({"job_id": first["id"], "type": "success"})).await.is(204);
    assert_eq!(bench.take(&worker).await["argument"]["size"], 60);
    bench.submit(json!({"name": "n", "argument": {"size": 70}})).await;
    bench.next(&worker, "0").await.is(204);
    let shown = bench.get("/constraint/big").await;
    assert_eq!(shown.body()["where"], limit["where"]);
    bench.delete("/constraint/big").await.is(204);
    assert_eq!(bench.take(&worker).await["argument"]["size"], 70);
    bench.get("/constraint/big").await.is_problem(404, "constraint_not_found");
    bench.delete("/constraint/big").await.is_problem(404, "constraint_not_found");
}

#[tokio::test]
async fn a_constraint_that_is_none_is_refused() {
    let bench = Bench::new();
    for (body, code) in [
        (json!({}), "out_of_range"),
        (json!([]), "bad_field"),
        (json!({"running_max": -1}), "bad_field"),
        (json!({"running_max": 1, "unknown": 1}), "bad_field"),
        (json!({"running_max": 1, "queue": "a", "queue_glob": "b"}), "bad_field"),
    ] {
        let reply = bench.send(packed("PUT", "/constraint/c", None, &body)).await;
        reply.is_problem(400, code);
    }
    let body = json!({"running_max": 1});
    for name in ["%ff", &"n".repeat(256)] {
        let reply = bench.send(packed("PUT", &format!("/constraint/{name}"), None, &body)).await;
        reply.is_problem(400, "out_of_range");
    }
    bench.get("/constraint/c").await.is_problem(404, "constraint_not_found");
}
