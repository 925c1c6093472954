//! The clock, when it and the log disagree.

use axum::extract::State;
use axum::http::StatusCode;

use crate::api::Api;

/// Say that the machine's clock is right, after the server found that it and the log differ by more
/// than five minutes: time goes on from it, and TTLs count again.
#[utoipa::path(post, path = "/api/v1/clock/accept", operation_id = "accept_clock", tag = "server",
    responses((status = 204, description = "Time goes on from the machine's clock")))]
pub(crate) async fn accept(State(api): State<Api>) -> StatusCode {
    api.engine().accept_clock();
    drop(api.bridge().turn());
    StatusCode::NO_CONTENT
}
