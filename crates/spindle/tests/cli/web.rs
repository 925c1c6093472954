//! The URL of a server: https, a path of its own, and messages about URLs that cannot be used.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
};

use nix::sys::signal::Signal;
use spindle_testkit::Program;

use crate::{
    fake_workq::{Said, await_exit, spindle, stderr, stdout},
    native::served,
    proxy::Proxy,
    serve::Served,
};

/// A command that talks through a proxy.
fn through(proxy: &Proxy, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = spindle(arguments);
    command.arg("--url").arg(format!("https://localhost:{}/jobs/", proxy.port()));
    command.arg("--ca-file").arg(proxy.ca_file());
    command
}

fn output_of(proxy: &Proxy, arguments: &[&str]) -> String {
    let output = through(proxy, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn behind_tls() -> (Served, Proxy) {
    let served = served(&["--memory"]);
    let proxy = Proxy::over_tls("/jobs", &served.address_of("http"));
    (served, proxy)
}

fn worker(proxy: &Proxy, arguments: &[&str]) -> (Program, Said) {
    let mut child = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["work", "--ca-file"])
            .arg(proxy.ca_file())
            .args(["--url", &format!("https://localhost:{}/jobs", proxy.port())])
            .args(arguments)
            .stderr(Stdio::piped()),
    );
    let said = Said::by(child.stderr.take().unwrap());
    (child, said)
}

#[test]
fn the_commands_work_over_tls_behind_a_path() {
    let (_served, proxy) = behind_tls();
    assert_eq!(output_of(&proxy, &["add", "q", "x"]), "1\n");
    let lines = through(&proxy, &["add", "q", "--lines", "-"]).write_stdin("a\nb\n").unwrap();
    assert_eq!(stdout(&lines), "2\n3\n");
    assert_eq!(output_of(&proxy, &["queues"]), "q\t3\t0\t0\t0\t0\t0\t0\t\n");
    // Flags behind `--` would be the command's.
    let script = ["q", "--once", "--", "sh", "-c", "cat; echo y"];
    let (mut child, _said) = worker(&proxy, &script);
    assert_eq!(await_exit(&mut child).code(), Some(0));
    assert_eq!(output_of(&proxy, &["result", "1"]), "xy\n");
    assert!(output_of(&proxy, &["why", "2"]).starts_with("position"));
    output_of(&proxy, &["cancel", "2"]);
    assert!(output_of(&proxy, &["events"]).contains("\tdead\t"));
    output_of(&proxy, &["constraint", "put", "few", "--running-max", "1"]);
    output_of(&proxy, &["clock", "accept"]);
    let large = vec![b'z'; 3 << 20];
    let added = through(&proxy, &["add", "large", "-"]).write_stdin(large).unwrap();
    assert_eq!(stdout(&added), "4\n");
}

#[test]
fn url_and_authorities_come_from_the_environment_too() {
    let (_served, proxy) = behind_tls();
    let output = spindle(&["add", "q"])
        .env("SPINDLE_URL", format!("https://localhost:{}/jobs", proxy.port()))
        .env("SPINDLE_CA_FILE", proxy.ca_file())
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "1\n", "{}", stderr(&output));
}

#[test]
fn a_path_alone_does_without_tls() {
    let served = served(&["--memory"]);
    let proxy = Proxy::plain("/jobs", &served.address_of("http"));
    let url = format!("http://127.0.0.1:{}/jobs", proxy.port());
    let output = spindle(&["add", "q", "--url", &url]).output().unwrap();
    assert_eq!(stdout(&output), "1\n", "{}", stderr(&output));
}

#[test]
fn an_idle_worker_over_tls_hangs_up_at_a_signal_and_its_next_job_is_not_lost() {
    let (served, proxy) = behind_tls();
    let (mut child, _said) = worker(&proxy, &["q", "-j", "2", "--", "true"]);
    let waits = || {
        let queues = stdout(&served.spindle(&["queues"]).unwrap());
        queues.contains("q\t0\t0\n")
    };
    while !waits() {}
    child.signal(Signal::SIGTERM);
    assert_eq!(await_exit(&mut child).code(), Some(0));
    while waits() {}
    output_of(&proxy, &["add", "q"]);
    assert!(output_of(&proxy, &["job", "1"]).contains("attempts\t0\n"));
}

#[test]
fn a_worker_waits_while_the_server_behind_a_proxy_is_away() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let proxy = Proxy::over_tls("/jobs", &nobody);
    let (mut child, said) = worker(&proxy, &["q", "--once", "--", "echo", "hello"]);
    let line = said.await_line("waiting until it answers");
    assert!(line.contains("answered 502 Bad Gateway"), "{line}");
    let served = served(&["--memory"]);
    proxy.asks(&served.address_of("http"));
    said.await_line(" answers");
    output_of(&proxy, &["add", "q"]);
    assert_eq!(await_exit(&mut child).code(), Some(0));
    assert_eq!(output_of(&proxy, &["result", "1"]), "hello\n");
}

