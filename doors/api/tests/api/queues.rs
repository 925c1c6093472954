//! Queues and their settings.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::{Bench, Reply, json as json_request};

async fn set(bench: &Bench, queue: &str, body: Value) -> Reply {
    let path = format!("/api/v1/queues/{queue}/settings");
    bench.send(json_request(Method::PUT, &path, &body)).await
}

#[tokio::test]
async fn a_queue_counts_its_jobs_by_status() {
    let bench = Bench::new();
    for body in [
        json!({ "queue": "q" }),
        json!({ "queue": "q" }),
        json!({ "queue": "q", "parked": true }),
        json!({ "queue": "q", "run_at": "2030-01-01T00:00:00Z" }),
        json!({ "queue": "q" }),
    ] {
        bench.submit(body).await;
    }
    bench.lease("q").await;
    bench.call(Method::POST, "/api/v1/jobs/2/cancel").await;
    bench.pass(1500);
    let counts = json!({
        "scheduled": 1, "ready": 1, "leased": 1, "parked": 1, "blocked": 0,
        "done": 0, "dead": 1,
    });
    let through = json!({
        "submitted": 5, "leased": 1, "completed": 0, "requeued": 0, "died": 1,
    });
    let queue = json!({
        "name": "q", "paused": false, "jobs": counts, "payload_bytes": 0,
        "next_ready_age_ms": 1500,
        "last_minute": through, "waiting_leases": 0,
        "last_asked_at": "2026-01-02T03:04:05.678Z",
    });
    let list = bench.get("/api/v1/queues").await.json();
    assert_eq!(list, json!({ "queues": [queue] }));
    let mut answer = bench.get("/api/v1/queues/q").await.json();
    let more = answer.as_object_mut().unwrap();
    assert_eq!(more.remove("settings").unwrap(), json!({}));
    assert_eq!(more.remove("since_start").unwrap(), through);
    assert_eq!(more.remove("oldest_ready_age_ms").unwrap(), json!(1500));
    assert_eq!(answer, queue);
}

#[tokio::test]
async fn queues_with_any_name_can_be_reached() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a b/c?ä" })).await;
    bench.submit(json!({ "queue_base64": "/y8A" })).await;
    let answer = bench.get("/api/v1/queues/a%20b%2Fc%3F%C3%A4").await.json();
    assert_eq!((&answer["name"], &answer["jobs"]["ready"]), (&json!("a b/c?ä"), &json!(1)));
    let answer = bench.get("/api/v1/queues/%FF%2F%00").await.json();
    assert_eq!((&answer["name"], &answer["name_base64"]), (&Value::Null, &json!("/y8A")));
    let answer = bench.call(Method::POST, "/api/v1/queues/%FF%2F%00/pause").await.json();
    assert_eq!(answer["paused"], true);
    let long = "q".repeat(513);
    bench.get(&format!("/api/v1/queues/{long}")).await.is_problem(400, "out_of_range");
    bench.get("/api/v1/queues/none").await.is_problem(404, "queue_not_found");
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_out_until_it_is_resumed() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    let answer = bench.call(Method::POST, "/api/v1/queues/q/pause").await;
    assert_eq!((answer.status, &answer.json()["paused"]), (StatusCode::OK, &json!(true)));
    let answer = bench.post("/api/v1/lease", json!({ "queues": ["q"] })).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let answer = bench.call(Method::POST, "/api/v1/queues/q/resume").await;
    assert_eq!(answer.json()["paused"], false);
    bench.lease("q").await;
    let answer = bench.call(Method::POST, "/api/v1/queues/none/resume").await;
    answer.is_problem(404, "queue_not_found");
    // An empty queue can be paused before anything comes, and is forgotten when resumed.
    bench.call(Method::POST, "/api/v1/queues/new/pause").await;
    assert_eq!(bench.get("/api/v1/queues/new").await.json()["paused"], true);
    let answer = bench.call(Method::POST, "/api/v1/queues/new/resume").await;
    assert_eq!((answer.status, &answer.json()["paused"]), (StatusCode::OK, &json!(false)));
    bench.get("/api/v1/queues/new").await.is_problem(404, "queue_not_found");
}

