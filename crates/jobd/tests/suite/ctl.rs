//! `jobctl` at the shell.

use std::{io::Write, process::Stdio, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    peer::Peer,
    world::{World, master},
};

/// What a run of `jobctl` left.
#[derive(Debug)]
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

async fn run(words: &[&str], typed: &str) -> Run {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let typed = typed.to_owned();
    let home = tempfile::tempdir().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_jobctl"))
            .args(words)
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Run {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap(),
        }
    })
    .await
    .unwrap()
}

pub async fn jobctl(words: &[&str]) -> Run {
    run(words, "").await
}

#[tokio::test]
async fn every_worker_command_works_on_our_worker() {
    let world = World::new();
    let worker = world.worker("").await;
    let port = worker.address().port().to_string();
    world.table.insert(11, "low", "manual");
    world.table.insert(13, "low", "manual");
    for (words, stdout, stderr, code) in [
        ("poll low normal", "ok\n", "", 0),
        ("poll", "", "ERROR [jobctl] No targets specified.\n", 2),
        ("poll nope", "", "ERROR [jobctl] Worker error: invalid target 'nope'\n", 1),
        ("set-target-concurrency low 2", "ok\n", "", 0),
        ("set-target-concurrency low", "", "ERROR [jobctl] Invalid number of arguments.\n", 2),
        ("set-target-concurrency low x", "", "ERROR [jobctl] 'concurrency' must be a number.\n", 2),
        (
            "set-target-concurrency nope 2",
            "",
            "ERROR [jobctl] Worker error: target 'nope' not found\n",
            1,
        ),
        ("pause low", "ok\n", "", 0),
        ("continue", "ok\n", "", 0),
        ("add-target new 4", "ok\n", "", 0),
        ("remove-target 1/high", "ok\n", "", 0),
        (
            "list-targets",
            "TARGET | CONCURRENCY | LENGTH | PAUSED\n\
             ------ | ----------- | ------ | ------\n\
             low    | 2           | 0      | no    \n\
             normal | 3           | 0      | no    \n\
             new    | 4           | 0      | no    \n",
            "",
            0,
        ),
        ("list-workers", "", "ERROR [jobctl] Unsupported command: 'list-workers'\n", 2),
        ("send-signal KILL 5", "JOB | SENT\n--- | ----\n5   | no  \n", "", 0),
        (
            "run-manual 11 12",
            "JOB | RESULT | CODE | SIGNAL | ERROR           \n\
             --- | ------ | ---- | ------ | ----------------\n\
             11  | ok     | 0    |        |                 \n\
             12  |        |      |        | job 12 not found\n\
             \njob 11 stdout:\nhello 11\n\njob 11 stderr:\ne11\n",
            "",
            5,
        ),
        (
            "--json run-manual 13",
            "{\"jobs\":{\"13\":{\"result\":\"fail\",\"code\":3,\"signal\":null,\"stdout\":\"\",\"stderr\":\"err 13\\n\"}}}\n",
            "",
            5,
        ),
    ] {
        let mut all = vec!["--port", &port];
        all.extend(words.split(' '));
        let run = jobctl(&all).await;
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str(), run.code),
            (stdout, stderr, code),
            "{words}"
        );
    }
    let run = jobctl(&["--port", &port, "memory-usage"]).await;
    assert!(run.stdout.starts_with("WHAT               | VALUE"), "{run:?}");
    let run = jobctl(&["--port", &port, "status"]).await;
    assert!(run.stdout.contains("TARGET") && run.stdout.contains("rss"), "{run:?}");
}

#[tokio::test]
async fn every_master_command_works_on_our_master() {
    let master = master("").await;
    let port = master.address().port().to_string();
    for (words, stdout, code) in [
        ("poke low", "ok\n", 0),
        ("pause", "ok\n", 0),
        ("continue", "ok\n", 0),
        (
            "list-workers",
            "WORKER | TARGETS | CONCURRENCY | LENGTH | PAUSED\n------ | ------- | ----------- | ------ | ------\n",
            0,
        ),
        (
            "send-signal 9 low 5",
            "JOB | SENT                                \n--- | ------------------------------------\n5   | worker serving target 'low' not found\n",
            0,
        ),
        ("pause nope", "", 1),
        ("list-targets", "", 2),
    ] {
        let mut all = vec!["--master", "--port", &port];
        all.extend(words.split(' '));
        let run = jobctl(&all).await;
        assert_eq!(run.code, code, "{words}: {run:?}");
        if !words.starts_with("send-signal") {
            assert_eq!(run.stdout, stdout, "{words}: {run:?}");
        } else {
            assert!(run.stdout.contains("worker serving target 'low' not found"), "{run:?}");
        }
    }
    let run = jobctl(&["--master", "--port", &port, "run-manual", "low", "5"]).await;
    assert!(run.stdout.contains("worker serving target 'low' not found"), "{run:?}");
    assert_eq!(run.code, 5);
}

