//! What a collector gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use spindle_engine::spans::{Span, SpanCounts, SpanKind, new_trace};
use spindle_otlp::{Exporter, Settings};
use spindle_testkit::{Collector, free_address, wait_until};

fn settings(endpoint: String) -> Settings {
    Settings { endpoint, instance: "box".to_owned(), flush_within: Duration::from_secs(60) }
}

#[test]
fn spans_come_to_the_collector_as_they_were_recorded() {
    let collector = Collector::start();
    let exporter = Exporter::start(&settings(collector.endpoint())).unwrap();
    let first = new_trace(None);
    let own = new_trace(Some(first));
    let mut span = Span::new("lease".to_owned(), SpanKind::Consumer, own, Some(first.span));
    span.put("spindle.attempt", 7);
    span.failed = Some("timeout".to_owned());
    exporter.sink().record(span);
    let spans = collector.await_spans("lease", 1);
    let span = &spans[0];
    assert_eq!(span.trace, format!("{:032x}", first.trace()));
    assert_eq!(span.span, format!("{:016x}", own.span));
    assert_eq!(span.parent, format!("{:016x}", first.span));
    assert_eq!((span.kind, span.failed.as_deref()), (5, Some("timeout")));
    assert_eq!(
        (span.attributes["spindle.attempt"].as_str(), span.service.as_str()),
        ("7", "spindle")
    );
    assert!(collector.heads()[0].starts_with("POST /v1/traces HTTP/1.1\r\n"));
    wait_until("the count of what was sent", || exporter.sink().counts().exported == 1);
}

#[test]
fn the_end_sends_what_waits() {
    let collector = Collector::start();
    let exporter = Exporter::start(&settings(collector.endpoint())).unwrap();
    for _ in 0..2_000 {
        exporter.sink().record(Span::new("s".to_owned(), SpanKind::Server, new_trace(None), None));
    }
    drop(exporter);
    assert_eq!(collector.spans().len(), 2_000);
}

/// A collector that takes each request, and rejects two of its spans.
#[test]
fn spans_that_a_collector_rejects_are_dropped_and_not_exported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            let line = line.trim_end().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        lines.read_exact(&mut vec![0; length]).unwrap();
        // `partial_success` with two `rejected_spans` and an `error_message`.
        let answer = b"\x0a\x09\x08\x02\x12\x05quota";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer)).unwrap();
    });
    let exporter = Exporter::start(&settings(endpoint)).unwrap();
    let sink = exporter.sink();
    for _ in 0..5 {
        sink.record(Span::new("s".to_owned(), SpanKind::Server, new_trace(None), None));
    }
    wait_until("the counts", || sink.counts() == SpanCounts { exported: 3, dropped: 2 });
}

#[test]
fn a_collector_that_is_not_there_costs_spans_and_nothing_else() {
    let exporter = Exporter::start(&settings(format!("http://{}", free_address()))).unwrap();
    let sink = exporter.sink();
    sink.record(Span::new("s".to_owned(), SpanKind::Server, new_trace(None), None));
    wait_until("the loss to be counted", || sink.counts().dropped == 1);
    assert_eq!(sink.counts().exported, 0);
}
