//! docs/lightjq.md: its examples are requests, and what stands below them is what they give.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use crate::harness::{Bench, Reply, ask};

const PAGE: &str = include_str!("../../../../docs/lightjq.md");
/// The worker's id in the page; the real one is drawn.
const WORKER: &str = "5f0c1f5e-5f0e-4c39-9d0a-8d1f3f6f1d2a";

/// Requests and their answers: each two blocks of the page.
fn examples() -> Vec<(&'static str, &'static str)> {
    let mut blocks = PAGE
        .split("```http\n")
        .skip(1)
        .map(|rest| rest.split_once("\n```").expect("every block ends").0);
    let mut examples = Vec::new();
    while let Some(request) = blocks.next() {
        let answer = blocks.next().expect("every request has an answer");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        examples.push((request, answer));
    }
    examples
}

fn read(text: &str) -> Request<Body> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
    let (mut parts, _) = ask(method, path).into_parts();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name: axum::http::HeaderName = name.parse().unwrap();
        parts.headers.insert(name, value.parse().unwrap());
    }
    Request::from_parts(parts, Body::from(body.to_owned()))
}

#[track_caller]
fn check(request: &str, answer: &str, reply: &Reply, worker: &str) {
    let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let status = format!("HTTP/1.1 {}", reply.status);
    let text = std::str::from_utf8(&reply.body).unwrap();
    assert_eq!(head, status, "{request}\n{text}");
    if body.is_empty() {
        assert_eq!(text, "", "{request}");
        return;
    }
    let expected: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
    let shown = text.replace(worker, WORKER);
    let mut shown: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{shown}"));
    // Of a problem: another one each time.
    shown.as_object_mut().and_then(|shown| shown.remove("request_id"));
    assert_eq!(expected, shown, "{request}");
}

#[tokio::test]
async fn every_example_gives_what_stands_below_it() {
    let bench = Bench::new();
    let examples = examples();
    assert!(examples.len() >= 10, "{}", examples.len());
    let mut worker = WORKER.to_owned();
    for (request, answer) in &examples {
        let reply = bench.send(read(&request.replace(WORKER, &worker))).await;
        if let Ok(Value::Object(shown)) = serde_json::from_slice(&reply.body)
            && let (Some(id), true) = (shown.get("worker_id"), request.starts_with("POST /worker"))
        {
            worker = id.as_str().unwrap().to_owned();
        }
        check(request, answer, &reply, &worker);
    }
}

fn described(bench: &Bench) -> Value {
    serde_json::from_str(bench.door.openapi()).unwrap()
}

#[tokio::test]
async fn every_route_is_on_the_page_and_in_the_document() {
    let bench = Bench::new();
    let document = described(&bench);
    let mut routes = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let route = format!("`{} {path}`", method.to_uppercase());
            assert!(PAGE.contains(&route), "{route}");
            routes.insert(route);
        }
    }
    let expected = [
        "`DELETE /constraint/{name}`",
        "`DELETE /job/{id}`",
        "`DELETE /worker`",
        "`GET /constraint/{name}`",
        "`GET /job/{id}`",
        "`GET /job/{id}/polling`",
        "`GET /worker/job`",
        "`POST /done`",
        "`POST /job`",
        "`POST /worker`",
        "`PUT /constraint/{name}`",
    ];
    assert_eq!(routes, expected.map(str::to_owned).into());
    let served = bench.get("/lightjq/openapi.json").await;
    assert_eq!(served.body(), document);
}

/// The fields the document gives a body are those the wire knows: each is refused when it is of a
/// wrong type, and none that it does not tell of is.
#[tokio::test]
async fn the_document_tells_of_every_field_the_door_reads() {
    let bench = Bench::new();
    let document = described(&bench);
    for (schema, path) in [("NewJob", "/job"), ("NewWorker", "/worker"), ("Done", "/done")] {
        let properties = document["components"]["schemas"][schema]["properties"].clone();
        let fields: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
        assert!(fields.len() >= 4, "{schema}: {fields:?}");
        for field in fields.iter().filter(|field| !["result", "error"].contains(&field.as_str())) {
            let mut body = serde_json::json!({"name": "n", "argument": {}, "max_jobs": 1,
                "job_id": "1", "type": "failure"});
            body[field] = serde_json::json!([[]]);
            let worker = (path == "/done").then_some(WORKER);
            let reply = bench.send(crate::harness::packed("POST", path, worker, &body)).await;
            reply.is_problem(400, "bad_field");
            let detail = reply.body()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(&format!("`{field}`")), "{schema}.{field}: {detail}");
        }
    }
}

#[tokio::test]
async fn every_operation_has_a_name_of_its_own() {
    let bench = Bench::new();
    let document = described(&bench);
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let names: Vec<&str> =
        operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!((names.len(), distinct.len()), (11, 11), "{names:?}");
}
