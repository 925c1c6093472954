//! The actions of people in the audit log.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use spindle_access::Role;
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_engine::Peer;
use spindle_testkit::{Audited, JobdMaster, JobdWorker, TokensFile};

use crate::access::{Row, TABLE, guarded, guarded_with, node, prepared};
use crate::harness::{Bench, json, request};

/// Whether a route is for people, and changes what is there, or takes all jobs out. (A server without files has no
/// backup.)
fn changes((method, path, role, _): Row) -> bool {
    // Without shards there is nowhere to move a queue to.
    let is_alone = path == "/api/v1/queues/{name}/move";
    path == "/api/v1/jobs/export"
        || matches!(role, Some(Role::Manage | Role::Admin)) && method != "GET" && !is_alone
}

/// As `prepared`, with something there that the request changes.
async fn with_effect(bench: &Bench, row: Row, queue: &str) -> Request<Body> {
    let prepared = prepared(bench, row, queue).await;
    let path = prepared.uri().path().to_owned();
    let job = json(Method::POST, "/api/v1/jobs", &json!({ "queue": queue }));
    let before = match row.1 {
        "/api/v1/jobs/{id}/retry" => {
            json(Method::POST, &path.replace("retry", "cancel"), &Value::Null)
        }
        "/api/v1/jobs/{id}/undo" => {
            let path = path.replace("/undo", "?undo_ms=60000");
            request(Method::DELETE, &path).body(Body::empty()).unwrap()
        }
        "/api/v1/jobs/{id}/extend" => {
            json(Method::POST, "/api/v1/lease", &json!({ "queues": [queue] }))
        }
        "/api/v1/queues/{name}/resume" | "/api/v1/schedules/{name}/resume" => {
            json(Method::POST, &path.replace("resume", "pause"), &Value::Null)
        }
        "/api/v1/queues/{name}/purge" | "/api/v1/jobs/bulk" | "/api/v1/jobs/import" => job,
        "/api/v1/constraints/{name}" if row.0 == "DELETE" => {
            json(Method::PUT, &path, &json!({ "running_max": 1 }))
        }
        _ => request(Method::GET, "/healthz").body(Body::empty()).unwrap(),
    };
    let before = bench.call_as("admin", before).await;
    assert!(before.status.is_success(), "{row:?} {before:?}");
    match row.1 {
        "/api/v1/jobs/bulk" => {
            let bulk = json!({ "filter": { "queue": queue }, "action": "park" });
            json(Method::POST, &path, &bulk)
        }
        "/api/v1/jobs/import" => {
            let export = request(Method::GET, "/api/v1/jobs/export").body(Body::empty()).unwrap();
            let page = bench.call_as("admin", export).await.json();
            json(Method::POST, &path, &json!({ "jobs": [page["jobs"][0]] }))
        }
        "/api/v1/queues/{name}/settings" if row.0 == "PUT" => {
            json(Method::PUT, &path, &json!({ "keep_ms": 1 }))
        }
        _ => prepared,
    }
}

#[tokio::test]
async fn every_route_for_people_leaves_one_entry_and_no_other_leaves_any() {
    let master = JobdMaster::new();
    let _worker = JobdWorker::register(&master.address(), "w", &[("t", 1, 0)]);
    let with_master = |options: &mut spindle_api::Options| {
        options.jobd_master = Some(master.handle.clone());
        options.cluster = Some(node());
    };
    let bench = guarded_with(&TokensFile::of_all_roles(), true, with_master);
    let admin = Actor::new(ActorKind::Token, "admin", "192.0.2.7", Origin::Api);
    for (at, row) in TABLE.iter().enumerate() {
        for (token, is_allowed) in [("work", false), ("admin", true)] {
            let mut request = with_effect(&bench, *row, &format!("q{at}{token}")).await;
            request.extensions_mut().insert(Peer::plain(([192, 0, 2, 7], 4711).into()));
            let audited = Audited::from_now(&bench.engine);
            let reply = bench.call_as(token, request).await;
            let expected = changes(*row) && is_allowed;
            assert!(!expected || reply.status.is_success(), "{row:?} {reply:?}");
            audited.expect(expected.then_some(&admin), &format!("{row:?}"));
            if row.1 == "/api/v1/constraints/{name}" {
                // It would keep jobs of later rows from being leased.
                bench.call_as("admin", removal_of(&format!("q{at}{token}"))).await;
            }
        }
    }
}

