//! The server's HTTP door, from outside.

use serde_json::{Value, json};
use spindle_testkit::HttpRequest;

use crate::{
    fake_workq::{spindle, stderr, stdout},
    serve::{Served, data, serve, serve_with},
};

fn ask(served: &Served, head: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, body) = HttpRequest::send(&served.address_of("http"), head, &text).answer();
    (status, serde_json::from_str(&body).unwrap_or_default())
}

const ANY_PORTS: [&str; 4] = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];

fn serve_on(data: &str) -> Served {
    serve(&[&ANY_PORTS[..], &["--data", data]].concat())
}

#[test]
fn a_job_submitted_over_http_is_worked_at_the_shell_and_outlives_a_restart() {
    let (_folder, data) = data();
    let mut served = serve_on(&data);
    let asked = json!({ "queue": "greet", "payload": "world" });
    let (status, taken) = ask(&served, "POST /api/v1/jobs", &asked);
    assert_eq!(status, 201);
    let uuid = taken["uuid"].as_str().unwrap().to_owned();
    let command = ["work", "greet", "--once", "--", "sh", "-c", "printf 'hello '; cat"];
    served.spindle(&command).assert().success();
    assert_eq!(stdout(&served.spindle(&["result", &uuid]).unwrap()), "hello \"world\"");
    assert_eq!(served.end().code(), Some(0));

    let mut served = serve_on(&data);
    let (status, job) = ask(&served, &format!("GET /api/v1/jobs/{uuid}"), &Value::Null);
    assert_eq!((status, &job["status"], &job["payload"]), (200, &json!("done"), &json!("world")));
    assert_eq!(job["result"]["base64"], "aGVsbG8gIndvcmxkIg==");
    assert_eq!(job["history"][0]["door"], "workq");
    assert_eq!(served.end().code(), Some(0));
}

/// The query would take minutes, in few steps that each take long.
#[test]
fn the_end_does_not_wait_for_a_query_of_jobqs() {
    let (_folder, data) = data();
    let long = ["--jobq-query-time", "10m", "--shutdown-timeout", "1h"];
    let mut served = serve(&[&ANY_PORTS[..], &["--data", &data], &long].concat());
    let address = served.address_of("http");
    let payload = json!("a".repeat(1_000_000));
    let (status, job) = ask(&served, "POST /api/v0/job/create", &payload);
    assert_eq!((status, &job["state"]), (200, &json!(["CREATED"])));
    let terms: Vec<Value> = (10..74)
        .map(|n| json!(["NOT LIKE", "payload", format!("'%{}{n}%'", "a".repeat(240))]))
        .collect();
    let poll = json!({ "query": terms, "state": ["TAKEN"] }).to_string();
    let poll = HttpRequest::send(&address, "POST /api/v0/job/poll", &poll);
    // After these, everything that was sent before has come in.
    for _ in 0..3 {
        assert_eq!(ask(&served, "GET /api/v0/job/1", &Value::Null).0, 200);
    }
    served.ask_to_end();
    let (status, body) = poll.answer();
    let shown: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &shown["code"]), (503, &json!("stopping")));
    assert_eq!(served.await_end().code(), Some(0));

    let served = serve_on(&data);
    let (_, job) = ask(&served, "GET /api/v0/job/1", &Value::Null);
    assert_eq!(job["state"], json!(["CREATED"]));
}

#[test]
fn the_end_answers_who_waits_and_closes_event_streams() {
    let (_folder, data) = data();
    let mut served = serve_on(&data);
    let address = served.address_of("http");
    let body = json!({ "queues": ["q"], "wait_s": 300 }).to_string();
    let lease = HttpRequest::send(&address, "POST /api/v1/lease", &body);
    let events = HttpRequest::send(&address, "GET /api/v1/events", "");
    let waits = || {
        let (status, text) = HttpRequest::send(&address, "GET /metrics", "").answer();
        assert_eq!(status, 200);
        text.lines().any(|line| line == "spindle_waits 2")
    };
    while !waits() {}
    served.ask_to_end();
    assert_eq!(lease.answer().0, 204);
    assert_eq!(events.answer().0, 200);
    assert_eq!(served.await_end().code(), Some(0));
}

