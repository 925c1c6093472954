//! The master inside the server.

use std::fs;

use serde_json::json;

use crate::{
    server::{Peer, Served, lines, until},
    worker::worker,
};

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_register_at_the_server_and_clients_ask_it() {
    let served = Served::new();
    let lines = format!("master_host = 127.0.0.1\nmaster_port = {}", port(&served.master));
    let _worker = worker(&served, "w1", &lines, "q = 1\n").await;
    let mut client = Peer::connect(&served.master);
    until("the worker is there", || client.data("status", json!({}))["workers"][0]["name"] == "w1");
    assert_eq!(client.data("poke", json!({"targets": ["q"]})), json!("ok"));
    let id = served.submit("q", json!({"payload": "x", "parked": true}));
    let jobs = json!({"jobs": [{"id": id, "target": "q"}]});
    let results = client.data("run-manual", jobs);
    assert_eq!(results["jobs"][id.to_string()]["result"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_server_waits_for_answers_under_way() {
    let mut served = Served::new();
    let more = format!("master_host = 127.0.0.1\nmaster_port = {}", port(&served.master));
    // The job's own server lives on.
    let other = Served::new();
    let _worker = worker(&other, "w1", &more, "q = 1\n").await;
    let mut client = Peer::connect(&served.master);
    until("the worker is there", || client.data("status", json!({}))["workers"] != json!([]));
    let id = other.submit("q", json!({"payload": "wait", "parked": true}));
    client.send("run-manual", json!({"jobs": [{"id": id, "target": "q"}]}));
    until("it runs", || lines(&other.file("runs")).len() == 1);
    served.terminate();
    until("nobody is accepted any more", || std::net::TcpStream::connect(&served.master).is_err());
    fs::write(other.file("go"), "").unwrap();
    let answer = client.hear().expect("the answer comes before the end");
    assert_eq!(answer["data"]["jobs"][id.to_string()]["stdout"], "waited\n");
    assert_eq!(client.hear(), None);
    assert_eq!(served.ended().code(), Some(0));
}

#[test]
fn an_idle_client_does_not_hold_up_the_end() {
    let mut served = Served::new();
    let mut client = Peer::connect(&served.master);
    assert_eq!(client.data("status", json!({}))["workers"], json!([]));
    served.terminate();
    assert_eq!(client.hear(), None);
    assert_eq!(served.ended().code(), Some(0));
}
