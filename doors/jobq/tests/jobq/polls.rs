//! Polls.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::harness::Bench;

const CREATED: &str =
    r#"{"query": [["=", "json_extract(j.state, '$[0]')", "CREATED"]], "state": ["ASSIGNED"]}"#;

#[tokio::test]
async fn a_poll_advances_the_least_recently_updated_match() {
    let bench = Bench::new();
    for _ in 0..4 {
        bench.create("{}").await;
    }
    bench.ok("/api/v0/job/1/event", "\"touched\"").await;
    bench.ok("/api/v0/job/2/state", "[\"OTHER\"]").await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(bench.ok("/api/v0/job/poll", CREATED).await["id"].as_u64().unwrap());
    }
    assert_eq!(order, [3, 4, 1]);
    bench.post("/api/v0/job/poll", CREATED).await.is_refused(404, "no_match");
    let job = bench.job(3).await;
    assert_eq!(job["events"][1][1]["old"], json!(["CREATED"]));
    assert_eq!((&job["events"][1][1]["new"], &job["state"]), (&job["state"], &json!(["ASSIGNED"])));
}

#[tokio::test]
async fn what_a_poll_updated_is_the_youngest_also_after_a_restart() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.create("{}").await;
    }
    let any = r#"{"query": [[">", "id", 0]], "state": ["AGAIN"]}"#;
    assert_eq!(bench.ok("/api/v0/job/poll", any).await["id"], 1);
    let bench = bench.restarted();
    for id in [2, 3, 1, 2] {
        assert_eq!(bench.ok("/api/v0/job/poll", any).await["id"], id);
    }
}

#[tokio::test]
async fn a_poll_without_query_or_state_is_refused_and_changes_nothing() {
    let bench = Bench::new();
    bench.create("{}").await;
    let before = bench.job(1).await;
    for body in ["{}", "{\"state\": 1}", "{\"query\": [[\">\", \"id\", 0]]}", "", "[]"] {
        bench.post("/api/v0/job/poll", body).await.is_refused(400, "bad_body");
    }
    for query in ["[]", "\"true\"", "5", "[[\">\", \"id\"]]", "[[\">\", \"nosuch\", 0]]"] {
        let body = format!("{{\"query\": {query}, \"state\": 1}}");
        bench.post("/api/v0/job/poll", &body).await.is_refused(400, "bad_query");
    }
    assert_eq!(bench.job(1).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_pollers_get_each_job_once() {
    let bench = Arc::new(Bench::new());
    for _ in 0..300 {
        bench.create("{}").await;
    }
    let pollers: Vec<_> = (0..100)
        .map(|_| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let reply = bench.post("/api/v0/job/poll", CREATED).await;
                    if reply.status == 404 {
                        return got;
                    }
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    got.push(reply.json()["id"].as_u64().unwrap());
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for poller in pollers {
        all.extend(poller.await.unwrap());
    }
    assert_eq!(all.len(), 300);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 300, "no job twice");
    for id in all {
        assert_eq!(bench.job(id).await["events"].as_array().unwrap().len(), 2);
    }
}

/// Others set states meanwhile: a poll passes over the jobs that it loses to them, and never undoes
/// a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pollers_and_setters_never_take_the_same_job() {
    let bench = Arc::new(Bench::new());
    for _ in 0..200 {
        bench.create("{}").await;
    }
    let setter = {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move {
            let mut won = 0;
            for id in 1..=200 {
                let body = "{\"old\": [\"CREATED\"], \"new\": [\"SET\"]}";
                let reply = bench.post(&format!("/api/v0/job/{id}/state"), body).await;
                won += usize::from(reply.status == 200);
            }
            won
        })
    };
    let mut polled = 0;
    while bench.post("/api/v0/job/poll", CREATED).await.status == 200 {
        polled += 1;
    }
    let set = setter.await.unwrap();
    assert_eq!(polled + set, 200);
    let both = bench.matches("[[\">\", \"json_array_length(events)\", 2]]").await;
    assert_eq!(both, [0; 0], "each was taken once");
}
