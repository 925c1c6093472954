//! What a worker does with rows.

use serde_json::json;

use crate::{
    peer::until,
    world::{World, connect},
};

#[tokio::test]
async fn polled_rows_are_run_and_their_ends_written() {
    let world = World::new();
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    peer.data("pause", json!({"targets": ["1/high"]})).await;
    for (id, target) in
        [(1, "low"), (2, "normal"), (3, "normal"), (4, "normal"), (8, "nosuch"), (9, "1/high")]
    {
        world.table.insert(id, target, "waiting");
    }
    assert_eq!(peer.data("poll", json!({"targets": ["low", "normal"]})).await, json!("ok"));
    until("four are done", || world.table.count("done") == 4).await;
    assert_eq!(world.table.line(1), "done ok 0 NULL");
    assert_eq!(world.table.line(2), "done ok 0 NULL");
    assert_eq!(world.table.line(3), "done fail 3 NULL");
    assert_eq!(world.table.line(4), "done fail NULL SIGKILL");
    assert_eq!((world.table.line(8), world.table.line(9)), ("waiting".into(), "waiting".into()));
    let finish = world.table.row(1).finish.unwrap();
    assert_eq!((finish.stdout.as_str(), finish.stderr.as_str()), ("hello 1\n", "e1"));
    assert!(world.table.row(1).started_s > 0 && finish.finished_s > 0);
    assert_eq!(world.table.row(1).sig, None);
    peer.data("continue", json!({})).await;
    peer.data("poll", json!({})).await;
    until("the last is done", || world.table.line(9) == "done ok 0 NULL").await;
    assert_eq!(world.table.line(8), "waiting");
}

