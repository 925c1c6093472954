//! Server-sent events.

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::harness::{Bench, PATIENCE, request};

const EVENTS: &str = "/api/v1/events";

/// A client that follows.
pub struct Follower {
    body: BodyDataStream,
    text: String,
    /// The place that was told without an event.
    begins: String,
}

#[derive(Debug, PartialEq)]
pub struct Told {
    pub id: String,
    pub event: String,
    pub data: Value,
}

impl Follower {
    async fn new(bench: &Bench, query: &str, last: Option<&str>) -> Follower {
        Follower::of(bench, &format!("{EVENTS}{query}"), last).await
    }

    /// A client of this stream.
    pub async fn of(bench: &Bench, path: &str, last: Option<&str>) -> Follower {
        Follower::reading(open(bench, path, last).await)
    }

    /// The client that gets this answer.
    pub fn reading(response: Response) -> Follower {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.into_body().into_data_stream();
        Follower { body, text: String::new(), begins: String::new() }
    }

    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = block.lines();
                    let prefix = format!("{name}: ");
                    lines.filter_map(|line| line.strip_prefix(&prefix)).collect::<String>()
                };
                let answer = (field("id"), field("event"), field("data"));
                self.text = rest.to_owned();
                if answer.2.is_empty() {
                    self.begins.push_str(&answer.0);
                    continue;
                }
                let data = serde_json::from_str(&answer.2).unwrap();
                return Some(Told { id: answer.0, event: answer.1, data });
            }
            let piece = timeout(PATIENCE, self.body.next()).await.expect("nothing came");
            self.text.push_str(std::str::from_utf8(&piece?.unwrap()).unwrap());
        }
    }

    pub async fn event(&mut self) -> (String, Value) {
        let answer = self.next().await.expect("the stream ended");
        assert_eq!(answer.data["type"], answer.event.as_str());
        (answer.event, answer.data)
    }
}

async fn open(bench: &Bench, path: &str, last: Option<&str>) -> Response {
    let mut request = request(Method::GET, path).body(Body::empty()).unwrap();
    if let Some(last) = last {
        request.headers_mut().insert("last-event-id", last.parse().unwrap());
    }
    bench.site.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn an_id_that_is_none_is_refused_and_an_empty_one_is_not_there() {
    let bench = Bench::new();
    for last in [&b"x"[..], b"1", b"\xc2\x84", b"oldest"] {
        let mut request = request(Method::GET, EVENTS).body(Body::empty()).unwrap();
        request.headers_mut().insert("last-event-id", HeaderValue::from_bytes(last).unwrap());
        bench.send(request).await.is_problem(400, "out_of_range");
    }
    let answer = open(&bench, &format!("{EVENTS}?follow=false"), Some("")).await;
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_follower_hears_what_happens_in_order() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "before" })).await;
    let mut follower = Follower::new(&bench, "", None).await;
    bench.submit(json!({ "queue": "q", "priority": 3 })).await;
    let (kind, data) = follower.event().await;
    let expected = json!({
        "type": "submitted", "at": "2026-01-02T03:04:05.678Z", "job": 2, "queue": "q",
        "status": "ready", "origin": "api", "priority": 3,
    });
    assert_eq!((kind.as_str(), data), ("submitted", expected));
    let asked = json!({ "queues": ["q"], "worker": "w1" });
    let leased = bench.post("/api/v1/lease", asked).await.json();
    let (kind, data) = follower.event().await;
    assert_eq!((kind.as_str(), &data["worker"]), ("leased", &json!("w1")));
    assert!(!data.to_string().contains("token"));
    let token = leased["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
    let (kind, data) = follower.event().await;
    assert_eq!((kind.as_str(), &data["job"]), ("done", &json!(2)));
    bench.call(Method::DELETE, "/api/v1/jobs/2").await;
    let (kind, data) = follower.event().await;
    assert_eq!((kind.as_str(), &data["jobs"]), ("gone", &json!([2])));
    assert_eq!(data["cause"], "deleted");
    bench.call(Method::POST, "/api/v1/queues/q/pause").await;
    let (kind, data) = follower.event().await;
    assert_eq!(
        (kind.as_str(), &data["queue"], &data["paused"]),
        ("queue_set", &json!("q"), &json!(true),)
    );
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_its_last_event() {
    let bench = Bench::new();
    for _ in 0..5 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    let mut first = Follower::new(&bench, "?after=oldest", None).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let answer = first.next().await.unwrap();
        if answer.event == "submitted" {
            seen.push(answer);
        }
    }
    drop(first);
    let last = &seen[2].id;
    for (query, header) in [
        ("", Some(last.as_str())),
        ("?after=oldest", Some(last)),
        (&*format!("?after={last}"), None),
    ] {
        let mut second = Follower::new(&bench, query, header).await;
        let (_, data) = second.event().await;
        assert_eq!(data["job"], 4, "{query}");
        assert_eq!(second.event().await.1["job"], 5);
    }
}

