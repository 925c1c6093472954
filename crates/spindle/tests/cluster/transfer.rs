//! `spindle export` and `import` through a node, while the lead changes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use spindle_testkit::{Program, wait_until};

use crate::harness::{Cluster, Node, SPINDLE};
use crate::kinds::ended;

/// More than pipes and sockets hold.
const JOBS: usize = 2000;

fn started(node: &Node, arguments: &[&str], stdout: Stdio) -> Program {
    let mut command = Command::new(SPINDLE);
    let url = format!("http://{}", node.http);
    Program::start(
        command.args(arguments).args(["--url", &url]).stdout(stdout).stderr(Stdio::null()),
    )
}

/// Runs a command until it succeeds: the node may not know a leader yet.
fn until_done(node: &Node, arguments: &[&str]) {
    let url = format!("http://{}", node.http);
    wait_until(arguments[0], || ended(&[arguments, &["--url", &url]].concat()).0 == Some(0));
}

/// The payloads of all jobs in a file, whose end says how many there are.
fn payloads(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let jobs = lines.iter().filter(|line| line["type"] == "job");
    let jobs: Vec<String> = jobs.map(|job| job["payload"].to_string()).collect();
    let end = lines.last().unwrap();
    assert_eq!((&end["type"], &end["jobs"]), (&"end".into(), &jobs.len().into()));
    jobs
}

#[test]
fn jobs_are_exported_and_imported_whatever_happens_to_the_leader() {
    let mut cluster = Cluster::start(&["one", "two"]);
    let leader = cluster.leader();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [lines, file, again] = ["lines", "jobs", "again"].map(path);
    let line = |n: usize| format!("{{\"n\":{n},\"x\":\"{}\"}}\n", "x".repeat(10_000));
    fs::write(&lines, (0..JOBS).map(line).collect::<String>()).unwrap();
    let follower = &cluster.nodes[1 - leader];
    follower.command(&["add", "q", "--type", "json", "--lines", &lines]);

    // The leader dies while an export from it waits for its reader.
    let mut export = started(&cluster.nodes[leader], &["export", "-"], Stdio::piped());
    let mut stdout = BufReader::new(export.stdout.take().unwrap());
    let mut begun = String::new();
    for _ in 0..50 {
        stdout.read_line(&mut begun).unwrap();
    }
    cluster.nodes[leader].kill();
    stdout.read_to_string(&mut begun).unwrap();
    assert!(!export.await_end().success());
    assert!(!begun.contains("\"end\""));
    // The output so far can be used like a file that was cut off.
    fs::write(&file, &begun[..begun.len() - 7]).unwrap();
    let next = 1 - leader;
    until_done(&cluster.nodes[next], &["export", &file]);
    let exported = payloads(&file);
    assert_eq!(exported.len(), JOBS);
    cluster.nodes[leader].start();
    assert_eq!(cluster.leader(), next);

    // It dies while jobs come back.
    let mut empty = Cluster::start(&["one", "two"]);
    let leader = empty.leader();
    let mut import = started(&empty.nodes[1 - leader], &["import", &file], Stdio::null());
    let notes = format!("{file}.imported");
    wait_until("the first jobs are there", || fs::exists(&notes).unwrap());
    import.signal(Signal::SIGSTOP);
    empty.nodes[leader].kill();
    import.signal(Signal::SIGCONT);
    import.await_end();
    until_done(&empty.nodes[1 - leader], &["import", &file]);
    until_done(&empty.nodes[1 - leader], &["export", &again]);
    assert_eq!(payloads(&again), exported);
}
