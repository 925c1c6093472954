//! `spindle logs`: what a job's workers write, and how the job gets on.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, Program};

use crate::{
    fake_workq::{Said, await_exit, stderr},
    native::{at, object, output_of, served, url},
    serve::Served,
};

fn post(served: &Served, path: &str, body: &Value) -> Value {
    let head = format!("POST /api/v1/{path}");
    let (status, text) =
        HttpRequest::send(&served.address_of("http"), &head, &body.to_string()).answer();
    assert!((200..300).contains(&status), "{path}: {text}");
    if text.is_empty() { Value::Null } else { object(&text) }
}

/// A server with a job that is worked on, and the path of its lease.
fn leased() -> (Served, String) {
    let served = served(&["--memory"]);
    output_of(&served, &["add", "q", "x"]);
    let lease = post(&served, "lease", &json!({ "queues": ["q"] }));
    (served, format!("leases/{}", lease["lease_token"].as_str().unwrap()))
}

fn write(served: &Served, lease: &str, text: &str) {
    post(served, &format!("{lease}/output"), &json!({ "text": text }));
}

#[test]
fn output_is_printed_as_it_is() {
    let (served, lease) = leased();
    assert_eq!(output_of(&served, &["logs", "1"]), "");
    write(&served, &lease, "one\n");
    write(&served, &lease, "\u{1b}[31mtwo");
    assert_eq!(output_of(&served, &["logs", "1"]), "one\n\u{1b}[31mtwo");
    let printed = output_of(&served, &["logs", "1", "--json"]);
    let texts: Vec<Value> = printed.lines().map(|line| object(line)["text"].clone()).collect();
    assert_eq!(texts, ["one\n", "\u{1b}[31mtwo"]);
    let missing = at(&served, &["logs", "9"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(3), "{}", stderr(&missing));
}

#[test]
fn a_job_is_followed_to_its_end() {
    for (ending, body, code) in [("complete", json!({}), 0), ("fail", json!({ "retry": false }), 5)]
    {
        let (served, lease) = leased();
        let mut follower = Program::start(
            Command::new(env!("CARGO_BIN_EXE_spindle"))
                .args(["logs", "1", "--follow", "--url", &url(&served)])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let said = Said::by(follower.stderr.take().unwrap());
        let printed = Said::by(follower.stdout.take().unwrap());
        said.await_line("status: leased");
        write(&served, &lease, "half\n");
        printed.await_line("half");
        let progress = json!({ "numerator": 1, "denominator": 2, "remaining_s": 7 });
        post(&served, &format!("{lease}/progress"), &progress);
        said.await_line("progress: 1 of 2, 7 s left");
        post(&served, &format!("{lease}/{ending}"), &body);
        assert_eq!(await_exit(&mut follower).code(), Some(code));
    }
}
