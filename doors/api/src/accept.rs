//! Answers that a client says it cannot read are not sent.

use axum::extract::Request;
use spindle_http::{Answered, Code, Problem, accept_of, preference};

/// The API answers in JSON, and streams events; a client that cannot read that is refused.
pub(crate) fn check_accept(request: &Request) -> Answered<()> {
    if !request.uri().path().starts_with("/api/v1/") {
        return Ok(());
    }
    let Some(accept) = accept_of(request.headers()) else { return Ok(()) };
    // Those of the server, and those of a job.
    let is_stream = request.uri().path().ends_with("/events");
    let written = if is_stream { "text/event-stream" } else { "application/json" };
    if preference(&accept, &[written], None).weight > 0 {
        return Ok(());
    }
    let detail = format!("the answer would be {written}, which Accept does not take");
    Err(Problem::new(Code::NotAcceptable, detail))
}
