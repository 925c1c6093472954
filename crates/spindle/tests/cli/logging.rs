//! What the server says on standard error.

use std::{
    io::Write,
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use spindle_testkit::{
    Certificates, Collector, HookReceiver, HttpRequest, Program, Said, SpindleServer, TokensFile,
};

use crate::{
    fake_workq::{spindle, stderr},
    serve::{Served, data, serve},
};

const DOORS: [&str; 5] = ["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];

pub fn json_server(arguments: &[&str]) -> Served {
    serve(&[&DOORS[..], &["--log-format", "json"], arguments].concat())
}

/// The next line that has this in it, as JSON in the documented form.
#[track_caller]
pub fn await_json(served: &SpindleServer, part: &str) -> Value {
    read(&served.said.await_line(part))
}

#[track_caller]
fn read(line: &str) -> Value {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let time = line["timestamp"].as_str().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{line}");
    let level = line["level"].as_str().unwrap();
    assert!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level), "{line}");
    assert!(line["target"].as_str().unwrap().starts_with("spindle"), "{line}");
    assert!(line["fields"].is_object(), "{line}");
    line
}

#[test]
fn lines_of_json_have_the_documented_fields() {
    let served = json_server(&[]);
    let greeting = read(served.greeting());
    let message = greeting["fields"]["message"].as_str().unwrap();
    assert!(message.contains("workq on 127.0.0.1:"), "{message}");
    assert_eq!(
        (&greeting["level"], &greeting["target"]),
        (&json!("INFO"), &json!("spindle::serve"))
    );
    served.ask_to_end();
    let rest = served.said.await_end();
    let last = rest.lines().map(read).next_back().unwrap();
    assert_eq!(last["fields"], json!({ "message": "stopped" }));
}

