//! Setting states.

use serde_json::json;

use crate::harness::{Bench, START_S};

#[tokio::test]
async fn a_bare_body_is_the_new_state_and_the_whole_job_is_told() {
    let bench = Bench::new();
    bench.create("{\"msg\": \"Hello, world\"}").await;
    bench.pass(31_000);
    let job = bench.ok("/api/v0/job/1/state", "[\"ASSIGNED\"]").await;
    let later = "1767323076";
    let expected = json!({
        "id": 1,
        "payload": {"msg": "Hello, world"},
        "state": ["ASSIGNED"],
        "events": [
            ["job_created", {"timestamp": START_S}],
            ["job_state_advanced",
                {"new": ["ASSIGNED"], "old": ["CREATED"], "timestamp": later}],
        ],
    });
    assert_eq!(job, expected);
    assert_eq!(bench.job(1).await, expected);
}

#[tokio::test]
async fn any_json_is_a_state() {
    let bench = Bench::new();
    bench.create("1").await;
    for state in
        ["null", "{}", "{\"old\": 1}", "{\"new\": 1}", "{\"old\":1,\"new\":2,\"x\":3}", "7"]
    {
        let job = bench.ok("/api/v0/job/1/state", state).await;
        assert_eq!(job["state"], serde_json::from_str::<serde_json::Value>(state).unwrap());
    }
}

#[tokio::test]
async fn compare_and_set_compares_what_json_means() {
    let bench = Bench::new();
    bench.create("{\"payload\": null, \"state\": {\"b\": 1, \"a\": [2]}}").await;
    let set = "/api/v0/job/1/state";
    let wrong = bench.post(set, "{\"old\": [\"CREATED\"], \"new\": [\"X\"]}").await;
    wrong.is_refused(409, "state_conflict");
    bench.ok(set, "{\"new\": \"str\", \"old\": { \"a\":[2.0], \"b\": 1}}").await;
    bench.ok(set, "{\"old\": \"\\u0073tr\", \"new\": null}").await;
    let job = bench.ok(set, "{\"old\": null, \"new\": [\"Y\"]}").await;
    assert_eq!((&job["state"], job["events"].as_array().unwrap().len()), (&json!(["Y"]), 4));
    bench.post(set, "{\"old\": null, \"new\": 1}").await.is_refused(409, "state_conflict");
}

#[tokio::test]
async fn a_job_that_is_not_there_is_a_conflict_for_who_expects_a_state() {
    let bench = Bench::new();
    let set = "/api/v0/job/99/state";
    bench.post(set, "{\"old\": 1, \"new\": 2}").await.is_refused(409, "state_conflict");
    bench.post(set, "[\"X\"]").await.is_refused(404, "job_not_found");
    bench.post(set, "{bad").await.is_refused(400, "bad_body");
}

#[tokio::test]
async fn of_many_who_compare_and_set_one_wins() {
    let bench = std::sync::Arc::new(Bench::new());
    bench.create("1").await;
    let tries: Vec<_> = (0..50)
        .map(|n| {
            let bench = std::sync::Arc::clone(&bench);
            tokio::spawn(async move {
                let body = format!("{{\"old\": [\"CREATED\"], \"new\": [\"WON\", {n}]}}");
                bench.post("/api/v0/job/1/state", &body).await.status.as_u16()
            })
        })
        .collect();
    let mut won = 0;
    for outcome in tries {
        match outcome.await.unwrap() {
            200 => won += 1,
            status => assert_eq!(status, 409),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(bench.job(1).await["events"].as_array().unwrap().len(), 2);
}
