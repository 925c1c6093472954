//! The jobd master's workers over the API.

use serde_json::{Value, json};
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_testkit::{Audited, JobdMaster, JobdWorker};

use crate::harness::Bench;

fn bench(master: &JobdMaster) -> Bench {
    Bench::with(|options| options.jobd_master = Some(master.handle.clone()), Default::default())
}

/// What is the same in every run.
fn without_times(mut page: Value) -> Value {
    for worker in page["workers"].as_array_mut().unwrap() {
        let fields = worker.as_object_mut().unwrap();
        for field in ["address", "registered_at", "reported_at"] {
            assert!(fields.remove(field).is_some_and(|it| it.is_string()), "{field}");
        }
    }
    page
}

#[tokio::test]
async fn workers_are_listed_with_their_targets_and_what_is_wrong() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let address = master.address();
    let none = json!({ "address": address, "workers": [], "unserved": [], "unserved_count": 0 });
    assert_eq!(bench.get("/api/v1/jobd").await.json(), none);

    let first = JobdWorker::register(&address, "srv-1", &[("mail", 5, 3), ("low", 1, 0)]);
    first.says("tableTrouble", json!("no such table: jobs"));
    first.says("unfinished", json!({ "7": { "target": "mail" } }));
    first.says("jobPromisesCount", json!(2));
    let _second = JobdWorker::register(&address, "srv-2", &[("mail", 10, 12)]);
    let page = bench.get("/api/v1/jobd").await;
    page.is(200);
    let target = |name: &str, concurrency: u32, jobs: u32| json!({ "name": name, "paused": false, "concurrency": concurrency, "jobs": jobs });
    let expected = json!({
        "address": address, "unserved": [], "unserved_count": 0,
        "workers": [
            { "id": 1, "name": "srv-1", "answers": true, "awaited": 2, "undecided": 1,
              "table_trouble": "no such table: jobs", "targets_count": 2,
              "targets": [target("mail", 5, 3), target("low", 1, 0)] },
            { "id": 2, "name": "srv-2", "answers": true, "awaited": 0, "undecided": 0,
              "targets_count": 1, "targets": [target("mail", 10, 12)] },
        ],
    });
    assert_eq!(without_times(page.json()), expected);

    let page = bench.get("/api/v1/jobd?limit=1").await.json();
    assert_eq!((&page["workers"][0]["id"], &page["next_cursor"]), (&json!(1), &json!("1")));
    let page = bench.get("/api/v1/jobd?limit=1&cursor=1").await.json();
    assert_eq!((&page["workers"][0]["id"], &page["next_cursor"]), (&json!(2), &Value::Null));
    for wrong in ["limit=0", "limit=257", "cursor=x"] {
        let refused = bench.get(&format!("/api/v1/jobd?{wrong}")).await;
        refused.is_problem(400, "out_of_range");
    }
}

#[tokio::test]
async fn a_worker_that_does_not_answer_is_listed_with_what_it_told_before() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let worker = JobdWorker::register(&master.address(), "w", &[("mail", 5, 3)]);
    bench.get("/api/v1/jobd").await.is(200);
    worker.falls_silent();
    let mut page = bench.get("/api/v1/jobd").await.json();
    // A worker's status counts as fresh for a second.
    while page["workers"][0]["answers"] == true {
        page = bench.get("/api/v1/jobd").await.json();
    }
    let listed = &page["workers"][0];
    assert_eq!(listed["problem"], "no answer yet");
    assert_eq!(listed["targets"][0]["jobs"], 3);
}

#[tokio::test]
async fn targets_are_paused_and_continued_and_the_audit_log_says_who_asked() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let one = JobdWorker::register(&master.address(), "one", &[("mail", 5, 0), ("low", 1, 0)]);
    let two = JobdWorker::register(&master.address(), "two", &[("mail", 5, 0)]);
    let paused = || (one.paused(), two.paused());
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (action, body, asked, after) in [
        ("pause", json!({ "targets": ["mail"] }), 2, (&["mail"][..], &["mail"][..])),
        ("continue", json!({ "targets": ["mail"], "workers": [1] }), 1, (&[], &["mail"])),
        ("pause", json!({ "workers": [1] }), 1, (&["low", "mail"], &["mail"])),
        ("continue", json!({}), 2, (&[], &[])),
    ] {
        let audited = Audited::from_now(&bench.engine);
        let reply = bench.post(&format!("/api/v1/jobd/{action}"), body.clone()).await;
        reply.is(200);
        assert_eq!(reply.json(), json!({ "asked": asked, "done": asked, "failed": [] }), "{body}");
        assert_eq!(paused(), (names(after.0), names(after.1)), "{action} {body}");
        audited.expect(Some(&Actor::new(ActorKind::Nobody, "", "", Origin::Api)), action);
        // The page shown is not older than the order.
        let page = bench.get("/api/v1/jobd").await.json();
        let mail = &page["workers"][0]["targets"][0];
        assert_eq!(mail["paused"], after.0.contains(&"mail"), "{page}");
    }
    let page = bench.get("/api/v1/audit").await.json();
    let entries = page["entries"].as_array().unwrap();
    let said: Vec<_> = entries
        .iter()
        .map(|it| (it["action"].as_str().unwrap(), it["detail"].as_str().unwrap()))
        .collect();
    let expected = [
        ("continue_targets", "all targets of all workers that serve them"),
        ("pause_targets", "all targets of one"),
        ("continue_targets", "mail of one"),
        ("pause_targets", "mail of all workers that serve them"),
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn what_is_not_there_is_refused_and_nobody_is_asked() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let audited = Audited::from_now(&bench.engine);
    let nobody = json!({ "asked": 0, "done": 0, "failed": [] });
    assert_eq!(bench.post("/api/v1/jobd/pause", json!({})).await.json(), nobody);
    let worker = JobdWorker::register(&master.address(), "w", &[("mail", 5, 0)]);
    let many: Vec<u64> = (1..=1001).collect();
    for (body, status, code) in [
        (json!({ "targets": ["mail", "sms"] }), 404, "target_not_found"),
        (json!({ "workers": [1, 2] }), 404, "worker_not_found"),
        (json!({ "targets": [] }), 400, "out_of_range"),
        (json!({ "workers": many }), 400, "out_of_range"),
        (json!({ "target": "mail" }), 400, "bad_field"),
    ] {
        let reply = bench.post("/api/v1/jobd/pause", body).await;
        reply.is_problem(status, code);
    }
    assert!(worker.asked().is_empty() && worker.paused().is_empty());
    audited.expect(None, "nobody was asked");
}

#[tokio::test]
async fn a_worker_that_refuses_is_named() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let _good = JobdWorker::register(&master.address(), "good", &[("mail", 5, 0)]);
    let bad = JobdWorker::register(&master.address(), "bad", &[("mail", 5, 0)]);
    bad.refuses("jobd is shutting down");
    let reply = bench.post("/api/v1/jobd/pause", json!({ "targets": ["mail"] })).await;
    let failed = json!({ "id": 2, "name": "bad", "detail": "jobd is shutting down" });
    assert_eq!(reply.json(), json!({ "asked": 2, "done": 1, "failed": [failed] }));
}

#[tokio::test]
async fn a_server_without_a_master_says_so() {
    let bench = Bench::new();
    bench.get("/api/v1/jobd").await.is_problem(409, "no_jobd_master");
    for action in ["pause", "continue"] {
        let reply = bench.post(&format!("/api/v1/jobd/{action}"), json!({})).await;
        reply.is_problem(409, "no_jobd_master");
    }
}