#[tokio::test]
async fn the_password_is_typed_given_or_configured() {
    let world = World::new();
    let worker = world.worker("password = sesame").await;
    let port = worker.address().port().to_string();
    let refused = jobctl(&["--port", &port, "list-targets"]).await;
    assert_eq!(refused.stderr, "ERROR [jobctl] Worker error: invalid password\n");
    assert_eq!(refused.code, 1);
    let typed = run(&["--password", "--port", &port, "list-targets"], "sesame\n").await;
    assert_eq!((typed.code, typed.stderr.as_str()), (0, "Enter password: "), "{typed:?}");
    assert!(typed.stdout.starts_with("TARGET"), "{typed:?}");
    assert_eq!(jobctl(&["--password=sesame", "--port", &port, "pause"]).await.code, 0);
    let file = world.file("jobctl.conf");
    std::fs::write(&file, format!("password = sesame\nport = {port}\n")).unwrap();
    let configured = jobctl(&["--config", file.to_str().unwrap(), "continue"]).await;
    assert_eq!((configured.code, configured.stdout.as_str()), (0, "ok\n"), "{configured:?}");
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_an_error() {
    let run = jobctl(&["--port", "1", "list-targets"]).await;
    assert_eq!(run.code, 1);
    assert!(run.stderr.starts_with("ERROR [jobctl] Connection failure: "), "{run:?}");
    assert!(run.stderr.ends_with("(127.0.0.1:1)\n"), "{run:?}");
}

#[tokio::test]
async fn what_changes_something_is_not_watched() {
    let run = jobctl(&["--watch", "poll", "low"]).await;
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("it is for questions"), "{run:?}");
}

/// A listener that accepts connections and sends nothing by itself.
async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_an_error() {
    let (_listener, port) = listener().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "timeout = 0.2\n").unwrap();
    let configured = ["--config", file.path().to_str().unwrap(), "--port", &port, "status"];
    for words in [&["--port", &port, "--timeout", "0.2", "status"][..], &configured] {
        let run = jobctl(words).await;
        let expected = format!(
            "ERROR [jobctl] Worker error: no answer within 0.2 s (127.0.0.1:{port}); --timeout \
             waits longer\n"
        );
        assert_eq!((run.stderr.as_str(), run.code), (expected.as_str(), 1), "{words:?}");
    }
    let run = jobctl(&["--port", &port, "--timeout", "0.2", "run-manual", "5"]).await;
    assert!(run.stderr.contains("no answer within 0.2 s"), "{run:?}");
    assert!(run.stderr.contains("not even to pings"), "{run:?}");
}

#[tokio::test]
async fn a_connection_that_does_not_come_is_an_error() {
    // A listener that accepts nothing, and whose queue of connections is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connected) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
    }
    let port = address.port().to_string();
    let run = jobctl(&["--port", &port, "--timeout", "0.2", "list-targets"]).await;
    let expected = format!(
        "ERROR [jobctl] Connection failure: none within 0.2 s (127.0.0.1:{port}); --timeout waits \
         longer\n"
    );
    assert_eq!((run.stderr, run.code), (expected, 1));
}

/// Answers pings and, when it has been told to, the request, in pieces.
#[tokio::test]
async fn run_manual_waits_for_its_jobs_as_long_as_the_daemon_is_there() {
    let (listener, port) = listener().await;
    let serving = tokio::spawn(async move {
        let mut peer = Peer::over(listener.accept().await.unwrap().0);
        let request: serde_json::Value = serde_json::from_str(&peer.hear().await).unwrap();
        // Much longer than the timeout, and not a word but pongs.
        for _ in 0..3 {
            assert_eq!(peer.hear().await, "[2]");
            peer.send("[3]").await;
        }
        // A long answer on a slow line: no whole message for longer than the timeout.
        let no = &request[1]["no"];
        let ended = r#"{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}"#;
        let answer = format!(r#"[1,{{"no":{no},"data":{{"jobs":{{"5":{ended}}}}}}}]"#);
        for piece in answer.as_bytes().chunks(8) {
            peer.send_bytes(piece).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        peer.send_bytes(b"\x04").await;
        while peer.next().await.is_some() {}
    });
    let run = jobctl(&["--port", &port, "--timeout", "2", "run-manual", "5"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    serving.await.unwrap();
}

#[tokio::test]
async fn a_timeout_of_0_waits_for_ever_and_others_have_bounds() {
    let (listener, port) = listener().await;
    let serving = tokio::spawn(async move {
        let mut peer = Peer::over(listener.accept().await.unwrap().0);
        let request: serde_json::Value = serde_json::from_str(&peer.hear().await).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let no = &request[1]["no"];
        peer.send(&format!(r#"[1,{{"no":{no},"data":"ok"}}]"#)).await;
        peer.next().await;
    });
    let run = jobctl(&["--port", &port, "--timeout", "0", "poll", "low"]).await;
    assert_eq!((run.stdout.as_str(), run.code), ("ok\n", 0), "{run:?}");
    serving.await.unwrap();
    for wrong in ["0.05", "86401", "-1", "NaN"] {
        let run = jobctl(&["--port", "1", &format!("--timeout={wrong}"), "status"]).await;
        let expected = "ERROR [jobctl] --timeout takes seconds, from 0.1 to 86400, or 0.\n";
        assert_eq!((run.stderr.as_str(), run.code), (expected, 2), "{wrong}");
    }
}
