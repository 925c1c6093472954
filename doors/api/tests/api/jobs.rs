//! Submitting, reading and changing jobs.

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};
use spindle_core::command::Submit;
use spindle_core::job::{Key, Origin, Scope};
use spindle_core::{BytesRef, Defaults, JobId, Type};
use spindle_engine::Options;
use spindle_testkit::{HeldLog, new_job, opened};

use crate::harness::{Bench, Reply, json as json_request, request};

async fn job(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/jobs/{id}")).await.json()
}

async fn act(bench: &Bench, id: u64, action: &str) -> Reply {
    bench.call(Method::POST, &format!("/api/v1/jobs/{id}/{action}")).await
}

async fn patch(bench: &Bench, id: u64, body: Value, tag: Option<&str>) -> Reply {
    let mut request = json_request(Method::PATCH, &format!("/api/v1/jobs/{id}"), &body);
    if let Some(tag) = tag {
        request.headers_mut().insert(header::IF_MATCH, tag.parse().unwrap());
    }
    bench.send(request).await
}

#[tokio::test]
async fn a_job_is_told_with_everything_it_was_given() {
    let bench = Bench::new();
    let asked = json!({
        "queue": "mail", "payload": { "to": [1, 2.50, null] }, "priority": -7,
        "run_at": "2026-01-02T04:00:00+00:30", "ttr_ms": 1000, "ttl_ms": 60_000_000,
        "attempts_max": 5, "fails_max": 3,
        "backoff": { "base_ms": 100, "factor": 2.125, "cap_ms": 900 },
        "keep_ms": 7, "tags": ["a", "b"], "unique": { "key": "k" },
    });
    let reply = bench.post("/api/v1/jobs", asked).await;
    assert_eq!(reply.status, StatusCode::CREATED);
    assert_eq!(reply.header("location"), "/api/v1/jobs/1");
    let uuid = "7370696e-646c-8000-8000-000000000001";
    let expected = json!({ "id": 1, "uuid": uuid, "handle": "H:box:1", "existing": false });
    assert_eq!(reply.json(), expected);
    let reply = bench.get("/api/v1/jobs/1").await;
    assert_eq!(reply.header("etag"), format!("\"{}\"", reply.json()["revision"]));
    let mut answer = reply.json();
    assert_eq!(answer.as_object_mut().unwrap().remove("revision").unwrap(), json!(1));
    let expected = json!({
        "id": 1, "uuid": uuid, "handle": "H:box:1", "queue": "mail", "status": "scheduled",
        "origin": "api", "priority": -7, "created_at": "2026-01-02T03:04:05.678Z",
        "run_at": "2026-01-02T03:30:00.000Z", "expires_at": "2026-01-02T20:10:00.000Z",
        "ttr_ms": 1000, "ttl_ms": 60_000_000, "attempts": 0, "attempts_max": 5, "fails": 0,
        "fails_max": 3, "keep_ms": 7, "tags": ["a", "b"], "unique_key": "k",
        "backoff": { "base_ms": 100, "factor": 2.125, "cap_ms": 900, "jitter": 0 },
        "limits_from": { "attempts_max": "job", "fails_max": "job", "backoff": "job" },
        "payload_type": "json", "payload_bytes": 19, "payload": { "to": [1, 2.50, null] },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn payloads_keep_their_bytes_and_their_type() {
    let bench = Bench::new();
    // JSON is kept as written: digits that no float holds, keys in their order, null.
    let raw = r#"{"queue":"q","payload":{"z":12345678901234567890123.10,"a":null}}"#;
    let request = request(Method::POST, "/api/v1/jobs")
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8");
    bench.send(request.body(Body::from(raw)).unwrap()).await;
    let answer = bench.get("/api/v1/jobs/1").await;
    let written = r#""payload":{"z":12345678901234567890123.10,"a":null}"#;
    assert!(answer.text().contains(written), "{}", answer.text());
    let id = bench.submit(json!({ "queue": "q", "payload": null })).await;
    let answer = job(&bench, id).await;
    assert_eq!((&answer["payload_type"], &answer["payload_bytes"]), (&json!("json"), &json!(4)));
    assert!(answer.as_object().unwrap().contains_key("payload"));
    for (kind, shown) in [(None, "bytes"), (Some("bytes"), "bytes"), (Some("msgpack"), "msgpack")] {
        let mut asked = json!({ "queue": "q", "payload_base64": "/wCA" });
        asked["payload_type"] = json!(kind);
        let id = bench.submit(asked).await;
        let answer = job(&bench, id).await;
        assert_eq!(answer["payload_type"], shown);
        assert_eq!(
            (&answer["payload_base64"], &answer["payload_bytes"]),
            (&json!("/wCA"), &json!(3))
        );
        assert_eq!(answer["payload"], Value::Null);
    }
    let asked = json!({ "queue": "q", "payload_base64": "WzFd", "payload_type": "json" });
    let id = bench.submit(asked).await;
    assert_eq!(job(&bench, id).await["payload"], json!([1]));
    let id = bench.submit(json!({ "queue": "q" })).await;
    let answer = job(&bench, id).await;
    assert_eq!((&answer["payload_type"], &answer["payload_bytes"]), (&json!("bytes"), &json!(0)));
}

#[tokio::test]
async fn an_integer_may_be_written_with_a_fraction_of_zero() {
    let bench = Bench::new();
    let backoff = json!({ "base_ms": 1e3, "factor": 2.0 });
    let id = bench
        .submit(json!({ "queue": "q", "priority": -5.0, "ttr_ms": 60000.0, "backoff": backoff }))
        .await;
    let answer = job(&bench, id).await;
    assert_eq!((&answer["priority"], &answer["ttr_ms"]), (&json!(-5), &json!(60_000)));
    assert_eq!(answer["backoff"]["base_ms"], 1000);
    let leased =
        bench.post("/api/v1/lease", json!({ "queues": ["q"], "wait_s": 0.0 })).await.json();
    let token = leased["lease_token"].as_str().unwrap();
    let extend = format!("/api/v1/leases/{token}/extend");
    let answer = bench.post(&extend, json!({ "ttr_ms": 94152.0 })).await;
    assert_eq!(answer.json()["lease_ms"], 94_152, "{}", answer.text());
}

#[tokio::test]
async fn a_time_to_run_that_has_passed_is_now_and_a_ttl_counts_from_it() {
    let bench = Bench::new();
    let id = bench
        .submit(json!({ "queue": "q", "run_at": "1999-12-31T23:59:59Z", "ttl_ms": 5000 }))
        .await;
    let answer = job(&bench, id).await;
    assert_eq!((&answer["status"], &answer["run_at"]), (&json!("ready"), &Value::Null));
    assert_eq!(answer["expires_at"], "2026-01-02T03:04:10.678Z");
}

#[tokio::test]
async fn tags_are_counted_in_characters() {
    let bench = Bench::new();
    let tag = "\u{1f9f5}".repeat(128);
    let id = bench.submit(json!({ "queue": "q", "tags": [tag] })).await;
    assert_eq!(job(&bench, id).await["tags"][0], tag);
}

#[tokio::test]
async fn a_header_that_is_no_entity_tag_is_a_slip_and_not_another_revision() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    for (tag, status, code) in [
        ("1", 400, "bad_field"),
        ("", 400, "bad_field"),
        ("\"1\", \"2\"", 400, "bad_field"),
        ("\"2\"", 412, "revision_mismatch"),
        ("W/\"1\"", 412, "revision_mismatch"),
        ("\"x\"", 412, "revision_mismatch"),
    ] {
        for path in ["/api/v1/jobs/1/park", "/api/v1/jobs/1/release"] {
            let request = request(Method::POST, path).header("if-match", tag);
            bench.send(request.body(Body::empty()).unwrap()).await.is_problem(status, code);
        }
    }
}

#[tokio::test]
async fn what_a_submit_gets_wrong_is_told() {
    let bench = Bench::new();
    let long = "x".repeat(129);
    for (body, code) in [
        (json!({}), "bad_field"),
        (json!([]), "bad_field"),
        (json!({ "queue": 7 }), "bad_field"),
        (json!({ "queue": "q", "colour": 1 }), "bad_field"),
        (json!({ "queue": "q", "queue_base64": "cQ==" }), "bad_field"),
        (json!({ "queue": "q", "payload": 1, "payload_base64": "" }), "bad_field"),
        (json!({ "queue": "q", "payload": 1, "payload_type": "bytes" }), "bad_field"),
        (json!({ "queue": "q", "payload_type": "bytes" }), "bad_field"),
        (json!({ "queue": "q", "payload_base64": "e30", "payload_type": "json" }), "out_of_range"),
        (json!({ "queue": "q", "payload_base64": "ew==", "payload_type": "json" }), "bad_field"),
        (json!({ "queue": "q", "priority": 1.5 }), "bad_field"),
        (json!({ "queue": "q", "priority": -9_223_372_036_854_775_809_i128 as f64 }), "bad_field"),
        (json!({ "queue": "q", "ttr_ms": "60000" }), "bad_field"),
        (json!({ "queue": "q", "attempts_max": -1 }), "bad_field"),
        (json!({ "queue": "q", "unique": { "key": "k", "mode": "both" } }), "bad_field"),
        (json!({ "queue": "" }), "out_of_range"),
        (json!({ "queue_base64": "!" }), "out_of_range"),
        (json!({ "queue": "q", "run_at": "tomorrow" }), "out_of_range"),
        (json!({ "queue": "q", "ttr_ms": 0 }), "out_of_range"),
        (json!({ "queue": "q", "ttr_ms": 4_294_967_295u64 }), "out_of_range"),
        (json!({ "queue": "q", "ttl_ms": 0 }), "out_of_range"),
        (json!({ "queue": "q", "tags": [""] }), "out_of_range"),
        (json!({ "queue": "q", "tags": [long] }), "out_of_range"),
        (json!({ "queue": "q", "tags": vec!["t"; 65] }), "out_of_range"),
        (json!({ "queue": "q", "unique": { "key": "" } }), "out_of_range"),
        (json!({ "queue": "q", "unique": { "key": "k".repeat(256) } }), "out_of_range"),
    ] {
        let answer = bench.post("/api/v1/jobs", body.clone()).await;
        assert_eq!(answer.json()["code"], code, "{body}: {}", answer.text());
        answer.is_problem(400, code);
    }
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
}

#[tokio::test]
async fn limits_take_what_is_just_within_them() {
    let bench = Bench::new();
    for body in [
        json!({ "queue": "q".repeat(512) }),
        json!({ "queue": "q", "ttr_ms": 4_294_967_294u64 }),
        json!({ "queue": "q", "ttl_ms": u64::MAX, "priority": i64::MIN }),
        json!({ "queue": "q", "tags": vec!["t".repeat(128); 64], "priority": i64::MAX }),
        json!({ "queue": "q", "unique": { "key": "é".repeat(255) } }),
        json!({ "queue": "q", "run_at": "1960-01-01T00:00:00Z" }),
    ] {
        bench.submit(body).await;
    }
    let answer = bench.post("/api/v1/jobs", json!({ "queue": "q".repeat(513) })).await;
    answer.is_problem(400, "out_of_range");
    let key = "é".repeat(256);
    let answer =
        bench.post("/api/v1/jobs", json!({ "queue": "q", "unique": { "key": key } })).await;
    answer.is_problem(400, "out_of_range");
    // What is asked for has the limits of what can be there.
    let key = "%C3%A9".repeat(255);
    let listed = bench.get(&format!("/api/v1/jobs?unique_key={key}")).await;
    assert_eq!(listed.json()["jobs"].as_array().unwrap().len(), 1, "{}", listed.json());
    for name in ["unique_key", "idempotency_key"] {
        assert_eq!(bench.get(&format!("/api/v1/jobs?{name}={key}")).await.status, StatusCode::OK);
        let answer = bench.get(&format!("/api/v1/jobs?{name}={key}x")).await;
        answer.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn a_body_is_taken_up_to_its_limit_only() {
    let bench = Bench::with(|options| options.body.bytes_max = 100, Default::default());
    let body = |len: usize| {
        let frame = r#"{"queue":"q","payload":""}"#.len();
        json!({ "queue": "q", "payload": "x".repeat(len - frame) })
    };
    bench.submit(body(100)).await;
    let answer = bench.post("/api/v1/jobs", body(101)).await;
    answer.is_problem(413, "too_large");
    assert_eq!(answer.json()["bytes_max"], 100);
    // One that does not say how long it is.
    let pieces: Vec<Result<_, std::io::Error>> = vec![Ok(vec![b' '; 60]), Ok(vec![b' '; 60])];
    let stream = Body::from_stream(futures_util::stream::iter(pieces));
    let request =
        request(Method::POST, "/api/v1/jobs").header(header::CONTENT_TYPE, "application/json");
    bench.send(request.body(stream).unwrap()).await.is_problem(413, "too_large");
}

#[tokio::test]
async fn a_payload_over_the_engines_limit_is_refused() {
    let options = Options { payload_bytes_max: 10, ..Options::default() };
    let bench = Bench::with(|_| {}, options);
    bench.submit(json!({ "queue": "q", "payload": "x".repeat(8) })).await;
    let answer =
        bench.post("/api/v1/jobs", json!({ "queue": "q", "payload": "x".repeat(9) })).await;
    answer.is_problem(413, "too_large");
    bench.lease("q").await;
    act(&bench, 1, "cancel").await;
    let answer = bench.post("/api/v1/jobs/1/retry", json!({ "payload": "x".repeat(9) })).await;
    answer.is_problem(413, "too_large");
}

#[tokio::test]
async fn a_job_is_found_by_every_doors_name_for_it() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let uuid = *uuid::Uuid::from_u128(0x6ba7b810_9dad_11d1_80b4_00c04fd430c4).as_bytes();
    let empty = BytesRef::empty(Type::Bytes);
    let mut submit = Submit::new(JobId(0), b"q"[..].into(), Origin::Workq, empty);
    submit.uuid = Some(uuid);
    opened(bench.engine.jobs().submit(new_job(submit, b"x"))).unwrap();
    for name in ["1", "H:other:1", "7370696E-646C-8000-8000-000000000001"] {
        let answer = bench.get(&format!("/api/v1/jobs/{name}")).await;
        assert_eq!((answer.status, &answer.json()["id"]), (StatusCode::OK, &json!(1)), "{name}");
    }
    for name in [
        "2",
        "H:box:2",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c4",
        "%7B6BA7B810-9dad-11d1-80b4-00c04fd430c4%7D",
        "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c4",
    ] {
        let answer = bench.get(&format!("/api/v1/jobs/{name}")).await.json();
        assert_eq!(answer["id"], 2, "{name}");
        assert_eq!(answer["uuid"], "6ba7b810-9dad-11d1-80b4-00c04fd430c4");
        assert_eq!(
            (&answer["origin"], &answer["payload_base64"]),
            (&json!("workq"), &json!("eA=="))
        );
    }
    // A Workq job goes by its own UUID, not by the one for jobs of other doors.
    for name in ["3", "7370696e-646c-8000-8000-000000000002", "H:box:99"] {
        bench.get(&format!("/api/v1/jobs/{name}")).await.is_problem(404, "job_not_found");
    }
    for name in ["0", "x", "-1", "9007199254740992", "%FF", "H:box:"] {
        bench.get(&format!("/api/v1/jobs/{name}")).await.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn a_unique_key_is_held_while_its_job_is_unfinished() {
    let bench = Bench::new();
    let asked =
        |queue: &str, mode: &str| json!({ "queue": queue, "unique": { "key": "k", "mode": mode } });
    let first = bench.submit(asked("q", "reject")).await;
    let answer = bench.post("/api/v1/jobs", asked("q", "reject")).await;
    answer.is_problem(409, "key_taken");
    assert_eq!(answer.json()["job"], first);
    let answer = bench.post("/api/v1/jobs", asked("q", "existing")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!((&answer.json()["id"], &answer.json()["existing"]), (&json!(first), &json!(true)));
    let other = bench.submit(asked("other", "reject")).await;
    assert_ne!(other, first);
    act(&bench, first, "cancel").await;
    let next = bench.submit(asked("q", "existing")).await;
    assert_ne!(next, first, "a finished job holds it no more");
}

#[tokio::test]
async fn the_same_request_with_the_same_idempotency_key_is_one_job() {
    let bench = Bench::new();
    let send = async |key: &str, body: Value| {
        let mut request = json_request(Method::POST, "/api/v1/jobs", &body);
        request.headers_mut().insert("idempotency-key", key.parse().unwrap());
        bench.send(request).await
    };
    let body = json!({ "queue": "q", "payload": 1, "unique": { "key": "u" } });
    let first = send("k1", body.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again = send("k1", body.clone()).await;
    assert_eq!((again.status, &again.json()["existing"]), (StatusCode::OK, &json!(true)));
    assert_eq!(again.json()["id"], first.json()["id"]);
    let other = send("k1", json!({ "queue": "q", "payload": 2 })).await;
    other.is_problem(422, "idempotency_key_reused");
    assert_eq!(other.json()["job"], first.json()["id"]);
    // Another key does not help against the unique key.
    send("k2", body.clone()).await.is_problem(409, "key_taken");
    // It holds after the job is done, as long as the job is kept.
    act(&bench, 1, "cancel").await;
    assert_eq!(send("k1", body.clone()).await.status, StatusCode::OK);
    bench.call(Method::DELETE, "/api/v1/jobs/1").await;
    assert_eq!(send("k1", body).await.status, StatusCode::CREATED);
    for key in ["", &"k".repeat(256)] {
        send(key, json!({ "queue": "q" })).await.is_problem(400, "out_of_range");
    }
    assert_eq!(send(&"k".repeat(255), json!({ "queue": "q" })).await.status, StatusCode::CREATED);
    assert_eq!(job(&bench, 2).await["unique_key"], "u");
}

#[tokio::test]
async fn a_queue_at_its_limit_takes_no_more() {
    let bench = Bench::new();
    let request = json_request(Method::PUT, "/api/v1/queues/q/settings", &json!({ "jobs_max": 1 }));
    assert_eq!(bench.send(request).await.status, StatusCode::OK);
    bench.submit(json!({ "queue": "q" })).await;
    let answer = bench.post("/api/v1/jobs", json!({ "queue": "q" })).await;
    answer.is_problem(429, "queue_full");
    assert_eq!(answer.header("retry-after"), "1");
}

#[tokio::test]
async fn a_queue_takes_payloads_up_to_its_limit_and_not_a_byte_more() {
    let bench = Bench::new();
    let request =
        json_request(Method::PUT, "/api/v1/queues/q/settings", &json!({ "bytes_max": 10 }));
    assert_eq!(bench.send(request).await.status, StatusCode::OK);
    // In quotes they are as long as they may be, and a byte longer.
    bench.submit(json!({ "queue": "q", "payload": "12345678" })).await;
    assert_eq!(bench.get("/api/v1/queues/q").await.json()["payload_bytes"], 10);
    let more = bench.post("/api/v1/jobs", json!({ "queue": "q", "payload": 1 })).await;
    more.is_problem(429, "queue_full");
    let list = bench.get("/api/v1/queues").await.json();
    let queue = &list["queues"][0];
    assert_eq!((&queue["payload_bytes"], &queue["bytes_max"]), (&json!(10), &json!(10)));
    let metrics = bench.get("/metrics").await;
    let metrics = metrics.text();
    assert!(metrics.contains("spindle_queue_payload_bytes{queue=\"q\"} 10"), "{metrics}");
    // Neither a job that ended nor one of another queue comes in.
    act(&bench, 1, "cancel").await;
    bench.submit(json!({ "queue": "q", "payload": "12345678" })).await;
    bench.post("/api/v1/jobs/1/retry", json!({})).await.is_problem(429, "queue_full");
    bench.submit(json!({ "queue": "other", "payload": 1 })).await;
    let edit = json_request(Method::PATCH, "/api/v1/jobs/3", &json!({ "queue": "q" }));
    bench.send(edit).await.is_problem(429, "queue_full");
}

#[tokio::test]
async fn a_server_or_log_at_its_limit_takes_no_more_and_says_so() {
    let defaults = Defaults { unfinished_max: 1, ..Options::default().defaults };
    let bench = Bench::with(|_| {}, Options { defaults, ..Options::default() });
    bench.submit(json!({ "queue": "q" })).await;
    bench.post("/api/v1/jobs", json!({ "queue": "r" })).await.is_problem(429, "server_full");
    let ready = bench.get("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["status"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("server_full"))
    );
    let bench = Bench::with(|_| {}, Options { log_bytes_max: 1, ..Options::default() });
    bench.post("/api/v1/jobs", json!({ "queue": "q" })).await.is_problem(507, "log_full");
    assert_eq!(bench.get("/readyz").await.json()["status"], "log_full");
}

#[tokio::test]
async fn a_full_disk_takes_no_jobs_and_lets_the_others_end() {
    lets_only_ends_happen("disk_full", |log| log.fill(true), |log| log.fill(false)).await;
}

#[tokio::test]
async fn a_log_that_cannot_grow_takes_no_jobs_and_lets_the_others_end() {
    let code = "log_cannot_grow";
    lets_only_ends_happen(code, |log| log.stop_growth(true), |log| log.stop_growth(false)).await;
}

async fn lets_only_ends_happen(code: &str, begin: fn(&HeldLog), end: fn(&HeldLog)) {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    begin(&bench.log);
    bench.post("/api/v1/jobs", json!({ "queue": "q" })).await.is_problem(507, code);
    let ready = bench.get("/readyz").await;
    let said = (ready.status, ready.json()["status"].clone());
    assert_eq!(said, (StatusCode::SERVICE_UNAVAILABLE, json!(code)));
    let metrics = bench.get("/metrics").await;
    let metrics = metrics.text();
    assert!(metrics.contains(&format!("spindle_{code} 1")), "{metrics}");
    act(&bench, 1, "cancel").await;
    bench.post("/api/v1/jobs/1/retry", json!({ "payload": 1 })).await.is_problem(507, code);
    assert_eq!(act(&bench, 1, "retry").await.status, StatusCode::OK);
    let answer = bench.call(Method::DELETE, "/api/v1/jobs/1").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    end(&bench.log);
    assert_eq!(bench.get("/readyz").await.status, StatusCode::OK);
    bench.submit(json!({ "queue": "q" })).await;
}

#[tokio::test]
async fn a_stopping_server_still_takes_jobs_and_gives_none_out() {
    let bench = Bench::new();
    bench.engine.stop_leasing();
    bench.submit(json!({ "queue": "q" })).await;
    let answer = bench.post("/api/v1/lease", json!({ "queues": ["q"] })).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn an_edit_holds_only_for_what_was_read() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "priority": 1 })).await;
    let tag = bench.get("/api/v1/jobs/1").await.header("etag").to_owned();
    let answer = patch(&bench, 1, json!({ "priority": 5 }), Some(&tag)).await;
    assert_eq!((answer.status, &answer.json()["priority"]), (StatusCode::OK, &json!(5)));
    assert_ne!(answer.header("etag"), tag);
    for stale in [tag.as_str(), "\"x\"", "W/\"0\""] {
        let answer = patch(&bench, 1, json!({ "priority": 6 }), Some(stale)).await;
        answer.is_problem(412, "revision_mismatch");
    }
    assert_eq!(patch(&bench, 1, json!({ "priority": 7 }), Some("*")).await.status, StatusCode::OK);
    assert_eq!(patch(&bench, 1, json!({ "priority": 8 }), None).await.status, StatusCode::OK);
    assert_eq!(job(&bench, 1).await["priority"], 8);
}

#[tokio::test]
async fn a_job_moves_to_other_queues_and_times() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let answer = patch(&bench, 1, json!({ "run_at": "2026-01-02T04:00:00Z", "queue": "r" }), None);
    let answer = answer.await.json();
    assert_eq!((&answer["status"], &answer["queue"]), (&json!("scheduled"), &json!("r")));
    assert_eq!(answer["run_at"], "2026-01-02T04:00:00.000Z");
    let answer = patch(&bench, 1, json!({ "run_at": "now", "queue_base64": "/w==" }), None).await;
    let answer = answer.json();
    assert_eq!((&answer["status"], &answer["queue_base64"]), (&json!("ready"), &json!("/w==")));
    assert_eq!(answer["queue"], Value::Null);
    patch(&bench, 1, json!({ "queue": "" }), None).await.is_problem(400, "out_of_range");
    patch(&bench, 1, json!({ "state": 1 }), None).await.is_problem(400, "bad_field");
    patch(&bench, 2, json!({}), None).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_leased_job_is_not_edited_and_can_be_cancelled() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    bench.lease("q").await;
    patch(&bench, 1, json!({ "priority": 1 }), None).await.is_problem(409, "job_leased");
    act(&bench, 1, "park").await.is_problem(409, "job_leased");
    let answer = act(&bench, 1, "cancel").await.json();
    assert_eq!(
        (&answer["status"], &answer["result"]["code"]),
        (&json!("dead"), &json!("cancelled"))
    );
    act(&bench, 1, "cancel").await.is_problem(409, "job_finished");
    patch(&bench, 1, json!({ "priority": 1 }), None).await.is_problem(409, "job_finished");
    assert_eq!(answer["history"][0]["outcome"], "cancelled");
}

#[tokio::test]
async fn a_parked_job_waits_for_its_release() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "parked": true })).await;
    assert_eq!(job(&bench, 1).await["status"], "parked");
    assert_eq!(act(&bench, 1, "release").await.json()["status"], "ready");
    assert_eq!(act(&bench, 1, "park").await.json()["status"], "parked");
    act(&bench, 9, "release").await.is_problem(404, "job_not_found");
    let mut request = request(Method::POST, "/api/v1/jobs/1/release").body(Body::empty()).unwrap();
    request.headers_mut().insert(header::IF_MATCH, "\"1\"".parse().unwrap());
    bench.send(request).await.is_problem(412, "revision_mismatch");
}

