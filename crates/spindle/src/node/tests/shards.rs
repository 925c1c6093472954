//! Queues on several logs.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_router::Placement;
use spindle_workq::client::Client;
use spindle_workq::wire::{NewJob, Uuid};

use super::*;

const SHARDS: u8 = 3;

fn logs() -> Vec<SharedMemoryLog> {
    (0..SHARDS).map(|_| SharedMemoryLog::new()).collect()
}

/// A queue on each shard, by shard.
fn queues() -> Vec<String> {
    let of = |shard| {
        let mut names = (0..).map(|number| format!("queue-{number}"));
        names.find(|name| Placement::over(SHARDS).of(name.as_bytes()).0 == shard).unwrap()
    };
    (0..SHARDS).map(of).collect()
}

fn are_ready(servers: &[&Server]) {
    for server in servers {
        wait_until("each shard has a leader", || server.is_ready_as("ok"));
    }
}

/// The shards that a server leads, by what it says itself.
fn led_by(server: &Server) -> BTreeSet<u64> {
    let (_, cluster) = server.answer("GET /api/v1/cluster", &Value::Null);
    let leads = |shard: &&Value| shard["leader"] == json!(server.name);
    let shards = cluster["shards"].as_array().unwrap().iter();
    shards.filter(leads).map(|shard| shard["shard"].as_u64().unwrap()).collect()
}

#[test]
fn clients_of_any_node_reach_queues_on_all_shards_whoever_leads_them() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    assert_eq!(led_by(&one).len(), usize::from(SHARDS));
    let mut two = Server::start_on(&logs, "two");
    are_ready(&[&one, &two]);
    let mut ids = Vec::new();
    for (queue, shard) in queues().iter().zip(0_u64..) {
        let (status, job) = two.answer("POST /api/v1/jobs", &json!({ "queue": queue }));
        assert_eq!(status, 201, "{job}");
        let id = job["id"].as_u64().unwrap();
        assert_eq!(id >> 45, shard, "its id says where it is");
        ids.push(id);
    }
    for server in [&one, &two] {
        for id in &ids {
            let found = server.answer(&format!("GET /api/v1/jobs/{id}"), &Value::Null);
            assert_eq!(found.0, 200, "{}", found.1);
        }
        let (_, listed) = server.answer("GET /api/v1/jobs", &Value::Null);
        let listed = listed["jobs"].as_array().unwrap().iter();
        let listed: BTreeSet<u64> = listed.map(|job| job["id"].as_u64().unwrap()).collect();
        assert_eq!(listed, ids.iter().copied().collect());
    }
    // One that goes in order hands its shards over, with all that was acknowledged.
    assert_eq!(one.end(), Code::Ok);
    are_ready(&[&two]);
    assert_eq!(led_by(&two).len(), usize::from(SHARDS));
    for id in &ids {
        assert_eq!(two.answer(&format!("GET /api/v1/jobs/{id}"), &Value::Null).0, 200);
    }
    assert_eq!(two.end(), Code::Ok);
}

fn job(id: Uuid, queue: &str) -> NewJob {
    NewJob {
        id,
        name: Bytes::copy_from_slice(queue.as_bytes()),
        ttr_ms: 60_000,
        ttl_ms: 60_000,
        priority: 0,
        attempts_max: 0,
        fails_max: 0,
        payload: Bytes::from_static(b"hello"),
    }
}

#[test]
fn a_worker_of_workq_waits_at_several_shards_through_any_node() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    let mut two = Server::start_on(&logs, "two");
    are_ready(&[&one, &two]);
    let queues = queues();
    let mut worker = Client::connect(&*two.workq, PATIENCE).unwrap();
    let mut client = Client::connect(&*one.workq, PATIENCE).unwrap();
    for (queue, number) in queues.iter().zip(1_u8..) {
        let id = Uuid::from_bytes([number; 16]);
        let leased = thread::scope(|scope| {
            let waits = scope.spawn(|| worker.lease(&queues, 60_000).unwrap());
            client.add(&job(id, queue)).unwrap();
            waits.join().unwrap()
        });
        assert_eq!((leased.id, &*leased.name), (id, queue.as_bytes()));
        worker.complete(id, Bytes::new()).unwrap();
    }
    drop((worker, client));
    assert_eq!((one.end(), two.end()), (Code::Ok, Code::Ok));
}

#[test]
fn a_server_that_means_another_number_of_shards_ends_and_says_why() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    for (meant, name) in [(&logs[..2], "fewer"), (&logs[..1], "none")] {
        let error = Server::start_on(meant, name).ended().unwrap_err();
        let said = exit::whole(&error);
        assert!(said.contains("it is shard 0 of 3, counted from 0"), "{said}");
    }
    are_ready(&[&one]);
    assert_eq!(one.end(), Code::Ok);
}
