//! Payloads and results: bytes with a type, shown as JSON where they are JSON.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use spindle_core::Type;
use utoipa::ToSchema;

use crate::naming::{from_base64, to_base64};
use spindle_http::{Answered, Problem, work_on_bytes};

/// What bytes are. Set by who wrote them, never guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Opaque bytes.
    Bytes,
    /// UTF-8 JSON.
    Json,
    /// MessagePack.
    Msgpack,
}

impl Kind {
    pub fn of(kind: i32) -> Kind {
        match Type::try_from(kind) {
            Ok(Type::Json) => Kind::Json,
            Ok(Type::Msgpack) => Kind::Msgpack,
            Ok(Type::Bytes) | Err(_) => Kind::Bytes,
        }
    }

    pub fn core(self) -> Type {
        match self {
            Kind::Bytes => Type::Bytes,
            Kind::Json => Type::Json,
            Kind::Msgpack => Type::Msgpack,
        }
    }
}

/// A value that is given, `null` included.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Reads the three fields of a body that carry bytes. If none is given, the bytes are empty.
pub(crate) fn read(
    name: &str,
    json: Option<Box<RawValue>>,
    base64: Option<&str>,
    kind: Option<Kind>,
) -> Answered<(Bytes, Type)> {
    let wrong = |detail: String| Err(Problem::bad_field(detail));
    match (json, base64) {
        (Some(_), Some(_)) => wrong(format!("give either {name} or {name}_base64, not both")),
        (Some(json), None) => match kind {
            None | Some(Kind::Json) => {
                let text: Box<str> = json.into();
                Ok((Bytes::from(text.into_string()), Type::Json))
            }
            Some(_) => wrong(format!("{name}_type goes with {name}_base64; {name} is json")),
        },
        (None, Some(text)) => {
            let bytes = from_base64(&format!("{name}_base64"), text)?;
            let kind = kind.unwrap_or(Kind::Bytes);
            if kind == Kind::Json && serde_json::from_slice::<&RawValue>(&bytes).is_err() {
                return wrong(format!("{name}_type is json, and {name}_base64 is not JSON"));
            }
            Ok((bytes, kind.core()))
        }
        (None, None) if kind.is_some() => wrong(format!("{name}_type without {name}_base64")),
        (None, None) => Ok((Bytes::new(), Type::Bytes)),
    }
}

/// As [`read`], off the serving threads if there is much to read.
pub(crate) async fn read_any(
    name: &'static str,
    json: Option<Box<RawValue>>,
    base64: Option<String>,
    kind: Option<Kind>,
) -> Answered<(Bytes, Type)> {
    let json_bytes = json.as_ref().map_or(0, |json| json.get().len());
    let bytes = json_bytes + base64.as_ref().map_or(0, String::len);
    work_on_bytes(bytes, move || read(name, json, base64.as_deref(), kind)).await
}

/// An answer as JSON, with so many bytes of payloads and results in it.
pub(crate) fn to_json(answer: &impl Serialize, bytes: usize) -> Bytes {
    // In base64 they are longer by a third.
    let mut text = Vec::with_capacity(bytes + bytes / 3 + 1024);
    serde_json::to_writer(&mut text, answer).expect("texts, numbers and JSON are JSON");
    Bytes::from(text)
}

/// An answer that is JSON.
pub(crate) fn json_answer(body: impl Into<Body>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body.into()).into_response()
}

/// Bytes for an answer: the JSON itself, or base64.
pub(crate) fn shown(bytes: &[u8], kind: Kind) -> (Option<Box<RawValue>>, Option<String>) {
    let json = (kind == Kind::Json)
        .then(|| std::str::from_utf8(bytes).ok())
        .flatten()
        .and_then(|text| RawValue::from_string(text.to_owned()).ok());
    match json {
        Some(json) => (Some(json), None),
        None => (None, Some(to_base64(bytes))),
    }
}
