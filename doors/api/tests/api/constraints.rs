//! Constraints over HTTP: put, read, change, remove, and what jobs say of them.

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::harness::{Bench, Reply, json as json_request, request, until};

async fn put(bench: &Bench, name: &str, body: Value) -> Reply {
    let path = format!("/api/v1/constraints/{name}");
    bench.send(json_request(Method::PUT, &path, &body)).await
}

async fn put_if(bench: &Bench, name: &str, (header, tag): (&str, &str), body: Value) -> Reply {
    let path = format!("/api/v1/constraints/{name}");
    let request = request(Method::PUT, &path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header, tag)
        .body(Body::from(body.to_string()))
        .unwrap();
    bench.send(request).await
}

async fn shown(bench: &Bench, name: &str) -> Value {
    bench.get(&format!("/api/v1/constraints/{name}")).await.json()
}

/// Waits until all jobs that were there are matched.
async fn matched(bench: &Bench) {
    until(|| bench.engine.constraints().relabelling().remaining == 0).await;
}

#[tokio::test]
async fn a_constraint_is_told_as_it_was_put() {
    let bench = Bench::new();
    let body = json!({
        "queue_glob": "mail.*",
        "where": [
            { "pointer": "/plan", "op": "in", "values": ["free", null, 3, true] },
            { "pointer": "/size", "op": "gt", "value": 1.5 },
            { "pointer": "/to", "op": "glob", "value": "*@example.org" },
            { "pointer": "/n", "op": "eq", "value": null },
            { "pointer": "/big", "op": "le", "value": 18446744073709551615_u64 },
            { "pointer": "/x", "op": "absent" },
            { "pointer": "/y", "op": "exists" },
        ],
        "per": "/user/id",
        "rate": { "count": 10, "per_ms": 1000 },
        "running_max": 5,
    });
    let reply = put(&bench, "per%20user", body.clone()).await;
    assert_eq!((reply.status, reply.header("etag")), (StatusCode::CREATED, "\"1\""));
    let answer = reply.json();
    assert_eq!(answer["name"], "per user");
    for field in ["queue_glob", "where", "per", "running_max"] {
        assert_eq!(answer[field], body[field], "{field}");
    }
    assert_eq!(answer["rate"], json!({ "count": 10, "per_ms": 1000, "burst": 10 }));
    assert_eq!(answer["buckets"], json!([]));
    // The constraint as shown can be put again, and changes nothing.
    let again = put(&bench, "per%20user", body).await;
    assert_eq!((again.status, again.header("etag")), (StatusCode::OK, "\"1\""));
    let reply = bench.get("/api/v1/constraints/per%20user").await;
    assert_eq!((reply.status, reply.header("etag")), (StatusCode::OK, "\"1\""));
}

#[tokio::test]
async fn what_limits_nothing_or_is_malformed_is_refused() {
    let bench = Bench::new();
    let few = |more: Value| {
        let mut body = json!({ "running_max": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let condition = |condition: Value| few(json!({ "where": [condition] }));
    for (body, code) in [
        (json!({}), "out_of_range"),
        (few(json!({ "rate": { "count": 0, "per_ms": 1 } })), "out_of_range"),
        (few(json!({ "rate": [1, 2, 3] })), "bad_field"),
        (few(json!({ "queue": "a", "queue_glob": "b" })), "bad_field"),
        (few(json!({ "queue": "" })), "out_of_range"),
        (few(json!({ "per": "user" })), "out_of_range"),
        (few(json!({ "unknown": 1 })), "bad_field"),
        (condition(json!(["/a", "eq", 1])), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "eq" })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "like", "value": 1 })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "eq", "value": [] })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "glob", "value": 1 })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "exists", "value": 1 })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "in", "value": 1 })), "bad_field"),
        (condition(json!({ "pointer": "/a", "op": "in", "values": [] })), "out_of_range"),
        (condition(json!({ "pointer": "/a", "op": "lt", "value": null })), "out_of_range"),
        (condition(json!({ "pointer": "a", "op": "exists" })), "out_of_range"),
    ] {
        let reply = put(&bench, "c", body.clone()).await;
        reply.is_problem(400, code);
    }
    put(&bench, &"x".repeat(256), json!({ "running_max": 1 }))
        .await
        .is_problem(400, "out_of_range");
    put(&bench, "%ff", json!({ "running_max": 1 })).await.is_problem(400, "bad_field");
    bench.get("/api/v1/constraints/c").await.is_problem(404, "constraint_not_found");
}

