//! The client libraries people have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use spindle_testkit::{Program, Said};

use crate::server::{Served, note};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gearman/clients");

/// Where `cargo xtask test` has put what package managers of languages bring.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("gearman-clients")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    C,
    Perl,
    Php,
    Python,
    Node,
}

const ALL: [Language; 5] =
    [Language::C, Language::Perl, Language::Php, Language::Python, Language::Node];

impl Language {
    fn command(self) -> Command {
        let talk = |ending: &str| format!("{FOLDER}/talk.{ending}");
        let mut command;
        match self {
            Language::C => command = Command::new(compiled()),
            Language::Perl => {
                command = Command::new("perl");
                command.arg(talk("pl"));
            }
            Language::Php => {
                command = Command::new("php");
                command.arg(talk("php"));
            }
            Language::Python => {
                command = Command::new(installed().join("python/bin/python"));
                command.arg(talk("py"));
            }
            Language::Node => {
                command = Command::new("node");
                command.arg(talk("js")).env("NODE_PATH", installed().join("node_modules"));
            }
        }
        // Node's library logs everything it does there.
        command.stdout(Stdio::piped()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn start(self, served: &Served, role: &str, arguments: &[&str]) -> Program {
        let mut command = self.command();
        command.args([role, "127.0.0.1", served.gearman_port()]).args(arguments);
        let hint = "missing? `cargo xtask test` installs what these tests need";
        let child = command.spawn();
        Program::from(child.unwrap_or_else(|error| panic!("{self:?}: {error} ({hint})")))
    }

    /// What a client hears of an exception. Python's never asks for them.
    fn exception(self) -> &'static str {
        if self == Language::Python { "exception: failed" } else { "boom" }
    }
}

/// The C program, compiled once.
fn compiled() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join("gearman-talk");
        let fresh = folder.join(format!("gearman-talk-{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&fresh)
            .args([&format!("{FOLDER}/talk.c"), "-lgearman"])
            .status()
            .expect("a C compiler (`cargo xtask test` installs what these tests need)");
        assert!(status.success(), "libgearman-dev is missing? `cargo xtask test` installs it");
        std::fs::rename(&fresh, &program).unwrap();
        program
    })
}

/// Starts a worker in one of the languages, and waits until it is ready.
fn start_worker(language: Language, served: &Served, prefix: &str) -> Program {
    let mut worker = language.start(served, "worker", &[prefix]);
    let said = Said::by(worker.stdout.take().unwrap());
    while said.await_line("ready") != "ready" {}
    worker
}

/// Lets a client do all it does and checks every line of it, and the queue it leaves.
#[track_caller]
fn check_client(language: Language, served: &Served, prefix: &str) {
    let own = format!("own-{prefix}-{language:?}");
    let mut client = language.start(served, "client", &[prefix, &own]);
    let output = Said::by(client.stdout.take().unwrap()).await_end();
    client.await_end();
    for line in output.lines().filter(|line| line.starts_with("version: ")) {
        note(&format!("{language:?}: {line}"));
    }
    for line in [
        "version: ",
        "foreground: olleh",
        "background: done",
        "steps: 1/2 part end",
        "exception: ",
        language.exception(),
        "priorities: sent",
        "unique: one",
    ] {
        assert!(output.contains(line), "{language:?} with {prefix}: no {line:?} in\n{output}");
    }
    let mut peer = served.connect();
    peer.can_do(&own);
    let payloads: Vec<String> = (0..4).map(|_| peer.take().1).collect();
    assert_eq!(payloads, ["high", "normal", "first", "low"], "{language:?}");
}

fn check_pair(client: Language, worker: Language) {
    let served = Served::new();
    let prefix = format!("{worker:?}");
    let _worker = start_worker(worker, &served, &prefix);
    check_client(client, &served, &prefix);
}

#[test]
fn libgearman_talks_to_itself_through_the_server() {
    check_pair(Language::C, Language::C);
}

#[test]
fn perl_talks_to_itself_through_the_server() {
    check_pair(Language::Perl, Language::Perl);
}

#[test]
fn php_talks_to_itself_through_the_server() {
    check_pair(Language::Php, Language::Php);
}

#[test]
fn python_talks_to_itself_through_the_server() {
    check_pair(Language::Python, Language::Python);
}

#[test]
fn node_talks_to_itself_through_the_server() {
    check_pair(Language::Node, Language::Node);
}

#[test]
fn every_language_works_for_the_next_one() {
    for (at, worker) in ALL.into_iter().enumerate() {
        check_pair(ALL[(at + 1) % ALL.len()], worker);
    }
}

#[test]
fn workers_of_all_languages_share_the_same_functions() {
    let served = Served::new();
    let workers: Vec<Program> =
        ALL.into_iter().map(|language| start_worker(language, &served, "all")).collect();
    served.await_status("all-reverse\t0\t0\t5");
    served.await_status("all-boom\t0\t0\t5");
    for language in ALL {
        check_client(language, &served, "all");
    }
    drop(workers);
    served.await_status("all-reverse\t0\t0\t0");
}
