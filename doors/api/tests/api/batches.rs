//! Batches: jobs that belong together.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};
use spindle_access::Look;
use spindle_testkit::TokensFile;
use tokio::join;

use crate::access::guarded;
use crate::harness::{Bench, Reply, json as json_of, request};

async fn open(bench: &Bench, body: Value) -> u64 {
    let opened = bench.post("/api/v1/batches", body).await;
    assert_eq!(opened.status, 201, "{}", opened.text());
    let id = opened.json()["id"].as_u64().unwrap();
    assert_eq!(opened.header("location"), format!("/api/v1/batches/{id}"));
    id
}

async fn shown(bench: &Bench, id: u64) -> Value {
    bench.get(&format!("/api/v1/batches/{id}")).await.json()
}

/// Its status; then how many jobs are unfinished, done, dead and gone.
async fn counts(bench: &Bench, id: u64) -> (String, [u64; 4]) {
    let batch = shown(bench, id).await;
    let jobs = ["unfinished", "done", "dead", "gone"].map(|word| batch["jobs"][word].as_u64());
    let jobs = jobs.map(Option::unwrap);
    assert_eq!(batch["jobs"]["total"], jobs.iter().sum::<u64>());
    (batch["status"].as_str().unwrap().to_owned(), jobs)
}

async fn seal(bench: &Bench, id: u64) {
    bench.post(&format!("/api/v1/batches/{id}/seal"), json!({})).await.is(200);
}

async fn status(bench: &Bench, id: u64) -> String {
    let job = bench.get(&format!("/api/v1/jobs/{id}")).await.json();
    job["status"].as_str().unwrap().to_owned()
}

async fn end(bench: &Bench, queue: &str, how: &str) {
    let leased = bench.lease(queue).await;
    let token = leased["lease_token"].as_str().unwrap();
    let body = if how == "fail" { json!({ "retry": false }) } else { json!({}) };
    bench.post(&format!("/api/v1/leases/{token}/{how}"), body).await.is(204);
}

#[tokio::test]
async fn a_batch_is_opened_filled_sealed_and_what_waits_for_it_runs() {
    let bench = Bench::new();
    let batch = open(&bench, json!({ "queue": "photos", "name": "holidays" })).await;
    let wait = |on_dead: &str| json!({ "queue": "album", "after": [batch], "on_dead": on_dead });
    let (all_done, all_ended) = (bench.submit(wait("wait")).await, bench.submit(wait("run")).await);
    let one = bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    assert_eq!(counts(&bench, batch).await, ("open".to_owned(), [2, 0, 0, 0]));
    let why = bench.get(&format!("/api/v1/jobs/{all_done}/why")).await;
    let why = why.text();
    let said = format!("it waits for batch {batch}: {batch} is open, 2 of 2 jobs unfinished");
    assert!(why.contains(&said), "{why}");
    seal(&bench, batch).await;
    end(&bench, "resize", "complete").await;
    end(&bench, "resize", "fail").await;
    assert_eq!(counts(&bench, batch).await, ("ended".to_owned(), [0, 1, 1, 0]));
    assert_eq!(status(&bench, all_ended).await, "ready");
    assert_eq!(status(&bench, all_done).await, "blocked");
    let shown = shown(&bench, batch).await;
    assert_eq!((&shown["queue"], &shown["name"]), (&json!("photos"), &json!("holidays")));
    for field in ["opened_at", "sealed_at", "ended_at", "kept_until"] {
        assert!(shown[field].is_string(), "{field} in {shown}");
    }
    // The dead one is retried, and done.
    let dead = bench.get(&format!("/api/v1/jobs?batch={batch}&status=dead")).await.json();
    let dead = dead["jobs"][0]["id"].as_u64().unwrap();
    bench.post(&format!("/api/v1/jobs/{dead}/retry"), json!({})).await.is(200);
    end(&bench, "resize", "complete").await;
    assert_eq!(counts(&bench, batch).await, ("done".to_owned(), [0, 2, 0, 0]));
    assert_eq!(status(&bench, all_done).await, "ready");
    let job = bench.get(&format!("/api/v1/jobs/{all_done}")).await.json();
    assert_eq!(job["after"], json!([{ "id": batch, "is_batch": true, "status": "done" }]));
    let job = bench.get(&format!("/api/v1/jobs/{one}")).await.json();
    assert_eq!(job["batch"], batch);
}

