//! The server goes away under a worker.

use std::fs;

use serde_json::json;

use crate::{
    server::{Served, lines, until},
    worker::{connect, stop, worker},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_kept_until_the_server_is_back() {
    let mut served = Served::new();
    let worker = worker(&served, "w1", "", "q = 2\n").await;
    let id = served.submit("q", json!({"payload": "wait"}));
    until("it runs", || lines(&served.file("runs")).len() == 1);
    served.kill();
    fs::write(served.file("go"), "").unwrap();
    let mut peer = connect(&worker);
    until("the worker says so", || {
        let status = peer.data("status", json!({}));
        status["tableTrouble"].as_str().is_some_and(|text| text.contains("is not available"))
            && status["targets"]["q"]["length"] == 0
    });
    served.restart();
    until("it is done", || served.status(id) == "done");
    let next = served.submit("q", json!({"payload": "x"}));
    until("the next is done, too", || served.status(next) == "done");
    assert_eq!(peer.data("status", json!({})).get("tableTrouble"), None);
    assert_eq!(lines(&served.file("runs")).len(), 2);
    assert_eq!(served.job(id)["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_outlives_the_worker_too() {
    let mut served = Served::new();
    let first = worker(&served, "w1", "shutdown_timeout = 60\n", "q = 1\n").await;
    let id = served.submit("q", json!({"payload": "wait"}));
    until("it runs", || lines(&served.file("runs")).len() == 1);
    served.kill();
    fs::write(served.file("go"), "").unwrap();
    stop(first).await;
    assert!(served.file("w1.state.results").exists());
    served.restart();
    let second = worker(&served, "w1", "", "q = 1\n").await;
    until("it is done", || served.status(id) == "done");
    assert_eq!(served.job(id)["result"]["value"]["stdout"], "waited\n");
    assert_eq!(lines(&served.file("runs")).len(), 1);
    stop(second).await;
    assert!(!served.file("w1.state.results").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_starts_before_the_server_and_says_what_is_wrong_meanwhile() {
    let mut served = Served::new();
    let id = served.submit("q", json!({"payload": "x"}));
    served.kill();
    let worker = worker(&served, "w1", "", "q = 1\n").await;
    let mut peer = connect(&worker);
    until("it says so", || {
        let status = peer.data("status", json!({}));
        status["tableTrouble"].as_str().is_some_and(|text| text.contains(&served.http))
    });
    served.restart();
    until("it is done", || served.status(id) == "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_no_spindle_server_is_told() {
    let served = Served::new();
    let mut wrong = Served::new();
    std::mem::swap(&mut wrong.http, &mut wrong.master);
    let worker = worker(&wrong, "w1", "", "q = 1\n").await;
    let mut peer = connect(&worker);
    until("it says so", || peer.data("status", json!({})).get("tableTrouble").is_some());
    drop(served);
}
