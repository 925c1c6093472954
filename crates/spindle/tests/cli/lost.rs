//! `spindle work` against a real server: jobs that are cancelled or lost while their command runs,
//! jobs that fail, servers that are not there yet.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::{Program, free_address};
use tempfile::TempDir;

use crate::{
    fake_workq::{Said, await_exit, spindle, stderr, stdout},
    native::{at, object, output_of, served, url},
    serve::Served,
};

/// A worker, what it says, and what it prints.
struct Worker {
    child: Program,
    said: Said,
    printed: Said,
    folder: TempDir,
}

impl Worker {
    /// Starts `spindle work q` with a script that can use `$up`, to say that it runs, and `$go`,
    /// to wait until it may go on.
    fn start(url: &str, arguments: &[&str], script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Program::start(
            Command::new(env!("CARGO_BIN_EXE_spindle"))
                .args(["work", "q", "--url", url])
                .args(arguments)
                .args(["--", "sh", "-c", script])
                .env("up", "echo up >&2")
                .env("go", format!("until [ -e {} ]; do sleep 0.01; done", file(&folder).display()))
                .env_remove("SPINDLE_WORKQ")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let said = Said::by(child.stderr.take().unwrap());
        let printed = Said::by(child.stdout.take().unwrap());
        Self { child, said, printed, folder }
    }

    fn go(&self) {
        fs::write(file(&self.folder), "").unwrap();
    }

    /// Its only line of JSON, and its exit code.
    fn end(&mut self) -> (Value, i32) {
        let line = object(&self.printed.await_line("{"));
        (line, await_exit(&mut self.child).code().unwrap())
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("go")
}

fn add(served: &Served, arguments: &[&str]) {
    output_of(served, &[&["add", "q"], arguments].concat());
}

#[track_caller]
fn became(line: &Value, outcome: &str, reason: Option<&str>) {
    assert_eq!((line["outcome"].as_str(), line["reason"].as_str()), (Some(outcome), reason));
    assert_eq!((&line["success"], &line["delivered"]), (&json!(false), &json!(false)), "{line}");
}

#[test]
fn a_cancelled_job_is_reported_as_that_and_its_command_ended_however_long_its_lease() {
    let served = served(&["--memory"]);
    add(&served, &["--ttr", "1h"]);
    let script = "trap 'exit 3' TERM; eval $up; sleep 600 & wait";
    let mut worker = Worker::start(&url(&served), &["--once", "--json"], script);
    worker.said.await_line("up");
    output_of(&served, &["cancel", "1"]);
    let (line, code) = worker.end();
    became(&line, "cancelled", None);
    assert_eq!((code, &line["exit_code"], &line["attempt"]), (5, &json!(3), &json!(1)));
    // The `sleep` held the pipe open; the pipe's end shows that `sleep` is gone too.
    worker.said.await_end();
    let job = object(&output_of(&served, &["job", "1", "--json"]));
    assert_eq!((&job["status"], &job["result"]["code"]), (&json!("dead"), &json!("cancelled")));
}

#[test]
fn people_are_told_of_cancelled_and_deleted_jobs_and_the_worker_goes_on() {
    let served = served(&["--memory"]);
    for _ in 0..4 {
        add(&served, &["--ttr", "3s", "--max-fails", "1"]);
    }
    let script = "case $SPINDLE_JOB_ID in 1 | 2) eval $up; exec sleep 600;; 3) exit 7;; esac";
    let mut worker = Worker::start(&url(&served), &["--drain", "--kill-after", "0"], script);
    worker.said.await_line("up");
    output_of(&served, &["cancel", "1"]);
    worker.said.await_line("job 1 of q was cancelled; its command is ended");
    worker.said.await_line("up");
    output_of(&served, &["delete", "2"]);
    worker.said.await_line("job 2 of q was deleted, or its time to live is over; its command is");
    worker.said.await_line("job 3 of q failed: exit code 7");
    worker.said.await_line("1 completed, 1 failed, 2 cancelled or lost");
    assert_eq!(await_exit(&mut worker.child).code(), Some(5));
}

#[test]
fn a_command_that_does_not_end_is_killed_and_that_is_told() {
    let served = served(&["--memory"]);
    add(&served, &["--ttr", "3s"]);
    let script = "trap '' TERM; eval $up; while :; do sleep 1; done";
    let mut worker = Worker::start(&url(&served), &["--once", "--kill-after", "200ms"], script);
    worker.said.await_line("up");
    output_of(&served, &["cancel", "1"]);
    worker.said.await_line("job 1 of q: its command did not end in 200ms and was killed");
    assert_eq!(await_exit(&mut worker.child).code(), Some(5));
}

#[test]
fn a_lease_that_ran_out_is_lost_and_so_is_one_that_another_worker_has() {
    for (taken, reason) in [(false, "timeout"), (true, "leased_again")] {
        let served = served(&["--memory"]);
        add(&served, &["--ttr", "1500ms", "--backoff", "none"]);
        let mut asleep = Worker::start(&url(&served), &["--once", "--json"], "eval $up; sleep 600");
        asleep.said.await_line("up");
        asleep.child.signal(Signal::SIGSTOP);
        while object(&output_of(&served, &["job", "1", "--json"]))["status"] != "ready" {}
        let other = taken.then(|| Worker::start(&url(&served), &["--once"], "eval $up; eval $go"));
        if let Some(other) = &other {
            other.said.await_line("up");
        }
        asleep.child.signal(Signal::SIGCONT);
        let (line, code) = asleep.end();
        became(&line, "lease_lost", Some(reason));
        assert_eq!((code, &line["signal"]), (5, &json!(15)));
        if let Some(mut other) = other {
            other.go();
            assert_eq!(await_exit(&mut other.child).code(), Some(0));
        }
    }
}

#[test]
fn a_command_may_be_kept_running_and_its_result_is_dropped_all_the_same() {
    let served = served(&["--memory"]);
    add(&served, &["--ttr", "3s"]);
    let arguments = ["--once", "--keep-running"];
    let mut worker = Worker::start(&url(&served), &arguments, "eval $up; eval $go; echo end >&2");
    worker.said.await_line("up");
    output_of(&served, &["cancel", "1"]);
    worker.said.await_line("job 1 of q was cancelled; its command runs on");
    worker.go();
    worker.said.await_line("end");
    worker.said.await_line("job 1 of q was cancelled; its result is dropped");
    assert_eq!(await_exit(&mut worker.child).code(), Some(5));
}

#[test]
fn a_failure_has_a_code_a_message_and_the_end_of_standard_error() {
    let served = served(&["--memory"]);
    let long = "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 9";
    for script in ["echo 'no printer' >&2; printf out; exit 9", "kill -9 $$", long] {
        add(&served, &[script, "--max-fails", "1"]);
    }
    let worker = Worker::start(&url(&served), &["--drain"], "eval \"$(cat)\"");
    worker.said.await_line("no printer");
    worker.said.await_line("job 1 of q failed: exit code 9");
    worker.said.await_line("job 2 of q failed: killed by signal 9 (SIGKILL)");
    worker.said.await_line("line 0");
    worker.said.await_line("0 completed, 3 failed");
    let result = |id: &str| object(&output_of(&served, &["job", id, "--json"]))["result"].clone();
    let first = result("1");
    assert_eq!(
        (&first["code"], &first["message"], &first["error"], &first["text"]),
        (&json!("exit_9"), &json!("exit code 9"), &json!("no printer"), &json!("out"))
    );
    let second = result("2");
    assert_eq!(second["code"], "signal_SIGKILL");
    assert_eq!(second["message"], "killed by signal 9 (SIGKILL)");
    let error = result("3")["error"].as_str().unwrap().to_owned();
    assert!(error.ends_with("line 1998\nline 1999") && error.len() == 4095, "{error}");
    let shown = output_of(&served, &["job", "1"]);
    for line in ["code\texit_9", "message\texit code 9", "error\tno printer"] {
        assert!(shown.lines().any(|answer| answer == line), "{line}: {shown}");
    }
}

#[test]
fn the_attempt_is_in_the_environment_through_both_doors() {
    let served = served(&["--memory"]);
    let script = "echo attempt $SPINDLE_ATTEMPT; [ $SPINDLE_ATTEMPT = 2 ]";
    let command = ["work", "q", "--max-jobs", "2", "--", "sh", "-c", script];
    output_of(&served, &["add", "q", "--max-fails", "3"]);
    at(&served, &command).assert().code(5);
    assert_eq!(output_of(&served, &["result", "1"]), "attempt 2\n");
    let id = stdout(&served.spindle(&["add", "q", "--max-fails", "3"]).unwrap());
    served.spindle(&command).assert().code(5);
    assert_eq!(stdout(&served.spindle(&["result", id.trim()]).unwrap()), "attempt 2\n");
}

#[test]
fn a_server_that_is_not_up_yet_is_waited_for_and_that_is_told_once() {
    let free = free_address();
    let worker = Worker::start(&format!("http://{free}"), &["--once"], "cat");
    let line = worker.said.await_line("waiting until it answers");
    assert!(line.contains("is the server running?"), "{line}");
    let again = worker.said.next_line_within_a_moment();
    assert_eq!(again, None);
    let served = crate::serve::serve(&["--memory", "--workq", "127.0.0.1:0", "--http", &free]);
    worker.said.await_line(&format!("http://{free} answers"));
    add(&served, &["hello"]);
    let mut worker = worker;
    assert_eq!(await_exit(&mut worker.child).code(), Some(0));
    assert_eq!(output_of(&served, &["result", "1"]), "hello");
}

#[test]
fn a_signal_ends_a_worker_that_waits_for_its_server() {
    let free = free_address();
    for (door, address) in [("--url", format!("http://{free}")), ("--workq", free)] {
        let mut child = Program::start(
            Command::new(env!("CARGO_BIN_EXE_spindle"))
                .args(["work", "q", door, &address, "--", "true"])
                .env_remove("SPINDLE_WORKQ")
                .stderr(Stdio::piped()),
        );
        let said = Said::by(child.stderr.take().unwrap());
        said.await_line("waiting until it answers");
        child.signal(Signal::SIGTERM);
        assert_eq!(await_exit(&mut child).code(), Some(143));
    }
}

#[test]
fn what_no_waiting_mends_fails_at_once() {
    let output = spindle(&["work", "q", "--workq", "nowhere", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("write it as 127.0.0.1:9922"), "{}", stderr(&output));
    let both = ["work", "q", "--keep-running", "--kill-after", "1s", "--", "true"];
    assert_eq!(spindle(&both).output().unwrap().status.code(), Some(2));
}