#[tokio::test]
async fn a_batch_is_opened_once_by_its_key() {
    let bench = Bench::new();
    let body = json!({ "queue": "q", "key": "nightly" });
    let batch = open(&bench, body.clone()).await;
    let again = bench.post("/api/v1/batches", body).await;
    assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &json!(batch)));
    let other = json!({ "queue": "other", "key": "nightly" });
    bench.post("/api/v1/batches", other).await.is_problem(422, "idempotency_key_reused");
    let inner = json!({ "queue": "q", "key": "nightly", "parent": batch });
    bench.post("/api/v1/batches", inner).await.is_problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn lists_have_the_newest_first_and_go_on() {
    let bench = Bench::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, open(&bench, json!({ "queue": "q" })).await);
    }
    let of = |page: &Value| {
        let batches = page["batches"].as_array().unwrap().clone();
        batches.iter().map(|batch| batch["id"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    let first = bench.get("/api/v1/batches?limit=2").await.json();
    assert_eq!(of(&first), ids[..2]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = bench.get(&format!("/api/v1/batches?limit=2&cursor={cursor}")).await.json();
    assert_eq!((of(&second), second.get("next_cursor")), (ids[2..].to_vec(), None));
    for bad in ["limit=0", "limit=513", "cursor=x"] {
        let path = format!("/api/v1/batches?{bad}");
        bench.get(&path).await.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn a_cancelled_batch_cancels_its_jobs_and_those_of_batches_in_it() {
    let bench = Bench::new();
    let outer = open(&bench, json!({ "queue": "q" })).await;
    let inner = open(&bench, json!({ "queue": "other", "parent": outer })).await;
    let mut jobs = Vec::new();
    // More than one stretch.
    for at in 0..150 {
        let batch = if at % 2 == 0 { outer } else { inner };
        jobs.push(bench.submit(json!({ "queue": "q", "batch": batch })).await);
    }
    end(&bench, "q", "complete").await;
    let done = bench.post(&format!("/api/v1/batches/{outer}/cancel"), json!({})).await.json();
    assert_eq!((&done["cancelled"], &done["is_partial"]), (&json!(149), &json!(false)));
    assert_eq!(
        (&done["batch"]["cancelled"], &done["batch"]["status"]),
        (&json!(true), &json!("ended"))
    );
    assert_eq!(counts(&bench, inner).await, ("ended".to_owned(), [0, 0, 75, 0]));
    assert_eq!(counts(&bench, outer).await, ("ended".to_owned(), [0, 1, 75, 0]));
    let again = bench.post(&format!("/api/v1/batches/{outer}/cancel"), json!({})).await.json();
    assert_eq!(again["cancelled"], 0);
    let audit = bench.get("/api/v1/audit").await.json();
    let entry = &audit["entries"][0];
    assert_eq!((&entry["action"], &entry["count"]), (&json!("cancel_batch"), &json!(149)));
    let more = json!({ "queue": "q", "batch": inner });
    bench.post("/api/v1/jobs", more).await.is_problem(409, "batch_sealed");
}

#[tokio::test]
async fn a_batch_that_is_not_kept_is_answered_all_the_same() {
    let bench = Bench::new();
    for verb in ["seal", "cancel"] {
        let batch = open(&bench, json!({ "queue": "q", "keep_ms": 0 })).await;
        bench.post(&format!("/api/v1/batches/{batch}/{verb}"), json!({})).await.is(200);
        let path = format!("/api/v1/batches/{batch}");
        bench.get(&path).await.is_problem(404, "batch_not_found");
    }
}

/// Waits for the end of a batch, and does something when the wait has begun.
async fn wait_while(bench: &Bench, id: u64, something: impl Future<Output = ()>) -> Reply {
    let path = format!("/api/v1/batches/{id}/wait?wait_s=300");
    let waits = bench.get(&path);
    let happens = async {
        bench.waits(1).await;
        something.await;
    };
    join!(waits, happens).0
}

#[tokio::test]
async fn who_waits_for_a_batch_is_told_the_batch_as_it_ended() {
    let bench = Bench::new();
    // One that is not kept is told all the same.
    let outer = open(&bench, json!({ "queue": "q", "keep_ms": 0 })).await;
    let inner = open(&bench, json!({ "queue": "q", "parent": outer, "keep_ms": 0 })).await;
    for batch in [outer, inner, inner] {
        bench.submit(json!({ "queue": "jobs", "batch": batch })).await;
    }
    seal(&bench, inner).await;
    seal(&bench, outer).await;
    let ended = wait_while(&bench, outer, async {
        end(&bench, "jobs", "complete").await;
        end(&bench, "jobs", "fail").await;
        // The inner one is unfinished, and so is the outer one.
        bench.waits(1).await;
        end(&bench, "jobs", "complete").await;
    });
    let ended = ended.await.json();
    assert_eq!((&ended["id"], &ended["status"]), (&json!(outer), &json!("ended")));
    let jobs = json!({ "total": 2, "unfinished": 0, "done": 1, "dead": 1, "gone": 0 });
    assert_eq!(ended["jobs"], jobs);
    let path = format!("/api/v1/batches/{outer}/wait?wait_s=300");
    bench.get(&path).await.is_problem(404, "batch_not_found");
}

#[tokio::test]
async fn a_seal_a_cancel_and_a_deletion_end_waits_for_a_batch() {
    let bench = Bench::new();
    let empty = open(&bench, json!({ "queue": "q" })).await;
    let done = wait_while(&bench, empty, seal(&bench, empty)).await;
    assert_eq!(done.json()["status"], "done");
    // There is nothing left to wait for.
    let again = bench.get(&format!("/api/v1/batches/{empty}/wait?wait_s=300")).await;
    assert_eq!(again.json()["status"], "done");

    let cancelled = open(&bench, json!({ "queue": "q" })).await;
    bench.submit(json!({ "queue": "jobs", "batch": cancelled })).await;
    let ended = wait_while(&bench, cancelled, async {
        let path = format!("/api/v1/batches/{cancelled}/cancel");
        bench.post(&path, json!({})).await.is(200);
    });
    let ended = ended.await.json();
    assert_eq!((&ended["status"], &ended["jobs"]["dead"]), (&json!("ended"), &json!(1)));
    assert_eq!(ended["cancelled"], true);

    let batch = open(&bench, json!({ "queue": "q" })).await;
    let job = bench.submit(json!({ "queue": "jobs", "batch": batch })).await;
    seal(&bench, batch).await;
    let ended = wait_while(&bench, batch, async {
        bench.call(Method::DELETE, &format!("/api/v1/jobs/{job}")).await.is(204);
    });
    assert_eq!(ended.await.json()["jobs"]["gone"], 1);
}

#[tokio::test]
async fn a_wait_for_a_batch_that_is_over_tells_it_as_it_is() {
    let bench = Bench::new();
    let batch = open(&bench, json!({ "queue": "q" })).await;
    let path = format!("/api/v1/batches/{batch}/wait");
    assert_eq!(bench.get(&path).await.json()["status"], "open");
    let passes = async { bench.pass(300_000) };
    assert_eq!(wait_while(&bench, batch, passes).await.json()["status"], "open");
    bench.submit(json!({ "queue": "jobs", "batch": batch })).await;
    seal(&bench, batch).await;
    let stops = async { bench.engine.stop_leasing() };
    assert_eq!(wait_while(&bench, batch, stops).await.json()["status"], "sealed");
    for (query, code) in [("301", "out_of_range"), ("x", "bad_field")] {
        bench.get(&format!("{path}?wait_s={query}")).await.is_problem(400, code);
    }
    for id in ["99", "0", "x"] {
        let code = if id == "99" { (404, "batch_not_found") } else { (400, "out_of_range") };
        let path = format!("/api/v1/batches/{id}/wait?wait_s=1");
        bench.get(&path).await.is_problem(code.0, code.1);
    }
}

#[tokio::test]
async fn who_hangs_up_leaves_no_wait_for_a_batch() {
    let bench = Bench::new();
    let batch = open(&bench, json!({ "queue": "q" })).await;
    for steps in 1..16 {
        let path = format!("/api/v1/batches/{batch}/wait?wait_s=300");
        let asked = request(Method::GET, &path).body(Body::empty()).unwrap();
        bench.hang_up_after(asked, steps).await;
        bench.waits(0).await;
    }
}

#[tokio::test]
async fn too_many_that_wait_for_batches_are_refused() {
    let few = spindle_engine::Options { waits_max: 1, ..Default::default() };
    let bench = Bench::with(|_| {}, few);
    let batch = open(&bench, json!({ "queue": "q" })).await;
    let ended = wait_while(&bench, batch, async {
        let path = format!("/api/v1/batches/{batch}/wait?wait_s=1");
        bench.get(&path).await.is_problem(429, "too_many");
        seal(&bench, batch).await;
    });
    assert_eq!(ended.await.json()["status"], "done");
}

#[tokio::test]
async fn a_token_that_goes_while_it_waits_for_a_batch_sees_nothing_of_it() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given, spindle_engine::Options::default());
    let batch = open(&bench, json!({ "queue": "mine.a" })).await;
    let path = format!("/api/v1/batches/{batch}/wait?wait_s=60");
    let asked = request(Method::GET, &path).body(Body::empty()).unwrap();
    let waits = bench.call_as("mine.read", asked);
    let goes = async {
        bench.waits(1).await;
        tokens.write(&TokensFile::entry("other", "admin", "*", ""));
        assert!(matches!(access.look_again(), Look::Read(1)));
        seal(&bench, batch).await;
    };
    let (answer, ()) = join!(waits, goes);
    answer.is_problem(401, "unauthorized");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let bench = Bench::new();
    let batch = open(&bench, json!({ "queue": "q" })).await;
    let job = bench.submit(json!({ "queue": "q", "after": [batch] })).await;
    for (body, status, code) in [
        (json!({ "queue": "q", "batch": 99 }), 404, "batch_not_found"),
        (json!({ "queue": "q", "batch": job }), 404, "batch_not_found"),
        (json!({ "queue": "q", "batch": batch, "after": [batch] }), 409, "circle"),
        (json!({ "queue": "q", "batch": batch, "after": [job] }), 409, "circle"),
        (json!({ "queue": "q", "batch": "x" }), 400, "bad_field"),
    ] {
        let refused = bench.post("/api/v1/jobs", body.clone()).await;
        refused.is_problem(status, code);
    }
    for (body, status, code) in [
        (json!({}), 400, "bad_field"),
        (json!({ "queue": "" }), 400, "out_of_range"),
        (json!({ "queue": "q", "name": "n".repeat(257) }), 400, "out_of_range"),
        (json!({ "queue": "q", "key": "" }), 400, "out_of_range"),
        (json!({ "queue": "q", "key": "k".repeat(257) }), 400, "out_of_range"),
        (json!({ "queue": "q", "parent": job }), 404, "batch_not_found"),
    ] {
        bench.post("/api/v1/batches", body).await.is_problem(status, code);
    }
    seal(&bench, batch).await;
    let seal = format!("/api/v1/batches/{batch}/seal");
    bench.post(&seal, json!({})).await.is_problem(409, "batch_sealed");
    let inner = json!({ "queue": "q", "parent": batch });
    bench.post("/api/v1/batches", inner).await.is_problem(409, "batch_sealed");
    for (path, status, code) in [
        (format!("/api/v1/batches/{job}"), 404, "batch_not_found"),
        ("/api/v1/batches/0".to_owned(), 400, "out_of_range"),
        ("/api/v1/batches/x".to_owned(), 400, "out_of_range"),
    ] {
        bench.get(&path).await.is_problem(status, code);
    }
    bench.post("/api/v1/batches/99/cancel", json!({})).await.is_problem(404, "batch_not_found");
    let scheduled = json!({ "expression": "@daily", "job": { "queue": "q", "batch": batch } });
    let put = json_of(Method::PUT, "/api/v1/schedules/s", &scheduled);
    bench.send(put).await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn the_flow_has_batches_as_nodes_with_their_jobs() {
    let bench = Bench::new();
    let batch = open(&bench, json!({ "queue": "q" })).await;
    let one = bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    let last = bench.submit(json!({ "queue": "album", "after": [batch] })).await;
    let edges = json!([{ "from": one, "to": batch }, { "from": batch, "to": last }]);
    for id in [batch, one, last] {
        let flow = bench.get(&format!("/api/v1/jobs/{id}/flow")).await.json();
        let nodes = flow["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3, "{flow}");
        let node = json!({ "id": batch, "is_batch": true, "status": "open", "queue": "q" });
        assert_eq!(nodes[0], node);
        assert_eq!(flow["edges"], edges);
    }
}

#[tokio::test]
async fn a_token_may_use_batches_of_its_queues_only() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let call = async |who: &str, path: &str, body: Value| {
        bench.call_as(who, json_of(Method::POST, path, &body)).await
    };
    let open = async |who: &str, queue: &str| {
        let opened = call(who, "/api/v1/batches", json!({ "queue": queue })).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        opened.json()["id"].as_u64().unwrap()
    };
    let (foreign, own) = (open("admin", "other").await, open("mine.submit", "mine.a").await);
    let submit = async |body: Value| call("mine.submit", "/api/v1/jobs", body).await;
    submit(json!({ "queue": "mine.a", "batch": foreign })).await.is_problem(404, "batch_not_found");
    submit(json!({ "queue": "mine.a", "after": [foreign] }))
        .await
        .is_problem(404, "after_not_found");
    submit(json!({ "queue": "mine.a", "batch": own })).await.is(201);
    submit(json!({ "queue": "mine.a", "after": [own] })).await.is(201);
    // A job added to a batch is under the control of the batch's managers.
    let job = json!({ "queue": "other", "batch": own });
    call("admin", "/api/v1/jobs", job).await.is(201);
    let cancelled = call("mine.manage", &format!("/api/v1/batches/{own}/cancel"), json!({})).await;
    assert_eq!(cancelled.json()["cancelled"], 2, "{}", cancelled.text());
}
