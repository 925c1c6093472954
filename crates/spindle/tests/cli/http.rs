//! The server's HTTP door, from outside.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    serve::{Served, data, serve},
};

/// A connection that is used for one request.
struct Asked(TcpStream);

impl Asked {
    fn new(address: &str, head: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        Self(stream)
    }

    fn answer(mut self) -> (u16, String) {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn ask(served: &Served, head: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, body) = Asked::new(&served.address_of("http"), head, &text).answer();
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

/// Of a query that would take minutes, in few steps that take long.
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
    let poll = Asked::new(&address, "POST /api/v0/job/poll", &poll);
    // What was sent before these has come in.
    for _ in 0..3 {
        assert_eq!(ask(&served, "GET /api/v0/job/1", &Value::Null).0, 200);
    }
    served.ask_to_end();
    let (status, body) = poll.answer();
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &told["code"]), (503, &json!("stopping")));
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
    let lease = Asked::new(&address, "POST /api/v1/lease", &body);
    let events = Asked::new(&address, "GET /api/v1/events", "");
    let waits = || {
        let (status, text) = Asked::new(&address, "GET /metrics", "").answer();
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
