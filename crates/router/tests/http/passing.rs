//! One shard's answer passes through.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use serde_json::json;
use spindle_core::JobId;
use spindle_router::Shard;
use spindle_testkit::wait_until;

use crate::shards::{Sharded, receive};

#[test]
fn jobs_go_to_their_queues_shard_and_are_found_by_every_name() {
    let sharded = Sharded::new();
    for shard in 0..3 {
        let queue = sharded.queue_on(shard, 0);
        let body = format!(r#"{{"queue":"{queue}","payload":[1, 2.50]}}"#);
        let reply = sharded.send("POST", "/api/v1/jobs", &[], Some(&body));
        reply.is(201);
        let job = reply.json();
        let id = job["id"].as_u64().unwrap();
        assert_eq!(Shard::of_job(JobId(id)), Shard(shard));
        assert_eq!(reply.header("location"), format!("/api/v1/jobs/{id}"));
        for name in [job["id"].to_string(), text(&job["uuid"]), text(&job["handle"])] {
            let found = sharded.get(&format!("/api/v1/jobs/{name}"));
            found.is(200);
            assert_eq!(found.json()["id"], id, "{name}");
            assert!(found.text.contains(r#""payload":[1, 2.50]"#), "{found:?}");
            assert_eq!(found.header("etag"), "\"1\"");
        }
        let queue = sharded.get(&format!("/api/v1/queues/{queue}"));
        assert_eq!(queue.json()["jobs"]["ready"], 1);
        let park = format!("/api/v1/jobs/{id}/park");
        sharded
            .send("POST", &park, &[("if-match", "\"7\"")], None)
            .is_problem(412, "revision_mismatch");
        sharded.send("POST", &park, &[("if-match", "\"1\"")], None).is(200);
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn a_uuid_that_says_no_shard_is_looked_for_on_all() {
    let sharded = Sharded::new();
    let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
    let path = format!("/api/v1/jobs/{uuid}");
    sharded.get(&path).is_problem(404, "job_not_found");
    // An import keeps the UUID that a job has.
    let queue = sharded.queue_on(2, 0);
    let job = json!({ "id": 7, "created_at": "2026-01-02T03:04:05.678Z", "door": "workq",
        "status": "ready", "queue": queue, "payload_type": "bytes", "payload_base64": "", "uuid": uuid });
    let reply = sharded.post("/api/v1/jobs/import", json!({ "jobs": [job] }));
    reply.is(200);
    let found = sharded.get(&path);
    found.is(200);
    let id = found.json()["id"].as_u64().unwrap();
    assert_eq!(Shard::of_job(JobId(id)), Shard(2));
    sharded.call("PATCH", &path, Some(json!({ "priority": 9 }))).is(200);
    let other = sharded.queue_on(1, 0);
    let moved = sharded.call("PATCH", &path, Some(json!({ "queue": other })));
    moved.is_problem(422, "several_shards");
    let other = sharded.queue_on(2, 1);
    sharded.call("PATCH", &path, Some(json!({ "queue": other }))).is(200);
    sharded.call("DELETE", &path, None).is(204);
    // No shard has it, but one that could have it cannot be reached.
    sharded.lose(1);
    sharded.get(&path).is_problem(503, "shard_unavailable");
}

#[test]
fn queues_of_any_bytes_are_found() {
    let sharded = Sharded::new();
    let name = [0xff, b'/', b' '];
    let shard = sharded.placement.of(&name);
    let id = sharded.submit(json!({ "queue_base64": "/y8g" }));
    assert_eq!(Shard::of_job(JobId(id)), shard);
    for path in ["/api/v1/queues/%ff%2F%20", "/api/v1/queues/%FF%2f%20/settings"] {
        sharded.get(path).is(200);
    }
    let leased = sharded.post("/api/v1/lease", json!({ "queues_base64": ["/y8g"] }));
    assert_eq!(leased.json()["queue_base64"], "/y8g");
}

#[test]
fn a_request_may_name_its_shard() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(1, 0);
    sharded.submit(json!({ "queue": queue }));
    for (shard, count) in [(0, 0), (1, 1), (2, 0)] {
        let page = sharded.get(&format!("/api/v1/jobs?limit=5&shard={shard}&status=ready")).json();
        assert_eq!(page["jobs"].as_array().unwrap().len(), count, "{shard}");
    }
    let echo = sharded.get("/echo?a=%20b&shard=2&shard=2&c").json();
    assert_eq!((&echo["shard"], &echo["target"]), (&json!(2), &json!("/echo?a=%20b&c")));
    for wrong in ["3", "", "x", "-1", "1&shard=2", "256"] {
        sharded.get(&format!("/echo?shard={wrong}")).is_problem(400, "out_of_range");
    }
    // A queue is nowhere but on its shard.
    for target in ["/api/v1/jobs?shard=2", "/api/v1/batches?shard=0"] {
        sharded.post(target, json!({ "queue": queue })).is_problem(422, "several_shards");
    }
    sharded.post("/api/v1/jobs?shard=1", json!({ "queue": queue })).is(201);
    sharded.get(&format!("/api/v1/queues/{queue}?shard=0")).is_problem(422, "several_shards");
    // A request about one log has to name its shard.
    sharded.get("/api/v1/backup").is_problem(501, "name_a_shard");
    sharded.get("/api/v1/backup?shard=1").is_problem(409, "no_files");
    sharded.call("POST", "/api/v1/cluster/step-down", None).is_problem(501, "name_a_shard");
    sharded.call("POST", "/api/v1/cluster/step-down?shard=2", None).is_problem(409, "not_shared");
}

#[test]
fn whatever_else_there_is_is_the_first_shards() {
    let sharded = Sharded::new();
    sharded.get("/api/docs").is(200);
    sharded.get("/nothing").is_problem(404, "not_found");
    sharded.call("DELETE", "/api/v1/jobs", None).is_problem(405, "method_not_allowed");
    assert_eq!(sharded.get("/echo").json()["shard"], 0);
    assert_eq!(sharded.post("/job", json!({ "name": sharded.queue_on(2, 0) })).json()["shard"], 0);
    sharded.get("/api/v1/jobd").is_problem(409, "no_jobd_master");
}

#[test]
fn jobqs_jobs_go_to_their_queues_shard_and_its_own_queue_is_on_the_first() {
    let sharded = Sharded::new();
    let queue = sharded.queue_on(2, 0);
    for (target, shard) in [
        ("/api/v0/job/create".to_owned(), 0),
        (format!("/api/v0/job/create?queue={queue}&ready=1"), 2),
    ] {
        assert_eq!(sharded.post(&target, json!({})).json()["shard"], shard, "{target}");
    }
}

#[test]
fn headers_pass_but_for_those_of_the_connection() {
    let sharded = Sharded::new();
    let headers = [
        ("authorization", "Bearer sesame"),
        ("cookie", "theme=dark"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-request-id", "order-4711"),
        ("connection", "x-mine, content-length"),
        ("x-mine", "1"),
        ("te", "trailers"),
        ("upgrade", "websocket"),
    ];
    let reply = sharded.send("POST", "/echo", &headers, Some("text"));
    reply.is(200);
    let echo = reply.json();
    assert_eq!(echo["body"], "text");
    for (name, value) in &headers[..4] {
        assert_eq!(echo["headers"][name], json!(value), "{echo}");
    }
    for name in ["connection", "x-mine", "te", "upgrade"] {
        assert_eq!(echo["headers"].get(name), None, "{echo}");
    }
    assert_eq!((reply.header("x-kept"), reply.header("x-hop")), ("yes", ""));
    assert_eq!(reply.header("x-request-id"), "order-4711");
}

#[test]
fn a_problem_of_a_shard_is_the_requests_own() {
    let sharded = Sharded::new();
    let reply = sharded.get("/api/v1/jobs/7");
    reply.is_problem(404, "job_not_found");
    assert_eq!(reply.json()["request_id"], reply.header("x-request-id"));
    assert_eq!(reply.text.matches("request_id").count(), 1, "{}", reply.text);
    assert_eq!(
        sharded.get("/echo").json()["headers"]["x-request-id"].as_str().map(str::is_empty),
        Some(false)
    );
}

#[test]
fn a_target_in_absolute_form_names_the_host() {
    let sharded = Sharded::new();
    let mut stream = sharded.connect();
    let request = "GET http://localhost:7420/echo?a HTTP/1.1\r\nHost: elsewhere\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let (status, body) = receive(&mut stream);
    let echo: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &echo["headers"]["host"]), (200, &json!("localhost:7420")));
    assert_eq!(echo["target"], "/echo?a");
}

#[test]
fn a_body_passes_as_it_comes() {
    let sharded = Sharded::new();
    let mut stream = sharded.connect();
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"3\r\nabc\r\n").unwrap();
    // The shard has the head before the rest of the body is there.
    wait_until("a connection to the shard", || sharded.reach.count.load(Ordering::SeqCst) == 1);
    stream.write_all(b"3\r\ndef\r\n0\r\n\r\n").unwrap();
    let (status, body) = receive(&mut stream);
    assert_eq!(status, 200);
    assert!(body.contains(r#""body":"abcdef""#), "{body}");
}

#[test]
fn a_clients_requests_share_connections_to_a_shard() {
    let sharded = Sharded::new();
    for _ in 0..20 {
        sharded.get("/echo").is(200);
    }
    // The answer may be there before the connection is known to be free.
    let count = sharded.reach.count.load(Ordering::SeqCst);
    assert!(count <= 4, "{count}");
}

#[test]
fn head_has_the_head_of_get() {
    let sharded = Sharded::new();
    let mut stream = sharded.begin("HEAD", "/api/v1/server?shard=1", "Connection: close\r\n", "");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"), "{text}");
}