#[tokio::test]
async fn a_constraint_says_which_payloads_it_cannot_read() {
    let bench = Bench::new();
    let per = |more: Value| {
        let mut body = json!({ "per": "/user", "running_max": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let condition = json!([{ "pointer": "/plan", "op": "eq", "value": "free" }]);
    for (body, part) in [
        (per(json!({ "queue": "mail" })), "payloads of queue mail that come as bytes"),
        (per(json!({ "queue_glob": "mail*" })), "payloads of queues without a bytes_type"),
        (per(json!({})), "payloads of queues without a bytes_type"),
        (json!({ "queue": "mail", "where": condition, "running_max": 0 }), "of queue mail"),
    ] {
        for answer in [put(&bench, "c", body).await.json(), shown(&bench, "c").await] {
            let notes = answer["notes"].as_array().unwrap();
            let note = notes[0].as_str().unwrap();
            assert!(
                notes.len() == 1 && note.contains(part) && note.contains("bytes_type"),
                "{note}"
            );
        }
    }
    let answer = bench.get("/api/v1/constraints").await.json();
    assert_eq!(answer["constraints"][0]["notes"].as_array().unwrap().len(), 1);
    // A constraint that reads no payloads has no notes, nor has one that can read all of them.
    assert!(
        put(&bench, "c", json!({ "queue": "mail", "running_max": 1 })).await.json()["notes"]
            .is_null()
    );
    let settings =
        json_request(Method::PUT, "/api/v1/queues/mail/settings", &json!({ "bytes_type": "json" }));
    assert_eq!(bench.send(settings).await.status, StatusCode::OK);
    let answer = put(&bench, "c", per(json!({ "queue": "mail" }))).await.json();
    assert!(answer["notes"].is_null(), "{answer}");
}

#[tokio::test]
async fn jobs_that_are_still_to_be_matched_do_not_start_and_say_why() {
    let bench = Bench::new();
    for plan in ["free", "paid"] {
        bench.submit(json!({ "queue": "q", "payload": { "plan": plan } })).await;
    }
    // A full disk keeps matching from going on.
    bench.log.fill(true);
    let condition = json!([{ "pointer": "/plan", "op": "eq", "value": "free" }]);
    let reply = put(&bench, "no-free", json!({ "where": condition, "running_max": 0 })).await;
    assert_eq!(reply.json()["remaining"], 2);
    let asked = json!({ "queues": ["q"], "worker": "w1" });
    let lease = bench.post("/api/v1/lease", asked.clone()).await;
    assert_eq!(lease.status, StatusCode::NO_CONTENT, "{}", lease.text());
    for id in [1, 2] {
        let answer = bench.get(&format!("/api/v1/jobs/{id}")).await.json();
        let held = json!([{ "constraint": "no-free", "running_max": 0, "unmatched": true }]);
        assert_eq!(answer["held_by"], held);
        let answer = bench.get(&format!("/api/v1/jobs/{id}/why")).await.json();
        assert_eq!(
            (&answer["runnable"], &answer["reasons"][0]["code"]),
            (&json!(false), &json!("constraint"))
        );
        let text = answer["reasons"][0]["text"].as_str().unwrap();
        assert!(text.contains("no-free") && text.contains("still to be found out"), "{text}");
    }
    bench.log.fill(false);
    matched(&bench).await;
    let lease = bench.post("/api/v1/lease", asked.clone()).await.json();
    assert_eq!(lease["jobs"][0]["id"].as_u64().or(lease["id"].as_u64()), Some(2), "{lease}");
    assert_eq!(bench.post("/api/v1/lease", asked).await.status, StatusCode::NO_CONTENT);
    let answer = bench.get("/api/v1/jobs/1").await.json();
    assert_eq!(answer["held_by"], json!([{ "constraint": "no-free", "running_max": 0 }]));
}

#[tokio::test]
async fn two_people_who_edit_find_out() {
    let bench = Bench::new();
    let one = || json!({ "running_max": 1 });
    let new = ("If-None-Match", "*");
    assert_eq!(put_if(&bench, "c", new, one()).await.status, StatusCode::CREATED);
    put_if(&bench, "c", new, one()).await.is_problem(412, "revision_mismatch");
    let two = json!({ "running_max": 2 });
    let reply = put_if(&bench, "c", ("If-Match", "\"1\""), two.clone()).await;
    assert_eq!((reply.status, reply.header("etag")), (StatusCode::OK, "\"2\""));
    put_if(&bench, "c", ("If-Match", "\"1\""), one()).await.is_problem(412, "revision_mismatch");
    put_if(&bench, "c", ("If-Match", "x"), one()).await.is_problem(400, "bad_field");
    put_if(&bench, "c", ("If-None-Match", "\"1\""), one()).await.is_problem(400, "bad_field");
    let mut both = json_request(Method::PUT, "/api/v1/constraints/c", &one());
    both.headers_mut().insert("if-match", "*".parse().unwrap());
    both.headers_mut().insert("if-none-match", "*".parse().unwrap());
    bench.send(both).await.is_problem(412, "revision_mismatch");
    put_if(&bench, "d", ("If-Match", "*"), one()).await.is_problem(412, "revision_mismatch");
    assert_eq!(put_if(&bench, "c", ("If-Match", "*"), two).await.status, StatusCode::OK);
    let remove = |tag: &'static str| {
        let request = request(Method::DELETE, "/api/v1/constraints/c").header("If-Match", tag);
        bench.send(request.body(Body::empty()).unwrap())
    };
    remove("\"1\"").await.is_problem(412, "revision_mismatch");
    assert_eq!(remove("\"2\"").await.status, StatusCode::NO_CONTENT);
    bench
        .call(Method::DELETE, "/api/v1/constraints/c")
        .await
        .is_problem(404, "constraint_not_found");
}

#[tokio::test]
async fn jobs_that_were_there_fall_under_a_new_constraint_and_are_shown_held() {
    let bench = Bench::new();
    for user in ["a", "a", "b"] {
        bench.submit(json!({ "queue": "q", "payload": { "user": user } })).await;
    }
    put(&bench, "each", json!({ "per": "/user", "running_max": 1 })).await;
    matched(&bench).await;
    let answer = shown(&bench, "each").await;
    assert_eq!((&answer["relabelled"], &answer["remaining"]), (&json!(3), &json!(0)));
    bench.lease("q").await;
    let page = bench.get("/api/v1/jobs?queue=q").await.json();
    let held = |at: usize| page["jobs"][at]["held_by"].clone();
    assert_eq!((held(0), held(2)), (Value::Null, Value::Null));
    assert_eq!(held(1), json!([{ "constraint": "each", "running_max": 1 }]));
    let job = bench.get("/api/v1/jobs/2").await.json();
    assert_eq!(job["held_by"], held(1));
    let why = bench.get("/api/v1/jobs/2/why").await.json();
    assert_eq!(why["reasons"][0]["constraint"], "each");
    let answer = shown(&bench, "each").await;
    assert_eq!(answer["buckets_count"], 2);
    let buckets = answer["buckets"].as_array().unwrap();
    let of = |jobs: u64| buckets.iter().find(|bucket| bucket["jobs"] == jobs).unwrap();
    assert_eq!((&of(2)["running"], &of(2)["admits"]), (&json!(1), &json!(false)));
    assert_eq!((&of(1)["running"], &of(1)["admits"]), (&json!(0), &json!(true)));
    // Without it, everybody may start.
    bench.call(Method::DELETE, "/api/v1/constraints/each").await;
    assert_eq!(bench.lease("q").await["id"], 2);
}

#[tokio::test]
async fn a_rate_tells_its_tokens_and_when_the_next_one_comes() {
    let bench = Bench::new();
    let rate = json!({ "count": 1, "per_ms": 2000, "burst": 2 });
    put(&bench, "slow", json!({ "queue": "q", "rate": rate })).await;
    for _ in 0..3 {
        bench.submit(json!({ "queue": "q" })).await;
    }
    bench.lease("q").await;
    let bucket = shown(&bench, "slow").await["buckets"][0].clone();
    assert_eq!((&bucket["tokens"], &bucket["admits"]), (&json!(1), &json!(true)));
    bench.lease("q").await;
    bench.pass(500);
    let bucket = shown(&bench, "slow").await["buckets"][0].clone();
    let frees_at = json!("2026-01-02T03:04:07.678Z");
    assert_eq!((&bucket["tokens"], &bucket["frees_at"]), (&json!(0), &frees_at));
    let job = bench.get("/api/v1/jobs/3").await.json();
    assert_eq!(job["held_by"], json!([{ "constraint": "slow", "frees_at": frees_at }]));
}

#[tokio::test]
async fn constraints_and_buckets_come_in_pages() {
    let bench = Bench::new();
    for name in ["b", "c", "a"] {
        put(&bench, name, json!({ "per": "/user", "running_max": 1 })).await;
    }
    for user in 0..20 {
        bench.submit(json!({ "queue": "q", "payload": { "user": user } })).await;
    }
    let names = |page: &Value| {
        let listed = page["constraints"].as_array().unwrap().iter();
        listed.map(|answer| answer["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = bench.get("/api/v1/constraints?limit=2").await.json();
    assert_eq!(names(&first), ["a", "b"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let last = bench.get(&format!("/api/v1/constraints?limit=2&cursor={cursor}")).await.json();
    assert_eq!((names(&last), &last["next_cursor"]), (vec!["c".to_owned()], &Value::Null));
    let answer = &first["constraints"][0];
    assert_eq!(answer["buckets"].as_array().unwrap().len(), 16);
    let cursor = answer["buckets_cursor"].as_str().unwrap();
    let path = "/api/v1/constraints/a/buckets";
    let rest = bench.get(&format!("{path}?cursor={cursor}")).await.json();
    assert_eq!(rest["buckets"].as_array().unwrap().len(), 4);
    bench.get(&format!("{path}?cursor=zz")).await.is_problem(400, "out_of_range");
    bench.get(&format!("{path}?limit=0")).await.is_problem(400, "out_of_range");
    bench.get("/api/v1/constraints/none/buckets").await.is_problem(404, "constraint_not_found");
}

#[tokio::test]
async fn a_job_that_falls_under_nine_constraints_is_told_where_it_is_left_out() {
    let bench = Bench::new();
    for number in 1..=9 {
        put(&bench, &format!("c{number}"), json!({ "running_max": 1 })).await;
    }
    bench.submit(json!({ "queue": "q" })).await;
    assert_eq!(shown(&bench, "c8").await["left_out"], 0);
    assert_eq!(shown(&bench, "c9").await["left_out"], 1);
}

#[tokio::test]
async fn a_job_that_is_moved_or_retried_over_http_is_matched_again() {
    let bench = Bench::new();
    put(&bench, "b", json!({ "queue": "b", "running_max": 0 })).await;
    let id = bench.submit(json!({ "queue": "a" })).await;
    let path = format!("/api/v1/jobs/{id}");
    let moved = json_request(Method::PATCH, &path, &json!({ "queue": "b" }));
    let reply = bench.send(moved).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert_eq!(reply.json()["held_by"][0]["constraint"], "b");
    bench.call(Method::POST, &format!("{path}/cancel")).await;
    bench.call(Method::DELETE, "/api/v1/constraints/b").await;
    bench.call(Method::POST, &format!("{path}/retry")).await;
    assert_eq!(bench.lease("b").await["id"], id);
}

#[tokio::test]
async fn queues_that_a_constraint_holds_back_are_listed() {
    let bench = Bench::new();
    let limit = json!({ "queue_glob": "mail.*", "per": "/user", "running_max": 1 });
    put(&bench, "slow", limit).await;
    let held = async |query: &str| {
        bench.get(&format!("/api/v1/constraints/slow/held{query}")).await.json()
    };
    for (queue, users) in [("mail.a", "aab"), ("mail.b", "aaaa"), ("other", "aaaa")] {
        for user in users.chars() {
            bench.submit(json!({ "queue": queue, "payload": { "user": user } })).await;
        }
    }
    assert_eq!(held("").await, json!({ "queues": [] }), "nothing runs yet");
    bench.lease("mail.a").await;
    let of = |queue: &str, jobs: u64| json!({ "queue": queue, "jobs": jobs });
    // Of `mail.a` one job runs, and that of another user may.
    let queues = json!({ "queues": [of("mail.b", 4), of("mail.a", 1)] });
    assert_eq!(held("").await, queues);
    let first = json!({ "queues": [of("mail.b", 4)], "partial": true });
    assert_eq!(held("?limit=1").await, first);
    bench.get("/api/v1/constraints/none/held").await.is_problem(404, "constraint_not_found");
}