#[tokio::test]
async fn what_is_not_on_disk_is_not_told() {
    let bench = Bench::new();
    let mut follower = Follower::new(&bench, "", None).await;
    bench.log.hold(true);
    let site = bench.site.clone();
    let body = json!({ "queue": "q" });
    let submitting =
        tokio::spawn(site.oneshot(crate::harness::json(Method::POST, "/api/v1/jobs", &body)));
    let early = timeout(std::time::Duration::from_millis(100), follower.next()).await;
    assert!(early.is_err(), "{early:?}");
    bench.log.hold(false);
    assert_eq!(follower.event().await.0, "submitted");
    assert_eq!(submitting.await.unwrap().unwrap().status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_place_that_is_not_in_the_log_is_a_gap() {
    let bench = Bench::new();
    let mut follower = Follower::new(&bench, "", Some("999999.1")).await;
    let (kind, data) = follower.event().await;
    assert_eq!((kind.as_str(), &data["reason"]), ("gap", &json!("unknown_id")));
    bench.submit(json!({ "queue": "q" })).await;
    assert_eq!(follower.event().await.0, "submitted");
    for text in ["x", "1", "1.2.3"] {
        let reply = crate::harness::Reply::of(open(&bench, EVENTS, Some(text)).await).await;
        reply.is_problem(400, "out_of_range");
    }
    bench.get("/api/v1/events?after=x").await.is_problem(400, "out_of_range");
    bench.get("/api/v1/events?since=1.1").await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn streams_end_when_the_server_stops_and_leave_no_wait_behind() {
    let bench = Bench::new();
    let mut follower = Follower::new(&bench, "", None).await;
    let gone = Follower::new(&bench, "", None).await;
    let following = tokio::spawn(async move { follower.next().await });
    bench.waits(1).await;
    bench.api.stop();
    assert_eq!(following.await.unwrap(), None);
    drop(gone);
    bench.waits(0).await;
    assert_eq!(bench.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(bench.get("/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stream_that_does_not_follow_ends_with_the_newest_event() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a" })).await;
    bench.submit(json!({ "queue": "b" })).await;
    let mut follower = Follower::new(&bench, "?after=oldest&follow=false", None).await;
    let mut kinds = Vec::new();
    let mut last = String::new();
    while let Some(answer) = follower.next().await {
        kinds.push(answer.event);
        last = answer.id;
    }
    assert_eq!(kinds, ["started", "submitted", "submitted"]);
    let mut rest = Follower::new(&bench, "?follow=false", Some(&last)).await;
    assert_eq!(rest.next().await, None);
}

#[tokio::test]
async fn a_stream_that_begins_now_says_where_that_is() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "before" })).await;
    let mut follower = Follower::new(&bench, "?follow=false", None).await;
    assert_eq!(follower.next().await, None);
    let begins = follower.begins.clone();
    bench.submit(json!({ "queue": "meanwhile" })).await;
    let mut resumed = Follower::new(&bench, "?follow=false", Some(&begins)).await;
    let answer = resumed.next().await.expect("what happened since");
    assert_eq!(answer.data["queue"], "meanwhile");
    assert_eq!(resumed.next().await, None);
}

#[tokio::test]
async fn a_failure_is_told_with_the_words_of_its_worker() {
    let bench = Bench::new();
    let mut follower = Follower::new(&bench, "", None).await;
    bench.submit(json!({ "queue": "q", "fails_max": 2, "backoff": { "base_ms": 0 } })).await;
    let long = "\u{e9}".repeat(600);
    for (kind, error, answer) in [("requeued", "tray 2", "tray 2"), ("dead", &long, &long[..1024])]
    {
        let leased = bench.lease("q").await;
        let token = leased["lease_token"].as_str().unwrap();
        let words = json!({ "code": "exit_9", "message": "no paper", "error": error });
        bench.post(&format!("/api/v1/leases/{token}/fail"), words).await;
        let data = loop {
            let (event, data) = follower.event().await;
            if event == kind {
                break data;
            }
        };
        let words = (&data["code"], &data["message"], &data["error"]);
        assert_eq!(words, (&json!("exit_9"), &json!("no paper"), &json!(answer)), "{kind}");
    }
}
