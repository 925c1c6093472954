//! Limits on the jobs a matcher matches, whichever door they came through.

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use spindle_engine::{ConstraintView, Expected};
use spindle_http::{Answered, Code, ConstraintBody, ConstraintShown, Problem, ProblemBody};

use crate::body::{Body, Wanted, malformed};
use crate::door::LightJq;
use crate::wire::{from_json, to_json};

/// What the engine takes as a name.
const NAME_BYTES_MAX: usize = 255;

/// The constraint a path names.
pub(crate) struct NamePath(pub String);

impl FromRequestParts<LightJq> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        let segment = parts.uri.path().strip_prefix("/constraint/").unwrap_or_default();
        let name = percent_decode_str(segment).decode_utf8().ok();
        let name = name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
        name.map(|name| NamePath(name.into_owned())).ok_or_else(|| {
            let detail = "a constraint's name is UTF-8 of 1 to 255 bytes";
            Problem::new(Code::OutOfRange, detail)
        })
    }
}

fn no_constraint() -> Problem {
    Problem::new(Code::ConstraintNotFound, "there is no such constraint")
}

/// Put a constraint, new or changed. Jobs that are there already are matched one after the other.
#[utoipa::path(put, path = "/constraint/{name}", operation_id = "put_constraint",
    tag = "constraints",
    request_body(content((ConstraintBody = "application/msgpack"),
        (ConstraintBody = "application/json"))),
    params(("name" = String, Path, description = "What people call it, 1 to 255 bytes",
        min_length = 1, max_length = 255)),
    responses(
        (status = 201, description = "It is new",
            content((ConstraintShown = "application/msgpack"),
                (ConstraintShown = "application/json"))),
        (status = 200, description = "It was there, and is so now",
            content((ConstraintShown = "application/msgpack"),
                (ConstraintShown = "application/json"))),
        (status = "4XX", description = "Refused",
            content((ProblemBody = "application/msgpack"),
                (ProblemBody = "application/problem+json")))))]
pub(crate) async fn put(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
    wanted: Wanted,
    Body(body): Body,
) -> Answered<Response> {
    let told = to_json(&body).map_err(malformed)?;
    if !matches!(told, Value::Object(_)) {
        return Err(Problem::new(Code::BadField, "the body must be a map"));
    }
    let spec = serde_json::from_value::<ConstraintBody>(told)
        .map_err(|error| Problem::new(Code::BadField, error.to_string()))?
        .into_spec()?;
    let put = door.desk().call(|engine| engine.put_constraint(&name, &spec, Expected::Any));
    let put = put.await?;
    let (view, gate) = door.engine().constraint(&name);
    door.desk().durable(put.gate.max(gate)).await;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    // It may have been removed again since.
    shown(&door, &wanted, status, &view.ok_or_else(no_constraint)?)
}

/// A constraint as it stands.
#[utoipa::path(get, path = "/constraint/{name}", operation_id = "show_constraint",
    tag = "constraints",
    params(("name" = String, Path, description = "Which", min_length = 1, max_length = 255)),
    responses(
        (status = 200, description = "The constraint",
            content((ConstraintShown = "application/msgpack"),
                (ConstraintShown = "application/json"))),
        (status = "4XX", description = "There is no such constraint",
            content((ProblemBody = "application/msgpack"),
                (ProblemBody = "application/problem+json")))))]
pub(crate) async fn show(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
    wanted: Wanted,
) -> Answered<Response> {
    let (view, gate) = door.engine().constraint(&name);
    door.desk().durable(gate).await;
    shown(&door, &wanted, StatusCode::OK, &view.ok_or_else(no_constraint)?)
}

/// Remove a constraint. Jobs it held back start.
#[utoipa::path(delete, path = "/constraint/{name}", operation_id = "remove_constraint",
    tag = "constraints",
    params(("name" = String, Path, description = "Which", min_length = 1, max_length = 255)),
    responses(
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "There is no such constraint",
            content((ProblemBody = "application/msgpack"),
                (ProblemBody = "application/problem+json")))))]
pub(crate) async fn remove(
    State(door): State<LightJq>,
    NamePath(name): NamePath,
) -> Answered<StatusCode> {
    door.desk().change(|engine| engine.remove_constraint(&name, Expected::Any)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(
    door: &LightJq,
    wanted: &Wanted,
    status: StatusCode,
    view: &ConstraintView,
) -> Answered<Response> {
    let shown = ConstraintShown::of(view, door.engine().relabelling());
    let text = serde_json::to_vec(&shown).expect("texts, numbers and maps are JSON");
    wanted.answer(status, from_json(&text).map_err(malformed)?)
}
