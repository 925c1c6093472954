//! `spindle demo`: the whole of it with few jobs, its web page, and Ctrl-C in the middle.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, Program, Said, wait_until};
use tempfile::TempDir;

use crate::fake_workq::{spindle, stderr, stdout};

/// A demo that is under way, with a folder of its own for temporary folders.
struct Demo {
    program: Program,
    said: Said,
    temporary: TempDir,
    http: String,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut program = Program::start(
            Command::new(env!("CARGO_BIN_EXE_spindle"))
                .arg("demo")
                .args(arguments)
                .env("TMPDIR", temporary.path())
                // The environment's settings for servers and commands must not affect the demo.
                .env("SPINDLE_URL", "http://127.0.0.1:1")
                .env("SPINDLE_SERVE_HTTP", "127.0.0.1:1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let said = Said::by(program.stderr.take().unwrap());
        let line = said.await_line("a server runs");
        let http = line.split_once("http://").unwrap().1.trim_end_matches('/').to_owned();
        Self { program, said, temporary, http }
    }

    /// Nothing is left of it.
    fn is_gone(&self) -> bool {
        let left = fs::read_dir(self.temporary.path()).unwrap().count();
        left == 0 && TcpStream::connect(&self.http).is_err()
    }
}

#[test]
fn every_door_has_its_jobs_worked_through_another_and_none_is_lost_in_a_crash() {
    let temporary = tempfile::tempdir().unwrap();
    let output = spindle(&["demo", "--once", "--jobs", "8"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let table = stdout(&output);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    let doors: Vec<_> = rows.iter().map(|row| (row[0], row[1])).collect();
    let expected = [
        ("Gearman", "jobd"),
        ("Workq", "LightJQ"),
        ("jobd", "Workq"),
        ("LightJQ", "Gearman"),
        ("Jobq", "native API"),
        ("native API", "Gearman"),
        ("all", ""),
    ];
    assert_eq!(doors, expected);
    for row in &rows[..6] {
        assert_eq!((row[3], row[5]), ("8", "0"), "{table}");
    }
    assert_eq!((rows[6][3], rows[6][5]), ("48", "0"), "{table}");
    let said = stderr(&output);
    assert!(said.contains("SIGKILL for the server") && said.contains("it runs again"), "{said}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "the folder is left");
}

#[test]
fn the_pages_show_a_company_until_somebody_presses_enter() {
    let mut demo = Demo::start(&["--jobs", "2"]);
    demo.said.await_line("Enter ends");
    let ask = |path: &str| {
        let (status, body) = HttpRequest::send(&demo.http, &format!("GET {path}"), "").answer();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let queues = ask("/api/v1/queues");
    let count = |status: &str| {
        let queues = queues["queues"].as_array().unwrap().iter();
        queues.map(|queue| queue["jobs"][status].as_u64().unwrap()).sum::<u64>()
    };
    // The jobs of the routes are done, two of a flow, and 32 of a batch; a job that was submitted
    // twice around the crash is one more.
    assert!((46..=48).contains(&count("done")), "{queues}");
    let counts = ["dead", "leased", "scheduled", "parked", "blocked"].map(count);
    assert_eq!(counts, [37, 11, 24, 4, 5], "{queues}");
    let batches = ask("/api/v1/batches");
    let stand = &batches["batches"][0]["jobs"];
    let stand = ["total", "unfinished", "done", "dead"].map(|word| stand[word].as_u64());
    assert_eq!(stand, [40, 7, 32, 1].map(Some), "{batches}");
    let dead = ask("/api/v1/jobs?queue=mail&status=dead")["jobs"][0].clone();
    let ended = |at: usize, which: &str| dead["history"][at][which].as_str().unwrap().to_owned();
    let (first, second) = (ended(0, "ended_at"), ended(1, "started_at"));
    let waited = second.parse::<jiff::Timestamp>().unwrap().duration_since(first.parse().unwrap());
    assert!(waited.as_millis() >= 1_000, "its way shows that it waited: {dead}");
    let invoices = ask("/api/v1/jobs?queue=invoices&status=blocked");
    let flow = ask(&format!("/api/v1/jobs/{}/flow", invoices["jobs"][0]["id"]));
    let statuses = flow["nodes"].as_array().unwrap().iter().map(|node| &node["status"]);
    let expected = ["done", "done", "leased", "blocked", "blocked", "blocked", "blocked"];
    assert_eq!(statuses.collect::<Vec<_>>(), expected, "{flow}");
    let paused = queues["queues"].as_array().unwrap().iter();
    let paused: Vec<_> = paused.filter(|queue| queue["paused"] == true).collect();
    assert_eq!(paused.iter().map(|queue| &queue["name"]).collect::<Vec<_>>(), ["reports"]);
    let imports = ask("/api/v1/jobs?queue=import&status=ready");
    let held = imports["jobs"].as_array().unwrap().iter();
    assert!(
        held.clone().count() == 7
            && held.clone().all(|job| job["held_by"].is_object() || job["held_by"].is_array()),
        "{imports}"
    );
    let jobd = ask("/api/v1/jobd");
    let workers = jobd["workers"].as_array().unwrap();
    let names: Vec<_> = workers.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["demo", "media-1", "media-2"], "{jobd}");
    assert!(workers.iter().all(|it| it["answers"] == true), "{jobd}");
    assert_eq!(workers[1]["targets"][0]["jobs"], 3, "{jobd}");
    assert_eq!(workers[2]["targets"][1]["paused"], true, "{jobd}");
    let ordered = json!({ "targets": ["resize"] }).to_string();
    let ordered = HttpRequest::send(&demo.http, "POST /api/v1/jobd/pause", &ordered).answer();
    assert_eq!(ordered.0, 200, "{}", ordered.1);
    let jobd = ask("/api/v1/jobd");
    let workers = jobd["workers"].as_array().unwrap();
    assert!(workers.iter().all(|it| it["targets"][0]["paused"] == true), "{jobd}");
    let schedules = ask("/api/v1/schedules");
    let paused = schedules["schedules"].as_array().unwrap().iter().map(|it| &it["paused"]);
    assert_eq!(paused.filter(|paused| **paused == true).count(), 1, "{schedules}");
    let mut page = HttpRequest::send(&demo.http, "GET /", "").answer().1;
    page.truncate(400);
    assert!(page.contains("<html"), "{page}");
    demo.program.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(demo.program.await_end().code(), Some(0));
    assert!(demo.is_gone());
}

#[test]
fn an_interrupt_ends_the_server_and_removes_the_folder() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut demo = Demo::start(&["--jobs", "100000"]);
        demo.program.signal(signal);
        let code = if signal == Signal::SIGHUP { 1 } else { 128 + signal as i32 };
        assert_eq!(demo.program.await_end().code(), Some(code), "{signal}");
        assert!(demo.is_gone(), "{signal}");
        let mut printed = String::new();
        demo.program.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "");
    }
}

#[test]
fn a_demo_that_is_killed_leaves_no_server() {
    let mut demo = Demo::start(&["--jobs", "100000"]);
    demo.program.crash();
    wait_until("the server is gone", || TcpStream::connect(&demo.http).is_err());
}
