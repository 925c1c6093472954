//! Our worker, our master and our `jobctl`.

use serde_json::json;

use crate::{
    ctl::jobctl,
    peer::{Peer, until},
    world::{World, connect, ended, master},
};

#[tokio::test]
async fn a_poke_at_the_master_runs_the_jobs_of_a_worker() {
    let world = World::new();
    let master = master("").await;
    let port = master.address().port();
    let mut worker = world.worker(&format!("master_host = 127.0.0.1\nmaster_port = {port}")).await;
    let mut m = Peer::connect(master.address()).await;
    while m.status().await["workers"] == json!([]) {}
    world.table.insert(1, "low", "waiting");
    m.data("poke", json!({"targets": ["low"]})).await;
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;

    for id in [11, 13] {
        world.table.insert(id, "normal", "manual");
    }
    let jobs = json!({"jobs": [{"id": 11, "target": "normal"}, {"id": 13, "target": "normal"}]});
    let results = m.data("run-manual", jobs).await;
    assert_eq!(results["jobs"]["11"]["stdout"], "hello 11\n");
    assert_eq!(results["jobs"]["13"]["code"], 3);

    assert_eq!(m.data("pause", json!({"targets": ["low"]})).await, json!("ok"));
    let run = jobctl(&["--master", "--port", &port.to_string(), "list-workers"]).await;
    assert!(
        run.stdout.contains("w1          | low     | 1           | 0      | yes   \n"),
        "{run:?}"
    );

    // A target added at run time reaches the master, and the old connection goes.
    let mut client = connect(&worker).await;
    client.data("add-target", json!({"target": "new", "concurrency": 1})).await;
    let expected = json!(["low", "normal", "1/high", "new"]);
    loop {
        let workers = m.status().await["workers"].clone();
        let all = workers.as_array().unwrap();
        if all.len() == 1 && all[0]["targets"] == expected {
            break;
        }
    }
    worker.stop();
    ended(&mut worker).await;
    while m.status().await["workers"] != json!([]) {}
}
