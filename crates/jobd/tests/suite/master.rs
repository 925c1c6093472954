//! A master's answers, byte by byte, and what it asks of workers. Workers are played by hand.

use std::time::Duration;

use serde_json::Value;
use spindle_jobd_master::Master;

use crate::{
    peer::{MEMORY, Peer},
    world::master,
};

async fn connect(master: &Master) -> Peer {
    Peer::connect(master.address()).await
}

/// A worker that has registered.
pub async fn worker(master: &Master, name: &str, targets: &[&str]) -> Peer {
    let mut peer = connect(master).await;
    let data = serde_json::json!({"targets": targets, "name": name});
    let request = format!(r#"[0,{{"no":1,"type":"register-worker","data":{data}}}]"#);
    assert_eq!(peer.ask(&request).await, r#"[1,{"no":1,"data":"ok"}]"#);
    peer
}

/// What a master asked a worker: its number, and the rest without the number.
pub async fn asked(worker: &mut Peer) -> (i64, String) {
    let message = worker.hear_work().await;
    let parsed: Value = serde_json::from_str(&message).unwrap();
    let no = parsed[1]["no"].as_i64().unwrap();
    (no, message.replacen(&format!("\"no\":{no},"), "", 1))
}

/// What is sent to a master with one worker, and what it answers.
const REQUESTS: &[(&str, &str)] = &[
    (r#"[0,{"no":1,"type":"nosuch"}]"#, r#"[1,{"no":1,"error":"unknown request type: 'nosuch'"}]"#),
    (
        r#"[0,{"no":2,"type":"status"}]"#,
        r#"[1,{"no":2,"data":{"workers":[{"remoteAddr":"127.0.0.1","remotePort":<N>,"targets":["low","normal","1/high"],"name":"w1"}],<MEM>}}]"#,
    ),
    (
        r#"[0,{"no":6,"type":"poke","data":{"targets":[]}}]"#,
        r#"[1,{"no":6,"error":"targets are empty"}]"#,
    ),
    (
        r#"[0,{"no":7,"type":"poke","data":{"targets":["unknown-target"]}}]"#,
        r#"[1,{"no":7,"data":"ok"}]"#,
    ),
    (
        r#"[0,{"no":8,"type":"poke","data":{"targets":[5]}}]"#,
        r#"[1,{"no":8,"error":"all targets must be strings, number given"}]"#,
    ),
    (r#"[0,{"no":20,"type":"run-manual"}]"#, r#"[1,{"no":20,"error":"jobs must be array"}]"#),
    (r#"[0,{"no":21,"type":"run-manual","data":{"jobs":[]}}]"#, r#"[1,{"no":21,"data":{}}]"#),
    (
        r#"[0,{"no":22,"type":"run-manual","data":{"jobs":[{"id":1}]}}]"#,
        r#"[1,{"no":22,"error":"missing required field target"}]"#,
    ),
    (
        r#"[0,{"no":23,"type":"run-manual","data":{"jobs":[{"id":"1","target":"low"}]}}]"#,
        r#"[1,{"no":23,"error":"'id' must be integer"}]"#,
    ),
    (
        r#"[0,{"no":24,"type":"run-manual","data":{"jobs":[5]}}]"#,
        r#"[1,{"no":24,"error":"data is not an object"}]"#,
    ),
    (
        r#"[0,{"no":25,"type":"run-manual","data":{"jobs":[{"id":5,"target":"nope"}]}}]"#,
        r#"[1,{"no":25,"data":{"errors":{"5":"worker serving target 'nope' not found"}}}]"#,
    ),
    (r#"[0,{"no":30,"type":"send-signal"}]"#, r#"[1,{"no":30,"error":"jobs must be array"}]"#),
    (r#"[0,{"no":31,"type":"send-signal","data":{"jobs":[]}}]"#, r#"[1,{"no":31,"data":{}}]"#),
    (
        r#"[0,{"no":32,"type":"send-signal","data":{"jobs":[{"id":1,"target":"low"}]}}]"#,
        r#"[1,{"no":32,"error":"missing required field signal"}]"#,
    ),
    (
        r#"[0,{"no":34,"type":"send-signal","data":{"jobs":[{"id":1,"signal":15,"target":"nope"}]}}]"#,
        r#"[1,{"no":34,"data":{"errors":{"1":"worker serving target 'nope' not found"}}}]"#,
    ),
    (
        r#"[0,{"no":40,"type":"register-worker"}]"#,
        r#"[1,{"no":40,"error":"name is missing or invalid"}]"#,
    ),
    (
        r#"[0,{"no":42,"type":"register-worker","data":{"targets":[]}}]"#,
        r#"[1,{"no":42,"error":"targets are empty"}]"#,
    ),
    (
        r#"[0,{"no":43,"type":"register-worker","data":{"targets":"a","name":"x"}}]"#,
        r#"[1,{"no":43,"error":"targets must be array"}]"#,
    ),
    (
        r#"[0,{"no":44,"type":"register-worker","data":{"targets":["t1"],"name":5}}]"#,
        r#"[1,{"no":44,"error":"name is missing or invalid"}]"#,
    ),
    // Answered where the original says nothing or shows an error of its language.
    (r#"[0,{"no":5,"type":"poke"}]"#, r#"[1,{"no":5,"error":"targets are missing"}]"#),
    (
        r#"[0,{"no":13,"type":"pause","data":{"targets":"x"}}]"#,
        r#"[1,{"no":13,"error":"targets must be array"}]"#,
    ),
    ("{}", r#"[1,{"no":0,"error":"JSON array expected, got: [object Object]"}]"#),
];

#[tokio::test]
async fn requests_get_the_originals_answers() {
    let master = master("").await;
    let mut w1 = worker(&master, "w1", &["low", "normal", "1/high"]).await;
    let mut m = connect(&master).await;
    for (sent, expected) in REQUESTS {
        assert_eq!(m.ask(sent).await, expected.replace("<MEM>", MEMORY), "{sent}");
    }
    m.send("xx").await;
    m.hears_nothing().await;
    w1.hears_nothing().await;
}

#[tokio::test]
async fn a_poke_goes_to_every_worker_that_serves_the_target() {
    let master = master("").await;
    let mut first = worker(&master, "first", &["t1", "t2"]).await;
    let mut second = worker(&master, "second", &["t2"]).await;
    let mut third = worker(&master, "third", &["t3"]).await;
    let mut m = connect(&master).await;
    m.ask(r#"[0,{"no":2,"type":"poke","data":{"targets":["t2"]}}]"#).await;
    for worker in [&mut first, &mut second] {
        assert_eq!(asked(worker).await.1, r#"[0,{"type":"poll","data":{"targets":["t2"]}}]"#);
    }
    third.hears_nothing().await;
}

#[tokio::test]
async fn pokes_in_a_burst_are_joined() {
    let master = master("poke_throttle_interval = 0.5").await;
    let mut w = worker(&master, "burst", &["b1", "b2", "b3"]).await;
    let mut m = connect(&master).await;
    for target in ["b3", "b2", "b1", "b2"] {
        m.ask(&format!(r#"[0,{{"no":1,"type":"poke","data":{{"targets":["{target}"]}}}}]"#)).await;
    }
    assert_eq!(asked(&mut w).await.1, r#"[0,{"type":"poll","data":{"targets":["b3"]}}]"#);
    assert_eq!(asked(&mut w).await.1, r#"[0,{"type":"poll","data":{"targets":["b1","b2"]}}]"#);
    w.hears_nothing().await;
}

#[tokio::test]
async fn a_poke_without_a_worker_is_remembered_for_the_next_that_registers() {
    let master = master("").await;
    let mut m = connect(&master).await;
    m.ask(r#"[0,{"no":9,"type":"poke","data":{"targets":["later","never"]}}]"#).await;
    for expects_poll in [true, false] {
        let mut late = connect(&master).await;
        late.send(
            r#"[0,{"no":1,"type":"register-worker","data":{"targets":["other","later"],"name":"late"}}]"#,
        )
        .await;
        if expects_poll {
            // Before the answer to the registration.
            let poll = asked(&mut late).await.1;
            assert_eq!(poll, r#"[0,{"type":"poll","data":{"targets":["later"]}}]"#);
        }
        assert_eq!(late.hear().await, r#"[1,{"no":1,"data":"ok"}]"#);
        late.hears_nothing().await;
    }
}

#[tokio::test]
async fn a_poke_that_a_dying_worker_did_not_answer_is_remembered() {
    let master = master("").await;
    let mut dying = worker(&master, "dying", &["t1"]).await;
    let mut m = connect(&master).await;
    m.ask(r#"[0,{"no":9,"type":"poke","data":{"targets":["t1"]}}]"#).await;
    asked(&mut dying).await;
    drop(dying);
    // The master needs a moment to see it gone.
    loop {
        let status = m.ask(r#"[0,{"no":2,"type":"status"}]"#).await;
        if status.contains(r#""workers":[]"#) {
            break;
        }
    }
    let mut next = connect(&master).await;
    next.send(r#"[0,{"no":1,"type":"register-worker","data":{"targets":["t1"],"name":"n"}}]"#)
        .await;
    assert!(asked(&mut next).await.1.contains("poll"));
}

#[tokio::test]
async fn run_manual_is_shared_out_and_joined() {
    let master = master("").await;
    let mut a = worker(&master, "a", &["t1"]).await;
    let mut b = worker(&master, "b", &["t2"]).await;
    let mut m = connect(&master).await;
    m.send(
        r#"[0,{"no":3,"type":"run-manual","data":{"jobs":[{"id":7,"target":"t1"},{"id":8,"target":"t2"},{"id":9,"target":"t1"},{"id":10,"target":"nope"}]}}]"#,
    )
    .await;
    let (no, request) = asked(&mut a).await;
    assert_eq!(request, r#"[0,{"type":"run-manual","data":{"ids":[7,9]}}]"#);
    a.send(&format!(
        r#"[1,{{"no":{no},"data":{{"jobs":{{"7":{{"result":"ok","code":0,"signal":null,"stdout":"o","stderr":""}}}},"errors":{{"9":"job 9 not found"}}}}}}]"#
    ))
    .await;
    let (no, request) = asked(&mut b).await;
    assert_eq!(request, r#"[0,{"type":"run-manual","data":{"ids":[8]}}]"#);
    b.send(&format!(r#"[1,{{"no":{no},"error":"another client is already waiting for job 8"}}]"#))
        .await;
    assert_eq!(
        m.hear().await,
        concat!(
            r#"[1,{"no":3,"data":{"jobs":{"7":{"result":"ok","code":0,"signal":null,"stdout":"o","stderr":""}},"#,
            r#""errors":{"8":"another client is already waiting for job 8","9":"job 9 not found","#,
            r#""10":"worker serving target 'nope' not found"}}}]"#
        )
    );
}

#[tokio::test]
async fn a_worker_that_goes_during_run_manual_is_an_error_for_its_jobs() {
    let master = master("").await;
    let mut w = worker(&master, "w", &["t1"]).await;
    let mut m = connect(&master).await;
    m.send(r#"[0,{"no":7,"type":"run-manual","data":{"jobs":[{"id":7,"target":"t1"}]}}]"#).await;
    asked(&mut w).await;
    drop(w);
    assert_eq!(m.hear().await, r#"[1,{"no":7,"data":{"errors":{"7":"worker 'w' went away"}}}]"#);
}

#[tokio::test]
async fn a_workers_nonsense_is_an_error_for_its_jobs_only() {
    let master = master("").await;
    let mut w = worker(&master, "w", &["t1"]).await;
    let mut m = connect(&master).await;
    for (nonsense, expected) in [
        ("5", "worker 'w' answered something else"),
        (r#"{"jobs":{"x":1}}"#, "worker 'w' answered something else"),
        (r#"{"jobs":{"99":1}}"#, "worker 'w' said nothing about it"),
    ] {
        m.send(r#"[0,{"no":7,"type":"run-manual","data":{"jobs":[{"id":7,"target":"t1"}]}}]"#)
            .await;
        let (no, _) = asked(&mut w).await;
        w.send(&format!(r#"[1,{{"no":{no},"data":{nonsense}}}]"#)).await;
        let answer = m.hear().await;
        assert!(answer.contains(&format!(r#""7":"{expected}""#)), "{nonsense}: {answer}");
    }
}

#[tokio::test]
async fn a_signal_goes_to_all_workers_that_may_run_the_job() {
    let master = master("").await;
    let mut a = worker(&master, "a", &["t1"]).await;
    let mut b = worker(&master, "b", &["t1"]).await;
    let mut m = connect(&master).await;
    m.send(
        r#"[0,{"no":4,"type":"send-signal","data":{"jobs":[{"id":7,"signal":15,"target":"t1"}]}}]"#,
    )
    .await;
    for (worker, sent) in [(&mut a, true), (&mut b, false)] {
        let (no, request) = asked(worker).await;
        assert_eq!(request, r#"[0,{"type":"send-signal","data":{"jobs":{"7":15}}}]"#);
        worker.send(&format!(r#"[1,{{"no":{no},"data":{{"7":{sent}}}}}]"#)).await;
    }
    assert_eq!(m.hear().await, r#"[1,{"no":4,"data":{"7":true}}]"#);
}

#[tokio::test]
async fn pause_and_continue_are_passed_on_and_answered() {
    let master = master("").await;
    let mut w = worker(&master, "w", &["t1", "t2"]).await;
    let mut m = connect(&master).await;
    for (sent, passed) in [
        (r#""pause","data":{"targets":["t2"]}"#, r#""pause","data":{"targets":["t2"]}"#),
        (r#""continue""#, r#""continue""#),
    ] {
        m.send(&format!(r#"[0,{{"no":1,"type":{sent}}}]"#)).await;
        let (no, request) = asked(&mut w).await;
        assert_eq!(request, format!(r#"[0,{{"type":{passed}}}]"#));
        w.send(&format!(r#"[1,{{"no":{no},"data":"ok"}}]"#)).await;
        assert_eq!(m.hear().await, r#"[1,{"no":1,"data":"ok"}]"#);
    }
    // Those that are served are paused, the others are named.
    m.send(r#"[0,{"no":1,"type":"pause","data":{"targets":["t1","zzz"]}}]"#).await;
    let (no, request) = asked(&mut w).await;
    assert_eq!(request, r#"[0,{"type":"pause","data":{"targets":["t1"]}}]"#);
    w.send(&format!(r#"[1,{{"no":{no},"data":"ok"}}]"#)).await;
    assert_eq!(m.hear().await, r#"[1,{"no":1,"error":"worker serving target 'zzz' not found"}]"#);
}

#[tokio::test]
async fn a_worker_that_cannot_tell_its_status_has_none() {
    let master = master("").await;
    let mut w = worker(&master, "w", &["t1"]).await;
    let mut m = connect(&master).await;
    m.send(r#"[0,{"no":5,"type":"status","data":{"poll_workers":true}}]"#).await;
    let (no, request) = asked(&mut w).await;
    assert_eq!(request, r#"[0,{"type":"status"}]"#);
    w.send(&format!(r#"[1,{{"no":{no},"error":"boom"}}]"#)).await;
    let expected = format!(
        r#"[1,{{"no":5,"data":{{"workers":[{{"remoteAddr":"127.0.0.1","remotePort":<N>,"targets":["t1"],"name":"w","workerStatus":null}}],{MEMORY}}}}}]"#
    );
    assert_eq!(m.hear().await, expected);
}

#[tokio::test]
async fn a_second_registration_replaces_the_first() {
    let master = master("").await;
    let mut w = worker(&master, "w", &["t1"]).await;
    let again = r#"[0,{"no":2,"type":"register-worker","data":{"targets":["t2"],"name":"w"}}]"#;
    assert_eq!(w.ask(again).await, r#"[1,{"no":2,"data":"ok"}]"#);
    let mut m = connect(&master).await;
    let status = m.ask(r#"[0,{"no":2,"type":"status"}]"#).await;
    assert!(status.contains(r#""targets":["t2"],"name":"w"}]"#), "{status}");
    m.ask(r#"[0,{"no":9,"type":"poke","data":{"targets":["t1"]}}]"#).await;
    w.hears_nothing().await;
}

/// As `docs/limits.md` says: 1,024 targets, 64 KiB of their names, and 1,024 bytes of its own.
#[tokio::test]
async fn what_a_worker_registers_has_limits_and_not_one_more() {
    let master = master("").await;
    let numbered = |count: usize, width: usize| -> Vec<String> {
        let digits = |number: usize| number.to_string();
        let name = |digits: String| "0".repeat(width - digits.len()) + &digits;
        (0..count).map(digits).map(name).collect()
    };
    let mut w = connect(&master).await;
    let register = |name: &str, targets: Vec<String>| {
        let data = serde_json::json!({"targets": targets, "name": name});
        format!(r#"[0,{{"no":1,"type":"register-worker","data":{data}}}]"#)
    };
    for (name, targets) in [
        ("w".to_owned(), numbered(1024, 64)),
        ("w".repeat(1024), numbered(1, 64 * 1024)),
        ("w".to_owned(), numbered(128, 512)),
    ] {
        let answer = w.ask(&register(&name, targets)).await;
        assert_eq!(answer, r#"[1,{"no":1,"data":"ok"}]"#);
    }
    for targets in [numbered(1025, 4), numbered(1, 64 * 1024 + 1), numbered(1024, 65)] {
        let answer = w.ask(&register("other", targets)).await;
        let why = "too many targets: at most 1024, with 64 KiB of names in all";
        assert_eq!(answer, format!(r#"[1,{{"no":1,"error":"{why}"}}]"#));
    }
    let answer = w.ask(&register(&"w".repeat(1025), numbered(1, 1))).await;
    let why = "name is too long: at most 1024 bytes";
    assert_eq!(answer, format!(r#"[1,{{"no":1,"error":"{why}"}}]"#));
    // What was registered before the refusals stays.
    let status = connect(&master).await.ask(r#"[0,{"no":2,"type":"status"}]"#).await;
    assert!(status.contains(r#""name":"w"}]"#), "{status:.200}");
}

#[tokio::test]
async fn a_worker_without_a_name_is_called_by_its_address() {
    let master = master("").await;
    let mut w = connect(&master).await;
    let register = r#"[0,{"no":1,"type":"register-worker","data":{"targets":["t1"]}}]"#;
    assert_eq!(w.ask(register).await, r#"[1,{"no":1,"data":"ok"}]"#);
    let status = connect(&master).await.ask(r#"[0,{"no":2,"type":"status"}]"#).await;
    assert!(status.contains(r#""name":"127.0.0.1:"#), "{status}");
}

#[tokio::test]
async fn only_workers_are_pinged_and_a_dead_one_is_dropped() {
    let master = master("ping_interval = 0.05").await;
    let mut alive = worker(&master, "alive", &["t1"]).await;
    let mut dead = worker(&master, "dead", &["t1"]).await;
    let mut client = connect(&master).await;
    // It says nothing; in the end the master hangs up.
    while let Some(message) = dead.next().await {
        assert_eq!(message, "[2]");
        while alive.hear().await != "[2]" {}
        alive.send("[3]").await;
    }
    client.hears_nothing().await;
    let mut status = String::new();
    for _ in 0..100 {
        status = client.ask(r#"[0,{"no":2,"type":"status"}]"#).await;
        if !status.contains("dead") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(status.contains("alive") && !status.contains("dead"), "{status}");
}

#[tokio::test]
async fn a_worker_must_know_the_password() {
    let master = master("password = sesame").await;
    let register = r#"[0,{"no":1,"type":"register-worker","data":{"targets":["t1"],"name":"w"}}]"#;
    let mut wrong = connect(&master).await;
    assert_eq!(wrong.ask(register).await, r#"[1,{"no":1,"error":"invalid password"}]"#);
    wrong.is_closed().await;
}
