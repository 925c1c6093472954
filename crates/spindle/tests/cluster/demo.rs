//! `spindle demo --cluster`: a bounded run on either kind of log, its end however it comes, and what it
//! refuses.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use spindle_testkit::{Program, Said, free_address, nats_program, wait_until, write_script};
use tempfile::TempDir;

use crate::harness::{SPINDLE, database};

/// The demo of a cluster, with a folder of its own for temporary folders.
fn demo(temporary: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(SPINDLE);
    command.args(["demo", "--cluster"]).args(arguments).env("TMPDIR", temporary.path());
    // The environment's settings for servers must not affect those of the demo.
    command.env("SPINDLE_SERVE_HTTP", "127.0.0.1:1").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_empty(folder: &TempDir) -> bool {
    fs::read_dir(folder.path()).unwrap().count() == 0
}

/// Checks that all jobs were done, although the leader was killed.
#[track_caller]
fn none_is_lost(output: &Output, jobs: usize) {
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{table}{said}");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    let (all, routes) = rows.split_last().unwrap();
    assert_eq!(routes.len(), 6, "{table}");
    for row in routes {
        assert_eq!((row[3], row[5]), (&*jobs.to_string(), "0"), "{table}");
    }
    assert_eq!((all[3], all[5]), (&*(6 * jobs).to_string(), "0"), "{table}");
    for words in ["epoch 1;", "SIGKILL for node-", "epoch 2; clients had no answer for", "lost: 0"]
    {
        assert!(said.contains(words), "{words} is not said: {said}");
    }
}

#[test]
fn the_leader_is_killed_on_log_servers_of_the_demos_own_and_no_job_is_lost() {
    let (temporary, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (program, kept) = (nats_program(), kept.path().join("kept"));
    let own = ["--nats-server", program.to_str().unwrap(), "--data", kept.to_str().unwrap()];
    let mut command = demo(&temporary, &[&own[..], &["--once", "--jobs", "8"]].concat());
    none_is_lost(&command.output().unwrap(), 8);
    assert!(is_empty(&temporary));
    // A folder that was named on the command line is kept.
    let config = fs::read_to_string(kept.join("nats-2.conf")).unwrap();
    assert!(config.contains("sync_interval: always"), "{config}");
    assert!(kept.join("node-3.log").exists());
    let output = demo(&temporary, &own).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not empty"), "{}", text(&output.stderr));
}

#[test]
fn the_log_may_be_one_that_is_named_and_has_no_queues_of_others() {
    let (temporary, server) = (tempfile::tempdir().unwrap(), database());
    let url = server.url("spindle");
    // Twice: jobs that the first run has left do not count for the second one.
    for jobs in [8, 5] {
        let arguments = ["--log", &url, "--once", "--jobs", &jobs.to_string()];
        let output = demo(&temporary, &arguments).output().unwrap();
        let (table, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{table}{said}");
        let all = format!("all\t\t\t{}\t", 6 * jobs);
        assert!(table.contains(&all) && table.ends_with("\t0\n"), "{table}");
    }
    let mut node = crate::harness::Node::new(url.clone(), "other");
    node.start();
    let output = demo(&temporary, &["--log", &url, "--once"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("other servers use that log: other is one of them"), "{said}");
    let job = serde_json::json!({ "queue": "orders", "payload": {} });
    assert_eq!(node.answer("POST /api/v1/jobs", &job).0, 201);
    assert_eq!(node.end(), Some(0));
    let output = demo(&temporary, &["--log", &url, "--once"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it has a queue orders"), "{said}");
    assert!(is_empty(&temporary));
}

#[test]
fn its_end_is_the_end_of_all_its_servers_even_if_it_is_killed() {
    let program = nats_program();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = demo(&temporary, &["--nats-server", program.to_str().unwrap()]);
        let mut demo = Program::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let said = Said::by(demo.stderr.take().unwrap());
        let address = |line: String| line.split_once("http://").unwrap().1.replace('/', "");
        let mut addresses: Vec<String> = (1..=3)
            .map(|node| address(said.await_line(&format!("node-{node} is process"))))
            .collect();
        // A server that was started again ends with the demo too.
        let is_again = |line: &String| line.contains("is started again");
        let again = (0..30).map(|_| said.await_line("")).find(is_again);
        assert!(again.is_some(), "no server is started again");
        let folder = fs::read_dir(temporary.path()).unwrap().next().unwrap().unwrap().path();
        let config = fs::read_to_string(folder.join("nats-1.conf")).unwrap();
        let nats = config.split("listen: \"").nth(1).unwrap().split('"').next().unwrap();
        addresses.push(nats.to_owned());
        demo.signal(signal);
        let code = (signal != Signal::SIGKILL).then_some(128 + signal as i32);
        assert_eq!(demo.await_end().code(), code, "{signal}");
        wait_until("nobody is there any more", || {
            addresses.iter().all(|address| TcpStream::connect(address).is_err())
        });
        // A program that is killed with SIGKILL cannot remove its folder.
        assert_eq!(is_empty(&temporary), signal != Signal::SIGKILL, "{signal}");
        let mut printed = String::new();
        demo.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "");
    }
}

/// Checks that the demo ends with this code, says these words, and leaves nothing behind.
#[track_caller]
fn is_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(&temporary, arguments).env("PATH", "/nowhere").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {word:?} is not said: {said}");
    }
    assert!(is_empty(&temporary) && output.stdout.is_empty(), "{arguments:?}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn what_will_not_do_is_refused_with_words() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, body: &str| {
        let path = folder.path().join(name);
        write_script(&path, &format!("#!/bin/sh\n{body}\n"));
        path.to_str().unwrap().to_owned()
    };
    let old = script("old", "echo nats-server: v2.9.25");
    is_refused(&["--nats-server", &old], 1, &["is version 2.9.25", "2.10 or newer"]);
    let other = script("other", "echo hello");
    is_refused(&["--nats-server", &other], 1, &["is no nats-server", "hello"]);
    let ill = script(
        "ill",
        "[ \"$1\" = --version ] && echo nats-server: v2.10.1 && exit\necho no disk >&2\nexit 3",
    );
    // Whichever of the three is seen first.
    is_refused(&["--nats-server", &ill], 1, &["cannot start a cluster", "ended: no disk"]);
    is_refused(&["--nats-server", "/nowhere/it"], 1, &["cannot start /nowhere/it"]);

    let nobody = format!("postgres://u@{}/d", free_address());
    is_refused(&["--log", &nobody], 1, &["node-1 ended", "no PostgreSQL server can be used"]);
    let secret = "postgres://u:secret@h/d";
    is_refused(&["--log", secret], 2, &["node-1 ended", "--log-password-file"]);
    is_refused(&["--log", "redis://h"], 2, &["node-1 ended", "postgres://USER@HOST/DATABASE"]);
    is_refused(
        &["--log", &nobody, "--log-password-file", "/nowhere"],
        2,
        &["--log-password-file: cannot read /nowhere"],
    );
    is_refused(&["--log", &nobody, "--nats-server", &old], 2, &["cannot be used with"]);
    is_refused(&["--log-sync", "os"], 2, &["--log <URL>"]);
    let alone = Command::new(SPINDLE).args(["demo", "--log", &nobody]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
    assert!(text(&alone.stderr).contains("--cluster"), "{alone:?}");
}
