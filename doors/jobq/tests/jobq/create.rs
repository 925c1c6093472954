//! Creating jobs, showing and deleting them.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::json;

use crate::harness::{Bench, START_S};

#[tokio::test]
async fn the_documents_own_example_creates_a_job() {
    let bench = Bench::new();
    let created = bench.ok("/api/v0/job/create", "{\"msg\": \"Hello, world!\"}").await;
    let mut expected = json!({
        "id": 1,
        "payload": {"msg": "Hello, world!"},
        "state": ["CREATED"],
        "events": [["job_created", {"timestamp": START_S}]],
        "modified": 1_767_323_045,
    });
    assert_eq!(created, expected);
    // As the document shows it.
    expected.as_object_mut().unwrap().remove("modified");
    assert_eq!(bench.job(1).await, expected);
}

#[tokio::test]
async fn the_originals_form_gives_payload_and_state() {
    let bench = Bench::new();
    for (body, payload, state) in [
        ("{\"payload\": 1}", json!(1), json!(["CREATED"])),
        ("{\"payload\": null, \"state\": {\"b\": 1}}", json!(null), json!({"b": 1})),
        ("{\"payload\": \"\\u00e9\\u2603\", \"state\": \"str\"}", json!("é☃"), json!("str")),
        ("{\"payload\": 1, \"state\": null}", json!(1), json!(null)),
        ("{\"payload\": 1, \"other\": 2}", json!({"payload": 1, "other": 2}), json!(["CREATED"])),
        ("[1]", json!([1]), json!(["CREATED"])),
        ("null", json!(null), json!(["CREATED"])),
    ] {
        let id = bench.create(body).await;
        let job = bench.job(id).await;
        assert_eq!((&job["payload"], &job["state"]), (&payload, &state), "{body}");
    }
}

#[tokio::test]
async fn a_payload_keeps_what_its_creator_wrote() {
    let bench = Bench::new();
    let id = bench.create("{\"b\": 1.10, \"a\" :123456789012345678901234567890}").await;
    let reply = bench.get(&format!("/api/v0/job/{id}")).await;
    assert!(reply.text().contains("{\"b\": 1.10, \"a\" :123456789012345678901234567890}"));
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let bench = Bench::new();
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    for body in ["", "not json", "{bad", "1 2", &deep] {
        bench.post("/api/v0/job/create", body).await.is_refused(400, "bad_body");
    }
    let long = format!("\"{}\"", "x".repeat(16 << 20));
    bench.post("/api/v0/job/create", &long).await.is_refused(413, "too_large");
    let wide = format!("{{\"payload\":1,\"state\":\"{}\"}}", "x".repeat(65_536));
    bench.post("/api/v0/job/create", &wide).await.is_refused(400, "out_of_range");
    assert_eq!(bench.matches("[]").await, [0; 0]);
}

#[tokio::test]
async fn ids_that_name_no_job_are_not_found() {
    let bench = Bench::new();
    bench.create("1").await;
    for id in ["99", "abc", "0", "-1", "+1", "1.0", "9007199254740993", "99999999999999999999999"] {
        bench.get(&format!("/api/v0/job/{id}")).await.is_refused(404, "job_not_found");
        let event = format!("/api/v0/job/{id}/event");
        bench.post(&event, "1").await.is_refused(404, "job_not_found");
    }
}

#[tokio::test]
async fn a_deleted_job_is_gone_and_deleting_again_is_fine() {
    let bench = Bench::new();
    let id = bench.create("1").await;
    for _ in 0..2 {
        let reply = bench.send(Method::DELETE, &format!("/api/v0/job/{id}"), Body::empty()).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::OK, json!({})));
    }
    bench.get(&format!("/api/v0/job/{id}")).await.is_refused(404, "job_not_found");
    assert_eq!(bench.matches("[]").await, [0; 0]);
    assert_ne!(bench.create("2").await, id, "a number is never used again");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_in_json() {
    let bench = Bench::new();
    bench.create("1").await;
    for path in ["/api/v0/job/1/", "/api/v0/queue", "/api/v0/queue/1/job", "/api/v0/job/1/2/3"] {
        bench.get(path).await.is_refused(404, "not_found");
    }
    bench.get("/api/v0/job/create").await.is_refused(404, "not_found");
    bench.post("/api/v0/job/1", "{}").await.is_refused(405, "method_not_allowed");
    let put = bench.send(Method::PUT, "/api/v0/job/create", "{}").await;
    put.is_refused(405, "method_not_allowed");
    let patch = bench.send(Method::PATCH, "/api/v0/job", Body::empty()).await;
    patch.is_refused(405, "method_not_allowed");
    assert!(patch.headers["allow"].to_str().unwrap().contains("POST"));
    let options = bench.send(Method::OPTIONS, "/api/v0/job", Body::empty()).await;
    assert_eq!(options.status, StatusCode::OK);
    assert!(options.headers["allow"].to_str().unwrap().contains("GET"));
    let head = bench.send(Method::HEAD, "/api/v0/job", Body::empty()).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
}
