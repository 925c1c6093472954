//! The original's side of conversations, played from what was recorded of it: a master that our
//! worker registers at, a worker and a master that our `jobctl` asks. (Its worker on our master and
//! its `jobctl` on our daemons are played in `master` and `worker`.)

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    ctl::jobctl,
    peer::{DEADLINE, MEMORY, Peer, masked, until},
    world::{World, connect},
};

struct Original {
    listener: TcpListener,
}

impl Original {
    async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    async fn accept(&self) -> Peer {
        let accepted = tokio::time::timeout(DEADLINE, self.listener.accept()).await;
        Peer::over(accepted.expect("somebody connects").unwrap().0)
    }

    /// Accepts a worker's connection and its registration; answers both.
    async fn registered(&self) -> (Peer, Value) {
        let mut peer = self.accept().await;
        let message: Value = serde_json::from_str(&peer.hear().await).unwrap();
        assert_eq!((&message[0], &message[1]["type"]), (&json!(0), &json!("register-worker")));
        peer.send(&json!([1, {"no": message[1]["no"], "data": "ok"}]).to_string()).await;
        (peer, message[1].clone())
    }
}

fn master_lines(original: &Original) -> String {
    format!("master_host = 127.0.0.1\nmaster_port = {}\npassword = sesame", original.port())
}

