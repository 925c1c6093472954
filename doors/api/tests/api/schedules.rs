//! Schedules over HTTP: put, read, change, pause, run, remove, and all of them at once.

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use serde_json::{Map, Value, json};
use spindle_testkit::TokensFile;

use crate::access::guarded;
use crate::harness::{Bench, Reply, json as json_request, request};

async fn put(bench: &Bench, name: &str, body: &Value) -> Reply {
    bench.send(json_request(Method::PUT, &format!("/api/v1/schedules/{name}"), body)).await
}

async fn shown(bench: &Bench, name: &str) -> Value {
    bench.get(&format!("/api/v1/schedules/{name}")).await.json()
}

fn daily(queue: &str) -> Value {
    json!({ "expression": "0 9 * * MON-FRI", "zone": "Europe/Berlin", "job": { "queue": queue } })
}

#[tokio::test]
async fn a_schedule_is_shown_as_it_was_put_with_the_times_ahead() {
    let bench = Bench::new();
    let body = json!({
        "expression": "@hourly",
        "zone": "America/New_York",
        "job": {
            "queue": "mail", "payload": { "to": "all" }, "priority": 3, "ttr_ms": 5000,
            "ttl_ms": 60000, "attempts_max": 2, "fails_max": 1, "keep_ms": 1000, "tags": ["night"],
            "backoff": { "base_ms": 10, "factor": 2, "cap_ms": 100, "jitter": 0 },
        },
        "overlap": "queue_one",
        "missed": "all",
        "missed_max": 7,
        "jitter_ms": 0,
        "start_at": "2030-01-01T00:00:00.000Z",
        "end_at": "2030-01-01T02:30:00.000Z",
        "paused": false,
    });
    let reply = put(&bench, "per%20hour", &body).await;
    assert_eq!((reply.status, reply.header("etag")), (StatusCode::CREATED, "\"1\""));
    let answer = reply.json();
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&answer[field], value, "{field}");
    }
    assert_eq!(answer["name"], "per hour");
    let times =
        ["2030-01-01T00:00:00.000Z", "2030-01-01T01:00:00.000Z", "2030-01-01T02:00:00.000Z"];
    assert_eq!(answer["next_times"], json!(times));
    assert_eq!(answer["fires_at"], times[0]);
    assert_eq!((&answer["submitted"], &answer["is_running"]), (&json!(0), &json!(false)));
    // The same again changes nothing.
    let again = put(&bench, "per%20hour", &body).await;
    assert_eq!((again.status, again.header("etag")), (StatusCode::OK, "\"1\""));
    let one = bench.get("/api/v1/schedules/per%20hour?times=1").await;
    assert_eq!(one.json()["next_times"], json!(times[..1]));
}

