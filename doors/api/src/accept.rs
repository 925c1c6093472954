//! Answers that a client says it cannot read are not sent.

use axum::extract::{MatchedPath, Request};
use spindle_http::{Answered, Code, Problem, accept_of, preference};

/// Routes that stream events: those of the server, and those of a job.
const STREAMS: [&str; 2] = ["/api/v1/events", "/api/v1/jobs/{id}/events"];

/// The API answers in JSON, and streams events; a client that cannot read that is refused.
pub(crate) fn check_accept(request: &Request) -> Answered<()> {
    if !request.uri().path().starts_with("/api/v1/") {
        return Ok(());
    }
    let Some(accept) = accept_of(request.headers()) else { return Ok(()) };
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let is_stream = route.is_some_and(|route| STREAMS.contains(&route));
    let written = if is_stream { "text/event-stream" } else { "application/json" };
    if preference(&accept, &[written], None).weight > 0 {
        return Ok(());
    }
    let detail = format!("the answer would be {written}, which Accept does not take");
    Err(Problem::new(Code::NotAcceptable, detail))
}
