//! `run-manual`: parked jobs are the manual ones.

use serde_json::json;

use crate::{
    server::{Served, until},
    worker::{connect, worker},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_jobs_are_released_run_and_answered_and_others_are_left_alone() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 2\n").await;
    let good = served.submit("q", json!({"payload": "x", "parked": true}));
    let bad = served.submit("q", json!({"payload": "fail", "parked": true, "fails_max": 1}));
    let foreign = served.submit("other", json!({"payload": "x", "parked": true}));
    let waiting = served.submit("other", json!({"payload": "x"}));
    let ids = [good, bad, foreign, waiting, 9_999_999];
    let results = connect(&worker).data("run-manual", json!({ "ids": ids }));
    let job = |id: i64| &results["jobs"][id.to_string()];
    assert_eq!((&job(good)["result"], &job(good)["code"]), (&json!("ok"), &json!(0)));
    assert_eq!(job(good)["stdout"], format!("\"x\"|{good}|{good}|q|1"));
    assert_eq!((&job(bad)["result"], &job(bad)["code"]), (&json!("fail"), &json!(3)));
    assert_eq!(
        results["errors"],
        json!({
            foreign.to_string(): format!("target 'other' not found (job id={foreign})"),
            waiting.to_string(): "status = waiting != manual",
            "9999999": "job 9999999 not found",
        })
    );
    assert_eq!((&*served.status(foreign), &*served.status(waiting)), ("parked", "ready"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_job_that_another_worker_runs_is_answered_too() {
    let served = Served::new();
    let asked = worker(&served, "w1", "", "q = 1\n").await;
    let mut peer = connect(&asked);
    peer.data("pause", json!({}));
    until("it asks no more", || {
        served.ask("GET /api/v1/queues/q", &json!(null)).1["waiting_leases"].as_i64().unwrap_or(0)
            == 0
    });
    let _runs_it = worker(&served, "w2", "", "q = 1\n").await;
    let id = served.submit("q", json!({"payload": "fail", "parked": true, "fails_max": 1}));
    let results = peer.data("run-manual", json!({"ids": [id]}));
    let job = &results["jobs"][id.to_string()];
    assert_eq!((&job["code"], &job["stderr"]), (&json!(3), &json!("no luck\n")));
    assert_eq!(served.job(id)["history"][0]["worker"], "w2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_deleted_before_anybody_ran_it_is_answered_as_gone() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 1\n").await;
    let blocks = served.submit("q", json!({"payload": "wait"}));
    until("the slot is taken", || served.status(blocks) == "leased");
    let id = served.submit("q", json!({"payload": "x", "parked": true}));
    let mut peer = connect(&worker);
    peer.send("run-manual", json!({"ids": [id]}));
    until("it is released", || served.status(id) == "ready");
    served.ask(&format!("DELETE /api/v1/jobs/{id}"), &json!(null));
    let answer = peer.hear().unwrap();
    let expected = json!({ id.to_string(): format!("job {id} not found") });
    assert_eq!(answer["data"]["errors"], expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_parked_jobs_are_answered_with_all_results() {
    let served = Served::new();
    let worker = worker(&served, "w1", "", "q = 8\n").await;
    let ids: Vec<i64> =
        (0..1000).map(|_| served.submit("q", json!({"payload": "x", "parked": true}))).collect();
    let results = connect(&worker).data("run-manual", json!({ "ids": ids }));
    assert_eq!(results.get("errors"), None);
    let jobs = results["jobs"].as_object().unwrap();
    assert_eq!(jobs.len(), 1000);
    assert!(jobs.values().all(|job| job["result"] == "ok"));
}
