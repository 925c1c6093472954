//! Access to routes: every route against every role, and against queues of others.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use spindle_access::{Look, Role};
use spindle_api::Options;
use spindle_cluster::{Node, NodeOptions, NodeTls};
use spindle_engine::SystemClock;
use spindle_testkit::{TokensFile, is_enough};

use crate::harness::{Bench, Reply, json, request};

#[tokio::test]
async fn one_request_too_many_is_refused_with_when_to_come_again() {
    let tokens = TokensFile::of_all_roles();
    let paced = |options: &mut Options| options.access = tokens.paced(2);
    let bench = Bench::with(paced, Default::default());
    let ask = async |token: &str| {
        bench
            .call_as(token, request(Method::GET, "/api/v1/jobs").body(Body::empty()).unwrap())
            .await
    };
    for _ in 0..2 {
        assert_eq!(ask("read").await.status, 200);
    }
    let refused = ask("read").await;
    refused.is_problem(429, "too_fast");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.text().contains("more than 2 requests a second of this token"));
    assert_eq!(ask("inspect").await.status, 200);
    assert_eq!(bench.get("/api/v1/jobs").await.status, 200);
    let metrics = bench.get("/metrics").await;
    for line in ["{limit=\"token\"} 1\n", "{limit=\"address\"} 0\n"] {
        let line = format!("\nspindle_requests_too_fast_total{line}");
        assert!(metrics.text().contains(&line), "{}", metrics.text());
    }
}

/// What a request concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// A queue that it names in its path or its body.
    Queue,
    /// A job that it names, the lease of one, or the schedule of some.
    Job,
    /// All queues.
    All,
    /// None.
    Nothing,
}

/// A route, the role that it needs, and what it is about.
pub type Row = (&'static str, &'static str, Option<Role>, About);

