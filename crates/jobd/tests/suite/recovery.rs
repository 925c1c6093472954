//! Ends and restarts of a worker.

use serde_json::{Value, json};

use crate::{
    peer::until,
    world::{TARGETS, World, connect, ended},
};

#[tokio::test]
async fn a_stopped_worker_finishes_what_runs_and_gives_back_what_waits() {
    let world = World::new();
    let mut worker = world.worker("").await;
    for id in [5, 15, 21] {
        world.table.insert(id, "low", "waiting");
    }
    world.table.insert(25, "low", "manual");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("the first runs", || world.table.line(5) == "running").await;
    let mut client = connect(&worker).await;
    client.send(r#"[0,{"no":9,"type":"run-manual","data":{"ids":[25]}}]"#).await;
    until("the manual one is queued", || world.table.line(25) == "accepted").await;

    worker.stop();
    assert_eq!(
        client.hear().await,
        r#"[1,{"no":9,"data":{"errors":{"25":"jobd is shutting down"}}}]"#
    );
    until("the others are back", || world.table.count("waiting") == 2).await;
    assert_eq!(world.table.line(25), "manual");
    assert_eq!(
        peer.ask(r#"[0,{"no":1,"type":"poll"}]"#).await,
        r#"[1,{"no":1,"error":"jobd is shutting down"}]"#
    );
    assert_eq!(world.table.line(5), "running");
    world.let_go();
    ended(&mut worker).await;
    assert_eq!(world.table.line(5), "done ok 0 NULL");
    assert_eq!(world.runs(), [5]);
}

#[tokio::test]
async fn a_client_of_a_stopping_worker_still_gets_its_result() {
    let world = World::new();
    let mut worker = world.worker("").await;
    world.table.insert(25, "low", "manual");
    let mut client = connect(&worker).await;
    client.send(r#"[0,{"no":9,"type":"run-manual","data":{"ids":[25]}}]"#).await;
    until("it runs", || world.table.line(25) == "running").await;
    worker.stop();
    world.let_go();
    ended(&mut worker).await;
    assert!(client.hear().await.contains(r#""stdout":"slow 25\n""#));
    client.is_closed().await;
}

#[tokio::test]
async fn jobs_that_run_beyond_the_shutdown_timeout_are_signalled() {
    let world = World::new();
    let mut worker = world.worker("shutdown_timeout = 0.1").await;
    world.table.insert(6, "normal", "waiting");
    connect(&worker).await.data("poll", json!({})).await;
    until("its trap is set", || world.file("trapped").exists()).await;
    worker.stop();
    ended(&mut worker).await;
    assert_eq!(world.table.line(6), "done ok 0 NULL");
    assert_eq!(world.table.row(6).finish.unwrap().stdout, "long 6\nterm\n");
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_the_timeout() {
    let world = World::new();
    let mut worker = world.worker("shutdown_timeout = 3600").await;
    world.table.insert(6, "normal", "waiting");
    connect(&worker).await.data("poll", json!({})).await;
    until("its trap is set", || world.file("trapped").exists()).await;
    worker.stop();
    worker.stop();
    ended(&mut worker).await;
    assert_eq!(world.table.line(6), "done ok 0 NULL");
}

#[tokio::test]
async fn a_result_that_cannot_be_written_before_the_end_is_written_by_the_next_start() {
    let world = World::new();
    let mut worker = world.worker("").await;
    world.table.insert(5, "low", "waiting");
    connect(&worker).await.data("poll", json!({})).await;
    until("it runs", || world.table.line(5) == "running").await;
    world.table.away.store(true, std::sync::atomic::Ordering::SeqCst);
    worker.stop();
    world.let_go();
    ended(&mut worker).await;
    assert_eq!(world.table.line(5), "running");
    assert!(world.file("w1.state.results").exists());

    world.table.away.store(false, std::sync::atomic::Ordering::SeqCst);
    let mut worker = world.worker("").await;
    until("its result is written", || world.table.line(5) == "done ok 0 NULL").await;
    let mut peer = connect(&worker).await;
    assert_eq!(peer.status().await.get("unfinished"), None::<&Value>);
    worker.stop();
    ended(&mut worker).await;
    assert!(!world.file("w1.state.results").exists());
    assert_eq!(world.runs(), [5]);
}

#[tokio::test]
async fn two_workers_cannot_share_a_state_file() {
    let world = World::new();
    let _first = world.worker("").await;
    let config = world.config(TARGETS);
    let table = std::sync::Arc::clone(&world.table);
    let second = spindle_jobd::worker::Worker::start(&config, table).await;
    assert!(second.unwrap_err().to_string().contains("another jobd runs with it"));
}

#[tokio::test]
async fn a_reload_changes_the_targets_and_loses_no_job() {
    let world = World::new();
    let worker = world.worker("").await;
    for id in [5, 15] {
        world.table.insert(id, "low", "waiting");
    }
    world.table.insert(1, "new", "waiting");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until("both are taken", || world.table.line(15) == "accepted").await;
    worker.retarget(world.config("[targets]\nnormal = 8\nnew = 1\n").targets);
    until("the new target's row is run", || world.table.line(1) == "done ok 0 NULL").await;
    let status = peer.status().await;
    assert_eq!(status["targets"]["normal"]["concurrency"], 8);
    assert_eq!(
        peer.ask(r#"[0,{"no":1,"type":"poll","data":{"targets":["low"]}}]"#).await,
        r#"[1,{"no":1,"error":"invalid target 'low'"}]"#
    );
    world.let_go();
    until("the old target's rows are done", || world.table.count("done") == 3).await;
    assert_eq!(peer.status().await["targets"].get("low"), None);
}
