//! Fair queues and aging, as docs/fairness.md has them.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Bench, Reply, json as json_request, until};

async fn set(bench: &Bench, settings: Value) -> Reply {
    bench.send(json_request(Method::PUT, "/api/v1/queues/mail/settings", &settings)).await
}

/// Submits a job with this payload and more fields.
async fn submit(bench: &Bench, payload: Value, more: Value) {
    let mut body = json!({ "queue": "mail", "payload": payload });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    bench.submit(body).await;
}

async fn leased(bench: &Bench, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(bench.lease("mail").await["id"].as_u64().unwrap());
    }
    ids
}

#[tokio::test]
async fn tenants_in_payloads_take_turns_and_why_says_so() {
    let bench = Bench::new();
    // A whole number, however it is written.
    set(&bench, json!({ "fair": { "field": "/tenant", "weights": { "acme": 2.0 } } })).await;
    for tenant in ["acme", "acme", "acme", "acme", "acme"] {
        submit(&bench, json!({ "tenant": tenant }), json!({})).await;
    }
    submit(&bench, json!({ "tenant": 7 }), json!({})).await;
    submit(&bench, json!({ "tenant": null }), json!({})).await;
    submit(&bench, json!({ "tenant": "acme" }), json!({ "fair_key": "given" })).await;
    let job = |id: u64| format!("/api/v1/jobs/{id}");
    let keys = [(1, json!("acme")), (6, json!("7")), (7, Value::Null), (8, json!("given"))];
    for (id, key) in keys {
        assert_eq!(bench.get(&job(id)).await.json()["fair_key"], key);
    }
    let why = bench.get(&format!("{}/why", job(3))).await.json();
    assert_eq!(why["reasons"][0]["before"], 5, "{why}");
    let share = json!({
        "code": "fair_share", "before": 2,
        "text": "it is number 3 of key \"acme\", 2 jobs in a turn; 4 keys take turns",
    });
    assert_eq!(why["reasons"][1], share);
    assert_eq!(leased(&bench, 8).await, [1, 6, 7, 8, 2, 3, 4, 5]);
}

#[tokio::test]
async fn the_field_of_a_queue_is_read_of_jobs_that_come_and_only_while_it_is_set() {
    let bench = Bench::new();
    submit(&bench, json!({ "tenant": "a" }), json!({})).await;
    set(&bench, json!({ "fair": { "field": "/tenant" } })).await;
    submit(&bench, json!({ "tenant": "a" }), json!({})).await;
    set(&bench, json!({ "fair": { "field": "/other" } })).await;
    submit(&bench, json!({ "tenant": "a", "other": "b" }), json!({})).await;
    set(&bench, json!({})).await;
    submit(&bench, json!({ "tenant": "a", "other": "b" }), json!({})).await;
    for (id, key) in [(1, Value::Null), (2, json!("a")), (3, json!("b")), (4, Value::Null)] {
        assert_eq!(bench.get(&format!("/api/v1/jobs/{id}")).await.json()["fair_key"], key, "{id}");
    }
}

/// What docs/fairness.md shows: at most so many of each tenant, and turns among those below.
#[tokio::test]
async fn a_limit_for_each_tenant_goes_with_turns() {
    let bench = Bench::new();
    set(&bench, json!({ "fair": { "field": "/tenant" } })).await;
    let limit = json!({ "queue": "mail", "per": "/tenant", "running_max": 2 });
    bench.send(json_request(Method::PUT, "/api/v1/constraints/tenants", &limit)).await;
    for tenant in ["a", "a", "a", "a", "b", "b", "b"] {
        submit(&bench, json!({ "tenant": tenant }), json!({})).await;
    }
    assert_eq!(leased(&bench, 4).await, [1, 5, 2, 6]);
    let none = bench.post("/api/v1/lease", json!({ "queues": ["mail"] })).await;
    assert_eq!(none.status, 204);
}

