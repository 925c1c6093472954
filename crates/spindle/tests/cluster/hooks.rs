//! Webhooks, when the lead changes hands.

use std::fs;

use serde_json::{Value, json};
use spindle_testkit::{HookReceiver, PATIENCE};

use crate::harness::{Cluster, Node, database};

/// A job that fails for good, with these words.
fn dies(node: &Node, words: &str) {
    let (status, job) = node.answer("POST /api/v1/jobs", &json!({ "queue": "q", "payload": 1 }));
    assert_eq!(status, 201, "{job}");
    let (_, lease) = node.answer("POST /api/v1/lease", &json!({ "queues": ["q"] }));
    let token = lease["lease_token"].as_str().unwrap();
    let fail = format!("POST /api/v1/leases/{token}/fail");
    let (status, answer) = node.answer(&fail, &json!({ "message": words, "retry": false }));
    assert_eq!(status, 204, "{answer}");
}

/// The job's words in the next alert.
fn told(receiver: &HookReceiver) -> String {
    let (_, body) = receiver.posts.recv_timeout(PATIENCE).unwrap();
    let alert: Value = serde_json::from_str(&body).unwrap();
    alert["job"]["message"].as_str().unwrap().to_owned()
}

/// Alerts that the leader could not deliver are delivered by the next one, which has never led before.
#[test]
fn an_alert_that_nobody_took_is_delivered_by_the_next_leader() {
    let receiver =
        HookReceiver::start(|_, body| if body.contains("to be kept") { 503 } else { 204 });
    let other = HookReceiver::start(|_, _| 204);
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "nobody must read this").unwrap();
    let (database, secret) = (database(), secret.to_str().unwrap().to_owned());
    let url = database.url("spindle");
    let nodes = ["one", "two"].map(|name| Node::new(url.clone(), name)).into();
    let mut cluster = Cluster { nodes, servers: database };
    let (first, second) = (format!("{} dead", receiver.url), format!("{} dead", other.url));
    let hooks = ["--webhook", &*first, "--webhook", &*second, "--webhook-secret-file", &*secret];
    for node in &mut cluster.nodes {
        node.start_with(&hooks);
    }
    let leader = cluster.leader();
    dies(&cluster.nodes[leader], "before");
    dies(&cluster.nodes[leader], "to be kept");
    assert_eq!([told(&receiver), told(&receiver)], ["before", "to be kept"]);
    cluster.nodes[leader].kill();
    dies(&cluster.nodes[1 - leader], "after");
    // Delivered alerts may come again; those that were not delivered have to come, in order.
    let mut alerts = vec![told(&receiver)];
    while alerts.last().is_none_or(|words| words != "to be kept") {
        alerts.push(told(&receiver));
    }
    assert!(alerts.iter().all(|words| words == "before" || words == "to be kept"), "{alerts:?}");
    let mut alerts = vec![told(&other)];
    while alerts.last().is_none_or(|words| words != "after") {
        alerts.push(told(&other));
    }
    alerts.dedup();
    assert!(alerts.ends_with(&["to be kept", "after"].map(str::to_owned)), "{alerts:?}");
}
