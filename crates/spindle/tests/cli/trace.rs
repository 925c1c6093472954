//! The trace a job belongs to, from its submit to the command that works on it.

use serde_json::json;
use spindle_testkit::{Collected, Collector, HttpRequest};

use crate::{
    fake_workq::stdout,
    native::{at, output_of, url},
    serve::{Served, data, serve, serve_with},
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_trace_comes_from_the_submit_to_the_workers_command_over_a_restart() {
    let (_folder, data) = data();
    let arguments = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data];
    let mut served = serve(&arguments);
    let address = served.address_of("http");
    let head =
        format!("Host: {address}\r\nContent-Type: application/json\r\ntraceparent: {TRACE}\r\n");
    for path in ["POST /api/v1/jobs", "POST /api/v0/job/create?queue=q&ready=1"] {
        let body = json!({ "queue": "q" }).to_string();
        let (status, text) = HttpRequest::send_with(&address, path, &head, &body).answer();
        assert!(matches!(status, 200 | 201), "{text}");
    }
    at(&served, &["add", "q"]).env("TRACEPARENT", TRACE).assert().success();
    output_of(&served, &["add", "q"]);
    served.crash();

    let served = serve(&arguments);
    assert!(url(&served).starts_with("http://"));
    let show = "printf %s \"${TRACEPARENT-none}\"";
    // Jobs do not get the trace of the worker itself.
    let mut work = at(&served, &["work", "q", "--drain", "--", "sh", "-c", show]);
    work.env("TRACEPARENT", TRACE.replace("4bf9", "0000")).assert().success();
    let results = ["1", "2", "3", "4"].map(|id| stdout(&at(&served, &["result", id]).unwrap()));
    assert_eq!(results, [TRACE, TRACE, TRACE, "none"]);
}

const DOORS: [&str; 5] = ["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// Posts JSON with a header beside, and returns the status and the body.
fn post(served: &Served, path: &str, header: &str, body: &serde_json::Value) -> (u16, String) {
    let address = served.address_of("http");
    let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n{header}");
    let head = format!("POST {path}");
    HttpRequest::send_with(&address, &head, &headers, &body.to_string()).answer()
}

#[track_caller]
fn only(spans: Vec<Collected>) -> Collected {
    assert_eq!(spans.len(), 1, "{spans:?}");
    spans.into_iter().next().unwrap()
}

#[test]
fn a_collector_gets_the_spans_of_a_job_in_the_trace_of_its_submit() {
    let collector = Collector::start();
    let mut served = serve(&[&DOORS[..], &["--otlp-endpoint", &collector.endpoint()]].concat());
    let header = format!("traceparent: {TRACE}\r\nX-Request-Id: once\r\n");
    assert_eq!(post(&served, "/api/v1/jobs", &header, &json!({ "queue": "q\n" })).0, 201);
    let (_, leased) =
        post(&served, "/api/v1/lease", "", &json!({ "queues": ["q\n"], "worker": "w" }));
    let leased: serde_json::Value = serde_json::from_str(&leased).unwrap();
    let token = leased["lease_token"].as_str().unwrap();
    assert_eq!(post(&served, &format!("/api/v1/leases/{token}/complete"), "", &json!({})).0, 204);
    served.end();

    let request = only(collector.await_spans("POST /api/v1/jobs", 1));
    let submit = only(collector.await_spans("submit", 1));
    let lease = only(collector.await_spans("lease", 1));
    let attempt = only(collector.await_spans("attempt", 1));
    let trace = &TRACE[3..35];
    for span in [&request, &submit, &lease, &attempt] {
        assert_eq!((span.trace.as_str(), span.service.as_str()), (trace, "spindle"), "{span:?}");
        assert_eq!(span.attributes["messaging.destination.name"], "q\\u{a}", "{span:?}");
        assert!(span.times.0 <= span.times.1 && span.failed.is_none(), "{span:?}");
    }
    assert_eq!((request.parent.as_str(), request.kind), (&TRACE[36..52], 2));
    assert_eq!(request.attributes["http.response.status_code"], "201");
    assert_eq!(request.attributes["spindle.request_id"], "once");
    assert_eq!((&submit.parent, submit.kind), (&request.span, 4));
    assert_eq!((&lease.parent, &attempt.parent), (&submit.span, &submit.span));
    assert_eq!(attempt.attributes["spindle.outcome"], "completed");
    assert_eq!(attempt.attributes["spindle.worker"], "w");
    // The worker goes on below the attempt.
    assert_eq!(leased["traceparent"], format!("00-{trace}-{}-01", attempt.span));
    // Requests without a trace begin one of their own.
    assert_ne!(only(collector.await_spans("POST /api/v1/lease", 1)).trace, trace);
}

#[test]
fn who_does_not_record_a_trace_gets_no_spans_and_keeps_it() {
    let collector = Collector::start();
    let endpoint = collector.endpoint();
    let named =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_EXPORTER_OTLP_HEADERS", "key=word")];
    let mut served = serve_with(&DOORS, &named);
    let unsampled = TRACE.replace("-01", "-00");
    let header = format!("traceparent: {unsampled}\r\n");
    assert_eq!(post(&served, "/api/v1/jobs", &header, &json!({ "queue": "q" })).0, 201);
    let (_, leased) = post(&served, "/api/v1/lease", "", &json!({ "queues": ["q"] }));
    assert!(leased.contains(&unsampled), "{leased}");
    served.end();
    only(collector.await_spans("POST /api/v1/lease", 1));
    assert_eq!(collector.spans().len(), 1);
    assert!(collector.heads()[0].to_lowercase().contains("key: word\r\n"));
}

#[test]
fn a_collector_that_is_away_is_logged_once_and_counted() {
    let away = spindle_testkit::free_address();
    let endpoint = format!("http://{away}");
    let mut served = serve(&[&DOORS[..], &["--otlp-endpoint", &endpoint]].concat());
    let dropped = |served: &Served| {
        let headers = format!("Host: {}\r\n", served.address_of("http"));
        let metrics =
            HttpRequest::send_with(served.address_of("http"), "GET /metrics", &headers, "");
        let (_, text) = metrics.answer();
        let line =
            text.lines().find_map(|it| it.strip_prefix("spindle_spans_total{fate=\"dropped\"} "));
        line.unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap()
    };
    for count in 1..4 {
        // Its request, and its submit.
        assert_eq!(post(&served, "/api/v1/jobs", "", &json!({ "queue": "q" })).0, 201);
        spindle_testkit::wait_until("the loss", || dropped(&served) == 2 * count);
    }
    served.end();
    let said = served.said.await_end();
    assert_eq!(said.matches("the collector takes no spans").count(), 1, "{said}");
    assert!(said.contains("Connection refused"), "{said}");
}
