//! Jobs of every door run as processes.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    server::{Served, lines, until, until_taken_back},
    worker::{connect, ended, stop, worker},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jobs_payload_is_read_and_what_its_process_leaves_is_the_result() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "mail = 2\n").await;
    let id = served.submit("mail", json!({"payload": {"to": "a"}}));
    until("it is done", || served.status(id) == "done");
    let job = served.job(id);
    assert_eq!(
        job["result"]["value"],
        json!({
            "result": "ok", "code": 0, "signal": null, "stderr": "",
            "stdout": format!("{{\"to\":\"a\"}}|{id}|{id}|mail|1"),
        })
    );
    assert_eq!(job["history"][0]["worker"], "w1");
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_another_door_is_worked_and_its_client_gets_the_result() {
    let served = Served::new();
    let _worker = worker(&served, "w1", "", "mail = 1\n").await;
    let output = Command::new(env!("CARGO_BIN_EXE_spindle"))
        .args(["run", "mail", "hello", "--workq", &served.workq])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["stdout"].as_str().unwrap().starts_with("hello|"), "{result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exit_code_other_than_0_fails_the_job_under_its_own_policy() {
    let served = Served::new();
    let _worker = worker(&served, "w1", "", "mail = 1\n").await;
    let once = served.submit("mail", json!({"payload": "fail", "fails_max": 1}));
    let twice = served.submit("mail", json!({"payload": "fail", "fails_max": 2}));
    until("both are dead", || [once, twice].iter().all(|id| served.status(*id) == "dead"));
    let job = served.job(once);
    let result = &job["result"];
    assert_eq!((&result["code"], &result["message"]), (&json!("exit_3"), &json!("exit code 3")));
    assert_eq!((&result["error"], &result["value"]["code"]), (&json!("no luck\n"), &json!(3)));
    assert_eq!((&job["attempts"], &served.job(twice)["attempts"]), (&json!(1), &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_jobs_are_leased_than_there_are_slots() {
    let served = Served::new();
    let ids: Vec<i64> = (0..12).map(|_| served.submit("q", json!({"payload": "wait"}))).collect();
    let worker = worker(&served, "w1", "", "q = 3\n").await;
    until("three run", || lines(&served.file("runs")).len() == 3);
    assert_eq!((served.count("q", "leased"), served.count("q", "ready")), (3, 9));
    fs::write(served.file("go"), "").unwrap();
    until("all are done", || served.count("q", "done") == 12);
    let mut runs: Vec<i64> =
        lines(&served.file("runs")).iter().map(|id| id.parse().unwrap()).collect();
    runs.sort_unstable();
    assert_eq!(runs, ids);
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_target_takes_its_question_back() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 3\n").await;
    let waits = || {
        let (_, queue) = served.ask("GET /api/v1/queues/q", &Value::Null);
        queue["waiting_leases"].as_i64().unwrap_or(0)
    };
    until("it asks for as many as it has slots", || waits() == 3);
    let mut peer = connect(&worker);
    peer.data("pause", json!({"targets": ["q"]}));
    until_taken_back("it asks no more", || waits() == 0);
    let id = served.submit("q", json!({"payload": "x"}));
    assert_eq!(served.job(id)["attempts"], 0);
    peer.data("continue", json!({}));
    until("it is done", || served.status(id) == "done");
    assert_eq!(served.job(id)["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_takes_longer_than_its_ttr_is_run_once() {
    let served = Served::new();
    let _worker = worker(&served, "w1", "", "q = 1\n").await;
    let id = served.submit("q", json!({"payload": "slow", "ttr_ms": 300}));
    until("it is done", || served.status(id) == "done");
    assert_eq!((&served.job(id)["attempts"], lines(&served.file("runs")).len()), (&json!(1), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_a_cancelled_job_is_told_to_end() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 1\n").await;
    let id = served.submit("q", json!({"payload": "trap", "ttr_ms": 600}));
    until("its trap is set", || served.file("trapped").exists());
    served.ask(&format!("POST /api/v1/jobs/{id}/cancel"), &Value::Null);
    until("it was told", || lines(&served.file("signals")) == ["term"]);
    assert_eq!(served.job(id)["result"]["code"], "cancelled");
    // The slot is free again.
    let next = served.submit("q", json!({"payload": "x"}));
    until("the next is done", || served.status(next) == "done");
    stop(worker).await;
    assert_eq!(served.status(id), "dead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_far_a_running_process_is_and_what_it_writes_is_shown() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 1\n").await;
    let id = served.submit("q", json!({"payload": "wait"}));
    until("it runs", || lines(&served.file("runs")).len() == 1);
    // As a process may that has the number of its job.
    let (path, progress) =
        (format!("/api/v1/jobs/{id}"), json!({"numerator": 3, "denominator": 4}));
    let (status, answer) = served.ask(&format!("POST {path}/progress"), &progress);
    assert_eq!(status, 204, "{answer}");
    let (status, answer) = served.ask(&format!("POST {path}/output"), &json!({"text": "a line"}));
    assert_eq!(status, 204, "{answer}");
    assert_eq!(served.job(id)["progress"], json!({"numerator": "3", "denominator": "4"}));
    let (_, output) = served.ask(&format!("GET {path}/output"), &Value::Null);
    assert_eq!(output["pieces"][0]["text"], "a line");
    fs::write(served.file("go"), "").unwrap();
    until("it is done", || served.status(id) == "done");
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_take_turns_at_a_worker() {
    let served = Served::new();
    let fair = json!({"fair": {"field": "/tenant"}});
    served.ask("PUT /api/v1/queues/q/settings", &fair);
    let submit = |tenant: &str| served.submit("q", json!({"payload": {"tenant": tenant}}));
    let [a1, a2, a3, b] = ["a", "a", "a", "b"].map(submit);
    let worker = worker(&served, "w1", "", "q = 1\n").await;
    until("all are done", || served.count("q", "done") == 4);
    let runs = lines(&served.file("runs"));
    assert_eq!(runs, [a1, b, a2, a3].map(|id| id.to_string()));
    stop(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_worker_ends_what_runs_and_takes_nothing_new() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 2\n").await;
    let running = served.submit("q", json!({"payload": "wait"}));
    until("it runs", || lines(&served.file("runs")).len() == 1);
    worker.stop();
    until_taken_back("nobody asks any more", || {
        let (_, queue) = served.ask("GET /api/v1/queues/q", &Value::Null);
        queue["waiting_leases"] == 0
    });
    let left = served.submit("q", json!({"payload": "x"}));
    fs::write(served.file("go"), "").unwrap();
    ended(worker).await;
    assert_eq!((&*served.status(running), &*served.status(left)), ("done", "ready"));
    assert_eq!(served.job(left)["attempts"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_a_queue_and_run_each_job_once() {
    const JOBS: usize = 300;
    let served = Served::new();
    let first = worker(&served, "w1", "", "q = 4\n").await;
    let second = worker(&served, "w2", "", "q = 4\n").await;
    let mut ids: Vec<i64> =
        (0..JOBS).map(|_| served.submit("q", json!({"payload": "x"}))).collect();
    until("all are done", || served.count("q", "done") == i64::try_from(JOBS).unwrap());
    let mut runs: Vec<i64> =
        lines(&served.file("runs")).iter().map(|id| id.parse().unwrap()).collect();
    runs.sort_unstable();
    ids.sort_unstable();
    assert_eq!(runs, ids);
    stop(first).await;
    stop(second).await;
}
