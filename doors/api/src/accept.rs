//! Answers that a client says it cannot read are not sent.

use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use spindle_http::{Answered, Code, Problem, text_of};

/// Refuses requests whose answer would be in no type they take.
pub(crate) async fn accept(request: Request, next: Next) -> Response {
    match check_accept(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The API answers in JSON; a client that says it cannot read that is told so.
fn check_accept(request: &Request) -> Answered<()> {
    if !request.uri().path().starts_with("/api/v1/") {
        return Ok(());
    }
    let Some(accept) = text_of(request.headers(), &header::ACCEPT) else { return Ok(()) };
    let written = if request.uri().path() == "/api/v1/events" {
        ["text/event-stream", "text/*", "*/*"]
    } else {
        ["application/json", "application/*", "*/*"]
    };
    let takes = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        !refused && written.iter().any(|kind| kind.eq_ignore_ascii_case(essence))
    };
    if accept.trim().is_empty() || accept.split(',').any(takes) {
        return Ok(());
    }
    let detail = format!("the answer would be {}, which Accept does not take", written[0]);
    Err(Problem::new(Code::NotAcceptable, detail))
}
