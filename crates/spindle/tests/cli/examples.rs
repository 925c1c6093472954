//! The programs in `examples/`: the README shows them as they are, and each works what all submit.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    fake_workq::{await_exit, stderr, stdout},
    serve::{Served, serve},
};

const HINT: &str = "`cargo xtask test` installs what these tests need";

/// An example: its file, the README's language of it, and the program that runs it.
#[derive(Debug)]
struct Example {
    file: &'static str,
    language: &'static str,
    program: Option<&'static str>,
}

const fn example(
    file: &'static str,
    language: &'static str,
    program: Option<&'static str>,
) -> Example {
    Example { file, language, program }
}

const ALL: [Example; 5] = [
    example("mail.py", "python", Some("python3")),
    example("mail.mjs", "js", Some("node")),
    example("mail.go", "go", None),
    example("mail.php", "php", Some("php")),
    example("mail.sh", "sh", Some("sh")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A folder with the programs that the examples call, and what Go is compiled to.
struct Bench {
    folder: TempDir,
    url: String,
}

impl Bench {
    fn new(address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_spindle"), folder.path().join("spindle")).unwrap();
        Self { folder, url: format!("http://{address}") }
    }

    fn compile(&self, file: &Path) -> PathBuf {
        let program = self.folder.path().join("compiled");
        if !program.exists() {
            let mut go = Command::new("go");
            go.args(["build", "-o"]).arg(&program).arg(file).env("GOTOOLCHAIN", "local");
            let output = go.output().unwrap_or_else(|error| panic!("go: {error} ({HINT})"));
            assert!(output.status.success(), "{}", stderr(&output));
        }
        program
    }

    /// Runs an example to its end.
    fn run(&self, example: &Example, arguments: &[&str]) -> Output {
        let file = root().join("examples").join(example.file).canonicalize().unwrap();
        let mut command = match example.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.arg(file);
                command
            }
            None => Command::new(self.compile(&file)),
        };
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let child = command
            .args(arguments)
            .env("PATH", path)
            .env("SPINDLE_URL", &self.url)
            .env_remove("SPINDLE_WORKQ")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{example:?}: {error} ({HINT})"));
        await_exit(&mut child);
        child.wait_with_output().unwrap()
    }

    fn submit(&self, example: &Example, address: &str) -> String {
        let output = self.run(example, &["submit", address]);
        assert!(output.status.success(), "{example:?}: {}", stderr(&output));
        stdout(&output).trim().to_owned()
    }

    fn spindle(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.args(arguments).env("SPINDLE_URL", &self.url).env_remove("SPINDLE_WORKQ");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        output
    }

    fn add(&self, kind: &str, payload: &str) -> String {
        let output = self.spindle(&["add", "mail", payload, "--type", kind]);
        stdout(&output).trim().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        let output = self.spindle(&["job", id, "--json"]);
        serde_json::from_str(&stdout(&output)).unwrap()
    }
}

