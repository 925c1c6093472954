//! Requests from strangers, and requests that make no sense.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, Version, header};
use serde_json::json;

use crate::harness::{Bench, json as json_request, request};

#[tokio::test]
async fn only_known_names_reach_the_server() {
    let bench = Bench::new();
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:7420", 200),
        ("[::1]:7420", 200),
        ("127.8.9.1", 200),
        ("evil.example", 421),
        ("localhost.evil.example:7420", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ] {
        for path in ["/api/v1/queues", "/healthz", "/metrics", "/api/docs"] {
            let request = Request::get(path).header(header::HOST, host).body(Body::empty());
            let answer = bench.send(request.unwrap()).await;
            assert_eq!(answer.status.as_u16(), status, "{host} {path}");
        }
    }
    let answer = bench.send(Request::get("/healthz").body(Body::empty()).unwrap()).await;
    answer.is_problem(400, "bad_request");
    // Health checks of load balancers come like this. Browsers cannot send it.
    let old = Request::get("/healthz").version(Version::HTTP_10).body(Body::empty());
    assert_eq!(bench.send(old.unwrap()).await.status, StatusCode::OK);
    let two = Request::get("/healthz").header(header::HOST, "localhost");
    let two = two.header(header::HOST, "localhost").body(Body::empty()).unwrap();
    bench.send(two).await.is_problem(400, "bad_request");
    let absolute = |target: &str, hosts: &[&str]| {
        let request = hosts
            .iter()
            .fold(Request::get(target), |request, host| request.header(header::HOST, *host));
        bench.send(request.body(Body::empty()).unwrap())
    };
    let answer = absolute("http://evil.example/healthz", &["localhost"]).await;
    answer.is_problem(421, "unknown_host");
    // The target beats the header, which must be there all the same.
    assert_eq!(absolute("http://localhost/healthz", &["evil.example"]).await.status, 200);
    absolute("http://localhost/healthz", &[]).await.is_problem(400, "bad_request");
    absolute("http://localhost/healthz", &["a", "b"]).await.is_problem(400, "bad_request");
    let forwarded = Request::get("/healthz").header(header::HOST, "evil.example");
    let forwarded = forwarded.header("x-forwarded-host", "localhost").body(Body::empty()).unwrap();
    bench.send(forwarded).await.is_problem(421, "unknown_host");
}

#[tokio::test]
async fn pages_of_other_origins_write_nothing() {
    let bench = Bench::new();
    let with = |name: &'static str, value: &'static str| {
        let mut request = json_request(Method::POST, "/api/v1/jobs", &json!({ "queue": "q" }));
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        bench.send(with(name, value)).await.is_problem(403, "foreign_origin");
    }
    assert_eq!(bench.engine.observe().gauges().jobs, 0);
    for (name, value) in [("origin", "http://localhost:7420"), ("sec-fetch-site", "same-origin")] {
        assert_eq!(bench.send(with(name, value)).await.status, StatusCode::CREATED);
    }
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let request = request(method, "/api/v1/jobs/1").header("origin", "http://evil.example");
        let answer = bench.send(request.body(Body::empty()).unwrap()).await;
        answer.is_problem(403, "foreign_origin");
    }
    let read = request(Method::GET, "/api/v1/jobs/1").header("sec-fetch-site", "cross-site");
    assert_eq!(bench.send(read.body(Body::empty()).unwrap()).await.status, StatusCode::OK);
    assert_eq!(bench.engine.observe().gauges().jobs, 2);
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    let bench = Bench::new();
    for kind in [
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "j\u{e9}son",
    ] {
        let request = request(Method::POST, "/api/v1/jobs")
            .header(header::CONTENT_TYPE, HeaderValue::from_bytes(kind.as_bytes()).unwrap());
        let answer = bench.send(request.body(Body::from("{\"queue\":\"q\"}")).unwrap()).await;
        answer.is_problem(415, "unsupported_type");
        let is_form = kind.ends_with("urlencoded");
        assert_eq!(
            answer.text().contains("-H 'Content-Type: application/json'"),
            is_form,
            "{kind}"
        );
    }
    let two = request(Method::POST, "/api/v1/jobs")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_TYPE, "text/plain");
    let answer = bench.send(two.body(Body::from("{\"queue\":\"q\"}")).unwrap()).await;
    answer.is_problem(415, "unsupported_type");
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/x+json"] {
        let request = request(Method::POST, "/api/v1/jobs").header(header::CONTENT_TYPE, kind);
        let answer = bench.send(request.body(Body::from("{\"queue\":\"q\"}")).unwrap()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{kind}");
    }
}

