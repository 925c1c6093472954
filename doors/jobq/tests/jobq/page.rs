//! docs/jobq.md: its examples are requests, and what stands below them is what they give.

use axum::http::Method;
use serde_json::Value;

use crate::harness::Bench;

const PAGE: &str = include_str!("../../../../docs/jobq.md");

/// A block that begins with a method is a request, and the next one its answer.
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

#[tokio::test]
async fn every_example_gives_what_stands_below_it() {
    let bench = Bench::new();
    let examples = examples();
    assert!(examples.len() > 8);
    for (request, answer) in examples {
        let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
        let (method, path) = head.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let reply = bench.send(method, path, body).await;
        let (head, body) = answer.split_once("\n\n").unwrap();
        let status = head.lines().next().unwrap();
        assert_eq!(status, format!("HTTP/1.1 {}", reply.status), "{request}\n{}", reply.text());
        let expected: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
        assert_eq!(expected, reply.json(), "{request}");
    }
}

#[tokio::test]
async fn every_function_of_the_page_and_every_operator_is_taken() {
    let bench = Bench::new();
    let id = bench.create("{}").await;
    let ops = PAGE.split_once("**OP** is one of ").unwrap().1.split_once(".\n").unwrap().0;
    let ops: Vec<&str> = ops.split(", ").map(|op| op.trim_matches('`')).collect();
    assert_eq!(ops.len(), 13);
    for op in ops {
        let query = format!("[[\"{op}\", \"modified + 60\", \"unixepoch() - 600\"]]");
        bench.matches(&query).await;
    }
    assert_eq!(bench.matches("[[\"IS\", \"state ->> 0\", \"CREATED\"]]").await, [id]);
}
