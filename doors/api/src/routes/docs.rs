//! The API's description: as OpenAPI, and as pages to read and to try it on. The viewer is Swagger UI,
//! whose files are in the program: nothing comes from elsewhere.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use spindle_http::{Answered, Code, Problem, THEME_COOKIE, cookie_of};
use utoipa_swagger_ui::Config;

use crate::api::Api;

/// Its own scripts and requests only. The viewer sets styles on elements, and has pictures in its
/// style sheet.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";
/// The viewer's files that the page uses; others of it are not served.
const FILES: [&str; 5] = [
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-initializer.js",
    "swagger-ui.css",
    "favicon-32x32.png",
];
/// The page's own files: its colours, and its texts for screen readers.
const OWN_FILES: [(&str, &str, &str); 2] = [
    ("docs.css", "text/css; charset=utf-8", include_str!("../../assets/docs.css")),
    ("docs.js", "text/javascript; charset=utf-8", include_str!("../../assets/docs.js")),
];
/// What follows the head of the document. Files are named from where it is, so that it can be behind a
/// proxy with a path of its own. The colours are chosen before anything is shown.
const PAGE: &str = "<meta charset=utf-8><title>Spindle API</title>\
<meta name=viewport content='width=device-width,initial-scale=1'>\
<link rel=stylesheet href=docs/swagger-ui.css><link rel=stylesheet href=docs/docs.css>\
<link rel=icon href=docs/favicon-32x32.png><script src=docs/docs.js></script>\
<header class=site><a href=..>Back to the pages</a></header>\
<main id=swagger-ui><noscript>This page needs scripts. The same for programs is \
<a href=openapi.json>openapi.json</a>.</noscript></main>\
<script src=docs/swagger-ui-bundle.js></script><script src=docs/swagger-ui-standalone-preset.js></script>\
<script src=docs/swagger-initializer.js></script></html>";

pub(crate) async fn openapi(State(api): State<Api>) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], api.openapi().to_owned()).into_response()
}

/// The viewer, in the colours that were chosen on the pages.
pub(crate) async fn docs(headers: HeaderMap) -> Response {
    let chosen = cookie_of(&headers, THEME_COOKIE);
    let theme =
        ["light", "dark"].into_iter().find(|theme| chosen == Some(*theme)).unwrap_or("auto");
    let page = format!("<!doctype html><html lang=en data-theme={theme}>{PAGE}");
    respond(page.into(), "text/html; charset=utf-8", false)
}

/// A file of the viewer.
pub(crate) async fn file(Path(name): Path<String>) -> Answered<Response> {
    if let Some((_, kind, text)) = OWN_FILES.iter().find(|(known, ..)| *known == name) {
        return Ok(respond((*text).into(), kind, false));
    }
    let config = Config::from("openapi.json")
        .use_base_layout()
        .default_models_expand_depth(0)
        .display_request_duration(true)
        .persist_authorization(false)
        .validator_url("none")
        .try_it_out_enabled(true);
    let found = FILES.contains(&&*name).then(|| utoipa_swagger_ui::serve(&name, Arc::new(config)));
    match found {
        Some(Ok(Some(file))) => {
            Ok(respond(file.bytes.into_owned(), &file.content_type, file.gzpipped))
        }
        _ => Err(Problem::new(Code::NotFound, "there is no such file")),
    }
}

fn respond(body: Vec<u8>, kind: &str, is_packed: bool) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::try_from(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if is_packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