/// In the order in which the parts begin.
#[test]
fn a_start_has_one_line_for_each_part_that_has_begun() {
    let (_folder, data) = data();
    let certificates = Certificates::new();
    let files = certificates.server();
    let (cert, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let tokens = TokensFile::of(&TokensFile::entry("sesame", "admin", "*", ""));
    let password = TokensFile::of("a password, and a secret\n");
    let (tokens, password) = (tokens.path(), password.path());
    let (tokens, password) = (tokens.to_str().unwrap(), password.to_str().unwrap());
    let (hook, collector) = (HookReceiver::start(|_, _| 204), Collector::start());
    let (url, endpoint) = (&*hook.url, &*collector.endpoint());
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(["serve", "--log-format", "json", "--data", &data]).args(&DOORS[1..]);
    command.args(["--gearman", "127.0.0.1:0", "--jobd-master", "127.0.0.1:0"]);
    command.args(["--tls-cert", cert, "--tls-key", key, "--http-tls", "required"]);
    command.args(["--tokens", tokens, "--jobd-master-password-file", password, "--require-auth"]);
    command.args([
        "--webhook",
        url,
        "--webhook-secret-file",
        password,
        "--otlp-endpoint",
        endpoint,
    ]);
    let mut program = Program::start(command.stderr(Stdio::piped()));
    let said = Said::by(program.stderr.take().unwrap());
    let mut lines = Vec::new();
    let greeting = loop {
        let mut fields = read(&said.next_line())["fields"].clone();
        if fields["message"].as_str().unwrap().contains("workq on ") {
            break fields;
        }
        if let Some(address) = fields.as_object_mut().unwrap().remove("address") {
            assert!(address.as_str().unwrap().starts_with("127.0.0.1:"), "{address}");
        }
        lines.push(fields);
    };
    let door = |door: &str, tls: &str| json!({ "message": "a door is open", "door": door, "tls": tls, "asks_for_tokens": true });
    let doors = "workq optional, gearman optional, http required, jobd-master optional";
    let expected = [
        json!({ "message": format!("TLS with {cert}: {doors}") }),
        json!({ "message": "traces are exported", "collector": endpoint }),
        json!({ "message": "opening the log", "folder": data }),
        json!({ "message": "the tokens file was read", "file": tokens }),
        json!({ "message": "a webhook is followed", "url": url.split('?').next() }),
        door("workq", "optional"),
        door("gearman", "optional"),
        door("http", "required"),
        json!({
            "message": "a door is open", "door": "jobd-master", "tls": "optional",
            "asks_for_password": true,
        }),
    ];
    assert_eq!(lines, expected, "{greeting}");
}

#[test]
fn why_a_server_ends_is_a_line_of_json_too() {
    let arguments = ["serve", "--memory", "--log-format", "json", "--tokens", "/nowhere/tokens"];
    let output = spindle(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    let last = said.lines().map(read).next_back().unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(last["fields"]["message"].as_str().unwrap().contains("/nowhere/tokens"), "{last}");
}

#[test]
fn a_format_that_is_none_is_refused() {
    let output = spindle(&["serve", "--log-format", "xml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use text or json"), "{}", stderr(&output));
}

/// A request with these headers; its answer, head and all.
fn ask(served: &Served, head: &str, headers: &str, body: &str) -> String {
    let address = served.address_of("http");
    let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n{headers}");
    HttpRequest::send_with(&address, head, &headers, body).text()
}

#[test]
fn debug_shows_each_command_and_never_what_it_carries() {
    let served = json_server(&["--log-level", "debug", "--gearman", "127.0.0.1:0"]);
    let command = |part: &str| {
        let line = await_json(&served, part);
        assert_eq!(
            (&line["level"], &line["target"]),
            (&json!("DEBUG"), &json!("spindle::commands"))
        );
        let mut fields = line["fields"].clone();
        assert!(
            fields["us"].take().is_u64() && fields["connection"].as_u64() > Some(0),
            "{fields}"
        );
        fields
    };
    served.spindle(&["add", "mail", "secret payload"]).assert().success();
    let add = command("\"add\"");
    assert_eq!(
        add,
        json!({
            "message": "command", "door": "workq", "connection": add["connection"], "request": 1,
            "command": "add", "queue": "mail", "outcome": "+OK", "us": null,
        })
    );
    let script = "echo secret result";
    served.spindle(&["work", "mail", "--once", "--", "sh", "-c", script]).assert().success();
    assert_eq!(command("\"lease\"")["outcome"], "+OK");
    assert_eq!(command("\"complete\"")["outcome"], "+OK");

    let body = json!({ "queue": "bill", "payload": "secret payload" }).to_string();
    ask(&served, "POST /api/v1/jobs", "X-Request-Id: order-7\r\n", &body);
    let post = command("POST");
    assert_eq!(
        post,
        json!({
            "message": "command", "door": "api", "connection": post["connection"],
            "request": "order-7", "command": "POST /api/v1/jobs", "queue": "bill", "outcome": 201,
            "us": null,
        })
    );

    ask(&served, "GET /nowhere", "X-Request-Id: order-8\r\n", "");
    let nowhere = command("order-8");
    assert_eq!((&nowhere["command"], &nowhere["outcome"]), (&json!("GET"), &json!(404)));

    let mut gearman = TcpStream::connect(served.address_of("gearman")).unwrap();
    gearman.write_all(b"\0REQ\0\0\0\x12\0\0\0\x0bresize\0\0pay").unwrap();
    let created = command("submit_job");
    assert_eq!((&created["door"], &created["queue"]), (&json!("gearman"), &json!("resize")));
    assert_eq!(created["outcome"], "job_created");
    gearman.write_all(b"version\n").unwrap();
    assert_eq!(command("\"version\"")["outcome"], "ok");

    served.ask_to_end();
    assert!(!served.said.await_end().contains("secret"));
}

#[test]
fn no_name_forges_a_line_in_either_form() {
    let forged = "q\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e}";
    let body = json!({ "queue": forged }).to_string();
    for format in ["text", "json"] {
        let served =
            serve(&[&DOORS[..], &["--log-level", "debug", "--log-format", format]].concat());
        ask(&served, "POST /api/v1/jobs", "X-Request-Id: once\r\n", &body);
        let line = served.said.await_line("forged");
        assert!(line.contains("once") && !line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
        served.ask_to_end();
        assert!(!served.said.await_end().contains("forged"), "{line:?}");
    }
}

#[test]
fn an_answer_and_its_problem_say_which_request_they_are_for() {
    let served = json_server(&[]);
    let answer = ask(&served, "GET /healthz", "X-Request-Id: me-1\r\n", "");
    assert!(answer.contains("x-request-id: me-1\r\n"), "{answer}");
    for (given, is_taken) in [("it's \"7\"", false), ("it's\"7\"", true), ("", false)] {
        let header =
            if given.is_empty() { String::new() } else { format!("X-Request-Id: {given}\r\n") };
        for path in ["GET /api/v1/jobs/9", "GET /nowhere", "GET /job/9"] {
            let answer = ask(&served, path, &header, "");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
            let problem: Value = serde_json::from_str(body).unwrap();
            assert_eq!((id == given, &problem["request_id"]), (is_taken, &json!(id)), "{answer}");
            assert_eq!(problem["status"], 404);
        }
    }
}
