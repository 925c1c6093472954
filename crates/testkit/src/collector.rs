//! A collector of OpenTelemetry on loopback, which keeps the spans it is sent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;

use crate::wait_until;

/// A collector that accepts every span; when it is dropped, its threads run on to the end of the
/// test.
pub struct Collector {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    heads: Vec<String>,
    spans: Vec<Collected>,
}

/// A span, in the words of its standard.
#[derive(Clone, Debug)]
pub struct Collected {
    /// What was done.
    pub name: String,
    /// Its trace, in hexadecimal digits.
    pub trace: String,
    /// Its own id.
    pub span: String,
    /// The span it is part of; none if it is the first.
    pub parent: String,
    /// The number of its kind.
    pub kind: i32,
    /// It failed, and why.
    pub failed: Option<String>,
    /// What is known of it.
    pub attributes: HashMap<String, String>,
    /// When it began and ended, in nanoseconds.
    pub times: (u64, u64),
    /// `service.name` of its sender.
    pub service: String,
}

impl Collector {
    /// Starts it.
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Seen>>::default());
        let kept = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&kept);
                thread::spawn(move || while take_one(stream.as_ref().unwrap(), &seen).is_some() {});
            }
        });
        Collector { address, seen }
    }

    /// What to give as the endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has been sent.
    pub fn spans(&self) -> Vec<Collected> {
        self.seen.lock().spans.clone()
    }

    /// The heads of the requests.
    pub fn heads(&self) -> Vec<String> {
        self.seen.lock().heads.clone()
    }

    /// Waits for spans of this name, and returns those there are.
    #[track_caller]
    pub fn await_spans(&self, name: &str, count: usize) -> Vec<Collected> {
        let named = || {
            let spans = self.spans().into_iter();
            spans.filter(|span| span.name == name).collect::<Vec<_>>()
        };
        wait_until(name, || named().len() >= count);
        named()
    }
}

/// Takes a request; none if there is no further one.
fn take_one(mut stream: &TcpStream, seen: &Mutex<Seen>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    {
        let mut seen = seen.lock();
        seen.heads.push(head);
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let service = texts(resource.attributes).remove("service.name").unwrap_or_default();
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            seen.spans.extend(spans.map(|span| collected(span, &service)));
        }
    }
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer.as_bytes()).ok()
}

fn collected(span: Span, service: &str) -> Collected {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let status = span.status.unwrap_or_default();
    Collected {
        name: span.name,
        trace: hex(&span.trace_id),
        span: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        failed: (status.code == 2).then_some(status.message),
        attributes: texts(span.attributes),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
        service: service.to_owned(),
    }
}

fn texts(
    attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>,
) -> HashMap<String, String> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let named = |it: opentelemetry_proto::tonic::common::v1::KeyValue| {
        (it.key, text(it.value.and_then(|value| value.value)))
    };
    attributes.into_iter().map(named).collect()
}
