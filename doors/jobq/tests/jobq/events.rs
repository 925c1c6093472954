//! The log of events.

use std::sync::Arc;

use serde_json::{Value, json};
use spindle_testkit::opened;

use crate::harness::{Bench, START_S};

fn noted(job: &Value) -> Vec<&Value> {
    let events = job["events"].as_array().unwrap().iter();
    events.filter(|event| event[0] == "user_event").map(|event| &event[1]["event"]).collect()
}

#[tokio::test]
async fn users_append_events_of_any_json() {
    let bench = Bench::new();
    bench.create("{}").await;
    let add = "/api/v0/job/1/event";
    for event in ["[\"my cool event\"]", "{\"a\":[1,2.5,null,true]}", "\"plain\"", "null"] {
        let job = bench.ok(add, event).await;
        let expected = json!(["user_event", {
            "event": serde_json::from_str::<Value>(event).unwrap(),
            "timestamp": START_S,
        }]);
        assert_eq!(job["events"].as_array().unwrap().last(), Some(&expected));
        assert_eq!(job["state"], json!(["CREATED"]));
    }
    bench.post(add, "{bad").await.is_refused(400, "bad_body");
    let long = format!("\"{}\"", "x".repeat(256 * 1024));
    bench.post(add, &long).await.is_refused(400, "out_of_range");
    assert_eq!(bench.job(1).await["events"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn the_log_is_complete_and_in_order_beyond_a_page_and_after_a_restart() {
    let bench = Bench::new();
    bench.create("{}").await;
    bench.create("{}").await;
    let engine = bench.engine.clone();
    for n in 0..3_500 {
        // As the door does, without a request each: answers tell the whole job.
        let body = format!("{n}");
        if n % 500 == 0 {
            bench.ok("/api/v0/job/1/event", &body).await;
        } else {
            add(&engine, n);
        }
    }
    bench.ok("/api/v0/job/1/state", "[\"X\"]").await;
    let check = |job: Value| {
        let events = job["events"].as_array().unwrap();
        assert_eq!(events.len(), 3_502);
        assert_eq!(
            (&events[0][0], &events[3_501][0]),
            (&json!("job_created"), &json!("job_state_advanced"))
        );
        let noted: Vec<u64> = noted(&job).iter().map(|n| n.as_u64().unwrap()).collect();
        assert!(noted.iter().copied().eq(0..3_500));
        assert_eq!(job["state"], json!(["X"]));
    };
    check(bench.job(1).await);
    let in_memory = bench
        .engine
        .inspect(|state| state.image(spindle_core::JobId(1)).unwrap().options().events.len());
    assert!(in_memory <= 1_000, "{in_memory} events in memory");
    let bench = bench.restarted();
    check(bench.job(1).await);
    assert_eq!(bench.matches("[[\"=\", \"state\", [\"X\"]]]").await, [1]);
}

/// Setters, pollers and those who note something all at once: each of their events is in the log
/// once, in one order that all of it agrees with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_do_to_one_job_at_once_is_told_in_one_order() {
    const EACH: usize = 20;
    let bench = Arc::new(Bench::new());
    bench.create("{}").await;
    let clients: Vec<_> = (0..12)
        .map(|client| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                for n in 0..EACH {
                    let word = format!("[\"BY\", {client}, {n}]");
                    match client % 3 {
                        0 => drop(bench.ok("/api/v0/job/1/event", &word).await),
                        1 => drop(bench.ok("/api/v0/job/1/state", &word).await),
                        _ => {
                            let poll =
                                format!("{{\"query\": [[\"=\", \"id\", 1]], \"state\": {word}}}");
                            drop(bench.ok("/api/v0/job/poll", &poll).await);
                        }
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let job = bench.job(1).await;
    let events = job["events"].as_array().unwrap();
    assert_eq!(events.len(), 1 + 12 * EACH);
    let mut state = json!(["CREATED"]);
    let mut by_client = vec![Vec::new(); 12];
    for event in &events[1..] {
        let word = if event[0] == "user_event" {
            &event[1]["event"]
        } else {
            assert_eq!((&event[0], &event[1]["old"]), (&json!("job_state_advanced"), &state));
            state = event[1]["new"].clone();
            &event[1]["new"]
        };
        by_client[word[1].as_u64().unwrap() as usize].push(word[2].as_u64().unwrap());
    }
    assert_eq!(job["state"], state);
    for numbers in by_client {
        assert!(numbers.iter().copied().eq(0..EACH as u64), "{numbers:?}");
    }
    assert_eq!(Arc::into_inner(bench).unwrap().restarted().job(1).await, job);
}

fn add(engine: &spindle_engine::Engine, n: u64) {
    let mut event = crate::harness::START_MS.to_be_bytes().to_vec();
    let json = format!("[\"user_event\",{{\"event\":{n},\"timestamp\":\"{START_S}\"}}]");
    event.extend_from_slice(json.as_bytes());
    let event = bytes::Bytes::from(event);
    let update = spindle_engine::JobUpdate { state: None, event };
    let job = spindle_core::JobId(1);
    let updated = opened(engine.jobs().update(job, None, |_| Ok::<_, ()>(update.clone())));
    assert!(matches!(updated, Ok(spindle_engine::Updated::Done(..))), "{updated:?}");
}

#[tokio::test]
async fn a_finished_job_takes_events_and_no_state() {
    let bench = Bench::new();
    let id = bench.ok("/api/v0/job/create?ready=1&queue=mail", "{}").await["id"].as_u64().unwrap();
    crate::foreign::complete(&bench, "mail");
    let job = bench.ok(&format!("/api/v0/job/{id}/event"), "\"late\"").await;
    assert_eq!(noted(&job), [&json!("late")]);
    let bench = bench.restarted();
    let job = bench.job(id).await;
    assert_eq!((noted(&job), &job["state"][0]), (vec![&json!("late")], &json!("DONE")));
    let reply = bench.post(&format!("/api/v0/job/{id}/state"), "1").await;
    reply.is_refused(409, "job_finished");
}
