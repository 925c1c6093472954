//! How often a job is tried, and how that is shown.

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};

use crate::harness::{Bench, Reply, json as json_request, request};

async fn job(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()
}

/// A body just as it stands there.
async fn sent(bench: &Bench, method: Method, path: &str, body: &str) -> Reply {
    let request = request(method, path).header(header::CONTENT_TYPE, "application/json");
    bench.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn a_job_tells_the_limits_that_are_in_force_and_who_set_them() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "q" })).await;
    let answer = job(&bench, id).await;
    assert_eq!((&answer["attempts_max"], &answer["fails_max"]), (&json!(25), &json!(5)));
    let usual = json!({ "base_ms": 5000, "factor": 3, "cap_ms": 3_600_000, "jitter": 0.2 });
    assert_eq!(answer["backoff"], usual);
    let from = json!({ "attempts_max": "default", "fails_max": "default", "backoff": "default" });
    assert_eq!(answer["limits_from"], from);
    let settings = json!({ "fails_max": 2, "attempts_max": 9 });
    let put = json_request(Method::PUT, "/api/v1/queues/q/settings", &settings);
    bench.send(put).await;
    let asked = json!({ "queue": "q", "attempts_max": 0, "backoff": { "base_ms": 7 } });
    let id = bench.submit(asked).await;
    let listed = bench.get("/api/v1/jobs?order=desc&limit=1").await.json();
    for answer in [job(&bench, id).await, listed["jobs"][0].clone()] {
        assert_eq!((&answer["attempts_max"], &answer["fails_max"]), (&json!(0), &json!(2)));
        let own = json!({ "base_ms": 7, "factor": 1, "cap_ms": 3_600_000, "jitter": 0 });
        assert_eq!(answer["backoff"], own);
        let from = json!({ "attempts_max": "job", "fails_max": "queue", "backoff": "job" });
        assert_eq!(answer["limits_from"], from);
    }
    // A job that ended tells those a retry would have.
    bench.call(Method::POST, "/api/v1/jobs/1/cancel").await;
    let answer = job(&bench, 1).await;
    assert_eq!(
        (&answer["fails_max"], &answer["limits_from"]["fails_max"]),
        (&json!(2), &json!("queue"))
    );
}

#[tokio::test]
async fn a_job_that_ends_its_workers_is_dead_and_says_so_wherever_it_is_told() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "ttr_ms": 1000 })).await;
    for attempt in 1..=25 {
        bench.pass(3_600_000);
        assert_eq!(bench.lease("q").await["attempt"], attempt);
        bench.pass(1000);
    }
    let answer = job(&bench, 1).await;
    assert_eq!((&answer["status"], &answer["attempts"]), (&json!("dead"), &json!(25)));
    let message = "25 of 25 attempts: the last one timed out";
    assert_eq!(
        (&answer["result"]["code"], &answer["result"]["message"]),
        (&json!("timeout"), &json!(message))
    );
    let events = bench.get("/api/v1/events?after=oldest&follow=false").await;
    let dead = events.text().lines().find(|line| line.contains(r#""type":"dead""#)).unwrap();
    let dead: Value = serde_json::from_str(dead.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&dead["code"], &dead["message"]), (&json!("timeout"), &json!(message)));
}

#[tokio::test]
async fn factor_and_jitter_have_up_to_three_decimals_however_they_are_written() {
    let bench = Bench::new();
    for (factor, jitter, told_factor, told_jitter) in [
        ("1", "0", "1", "0"),
        ("1.5", "0.001", "1.5", "0.001"),
        ("2.125", "1", "2.125", "1"),
        ("1.1", "0.999", "1.1", "0.999"),
        ("1000", "0.30", "1000", "0.3"),
        ("1e3", "25e-2", "1000", "0.25"),
        ("0.15E+1", "-0.0", "1.5", "0"),
    ] {
        let body = format!(
            r#"{{"queue":"q","backoff":{{"base_ms":1,"factor":{factor},"jitter":{jitter}}}}}"#
        );
        let reply = sent(&bench, Method::POST, "/api/v1/jobs", &body).await;
        assert_eq!(reply.status, 201, "{body}: {}", reply.text());
        let id = &reply.json()["id"];
        let answer = bench.get(&format!("/api/v1/jobs/{id}")).await;
        let expected = format!(
            r#""backoff":{{"base_ms":1,"factor":{told_factor},"cap_ms":3600000,"jitter":{told_jitter}}}"#
        );
        assert!(answer.text().contains(&expected), "{expected} in {}", answer.text());
    }
}

#[tokio::test]
async fn what_is_no_such_number_is_refused_and_the_answer_says_which() {
    let bench = Bench::new();
    for (field, value, code) in [
        ("factor", "0.999", "out_of_range"),
        ("factor", "0", "out_of_range"),
        ("factor", "-2", "out_of_range"),
        ("factor", "1.0005", "out_of_range"),
        ("factor", "2.1250000000000000001", "out_of_range"),
        ("factor", "1000.001", "out_of_range"),
        ("factor", "1e400", "out_of_range"),
        ("jitter", "1.001", "out_of_range"),
        ("jitter", "-0.001", "out_of_range"),
        ("jitter", "1e-4", "out_of_range"),
        ("factor", "\"2\"", "bad_field"),
        ("jitter", "true", "bad_field"),
        ("factor", "null", "bad_field"),
        ("factor_thousandths", "2000", "bad_field"),
        ("jitter_thousandths", "200", "bad_field"),
    ] {
        let backoff = format!(r#""backoff":{{"base_ms":1,"{field}":{value}}}"#);
        let job = format!(r#"{{"queue":"q",{backoff}}}"#);
        let answer = sent(&bench, Method::POST, "/api/v1/jobs", &job).await;
        answer.is_problem(400, code);
        let name = if code == "out_of_range" { format!("backoff.{field}") } else { String::new() };
        assert!(answer.json()["detail"].as_str().unwrap().contains(&name), "{}", answer.text());
        let settings = format!("{{{backoff}}}");
        let path = "/api/v1/queues/q/settings";
        sent(&bench, Method::PUT, path, &settings).await.is_problem(400, code);
    }
}
