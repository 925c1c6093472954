//! All doors' routes as one site.

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;

use spindle_engine::spans::SpanSink;

use crate::guard;
use crate::names::Names;
use crate::problem::{Code, Problem};
use crate::request;

/// The routes of all doors, merged, behind the guard. What is at no door's path is a problem with
/// code `not_found`; a door that answers wrong methods in a form of its own has said so to its
/// routes before.
pub fn site(routes: Router, names: Names) -> Router {
    site_with(routes, names, None)
}

/// The same, with whoever takes the spans of requests.
pub fn site_with(routes: Router, names: Names, spans: Option<Arc<dyn SpanSink>>) -> Router {
    routes
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(names, guard::guard))
        .layer(from_fn_with_state(spans, request::observe))
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::new(Code::NotFound, format!("there is nothing at {}; see /api/docs", uri.path()))
}

async fn wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not take that method; see Allow")
}
