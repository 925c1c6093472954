//! Workers that ask for jobs.

use serde_json::json;

use crate::harness::{Bench, ask, by, packed, until};

#[tokio::test]
async fn a_worker_that_waits_is_handed_a_job_that_comes() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    // Nobody has used any name yet: there is nothing to wait for at the engine.
    let waiting = bench.next(&worker, "300");
    let submit = async {
        tokio::task::yield_now().await;
        bench.submit_plain("brand new").await
    };
    let (reply, id) = tokio::join!(waiting, submit);
    reply.is(200);
    assert_eq!(reply.body()["id"], json!(id));
}

#[tokio::test]
async fn a_worker_gets_only_the_names_it_takes() {
    let bench = Bench::new();
    let some = bench.register(json!({"name": "w", "max_jobs": 9, "names": ["a", "b"]})).await;
    let all = bench.worker(9).await;
    for name in ["c", "b", "a"] {
        bench.submit_plain(name).await;
    }
    assert_eq!(bench.take(&some).await["name"], "b");
    assert_eq!(bench.take(&some).await["name"], "a");
    bench.next(&some, "0").await.is(204);
    assert_eq!(bench.take(&all).await["name"], "c");
}

#[tokio::test]
async fn a_worker_has_at_most_max_jobs_and_gets_the_next_when_one_is_done() {
    let bench = Bench::new();
    let worker = bench.worker(2).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(bench.submit_plain("n").await);
    }
    bench.take(&worker).await;
    bench.take(&worker).await;
    bench.next(&worker, "0.01").await.is(204);
    let waiting = bench.next(&worker, "300");
    let done = async {
        tokio::task::yield_now().await;
        bench.done(&worker, json!({"job_id": ids[0], "type": "success"})).await.is(204);
    };
    let (reply, ()) = tokio::join!(waiting, done);
    assert_eq!(reply.body()["id"], json!(ids[2]));
}

#[tokio::test]
async fn a_slot_is_free_again_when_the_jobs_time_is_over() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let first = bench.submit_plain("n").await;
    let second = bench.submit_plain("n").await;
    assert_eq!(bench.take(&worker).await["id"], json!(first));
    bench.pass(30_000);
    assert_eq!(bench.take(&worker).await["id"], json!(second));
}

#[tokio::test]
async fn who_leaves_gives_its_jobs_back_and_is_unknown() {
    let bench = Bench::new();
    let worker = bench.worker(2).await;
    let id = bench.submit_plain("n").await;
    bench.take(&worker).await;
    let waiting = bench.send(by(ask("GET", "/worker/job?timeout=300"), &worker));
    let leave = async {
        bench.waits(1).await;
        bench.send(by(ask("DELETE", "/worker"), &worker)).await.is(204);
    };
    let (reply, ()) = tokio::join!(waiting, leave);
    reply.is_problem(404, "worker_not_found");
    let job = bench.job(&id).await;
    assert_eq!(job["status"], "retrying", "at once, not when its time is over");
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(404);
    bench.send(by(ask("DELETE", "/worker"), &worker)).await.is_problem(404, "worker_not_found");
    bench.next(&worker, "0").await.is_problem(404, "worker_not_found");
    // The attempt counts, and so does its wait.
    let other = bench.worker(1).await;
    bench.next(&other, "0").await.is(204);
    bench.pass(1_000);
    assert_eq!(bench.take(&other).await["id"], json!(id));
}

#[tokio::test]
async fn a_worker_that_asks_no_more_is_lost_after_a_minute_but_not_while_it_works() {
    let bench = Bench::new();
    let (idle, busy) = (bench.worker(1).await, bench.worker(1).await);
    let long = json!({"name": "n", "argument": {}, "timeout": 3600});
    let id = bench.submit(long).await;
    bench.take(&busy).await;
    bench.pass(59_999);
    bench.next(&idle, "0").await.is(204);
    bench.pass(59_999);
    assert_eq!(bench.door.workers().len(), 2);
    bench.pass(1);
    until(|| bench.door.workers().len() == 1).await;
    bench.next(&idle, "0").await.is_problem(404, "worker_not_found");
    assert_eq!(bench.door.workers()[0].id, busy);
    bench.done(&busy, json!({"job_id": id, "type": "success"})).await.is(204);
    bench.pass(59_999);
    assert_eq!(bench.door.workers().len(), 1);
    bench.pass(1);
    until(|| bench.door.workers().is_empty()).await;
}

#[tokio::test]
async fn a_worker_that_waits_for_a_job_is_not_lost_however_long_that_takes() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.submit_plain("n").await;
    let id = bench.take(&worker).await["id"].clone();
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    let waiting = bench.next(&worker, "300");
    let time = async {
        bench.waits(1).await;
        bench.pass(120_000);
        // Somebody who only looked once is lost by then; so the rounds have passed.
        let other = bench.worker(1).await;
        bench.pass(60_000);
        until(|| bench.door.workers().iter().all(|line| line.id != other)).await;
        bench.submit_plain("n").await;
    };
    let (reply, ()) = tokio::join!(waiting, time);
    reply.is(200);
}