fn removal_of(constraint: &str) -> Request<Body> {
    let path = format!("/api/v1/constraints/{constraint}");
    request(Method::DELETE, &path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn what_changes_nothing_leaves_no_entry() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail" })).await;
    bench.post("/api/v1/queues/mail/pause", json!({})).await.is(200);
    let audited = Audited::from_now(&bench.engine);
    bench.post("/api/v1/queues/mail/pause", json!({})).await.is(200);
    bench.post("/api/v1/queues/mail/drain", json!({})).await.is(200);
    bench.post("/api/v1/queues/none/purge", json!({})).await.is(200);
    bench.post("/api/v1/queues/none/resume", json!({})).await.is_problem(404, "queue_not_found");
    bench.post("/api/v1/jobs/999/cancel", json!({})).await.is_problem(404, "job_not_found");
    let bulk = json!({ "filter": { "queue": "mail" }, "action": "delete", "dry_run": true });
    bench.post("/api/v1/jobs/bulk", bulk).await.is(200);
    let bulk = json!({ "filter": { "queue": "mail" }, "action": "retry" });
    bench.post("/api/v1/jobs/bulk", bulk).await.is(200);
    audited.expect(None, "nothing has changed");
}

/// Entries without their numbers and times.
async fn listed(bench: &Bench, query: &str) -> Vec<Value> {
    let page = bench.get(&format!("/api/v1/audit{query}")).await.json();
    let mut entries = page["entries"].as_array().unwrap().clone();
    for entry in &mut entries {
        assert_eq!(entry["who"]["kind"], "nobody");
        let fields = entry.as_object_mut().unwrap();
        ["id", "at", "who"].iter().for_each(|field| drop(fields.remove(*field)));
    }
    entries
}

#[tokio::test]
async fn an_entry_says_what_was_done_to_what_and_nothing_of_payloads() {
    let bench = Bench::new();
    for secret in ["one", "two", "three"] {
        bench.submit(json!({ "queue": "mail", "payload": { "secret": secret } })).await;
    }
    bench.post("/api/v1/jobs/1/cancel", json!({})).await.is(200);
    bench.post("/api/v1/jobs/1/retry", json!({ "payload": "secret" })).await.is(200);
    let edit = json!({ "queue": "sms", "priority": 7 });
    bench.send(json(Method::PATCH, "/api/v1/jobs/1", &edit)).await.is(200);
    let rule = json!({ "queue": "mail", "running_max": 2, "where":
        [{ "pointer": "/secret", "op": "eq", "value": "secret" }] });
    bench.send(json(Method::PUT, "/api/v1/constraints/c", &rule)).await.is(201);
    let bulk = json!({ "filter": { "queue": "mail", "text": "secret" }, "action": "delete" });
    bench.post("/api/v1/jobs/bulk", bulk).await.is(200);
    let raw = json!({ "queue_base64": "/w==" });
    bench.post("/api/v1/jobs", raw).await.is(201);
    bench.post("/api/v1/queues/%FF/purge", json!({})).await.is(200);
    bench.post("/api/v1/clock/accept", json!({})).await.is(204);
    let page = bench.get("/api/v1/jobs/export").await.json();
    bench.get("/api/v1/jobs/export?cursor=1").await.is(200);
    bench.get("/api/v1/jobs/export?finished=true").await.is(200);
    bench.post("/api/v1/jobs/import", json!({ "jobs": [page["jobs"][0], 7] })).await.is(200);
    bench.post("/api/v1/jobs/import", json!({ "jobs": [7] })).await.is(200);
    let expected = json!([
        { "action": "import", "detail": "1 of 2 jobs" },
        { "action": "export", "detail": "all jobs" },
        { "action": "export", "detail": "unfinished jobs" },
        { "action": "accept_clock", "detail": "0 s ahead of the log" },
        { "action": "purge", "queue_base64": "/w==", "count": 1 },
        { "action": "delete", "queue": "mail", "count": 2, "detail": "all with some text" },
        { "action": "put_constraint", "constraint": "c", "detail": "new, running_max 2" },
        { "action": "move", "job": 1, "queue": "mail", "detail": "to sms, priority 7" },
        { "action": "retry", "job": 1, "queue": "mail", "detail": "with another payload" },
        { "action": "cancel", "job": 1, "queue": "mail" },
    ]);
    assert_eq!(Value::from(listed(&bench, "").await), expected);
    let all = bench.get("/api/v1/audit").await;
    assert!(!all.text().contains("secret"), "{}", all.text());
}

#[tokio::test]
async fn entries_are_found_by_who_what_and_when_and_come_in_pages() {
    let bench = guarded(&TokensFile::of_all_roles(), false);
    for (queue, token) in [("a", "admin"), ("b", "manage"), ("a", "manage")] {
        bench.pass(1_000);
        for action in ["pause", "resume"] {
            let new = json!({ "queue": queue });
            bench.call_as("admin", json(Method::POST, "/api/v1/jobs", &new)).await.is(201);
            let path = format!("/api/v1/queues/{queue}/{action}");
            bench.call_as(token, json(Method::POST, &path, &Value::Null)).await.is(200);
        }
    }
    let ids = async |query: &str| {
        let page = bench.get(&format!("/api/v1/audit?{query}")).await;
        page.is(200);
        let page = page.json();
        let entries = page["entries"].as_array().unwrap();
        let ids = entries.iter().map(|entry| entry["id"].as_u64().unwrap()).collect::<Vec<_>>();
        (ids, page["next_cursor"].as_str().map(str::to_owned))
    };
    for (query, expected) in [
        ("", &[6, 5, 4, 3, 2, 1][..]),
        ("who=admin", &[2, 1]),
        ("who=nobody", &[]),
        ("action=pause", &[5, 3, 1]),
        ("queue=a", &[6, 5, 2, 1]),
        ("queue_base64=YQ==", &[6, 5, 2, 1]),
        ("queue=a&queue_base64=Yg==", &[]),
        ("queue=a&who=manage&action=resume", &[6]),
        ("job=1", &[]),
        ("from=2026-01-02T03:04:07.678Z", &[6, 5, 4, 3]),
        ("from=2026-01-02T03:04:07.679Z", &[6, 5]),
        ("before=2026-01-02T03:04:07.678Z", &[2, 1]),
    ] {
        assert_eq!(ids(query).await, (expected.to_vec(), None), "{query}");
    }
    let (first, next) = ids("queue=a&limit=3").await;
    assert_eq!(first, [6, 5, 2]);
    let (rest, end) = ids(&format!("queue=a&limit=3&cursor={}", next.unwrap())).await;
    assert_eq!((rest, end), (vec![1], None));
    for wrong in
        ["limit=0", "limit=1001", "cursor=x", "action=submit", "queue=", "from=soon", "who=a&who=b"]
    {
        let refused = bench.get(&format!("/api/v1/audit?{wrong}")).await;
        assert!(refused.status.is_client_error(), "{wrong}: {refused:?}");
    }
}
