//! The clock, when it and the log disagree.

use axum::extract::State;
use axum::http::StatusCode;
use spindle_core::job::Origin;
use spindle_http::{Answered, Pass};

use crate::api::Api;

/// Say that the machine's clock is right, after the server found that it and the log differ by more
/// than five minutes: time goes on from it, and TTLs count again.
#[utoipa::path(post, path = "/api/v1/clock/accept", operation_id = "accept_clock", tag = "server",
    responses((status = 204, description = "Time goes on from the machine's clock")))]
pub(crate) async fn accept(State(api): State<Api>, pass: Pass) -> Answered<StatusCode> {
    let mut audit = pass.audit(Origin::Api);
    api.bridge().change(|engine| engine.people(&mut audit).accept_clock()).await?;
    Ok(StatusCode::NO_CONTENT)
}
