//! Workers that do not answer, with a paused clock, which advances when nothing else is left to do.
//! The other tests of the handle are in `crates/jobd`, with real workers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{ops::RangeInclusive, time::Duration};

use spindle_jobd_master::{
    Master, MasterHandle, MasterSettings, WorkerView, server::ListenSettings, wire::encode_request,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

/// The next message.
async fn hear(worker: &mut TcpStream) -> String {
    let mut message = Vec::new();
    loop {
        match worker.read_u8().await.unwrap() {
            4 => return String::from_utf8(message).unwrap(),
            byte => message.push(byte),
        }
    }
}

/// The only worker, seen after so many seconds.
async fn look(handle: &MasterHandle, seconds: RangeInclusive<u64>) -> WorkerView {
    let begun = Instant::now();
    let seen = handle.workers(0, 100).await.workers.remove(0);
    assert!(seconds.contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    seen
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_is_waited_for_once_and_shown_with_what_it_told_last() {
    let listen = ListenSettings { host: "127.0.0.1".to_owned(), ..ListenSettings::default() };
    let settings = MasterSettings {
        ping_interval: Duration::from_secs(100_000),
        ..MasterSettings::new(listen)
    };
    let master = Master::start(&settings).await.unwrap();
    let handle = master.handle();
    let mut worker = TcpStream::connect(master.address()).await.unwrap();
    let data = serde_json::json!({ "name": "w", "targets": ["t1"] });
    let data = serde_json::value::to_raw_value(&data).unwrap();
    worker.write_all(&encode_request(1, "register-worker", Some(&data), None)).await.unwrap();
    assert_eq!(hear(&mut worker).await, r#"[1,{"no":1,"data":"ok"}]"#);

    let seen = look(&handle, 1..=1).await;
    assert_eq!(seen.problem.as_deref(), Some("no answer yet"));
    assert!(seen.last_status.is_none());
    // The same request is still under way.
    assert_eq!(look(&handle, 0..=0).await.problem.as_deref(), Some("no answer yet"));
    sleep(Duration::from_secs(5)).await;
    for _ in 0..2 {
        let seen = look(&handle, 0..=0).await;
        assert_eq!(seen.problem.as_deref(), Some("no answer within 5 s"));
    }
    // It was asked all the same, and is shown with its answer as soon as there is one.
    hear(&mut worker).await;
    let asked: serde_json::Value = serde_json::from_str(&hear(&mut worker).await).unwrap();
    let status = r#"{"targets":{"t1":{"paused":true,"concurrency":5,"length":3}},
        "jobPromisesCount":0,"memoryUsage":{"rss":1,"heapTotal":1,"heapUsed":1,"external":0,
        "arrayBuffers":0}}"#;
    let answer = format!("[1,{{\"no\":{},\"data\":{status}}}]\x04", asked[1]["no"]);
    worker.write_all(answer.as_bytes()).await.unwrap();
    while look(&handle, 0..=0).await.problem.is_some() {
        tokio::task::yield_now().await;
    }
    let told = look(&handle, 0..=0).await.last_status.unwrap();
    assert_eq!(told.status.targets["t1"].length, 3);
    // Then it is silent again: what it told is shown, once it is a second old.
    sleep(Duration::from_secs(2)).await;
    let seen = look(&handle, 1..=1).await;
    assert_eq!(seen.problem.as_deref(), Some("no answer yet"));
    assert_eq!(seen.last_status.unwrap().status.targets["t1"].length, 3);
}
