//! The log on NATS JetStream: what is special about it, and that nodes lead there as well.

use spindle_testkit::{NatsServers, NatsSetup, wait_until};

use crate::accountant::Load;
use crate::harness::{Cluster, Node};
use crate::refused::is_refused;

/// A stream on all servers, which are asked whether they sync.
fn url(servers: &NatsServers) -> String {
    let addresses = servers.addresses();
    let (hosts, replicas) = (addresses.join(","), addresses.len());
    let monitoring = servers.monitoring().join(",");
    format!("nats://{hosts}/jobs?replicas={replicas}&monitoring={monitoring}")
}

#[test]
fn nothing_is_lost_or_done_again_when_leaders_of_nodes_and_of_the_stream_are_killed() {
    let servers = NatsServers::three();
    let url = url(&servers);
    let mut cluster = Cluster::start_on(servers, &url, &["one", "two", "three"]);
    let load = Load::start(&cluster);
    for server in 0..2 {
        load.await_more();
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        assert_ne!(cluster.leader(), leader);
        load.await_more();
        cluster.nodes[leader].start();
        // One of two servers in turn may lead the stream; then the others elect a new leader.
        cluster.servers.crash(server);
        load.await_more();
        cluster.servers.restart(server);
        cluster.servers.await_ready();
    }
    load.settle(&cluster);
}

#[test]
fn servers_that_will_not_do_end_the_program_with_words() {
    let lazy = NatsServers::start(NatsSetup { sync_interval: "2m", ..NatsSetup::default() });
    is_refused(
        &["--log", &url(&lazy)],
        1,
        &["cannot open the shared log", "sync_interval: always"],
    );
    let mut node = Node::new(url(&lazy), "careless");
    node.start_with(&["--log-sync", "os"]);
    wait_until("it leads", || node.leads());
    is_refused(&["--log", "nats://h/jobs?token=secret"], 2, &["--log-password-file"]);
    is_refused(&["--log", "nats://h/jobs?replicas=2"], 2, &["--log", "1, 3 or 5 replicas"]);
    is_refused(&["--log", "nats://h/jobs?colour=red"], 2, &["--log", "colour"]);
    let unasked = format!("nats://{}/jobs?replicas=1", lazy.addresses()[0]);
    is_refused(&["--log", &unasked], 1, &["cannot open the shared log", "monitoring"]);
    is_refused(&["--log", "nats://h/a.b"], 2, &["--log", "cannot be the name of a stream"]);
}
