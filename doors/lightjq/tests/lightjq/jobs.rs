//! Submitting jobs, asking for them, taking them back.

use axum::http::header;
use serde_json::json;
use spindle_testkit::opened;

use crate::harness::{Bench, START_MS, ask, by, with};

#[tokio::test]
async fn a_job_goes_from_queued_to_done() {
    let bench = Bench::new();
    let reply = bench.post("/job", json!({"name": "mail", "argument": {"to": "a"}})).await;
    reply.is(201);
    assert_eq!(reply.header("content-type"), "application/msgpack");
    let id = reply.body()["job_id"].as_str().unwrap().to_owned();
    assert_eq!(reply.header("location"), format!("/job/{id}"));
    let waiting = json!({"status": "queued", "worker_id": null, "result": null, "error": null,
        "message": null, "retry_count": 0});
    assert_eq!(bench.job(&id).await, waiting);
    let worker = bench.worker(1).await;
    let order = bench.take(&worker).await;
    let expected = json!({"id": id, "job_id": id, "name": "mail", "argument": {"to": "a"},
        "timeout": 30});
    assert_eq!(order, expected);
    let running = bench.job(&id).await;
    assert_eq!((&running["status"], &running["worker_id"]), (&json!("running"), &json!(worker)));
    bench.done(&worker, json!({"job_id": id, "type": "success", "result": [1]})).await.is(204);
    let done = bench.job(&id).await;
    assert_eq!((&done["status"], &done["worker_id"]), (&json!("done"), &json!(worker)));
    assert_eq!((&done["retry_count"], &done["result"]), (&json!(0), &json!(null)), "not kept");
}

#[tokio::test]
async fn the_smallest_priority_goes_first_and_of_equals_the_oldest() {
    let bench = Bench::new();
    let mut ids = Vec::new();
    for (name, priority) in
        [("a", 5), ("b", 0), ("a", i32::MIN), ("b", i32::MAX), ("a", 0), ("c", -1)]
    {
        let job = json!({"name": name, "argument": {}, "priority": priority});
        ids.push(bench.submit(job).await);
    }
    let worker = bench.worker(6).await;
    let mut order = Vec::new();
    for _ in 0..ids.len() {
        order.push(bench.take(&worker).await["id"].as_str().unwrap().to_owned());
    }
    let expected = [2, 5, 1, 4, 0, 3].map(|at| ids[at].clone());
    assert_eq!(order, expected);
}

#[tokio::test]
async fn a_kept_result_stays_for_a_day_and_five_minutes_after_it_was_read() {
    let bench = Bench::new();
    let worker = bench.worker(2).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let job = json!({"name": "sum", "argument": {}, "keep_result": true});
        ids.push(bench.submit(job).await);
        let id = bench.take(&worker).await["id"].clone();
        let done = json!({"job_id": id, "type": "success", "result": {"sum": 3}});
        bench.done(&worker, done).await.is(204);
    }
    bench.pass(24 * 3_600_000 - 1_000);
    assert_eq!(bench.job(&ids[0]).await["result"], json!({"sum": 3}));
    bench.pass(1_000);
    // The one that was read has its five minutes... but never longer than its day.
    bench.get(&format!("/job/{}", ids[0])).await.is_problem(404, "job_not_found");
    bench.get(&format!("/job/{}", ids[1])).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_result_goes_five_minutes_after_the_first_read_however_often_it_is_read() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "sum", "argument": {}, "keep_result": true})).await;
    bench.take(&worker).await;
    bench.done(&worker, json!({"job_id": id, "type": "success", "result": 3})).await.is(204);
    for _ in 0..2 {
        assert_eq!(bench.job(&id).await["result"], 3);
        bench.pass(150_000 - 1);
    }
    assert_eq!(bench.job(&id).await["result"], 3);
    bench.pass(2);
    bench.get(&format!("/job/{id}")).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_result_nobody_wants_is_null_for_five_minutes() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit_plain("mail").await;
    bench.take(&worker).await;
    bench.done(&worker, json!({"job_id": id, "type": "success", "result": "x"})).await.is(204);
    bench.pass(300_000 - 1);
    let job = bench.job(&id).await;
    assert_eq!((&job["status"], &job["result"]), (&json!("done"), &json!(null)));
    bench.pass(1);
    bench.get(&format!("/job/{id}")).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_job_is_taken_back_only_while_nobody_has_begun_it_or_it_waits_to_be_tried_again() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let queued = bench.submit_plain("mail").await;
    bench.delete(&format!("/job/{queued}")).await.is(204);
    bench.delete(&format!("/job/{queued}")).await.is_problem(404, "job_not_found");
    let id = bench.submit_plain("mail").await;
    let path = format!("/job/{id}");
    bench.take(&worker).await;
    bench.delete(&path).await.is_problem(409, "job_leased");
    bench.done(&worker, json!({"job_id": id, "type": "failure"})).await.is(204);
    assert_eq!(bench.job(&id).await["status"], "retrying");
    bench.delete(&path).await.is(204);
    bench.get(&path).await.is_problem(404, "job_not_found");
    let id = bench.submit_plain("mail").await;
    bench.take(&worker).await;
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    bench.delete(&format!("/job/{id}")).await.is_problem(409, "job_finished");
}

