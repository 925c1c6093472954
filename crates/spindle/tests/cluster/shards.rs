//! Queues on several logs, each led by a node of its own.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use spindle_testkit::{
    Certificates, NatsServers, PATIENCE, PostgresServer, TokensFile, wait_until,
};

use crate::accountant::Load;
use crate::harness::{Cluster, Node, database};

const SHARDS: [&str; 2] = ["--shards", "3"];
/// On all of the three.
const QUEUES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

fn start<S>(servers: S, url: &str, names: &[&'static str]) -> Cluster<S> {
    let nodes = names.iter().map(|name| Node::new(url.to_owned(), name)).collect();
    let mut cluster = Cluster { nodes, servers };
    cluster.nodes.iter_mut().for_each(|node| node.start_with(&SHARDS));
    are_ready(&cluster);
    cluster
}

/// Each shard has a leader, by what all nodes say.
fn are_ready<S>(cluster: &Cluster<S>) {
    for node in &cluster.nodes {
        wait_until("each shard has a leader", || node.leads());
    }
}

/// The leader of each shard, by what a node says.
fn leaders(node: &Node) -> Vec<Value> {
    let (_, said) = node.answer("GET /api/v1/cluster", &Value::Null);
    said["shards"].as_array().unwrap().iter().map(|shard| shard["leader"].clone()).collect()
}

fn nothing_is_lost<S>(mut cluster: Cluster<S>) {
    let load = Load::start_in(&cluster, &QUEUES);
    for (at, queue) in [0, 1, 2, 0].into_iter().zip(QUEUES) {
        load.await_more();
        // The move goes on whichever node is killed meanwhile. The queue's name puts it on one of the other two.
        move_elsewhere(&cluster.nodes[(at + 1) % 3], queue);
        cluster.nodes[at].kill();
        let (killed, other) = (json!(cluster.nodes[at].name), &cluster.nodes[(at + 1) % 3]);
        wait_until("others lead its shards", || {
            let leaders = leaders(other);
            !leaders.contains(&killed) && !leaders.contains(&Value::Null)
        });
        load.await_more();
        cluster.nodes[at].start_with(&SHARDS);
    }
    are_ready(&cluster);
    for queue in &QUEUES[..4] {
        wait_until("new jobs come to where it has moved", || {
            let (_, job) = cluster.nodes[0].answer("POST /api/v1/jobs", &json!({ "queue": queue }));
            let id = job["id"].as_u64().unwrap();
            load.acknowledge(id);
            Some(id >> 45) == moved(&cluster.nodes[0], queue)
        });
    }
    let acknowledged = load.settle_at(&cluster.nodes[0]);
    let shards: BTreeSet<u64> = acknowledged.iter().map(|id| id >> 45).collect();
    assert_eq!(shards, (0..3).collect(), "there were jobs on each");
    let codes: Vec<_> = cluster.nodes.iter_mut().map(Node::end).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(0)]);
}

/// Where the map has a queue that was moved.
fn moved(node: &Node, queue: &str) -> Option<u64> {
    let (_, said) = node.answer("GET /api/v1/cluster", &Value::Null);
    said["moved"].as_array()?.iter().find(|it| it["name"] == queue)?["shard"].as_u64()
}

/// Moves a queue to a shard that it is not on.
fn move_elsewhere(node: &Node, queue: &str) {
    for to in 0..3 {
        let asked = format!("POST /api/v1/queues/{queue}/move?to={to}");
        let (status, said) = node.answer(&asked, &Value::Null);
        assert_eq!(status, 202, "{said}");
        if !said["drains"].is_null() {
            return;
        }
    }
    panic!("{queue} is on no shard");
}

#[test]
fn nothing_is_lost_or_done_again_when_nodes_are_killed_that_lead_shards_in_a_database() {
    let database: PostgresServer = database();
    let url = database.url("spindle");
    nothing_is_lost(start(database, &url, &["one", "two", "three"]));
}

#[test]
fn nothing_is_lost_or_done_again_when_nodes_are_killed_that_lead_shards_on_nats() {
    let servers = NatsServers::three();
    let (hosts, monitoring) = (servers.addresses().join(","), servers.monitoring().join(","));
    let url = format!("nats://{hosts}/jobs?monitoring={monitoring}");
    nothing_is_lost(start(servers, &url, &["one", "two", "three"]));
}

