//! The lead changes hands.

use serde_json::{Value, json};
use spindle_testkit::{PostgresServer, wait_until};

use crate::accountant::Load;
use crate::harness::{Cluster, answer_of, send};

#[test]
fn nothing_is_lost_or_done_again_when_the_leader_is_killed_again_and_again() {
    let mut cluster = Cluster::start(&["one", "two", "three"]);
    let load = Load::start(&cluster);
    for _ in 0..4 {
        load.await_more();
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        let next = cluster.leader();
        assert_ne!(leader, next);
        load.await_more();
        cluster.nodes[leader].start();
    }
    load.settle(&cluster);
}

#[test]
fn one_of_two_nodes_is_enough_and_a_follower_is_missed_by_nobody() {
    let mut cluster = Cluster::start(&["one", "two"]);
    let load = Load::start(&cluster);
    load.await_more();
    let leader = cluster.leader();
    cluster.nodes[1 - leader].kill();
    load.await_more();
    cluster.nodes[1 - leader].start();
    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    load.await_more();
    assert_eq!(cluster.leader(), 1 - leader);
    cluster.nodes[leader].start();
    load.settle(&cluster);
    let codes: Vec<_> = cluster.nodes.iter_mut().map(|node| node.end()).collect();
    assert_eq!(codes, [Some(0), Some(0)]);
}

/// When a leader that was stopped goes on, it must not answer from memory the requests that came in
/// before.
#[test]
fn a_leader_that_was_stopped_answers_nothing_that_is_not_so_any_more() {
    let cluster = Cluster::start(&["one", "two"]);
    let leader = cluster.leader();
    let (old, new) = (&cluster.nodes[leader], cluster.other_than(leader));
    let (status, job) = old.answer("POST /api/v1/jobs", &json!({ "queue": "q", "payload": 1 }));
    assert_eq!(status, 201, "{job}");
    let path = format!("/api/v1/jobs/{}", job["id"]);
    // Connections to the leader itself, which are open when it is stopped.
    let heads = [
        format!("GET {path}"),
        "GET /api/v1/jobs?queue=q".to_owned(),
        "GET /api/v1/queues/q".to_owned(),
        "POST /api/v1/lease".to_owned(),
        "POST /api/v1/jobs".to_owned(),
    ];
    old.stop();
    let body_of = |head: &str| match head {
        "POST /api/v1/lease" => json!({ "queues": ["q"] }),
        "POST /api/v1/jobs" => json!({ "queue": "another", "payload": 2 }),
        _ => Value::Null,
    };
    let asked: Vec<_> =
        heads.iter().map(|head| send(&old.http, head, &body_of(head)).unwrap()).collect();
    wait_until("the other one leads", || new.leads());
    let (_, lease) = new.answer("POST /api/v1/lease", &json!({ "queues": ["q"] }));
    assert_eq!(lease["id"], job["id"], "{lease}");
    let token = lease["lease_token"].as_str().unwrap();
    let (status, _) = new.answer(&format!("POST /api/v1/leases/{token}/complete"), &json!({}));
    assert_eq!(status, 204);

    old.go_on();
    for (head, stream) in heads.iter().zip(asked) {
        // A connection that the doors accepted while the node still led is closed unanswered. If the
        // node followed already, the new leader answers, which knows that the job is done.
        let Some((status, answer)) = answer_of(stream) else { continue };
        let text = answer.to_string();
        let is_stale =
            status == 200 && (text.contains("\"ready\"") || text.contains("lease_token"));
        assert!(!is_stale || head.contains("/queues/"), "{head}: {status} {answer}");
        if head.contains("/queues/") {
            assert_eq!(answer["jobs"]["ready"], 0, "{head}: {answer}");
        }
    }
    cluster.leader();
    for node in &cluster.nodes {
        let (status, found) = node.answer(&format!("GET {path}"), &Value::Null);
        assert_eq!((status, &found["status"]), (200, &json!("done")), "{found}");
    }
}

#[test]
fn a_leader_is_stopped_and_goes_on_under_load() {
    let cluster = Cluster::start(&["one", "two", "three"]);
    let load = Load::start(&cluster);
    for _ in 0..3 {
        load.await_more();
        let leader = cluster.leader();
        cluster.nodes[leader].stop();
        wait_until("another one leads", || {
            (0..3).any(|at| at != leader && cluster.nodes[at].leads())
        });
        load.await_more();
        cluster.nodes[leader].go_on();
    }
    load.settle(&cluster);
}

#[test]
fn the_lead_is_handed_over_and_leases_of_jobs_go_on() {
    let cluster = Cluster::start(&["one", "two"]);
    let leader = cluster.leader();
    let (old, new) = (&cluster.nodes[leader], cluster.other_than(leader));
    let (_, job) = new.answer("POST /api/v1/jobs", &json!({ "queue": "q", "payload": "x" }));
    let (_, lease) = new.answer("POST /api/v1/lease", &json!({ "queues": ["q"] }));
    assert_eq!(lease["id"], job["id"]);
    let nodes = new.command(&["cluster"]);
    assert!(nodes.contains("leader") && nodes.contains("follower"), "{nodes}");
    let said = new.command(&["cluster", "step-down"]);
    assert!(said.contains(old.name), "{said}");
    wait_until("the other one leads", || new.leads());
    wait_until("the old one follows", || old.follows(new.name));
    // The worker's lease is as good as before.
    let token = lease["lease_token"].as_str().unwrap();
    let (status, _) = old.answer(&format!("POST /api/v1/leases/{token}/complete"), &json!({}));
    assert_eq!(status, 204);
    let (_, audit) = old.answer("GET /api/v1/audit?action=step_down", &Value::Null);
    assert_eq!(audit["entries"][0]["detail"].as_str().map(|it| it.contains(old.name)), Some(true));
}

#[test]
fn the_database_is_killed_and_comes_back() {
    let mut cluster = Cluster::start(&["one", "two"]);
    // A node that finds no database at its start ends.
    cluster.leader();
    let load = Load::start(&cluster);
    for _ in 0..3 {
        load.await_more();
        cluster.servers.kill();
        wait_until("nobody answers without it", || cluster.nodes.iter().all(|node| !node.leads()));
        cluster.servers.restart();
        load.await_more();
    }
    load.settle(&cluster);
}

#[test]
fn the_database_fails_over_to_its_standby() {
    let mut primary = PostgresServer::start(&["max_connections=100"]);
    let standby = primary.standby("other");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'");
    primary.sql("SELECT pg_reload_conf()");
    wait_until("the standby is waited for", || {
        let synced = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        primary.sql(synced) == "1"
    });
    let url = format!("postgres://spindle@{},{}/postgres", primary.address(), standby.address());
    let cluster = Cluster::start_on(standby, &url, &["one", "two"]);
    cluster.leader();
    let load = Load::start(&cluster);
    load.await_more();
    primary.kill();
    cluster.servers.promote();
    load.await_more();
    load.settle(&cluster);
}