#[tokio::test]
async fn a_dead_job_runs_again_with_the_old_payload_or_a_new_one() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "payload": "old" })).await;
    act(&bench, 1, "retry").await.is_problem(409, "job_not_finished");
    act(&bench, 1, "cancel").await;
    let answer = act(&bench, 1, "retry").await.json();
    assert_eq!((&answer["status"], &answer["payload"]), (&json!("ready"), &json!("old")));
    act(&bench, 1, "cancel").await;
    let answer = bench.post("/api/v1/jobs/1/retry", json!({ "payload": [2] })).await.json();
    assert_eq!((&answer["status"], &answer["payload"]), (&json!("ready"), &json!([2])));
    act(&bench, 1, "cancel").await;
    let answer = bench.post("/api/v1/jobs/1/retry", json!({ "payload_base64": "" })).await.json();
    assert_eq!((&answer["payload_type"], &answer["payload_bytes"]), (&json!("bytes"), &json!(0)));
    act(&bench, 9, "retry").await.is_problem(404, "job_not_found");
    bench.post("/api/v1/jobs/1/retry", json!({ "body": 1 })).await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn a_deleted_job_is_gone() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let answer = bench.call(Method::DELETE, "/api/v1/jobs/H:x:1").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::NO_CONTENT, 0));
    bench.get("/api/v1/jobs/1").await.is_problem(404, "job_not_found");
    bench.call(Method::DELETE, "/api/v1/jobs/1").await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn jobs_of_other_doors_keep_their_keys_to_themselves() {
    let bench = Bench::new();
    let empty = BytesRef::empty(Type::Bytes);
    let mut submit = Submit::new(JobId(0), b"q"[..].into(), Origin::Gearman, empty);
    let (namespace, scope) = (Origin::Gearman as i32, Scope::WhileUnfinished as i32);
    submit.keys = vec![Key { namespace, name: b"u\0\0\x01qk"[..].into(), scope }];
    opened(bench.engine.jobs().submit(new_job(submit, b""))).unwrap();
    let answer = bench.get("/api/v1/jobs/1").await.json();
    assert_eq!((&answer["origin"], &answer["unique_key"]), (&json!("gearman"), &Value::Null));
    bench.submit(json!({ "queue": "q", "unique": { "key": "k" } })).await;
}

