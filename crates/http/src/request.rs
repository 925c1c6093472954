//! What every request has, whatever its door: an id, one line of the log, and a span if traces are
//! exported.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Instant, SystemTime};

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use spindle_access::hidden_bytes;
use spindle_engine::spans::{Span, SpanKind, SpanSink, new_trace};
use spindle_engine::{COMMANDS, ShownName, logs_commands};

use crate::trace::{RequestTrace, trace_of};

/// The header that names a request: the client's own name for it, or the server's.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a client.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// The most bytes of a problem: no more is read to put the id in.
const PROBLEM_BYTES_MAX: usize = 1 << 20;

/// Routes that monitoring asks all the time: no spans.
const WATCHED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The number of the connection a request came over, unique in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionNumber(pub u64);

/// What is found out about a request on its way, for the log and its span.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    door: OnceLock<&'static str>,
    route: OnceLock<MatchedPath>,
    queue: OnceLock<ShownName>,
}

impl Notes {
    /// The request has come to a route of a door.
    pub fn set_route(&self, door: &'static str, route: Option<MatchedPath>) {
        let _ = self.door.set(door);
        if let Some(route) = route {
            let _ = self.route.set(route);
        }
    }

    /// The first queue that the request turns out to be about.
    pub fn set_queue(&self, queue: &[u8]) {
        let _ = self.queue.set(ShownName::of(queue));
    }

    fn queue(&self) -> &str {
        self.queue.get().map(ShownName::as_str).unwrap_or_default()
    }
}

/// Gives a request its id, and reports its outcome to the log and to `spans`.
pub(crate) async fn observed(
    spans: Option<&Arc<dyn SpanSink>>,
    mut request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let id = id_of(request.headers());
    if request.headers().get(REQUEST_ID) != Some(&id) {
        // A router that sends the request on passes the same id.
        request.headers_mut().insert(REQUEST_ID, id.clone());
    }
    let observed = Observed::begin(spans, &mut request);
    let mut response = with_id(answer(request).await, &id).await;
    if let Some(observed) = observed {
        observed.end(&id, &response);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The id that a client gives, if it is one visible word of ASCII without a token in it; else a new
/// one.
fn id_of(headers: &HeaderMap) -> HeaderValue {
    let mut given = headers.get_all(REQUEST_ID).iter();
    let is_sane = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len())
            && bytes.iter().all(u8::is_ascii_graphic)
            && matches!(hidden_bytes(bytes), Cow::Borrowed(_))
    };
    match (given.next().filter(is_sane), given.next()) {
        (Some(id), None) => id.clone(),
        _ => new_id(),
    }
}

/// Which process it was, and how many requests had no id before.
fn new_id() -> HeaderValue {
    static PROCESS: LazyLock<u32> = LazyLock::new(|| RandomState::new().hash_one(0) as u32);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = format!("{:08x}-{number:x}", *PROCESS);
    HeaderValue::try_from(id).expect("hexadecimal digits and a dash are ASCII")
}

/// A problem says which request it is the answer to.
async fn with_id(response: Response, id: &HeaderValue) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let Some(id) = id.to_str().ok().filter(|_| kind == Some(b"application/problem+json")) else {
        return response;
    };
    let (mut head, body) = response.into_parts();
    // It was made in one piece, so nothing is waited for.
    let Ok(body) = to_bytes(body, PROBLEM_BYTES_MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    let field = format!(",\"request_id\":{}}}", serde_json::Value::from(id));
    // A problem from another server has the id already.
    let is_said = body.ends_with(field.as_bytes());
    let Some(open) = body.strip_suffix(b"}").filter(|_| !is_said) else {
        return Response::from_parts(head, Body::from(body));
    };
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from([open, field.as_bytes()].concat()))
}

/// A request that is logged or traced.
struct Observed {
    notes: Arc<Notes>,
    began: Instant,
    began_at: SystemTime,
    /// Its connection's number; 0 if it came over none.
    connection: u64,
    method: String,
    span: Option<(Arc<dyn SpanSink>, RequestTrace)>,
}

