//! The HTTP client of the exporter: blocking, on the exporter's own thread.
//!
//! The library tells its caller neither why a request failed nor how many spans a collector has
//! rejected of those that it took. So the client keeps both.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use parking_lot::Mutex;
use prost::Message;
use ureq::Agent;

/// An answer of a collector is short.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Sends one request after the other.
#[derive(Debug)]
pub struct BlockingClient {
    agent: Agent,
    last: Arc<Mutex<Outcome>>,
}

/// What became of the last request, as far as the library does not tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Why there is no answer.
    pub failure: Option<String>,
    /// Spans that the collector has not taken, though it has taken the request.
    pub rejected: u64,
    /// Why, in the collector's words.
    pub reason: String,
}

impl BlockingClient {
    /// A client that waits at most so long for an answer, and where it keeps what became of a
    /// request.
    pub fn new(answer_within: Duration) -> (BlockingClient, Arc<Mutex<Outcome>>) {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(answer_within))
            .user_agent(concat!("spindle/", env!("CARGO_PKG_VERSION")))
            .build();
        let last = Arc::<Mutex<Outcome>>::default();
        (BlockingClient { agent: config.new_agent(), last: Arc::clone(&last) }, last)
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(head, &body[..]))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, Bytes::from(body)))
    }
}

#[async_trait]
impl HttpClient for BlockingClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let outcome = self.send(request);
        *self.last.lock() = match &outcome {
            Ok(answer) if answer.status().is_success() => outcome_of(answer.body()),
            Ok(_) => Outcome::default(),
            Err(error) => Outcome { failure: Some(chain_of(error)), ..Outcome::default() },
        };
        Ok(outcome?)
    }
}

/// What a collector says of the spans it was sent. An answer that cannot be read says nothing.
fn outcome_of(answer: &[u8]) -> Outcome {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
    Outcome { failure: None, rejected, reason: partial.error_message }
}

/// An error and what caused it. Some say their cause themselves.
fn chain_of(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let shown = error.to_string();
        if !text.contains(&shown) {
            text = format!("{text}: {shown}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn a_collector_says_how_many_spans_it_has_rejected() {
        let partial = |rejected_spans, reason: &str| ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: reason.to_owned(),
            }),
        };
        let last = outcome_of(&partial(3, "quota").encode_to_vec());
        assert_eq!(last, Outcome { failure: None, rejected: 3, reason: "quota".to_owned() });
        for nothing in [&[][..], b"not protobuf", &partial(-1, "").encode_to_vec()] {
            assert_eq!(outcome_of(nothing), Outcome::default());
        }
    }

    #[test]
    fn an_error_is_shown_with_its_causes_each_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] std::io::Error);
        let cause = || std::io::Error::other("reset by peer");
        assert_eq!(chain_of(&Outer("no answer", cause())), "no answer: reset by peer");
        assert_eq!(chain_of(&Outer("io: reset by peer", cause())), "io: reset by peer");
    }
}