#[tokio::test]
async fn what_never_fires_or_is_malformed_is_refused() {
    let bench = Bench::new();
    let with = |more: Value| {
        let mut body = daily("mail");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, code) in [
        (json!({}), "bad_field"),
        (json!({ "expression": "@daily" }), "bad_field"),
        (json!({ "expression": "@daily", "job": {} }), "bad_field"),
        (json!({ "expression": "@daily", "job": ["mail"] }), "bad_field"),
        (with(json!({ "expression": "0 0 30 2 *" })), "out_of_range"),
        (with(json!({ "expression": "61 * * * *" })), "out_of_range"),
        (with(json!({ "expression": "" })), "out_of_range"),
        (with(json!({ "expression": "every 0s" })), "out_of_range"),
        (with(json!({ "zone": "Mars/Olympus" })), "out_of_range"),
        (with(json!({ "end_at": "1999-01-01T00:00:00Z" })), "out_of_range"),
        (with(json!({ "end_at": "0001-01-01T00:00:00Z" })), "out_of_range"),
        (with(json!({ "start_at": "9999-12-30T00:00:00Z" })), "out_of_range"),
        (with(json!({ "start_at": "tomorrow" })), "out_of_range"),
        (with(json!({ "jitter_ms": 3_600_001 })), "out_of_range"),
        (with(json!({ "jitter_ms": -1 })), "bad_field"),
        (with(json!({ "missed": "all", "missed_max": 0 })), "out_of_range"),
        (with(json!({ "missed": "all", "missed_max": 1001 })), "out_of_range"),
        (with(json!({ "missed_max": 5 })), "bad_field"),
        (with(json!({ "overlap": "sometimes" })), "bad_field"),
        (with(json!({ "job": { "queue": "mail", "unique": { "key": "k" } } })), "bad_field"),
        (with(json!({ "job": { "queue": "mail", "parked": true } })), "bad_field"),
        (with(json!({ "job": { "queue": "mail", "ttr_ms": 0 } })), "out_of_range"),
        (
            with(json!({ "job": { "queue": "mail", "payload": "x".repeat(65_536) } })),
            "out_of_range",
        ),
        (with(json!({ "cron": "@daily" })), "bad_field"),
    ] {
        let reply = put(&bench, "s", &body).await;
        reply.is_problem(400, code);
    }
    put(&bench, &"x".repeat(101), &daily("mail")).await.is_problem(400, "out_of_range");
    put(&bench, "a%0Ab", &daily("mail")).await.is_problem(400, "out_of_range");
    put(&bench, "%FF", &daily("mail")).await.is_problem(400, "bad_field");
    assert_eq!(bench.get("/api/v1/schedules").await.json()["schedules"], json!([]));
    bench.get("/api/v1/schedules/s").await.is_problem(404, "schedule_not_found");
}

#[tokio::test]
async fn a_put_insists_on_the_revision_that_was_read() {
    let bench = Bench::new();
    let put_if = async |header: header::HeaderName, tag: &str, body: &Value| {
        let request = request(Method::PUT, "/api/v1/schedules/s")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header, tag)
            .body(Body::from(body.to_string()));
        bench.send(request.unwrap()).await
    };
    put_if(header::IF_MATCH, "*", &daily("a")).await.is_problem(412, "revision_mismatch");
    put_if(header::IF_NONE_MATCH, "*", &daily("a")).await.is(201);
    put_if(header::IF_NONE_MATCH, "*", &daily("b")).await.is_problem(412, "revision_mismatch");
    put_if(header::IF_MATCH, "\"2\"", &daily("b")).await.is_problem(412, "revision_mismatch");
    let changed = put_if(header::IF_MATCH, "\"1\"", &daily("b")).await;
    assert_eq!((changed.status, changed.header("etag")), (StatusCode::OK, "\"2\""));
    let removal = request(Method::DELETE, "/api/v1/schedules/s").header(header::IF_MATCH, "\"1\"");
    let removal = bench.send(removal.body(Body::empty()).unwrap()).await;
    removal.is_problem(412, "revision_mismatch");
    bench.call(Method::DELETE, "/api/v1/schedules/s").await.is(204);
    bench.call(Method::DELETE, "/api/v1/schedules/s").await.is_problem(404, "schedule_not_found");
    let anew = put_if(header::IF_NONE_MATCH, "*", &daily("b")).await;
    assert_eq!(anew.header("etag"), "\"3\"", "an old tag never fits another one");
}

#[tokio::test]
async fn a_dry_run_shows_and_changes_nothing() {
    let bench = Bench::new();
    let reply = put(&bench, "s?dry_run=true", &daily("mail")).await;
    reply.is(200);
    assert_eq!(reply.json()["next_times"].as_array().unwrap().len(), 10);
    bench.get("/api/v1/schedules/s").await.is_problem(404, "schedule_not_found");
}

