//! A pusher and workers in Python.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use spindle_testkit::{Program, wait_within};

use crate::server::Served;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lightjq/talk.py");

/// How long something may take that should take some seconds.
const WITHIN: Duration = Duration::from_secs(240);

/// Where `cargo xtask test` has put what pip brings.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("lightjq-clients/python/bin/python")
}

/// A program in Python; dropping it ends it.
struct Talker {
    child: Program,
    lines: BufReader<ChildStdout>,
}

impl Talker {
    fn start(role: &str, served: &Served, folder: &Path) -> Talker {
        let hint = "missing? `cargo xtask test` installs what these tests need";
        let child = Command::new(python())
            .args([SCRIPT, role, &served.http])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error} ({hint})", python().display()));
        let mut child = Program::from(child);
        let lines = BufReader::new(child.stdout.take().unwrap());
        Talker { child, lines }
    }

    /// A worker, once it is registered.
    fn worker(role: &str, served: &Served, folder: &Path) -> Talker {
        let mut worker = Talker::start(role, served, folder);
        let mut line = String::new();
        worker.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "registered\n", "{role}");
        worker
    }

    /// All it says until it ends, which it must, and well.
    fn ended(self) -> String {
        let Talker { mut child, mut lines } = self;
        let reader = thread::spawn(move || {
            let mut text = String::new();
            lines.read_to_string(&mut text).map(|_| text)
        });
        wait_within(WITHIN, "the end of a program in Python", || reader.is_finished());
        let text = reader.join().unwrap().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        text
    }
}

#[test]
fn a_thousand_jobs_with_failures_and_timeouts_all_come_to_the_end_they_should() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::new(&folder.path().join("data"), "127.0.0.1:0");
    let marks = folder.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    let _workers =
        ["pulling", "pulling", "pushed"].map(|role| Talker::worker(role, &served, &marks));
    let said = Talker::start("pusher", &served, &marks).ended();
    assert_eq!(said, "1000 jobs: 800 plain, 100 failed once, 50 late once, 50 failed\n");
}

#[test]
fn workers_and_jobs_survive_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut served = Served::new(&data, "127.0.0.1:0");
    let marks = folder.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    let said = Talker::start("before", &served, &marks).ended();
    assert_eq!(said, "3 jobs, 1 begun\n");
    let http = served.http.clone();
    served.kill();
    let served = Served::new(&data, &http);
    let said = Talker::start("after", &served, &marks).ended();
    assert_eq!(said, "3 done\n");
}
