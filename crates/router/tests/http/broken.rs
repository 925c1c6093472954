//! Shards that are gone, and invalid requests.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use serde_json::json;

use crate::shards::{Sharded, receive};

#[test]
fn a_shard_that_is_gone_is_named() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(1, 0);
    let id = sharded.submit(json!({ "queue": queue }));
    sharded.lose(1);
    let body = json!({ "queue": queue });
    for (method, path, body) in [
        ("GET", format!("/api/v1/jobs/{id}"), None),
        ("DELETE", format!("/api/v1/jobs/{id}"), None),
        ("GET", format!("/api/v1/queues/{queue}"), None),
        ("POST", "/api/v1/jobs".to_owned(), Some(body.clone())),
        ("POST", "/api/v1/batches".to_owned(), Some(body)),
        ("GET", "/echo?shard=1".to_owned(), None),
    ] {
        let reply = sharded.call(method, &path, body);
        reply.is_problem(503, "shard_unavailable");
        assert_eq!((&reply.json()["shard"], reply.header("retry-after")), (&json!(1), "1"));
    }
    sharded.get("/echo").is(200);
}

#[test]
fn a_connection_that_the_shard_has_closed_is_no_failure() {
    let sharded = Sharded::new();
    for shard in 0..3 {
        // A shard that is told to close the connection does so after its answer.
        for _ in 0..10 {
            sharded.get(&format!("/echo?shard={shard}")).is(200);
            sharded.post(&format!("/echo?shard={shard}"), json!({})).is(200);
        }
    }
}

#[test]
fn an_answer_that_breaks_off_is_told_from_one_that_never_came() {
    let sharded = Sharded::new();
    let id = sharded.submit(json!({ "queue": sharded.queue_on(1, 0) }));
    let path = format!("/api/v1/jobs/{id}/wait?wait_s=60");
    let mut waiting = sharded.begin("GET", &path, "", "");
    spindle_testkit::wait_until("a wait", || sharded.waits(1) == 1);
    sharded.lose(1);
    let (status, text) = receive(&mut waiting);
    assert!(status == 502 && text.contains("shard_broke_off"), "{status} {text}");
}

#[test]
fn bodies_that_are_too_large_are_refused_unread() {
    let sharded = Sharded::new();
    for path in ["/api/v1/jobs", "/api/v1/lease", "/api/v1/jobs/7/retry", "/echo"] {
        let mut stream = sharded.connect();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 99999999999\r\n\r\n{{"
        )
        .unwrap();
        let (status, text) = receive(&mut stream);
        assert!(status == 413 && text.contains("too_large"), "{path}: {status} {text}");
    }
    assert_eq!(sharded.reach.count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_body_without_a_length_is_not_read_for_ever() {
    let sharded = Sharded::new();
    let mut stream = sharded.connect();
    let head =
        "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [b" ".repeat(1 << 20), b"\r\n".to_vec()].concat();
    for _ in 0..20 {
        // It may be refused meanwhile.
        if stream.write_all(b"100000\r\n").and_then(|()| stream.write_all(&piece)).is_err() {
            break;
        }
    }
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 413 "), "{text}");
}

#[test]
fn a_body_that_breaks_off_is_a_bad_request() {
    let sharded = Sharded::new();
    for path in ["/api/v1/jobs", "/echo"] {
        let mut stream = sharded.connect();
        let head = "HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        write!(stream, "POST {path} {head}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{path}: {text}");
    }
}

#[test]
fn what_is_no_json_is_refused_by_a_shard() {
    let sharded = Sharded::new();
    for (method, path) in [
        ("POST", "/api/v1/jobs"),
        ("POST", "/api/v1/jobs/batch"),
        ("POST", "/api/v1/jobs/bulk"),
        ("POST", "/api/v1/jobs/import"),
        ("POST", "/api/v1/batches"),
        ("POST", "/api/v1/lease"),
        ("POST", "/api/v1/leases/batch"),
        ("PUT", "/api/v1/schedules"),
        ("PUT", "/api/v1/schedules/x"),
        ("PUT", "/api/v1/constraints/x"),
        ("PATCH", "/api/v1/jobs/7"),
        ("POST", "/api/v1/leases/AA/fail"),
    ] {
        let deep = "[".repeat(100_000);
        let object = format!("{{\"jobs\":{deep}");
        for text in [
            "{",
            "[]",
            "null",
            "\"",
            "7",
            "{\"jobs\":7,\"queue\":[],\"schedules\":3}",
            &deep,
            &object,
        ] {
            let reply = sharded.send(method, path, &[], Some(text));
            assert_eq!(reply.status, 400, "{method} {path} {text:.40}: {reply:?}");
        }
    }
}

#[test]
fn targets_of_any_kind_are_answered() {
    let sharded = Sharded::new();
    // Of no shard that there is.
    sharded.get(&format!("/api/v1/jobs/{}", 7_u64 << 45)).is_problem(404, "job_not_found");
    for target in [
        "/",
        "//",
        "/%",
        "/%zz",
        "/api/v1/jobs/%ff",
        "/api/v1/queues/%00",
        "/api/v1/leases/%/extend",
        "/api/v1/jobs/?shard",
        "/?&&=&shard=0",
        "/api/v1/jobs/1/2/3/4",
        "/api/v1//jobs",
        "/api/v1/queues//pause",
    ] {
        let mut stream = sharded.begin("GET", target, "Connection: close\r\n", "");
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 4"), "{target}: {text}");
    }
}
