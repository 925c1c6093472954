//! Requests that are none.

use axum::http::header;
use bytes::Bytes;
use serde_json::json;

use crate::harness::{Bench, ask, packed, with};

#[tokio::test]
async fn malformed_messagepack_gets_a_400_that_says_what_is_wrong() {
    let bench = Bench::new();
    let deep =
        [&b"\x82\xa4name\xa1n\xa8argument"[..], &b"\x81\xa1a".repeat(1_000), b"\xc0"].concat();
    for (body, says) in [
        (Bytes::new(), "ends in the middle"),
        (Bytes::from_static(b"\xc1"), "0xc1"),
        (Bytes::from_static(b"\x80\x80"), "1 bytes follow"),
        (Bytes::from_static(b"\xdf\xff\xff\xff\xff"), "ends in the middle"),
        (Bytes::from_static(b"{\"name\": 1}"), "follow"),
        (Bytes::from(deep), "deeper than 128"),
    ] {
        for path in ["/job", "/worker"] {
            let reply = bench.send(with("POST", path, "application/msgpack", body.clone())).await;
            assert_eq!(reply.status, 400, "{path} {body:?}");
            let detail = reply.body()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(says), "{path}: {detail}");
        }
    }
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
}

#[tokio::test]
async fn malformed_json_gets_a_400_too() {
    let bench = Bench::new();
    for body in ["", "{", "{\"name\": 1}x", &"[".repeat(100_000)] {
        let reply = bench.send(with("POST", "/job", "application/json", body.to_owned())).await;
        assert_eq!(reply.header("content-type"), "application/problem+json");
        reply.is_problem(400, "bad_json");
    }
    let reply = bench.send(with("POST", "/job", "application/json", "{}")).await;
    reply.is_problem(400, "bad_field");
}

#[tokio::test]
async fn other_types_and_methods_and_sizes_are_refused() {
    let bench = Bench::with(|options| options.body.bytes_max = 1_000);
    bench.send(with("POST", "/job", "text/plain", "x")).await.is_problem(415, "unsupported_type");
    let job = json!({"name": "n", "argument": {"x": "y".repeat(1_000)}});
    bench.post("/job", job).await.is_problem(413, "too_large");
    for (method, path) in [
        ("GET", "/job"),
        ("PUT", "/job"),
        ("PATCH", "/job/1"),
        ("POST", "/job/1/polling"),
        ("GET", "/worker"),
        ("GET", "/done"),
        ("POST", "/worker/job"),
    ] {
        let reply = bench.send(ask(method, path)).await;
        reply.is_problem(405, "method_not_allowed");
        assert!(!reply.header("allow").is_empty(), "{method} {path}");
    }
    let mut request = packed("POST", "/job", None, &json!({"name": "n", "argument": {}}));
    request.headers_mut().insert(header::ACCEPT, "text/html".parse().unwrap());
    bench.send(request).await.is_problem(406, "not_acceptable");
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
}

#[tokio::test]
async fn a_body_without_a_type_is_messagepack() {
    let bench = Bench::new();
    let job = json!({"name": "n", "argument": {}});
    let mut request = packed("POST", "/job", None, &job);
    request.headers_mut().remove(header::CONTENT_TYPE);
    bench.send(request).await.is(201);
    let mut request = with("POST", "/job", "application/json", format!(" \n{job}"));
    request.headers_mut().remove(header::CONTENT_TYPE);
    let reply = bench.send(request).await;
    reply.is_problem(400, "bad_request");
    assert!(reply.body()["detail"].as_str().unwrap().contains("Content-Type: application/json"));
    let mut request = packed("POST", "/job", None, &job);
    request.headers_mut().remove(header::CONTENT_TYPE);
    request.headers_mut().insert(header::ORIGIN, "https://evil.example".parse().unwrap());
    bench.send(request).await.is_problem(403, "foreign_origin");
    assert_eq!(bench.engine.observe().gauges().jobs, 1);
}

#[tokio::test]
async fn ids_that_name_no_job_are_not_found() {
    let bench = Bench::new();
    for id in ["0", "1", "x", "-1", "9007199254740992", "%31%30%30", "%ff", "1.0"] {
        for request in [
            ask("GET", &format!("/job/{id}")),
            ask("DELETE", &format!("/job/{id}")),
            ask("GET", &format!("/job/{id}/polling?timeout=0")),
        ] {
            bench.send(request).await.is_problem(404, "job_not_found");
        }
    }
}

#[tokio::test]
async fn pages_of_others_must_not_write() {
    let bench = Bench::new();
    let mut request = packed("POST", "/job", None, &json!({"name": "n", "argument": {}}));
    request.headers_mut().insert(header::ORIGIN, "https://evil.example".parse().unwrap());
    bench.send(request).await.is_problem(403, "foreign_origin");
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
}

#[tokio::test]
async fn what_a_page_of_others_makes_a_browser_ask_for_is_not_read() {
    let bench = Bench::new();
    let worker = bench.worker(1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "keep_result": true})).await;
    bench.take(&worker).await;
    bench.done(&worker, json!({"job_id": id, "type": "success", "result": 1})).await.is(204);
    for path in [format!("/job/{id}"), format!("/job/{id}/polling")] {
        let mut request = ask("GET", &path);
        request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
        bench.send(request).await.is(200);
    }
    bench.pass(3_600_000);
    assert_eq!(bench.job(&id).await["result"], 1);
}