/// Of keys in payloads, and of those that were given: with new jobs, with those that were there, and
/// with what is done to them.
#[tokio::test]
async fn a_limit_for_each_key_goes_with_turns() {
    let bench = Bench::new();
    set(&bench, json!({ "fair": { "field": "/tenant" } })).await;
    submit(&bench, json!({}), json!({ "fair_key": "a" })).await;
    let limit = json!({ "queue": "mail", "per": "fair_key", "running_max": 1 });
    bench.send(json_request(Method::PUT, "/api/v1/constraints/keys", &limit)).await.is(201);
    until(|| bench.engine.constraints().relabelling().remaining == 0).await;
    submit(&bench, json!({ "tenant": "a" }), json!({})).await;
    submit(&bench, json!({ "tenant": "a" }), json!({ "fair_key": "b" })).await;
    submit(&bench, json!({ "tenant": "b" }), json!({})).await;
    submit(&bench, json!({}), json!({})).await;
    submit(&bench, json!(null), json!({})).await;
    // Jobs without key share a limit.
    assert_eq!(leased(&bench, 3).await, [1, 3, 5]);
    let lease = json!({ "queues": ["mail"] });
    bench.post("/api/v1/lease", lease.clone()).await.is(204);
    // A retried job has the key that it had.
    bench.post("/api/v1/jobs/1/cancel", json!({})).await.is(200);
    assert_eq!(leased(&bench, 1).await, [2]);
    bench.post("/api/v1/jobs/1/retry", json!({ "payload": { "tenant": "c" } })).await.is(200);
    bench.post("/api/v1/lease", lease).await.is(204);
    for bad in ["fair-key", "fair_key/", "key"] {
        let limit = json!({ "per": bad, "running_max": 1 });
        let put = json_request(Method::PUT, "/api/v1/constraints/bad", &limit);
        bench.send(put).await.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn waiting_counts_as_priority() {
    let bench = Bench::new();
    set(&bench, json!({ "aging_ms": 600_000 })).await;
    submit(&bench, json!(1), json!({})).await;
    bench.pass(25 * 60_000);
    submit(&bench, json!(2), json!({ "priority": 2 })).await;
    submit(&bench, json!(3), json!({ "priority": 3 })).await;
    assert_eq!(leased(&bench, 3).await, [3, 1, 2]);
}

#[tokio::test]
async fn settings_are_shown_as_they_were_put_and_checked() {
    let bench = Bench::new();
    for settings in [
        json!({ "aging_ms": 60_000 }),
        json!({ "fair": {} }),
        json!({ "fair": { "field": "/a/b~1c", "weights": { "": 3, "acme": 1000, "\u{e9}": 2 } } }),
        json!({ "fair": { "weights": { "k".repeat(256): 1 } } }),
    ] {
        assert_eq!(set(&bench, settings.clone()).await.json()["settings"], settings);
    }
    for settings in [
        json!({ "aging_ms": 0 }),
        json!({ "aging_ms": 31_536_000_001_u64 }),
        json!({ "fair": { "field": "tenant" } }),
        json!({ "fair": { "field": "" } }),
        json!({ "fair": { "weights": { "a": 0 } } }),
        json!({ "fair": { "weights": { "a": 1001 } } }),
        json!({ "fair": { "weights": { "k".repeat(257): 1 } } }),
    ] {
        set(&bench, settings).await.is_problem(400, "out_of_range");
    }
    let longest = json!({ "queue": "mail", "fair_key": "k".repeat(256) });
    bench.post("/api/v1/jobs", longest).await.is(201);
    let long = json!({ "queue": "mail", "fair_key": "k".repeat(257) });
    bench.post("/api/v1/jobs", long).await.is_problem(400, "out_of_range");
    let empty = json!({ "queue": "mail", "fair_key": "" });
    bench.post("/api/v1/jobs", empty).await.is_problem(400, "out_of_range");
}