#[tokio::test]
async fn settings_are_replaced_as_a_whole_and_leave_the_pause_alone() {
    let bench = Bench::new();
    bench.call(Method::POST, "/api/v1/queues/q/pause").await;
    let settings = json!({
        "attempts_max": 3, "fails_max": 2, "ttr_default_ms": 1000, "keep_ms": 5,
        "keep_dead_ms": 6, "jobs_max": 7, "bytes_max": 70, "finished_max": 8,
        "backoff": { "base_ms": 1, "factor": 1.001, "cap_ms": 3_600_000, "jitter": 0.25 },
    });
    let answer = set(&bench, "q", settings.clone()).await.json();
    assert_eq!((&answer["settings"], &answer["paused"]), (&settings, &json!(true)));
    let answer = set(&bench, "q", json!({ "jobs_max": 9 })).await.json();
    assert_eq!((&answer["settings"], &answer["paused"]), (&json!({ "jobs_max": 9 }), &json!(true)));
    set(&bench, "q", json!({ "paused": false })).await.is_problem(400, "bad_field");
    set(&bench, "q", json!({ "ttr_default_ms": 0 })).await.is_problem(400, "out_of_range");
    bench.call(Method::POST, "/api/v1/queues/q/resume").await;
    set(&bench, "q", json!({ "ttr_default_ms": 1 })).await;
    bench.submit(json!({ "queue": "q" })).await;
    assert_eq!(bench.lease("q").await["lease_ms"], 1);
}

#[tokio::test]
async fn a_purge_takes_what_waits_and_nothing_else() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "priority": 9 })).await;
    bench.lease("q").await;
    bench.submit(json!({ "queue": "q", "parked": true })).await;
    bench.submit(json!({ "queue": "other" })).await;
    for _ in 0..300 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    bench.submit(json!({ "queue": "q", "run_at": "2030-01-01T00:00:00Z" })).await;
    let answer = bench.call(Method::POST, "/api/v1/queues/q/purge").await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "deleted": 301 })));
    let answer = bench.get("/api/v1/queues/q").await.json();
    assert_eq!((&answer["jobs"]["leased"], &answer["jobs"]["parked"]), (&json!(1), &json!(1)));
    assert_eq!(bench.get("/api/v1/queues/other").await.json()["jobs"]["ready"], 1);
    let answer = bench.call(Method::POST, "/api/v1/queues/none/purge").await;
    assert_eq!(answer.json(), json!({ "deleted": 0 }));
}

