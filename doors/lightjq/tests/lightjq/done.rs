//! How attempts end: by their worker's word, by time.

use serde_json::json;
use spindle_core::JobId;
use spindle_core::job::Origin;
use spindle_core::payload::Type;
use spindle_engine::{JobRef, NewJob, Payload, WorkResult};
use spindle_testkit::opened;

use crate::harness::{Bench, ask, by, packed, with};

#[tokio::test]
async fn a_failure_is_told_and_tried_again_after_its_wait_until_no_tries_are_left() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 2})).await;
    for (attempt, wait_ms) in [(1, 1_000), (2, 2_000), (3, 0)] {
        assert_eq!(bench.take(&worker).await["id"], json!(id), "{attempt}");
        let failure = json!({"job_id": id, "type": "failure", "reason": "other",
            "finished_at": "2026-01-02T03:04:05Z", "should_retry": true,
            "message": format!("no {attempt}"), "error": {"code": attempt}});
        bench.done(&worker, failure).await.is(204);
        let job = bench.job(&id).await;
        assert_eq!(job["message"], json!(format!("no {attempt}")));
        assert_eq!((&job["error"], &job["result"]), (&json!({"code": attempt}), &json!(null)));
        assert_eq!(job["retry_count"], json!(attempt - 1));
        assert_eq!(job["worker_id"], json!(worker));
        assert_eq!(job["status"], if attempt < 3 { "retrying" } else { "error" });
        if wait_ms > 0 {
            bench.next(&worker, "0").await.is(204);
            // Jitter takes off a fifth at most.
            bench.pass(wait_ms * 4 / 5 - 1);
            bench.next(&worker, "0").await.is(204);
            bench.pass(wait_ms / 5 + 1);
        }
    }
    bench.pass(3_600_000);
    bench.next(&worker, "0").await.is(204);
    let which = JobRef::Id(JobId(id.parse().unwrap()));
    let image = opened(bench.engine.jobs().get(which).unwrap()).unwrap();
    let outcome = image.outcome.unwrap();
    assert_eq!(&outcome.worker_finished_at[..], b"2026-01-02T03:04:05Z");
    assert_eq!(&outcome.code[..], b"other");
}

#[tokio::test]
async fn a_failure_that_should_not_be_tried_again_is_the_last() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit_plain("n").await;
    bench.take(&worker).await;
    let failure = json!({"job_id": id, "type": "failure", "should_retry": false, "error": "no"});
    bench.done(&worker, failure).await.is(204);
    let job = bench.job(&id).await;
    assert_eq!((&job["status"], &job["error"]), (&json!("error"), &json!("no")));
    assert_eq!(job["message"], "other", "where nobody says anything, the reason stands");
}

#[tokio::test]
async fn without_retries_the_first_failure_is_the_last() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    bench.take(&worker).await;
    bench.done(&worker, json!({"job_id": id, "type": "failure"})).await.is(204);
    assert_eq!(bench.job(&id).await["status"], "error");
}

#[tokio::test]
async fn a_job_that_takes_too_long_has_failed_with_timeout_and_its_worker_is_too_late() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id =
        bench.submit(json!({"name": "n", "argument": {}, "max_retry": 1, "timeout": 0.5})).await;
    for attempt in 1..=2 {
        assert_eq!(bench.take(&worker).await["timeout"], json!(0.5));
        bench.pass(500);
        let done = bench.done(&worker, json!({"job_id": id, "type": "success"})).await;
        done.is_problem(404, "job_not_found");
        let job = bench.job(&id).await;
        assert_eq!(job["status"], if attempt == 1 { "retrying" } else { "error" });
        bench.pass(1_000);
    }
    let message = "2 of 2 attempts: the last one timed out";
    assert_eq!(bench.job(&id).await["message"], message);
}

#[tokio::test]
async fn only_the_worker_that_has_a_job_may_end_it_and_only_once() {
    let bench = Bench::new();
    let (worker, other) = (bench.worker(1).await, bench.worker(1).await);
    let id = bench.submit_plain("n").await;
    let success = json!({"job_id": id, "type": "success"});
    bench.done(&worker, success.clone()).await.is_problem(404, "job_not_found");
    bench.take(&worker).await;
    bench.done(&other, success.clone()).await.is_problem(404, "job_not_found");
    assert_eq!(bench.job(&id).await["status"], "running");
    bench.done(&worker, success.clone()).await.is(204);
    bench.done(&worker, success.clone()).await.is_problem(404, "job_not_found");
    let unknown = json!({"job_id": "1000000", "type": "success"});
    bench.done(&worker, unknown).await.is_problem(404, "job_not_found");
    let no_id = json!({"job_id": "seven", "type": "success"});
    bench.done(&worker, no_id).await.is_problem(404, "job_not_found");
    bench.done("me", success.clone()).await.is_problem(404, "worker_not_found");
    bench.send(packed("POST", "/done", None, &success)).await.is_problem(400, "bad_request");
}