#[test]
fn an_address_that_will_not_do_is_told_with_its_door_and_its_flag() {
    let (_folder, data) = data();
    let arguments = ["serve", "--workq", "off", "--gearman", "off", "--http", "192.0.2.1:7420"];
    let refused = spindle(&arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--insecure http"), "{}", stderr(&refused));
    let served = serve_on(&data);
    let address = served.address_of("http");
    let arguments = ["serve", "--memory", "--workq", "off", "--gearman", "off", "--http", &address];
    let refused = spindle(&arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    for part in ["http: cannot listen", address.as_str(), "--http ADDR"] {
        assert!(stderr(&refused).contains(part), "{part}: {}", stderr(&refused));
    }
}

#[test]
fn the_clock_is_accepted_at_the_shell() {
    let (_folder, data) = data();
    let served = serve_on(&data);
    let url = format!("http://{}", served.address_of("http"));
    spindle(&["clock", "accept", "--url", &url]).assert().success();
    let wrong = format!("http://{}", served.address_of("workq"));
    let refused = spindle(&["clock", "accept", "--url", &wrong]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&wrong), "{}", stderr(&refused));
    spindle(&["clock", "accept", "--url", "nowhere"]).assert().code(2);
    spindle(&["clock"]).assert().code(2);
}

/// One request with headers of its own; how it is answered.
fn output_of(served: &Served, head: &str, headers: &str, body: &str) -> (u16, String) {
    HttpRequest::send_with(served.address_of("http"), head, headers, body).answer()
}

#[test]
fn every_door_answers_to_the_names_that_are_listed_and_to_no_other() {
    let (_folder, data) = data();
    let names = ["--http-host", "build-server", "--http-host", "Jobs.example.org."];
    let served = serve(&[&ANY_PORTS[..], &names, &["--data", &data]].concat());
    let port = served.address_of("http").rsplit(':').next().unwrap().to_owned();
    let json = "Content-Type: application/json\r\n";
    let writes = [
        ("POST /api/v1/jobs", json, r#"{"queue": "q"}"#, 201),
        ("POST /job", json, r#"{"name": "q", "argument": {}}"#, 201),
        ("POST /api/v0/job/create", json, r#"{"msg": 1}"#, 200),
        ("GET /metrics", "", "", 200),
        ("GET /healthz", "", "", 200),
    ];
    for (head, kind, body, status) in writes {
        let ask = |headers: &str| output_of(&served, head, &format!("{headers}{kind}"), body);
        for host in ["build-server", &format!("BUILD-SERVER:{port}"), "jobs.example.org"] {
            let answered = ask(&format!("Host: {host}\r\n"));
            assert_eq!(answered.0, status, "{head} {host}: {}", answered.1);
        }
        let answered = ask("Host: build-server\r\nOrigin: https://build-server\r\n");
        assert_eq!(answered.0, status, "{head}: {}", answered.1);
        let (refused, why) = ask("Host: other-server\r\nX-Forwarded-Host: build-server\r\n");
        assert_eq!(refused, 421, "{head}: {why}");
        assert!(
            why.contains("`other-server`") && why.contains("--http-host other-server"),
            "{why}"
        );
        if head.starts_with("POST") {
            let (refused, why) = ask("Host: build-server\r\nOrigin: https://other-server\r\n");
            assert_eq!(refused, 403, "{head}: {why}");
        }
    }
}

#[test]
fn names_come_from_the_environment_and_the_file_too_and_wrong_ones_end_the_start() {
    let ask = |served: &Served| output_of(served, "GET /healthz", "Host: two.example\r\n", "").0;
    let listed = [("SPINDLE_SERVE_HTTP_HOST", "one.example, two.example")];
    let served = serve_with(&[&ANY_PORTS[..], &["--memory"]].concat(), &listed);
    assert_eq!(ask(&served), 200);
    let (folder, _) = data();
    let file = folder.path().join("spindle.toml");
    std::fs::write(&file, "http-host = ['one.example', 'two.example']\n").unwrap();
    let of_file = ["--memory", "--config", file.to_str().unwrap()];
    let served = serve(&[&ANY_PORTS[..], &of_file].concat());
    assert_eq!(ask(&served), 200);
    let served = serve(&[&ANY_PORTS[..], &["--memory", "--http-host", "*"]].concat());
    assert_eq!(ask(&served), 200);
    for name in ["http://x", "two words", "", "*.x"] {
        let refused = spindle(&["serve", "--memory", "--http-host", name]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{name}");
        assert!(stderr(&refused).contains("--http-host: `"), "{}", stderr(&refused));
    }
}