#[tokio::test]
async fn a_schedule_submits_its_job_when_its_time_has_come() {
    let bench = Bench::new();
    let body = json!({ "expression": "every 1s",
        "job": { "queue": "mail", "payload": [1, 2], "tags": ["t"] } });
    put(&bench, "tick", &body).await.is(201);
    bench.pass(1000);
    while bench.engine.fire_schedules(1) {}
    let answer = shown(&bench, "tick").await;
    assert_eq!(
        (&answer["last"]["outcome"], &answer["submitted"]),
        (&json!("submitted"), &json!(1))
    );
    let id = answer["last_job"].as_u64().unwrap();
    let job = bench.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!((&job["queue"], &job["payload"]), (&json!("mail"), &json!([1, 2])));
    assert_eq!(job["tags"], json!(["t", "schedule:tick"]));
}

#[tokio::test]
async fn a_paused_schedule_shows_no_times_and_runs_when_asked() {
    let bench = Bench::new();
    put(&bench, "s", &daily("mail")).await.is(201);
    let paused = bench.post("/api/v1/schedules/s/pause", json!({})).await;
    paused.is(200);
    assert_eq!(
        (&paused.json()["paused"], &paused.json()["next_times"]),
        (&json!(true), &json!([]))
    );
    let run = bench.post("/api/v1/schedules/s/run", json!({})).await;
    run.is(201);
    let job = run.json()["job"].as_u64().unwrap();
    assert_eq!(bench.get(&format!("/api/v1/jobs/{job}")).await.json()["queue"], "mail");
    let now = shown(&bench, "s").await;
    assert_eq!((&now["last_job"], &now["is_running"]), (&json!(job), &json!(true)));
    let resumed = bench.post("/api/v1/schedules/s/resume", json!({})).await.json();
    assert_eq!(resumed["next_times"].as_array().unwrap().len(), 10);
    let settings = json!({ "jobs_max": 1 });
    bench.send(json_request(Method::PUT, "/api/v1/queues/mail/settings", &settings)).await.is(200);
    bench.post("/api/v1/schedules/s/run", json!({})).await.is_problem(429, "queue_full");
    bench.post("/api/v1/schedules/none/run", json!({})).await.is_problem(404, "schedule_not_found");
}