#[tokio::test]
async fn malformed_ends_change_nothing() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit_plain("n").await;
    bench.take(&worker).await;
    for (body, code) in [
        (json!({"job_id": id}), "bad_field"),
        (json!({"job_id": id, "type": "perhaps"}), "out_of_range"),
        (json!({"job_id": id, "type": "failure", "reason": "tired"}), "out_of_range"),
        (json!({"job_id": 1, "type": "success"}), "bad_field"),
        (json!({"type": "success"}), "bad_field"),
        (json!([]), "bad_request"),
    ] {
        bench.done(&worker, body).await.is_problem(400, code);
    }
    let cut = by(with("POST", "/done", "application/msgpack", &b"\x82\xa6job"[..]), &worker);
    bench.send(cut).await.is_problem(400, "bad_request");
    assert_eq!(bench.job(&id).await["status"], "running");
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
}

#[tokio::test]
async fn a_worker_of_an_earlier_run_of_the_server_may_still_end_its_job_and_keep_its_id() {
    let log = {
        let bench = Bench::new();
        let worker = bench.worker(2).await;
        let id = bench.submit_plain("n").await;
        bench.submit_plain("late").await;
        bench.take(&worker).await;
        (std::sync::Arc::clone(&bench.log), worker, id)
    };
    let (log, worker, id) = log;
    let bench = Bench::on(log, |_| {});
    assert_eq!(bench.job(&id).await["worker_id"], json!(worker));
    bench.send(by(ask("GET", "/worker/job"), &worker)).await.is_problem(404, "worker_not_found");
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    assert_eq!(bench.job(&id).await["status"], "done");
    let again = json!({"name": "w", "max_jobs": 1});
    let reply = bench.send(packed("POST", "/worker", Some(&worker), &again)).await;
    assert_eq!(reply.body()["worker_id"], json!(worker));
    // A worker that takes all names gets those of earlier jobs, too.
    assert_eq!(bench.take(&worker).await["name"], "late");
}

#[tokio::test]
async fn jobs_and_ends_of_other_doors_are_told_in_this_ones_words() {
    let bench = Bench::new();
    let names = json!({"name": "w", "max_jobs": 5, "names": ["b", "j", "bad"]});
    let worker = bench.register(names).await;
    let submit = |queue: &'static str, payload: &'static [u8], kind| {
        let submit = spindle_core::command::Submit::new(
            JobId(0),
            queue.into(),
            Origin::Api,
            spindle_core::BytesRef::NONE,
        );
        let job = NewJob { submit, payload: Payload::new(payload, kind) };
        let id = opened(bench.engine.jobs().submit(job)).unwrap();
        drop(bench.engine.turn());
        id
    };
    let id = submit("j", br#"{"a": [1, -1, 0.5]}"#, Type::Json);
    let order = bench.take(&worker).await;
    assert_eq!(order["argument"], json!({"a": [1, -1, 0.5]}));
    assert_eq!((&order["id"], &order["timeout"]), (&json!(id.to_string()), &json!(60)));
    let done = json!({"job_id": id.to_string(), "type": "success", "result": {"b": 1}});
    bench.done(&worker, done).await.is(204);
    assert_eq!(bench.job(&id.to_string()).await["result"], json!({"b": 1}));
    for (queue, payload, kind) in [
        ("b", &b"\xff\0"[..], Type::Bytes),
        ("bad", b"\xc1", Type::Msgpack),
        ("bad", b"{", Type::Json),
    ] {
        submit(queue, payload, kind);
        let reply = bench.next(&worker, "60").await;
        let bin = [&b"\xa8argument\xc4"[..], &[payload.len() as u8], payload].concat();
        assert!(reply.body.windows(bin.len()).any(|part| part == bin), "{:?}", reply.body);
    }
    // An end that comes through another door.
    let id = bench.submit(json!({"name": "x", "argument": {}, "max_retry": 0})).await;
    let failed = WorkResult { message: "m".into(), error: "plain".into(), ..Default::default() };
    let which = JobRef::Id(JobId(id.parse().unwrap()));
    opened(bench.engine.jobs().finish_unfinished(which, failed)).unwrap();
    drop(bench.engine.turn());
    let job = bench.job(&id).await;
    assert_eq!((&job["error"], &job["message"]), (&json!("plain"), &json!("m")));
    assert_eq!((&job["status"], &job["worker_id"]), (&json!("error"), &json!(null)));
}
