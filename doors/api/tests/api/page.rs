//! docs/api.md: its examples are requests, and what stands below them is what they give.

use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::Value;
use spindle_http::Code;

use crate::harness::{Bench, Reply};

const PAGE: &str = include_str!("../../../../docs/api.md");

pub struct Example<'a> {
    pub request: &'a str,
    pub answer: &'a str,
}

/// A block that begins with a method is a request, and the next one its answer.
pub fn examples(page: &'static str) -> Vec<Example<'static>> {
    let mut blocks = page
        .split("```http\n")
        .skip(1)
        .map(|rest| rest.split_once("\n```").expect("every block ends").0);
    let mut examples = Vec::new();
    while let Some(request) = blocks.next() {
        let answer = blocks.next().expect("every request has an answer");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        examples.push(Example { request, answer });
    }
    examples
}

pub fn read(text: &str) -> Request<Body> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
    let mut request = Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .header(header::HOST, "localhost:7420");
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

#[track_caller]
pub fn check(example: &Example<'_>, reply: &Reply) {
    let (head, body) = example.answer.split_once("\n\n").unwrap_or((example.answer, ""));
    let mut lines = head.lines();
    let status = format!("HTTP/1.1 {}", reply.status);
    assert_eq!(lines.next().unwrap(), status, "{}\n{}", example.request, reply.text());
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(reply.header(&name.to_lowercase()), value, "{name} of {}", example.request);
    }
    if body.is_empty() {
        assert_eq!(reply.text(), "", "{}", example.request);
        return;
    }
    let expected: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
    let mut given = reply.json();
    // Another one each time.
    let id = given.as_object_mut().and_then(|given| given.remove("request_id"));
    assert_eq!(id.is_some(), reply.header("content-type") == "application/problem+json");
    let shown = serde_json::to_string_pretty(&given).unwrap();
    assert_eq!(expected, given, "{}\ngives\n{shown}", example.request);
}

#[tokio::test]
async fn every_example_gives_what_stands_below_it() {
    let bench = Bench::new();
    let examples = examples(PAGE);
    assert!(examples.len() > 10);
    for example in &examples {
        let reply = bench.send(read(example.request)).await;
        check(example, &reply);
    }
}

#[test]
fn every_problem_is_on_the_page() {
    for code in Code::ALL {
        let line =
            format!("| `{}` | {} | {} |", code.as_str(), code.status().as_str(), code.title());
        assert!(PAGE.contains(&line), "{line}");
    }
}

#[tokio::test]
async fn every_route_is_on_the_page() {
    let bench = Bench::new();
    let document: Value = serde_json::from_str(bench.api.openapi()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let line = format!("`{} {path}`", method.to_uppercase());
            assert!(PAGE.contains(&line), "{line}");
        }
    }
}

#[tokio::test]
async fn every_metric_is_on_the_page() {
    let bench = Bench::with(
        |options| {
            options.handshakes = vec![("done", Default::default())];
            options.certificate_expires = Some(Default::default());
        },
        Default::default(),
    );
    let metrics = bench.get("/metrics").await;
    let names = metrics.text().lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut count = 0;
    for line in names {
        let (name, _) = line.split_once(' ').unwrap();
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
        count += 1;
    }
    assert!(count > 15);
}

/// The metrics that a text speaks of.
fn spoken_of(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("spindle_")).collect()
}

#[tokio::test]
async fn alerts_and_dashboard_speak_of_metrics_that_there_are() {
    let bench = Bench::with(
        |options| {
            options.places.door("http");
            options.handshakes = vec![("done", Default::default())];
            options.certificate_expires = Some(Default::default());
        },
        Default::default(),
    );
    bench.submit(serde_json::json!({ "queue": "q" })).await;
    let answer = bench.get("/metrics").await;
    let samples: Vec<&str> =
        answer.text().lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    for (name, text) in [
        ("alerts", include_str!("../../../../deploy/prometheus/alerts.yml")),
        ("dashboard", include_str!("../../../../deploy/grafana/spindle.json")),
    ] {
        let wanted = spoken_of(text);
        assert!(wanted.len() > 10, "{name}");
        for metric in wanted {
            assert!(samples.contains(&metric), "{name}: {metric}");
        }
    }
}

/// Every operation has a name of its own, by which links and generated clients know it, and every
/// link leads to one that takes its parameter.
#[tokio::test]
async fn operations_have_names_and_links_lead_to_them() {
    let bench = Bench::new();
    let document: Value = serde_json::from_str(bench.api.openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations = || paths.values().flat_map(|path| path.as_object().unwrap().values());
    let mut names = std::collections::BTreeMap::new();
    for operation in operations() {
        let name = operation["operationId"].as_str().unwrap();
        assert!(names.insert(name, operation).is_none(), "{name} is there twice");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let place = parameter["in"].as_str().unwrap();
            assert!(matches!(place, "path" | "query" | "header"), "{name}");
        }
    }
    let mut links = 0;
    for operation in operations() {
        let answers = operation["responses"].as_object().unwrap().values();
        for link in
            answers.filter_map(|answer| answer["links"].as_object()).flat_map(|it| it.values())
        {
            let target = names[link["operationId"].as_str().unwrap()];
            let given = link["parameters"].as_object().unwrap().keys().next().unwrap();
            let taken = target["parameters"].as_array().unwrap();
            assert!(taken.iter().any(|parameter| parameter["name"] == *given), "{link}");
            links += 1;
        }
    }
    assert_eq!(links, 16);
}