#[tokio::test]
async fn our_worker_serves_its_master() {
    let original = Original::start().await;
    let world = World::new();
    let _worker = world.worker(&master_lines(&original)).await;
    let (mut link, registration) = original.registered().await;
    assert_eq!(registration["data"], json!({"targets": ["low", "normal", "1/high"], "name": "w1"}));
    assert_eq!(registration["password"], "sesame");
    // A master needs no password on a connection the worker made.
    assert_eq!(link.ask("[2]").await, "[3]");
    world.table.insert(1, "low", "waiting");
    let poll = r#"[0,{"no":647806,"type":"poll","data":{"targets":["low"]}}]"#;
    assert_eq!(link.ask(poll).await, r#"[1,{"no":647806,"data":"ok"}]"#);
    until("it is done", || world.table.line(1) == "done ok 0 NULL").await;
    world.table.insert(11, "low", "manual");
    assert_eq!(
        link.ask(r#"[0,{"no":647807,"type":"run-manual","data":{"ids":[11]}}]"#).await,
        r#"[1,{"no":647807,"data":{"jobs":{"11":{"result":"ok","code":0,"signal":null,"stdout":"hello 11\n","stderr":"e11"}}}}]"#
    );
    assert_eq!(
        link.ask(r#"[0,{"no":647810,"type":"pause","data":{"targets":["low"]}}]"#).await,
        r#"[1,{"no":647810,"data":"ok"}]"#
    );
    let status = link.ask(r#"[0,{"no":647812,"type":"status"}]"#).await;
    assert!(status.contains(r#""low":{"paused":true,"concurrency":1,"length":0}"#), "{status}");
}

#[tokio::test]
async fn our_worker_comes_back_to_a_master_that_went() {
    let original = Original::start().await;
    let world = World::new();
    let _worker = world.worker(&master_lines(&original)).await;
    for _ in 0..3 {
        let (link, registration) = original.registered().await;
        assert_eq!(registration["data"]["name"], "w1");
        drop(link);
    }
}

#[tokio::test]
async fn our_worker_keeps_trying_when_it_is_refused() {
    let original = Original::start().await;
    let world = World::new();
    let _worker = world.worker(&master_lines(&original)).await;
    let mut refused = original.accept().await;
    let message: Value = serde_json::from_str(&refused.hear().await).unwrap();
    let no = &message[1]["no"];
    refused.send(&json!([1, {"no": no, "error": "invalid password"}]).to_string()).await;
    refused.is_closed().await;
    original.registered().await;
}

#[tokio::test]
async fn new_targets_reach_its_master_over_a_new_connection_and_the_old_one_is_answered_first() {
    let original = Original::start().await;
    let world = World::new();
    let worker = world.worker(&master_lines(&original)).await;
    let (mut old, _) = original.registered().await;
    world.table.insert(25, "normal", "manual");
    old.send(r#"[0,{"no":5,"type":"run-manual","data":{"ids":[25]}}]"#).await;
    until("it runs", || world.table.line(25) == "running").await;

    let mut client = connect(&worker).await;
    let added = r#"[0,{"no":1,"type":"add-target","data":{"target":"new","concurrency":2},"password":"sesame"}]"#;
    assert_eq!(client.ask(added).await, r#"[1,{"no":1,"data":"ok"}]"#);
    let (mut new, registration) = original.registered().await;
    assert_eq!(registration["data"]["targets"], json!(["low", "normal", "1/high", "new"]));
    assert_eq!(new.ask("[2]").await, "[3]");
    world.let_go();
    assert!(old.hear().await.contains("slow 25"));
    old.is_closed().await;
}

/// Answers one request of a client with this data.
async fn answer_one(original: Original, expected: Value, data: String) {
    let mut peer = original.accept().await;
    let message: Value = serde_json::from_str(&peer.hear().await).unwrap();
    let mut request = message[1].clone();
    let no = request["no"].take();
    request.as_object_mut().unwrap().remove("no");
    assert_eq!(request, expected);
    peer.send(&format!(r#"[1,{{"no":{no},"data":{data}}}]"#)).await;
    // Stays open until the client has read it.
    peer.next().await;
}

const TARGETS: &str = r#""targets":{"low":{"paused":false,"concurrency":1,"length":0},"normal":{"paused":false,"concurrency":3,"length":0},"1/high":{"paused":false,"concurrency":10,"length":0}}"#;

#[tokio::test]
async fn our_jobctl_shows_its_worker() {
    let original = Original::start().await;
    let port = original.port().to_string();
    let data = format!(r#"{{{TARGETS},"jobPromisesCount":0,{}}}"#, MEMORY.replace("<N>", "7"));
    let answering = tokio::spawn(answer_one(original, json!({"type": "status"}), data));
    let run = jobctl(&["--port", &port, "list-targets"]).await;
    assert_eq!(
        run.stdout,
        "TARGET | CONCURRENCY | LENGTH | PAUSED\n\
         ------ | ----------- | ------ | ------\n\
         low    | 1           | 0      | no    \n\
         normal | 3           | 0      | no    \n\
         1/high | 10          | 0      | no    \n"
    );
    assert_eq!(run.code, 0);
    answering.await.unwrap();
}

#[tokio::test]
async fn our_jobctl_shows_its_master() {
    let original = Original::start().await;
    let port = original.port().to_string();
    let memory = MEMORY.replace("<N>", "7");
    let data = format!(
        r#"{{"workers":[{{"remoteAddr":"127.0.0.1","remotePort":5,"targets":["low","normal","1/high"],"name":"w1","workerStatus":{{{TARGETS},"jobPromisesCount":0,{memory}}}}}],{memory}}}"#
    );
    let expected = json!({"type": "status", "data": {"poll_workers": true}});
    let answering = tokio::spawn(answer_one(original, expected, data));
    let run = jobctl(&["--master", "--port", &port, "list-workers"]).await;
    assert_eq!(
        run.stdout,
        "WORKER      | TARGETS | CONCURRENCY | LENGTH | PAUSED\n\
         ----------- | ------- | ----------- | ------ | ------\n\
         w1          | low     | 1           | 0      | no    \n\
         (127.0.0.1) | normal  | 3           | 0      | no    \n            \
         | 1/high  | 10          | 0      | no    \n"
    );
    answering.await.unwrap();
}

/// A master that wants of `send-signal` what the original's wants: whole numbers and a text.
async fn strict_master(original: Original) {
    let mut peer = original.accept().await;
    let message: Value = serde_json::from_str(&peer.hear().await).unwrap();
    let (no, jobs) = (&message[1]["no"], &message[1]["data"]["jobs"]);
    let wrong = jobs.as_array().unwrap().iter().find_map(|job| {
        let field = |name, is_so: bool, kind| (!is_so).then(|| format!("'{name}' must be {kind}"));
        field("id", job["id"].is_i64(), "integer")
            .or_else(|| field("signal", job["signal"].is_i64(), "integer"))
            .or_else(|| field("target", job["target"].is_string(), "string"))
    });
    let answer = match wrong {
        Some(error) => json!([1, {"no": no, "error": error}]),
        None => json!([1, {"no": no, "data": {"7": jobs[0]["signal"] == 15}}]),
    };
    peer.send(&answer.to_string()).await;
    peer.next().await;
}

#[tokio::test]
async fn our_jobctl_sends_signals_through_its_master_in_numbers() {
    for signal in ["TERM", "SIGTERM", "term", "15"] {
        let original = Original::start().await;
        let port = original.port().to_string();
        let answering = tokio::spawn(strict_master(original));
        let run = jobctl(&["--master", "--port", &port, "send-signal", signal, "low", "7"]).await;
        assert_eq!((run.stdout.as_str(), run.code), ("JOB | SENT\n--- | ----\n7   | yes \n", 0));
        answering.await.unwrap();
    }
}

#[tokio::test]
async fn our_jobctl_does_not_wait_for_ever_for_what_its_master_never_answers() {
    let original = Original::start().await;
    let port = original.port().to_string();
    let run = jobctl(&["--master", "--port", &port, "--timeout", "0.2", "pause", "low"]).await;
    let expected = format!(
        "ERROR [jobctl] Master error: no answer within 0.2 s (127.0.0.1:{port}); the original's \
         master never answers this, and does it all the same\n"
    );
    assert_eq!((run.stderr, run.code), (expected, 1));
}

#[test]
fn figures_are_masked_where_they_stand() {
    assert_eq!(
        masked(r#"{"rss":12,"x":{"remotePort":5}}"#),
        r#"{"rss":<N>,"x":{"remotePort":<N>}}"#
    );
}
