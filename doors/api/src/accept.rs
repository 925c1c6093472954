//! Answers that a client says it cannot read are not sent.

use axum::extract::Request;
use spindle_http::{Answered, Code, Problem, accept_of, preference};

/// The API answers in JSON; a client that cannot read that is refused.
pub(crate) fn check_accept(request: &Request) -> Answered<()> {
    if !request.uri().path().starts_with("/api/v1/") {
        return Ok(());
    }
    let Some(accept) = accept_of(request.headers()) else { return Ok(()) };
    let events = request.uri().path() == "/api/v1/events";
    let written = if events { "text/event-stream" } else { "application/json" };
    if preference(&accept, &[written], None).weight > 0 {
        return Ok(());
    }
    let detail = format!("the answer would be {written}, which Accept does not take");
    Err(Problem::new(Code::NotAcceptable, detail))
}
