//! The reports of workers about a running job, and which clients see them.

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};
use spindle_access::Look;
use spindle_testkit::TokensFile;
use tower::ServiceExt;

use crate::access::guarded;
use crate::events::Follower;
use crate::harness::{Bench, Reply, request};

/// A bench with a job, and the token of its lease.
async fn leased() -> (Bench, u64, String) {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "q", "fails_max": 3 })).await;
    let token = bench.lease("q").await["lease_token"].as_str().unwrap().to_owned();
    (bench, id, token)
}

async fn write(bench: &Bench, at: &str, text: &str) -> Reply {
    bench.post(&format!("/api/v1/{at}/output"), json!({ "text": text })).await
}

async fn output(bench: &Bench, id: u64, query: &str) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}/output{query}")).await.json()
}

fn texts(output: &Value) -> Vec<&str> {
    output["pieces"].as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn progress_is_shown_while_the_lease_lasts() {
    let (bench, id, token) = leased().await;
    let shown = async || bench.get(&format!("/api/v1/jobs/{id}")).await.json()["progress"].clone();
    let by_token = format!("/api/v1/leases/{token}/progress");
    bench.post(&by_token, json!({ "numerator": 3, "denominator": 7 })).await.is(204);
    assert_eq!(shown().await, json!({ "numerator": "3", "denominator": "7" }));
    let by_id = format!("/api/v1/jobs/{id}/progress");
    bench.post(&by_id, json!({ "numerator": 40, "remaining_s": 9 })).await.is(204);
    assert_eq!(shown().await, json!({ "numerator": "40", "denominator": "100", "remaining_s": 9 }));
    for (body, code) in [
        (json!({}), "bad_field"),
        (json!({ "numerator": -1 }), "bad_field"),
        (json!({ "numerator": 0.5 }), "bad_field"),
        (json!({ "numerator": 1, "remaining_s": 4_294_967_296_u64 }), "out_of_range"),
    ] {
        bench.post(&by_id, body).await.is_problem(400, code);
    }
    bench.post(&format!("/api/v1/leases/{token}/release"), json!({})).await.is(204);
    assert_eq!(shown().await, Value::Null);
    bench.post(&by_token, json!({ "numerator": 3 })).await.is_problem(409, "lease_not_live");
    let late = bench.post(&by_id, json!({ "numerator": 3 })).await;
    late.is_problem(409, "lease_not_live");
    assert_eq!(late.json()["detail"], "no worker has the job");
    bench
        .post("/api/v1/jobs/999/progress", json!({ "numerator": 3 }))
        .await
        .is_problem(404, "job_not_found");
}

#[tokio::test]
async fn output_is_read_page_by_page_and_over_the_end() {
    let (bench, id, token) = leased().await;
    assert_eq!(
        output(&bench, id, "").await,
        json!({ "pieces": [], "next": 0, "status": "leased" })
    );
    write(&bench, &format!("leases/{token}"), "one\n").await.is(204);
    write(&bench, &format!("jobs/{id}"), "zwei é\n").await.is(204);
    let all = output(&bench, id, "").await;
    assert_eq!((texts(&all), &all["next"]), (vec!["one\n", "zwei é\n"], &json!(12)));
    assert_eq!((&all["pieces"][1]["offset"], &all["pieces"][1]["attempt"]), (&json!(4), &json!(1)));
    assert_eq!(texts(&output(&bench, id, "?from=4").await), ["zwei é\n"]);
    for (query, expected) in [
        ("?tail_bytes=0", &[][..]),
        ("?tail_bytes=8", &["zwei é\n"]),
        ("?tail_bytes=9", &["one\n", "zwei é\n"]),
        ("?tail_bytes=9&from=12", &["one\n", "zwei é\n"]),
    ] {
        let end = output(&bench, id, query).await;
        assert_eq!((&texts(&end)[..], &end["next"]), (expected, &json!(12)), "{query}");
    }
    let refused = bench.get(&format!("/api/v1/jobs/{id}/output?tail_bytes=65537")).await;
    refused.is_problem(400, "out_of_range");
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await.is(204);
    let ended = output(&bench, id, "?from=12&wait_s=300").await;
    assert_eq!(ended, json!({ "pieces": [], "next": 12, "status": "done" }));
    write(&bench, &format!("leases/{token}"), "late").await.is_problem(409, "lease_not_live");
    bench.get("/api/v1/jobs/999/output").await.is_problem(404, "job_not_found");
    bench
        .get(&format!("/api/v1/jobs/{id}/output?wait_s=301"))
        .await
        .is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_piece_has_64_kib_at_most() {
    let (bench, id, token) = leased().await;
    let at = format!("leases/{token}");
    let refused = write(&bench, &at, &"x".repeat(65_537)).await;
    refused.is_problem(400, "out_of_range");
    assert_eq!(refused.json()["detail"], "text has at most 65536 bytes");
    write(&bench, &at, &"x".repeat(65_536)).await.is(204);
    assert_eq!(output(&bench, id, "").await["next"], 65_536);
}

#[tokio::test]
async fn who_waits_for_output_gets_it_when_it_comes() {
    let (bench, id, token) = leased().await;
    let (at, waiting) = (format!("leases/{token}"), output(&bench, id, "?wait_s=300"));
    let (seen, written) = tokio::join!(waiting, write(&bench, &at, "news"));
    written.is(204);
    assert_eq!(texts(&seen), ["news"]);
}

async fn follow(bench: &Bench, id: u64, query: &str, last: Option<&str>) -> Follower {
    Follower::of(bench, &format!("/api/v1/jobs/{id}/events{query}"), last).await
}

#[tokio::test]
async fn a_follower_sees_status_progress_and_output_until_the_end() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "q" })).await;
    let mut follower = follow(&bench, id, "", None).await;
    let kind = |(kind, data): (String, Value)| (kind, data["status"].clone());
    assert_eq!(kind(follower.event().await), ("status".to_owned(), json!("ready")));
    let token = bench.lease("q").await["lease_token"].as_str().unwrap().to_owned();
    assert_eq!(kind(follower.event().await), ("status".to_owned(), json!("leased")));
    let progress = json!({ "numerator": 1, "denominator": 2 });
    bench.post(&format!("/api/v1/leases/{token}/progress"), progress).await.is(204);
    let (kind_of, data) = follower.event().await;
    assert_eq!((kind_of.as_str(), &data["numerator"]), ("progress", &json!("1")));
    write(&bench, &format!("leases/{token}"), "text").await.is(204);
    let piece = follower.next().await.unwrap();
    assert_eq!(
        (piece.id.as_str(), &piece.data["text"], &piece.data["job"]),
        ("4", &json!("text"), &json!(id))
    );
    write(&bench, &format!("leases/{token}"), " more").await.is(204);
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await.is(204);
    assert_eq!(follower.event().await.1["text"], " more");
    assert_eq!(kind(follower.event().await), ("ended".to_owned(), json!("done")));
    assert!(follower.next().await.is_none());
    // Whoever comes back goes on where it was.
    let mut again = follow(&bench, id, "", Some("4")).await;
    assert_eq!(again.event().await.1["text"], " more");
    assert_eq!(again.event().await.0, "ended");
    let path = format!("/api/v1/jobs/{id}/events");
    let wrong = request(Method::GET, &path).header("last-event-id", "x").body(Body::empty());
    bench.send(wrong.unwrap()).await.is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_follower_of_a_job_that_goes_is_told_and_sent_away() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "q" })).await;
    let mut follower = follow(&bench, id, "", None).await;
    assert_eq!(follower.event().await.0, "status");
    bench.call(Method::DELETE, &format!("/api/v1/jobs/{id}")).await.is(204);
    assert_eq!(follower.event().await.0, "gone");
    assert!(follower.next().await.is_none());
}

