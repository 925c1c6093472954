//! `gearman` and `gearadmin` of Debian's gearman-tools.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use spindle_testkit::Program;

use crate::server::{Served, note};

fn tool(name: &str, served: &Served, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(["-h", "127.0.0.1", "-p", served.gearman_port()]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(mut command: Command) -> Child {
    let hint = "`cargo xtask test` installs gearman-tools";
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}; {hint}"))
}

/// Runs `gearman` with this on its standard input.
fn gearman(served: &Served, arguments: &[&str], input: &str) -> Output {
    let mut child = start(tool("gearman", served, arguments));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// What `gearadmin` prints.
fn gearadmin(served: &Served, arguments: &[&str]) -> String {
    let output = start(tool("gearadmin", served, arguments)).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "gearadmin {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn worker(served: &Served, function: &str, command: &[&str]) -> Program {
    let arguments = [&["-w", "-f", function, "--"], command].concat();
    let child = start(tool("gearman", served, &arguments));
    served.await_status(&format!("{function}\t0\t0\t1"));
    child.into()
}

#[test]
fn the_command_line_tools_print_their_version() {
    let packages = ["-W", "-f", "${Package} ${Version}\\n", "gearman-tools"];
    let package = Command::new("dpkg-query").args(packages).output().unwrap();
    note(text(&package.stdout).trim());
    assert!(text(&package.stdout).starts_with("gearman-tools "));
}

#[test]
fn gearman_runs_a_command_for_another_gearman() {
    let served = Served::new();
    let _worker = worker(&served, "sort", &["sort"]);
    let output = gearman(&served, &["-f", "sort"], "b\na\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("a\nb\n".to_owned(), Some(0)));
    // A line each, all at once.
    let output = gearman(&served, &["-f", "sort", "-n"], "one\ntwo\n");
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.concat(), "onetwo");
}

#[test]
fn gearman_hears_of_a_failure() {
    let served = Served::new();
    let _worker = worker(&served, "fail", &["false"]);
    let output = gearman(&served, &["-f", "fail"], "x");
    assert_ne!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn gearman_in_the_background_leaves_jobs_in_the_order_of_their_priority() {
    let served = Served::new();
    for (payload, flags) in [("low", &["-L"][..]), ("normal", &[]), ("high", &["-I"])] {
        let output = gearman(&served, &[&["-f", "q", "-b"], flags].concat(), payload);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for payload in ["once", "twice"] {
        gearman(&served, &["-f", "q", "-b", "-u", "same"], payload);
    }
    assert_eq!(gearadmin(&served, &["--status"]), "q\t4\t0\t0\n.\n");
    assert_eq!(gearadmin(&served, &["--priority-status"]), "q\t1\t2\t1\t0\n.\n");
    let mut peer = served.connect();
    peer.can_do("q");
    let payloads: Vec<String> = (0..4).map(|_| peer.take().1).collect();
    assert_eq!(payloads, ["high", "normal", "once", "low"]);
}

#[test]
fn gearadmin_asks_and_orders() {
    let served = Served::new();
    assert!(gearadmin(&served, &["--server-version"]).contains("2.0.0-spindle-"));
    assert!(gearadmin(&served, &["--getpid"]).trim().parse::<u32>().is_ok());
    gearadmin(&served, &["--create-function=made"]);
    assert_eq!(gearadmin(&served, &["--status"]), "made\t0\t0\t0\n.\n");
    gearman(&served, &["-f", "made", "-b", "-u", "name"], "x");
    let jobs = gearadmin(&served, &["--show-jobs"]);
    let handle = jobs.split('\t').next().unwrap().to_owned();
    assert_eq!(jobs, format!("{handle}\t0\t0\t1\n.\n"));
    assert_eq!(gearadmin(&served, &["--show-unique-jobs"]), "name\n.\n");
    gearadmin(&served, &[&format!("--cancel-job={handle}")]);
    assert_eq!(gearadmin(&served, &["--show-jobs"]), ".\n");
    gearadmin(&served, &["--drop-function=made"]);
    assert_eq!(gearadmin(&served, &["--status"]), ".\n");
    let _worker = worker(&served, "sort", &["sort"]);
    let workers = gearadmin(&served, &["--workers"]);
    assert!(workers.lines().any(|line| line.ends_with(": sort")), "{workers}");
}
