//! The HTTP client of the exporter: blocking, on the exporter's own thread.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use ureq::Agent;

/// An answer of a collector is short.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Sends one request after the other.
#[derive(Debug)]
pub struct BlockingClient(Agent);

impl BlockingClient {
    /// A client that waits at most so long for an answer.
    pub fn new(answer_within: Duration) -> BlockingClient {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(answer_within))
            .user_agent(concat!("spindle/", env!("CARGO_PKG_VERSION")))
            .build();
        BlockingClient(config.new_agent())
    }
}

#[async_trait]
impl HttpClient for BlockingClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let answer = self.0.run(Request::from_parts(head, &body[..]))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, Bytes::from(body)))
    }
}