#[tokio::test]
async fn a_worker_that_hangs_up_gets_no_job() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.submit_plain("n").await;
    let id = bench.take(&worker).await["id"].clone();
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    {
        let waiting = bench.next(&worker, "300");
        tokio::pin!(waiting);
        tokio::select! {
            reply = &mut waiting => panic!("{reply:?}"),
            () = bench.waits(1) => {}
        }
    }
    assert_eq!(bench.engine.observe().gauges().waits, 0);
    let id = bench.submit_plain("n").await;
    assert_eq!(bench.job(&id).await["status"], "queued");
    assert_eq!(bench.take(&worker).await["id"], json!(id), "its slot is free");
}

#[tokio::test]
async fn an_answer_that_is_never_read_takes_its_lease_back() {
    use tower::ServiceExt;
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit_plain("n").await;
    let response = bench.site.clone().oneshot(by(ask("GET", "/worker/job"), &worker)).await;
    assert_eq!(bench.job(&id).await["status"], "running");
    drop(response);
    let job = bench.job(&id).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("queued"), &json!(0)));
    assert_eq!(bench.take(&worker).await["id"], json!(id), "its slot is free again");
}

#[tokio::test]
async fn a_registration_that_cannot_be_is_refused() {
    let bench = Bench::new();
    for (body, code) in [
        (json!({"max_jobs": 1}), "bad_field"),
        (json!({"name": "w"}), "bad_field"),
        (json!({"name": "w", "max_jobs": 0}), "out_of_range"),
        (json!({"name": "w", "max_jobs": "1"}), "bad_field"),
        (json!({"name": "w", "max_jobs": 1, "names": []}), "out_of_range"),
        (json!({"name": "w", "max_jobs": 1, "url": "ftp://127.0.0.1"}), "out_of_range"),
    ] {
        bench.post("/worker", body).await.is_problem(400, code);
    }
    let body = json!({"name": "w", "max_jobs": 1});
    let own = packed("POST", "/worker", Some("me"), &body);
    bench.send(own).await.is_problem(404, "worker_not_found");
    for (method, path) in [("GET", "/worker/job"), ("DELETE", "/worker")] {
        bench.send(ask(method, path)).await.is_problem(400, "bad_request");
        bench.send(by(ask(method, path), "me")).await.is_problem(404, "worker_not_found");
    }
    assert!(bench.door.workers().is_empty());
}

#[tokio::test]
async fn workers_are_shown_with_what_they_have() {
    let bench = Bench::new();
    let worker = bench.register(json!({"name": "w", "max_jobs": 2, "names": ["n"]})).await;
    let id = bench.submit_plain("n").await;
    bench.take(&worker).await;
    let lines = bench.door.workers();
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0].id, lines[0].name.as_str()), (&worker, "w"));
    let jobs: Vec<String> = lines[0].jobs.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!(jobs, [id]);
}

#[tokio::test]
async fn when_the_server_stops_who_waits_is_told_that_there_is_nothing() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    bench.submit_plain("n").await;
    let id = bench.take(&worker).await["id"].clone();
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    let waiting = bench.next(&worker, "300");
    let stop = async {
        bench.waits(1).await;
        bench.engine.stop_leasing();
        bench.door.stop();
    };
    let (reply, ()) = tokio::join!(waiting, stop);
    reply.is(204);
    bench.next(&worker, "300").await.is(204);
}

#[tokio::test]
async fn names_beyond_what_one_lease_asks_for_are_given_to_who_names_them_until_there_is_room() {
    let bench = Bench::new();
    for number in 0..1_025 {
        bench.submit_plain(&format!("n{number}")).await;
    }
    let all = bench.worker(2_000).await;
    for _ in 0..1_024 {
        let id = bench.take(&all).await["id"].clone();
        bench.done(&all, json!({"job_id": id, "type": "success"})).await.is(204);
    }
    bench.next(&all, "0").await.is(204);
    let some = bench.register(json!({"name": "w", "max_jobs": 9, "names": ["n1024"]})).await;
    assert_eq!(bench.take(&some).await["name"], "n1024");
    // The others' jobs are forgotten, and with them their names.
    bench.pass(300_000);
    let id = bench.submit_plain("another").await;
    let all = bench.worker(2_000).await;
    assert_eq!(bench.take(&all).await["id"], json!(id));
}

#[tokio::test]
async fn requests_of_one_worker_that_wait_side_by_side_leave_each_other_alone() {
    let bench = Bench::new();
    let worker = bench.worker(3).await;
    bench.submit_plain("n").await;
    let id = bench.take(&worker).await["id"].clone();
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    let waiting = async {
        tokio::join!(
            bench.next(&worker, "300"),
            bench.next(&worker, "300"),
            bench.next(&worker, "300")
        )
    };
    let jobs = async {
        bench.waits(3).await;
        // A new name: each of them asks anew, once.
        bench.register(json!({"name": "other", "max_jobs": 1})).await;
        bench.submit_plain("m").await;
        bench.waits(2).await;
        let before = bench.next_ticket();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.next_ticket(), before + 1, "nobody but this test has asked");
        bench.submit_plain("m").await;
        bench.submit_plain("m").await;
    };
    let ((a, b, c), ()) = tokio::join!(waiting, jobs);
    for reply in [a, b, c] {
        reply.is(200);
    }
}

#[tokio::test]
async fn a_worker_that_hangs_up_at_any_moment_keeps_no_job_and_no_slot() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit_plain("n").await;
    for steps in 1..16 {
        bench.hang_up_after(by(ask("GET", "/worker/job?timeout=300"), &worker), steps).await;
        bench.ready(id.parse().unwrap()).await;
        bench.waits(0).await;
    }
    assert_eq!(bench.take(&worker).await["id"], json!(id));
}
