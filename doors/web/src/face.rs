//! The outermost layer of answers: shows problems as pages for people, and sets the headers of
//! pages.

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use spindle_http::{accept_of, preference};

use crate::enter::Visit;
use crate::page::Page;
use crate::pages::{fault, login};
use crate::query::Query;
use crate::web::Web;

/// Nothing is loaded or run but this server's own style sheet, script and pictures; forms go nowhere
/// else; no other page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The longest problem that is turned into a page.
const PROBLEM_BYTES_MAX: usize = 64 << 10;
/// Paths for programs: there, problems stay JSON for every client.
const FOR_PROGRAMS: [&str; 5] = ["/api/", "/lightjq/", "/healthz", "/readyz", "/metrics"];

/// Turns problems into pages for people: around the pages, and around paths that no door serves.
pub(crate) async fn face(State(web): State<Web>, mut request: Request, next: Next) -> Response {
    if !wants_page(request.uri().path(), request.headers()) {
        return next.run(request).await;
    }
    let method = request.method().clone();
    let (visit, login) = Visit::read(&web, &request);
    let peer = request.extensions().get().cloned();
    request.extensions_mut().insert(visit.clone());
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(b"application/problem+json") {
        return response;
    }
    let page = Page::new(web, visit, (login, peer), &method);
    if response.status() == StatusCode::UNAUTHORIZED && matches!(method, Method::GET | Method::HEAD)
    {
        let to = Query::new().with("next", login::own_path(&page.visit.at)).to("/login");
        return Redirect::to(&to).into_response();
    }
    as_page(&page, response).await
}

/// Whether the answer is for the eyes of a person. Programs that accept any type get the JSON they
/// always got.
fn wants_page(path: &str, headers: &HeaderMap) -> bool {
    let accept = accept_of(headers).unwrap_or_default();
    let html = preference(&accept, &["text/html"], None);
    let json = preference(&accept, &["application/json", "application/problem+json"], None);
    let is_for_programs = FOR_PROGRAMS.iter().any(|prefix| path.starts_with(prefix));
    html.named && html.weight > 0 && html.weight >= json.weight && !is_for_programs
}

/// The parts of a problem that a page shows.
#[derive(Deserialize)]
pub(crate) struct ProblemText {
    pub title: String,
    pub detail: String,
}

async fn as_page(page: &Page, response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let text = serde_json::from_slice(&body).unwrap_or_else(|_| ProblemText {
        title: head.status.canonical_reason().unwrap_or("Error").to_owned(),
        detail: String::new(),
    });
    let body = if head.status == StatusCode::UNAUTHORIZED {
        login::form(page, "/", Some(&text.detail)).await
    } else {
        fault::shown(page, head.status, &text).await
    };
    let (made, body) = body.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(made.headers);
    page.visit.keep(&mut head.headers);
    dress(&mut head.headers);
    Response::from_parts(head, body)
}

/// Sets the headers of pages.
pub(crate) async fn dressed(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    dress(response.headers_mut());
    response
}

fn dress(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_for_who_asks_for_html_where_people_go() {
        let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
        for (path, accept, expected) in [
            ("/", browser, true),
            ("/nowhere", browser, true),
            ("/", "*/*", false),
            ("/", "", false),
            ("/", "application/json", false),
            ("/", "application/json, text/html;q=0.9", false),
            ("/", "text/html, application/json", true),
            ("/", "text/html;q=0", false),
            ("/api/v1/nowhere", browser, false),
            ("/metrics", browser, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_page(path, &headers), expected, "{path} {accept}");
        }
    }
}
