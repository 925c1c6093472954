//! docs/constraints.md: its examples are requests, and what stands below them is part of what they
//! give.

use serde_json::Value;

use crate::harness::Bench;
use crate::page::{examples, read};

const PAGE: &str = include_str!("../../../../docs/constraints.md");

/// Whether all that is expected is told; there may be more.
fn tells(answer: &Value, expected: &Value) -> bool {
    match (answer, expected) {
        (Value::Object(answer), Value::Object(expected)) => expected
            .iter()
            .all(|(name, value)| answer.get(name).is_some_and(|answer| tells(answer, value))),
        (Value::Array(answer), Value::Array(expected)) => {
            let pairs = answer.iter().zip(expected);
            answer.len() == expected.len() && pairs.into_iter().all(|(a, b)| tells(a, b))
        }
        _ => answer == expected,
    }
}

#[tokio::test]
async fn every_example_of_the_page_gives_what_stands_below_it() {
    let bench = Bench::new();
    let examples = examples(PAGE);
    assert!(examples.len() > 10);
    for example in &examples {
        let (head, body) = example.answer.split_once("\n\n").unwrap_or((example.answer, ""));
        let reply = bench.send(read(example.request)).await;
        let mut lines = head.lines();
        let status = format!("HTTP/1.1 {}", reply.status);
        assert_eq!(lines.next().unwrap(), status, "{}\n{}", example.request, reply.text());
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(reply.header(&name.to_lowercase()), value, "{}", example.request);
        }
        if !body.is_empty() {
            let expected: Value = serde_json::from_str(body).unwrap();
            let shown = reply.json();
            assert!(tells(&shown, &expected), "{}\ngives\n{shown:#}", example.request);
        }
    }
}