#[tokio::test]
async fn what_is_there_is_shown_to_who_does_not_follow() {
    let (bench, id, token) = leased().await;
    write(&bench, &format!("leases/{token}"), "text").await.is(204);
    let mut shown = follow(&bench, id, "?follow=false", None).await;
    assert_eq!(shown.event().await.0, "status");
    assert_eq!(shown.event().await.0, "output");
    assert!(shown.next().await.is_none());
}

#[tokio::test]
async fn output_is_for_those_who_may_see_payloads() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let new = crate::harness::json(Method::POST, "/api/v1/jobs", &json!({ "queue": "mine.a" }));
    let id = bench.call_as("admin", new).await.json()["id"].as_u64().unwrap();
    let wanted =
        crate::harness::json(Method::POST, "/api/v1/lease", &json!({ "queues": ["mine.a"] }));
    bench.call_as("admin", wanted).await.is(200);
    let body = json!({ "text": "secret" });
    let written = crate::harness::json(Method::POST, &format!("/api/v1/jobs/{id}/output"), &body);
    bench.call_as("mine.work", written).await.is(204);
    for (token, is_shown) in [("read", false), ("mine.inspect", true)] {
        let path = format!("/api/v1/jobs/{id}/events?follow=false");
        let get = request(Method::GET, &path).body(Body::empty()).unwrap();
        let events = bench.call_as(token, get).await;
        assert_eq!(events.text().contains("secret"), is_shown, "{token}: {}", events.text());
        let get = request(Method::GET, &format!("/api/v1/jobs/{id}/output")).body(Body::empty());
        let status = bench.call_as(token, get.unwrap()).await.status;
        assert_eq!(status.is_success(), is_shown, "{token}");
    }
}

#[tokio::test]
async fn a_follower_sees_no_more_output_when_its_role_is_taken_away() {
    let tokens = TokensFile::of(&TokensFile::entry("t", "inspect", "*", ""));
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given, spindle_engine::Options::default());
    let id = bench.submit(json!({ "queue": "q" })).await;
    let lease = bench.lease("q").await["lease_token"].as_str().unwrap().to_owned();
    let at = format!("jobs/{id}");
    write(&bench, &at, "before").await.is(204);
    let asked = request(Method::GET, &format!("/api/v1/{at}/events"));
    let asked = asked.header(header::AUTHORIZATION, "Bearer t").body(Body::empty()).unwrap();
    let mut follower = Follower::reading(bench.site.clone().oneshot(asked).await.unwrap());
    assert_eq!(follower.event().await.0, "status");
    assert_eq!(follower.event().await.1["text"], "before");
    tokens.write(&TokensFile::entry("t", "read", "*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    write(&bench, &at, "after").await.is(204);
    bench.post(&format!("/api/v1/leases/{lease}/complete"), json!({})).await.is(204);
    assert_eq!(follower.event().await.0, "ended");
}
