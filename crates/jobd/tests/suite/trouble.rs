//! Databases that go away, lose answers, refuse values; people who change rows.

use std::sync::atomic::Ordering;

use serde_json::json;
use spindle_jobd::table::Status;

use crate::{
    peer::until,
    world::{World, connect},
};

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_waited_for() {
    let world = World::new();
    world.table.away.store(true, Ordering::SeqCst);
    world.table.insert(1, "low", "waiting");
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    assert_eq!(peer.data("poll", json!({})).await, json!("ok"));
    let mut trouble = json!(null);
    while trouble.is_null() {
        trouble = peer.status().await["tableTrouble"].clone();
    }
    assert_eq!(trouble, "a table in memory is not available: away");
    world.table.away.store(false, Ordering::SeqCst);
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;
    assert_eq!(peer.status().await.get("tableTrouble"), None);
}

#[tokio::test]
async fn a_result_is_kept_until_the_database_is_back() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(5, "low", "waiting");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("it runs", || world.table.line(5) == "running").await;
    world.table.away.store(true, Ordering::SeqCst);
    world.let_go();
    // Its slot is free: the process has ended, but its end is not written to the row yet.
    while peer.status().await["targets"]["low"]["length"] != 0 {}
    assert_eq!(world.table.line(5), "running");
    world.table.away.store(false, Ordering::SeqCst);
    until("it is written", || world.table.line(5) == "done ok 0 NULL").await;
    assert_eq!(world.runs(), [5]);
}

#[tokio::test]
async fn rows_of_a_claim_whose_answer_was_lost_are_run_once() {
    let world = World::new();
    let worker = world.worker("sqlite_fetch_limit = 5").await;
    let mut peer = connect(&worker).await;
    // The start's own claims are over.
    world.table.insert(1, "normal", "waiting");
    peer.data("poll", json!({})).await;
    until("the first is done", || world.table.count("done") == 1).await;
    for id in 1..20 {
        world.table.insert(id * 10 + 2, "normal", "waiting");
    }
    world.table.lost_answers.store(3, Ordering::SeqCst);
    peer.data("poll", json!({})).await;
    until("all are done", || world.table.count("done") == 20).await;
    let mut runs = world.runs();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), world.runs().len(), "a row was run twice");
}

#[tokio::test]
async fn a_manual_client_hears_that_the_database_is_away_and_its_row_stays_manual() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(1, "low", "waiting");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("the start is over", || world.table.count("done") == 1).await;
    world.table.insert(2, "low", "manual");
    world.table.lost_answers.store(1, Ordering::SeqCst);
    assert_eq!(
        peer.ask(r#"[0,{"no":1,"type":"run-manual","data":{"ids":[2]}}]"#).await,
        r#"[1,{"no":1,"error":"a table in memory is not available: the answer was lost"}]"#
    );
    // It had been accepted all the same.
    until("it is given back", || world.table.line(2) == "manual").await;
    let results = peer.data("run-manual", json!({"ids": [2]})).await;
    assert_eq!(results["jobs"]["2"]["result"], "ok");
    assert_eq!(world.runs(), [1, 2]);
}

#[tokio::test]
async fn output_the_database_refuses_is_left_out_and_holds_up_nobody() {
    let world = World::new();
    world.table.refused_outputs.lock().insert(1);
    world.table.refused_rows.lock().insert(11);
    for id in [1, 11, 21] {
        world.table.insert(id, "normal", "waiting");
    }
    let worker = world.worker("").await;
    until("two are done", || world.table.count("done") == 2).await;
    assert_eq!(world.table.row(1).finish.unwrap().stdout, "");
    assert_eq!(world.table.row(21).finish.unwrap().stdout, "hello 21\n");
    assert_eq!(world.table.line(11), "running");
    let mut peer = connect(&worker).await;
    while peer.status().await["targets"]["normal"]["length"] != 0 {}
}

#[tokio::test]
async fn an_accepted_row_that_somebody_else_changed_is_not_run() {
    let world = World::new();
    for id in [5, 11, 21, 31] {
        world.table.insert(id, "low", "waiting");
    }
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    until("the others are queued", || world.table.line(31) == "accepted").await;
    world.table.delete(11);
    world.table.change(21, |row| {
        row.status = Status::Waiting;
        row.sig = None;
    });
    world.let_go();
    until("the last is done", || world.table.line(31) == "done ok 0 NULL").await;
    assert_eq!(world.runs(), [5, 31]);
    assert_eq!(peer.status().await["targets"]["low"]["length"], 0);
    peer.data("poll", json!({})).await;
    until("the one set back is done", || world.table.line(21) == "done ok 0 NULL").await;
}

#[tokio::test]
async fn a_running_row_that_is_set_back_is_not_started_twice_at_the_same_time() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(5, "normal", "waiting");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("it runs", || world.runs() == [5]).await;
    world.table.change(5, |row| row.status = Status::Waiting);
    let claims = world.table.claims.load(Ordering::SeqCst);
    peer.data("poll", json!({})).await;
    until("the poll was done", || world.table.claims.load(Ordering::SeqCst) > claims).await;
    assert_eq!(world.table.line(5), "waiting");
    world.let_go();
    until("it is done", || world.table.line(5) == "done ok 0 NULL").await;
    assert_eq!(world.runs(), [5]);
}

#[tokio::test]
async fn starts_and_ends_share_transactions() {
    let world = World::new();
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    peer.data("pause", json!({})).await;
    for id in 0..100 {
        world.table.insert(id * 10 + 1, "1/high", "waiting");
    }
    let before = world.table.writes.load(Ordering::SeqCst);
    peer.data("poll", json!({})).await;
    peer.data("continue", json!({})).await;
    until("all are done", || world.table.count("done") == 100).await;
    let writes = world.table.writes.load(Ordering::SeqCst) - before;
    assert!(writes < 200, "{writes} writes for 100 starts and 100 ends");
}