pub const TABLE: &[Row] = &[
    ("POST", "/api/v1/jobs", Some(Role::Submit), About::Queue),
    ("GET", "/api/v1/jobs", Some(Role::Read), About::Queue),
    ("POST", "/api/v1/jobs/batch", Some(Role::Submit), About::Queue),
    ("POST", "/api/v1/jobs/bulk", Some(Role::Manage), About::Queue),
    ("GET", "/api/v1/jobs/export", Some(Role::Inspect), About::All),
    ("POST", "/api/v1/jobs/import", Some(Role::Admin), About::All),
    ("GET", "/api/v1/jobs/{id}", Some(Role::Read), About::Job),
    ("PATCH", "/api/v1/jobs/{id}", Some(Role::Manage), About::Job),
    ("DELETE", "/api/v1/jobs/{id}", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/undo", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/cancel", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/retry", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/extend", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/park", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/jobs/{id}/release", Some(Role::Manage), About::Job),
    ("GET", "/api/v1/jobs/{id}/wait", Some(Role::Read), About::Job),
    ("GET", "/api/v1/jobs/{id}/why", Some(Role::Read), About::Job),
    ("GET", "/api/v1/jobs/{id}/events", Some(Role::Read), About::Job),
    ("GET", "/api/v1/jobs/{id}/output", Some(Role::Inspect), About::Job),
    ("POST", "/api/v1/jobs/{id}/output", Some(Role::Work), About::Job),
    ("POST", "/api/v1/jobs/{id}/progress", Some(Role::Work), About::Job),
    ("GET", "/api/v1/jobs/{id}/flow", Some(Role::Read), About::Job),
    ("POST", "/api/v1/batches", Some(Role::Submit), About::Queue),
    ("GET", "/api/v1/batches", Some(Role::Read), About::All),
    ("GET", "/api/v1/batches/{id}", Some(Role::Read), About::Job),
    ("GET", "/api/v1/batches/{id}/wait", Some(Role::Read), About::Job),
    ("POST", "/api/v1/batches/{id}/seal", Some(Role::Submit), About::Job),
    ("POST", "/api/v1/batches/{id}/cancel", Some(Role::Manage), About::Job),
    ("GET", "/api/v1/constraints", Some(Role::Read), About::All),
    ("GET", "/api/v1/constraints/{name}", Some(Role::Read), About::All),
    ("PUT", "/api/v1/constraints/{name}", Some(Role::Manage), About::All),
    ("DELETE", "/api/v1/constraints/{name}", Some(Role::Manage), About::All),
    ("GET", "/api/v1/constraints/{name}/buckets", Some(Role::Read), About::All),
    ("GET", "/api/v1/constraints/{name}/held", Some(Role::Read), About::All),
    ("GET", "/api/v1/schedules", Some(Role::Read), About::All),
    ("PUT", "/api/v1/schedules", Some(Role::Manage), About::All),
    ("GET", "/api/v1/schedules/{name}", Some(Role::Read), About::Job),
    ("PUT", "/api/v1/schedules/{name}", Some(Role::Manage), About::Queue),
    ("DELETE", "/api/v1/schedules/{name}", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/schedules/{name}/pause", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/schedules/{name}/resume", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/schedules/{name}/run", Some(Role::Manage), About::Job),
    ("POST", "/api/v1/lease", Some(Role::Work), About::Queue),
    ("POST", "/api/v1/leases/batch", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/extend", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/complete", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/fail", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/release", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/progress", Some(Role::Work), About::Job),
    ("POST", "/api/v1/leases/{token}/output", Some(Role::Work), About::Job),
    ("GET", "/api/v1/leases/{token}/after/{id}", Some(Role::Work), About::Job),
    ("GET", "/api/v1/queues", Some(Role::Read), About::All),
    ("GET", "/api/v1/queues/{name}", Some(Role::Read), About::Queue),
    ("POST", "/api/v1/queues/{name}/pause", Some(Role::Manage), About::Queue),
    ("POST", "/api/v1/queues/{name}/resume", Some(Role::Manage), About::Queue),
    ("POST", "/api/v1/queues/{name}/drain", Some(Role::Manage), About::Queue),
    ("POST", "/api/v1/queues/{name}/purge", Some(Role::Manage), About::Queue),
    ("GET", "/api/v1/queues/{name}/settings", Some(Role::Read), About::Queue),
    ("PUT", "/api/v1/queues/{name}/settings", Some(Role::Manage), About::Queue),
    ("GET", "/api/v1/workers", Some(Role::Read), About::All),
    ("GET", "/api/v1/jobd", Some(Role::Read), About::All),
    ("POST", "/api/v1/jobd/pause", Some(Role::Manage), About::All),
    ("POST", "/api/v1/jobd/continue", Some(Role::Manage), About::All),
    ("GET", "/api/v1/events", Some(Role::Read), About::All),
    ("GET", "/api/v1/history", Some(Role::Read), About::Queue),
    ("GET", "/api/v1/history/queues", Some(Role::Read), About::All),
    ("GET", "/api/v1/failures", Some(Role::Read), About::Queue),
    ("GET", "/api/v1/server", Some(Role::Read), About::Nothing),
    ("POST", "/api/v1/clock/accept", Some(Role::Admin), About::Nothing),
    ("GET", "/api/v1/cluster", Some(Role::Read), About::Nothing),
    ("POST", "/api/v1/cluster/step-down", Some(Role::Admin), About::Nothing),
    ("POST", "/api/v1/queues/{name}/move", Some(Role::Admin), About::Queue),
    ("GET", "/api/v1/audit", Some(Role::Admin), About::All),
    ("GET", "/api/v1/backup", Some(Role::Admin), About::All),
    ("GET", "/api/v1/backup/segments/{first}", Some(Role::Admin), About::All),
    ("GET", "/healthz", None, About::Nothing),
    ("GET", "/readyz", None, About::Nothing),
    ("GET", "/metrics", Some(Role::Read), About::All),
    // Pages about the API, which it does not describe.
    ("GET", "/api/openapi.json", None, About::Nothing),
    ("GET", "/api/docs", None, About::Nothing),
    ("GET", "/api/docs/swagger-ui.css", None, About::Nothing),
];

pub fn guarded(tokens: &TokensFile, is_required: bool) -> Bench {
    guarded_with(tokens, is_required, |_| {})
}

/// A node of a cluster that was not started.
pub fn node() -> Node {
    Node::start(NodeOptions {
        shard: None,
        tls: NodeTls::default(),
        name: "box".to_owned(),
        advertise: None,
        version: "test".to_owned(),
        clock: Arc::new(SystemClock::new()),
        open: Box::new(|| Err("it has no log".into())),
    })
    .unwrap()
}

/// The same with more that is set.
pub fn guarded_with(
    tokens: &TokensFile,
    is_required: bool,
    change: impl FnOnce(&mut Options),
) -> Bench {
    let access = tokens.access(is_required);
    let set = |options: &mut Options| {
        options.access = access;
        change(options);
    };
    Bench::with(set, spindle_engine::Options::default())
}

/// A request of a route, about a queue or a job of it that is there for that.
pub async fn prepared(bench: &Bench, (method, path, _, about): Row, queue: &str) -> Request<Body> {
    let job = if about == About::Job {
        let at =
            if path.starts_with("/api/v1/batches") { "/api/v1/batches" } else { "/api/v1/jobs" };
        let new = json(Method::POST, at, &json!({ "queue": queue }));
        bench.call_as("admin", new).await.json()["id"].to_string()
    } else {
        String::new()
    };
    let token = if path.contains("/leases/") {
        let wanted = json!({ "queues": [queue] });
        let leased = bench.call_as("admin", json(Method::POST, "/api/v1/lease", &wanted)).await;
        leased.json()["lease_token"].as_str().unwrap().to_owned()
    } else {
        String::new()
    };
    let scheduled = json!({ "expression": "@daily", "job": { "queue": queue } });
    if path.starts_with("/api/v1/schedules/") && method != "PUT" {
        let at = format!("/api/v1/schedules/{queue}");
        let put = bench.call_as("admin", json(Method::PUT, &at, &scheduled)).await;
        assert!(put.status.is_success(), "{put:?}");
    }
    let at = path.replace("{id}", &job).replace("{token}", &token).replace("{name}", queue);
    let at = match path {
        "/api/v1/jobs" if method == "GET" => format!("{at}?queue={queue}"),
        "/api/v1/history" | "/api/v1/failures" => format!("{at}?queue={queue}"),
        "/api/v1/events" => format!("{at}?after=oldest&follow=false"),
        "/api/v1/jobs/{id}/events" => format!("{at}?follow=false"),
        _ => at,
    };
    let body = match (method, path) {
        ("POST", "/api/v1/jobs" | "/api/v1/batches") => json!({ "queue": queue }),
        ("POST", "/api/v1/jobs/batch") => json!({ "jobs": [{ "queue": queue }] }),
        ("POST", "/api/v1/jobs/bulk") => {
            json!({ "filter": { "queue": queue }, "action": "park", "dry_run": true })
        }
        ("POST", "/api/v1/leases/batch") => {
            json!({ "leases": [{ "lease_token": token, "release": {} }] })
        }
        ("POST", "/api/v1/lease") => json!({ "queues": [queue] }),
        ("PATCH", _) => json!({ "priority": 1 }),
        ("PUT", "/api/v1/constraints/{name}") => json!({ "running_max": 1 }),
        ("PUT", "/api/v1/schedules/{name}") => scheduled,
        ("PUT", "/api/v1/schedules") => json!({ "schedules": { queue: scheduled } }),
        (_, path) if path.ends_with("/extend") => json!({ "ttr_ms": 1000 }),
        ("POST", path) if path.ends_with("/progress") => json!({ "numerator": 1 }),
        ("POST", path) if path.ends_with("/output") => json!({ "text": "x" }),
        ("PUT" | "POST", _) => json!({}),
        _ => return request(method.parse().unwrap(), &at).body(Body::empty()).unwrap(),
    };
    json(method.parse().unwrap(), &at, &body)
}

/// The status of an answer; a batch has that of its job.
fn status(reply: &Reply) -> u16 {
    let of_job = |body: &Value| body["answers"][0]["problem"]["status"].as_u64();
    let is_json = reply.header("content-type") == "application/json";
    let of_job = is_json.then(|| of_job(&reply.json())).flatten();
    of_job.map_or(reply.status.as_u16(), |status| u16::try_from(status).unwrap())
}

#[test]
fn every_route_is_in_the_table() {
    let bench = Bench::new();
    let document: Value = serde_json::from_str(bench.api.openapi()).unwrap();
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            described.insert((method.to_uppercase(), path.clone()));
        }
    }
    let is_page = |path: &str| path == "/api/openapi.json" || path.starts_with("/api/docs");
    let rows = TABLE.iter().filter(|(_, path, ..)| !is_page(path));
    let rows: BTreeSet<_> =
        rows.map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(rows, described);
}