/// A server that says this to everybody.
fn says(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

/// What `spindle queues` says to this URL: one line, with the exit code.
#[track_caller]
fn refused(url: &str, more: &[&str], code: i32, parts: &[&str]) {
    for command in [&["queues"][..], &["work", "q", "--once"]] {
        let tail: &[&str] = if command.len() > 1 { &["--", "true"] } else { &[] };
        let mut spindle = spindle(command);
        let output = spindle.args(["--url", url]).args(more).args(tail).output().unwrap();
        let answer = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{url}: {answer}");
        assert!(answer.starts_with("error: ") && answer.lines().count() == 1, "{url}: {answer}");
        for part in parts {
            assert!(answer.contains(part), "{url}: {part:?} is not in {answer}");
        }
    }
}

#[test]
fn a_url_that_is_none_is_a_usage_error_that_says_how_to_write_it() {
    refused("localhost:7420", &[], 2, &["--url: ", "no scheme", "write http://localhost:7420"]);
    refused("ftp://localhost", &[], 2, &["neither http nor https"]);
    refused("http://localhost:7420/?x=1", &[], 2, &["query or a fragment"]);
    refused("http://me:word@localhost:7420", &[], 2, &["leave out what stands before the @"]);
    let output = spindle(&["queues"]).env("SPINDLE_URL", "localhost:7420").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: SPINDLE_URL: "), "{}", stderr(&output));
}

#[test]
fn tls_where_there_is_none_and_the_other_way_round_is_told() {
    let (served, proxy) = behind_tls();
    let http = served.address_of("http");
    let secure = format!("https://{http}/x");
    refused(&secure, &[], 1, &["does not speak TLS", &format!("write http://{http}/x")]);
    let address = format!("localhost:{}/jobs", proxy.port());
    let plain = format!("http://{address}");
    refused(&plain, &[], 1, &["speaks TLS", &format!("write https://{address}")]);
    let nginx = says(
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 70\r\n\r\n<html>\r\n\
        <center>The plain HTTP request was sent to HTTPS port</center>",
    );
    refused(&format!("http://{nginx}"), &[], 1, &["speaks TLS", "write https://"]);
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_with_what_to_do() {
    let (_served, proxy) = behind_tls();
    let port = proxy.port();
    let url = format!("https://localhost:{port}/jobs");
    refused(&url, &[], 1, &["certificate of https://localhost", "signed by nobody", "--ca-file"]);
    let ca = proxy.ca_file();
    let ca_file = ["--ca-file", ca.to_str().unwrap()];
    // It is one for `localhost`.
    let other = format!("https://127.0.0.1:{port}/jobs");
    refused(&other, &ca_file, 1, &["certificate of https://127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "nothing").unwrap();
    let empty = empty.to_str().unwrap();
    refused(&url, &["--ca-file", empty], 1, &["--ca-file", empty, "no certificate"]);
    refused(
        &url,
        &["--ca-file", "/no/such"],
        1,
        &["--ca-file", "cannot read /no/such", "No such file"],
    );
    // Without TLS there is no certificate to check, so the file is not even read.
    let plain = spindle(&["queues", "--url", "http://127.0.0.1:1", "--ca-file", "/no/such"]);
    assert!(stderr(&{ plain }.output().unwrap()).contains("cannot connect"));
}

#[test]
fn what_is_no_spindle_is_told() {
    let (served, proxy) = behind_tls();
    let ca = proxy.ca_file();
    let ca_file = ["--ca-file", ca.to_str().unwrap()];
    let wrong_path = format!("https://localhost:{}/other", proxy.port());
    let parts = [&*wrong_path, "is no HTTP door of Spindle", "404 Not Found (text/html)", "--url"];
    refused(&wrong_path, &ca_file, 1, &parts);
    let twice = format!("http://{}/api/v1", served.address_of("http"));
    refused(&twice, &[], 1, &["nothing at such a path", "is `/api/v1` right"]);
    let other = says(b"-CLIENT-ERROR Unknown command\r\n");
    let parts = [&*other, "is no HTTP door of Spindle", "does not speak HTTP: -CLIENT-ERROR"];
    refused(&format!("http://{other}"), &[], 1, &parts);
    let workq = format!("http://{}", served.address_of("workq"));
    let output = spindle(&["queues", "--url", &workq]).output().unwrap();
    assert!(stderr(&output).contains("is that not its HTTP door?"), "{}", stderr(&output));
    let page = says(b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>");
    refused(&format!("http://{page}"), &[], 1, &["is no HTTP door of Spindle", "<html></html>"]);
    let moved =
        says(b"HTTP/1.1 301 Moved\r\nlocation: https://jobs.example/\r\ncontent-length: 0\r\n\r\n");
    refused(&format!("http://{moved}"), &[], 1, &["sends us on to https://jobs.example/"]);
    let closed = says(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nNo");
    refused(&format!("http://{closed}"), &[], 1, &["403 Forbidden", "something in front of it"]);
}
