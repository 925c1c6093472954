//! Jobs of other doors, and jobs that any door may work.

use axum::body::Body;
use axum::http::Method;
use bytes::Bytes;
use serde_json::{Value, json};
use spindle_core::command::{Claim, Lease, Submit};
use spindle_core::job::{Backoff, Origin};
use spindle_core::{BytesRef, Type};
use spindle_engine::{NewJob, Payload, WorkResult};
use spindle_testkit::{lease_from, opened, submit_to, take};

use crate::harness::{Bench, START_S};

fn submit(bench: &Bench, kind: Type, payload: &'static [u8]) -> u64 {
    submit_as(bench, Origin::Workq, kind, payload, |_| {})
}

/// A job of some door's, with whatever else is said of it.
fn submit_as(
    bench: &Bench,
    door: Origin,
    kind: Type,
    payload: &'static [u8],
    say: impl FnOnce(&mut Submit),
) -> u64 {
    let mut submit = Submit { payload: BytesRef::empty(kind), ..submit_to("mail", door) };
    say(&mut submit);
    let job = NewJob { submit, payload: Payload::new(payload, kind) };
    let id = opened(bench.engine.jobs().submit(job)).unwrap();
    drop(bench.engine.turn());
    id.0
}

/// A worker of Workq's leases a job.
pub fn lease(bench: &Bench, queue: &str) -> Claim {
    let worker = Bytes::from_static(b"w");
    let lease = Lease { holder: 7, worker, ..lease_from(queue, Origin::Workq) };
    let claim = take(&bench.engine, lease);
    drop(bench.engine.turn());
    claim
}

/// ... and completes it.
pub fn complete(bench: &Bench, queue: &'static str) {
    let claim = lease(bench, queue);
    finish(bench, claim, true);
}

fn finish(bench: &Bench, claim: Claim, success: bool) {
    let result = WorkResult { success, retry: true, ..WorkResult::default() };
    opened(bench.engine.leases().finish(claim, result)).unwrap();
    drop(bench.engine.turn());
}

#[tokio::test]
async fn a_foreign_job_is_shown_with_what_the_engine_did_to_it() {
    let bench = Bench::new();
    let id = submit(&bench, Type::Bytes, b"hello");
    let job = bench.job(id).await;
    let created = json!(["job_created", {"timestamp": START_S}]);
    assert_eq!(job["payload"], "hello");
    assert_eq!((&job["state"], &job["events"]), (&json!(["READY"]), &json!([created])));
    bench.pass(2_000);
    let claim = lease(&bench, "mail");
    let leased = json!(["LEASED", {"attempt": 1, "door": "workq", "since": "1767323047",
        "worker": "w"}]);
    let job = bench.job(id).await;
    let advanced = json!(["job_state_advanced", {"old": ["READY"], "new": leased,
        "timestamp": "1767323047"}]);
    assert_eq!((&job["state"], &job["events"]), (&leased, &json!([created, advanced])));
    let newest = bench.get(&format!("/jobq/newest/api/v0/job/{id}")).await;
    assert_eq!(newest.json()["modified"], 1_767_323_047);
    bench.pass(3_000);
    finish(&bench, claim, true);
    let job = bench.job(id).await;
    let done = json!(["DONE", {"attempts": 1}]);
    let end = json!(["job_state_advanced", {"old": leased, "new": done,
        "timestamp": "1767323050"}]);
    assert_eq!((&job["state"], &job["events"]), (&done, &json!([created, advanced, end])));
}

