//! Rows that find a free slot are claimed and made `running` in one transaction. What happens when
//! the slot is gone by the time the claim is done.

use std::{sync::atomic::Ordering, time::Instant};

use serde_json::json;

use crate::{
    peer::{DEADLINE, Peer, until},
    world::{World, connect, ended},
};

/// Waits until the worker has the one row and does not run it.
async fn until_queued(peer: &mut Peer) {
    let give_up = Instant::now() + DEADLINE;
    while peer.status().await["targets"]["low"]["length"] != 1 {
        assert!(Instant::now() < give_up, "the row is not queued");
    }
}

#[tokio::test]
async fn a_row_that_finds_a_slot_runs_after_one_transaction() {
    let world = World::new();
    let worker = world.worker("").await;
    for id in [5, 15] {
        world.table.insert(id, "low", "waiting");
    }
    connect(&worker).await.data("poll", json!({})).await;
    until("the first runs", || world.runs() == [5]).await;
    // There is one slot: the other one waits for it.
    assert_eq!((world.table.line(5), world.table.line(15)), ("running".into(), "accepted".into()));
    assert!(world.table.row(5).started_s > 0);
    assert_eq!(world.table.writes.load(Ordering::SeqCst), 0);
    world.let_go();
    until("both are done", || world.table.count("done") == 2).await;
    assert_eq!(world.runs(), [5, 15]);
}

#[tokio::test]
async fn a_target_that_is_paused_during_a_claim_starts_none_of_its_rows() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(1, "low", "waiting");
    let answers = world.table.claim_answers.write().await;
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("it is claimed", || world.table.line(1) == "running").await;
    peer.data("pause", json!({})).await;
    drop(answers);
    until_queued(&mut peer).await;
    assert_eq!(world.runs(), Vec::<i64>::new());
    peer.data("continue", json!({})).await;
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;
    assert_eq!(world.runs(), [1]);
}

#[tokio::test]
async fn a_worker_that_stops_during_a_claim_gives_its_rows_back() {
    let world = World::new();
    let mut worker = world.worker("").await;
    world.table.insert(1, "low", "waiting");
    let answers = world.table.claim_answers.write().await;
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("it is claimed", || world.table.line(1) == "running").await;
    worker.stop();
    let refused = peer.ask(r#"[0,{"no":1,"type":"poll"}]"#).await;
    assert!(refused.contains("shutting down"), "{refused}");
    drop(answers);
    ended(&mut worker).await;
    let row = world.table.row(1);
    assert_eq!((&*row.status.to_string(), row.sig, row.started_s), ("waiting", None, 0));
    assert_eq!(world.runs(), Vec::<i64>::new());
}

#[tokio::test]
async fn a_paused_row_that_was_claimed_as_running_is_given_back_at_the_end() {
    let world = World::new();
    let mut worker = world.worker("").await;
    world.table.insert(1, "low", "manual");
    let answers = world.table.claim_answers.write().await;
    let mut client = connect(&worker).await;
    client.send(r#"[0,{"no":9,"type":"run-manual","data":{"ids":[1]}}]"#).await;
    until("it is claimed", || world.table.line(1) == "running").await;
    let mut peer = connect(&worker).await;
    peer.data("pause", json!({})).await;
    drop(answers);
    until_queued(&mut peer).await;
    worker.stop();
    assert!(client.hear().await.contains("jobd is shutting down"));
    ended(&mut worker).await;
    assert_eq!((world.table.line(1), world.table.row(1).started_s), ("manual".into(), 0));
    assert_eq!(world.runs(), Vec::<i64>::new());
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_leaves_no_row_running_that_does_not_run() {
    let world = World::new();
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    peer.data("pause", json!({"targets": ["normal"]})).await;
    world.table.insert(1, "low", "waiting");
    world.table.insert(2, "low", "waiting");
    world.table.lost_answers.store(1, Ordering::SeqCst);
    peer.data("poll", json!({})).await;
    until("both are done", || world.table.count("done") == 2).await;
    assert_eq!(world.runs(), [1, 2]);
    assert_eq!(peer.status().await.get("unfinished"), None);
}
