//! Limits on the jobs a matcher matches, whichever door they came through.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use spindle_core::job::Origin;
use spindle_core::queue::LimitScope;
use spindle_engine::{ConstraintView, Engine, Expected};
use spindle_http::{Answered, Code, ConstraintBody, ConstraintShown, Pass, Problem};

use crate::body::{Body, Wanted, malformed};
use crate::door::LightJq;
use crate::extract::NamePath;
use crate::wire::{from_json, to_json};

fn no_constraint() -> Problem {
    Problem::new(Code::ConstraintNotFound, "there is no such constraint")
}

/// Put a constraint, new or changed. Jobs that are there already are matched one after the other.
#[utoipa::path(put, path = "/constraint/{name}", operation_id = "put_constraint",
    tag = "constraints", request_body = ConstraintBody, params(NamePath),
    responses(
        (status = 201, description = "It is new", body = ConstraintShown),
        (status = 200, description = "It was there, and is so now", body = ConstraintShown),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn put(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
    wanted: Wanted,
    pass: Pass,
    body: Body,
) -> Answered<Response> {
    let constraint = body.read(|body| to_json(body)).await?;
    if !matches!(constraint, Value::Object(_)) {
        return Err(Problem::bad_field("the body must be a map"));
    }
    let spec = serde_json::from_value::<ConstraintBody>(constraint)
        .map_err(|error| Problem::bad_field(error.to_string()))?
        .into_spec()?;
    let mut audit = pass.audit(Origin::Lightjq);
    // All of LightJQ's jobs are on one shard, so a constraint there limits all of them.
    let scope = LimitScope::PerShard;
    let put = |engine: &Engine| {
        engine.people(&mut audit).put_constraint(&name, &spec, scope, Expected::Any)
    };
    let put = door.bridge().change(put).await?;
    let view = door.bridge().durable(door.engine().constraints().get(&name)).await;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    // It may have been removed again since.
    shown(&door, &wanted, status, &view.ok_or_else(no_constraint)?).await
}

/// A constraint as it stands.
#[utoipa::path(get, path = "/constraint/{name}", operation_id = "show_constraint",
    tag = "constraints", params(NamePath),
    responses(
        (status = 200, description = "The constraint", body = ConstraintShown),
        (status = "4XX", description = "There is no such constraint")))]
pub(crate) async fn show(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
    wanted: Wanted,
) -> Answered<Response> {
    let view = door.bridge().durable(door.engine().constraints().get(&name)).await;
    shown(&door, &wanted, StatusCode::OK, &view.ok_or_else(no_constraint)?).await
}

/// Remove a constraint. Jobs it held back start.
#[utoipa::path(delete, path = "/constraint/{name}", operation_id = "remove_constraint",
    tag = "constraints", params(NamePath),
    responses(
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "There is no such constraint")))]
pub(crate) async fn remove(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
    pass: Pass,
) -> Answered<StatusCode> {
    let mut audit = pass.audit(Origin::Lightjq);
    let remove =
        |engine: &Engine| engine.people(&mut audit).remove_constraint(&name, Expected::Any);
    door.bridge().change(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn shown(
    door: &LightJq,
    wanted: &Wanted,
    status: StatusCode,
    view: &ConstraintView,
) -> Answered<Response> {
    let shown = ConstraintShown::of(view, door.engine().constraints().relabelling());
    let text = serde_json::to_vec(&shown).expect("texts, numbers and maps are JSON");
    wanted.answer(status, from_json(&text).map_err(malformed)?).await
}