#[tokio::test]
async fn of_long_bytes_only_as_much_is_read_as_was_asked_for() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "q", "payload": "caf\u{e9}s" })).await;
    let lease = bench.lease("q").await;
    let token = lease["lease_token"].as_str().unwrap();
    let done = json!({ "result": "0123456789" });
    bench.post(&format!("/api/v1/leases/{token}/complete"), done).await.is(204);
    let job = async |max: &str| bench.get(&format!("/api/v1/jobs/{id}?bytes_max={max}")).await;
    // The payload has 8 bytes as JSON, the result 12.
    for (max, payload, preview, result) in [
        (12, json!("caf\u{e9}s"), Value::Null, json!("0123456789")),
        (11, json!("caf\u{e9}s"), Value::Null, Value::Null),
        (8, json!("caf\u{e9}s"), Value::Null, Value::Null),
        (7, Value::Null, json!("\"caf\u{e9}s"), Value::Null),
        (5, Value::Null, json!("\"caf"), Value::Null),
        (0, Value::Null, json!(""), Value::Null),
    ] {
        let job = job(&max.to_string()).await.json();
        let found = (&job["payload"], &job["payload_preview"], &job["result"]["value"]);
        assert_eq!(found, (&payload, &preview, &result), "{max}: {job}");
        assert_eq!((&job["payload_bytes"], &job["result"]["bytes"]), (&json!(8), &json!(12)));
    }
    job("65536").await.is(200);
    job("65537").await.is_problem(400, "out_of_range");
    job("x").await.is_problem(400, "bad_field");
}