/// TLS ends at the node that a client connects to; the client's identity is passed on to the shards, which
/// require one.
#[test]
fn shards_know_who_has_come_to_a_node_with_a_certificate() {
    let certificates = Certificates::new();
    let tokens = TokensFile::of(
        "[[token]]\nname = 'w'\ncertificate = 'w.example.com'\nroles = ['submit']\nqueues = ['*']\n",
    );
    let (files, tokens_path) = (certificates.server(), tokens.path());
    let ca = certificates.ca();
    let given =
        [&tokens_path, &files.certificate, &files.key, &ca].map(|path| path.to_str().unwrap());
    let names = ["--tokens", "--tls-cert", "--tls-key", "--tls-client-ca"];
    let mut more = vec!["--require-auth", "--workq-tls", "required"];
    names.iter().zip(given).for_each(|(name, path)| more.extend([name, path]));
    more.extend(SHARDS);
    let database = database();
    let url = database.url("spindle");
    let mut nodes = ["one", "two"].map(|name| Node::new(url.clone(), name));
    nodes.iter_mut().for_each(|node| node.start_with(&more));
    for node in &nodes {
        wait_until("each shard has a leader", || node.leads());
    }
    let connect = |node: &Node, identity| {
        let stream = TcpStream::connect(&node.workq).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(certificates.connect(stream, identity))
    };
    let mut number = 0;
    let mut added = |client: &mut BufReader<spindle_testkit::TlsClient>, queue: &str| {
        number += 1;
        let id = format!("6ba7b810-9dad-11d1-80b4-{number:012}");
        write!(client.get_mut(), "add {id} {queue} 60000 60000 0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_line(&mut answer).unwrap();
        answer
    };
    for node in &nodes {
        let mut known = connect(node, Some(certificates.client("w.example.com")));
        let mut unknown = connect(node, None);
        for queue in QUEUES {
            assert_eq!(added(&mut known, queue), "+OK\r\n");
            let refused = added(&mut unknown, queue);
            assert!(refused.starts_with("-CLIENT-ERROR"), "{refused}");
        }
    }
}

/// A node that is started first leads all shards until the nodes are there that are meant to lead them.
#[test]
fn leaders_are_spread_over_the_nodes_and_people_move_one() {
    let database = database();
    let url = database.url("spindle");
    let mut cluster = start(database, &url, &["one"]);
    assert_eq!(leaders(&cluster.nodes[0]), [json!("one"), json!("one"), json!("one")]);
    for name in ["two", "three"] {
        let mut node = Node::new(url.clone(), name);
        node.start_with(&SHARDS);
        cluster.nodes.push(node);
    }
    // The names decide which node is to lead which shard.
    let spread = [json!("one"), json!("two"), json!("two")];
    wait_until("two takes its shards over", || leaders(&cluster.nodes[0]) == spread);
    let listed = cluster.nodes[1].command(&["cluster"]);
    let rows: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["0", "one", "leader"], "{listed}");
    assert_eq!(rows.len(), 3 * 3, "{listed}");
    let logs = cluster.nodes[1].command(&["cluster", "log"]);
    let rows: Vec<Vec<&str>> = logs.lines().map(|line| line.split('\t').collect()).collect();
    let shards: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(shards, ["0", "1", "2"], "{logs}");
    let is_well = |row: &Vec<&str>| row[2..] == ["leader", "current", "yes", "-"];
    assert!(rows.iter().all(is_well), "{logs}");
    let logs = cluster.nodes[1].command(&["cluster", "log", "--json"]);
    let logs = logs.lines().map(|line| serde_json::from_str(line).unwrap());
    let logs: Vec<Value> = logs.collect();
    assert_eq!((logs.len(), &logs[2]["shard"]), (3, &json!(2)), "{logs:?}");
    assert_eq!(logs[2]["servers"][0]["synchronous"], true, "{logs:?}");

    let said = cluster.nodes[1].command(&["cluster", "step-down", "--shard", "2"]);
    assert!(said.starts_with("two steps down"), "{said}");
    wait_until("another one leads", || {
        let leader = &leaders(&cluster.nodes[0])[2];
        !leader.is_null() && leader != "two"
    });
    let refused = cluster.nodes[1].ask("POST /api/v1/cluster/step-down", &Value::Null).unwrap();
    assert_eq!((refused.0, &refused.1["code"]), (501, &json!("name_a_shard")), "{}", refused.1);
}