#[tokio::test]
async fn queues_are_listed_in_pages() {
    let bench = Bench::new();
    for queue in ["c", "a", "d", "b", "e"] {
        bench.submit(json!({ "queue": queue })).await;
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/queues?limit=2".to_owned();
    let mut pages = 0;
    loop {
        let page = bench.get(&path).await.json();
        let queues = page["queues"].as_array().unwrap();
        seen.extend(queues.iter().map(|queue| queue["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/queues?limit=2&cursor={cursor}");
    }
    assert_eq!((seen.concat().as_str(), pages), ("abcde", 3));
    bench.get("/api/v1/queues?limit=513").await.is_problem(400, "out_of_range");
    bench.get("/api/v1/queues?limit=0").await.is_problem(400, "out_of_range");
    bench.get("/api/v1/queues?cursor=*").await.is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_queue_tells_what_goes_through_it_and_who_asks() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.submit(json!({ "queue": "a" })).await;
    }
    bench.submit(json!({ "queue": "a", "priority": 9 })).await;
    let leased = bench.lease("a").await;
    let token = leased["lease_token"].as_str().unwrap();
    bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await;
    bench.pass(5000);
    bench.submit(json!({ "queue": "a", "priority": 9 })).await;
    let answer = bench.get("/api/v1/queues/a").await.json();
    let counts = json!({
        "submitted": 5, "leased": 1, "completed": 1, "requeued": 0, "died": 0,
    });
    assert_eq!((&answer["last_minute"], &answer["since_start"]), (&counts, &counts));
    assert_eq!(answer["last_asked_at"], "2026-01-02T03:04:05.678Z");
    assert_eq!(answer["next_ready_age_ms"], 0, "the urgent one is next");
    assert_eq!(answer["oldest_ready_age_ms"], 5000, "and others wait longer");
    let list = bench.get("/api/v1/queues").await.json();
    assert_eq!(list["queues"][0]["last_minute"], counts);
    bench.pass(120_000);
    let answer = bench.get("/api/v1/queues/a").await.json();
    assert_eq!(answer["last_minute"]["submitted"], 0);
    assert_eq!(answer["since_start"], counts);
}

#[tokio::test]
async fn settings_are_replaced_only_if_they_are_what_was_read() {
    let bench = Bench::new();
    let put = async |body: Value, tag: Option<&str>| {
        let mut request = json_request(Method::PUT, "/api/v1/queues/a/settings", &body);
        if let Some(tag) = tag {
            request.headers_mut().insert("if-match", tag.parse().unwrap());
        }
        bench.send(request).await
    };
    let first = put(json!({ "fails_max": 3 }), None).await;
    let tag = first.header("etag").to_owned();
    assert_eq!(bench.get("/api/v1/queues/a").await.header("etag"), tag);
    bench.call(Method::POST, "/api/v1/queues/a/pause").await;
    let second = put(json!({ "fails_max": 4, "bytes_type": "json" }), Some(&tag)).await;
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(second.json()["settings"], json!({ "fails_max": 4, "bytes_type": "json" }));
    assert_eq!(second.json()["paused"], true);
    assert_ne!(second.header("etag"), tag);
    put(json!({ "fails_max": 5 }), Some(&tag)).await.is_problem(412, "revision_mismatch");
    let answer = bench.get("/api/v1/queues/a").await.json();
    assert_eq!(answer["settings"]["fails_max"], 4);
    assert_eq!(put(json!({ "fails_max": 5 }), Some("*")).await.status, 200);
}

#[tokio::test]
async fn a_drain_pauses_and_waits_until_no_worker_has_a_job() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a" })).await;
    bench.submit(json!({ "queue": "a" })).await;
    let leased = bench.lease("a").await;
    let answer = bench.call(Method::POST, "/api/v1/queues/a/drain").await;
    assert_eq!(answer.json(), json!({ "drained": false, "leased": 1 }));
    let none = bench.post("/api/v1/lease", json!({ "queues": ["a"] })).await;
    assert_eq!(none.status, 204, "it is paused");
    let drain = bench.call(Method::POST, "/api/v1/queues/a/drain?wait_s=300");
    let end = async {
        let token = leased["lease_token"].as_str().unwrap();
        bench.post(&format!("/api/v1/leases/{token}/complete"), json!({})).await
    };
    let (answer, _) = tokio::join!(drain, end);
    assert_eq!(answer.json(), json!({ "drained": true, "leased": 0 }));
    let answer = bench.get("/api/v1/queues/a").await.json();
    assert_eq!((&answer["paused"], &answer["jobs"]["ready"]), (&json!(true), &json!(1)));
    let long = bench.call(Method::POST, "/api/v1/queues/a/drain?wait_s=301").await;
    long.is_problem(400, "out_of_range");
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_paused_only_if_it_may_come_to_be() {
    let bench = Bench::new();
    for path in ["pause?create=false", "drain?create=false", "resume"] {
        let answer = bench.call(Method::POST, &format!("/api/v1/queues/mial/{path}")).await;
        answer.is_problem(404, "queue_not_found");
    }
    assert_eq!(bench.get("/api/v1/queues").await.json(), json!({ "queues": [] }));
    bench.submit(json!({ "queue": "mail" })).await;
    let answer = bench.call(Method::POST, "/api/v1/queues/mail/pause?create=false").await.json();
    assert_eq!(answer["paused"], true);
    for path in ["pause", "drain?create=true"] {
        let answer = bench.call(Method::POST, &format!("/api/v1/queues/new/{path}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let wrong = bench.call(Method::POST, "/api/v1/queues/mail/pause?create=maybe").await;
    wrong.is_problem(400, "bad_field");
}

#[tokio::test]
async fn the_list_tells_who_waits_for_a_queue_and_how_much_it_may_hold() {
    let bench = Bench::new();
    set(&bench, "q", json!({ "jobs_max": 7 })).await;
    let wait = json!({ "queues": ["q"], "wait_s": 60 });
    let waiting = tokio::spawn(bench.site.clone().oneshot(json_request(
        Method::POST,
        "/api/v1/lease",
        &wait,
    )));
    bench.waits(1).await;
    let list = bench.get("/api/v1/queues").await.json();
    let queue = &list["queues"][0];
    assert_eq!((&queue["waiting_leases"], &queue["jobs_max"]), (&json!(1), &json!(7)));
    waiting.abort();
}

#[tokio::test]
async fn settings_go_back_just_as_they_came() {
    let bench = Bench::new();
    let path = "/api/v1/queues/a/settings";
    bench.get(path).await.is_problem(404, "queue_not_found");
    let settings = json!({
        "attempts_max": 0, "fails_max": 2, "ttr_default_ms": 1000, "keep_ms": 0,
        "keep_dead_ms": 6, "jobs_max": 7, "bytes_max": 0, "finished_max": 0, "bytes_type": "msgpack",
        "backoff": { "base_ms": 0, "factor": 2.5, "cap_ms": 9, "jitter": 0.125 },
    });
    assert_eq!(set(&bench, "a", settings.clone()).await.json()["settings"], settings);
    bench.call(Method::POST, "/api/v1/queues/a/pause").await;
    let alone = bench.get(path).await;
    let queue = bench.get("/api/v1/queues/a").await;
    assert_eq!((alone.json(), &queue.json()["settings"]), (settings.clone(), &settings));
    assert_eq!(alone.header("etag"), queue.header("etag"));
    // Putting back what was read changes nothing.
    let mut request = json_request(Method::PUT, path, &alone.json());
    request.headers_mut().insert("if-match", alone.header("etag").parse().unwrap());
    let put = bench.send(request).await;
    assert_eq!((put.status, put.header("etag")), (StatusCode::OK, alone.header("etag")));
    assert_eq!((&put.json()["settings"], &put.json()["paused"]), (&settings, &json!(true)));
    // A queue of which nothing is set has settings too.
    bench.submit(json!({ "queue": "b" })).await;
    assert_eq!(bench.get("/api/v1/queues/b/settings").await.json(), json!({}));
}

#[tokio::test]
async fn settings_can_be_put_only_where_there_is_a_queue_or_only_where_there_is_none() {
    let bench = Bench::new();
    let put = async |queue: &str, header: &'static str| {
        let path = format!("/api/v1/queues/{queue}/settings");
        let mut request = json_request(Method::PUT, &path, &json!({ "fails_max": 3 }));
        request.headers_mut().insert(header, "*".parse().unwrap());
        bench.send(request).await
    };
    put("a", "if-match").await.is_problem(412, "revision_mismatch");
    bench.get("/api/v1/queues/a").await.is_problem(404, "queue_not_found");
    let made = put("a", "if-none-match").await;
    assert_eq!((made.status, &made.json()["settings"]["fails_max"]), (StatusCode::OK, &json!(3)));
    put("a", "if-none-match").await.is_problem(412, "revision_mismatch");
    assert_eq!(put("a", "if-match").await.status, StatusCode::OK);
    bench.submit(json!({ "queue": "b" })).await;
    put("b", "if-none-match").await.is_problem(412, "revision_mismatch");
    assert_eq!(set(&bench, "c", json!({ "fails_max": 1 })).await.status, StatusCode::OK);
}
