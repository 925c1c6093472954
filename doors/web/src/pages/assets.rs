//! The files that pages load.

use axum::extract::{Path, State};
use axum::response::Response;
use spindle_http::Answered;

use crate::web::Web;

/// A file by its name.
pub(crate) async fn file(State(web): State<Web>, Path(name): Path<String>) -> Answered<Response> {
    web.assets().answer(&name)
}