#[tokio::test]
async fn json_is_spoken_with_those_who_ask_for_it() {
    let bench = Bench::new();
    let body = r#"{"name": "mail", "argument": {"to": "a"}}"#;
    let mut request = with("POST", "/job", "application/json", body);
    request.headers_mut().insert(header::ACCEPT, "*/*".parse().unwrap());
    let reply = bench.send(request).await;
    reply.is(201);
    assert_eq!(reply.header("content-type"), "application/json");
    let id = reply.body()["job_id"].as_str().unwrap().to_owned();
    let mut request = ask("GET", &format!("/job/{id}"));
    request.headers_mut().insert(header::ACCEPT, "application/json".parse().unwrap());
    let reply = bench.send(request).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.body()["status"], "queued");
    let worker = bench.worker(1).await;
    let mut request = by(ask("GET", "/worker/job"), &worker);
    request.headers_mut().insert(header::ACCEPT, "application/json".parse().unwrap());
    let reply = bench.send(request).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.body()["argument"], json!({"to": "a"}));
    let mut request = ask("GET", "/job/1000000");
    request.headers_mut().insert(header::ACCEPT, "application/json".parse().unwrap());
    let reply = bench.send(request).await;
    assert_eq!(reply.header("content-type"), "application/problem+json");
    reply.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn a_jobs_own_settings_stand_in_it_and_what_it_does_not_say_is_left_to_its_queue() {
    let bench = Bench::new();
    let said = json!({"name": "n", "argument": {}, "max_retry": 3, "timeout": 2.5,
        "priority": -7, "keep_result": true});
    let id = bench.submit(said).await;
    let image = image(&bench, &id);
    assert_eq!((image.priority, image.ttr_ms, image.created_ms), (7, Some(2_500), START_MS));
    let options = image.options();
    assert_eq!((options.attempts_max, options.fails_max), (Some(4), Some(4)));
    assert_eq!((options.keep_ms, options.keep_read_ms), (Some(86_400_000), Some(300_000)));
    assert!(!options.drop_result);
    let id = bench.submit_plain("n").await;
    let image = self::image(&bench, &id);
    assert_eq!((image.options().attempts_max, image.options().fails_max), (None, None));
    assert_eq!((image.ttr_ms, image.options().drop_result), (Some(30_000), true));
}

fn image(bench: &Bench, id: &str) -> spindle_core::JobImage {
    let id = spindle_core::JobId(id.parse().unwrap());
    opened(bench.engine.jobs().get(spindle_engine::JobRef::Id(id)).unwrap()).unwrap()
}
