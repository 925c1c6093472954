//! The README's program for Rust, an example of the library, as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use futures_util::TryStreamExt;
use nix::sys::signal::Signal;
use spindle_client::JobFilter;
use spindle_testkit::{PATIENCE, Program};

use crate::server::Served;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_task_is_submitted_and_worked_until_sigterm() {
    let read = |path: &str| fs::read_to_string(format!("{FOLDER}/../../{path}")).unwrap();
    let program = read("crates/client/examples/mail.rs");
    let block = format!("\n```rust\n{program}```\n");
    assert!(read("README.md").contains(&block), "README.md does not show mail.rs as it is");
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    let lines = program.lines().filter(is_code).count();
    assert!(lines <= 10, "a task and its worker are ten lines, and it has {lines}");

    let served = Served::new();
    let mut command = Command::new(example());
    command.env("SPINDLE_URL", format!("http://{}", served.http)).stdout(Stdio::null());
    let mut worker = Program::start(&mut command);
    let client = served.client();
    let filter = JobFilter { queue: Some("mail".to_owned()), ..JobFilter::default() };
    let mut jobs = Vec::new();
    while jobs.is_empty() {
        jobs = client.jobs(&filter).try_collect::<Vec<_>>().await.unwrap();
    }
    let result: String = client.job(jobs[0].id).result(PATIENCE).await.unwrap();
    assert_eq!(result, "sent to a@example.org");
    worker.signal(Signal::SIGTERM);
    assert!(worker.await_end().success());
}

/// The program. A run of all tests has built it; a run of this one has not.
fn example() -> PathBuf {
    let build = ["build", "--quiet", "--workspace", "--example", "mail"];
    let built = Command::new(env!("CARGO")).args(build).current_dir(FOLDER).status().unwrap();
    assert!(built.success(), "cargo build: {built}");
    Path::new(env!("CARGO_BIN_EXE_spindle")).with_file_name("examples").join("mail")
}