#[tokio::test]
async fn a_list_has_pages() {
    let bench = Bench::new();
    for name in ["c", "a", "b"] {
        put(&bench, name, &daily("mail")).await.is(201);
    }
    let names = |page: &Value| -> Vec<String> {
        let all = page["schedules"].as_array().unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = bench.get("/api/v1/schedules?limit=2").await.json();
    assert_eq!((names(&first), &first["next_cursor"]), (vec!["a".into(), "b".into()], &json!("b")));
    let second = bench.get("/api/v1/schedules?limit=2&cursor=b").await.json();
    assert_eq!((names(&second), second.get("next_cursor")), (vec!["c".to_owned()], None));
    bench.get("/api/v1/schedules?limit=0").await.is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_list_by_outcome_goes_on_behind_those_that_came_to_others() {
    let bench = Bench::new();
    let settings = json!({ "jobs_max": 1 });
    bench.send(json_request(Method::PUT, "/api/v1/queues/full/settings", &settings)).await.is(200);
    bench.submit(json!({ "queue": "full" })).await;
    let every = |queue: &str| json!({ "expression": "every 60s", "job": { "queue": queue } });
    // More than are looked at in one hold of the lock.
    let mut all: Map<String, Value> =
        (0..600).map(|number| (format!("m{number}"), daily("mail"))).collect();
    for (name, queue) in [("a", "full"), ("b", "mail"), ("z", "full")] {
        all.insert(name.to_owned(), every(queue));
    }
    let all = json!({ "schedules": all });
    bench.send(json_request(Method::PUT, "/api/v1/schedules", &all)).await.is(200);
    bench.pass(60_000);
    while bench.engine.fire_schedules(1) {}
    for (query, names, next) in [
        ("outcome=refused", &["a", "z"][..], None),
        ("outcome=submitted,refused", &["a", "b", "z"], None),
        ("outcome=refused&limit=1", &["a"], Some("a")),
        ("outcome=refused&limit=1&cursor=a", &["z"], None),
        ("outcome=pending", &[], None),
    ] {
        let found = bench.get(&format!("/api/v1/schedules?{query}")).await.json();
        let schedules = found["schedules"].as_array().unwrap().iter();
        let found_names: Vec<&str> = schedules.map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!((&found_names[..], found["next_cursor"].as_str()), (names, next), "{query}");
    }
    for outcome in ["never", "", "refused,"] {
        let path = format!("/api/v1/schedules?outcome={outcome}");
        bench.get(&path).await.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn a_set_is_applied_as_a_whole() {
    let bench = Bench::new();
    let apply = async |query: &str, schedules: Value| {
        let path = format!("/api/v1/schedules{query}");
        let body = json!({ "schedules": schedules });
        bench.send(json_request(Method::PUT, &path, &body)).await
    };
    put(&bench, "old", &daily("mail")).await.is(201);
    put(&bench, "same", &daily("mail")).await.is(201);
    put(&bench, "other", &daily("mail")).await.is(201);
    let bad =
        json!({ "new": daily("mail"), "bad": { "expression": "x", "job": { "queue": "q" } } });
    let refused = apply("", bad).await;
    refused.is_problem(400, "out_of_range");
    assert!(refused.text().contains("schedule bad"), "{}", refused.text());
    let set = json!({ "new": daily("mail"), "same": daily("mail"), "other": daily("bill") });
    let expected = json!({ "created": ["new"], "changed": ["other"], "removed": ["old"],
        "unchanged": 1 });
    assert_eq!(apply("?dry_run=true", set.clone()).await.json(), expected);
    bench.get("/api/v1/schedules/old").await.is(200);
    bench.get("/api/v1/schedules/new").await.is_problem(404, "schedule_not_found");
    assert_eq!(apply("", set.clone()).await.json(), expected);
    bench.get("/api/v1/schedules/old").await.is_problem(404, "schedule_not_found");
    let nothing = json!({ "created": [], "changed": [], "removed": [], "unchanged": 3 });
    assert_eq!(apply("", set).await.json(), nothing);
    let entries = bench.get("/api/v1/audit?limit=1").await.json();
    let entry = &entries["entries"][0];
    assert_eq!((&entry["count"], &entry["detail"]), (&json!(3), &json!("all schedules")));
}

#[tokio::test]
async fn a_limited_token_makes_no_schedule_for_queues_of_others_and_sees_none() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let put_as = async |token: &str, name: &str, queue: &str| {
        let path = format!("/api/v1/schedules/{name}");
        bench.call_as(token, json_request(Method::PUT, &path, &daily(queue))).await
    };
    put_as("mine.manage", "s", "billing").await.is_problem(403, "forbidden");
    put_as("manage", "s", "billing").await.is(201);
    // Neither does it take over one of others.
    put_as("mine.manage", "s", "mine.a").await.is_problem(403, "forbidden");
    put_as("mine.manage", "own", "mine.a").await.is(201);
    put_as("mine.manage", "own", "billing").await.is_problem(403, "forbidden");
    for path in ["/api/v1/schedules/s/run", "/api/v1/schedules/s/pause"] {
        let post = json_request(Method::POST, path, &json!({}));
        bench.call_as("mine.manage", post).await.is_problem(404, "schedule_not_found");
    }
}

#[tokio::test]
async fn the_payload_is_shown_to_who_may_inspect() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    let body = json!({ "expression": "@daily", "job": { "queue": "mine.a", "payload": "secret" } });
    put(&bench, "s", &body).await.is(201);
    for (token, is_shown) in [("read", false), ("inspect", true), ("mine.manage", true)] {
        let get = request(Method::GET, "/api/v1/schedules/s").body(Body::empty()).unwrap();
        let answer = bench.call_as(token, get).await.json();
        assert_eq!(answer["job"]["payload"] == "secret", is_shown, "{token} {answer}");
    }
}