impl Observed {
    /// None if requests are neither logged nor traced.
    fn begin(spans: Option<&Arc<dyn SpanSink>>, request: &mut Request) -> Option<Observed> {
        if spans.is_none() && !logs_commands() {
            return None;
        }
        let is_watched = WATCHED.contains(&request.uri().path());
        let span = spans.filter(|_| !is_watched).and_then(|spans| {
            let given = trace_of(request.headers());
            // A client that has begun the trace but does not record it wants no spans of it.
            let parent = given.filter(|trace| trace.is_sampled());
            if given.is_some() && parent.is_none() {
                return None;
            }
            let own = new_trace(parent);
            Some((
                Arc::clone(spans),
                RequestTrace { own, parent: parent.map(|parent| parent.span) },
            ))
        });
        let notes = Arc::<Notes>::default();
        request.extensions_mut().insert(Arc::clone(&notes));
        if let Some((_, trace)) = &span {
            request.extensions_mut().insert(*trace);
        }
        let connection = request.extensions().get::<ConnectionNumber>();
        Some(Observed {
            notes,
            began: Instant::now(),
            began_at: SystemTime::now(),
            connection: connection.map_or(0, |number| number.0),
            method: request.method().to_string(),
            span,
        })
    }

    fn end(self, id: &HeaderValue, response: &Response) {
        let Observed { notes, began, began_at, connection, method, span } = self;
        let door = notes.door.get().copied().unwrap_or("http");
        let route = notes.route.get().map(MatchedPath::as_str).unwrap_or_default();
        let (queue, status) = (notes.queue(), response.status().as_u16());
        let request = id.to_str().unwrap_or_default();
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(
            target: COMMANDS,
            door,
            connection,
            request,
            command = command_of(&method, route),
            queue,
            outcome = status,
            us,
            "command"
        );
        if let Some((spans, RequestTrace { own, parent })) = span {
            let mut span = Span::new(command_of(&method, route), SpanKind::Server, own, parent);
            let ended_at = began_at.checked_add(began.elapsed()).unwrap_or(began_at);
            (span.began, span.ended) = (began_at, ended_at);
            span.put("http.request.method", method);
            span.put("http.route", route.to_owned());
            span.put("http.response.status_code", i64::from(status));
            span.put("spindle.door", door);
            span.put("spindle.request_id", request);
            if !queue.is_empty() {
                span.put("messaging.destination.name", queue);
            }
            span.failed = (status >= 500).then(|| format!("status {status}"));
            spans.record(span);
        }
    }
}

/// What a request is called: its method and route, or the method alone if it has none.
fn command_of(method: &str, route: &str) -> String {
    format!("{method} {route}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_route_is_called_by_its_method() {
        assert_eq!(command_of("GET", "/api/v1/jobs/{id}"), "GET /api/v1/jobs/{id}");
        assert_eq!(command_of("GET", ""), "GET");
    }

    fn id_for(given: &[&[u8]]) -> String {
        let value = |it: &&[u8]| (REQUEST_ID, HeaderValue::from_bytes(it).unwrap());
        id_of(&given.iter().map(value).collect()).to_str().unwrap().to_owned()
    }

    #[test]
    fn a_sane_id_is_taken_and_any_other_is_replaced() {
        let longest = "x".repeat(REQUEST_ID_BYTES_MAX);
        for id in ["a", "order-4711/7\"\\", &longest] {
            assert_eq!(id_for(&[id.as_bytes()]), id);
        }
        let too_long = "x".repeat(REQUEST_ID_BYTES_MAX + 1);
        let token = format!("job-spindle_{}", "x".repeat(43));
        let others: [&[&[u8]]; 7] = [
            &[],
            &[b""],
            &[b"a b"],
            &[b"\xff"],
            &[too_long.as_bytes()],
            &[b"a", b"b"],
            &[token.as_bytes()],
        ];
        for given in others {
            let (one, other) = (id_for(given), id_for(given));
            assert!(one != other && one.len() < 30 && one.as_bytes()[8] == b'-', "{one} {other}");
        }
    }
}