#[tokio::test]
async fn manual_rows_are_run_and_their_results_answered() {
    let world = World::new();
    let worker = world.worker("").await;
    for (id, target, status) in [
        (11, "low", "manual"),
        (12, "normal", "manual"),
        (13, "normal", "manual"),
        (14, "normal", "manual"),
        (15, "normal", "waiting"),
        (16, "normal", "done"),
        (18, "nosuch", "manual"),
    ] {
        world.table.insert(id, target, status);
    }
    let mut peer = connect(&worker).await;
    let answer = peer
        .ask(r#"[0,{"no":3,"type":"run-manual","data":{"ids":[11,11,12,13,14,15,16,18,999]}}]"#)
        .await;
    assert_eq!(
        answer,
        concat!(
            r#"[1,{"no":3,"data":{"jobs":{"#,
            r#""11":{"result":"ok","code":0,"signal":null,"stdout":"hello 11\n","stderr":"e11"},"#,
            r#""12":{"result":"ok","code":0,"signal":null,"stdout":"hello 12\n","stderr":"e12"},"#,
            r#""13":{"result":"fail","code":3,"signal":null,"stdout":"","stderr":"err 13\n"},"#,
            r#""14":{"result":"fail","code":null,"signal":"SIGKILL","stdout":"start 14\n","stderr":""}},"#,
            r#""errors":{"15":"status = waiting != manual","16":"status = done != manual","#,
            r#""18":"target 'nosuch' not found (job id=18)","999":"job 999 not found"}}}]"#,
        )
    );
    assert_eq!(world.table.line(14), "done fail NULL SIGKILL");
    assert_eq!(world.table.line(15), "ignored");
    assert_eq!(world.table.line(18), "ignored");
    // The original overwrote this one.
    assert_eq!(world.table.line(16), "done");
    assert_eq!(
        peer.ask(r#"[0,{"no":4,"type":"run-manual","data":{"ids":[11]}}]"#).await,
        r#"[1,{"no":4,"data":{"errors":{"11":"status = done != manual"}}}]"#
    );
}

#[tokio::test]
async fn a_second_client_for_one_manual_row_is_refused() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(25, "normal", "manual");
    let mut first = connect(&worker).await;
    first.send(r#"[0,{"no":5,"type":"run-manual","data":{"ids":[25]}}]"#).await;
    until("it runs", || world.table.line(25) == "running").await;
    let mut second = connect(&worker).await;
    assert_eq!(
        second.ask(r#"[0,{"no":1,"type":"run-manual","data":{"ids":[25]}}]"#).await,
        r#"[1,{"no":1,"error":"another client is already waiting for job 25"}]"#
    );
    let status = second.status().await;
    assert_eq!(status["jobPromisesCount"], 1);
    assert_eq!(status["targets"]["normal"]["length"], 1);
    world.let_go();
    assert_eq!(
        first.hear().await,
        r#"[1,{"no":5,"data":{"jobs":{"25":{"result":"ok","code":0,"signal":null,"stdout":"slow 25\n","stderr":""}}}}]"#
    );
}

#[tokio::test]
async fn a_manual_job_runs_on_when_its_client_goes() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(25, "normal", "manual");
    let mut client = connect(&worker).await;
    client.send(r#"[0,{"no":5,"type":"run-manual","data":{"ids":[25]}}]"#).await;
    until("it runs", || world.table.line(25) == "running").await;
    drop(client);
    world.let_go();
    until("it is done", || world.table.line(25) == "done ok 0 NULL").await;
}

#[tokio::test]
async fn a_thousand_manual_rows_are_answered_at_once() {
    let world = World::new();
    let worker = world.worker("").await;
    let ids: Vec<i64> = (0..1000).map(|n| n * 10 + 1).collect();
    for id in &ids {
        world.table.insert(*id, "1/high", "manual");
    }
    let mut peer = connect(&worker).await;
    let results = peer.data("run-manual", json!({ "ids": ids })).await;
    let jobs = results["jobs"].as_object().unwrap();
    assert_eq!(jobs.len(), 1000);
    assert!(jobs.values().all(|job| job["result"] == "ok"));
    assert_eq!(world.table.count("done"), 1000);
}

#[tokio::test]
async fn signals_reach_running_jobs_only() {
    let world = World::new();
    let worker = world.worker("").await;
    world.table.insert(36, "low", "waiting");
    world.table.insert(46, "low", "waiting");
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    let output = || std::fs::read_to_string(world.file("runs")).unwrap_or_default();
    until("the first runs", || output() == "36\n").await;
    // Queued, unknown, and a signal that does not exist.
    assert_eq!(
        peer.ask(
            r#"[0,{"no":7,"type":"send-signal","data":{"jobs":{"46":15,"37":15,"36":9999}}}]"#
        )
        .await,
        r#"[1,{"no":7,"data":{"36":false,"37":false,"46":false}}]"#
    );
    until("its trap is set", || world.file("trapped").exists()).await;
    assert_eq!(peer.data("send-signal", json!({"jobs": {"36": 15}})).await, json!({"36": true}));
    until("it ends", || world.table.line(36).starts_with("done")).await;
    until("the second runs", || output() == "36\n46\n").await;
    let sent = peer.data("send-signal", json!({"jobs": {"46": "SIGKILL"}})).await;
    assert_eq!(sent, json!({"46": true}));
    until("it is killed", || world.table.line(46) == "done fail NULL SIGKILL").await;
}

#[tokio::test]
async fn rows_beyond_the_concurrency_are_accepted_and_wait_their_turn() {
    let world = World::new();
    let worker = world.worker("").await;
    for id in [55, 65, 75] {
        world.table.insert(id, "low", "waiting");
    }
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({"targets": ["low"]})).await;
    until("the first runs", || world.table.line(55) == "running").await;
    assert_eq!(
        (world.table.line(65), world.table.line(75)),
        ("accepted".into(), "accepted".into())
    );
    assert_eq!(peer.status().await["targets"]["low"]["length"], 3);
    // The result is not known before the end; the original wrote `ok` here.
    assert_eq!(world.table.row(55).finish, None);

    peer.data("pause", json!({"targets": ["low"]})).await;
    let removed = peer.ask(r#"[0,{"no":14,"type":"remove-target","data":{"target":"low"}}]"#).await;
    assert_eq!(removed, r#"[1,{"no":14,"error":"queue is not empty"}]"#);
    world.let_go();
    until("the first is done", || world.table.line(55) == "done ok 0 NULL").await;
    // Paused: what is queued stays, what is polled is not even taken.
    world.table.insert(81, "low", "waiting");
    peer.data("poll", json!({"targets": ["low"]})).await;
    let status = peer.status().await;
    assert_eq!(status["targets"]["low"], json!({"paused": true, "concurrency": 1, "length": 2}));
    assert_eq!((world.table.line(65), world.table.line(81)), ("accepted".into(), "waiting".into()));

    peer.data("continue", json!({"targets": ["low"]})).await;
    until("all are done", || world.table.count("done") == 4).await;
    assert_eq!(world.runs(), [55, 65, 75, 81]);
}

#[tokio::test]
async fn one_poll_drains_more_rows_than_the_fetch_limit() {
    let world = World::new();
    let worker = world.worker("sqlite_fetch_limit = 7").await;
    for id in 0..50 {
        world.table.insert(id * 10 + 1, "normal", "waiting");
    }
    connect(&worker).await.data("poll", json!({})).await;
    until("all are done", || world.table.count("done") == 50).await;
}

#[tokio::test]
async fn rows_that_were_waiting_when_the_worker_came_are_run() {
    let world = World::new();
    world.table.insert(1, "low", "waiting");
    let _worker = world.worker("").await;
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;
}

#[tokio::test]
async fn output_over_the_buffer_is_cut_and_the_client_is_told() {
    let world = World::new();
    let worker = world.worker("max_output_buffer = 1000").await;
    world.table.insert(97, "normal", "manual");
    let mut peer = connect(&worker).await;
    let results = peer.data("run-manual", json!({"ids": [97]})).await;
    assert_eq!(results["jobs"]["97"]["stdout"], "x".repeat(1000));
    assert_eq!(results["jobs"]["97"]["stdout_cut"], true);
    assert_eq!(world.table.row(97).finish.unwrap().stdout.len(), 1000);
}

#[tokio::test]
async fn a_launcher_that_is_not_there_fails_its_jobs_and_nothing_else() {
    let world = World::new();
    let mut config = world.config("[targets]\nlow = 1\n");
    config.launcher =
        spindle_jobd::launcher::Launcher::new(spindle_jobd::launcher::LauncherSettings {
            template: "/no/such/launcher {id}".to_owned(),
            cwd: None,
            environment: Vec::new(),
            output_bytes_max: 1000,
            signal_group: false,
        })
        .unwrap();
    let worker = world.start(&config).await;
    world.table.insert(1, "low", "waiting");
    connect(&worker).await.data("poll", json!({})).await;
    until("it failed", || world.table.line(1) == "done fail NULL NULL").await;
    assert!(world.table.row(1).finish.unwrap().stderr.starts_with("cannot start"));
}

#[tokio::test]
async fn several_workers_on_one_table_run_each_row_once() {
    let world = World::new();
    let mut workers = Vec::new();
    for name in ["a", "b", "c"] {
        let mut config = world.config("sqlite_fetch_limit = 10\n[targets]\nnormal = 4\n");
        config.state_file = world.file(&format!("{name}.state"));
        workers.push(world.start(&config).await);
    }
    for id in 0..200 {
        world.table.insert(id * 10 + 1, "normal", "waiting");
    }
    for worker in &workers {
        connect(worker).await.data("poll", json!({})).await;
    }
    until("all are done", || world.table.count("done") == 200).await;
    let mut runs = world.runs();
    runs.sort_unstable();
    assert_eq!(runs, (0..200).map(|id| id * 10 + 1).collect::<Vec<_>>());
}