/// What each event says: its tag, or the tags of the states it leads from and to.
fn answer_of(job: &Value) -> Vec<String> {
    let events = job["events"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    events
        .map(|event| match &event[1]["new"] {
            Value::Null => text(&event[0]),
            new => format!("{} > {}", text(&event[1]["old"][0]), text(&new[0])),
        })
        .collect()
}

#[tokio::test]
async fn jobs_of_every_other_door_tell_how_they_waited_failed_and_ended() {
    let bench = Bench::new();
    let (in_10_s, second) = (crate::harness::START_MS + 10_000, 1_000);
    for door in [Origin::Api, Origin::Workq, Origin::Gearman, Origin::GearmanDraft, Origin::Lightjq]
    {
        let run_at_ms = bench.engine.now_ms() + 10_000;
        assert!(run_at_ms >= in_10_s);
        let id = submit_as(&bench, door, Type::Bytes, b"x", |submit| {
            submit.run_at_ms = Some(run_at_ms);
            (submit.fails_max, submit.attempts_max) = (Some(2), Some(0));
            submit.backoff = Some(Backoff::NONE);
        });
        let job = bench.job(id).await;
        let scheduled = json!(["SCHEDULED", {"run_at": (run_at_ms / 1000).to_string()}]);
        assert_eq!((&job["state"], answer_of(&job)), (&scheduled, vec!["job_created".to_owned()]));
        bench.pass(10_000);
        let job = bench.job(id).await;
        assert_eq!((&job["state"], answer_of(&job).len()), (&json!(["READY"]), 2));
        assert_eq!(job["events"][1][1]["timestamp"], (run_at_ms / 1000).to_string());
        for _ in 0..2 {
            bench.pass(second);
            let claim = lease(&bench, "mail");
            bench.pass(second);
            finish(&bench, claim, false);
        }
        let job = bench.job(id).await;
        assert_eq!(job["state"][0], "DEAD", "{door:?}");
        let expected = [
            "job_created",
            "SCHEDULED > READY",
            "READY > LEASED",
            "LEASED > READY",
            "READY > LEASED",
            "LEASED > DEAD",
        ];
        assert_eq!(answer_of(&job), expected, "{door:?}");
        let parked = submit_as(&bench, door, Type::Bytes, b"x", |submit| submit.parked = true);
        let job = bench.job(parked).await;
        assert_eq!((&job["state"], answer_of(&job).len()), (&json!(["PARKED"]), 1), "{door:?}");
    }
}

#[tokio::test]
async fn the_end_of_a_failed_attempt_is_told_with_what_its_worker_said() {
    let bench = Bench::new();
    let id = submit_as(&bench, Origin::Api, Type::Bytes, b"x", |submit| {
        (submit.fails_max, submit.backoff) = (Some(2), Some(Backoff::NONE));
    });
    for message in ["first", "second"] {
        let claim = lease(&bench, "mail");
        let result = WorkResult {
            retry: true,
            message: Bytes::from_static(message.as_bytes()),
            code: Bytes::from_static(b"E\"1"),
            ..WorkResult::default()
        };
        opened(bench.engine.leases().finish(claim, result)).unwrap();
        drop(bench.engine.turn());
        bench.pass(1_000);
    }
    let events = bench.job(id).await["events"].clone();
    let end = &events[2][1];
    assert_eq!(
        (&end["new"], &end["code"], &end["message"]),
        (&json!(["READY"]), &json!("E\"1"), &json!("first"))
    );
    let dead = json!(["DEAD", {"attempts": 2, "code": "E\"1", "message": "second"}]);
    assert_eq!((&events[4][1]["new"], &events[4][1]["message"]), (&dead, &Value::Null));
}

#[tokio::test]
async fn payloads_of_other_doors_are_shown_as_what_they_are() {
    let bench = Bench::new();
    for (kind, payload, shown) in [
        (Type::Bytes, &b"{\"a\":1}"[..], json!("{\"a\":1}")),
        (Type::Bytes, b"\xff", json!({"type": "bytes", "base64": "/w=="})),
        (Type::Msgpack, b"\x81", json!({"type": "msgpack", "base64": "gQ=="})),
        (Type::Json, b"[1]", json!([1])),
        (Type::Bytes, b"", json!("")),
    ] {
        let id = submit(&bench, kind, payload);
        assert_eq!(bench.job(id).await["payload"], shown);
    }
}

#[tokio::test]
async fn foreign_jobs_take_events_and_are_otherwise_not_jobqs() {
    let bench = Bench::new();
    let id = submit(&bench, Type::Bytes, b"hello");
    bench.pass(1_000);
    let job = bench.ok(&format!("/api/v0/job/{id}/event"), "\"seen\"").await;
    assert_eq!(job["events"][1][1]["event"], "seen");
    bench.pass(1_000);
    complete(&bench, "mail");
    let job = bench.job(id).await;
    let tags: Vec<&Value> =
        job["events"].as_array().unwrap().iter().map(|event| &event[0]).collect();
    let advanced = "job_state_advanced";
    assert_eq!(tags, ["job_created", "user_event", advanced, advanced]);
    let other = submit(&bench, Type::Bytes, b"x");
    assert_eq!(bench.matches("[]").await, [0; 0]);
    let poll = "{\"query\": [[\">\", \"id\", 0]], \"state\": 1}";
    bench.post("/api/v0/job/poll", poll).await.is_refused(404, "no_match");
    let path = format!("/api/v0/job/{other}");
    bench.post(&format!("{path}/state"), "1").await.is_refused(409, "job_foreign");
    bench.send(Method::DELETE, &path, Body::empty()).await.is_refused(409, "job_foreign");
    let path = format!("/api/v0/job/{id}");
    bench.send(Method::DELETE, &path, Body::empty()).await.is_refused(409, "job_foreign");
}

#[tokio::test]
async fn a_ready_job_is_worked_by_any_door_and_listed_with_what_the_engine_makes_of_it() {
    let bench = Bench::new();
    let created = bench.ok("/api/v0/job/create?queue=mail&ready=1", "{\"to\": \"a\"}").await;
    let id = created["id"].as_u64().unwrap();
    let list = async || bench.get("/api/v0/job").await.json()["jobs"][0]["state"].clone();
    assert_eq!(list().await, json!(["READY"]));
    let path = format!("/api/v0/job/{id}/state");
    bench.post(&path, "[\"X\"]").await.is_refused(409, "job_driven");
    let poll = "{\"query\": [[\">\", \"id\", 0]], \"state\": 1}";
    bench.post("/api/v0/job/poll", poll).await.is_refused(404, "no_match");
    let claim = lease(&bench, "mail");
    assert_eq!(list().await[0], "LEASED");
    assert_eq!(bench.matches("[[\"=\", \"state ->> 0\", \"LEASED\"]]").await, [id]);
    finish(&bench, claim, false);
    assert_eq!(list().await, json!(["DEAD", {"attempts": 1}]));
    assert_eq!(bench.job(id).await["payload"], json!({"to": "a"}));
    assert_eq!(bench.matches("[[\"=\", \"payload ->> 'to'\", \"a\"]]").await, [id]);
    let reply = bench.send(Method::DELETE, &format!("/api/v0/job/{id}"), Body::empty()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.matches("[]").await, [0; 0]);
}

#[tokio::test]
async fn a_parked_job_of_jobqs_is_leased_by_nobody() {
    let bench = Bench::new();
    bench.create("{}").await;
    for ready in ["2", "yes"] {
        let path = format!("/api/v0/job/create?ready={ready}");
        bench.post(&path, "{}").await.is_refused(400, "bad_body");
    }
    let path = format!("/api/v0/job/create?queue={}", "x".repeat(513));
    bench.post(&path, "{}").await.is_refused(400, "bad_body");
    let listing = opened(bench.engine.queues().get(b"jobq")).unwrap();
    let ready = listing.counts[spindle_core::Status::Ready as usize];
    assert_eq!(ready, 0);
}