#[tokio::test]
async fn every_route_takes_the_roles_it_should_and_no_others() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for row in TABLE {
        for had in Role::ALL {
            for token in [had.name().to_owned(), format!("mine.{had}")] {
                let request = prepared(&bench, *row, "mine.a").await;
                let reply = bench.call_as(&token, request).await;
                let is_limited = token.starts_with("mine");
                let enough = row.2.is_none_or(|needed| is_enough(*had, needed))
                    && (row.3 != About::All || !is_limited);
                let answered = status(&reply);
                assert_eq!(answered != 403, enough, "{row:?} as {token}: {reply:?}");
                assert_ne!(answered, 401, "{row:?} as {token}");
                assert!(answered < 500, "{row:?} as {token}: {reply:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_in_queues_of_others_is_refused_or_not_there() {
    let shared = |options: &mut Options| options.cluster = Some(node());
    let bench = guarded_with(&TokensFile::of_all_roles(), true, shared);
    for row in TABLE {
        for queue in ["other", "mine"] {
            let reply = bench.call_as("mine.admin", prepared(&bench, *row, queue).await).await;
            let expected: &[u16] = match row.3 {
                About::Queue | About::All => &[403],
                About::Job => &[404, 410],
                About::Nothing => &[200, 202, 204],
            };
            assert!(expected.contains(&status(&reply)), "{row:?} {queue}: {reply:?}");
            // And it is not for another reason.
            let reply = bench.call_as("admin", prepared(&bench, *row, queue).await).await;
            assert!(![401, 403, 410].contains(&status(&reply)), "{row:?} {queue}: {reply:?}");
            assert!(row.3 != About::Job || status(&reply) != 404, "{row:?} {queue}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn who_presents_nothing_or_something_wrong_comes_nowhere() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let long = "x".repeat(4096);
    for row in TABLE {
        let request = prepared(&bench, *row, "mine.a").await;
        let reply = bench.send(request).await;
        assert_eq!(status(&reply) == 401, row.2.is_some(), "{row:?}: {reply:?}");
        for token in ["", "rea", "readx", "expired", "Read", &long] {
            let reply = bench.call_as(token, prepared(&bench, *row, "mine.a").await).await;
            assert_eq!(status(&reply) == 401, row.2.is_some(), "{row:?} {token}: {reply:?}");
            let text = String::from_utf8_lossy(&reply.body);
            assert!(token.len() < 5 || !text.contains(&format!("`{token}`")), "{text}");
        }
    }
    let refused = bench.get("/api/v1/server").await;
    refused.is_problem(401, "unauthorized");
    assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"spindle\"");
    let request = request(Method::GET, "/api/v1/queues").body(Body::empty()).unwrap();
    bench.call_as("work", request).await.is_problem(403, "forbidden");
}

#[tokio::test]
async fn where_nobody_is_asked_a_token_binds_all_the_same() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    for row in TABLE {
        let request = prepared(&bench, *row, "x").await;
        assert!(![401, 403].contains(&status(&bench.send(request).await)), "{row:?}");
        for (token, refusal) in [("wrong", 401), ("mine.submit", 403), ("expired", 401)] {
            let reply = bench.call_as(token, prepared(&bench, *row, "x").await).await;
            // Things that only others may submit to are answered as not found.
            let is_hidden = row.2 == Some(Role::Submit) && row.3 == About::Job;
            let refusal = if refusal == 403 && is_hidden { 404 } else { refusal };
            assert_eq!(status(&reply) == refusal, row.2.is_some(), "{row:?} {token} {reply:?}");
        }
    }
    // Credentials meant for another server's guard are ignored.
    let basic = request(Method::GET, "/api/v1/server").header("authorization", "Basic c2VzYW1l");
    bench.send(basic.body(Body::empty()).unwrap()).await.is(200);
}

#[tokio::test]
async fn payloads_and_results_are_shown_to_who_may_inspect() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    let id = bench.submit(json!({ "queue": "mine.a", "payload": "secret" })).await;
    for (token, is_shown) in [("read", false), ("inspect", true), ("mine.manage", true)] {
        for path in [format!("/api/v1/jobs/{id}"), format!("/api/v1/jobs/{id}/wait")] {
            let get = request(Method::GET, &path).body(Body::empty()).unwrap();
            let job = bench.call_as(token, get).await.json();
            assert_eq!(job["payload"] == "secret", is_shown, "{token} {job}");
            assert_eq!(job["status"], "ready");
        }
        for more in ["payload_preview=10", "text=secret", "field=/secret"] {
            let path = format!("/api/v1/jobs?queue=mine.a&{more}");
            let get = request(Method::GET, &path).body(Body::empty()).unwrap();
            let reply = bench.call_as(token, get).await;
            assert_eq!(reply.status == 200, is_shown, "{token} {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_job_is_not_moved_into_queues_of_others() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    let id = bench.submit(json!({ "queue": "mine.a" })).await;
    let path = format!("/api/v1/jobs/{id}");
    for (queue, status) in [("other", 403), ("mine.b", 200)] {
        let edit = json(Method::PATCH, &path, &json!({ "queue": queue }));
        bench.call_as("mine.manage", edit).await.is(status);
        let bulk = json!({ "filter": { "queue": "mine.b" }, "action": "edit", "queue": queue });
        let bulk = json(Method::POST, "/api/v1/jobs/bulk", &bulk);
        bench.call_as("mine.manage", bulk).await.is(status);
    }
    for bulk in [json!({ "status": "ready" }), json!({ "queue": "other" })] {
        let bulk = json!({ "filter": bulk, "action": "delete" });
        let bulk = json(Method::POST, "/api/v1/jobs/bulk", &bulk);
        bench.call_as("mine.manage", bulk).await.is_problem(403, "forbidden");
    }
}

#[tokio::test]
async fn a_key_that_another_queue_has_tells_nothing_of_what_has_it() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    let submit = |queue: &str| {
        let body = json!({ "queue": queue, "idempotency_key": "order-1" });
        json(Method::POST, "/api/v1/jobs", &body)
    };
    let open = |queue: &str| {
        json(Method::POST, "/api/v1/batches", &json!({ "queue": queue, "key": "nightly" }))
    };
    bench.call_as("submit", submit("other")).await.is(201);
    bench.call_as("submit", open("other")).await.is(201);
    for request in [submit("mine.a"), open("mine.a")] {
        let refused = bench.call_as("mine.submit", request).await;
        refused.is_problem(422, "idempotency_key_reused");
        assert!(refused.json().get("job").is_none(), "{refused:?}");
        assert!(!refused.text().contains("batch 2"), "{refused:?}");
    }
}

#[tokio::test]
async fn of_a_batch_only_jobs_of_own_queues_are_taken() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let jobs =
        json!({ "jobs": [{ "queue": "mine.a" }, { "queue": "other" }, { "queue": "mine.b" }] });
    let batch = json(Method::POST, "/api/v1/jobs/batch", &jobs);
    let answer = bench.call_as("mine.submit", batch).await.json();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(2), &json!(1)));
    assert_eq!(answer["answers"][1]["problem"]["code"], "forbidden");
}

#[tokio::test]
async fn a_worker_reports_on_its_leases_when_it_may_have_no_further_jobs() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    for queue in ["mine.a", "other"] {
        bench.submit(json!({ "queue": queue })).await;
    }
    let lease = json(Method::POST, "/api/v1/lease", &json!({ "queues": ["mine.a"] }));
    let job = bench.call_as("mine.work", lease).await.json();
    let asked = json!({
        "leases": [{ "lease_token": job["lease_token"], "complete": {} }],
        "lease": { "queues": ["mine.a", "other"] },
    });
    let asked = json(Method::POST, "/api/v1/leases/batch", &asked);
    let answer = bench.call_as("mine.work", asked).await.json();
    assert_eq!(
        (&answer["taken"], &answer["lease"]["problem"]["code"]),
        (&json!(1), &json!("forbidden"))
    );
}

#[tokio::test]
async fn a_lease_that_was_waited_for_is_given_back_when_the_token_is_gone() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given, spindle_engine::Options::default());
    let wanted = json!({ "queues": ["mine.a"], "wait_s": 60 });
    let lease = bench.call_as("mine.work", json(Method::POST, "/api/v1/lease", &wanted));
    let change = async {
        bench.waits(1).await;
        tokens.write(&TokensFile::entry("other", "admin", "*", ""));
        assert!(matches!(access.look_again(), Look::Read(1)));
        bench.submit(json!({ "queue": "mine.a" })).await
    };
    let (refused, id) = tokio::join!(lease, change);
    refused.is_problem(401, "unauthorized");
    bench.ready(id).await;
}

#[tokio::test]
async fn a_stream_of_events_ends_when_the_token_is_gone() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given, spindle_engine::Options::default());
    let follow = request(Method::GET, "/api/v1/events").body(Body::empty()).unwrap();
    let stream = bench.call_as("read", follow);
    let change = async {
        bench.waits(1).await;
        tokens.write(&TokensFile::entry("other", "admin", "*", ""));
        assert!(matches!(access.look_again(), Look::Read(1)));
        bench.submit(json!({ "queue": "mine.a" })).await
    };
    let (ended, _) = tokio::join!(stream, change);
    assert!(!ended.text().contains("submitted"), "{}", ended.text());
}
