//! The history of the server, its failures, and the jobs of each failure.

use serde_json::{Value, json};
use spindle_history::History;

use crate::harness::Bench;

/// A bench whose history is looked at by hand.
fn bench() -> (Bench, History) {
    let history = History::default();
    let given = history.clone();
    let bench = Bench::with(|options| options.history = given, Default::default());
    (bench, history)
}

/// A job of a queue whose only try fails like this.
async fn dead(bench: &Bench, queue: &str, error: &str) -> u64 {
    let id = bench.submit(json!({ "queue": queue, "fails_max": 1 })).await;
    let leased = bench.lease(queue).await;
    let token = leased["lease_token"].as_str().unwrap();
    let words = json!({ "error": error });
    assert_eq!(bench.post(&format!("/api/v1/leases/{token}/fail"), words).await.status, 204);
    id
}

fn sum(points: &Value, field: &str) -> u64 {
    points.as_array().unwrap().iter().map(|point| point[field].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn the_server_and_its_queues_have_a_history() {
    let (bench, history) = bench();
    let empty = bench.get("/api/v1/history").await.json();
    assert_eq!(empty["points"], json!([]));
    dead(&bench, "mail", "no db-1").await;
    bench.submit(json!({ "queue": "mail" })).await;
    bench.submit(json!({ "queue_base64": "cf8=" })).await;
    bench.pass(20_000);
    history.look(&bench.engine);
    let hour = bench.get("/api/v1/history").await.json();
    assert_eq!((&hour["range"], &hour["step_ms"]), (&json!("hour"), &json!(10_000)));
    assert_eq!(hour["now"], "2026-01-02T03:04:25.678Z");
    let points = &hour["points"];
    let counts = ["submitted", "done", "failed", "dead"].map(|field| sum(points, field));
    assert_eq!(counts, [3, 0, 1, 1]);
    assert!(sum(points, "commits") > 0, "{points}");
    let last = points.as_array().unwrap().last().unwrap();
    assert_eq!(
        (last["at"].as_str(), last["ready"].is_null()),
        (Some("2026-01-02T03:04:20.000Z"), true)
    );
    let day = bench.get("/api/v1/history?range=day&points=96").await.json();
    assert_eq!((day["step_ms"].as_u64(), sum(&day["points"], "submitted")), (Some(900_000), 3));
    let mail = bench.get("/api/v1/history?queue=mail").await.json();
    assert_eq!((mail["step_ms"].as_u64(), sum(&mail["points"], "submitted")), (Some(60_000), 2));
    assert_eq!(mail["points"][0]["ready"], 1);
    let other = bench.get("/api/v1/history?queue_base64=cf8%3D").await.json();
    assert_eq!(sum(&other["points"], "submitted"), 1);
    let both = bench.get("/api/v1/history?queue=mail&queue_base64=cf8%3D").await.json();
    assert_eq!(both["points"], json!([]));
    let busiest = bench.get("/api/v1/history/queues?points=30&limit=2").await.json();
    let queues = busiest["queues"].as_array().unwrap();
    let names: Vec<_> = queues.iter().map(|it| (&it["queue"], &it["queue_base64"])).collect();
    assert_eq!(names, [(&json!("mail"), &Value::Null), (&Value::Null, &json!("cf8="))]);
    assert_eq!(queues[0]["step_ms"], 120_000);
}

#[tokio::test]
async fn points_and_lists_have_bounds() {
    let (bench, _) = bench();
    for (path, most) in [
        ("/api/v1/history?points=", 360),
        ("/api/v1/history/queues?limit=", 128),
        ("/api/v1/failures?limit=", 512),
        ("/api/v1/failures?points=", 360),
    ] {
        for (number, status) in [(0, 400), (1, 200), (most, 200), (most + 1, 400)] {
            let reply = bench.get(&format!("{path}{number}")).await;
            assert_eq!(reply.status, status, "{path}{number}: {}", reply.text());
        }
    }
    for path in
        ["/api/v1/history?range=week", "/api/v1/failures?queues=a", "/api/v1/history?queue="]
    {
        assert_eq!(bench.get(path).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn failures_that_say_the_same_are_one_and_lead_to_their_jobs() {
    let (bench, history) = bench();
    let first = dead(&bench, "import", "connection refused to db-1").await;
    let second = dead(&bench, "export", "connection refused to db-22\n  at connect").await;
    let third = dead(&bench, "export", "disk full").await;
    bench.submit(json!({ "queue": "late", "ttr_ms": 1000 })).await;
    bench.lease("late").await;
    bench.pass(2_000);
    history.look(&bench.engine);
    let found = bench.get("/api/v1/failures").await.json();
    let groups = found["failures"].as_array().unwrap();
    let heads: Vec<_> =
        groups.iter().map(|it| (it["fingerprint"].as_str().unwrap(), &it["count"])).collect();
    let refused = "connection refused to db-#";
    assert_eq!(heads[0], (refused, &json!(2)));
    assert!(heads.contains(&("timed out", &json!(1))), "{heads:?}");
    assert_eq!((groups.len(), &groups[0]["last_job"]), (3, &json!(second)));
    assert_eq!((sum(&groups[0]["trend"], "count"), sum(&groups[0]["queues"], "count")), (2, 2));
    let of_one = bench.get("/api/v1/failures?queue=import").await.json();
    assert_eq!(of_one["failures"][0]["count"], 1);
    assert_eq!(of_one["failures"].as_array().unwrap().len(), 1);
    let ids = async |query: &str| -> Vec<u64> {
        let page = bench.get(&format!("/api/v1/jobs?{query}")).await.json();
        page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
    };
    let said = "fingerprint=connection%20refused%20to%20db-%23";
    assert_eq!(ids(said).await, [first, second]);
    assert_eq!(ids(&format!("{said}&queue=export&status=dead")).await, [second]);
    assert_eq!(ids("fingerprint=timed%20out").await, [4], "it failed, and will be tried again");
    assert_eq!(ids("fingerprint=disk%20full&status=ready").await, [0; 0]);
    let limit = format!("fingerprint={}", "x".repeat(161));
    assert_eq!(bench.get(&format!("/api/v1/jobs?{limit}")).await.status, 400);
    assert_eq!(ids(&limit[..limit.len() - 1]).await, [0; 0]);
    let filter = json!({ "status": "dead", "fingerprint": refused });
    let bulk =
        bench.post("/api/v1/jobs/bulk", json!({ "filter": filter, "action": "retry" })).await;
    assert_eq!(bulk.json()["changed"], 2);
    assert_eq!(ids("status=dead").await, [third]);
}

#[tokio::test]
async fn a_job_that_was_cancelled_or_succeeded_is_in_no_group() {
    let (bench, history) = bench();
    bench.submit(json!({ "queue": "q", "backoff": { "base_ms": 1000 } })).await;
    let fail = async || {
        let leased = bench.lease("q").await;
        let token = leased["lease_token"].as_str().unwrap().to_owned();
        bench.post(&format!("/api/v1/leases/{token}/fail"), json!({ "message": "busy" })).await;
    };
    fail().await;
    let all = async || {
        let page = bench.get("/api/v1/jobs?fingerprint=busy").await.json();
        page["jobs"].as_array().unwrap().len()
    };
    assert_eq!(all().await, 1);
    bench.pass(500);
    bench.call(axum::http::Method::POST, "/api/v1/jobs/1/cancel").await;
    assert_eq!(all().await, 0, "it is dead because somebody cancelled it");
    history.look(&bench.engine);
    let found = bench.get("/api/v1/failures").await.json();
    assert_eq!(found["failures"][0]["count"], 1, "{found}");
}