#[tokio::test]
async fn a_body_without_a_type_is_json() {
    let bench = Bench::new();
    let untyped = |method: Method, path: &str, body: &'static str| {
        request(method, path).body(Body::from(body)).unwrap()
    };
    for (method, path, body, status) in [
        (Method::POST, "/api/v1/jobs", r#"{"queue":"q"}"#, 201),
        (Method::POST, "/api/v1/jobs/batch", r#"{"jobs":[{"queue":"q"}]}"#, 200),
        (Method::POST, "/api/v1/lease", r#"{"queues":["q"]}"#, 200),
        (Method::PUT, "/api/v1/constraints/c", r#"{"running_max":1}"#, 201),
        (Method::POST, "/api/v1/queues/q/pause", r"{}", 200),
        (Method::POST, "/api/v1/jobs", "queue=q", 400),
    ] {
        let answer = bench.send(untyped(method, path, body)).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
    }
    let mut empty = untyped(Method::POST, "/api/v1/jobs", r#"{"queue":"q"}"#);
    empty.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(""));
    assert_eq!(bench.send(empty).await.status, StatusCode::CREATED);
    // A page can send a body without a type, unasked.
    let jobs = bench.engine.observe().gauges().jobs;
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let mut foreign = untyped(Method::POST, "/api/v1/jobs", r#"{"queue":"q"}"#);
        foreign.headers_mut().insert(name, HeaderValue::from_static(value));
        bench.send(foreign).await.is_problem(403, "foreign_origin");
    }
    assert_eq!(bench.engine.observe().gauges().jobs, jobs);
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let bench = Bench::new();
    let deep = "[".repeat(1000);
    let deep_map = "{\"a\":".repeat(1000);
    for body in ["", "{", "queue", "{\"queue\":\"q\"} x", "\u{feff}{}", &deep, &deep_map] {
        let request =
            request(Method::POST, "/api/v1/jobs").header(header::CONTENT_TYPE, "application/json");
        let answer = bench.send(request.body(Body::from(body.to_owned())).unwrap()).await;
        assert!(matches!(answer.json()["code"].as_str(), Some("bad_json" | "bad_field")), "{body}");
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
    let not_utf8 = request(Method::POST, "/api/v1/jobs")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(&b"{\"queue\":\"\xff\"}"[..]));
    bench.send(not_utf8.unwrap()).await.is_problem(400, "bad_json");
}

#[tokio::test]
async fn a_payload_nested_thousands_deep_comes_back_as_it_was() {
    let bench = Bench::new();
    let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let body = format!("{{\"queue\":\"q\",\"payload\":{deep}}}");
    let request =
        request(Method::POST, "/api/v1/jobs").header(header::CONTENT_TYPE, "application/json");
    let answer = bench.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    assert!(bench.get("/api/v1/jobs/1").await.text().contains(&deep));
}

#[tokio::test]
async fn answers_that_a_client_cannot_read_are_not_sent() {
    let bench = Bench::new();
    let ask = async |path: &str, accept: &str| {
        let request = request(Method::GET, path).header(header::ACCEPT, accept);
        bench.begin(request.body(Body::empty()).unwrap()).await.status().as_u16()
    };
    for accept in
        ["*/*", "application/json", "text/html, application/*;q=0.1", "", "Application/Json"]
    {
        assert_eq!(ask("/api/v1/queues", accept).await, 200, "{accept}");
    }
    for accept in ["text/html", "application/msgpack", "application/json;q=0", "json"] {
        assert_eq!(ask("/api/v1/queues", accept).await, 406, "{accept}");
    }
    assert_eq!(ask("/api/v1/events", "application/json").await, 406);
    assert_eq!(ask("/api/v1/events", "text/event-stream").await, 200);
    let id = bench.submit(json!({ "queue": "events" })).await;
    let of_job = format!("/api/v1/jobs/{id}/events");
    assert_eq!(ask(&of_job, "application/json").await, 406);
    assert_eq!(ask(&of_job, "text/event-stream").await, 200);
    assert_eq!(ask("/api/v1/queues/events", "application/json").await, 200, "a queue of that name");
    assert_eq!(ask("/metrics", "text/plain").await, 200);
}

#[tokio::test]
async fn wrong_paths_and_methods_are_told() {
    let bench = Bench::new();
    for path in ["/", "/api", "/api/v1", "/api/v1/job", "/api/v1/jobs/1/why/not", "/api/v1/jobs/"] {
        bench.get(path).await.is_problem(404, "not_found");
    }
    for (method, path, allow) in [
        (Method::PUT, "/api/v1/jobs", "GET,HEAD,POST"),
        (Method::POST, "/api/v1/jobs/1", "DELETE,GET,HEAD,PATCH"),
        (Method::GET, "/api/v1/lease", "POST"),
        (Method::DELETE, "/healthz", "GET,HEAD"),
    ] {
        let answer = bench.call(method, path).await;
        answer.is_problem(405, "method_not_allowed");
        let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{path}");
    }
}

#[tokio::test]
async fn every_answer_forbids_guessing_and_keeping() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q" })).await;
    for path in ["/api/v1/jobs/1", "/api/v1/jobs/2", "/nowhere", "/metrics"] {
        let answer = bench.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
}
