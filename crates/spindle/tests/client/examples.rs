//! The workers in `examples/workers`, each in a language without a library of ours.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use serde_json::{Value, json};
use spindle_client::{Client, ResultError};
use spindle_testkit::{PATIENCE, Program};

use crate::server::Served;

const HINT: &str = "`cargo xtask test` installs what these tests need";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers");

/// What runs an example.
fn command(language: &str) -> Command {
    let with = |program: &str, file: &str| {
        let mut command = Command::new(program);
        command.arg(format!("{FOLDER}/{file}"));
        command
    };
    match language {
        "go" => Command::new(compiled()),
        "php" => with("php", "worker.php"),
        _ => with("ruby", "worker.rb"),
    }
}

/// Go's program, compiled once.
fn compiled() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-worker");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(format!("{FOLDER}/worker.go"));
        let built = go.env("GOTOOLCHAIN", "local").output();
        let built = built.unwrap_or_else(|error| panic!("go: {error} ({HINT})"));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

/// A server, and who speaks to it in one language.
struct Bench {
    served: Served,
    client: Client,
    language: &'static str,
}

impl Bench {
    fn new(language: &'static str) -> Self {
        let served = Served::new();
        Self { client: served.client(), served, language }
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = command(self.language);
        command.args(arguments).env("SPINDLE_URL", format!("http://{}", self.served.http));
        command.env_remove("SPINDLE_TOKEN").stdin(Stdio::null());
        command
    }

    fn work(&self) -> Program {
        Program::start(&mut self.run(&["work"]))
    }

    /// Submits a mail with the example; its number.
    fn submit(&self, arguments: &[&str]) -> u64 {
        let output = self.run(&[&["submit"], arguments].concat()).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error} ({HINT})", self.language));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    async fn done(&self, id: u64, address: &str) {
        let result: Value = self.client.job(id).result(PATIENCE).await.unwrap();
        assert_eq!(result, json!({ "sent_to": address }), "{}", self.language);
    }

    async fn attempts(&self, id: u64) -> u32 {
        self.client.job(id).info().await.unwrap().attempts
    }
}

/// A job, one that takes longer than its lease, one that fails; then the server crashes, and at the
/// end the worker is told to stop while a job runs.
async fn works(language: &'static str) {
    let mut bench = Bench::new(language);
    let mut worker = bench.work();
    let short = bench.submit(&["a@example.org"]);
    let long = bench.submit(&["b@example.org", "4"]);
    let bad = bench.submit(&["nowhere"]);
    bench.done(short, "a@example.org").await;
    bench.done(long, "b@example.org").await;
    assert_eq!(bench.attempts(long).await, 1, "{language}");
    let dead = bench.client.job(bad).result::<Value>(PATIENCE).await.unwrap_err();
    let ResultError::Dead(dead) = dead else { panic!("{language}: {dead}") };
    assert_eq!(dead.fails, 3, "{language}");
    assert_eq!(dead.result.unwrap().message, "no address: nowhere", "{language}");

    bench.served.crash();
    let again = bench.submit(&["c@example.org"]);
    bench.done(again, "c@example.org").await;

    let last = bench.submit(&["d@example.org", "1"]);
    while bench.attempts(last).await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.ask_to_end();
    assert!(worker.await_end().success(), "{language}");
    bench.done(last, "d@example.org").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_go_beats_retries_and_stops() {
    works("go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_php_beats_retries_and_stops() {
    works("php").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_in_ruby_beats_retries_and_stops() {
    works("ruby").await;
}
