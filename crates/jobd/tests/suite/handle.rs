//! A master's handle, by which the program around it sees the workers and gives them orders.

use futures_util::future::{join, join_all};
use spindle_jobd_master::{
    Master, MasterHandle, NotMeant, Order, Selection, WorkerList, WorkerView,
    worker_status::TargetStatus,
};

use crate::{
    master::{asked, worker},
    peer::{Peer, until, until_told},
    world::{World, connect, ended, master},
};

const ALL: Selection = Selection { targets: None, workers: None };

async fn listed(handle: &MasterHandle) -> Vec<WorkerView> {
    handle.workers(0, 100).await.workers
}

fn of(targets: &[&str], workers: Option<&[u64]>) -> Selection {
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    Selection { targets: Some(targets), workers: workers.map(<[u64]>::to_vec) }
}

fn told(worker: &WorkerView, target: &str) -> TargetStatus {
    worker.last_status.as_ref().unwrap().status.targets[target]
}

/// Gives an order that every worker follows.
async fn give(handle: &MasterHandle, order: Order, selection: &Selection) {
    for outcome in handle.give(order, selection).unwrap().await {
        assert_eq!(outcome.done, Ok(()), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_worker_is_seen_paused_and_let_go_on() {
    let world = World::new();
    let master = master("").await;
    let handle = master.handle();
    let port = master.address().port();
    let mut daemon = world.worker(&format!("master_host = 127.0.0.1\nmaster_port = {port}")).await;
    until_told("it has registered", async || !listed(&handle).await.is_empty()).await;
    let found = listed(&handle).await;
    let seen = &found[0];
    assert_eq!((&seen.name[..], &seen.problem, found.len()), ("w1", &None, 1));
    assert_eq!(seen.targets, ["low", "normal", "1/high"]);
    let expected = TargetStatus { paused: false, concurrency: 3, length: 0 };
    assert_eq!(told(seen, "normal"), expected);

    give(&handle, Order::Pause, &of(&["normal"], Some(&[seen.id]))).await;
    // At once, although the last answer is younger than a second.
    let seen = listed(&handle).await.remove(0);
    assert!(told(&seen, "normal").paused && !told(&seen, "low").paused, "{seen:?}");
    world.table.insert(1, "normal", "waiting");
    world.table.insert(2, "low", "waiting");
    let mut client = connect(&daemon).await;
    client.data("poll", serde_json::Value::Null).await;
    until("the other is done", || world.table.line(2) == "done ok 0 NULL").await;
    assert_eq!(world.table.line(1), "waiting");
    give(&handle, Order::Continue, &ALL).await;
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;
    assert!(!told(&listed(&handle).await[0], "normal").paused);

    daemon.stop();
    ended(&mut daemon).await;
    until_told("nobody is left", async || listed(&handle).await.is_empty()).await;
}

#[tokio::test]
async fn what_is_not_there_is_named_and_nobody_is_asked() {
    let master = master("").await;
    let handle = master.handle();
    assert_eq!(handle.meant(&ALL), Ok(Vec::new()));
    let mut first = worker(&master, "same", &["t1", "t2"]).await;
    let mut second = worker(&master, "same", &["t2"]).await;
    for (selection, missing) in [
        (of(&["t1", "t9"], None), NotMeant::Target("t9".to_owned())),
        (of(&["t1"], Some(&[2])), NotMeant::Target("t1".to_owned())),
        (of(&["t1"], Some(&[1, 3])), NotMeant::Worker(3)),
    ] {
        assert_eq!(handle.meant(&selection), Err(missing.clone()));
        let given = handle.give(Order::Pause, &selection);
        assert_eq!(given.err(), Some(missing));
    }
    for worker in [&mut first, &mut second] {
        worker.hears_nothing().await;
    }
    let meant = |selection: &Selection| {
        let meant = handle.meant(selection).unwrap();
        meant.into_iter().map(|it| (it.worker, it.targets.join(" "))).collect::<Vec<_>>()
    };
    assert_eq!(meant(&of(&["t2"], None)), [(1, "t2".to_owned()), (2, "t2".to_owned())]);
    assert_eq!(meant(&of(&["t1"], None)), [(1, "t1".to_owned())]);
    assert_eq!(meant(&ALL), [(1, "t1 t2".to_owned()), (2, "t2".to_owned())]);
}

#[tokio::test]
async fn what_becomes_of_an_order_is_told_worker_by_worker() {
    let master = master("").await;
    let handle = master.handle();
    let mut refuses = worker(&master, "refuses", &["t1"]).await;
    let mut goes = worker(&master, "goes", &["t1"]).await;
    let outcomes = handle.give(Order::Pause, &of(&["t1"], None)).unwrap();
    let act = async {
        let (no, request) = asked(&mut refuses).await;
        assert_eq!(request, r#"[0,{"type":"pause","data":{"targets":["t1"]}}]"#);
        refuses.send(&format!(r#"[1,{{"no":{no},"error":"not now"}}]"#)).await;
        asked(&mut goes).await;
        drop(goes);
    };
    let (outcomes, ()) = join(outcomes, act).await;
    let done: Vec<_> = outcomes.into_iter().map(|it| (it.worker, it.done.unwrap_err())).collect();
    assert_eq!(done, [(1, "not now".to_owned()), (2, "worker 'goes' went away".to_owned())]);
}

/// Answers one `status` with this.
async fn answer(worker: &mut Peer, data: &str) {
    let (no, request) = asked(worker).await;
    assert_eq!(request, r#"[0,{"type":"status"}]"#);
    worker.send(&format!(r#"[1,{{"no":{no},"data":{data}}}]"#)).await;
}

fn status(length: u32) -> String {
    let memory = r#"{"rss":1,"heapTotal":1,"heapUsed":1,"external":0,"arrayBuffers":0}"#;
    let target = format!(r#"{{"paused":true,"concurrency":5,"length":{length}}}"#);
    format!(r#"{{"targets":{{"t1":{target}}},"jobPromisesCount":0,"memoryUsage":{memory}}}"#)
}

#[tokio::test]
async fn however_many_look_a_worker_is_asked_once() {
    let master = master("").await;
    let handle = master.handle();
    let mut w = worker(&master, "w", &["t1"]).await;
    let looks = join_all((0..5).map(|_| listed(&handle)));
    let (seen, ()) = join(looks, answer(&mut w, &status(7))).await;
    for worker in seen.iter().flatten() {
        assert_eq!(told(worker, "t1").length, 7);
    }
    w.hears_nothing().await;
}

#[tokio::test]
async fn a_status_that_cannot_be_read_is_a_problem_of_that_worker() {
    let master = master("").await;
    let handle = master.handle();
    let mut odd = worker(&master, "odd", &["t1"]).await;
    let mut large = worker(&master, "large", &["t1"]).await;
    let text = format!("\"{}\"", "x".repeat(2 << 20));
    let answers = async {
        answer(&mut odd, r#"{"targets":5}"#).await;
        answer(&mut large, &text).await;
    };
    let (seen, ()) = join(listed(&handle), answers).await;
    let problem = |at: usize| seen[at].problem.clone().unwrap_or_default();
    assert!(problem(0).starts_with("its status cannot be read: "), "{}", problem(0));
    assert_eq!(problem(1), "its status has 2097154 bytes, too many to read");
}

#[tokio::test]
async fn workers_come_in_parts_and_targets_without_one_are_named() {
    let master = master("").await;
    let handle = master.handle();
    let (a, mut b) = (worker(&master, "a", &["t1"]).await, worker(&master, "b", &["t1"]).await);
    let mut m = Peer::connect(master.address()).await;
    m.ask(r#"[0,{"no":9,"type":"poke","data":{"targets":["none","t2"]}}]"#).await;
    let part = async |after: u64| {
        let WorkerList { workers, has_more, unserved, unserved_count } =
            handle.workers(after, 1).await;
        assert_eq!(unserved.len(), unserved_count);
        let ids: Vec<u64> = workers.iter().map(|worker| worker.id).collect();
        (ids, has_more, unserved)
    };
    let (ids, has_more, unserved) = part(0).await;
    assert_eq!(
        (ids, has_more, unserved),
        (vec![1], true, vec!["none".to_owned(), "t2".to_owned()])
    );
    assert_eq!(part(1).await.0, [2]);
    assert!(part(2).await.0.is_empty());
    // The same connection keeps its number; another one has its own.
    let again = r#"[0,{"no":2,"type":"register-worker","data":{"targets":["t2"],"name":"b"}}]"#;
    b.send(again).await;
    until_told("it serves another target", async || part(0).await.2 == ["none"]).await;
    assert_eq!(part(1).await.0, [2]);
    drop(a);
    until_told("the first is gone", async || part(0).await.0 == [2]).await;
    let _c = worker(&master, "c", &["t1"]).await;
    assert_eq!(part(2).await.0, [3]);
}

#[tokio::test]
async fn a_handle_outlives_its_master() {
    let handle = {
        let master: Master = master("").await;
        let _w = worker(&master, "w", &["t1"]).await;
        master.finish().await;
        master.handle()
    };
    until_told("nobody is left", async || listed(&handle).await.is_empty()).await;
    assert_eq!(handle.meant(&ALL), Ok(Vec::new()));
}