/// A server whose failed mails are not tried again while a test runs.
fn served() -> (Served, Bench) {
    let served = serve(&["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let bench = Bench::new(&served.address_of("http"));
    bench.spindle(&["queue", "set", "mail", "--backoff", "1h"]);
    (served, bench)
}

#[test]
fn the_readme_shows_every_example_as_it_is() {
    let page = read("README.md");
    for Example { file, language, .. } in &ALL {
        let code = read(&format!("examples/{file}"));
        let block = format!("\n```{language}\n{code}```\n");
        assert!(page.contains(&block), "README.md does not show examples/{file} as it is");
        assert!(page.contains(&format!("(examples/{file})")), "README.md has no link to {file}");
    }
    let files = fs::read_dir(root().join("examples")).unwrap().map(Result::unwrap);
    // The workers in the folder below have tests of their own.
    let files = files.filter(|entry| entry.file_type().unwrap().is_file()).count();
    assert_eq!(files, ALL.len(), "every file in examples/ is run and shown");
}

#[test]
fn every_language_works_what_every_language_submits() {
    let (_served, bench) = served();
    for worker in &ALL {
        let addresses = ALL.each_ref().map(|by| format!("{}@{}", by.language, worker.language));
        let ids = [0, 1, 2, 3, 4].map(|n| bench.submit(&ALL[n], &addresses[n]));
        let output = bench.run(worker, &["work"]);
        assert!(output.status.success(), "{worker:?}: {}", stderr(&output));
        for (id, address) in ids.iter().zip(&addresses) {
            let result = stdout(&bench.spindle(&["result", id]));
            let result: Value = serde_json::from_str(&result).unwrap();
            assert_eq!(result, json!({ "sent_to": address }), "{worker:?}");
        }
    }
}

#[test]
fn a_job_that_cannot_be_done_fails_with_a_message_and_the_worker_goes_on() {
    let (_served, bench) = served();
    let long = format!(r#"{{"to": "a{}"}}"#, "😀".repeat(5_000));
    for worker in &ALL {
        let bad = [
            bench.submit(worker, "nowhere"),
            bench.add("json", &long),
            bench.add("json", r#"{"to": 5}"#),
            bench.add("json", "[]"),
            bench.add("bytes", "no JSON"),
        ];
        let good = bench.submit(worker, "ann@example.org");
        let output = bench.run(worker, &["work"]);
        // `spindle work` says by its exit code that a job failed.
        let code = if worker.language == "sh" { 5 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{worker:?}: {}", stderr(&output));
        for (number, id) in bad.iter().enumerate() {
            let job = bench.job(id);
            assert_eq!((&job["status"], &job["fails"]), (&json!("scheduled"), &json!(1)), "{job}");
            assert!(
                job["result"]["message"].as_str().is_some_and(|text| !text.is_empty()),
                "{job}"
            );
            let said = job["result"].to_string();
            assert!(number > 0 || said.contains("no address: nowhere"), "{worker:?}: {job}");
        }
        assert_eq!(bench.job(&good)["status"], "done", "{worker:?}");
    }
}

/// Reads a request; its path.
fn path(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.to_lowercase());
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    head[0].split(' ').nth(1).unwrap().to_owned()
}

/// A server that gives these answers, one after the other; its address, and the paths asked for.
fn answers(answers: Vec<(&'static str, String)>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (send, paths) = channel();
    thread::spawn(move || {
        for ((status, body), stream) in answers.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            send.send(path(&stream)).unwrap();
            let length = body.len();
            let head = "Content-Type: application/json\r\nConnection: close";
            write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}")
                .unwrap();
        }
    });
    (address, paths)
}

/// Lets a worker have a job whose end is answered so.
fn ended_with(worker: &Example, status: &'static str) -> (Output, Vec<String>) {
    let job = json!({ "lease_token": "TOKEN", "payload": { "to": "ann@example.org" } });
    let end = json!({ "code": "lease_not_live" });
    let (address, paths) = answers(vec![
        ("200 OK", job.to_string()),
        (status, end.to_string()),
        ("204 No Content", String::new()),
    ]);
    let output = Bench::new(&address).run(worker, &["work"]);
    (output, paths.try_iter().collect())
}

#[test]
fn a_lease_that_has_ended_is_no_error_of_a_worker_and_any_other_refusal_is() {
    // The shell's worker is `spindle work`, which has tests of its own.
    for worker in ALL.iter().filter(|example| example.language != "sh") {
        for gone in ["409 Conflict", "410 Gone"] {
            let (output, paths) = ended_with(worker, gone);
            assert!(output.status.success(), "{worker:?}: {}", stderr(&output));
            let lease = "/api/v1/lease";
            assert_eq!(paths, [lease, "/api/v1/leases/token/complete", lease], "{worker:?}");
        }
        let (output, paths) = ended_with(worker, "507 Insufficient Storage");
        assert!(!output.status.success() && paths.len() == 2, "{worker:?}: {paths:?}");
    }
}
