//! The trace a request belongs to (W3C Trace Context).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use spindle_core::job::TraceParent;

/// The header that says which trace a request belongs to.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace that headers name. None if there is none, if it is malformed, or if it is there more
/// than once: the standard says to go on without one then.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<TraceParent> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let (first, second) = (given.next()?, given.next());
    TraceParent::parse(first.as_bytes()).filter(|_| second.is_none())
}

/// A trace as the value of a header.
pub fn trace_header(trace: TraceParent) -> HeaderValue {
    HeaderValue::try_from(trace.to_string()).expect("hexadecimal digits and dashes are ASCII")
}

/// The trace a submit belongs to, which its jobs keep.
#[derive(Clone, Debug, Default)]
pub struct Trace(pub Option<Box<TraceParent>>);

/// The trace of a request whose span is exported: the request's own span, and its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTrace {
    pub own: TraceParent,
    pub parent: Option<u64>,
}

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Trace, Infallible> {
        let request = parts.extensions.get::<RequestTrace>().map(|trace| trace.own);
        Ok(Trace(request.or_else(|| trace_of(&parts.headers)).map(Box::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_there_twice_or_malformed_is_none() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = |values: &[&'static str]| {
            let headers = values.iter().map(|it| (TRACEPARENT, HeaderValue::from_static(it)));
            trace_of(&headers.collect())
                .map(|trace| trace_header(trace).to_str().unwrap().to_owned())
        };
        assert_eq!(read(&[given]).as_deref(), Some(given));
        for values in [&[][..], &[given, given], &["00-1-2-3"]] {
            assert_eq!(read(values), None, "{values:?}");
        }
    }
}
