//! Payloads and results: JSON values, or bytes and their type.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// The type of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    /// A JSON value.
    Json,
    /// Bytes.
    #[default]
    Bytes,
    /// MessagePack.
    Msgpack,
}

/// A payload or a result on its way.
#[derive(Debug, Clone)]
pub enum Content {
    /// A JSON value.
    Json(Box<RawValue>),
    /// Bytes, and their type.
    Bytes(Vec<u8>, ContentType),
}

impl Content {
    /// A value as JSON.
    ///
    /// # Errors
    /// The value has no JSON: a map whose keys are no texts, for example.
    pub fn json(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(Self::Json)
    }

    /// Content as it came: a value, or bytes in base64. If both are missing, it is no bytes.
    pub(crate) fn received(
        kind: ContentType,
        value: Option<Box<RawValue>>,
        coded: Option<&str>,
    ) -> Self {
        match value {
            Some(value) => Self::Json(value),
            None => Self::Bytes(
                BASE64_STANDARD.decode(coded.unwrap_or_default()).unwrap_or_default(),
                kind,
            ),
        }
    }

    /// Reads JSON; bytes, as clients of other doors submit them, as its text. No bytes at all are
    /// `null`.
    ///
    /// # Errors
    /// It is no JSON, or not that of such a value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self {
            Self::Json(value) => serde_json::from_str(value.get()),
            Self::Bytes(bytes, _) if bytes.is_empty() => serde_json::from_str("null"),
            Self::Bytes(bytes, _) => serde_json::from_slice(bytes),
        }
    }

    /// The bytes; those of JSON are its text.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Json(value) => value.get().as_bytes().to_vec(),
            Self::Bytes(bytes, _) => bytes,
        }
    }

    /// As the fields of a request.
    pub(crate) fn fields(&self) -> ContentFields<'_> {
        match self {
            Self::Json(value) => ContentFields { value: Some(value), ..ContentFields::default() },
            Self::Bytes(bytes, _) if bytes.is_empty() => ContentFields::default(),
            Self::Bytes(bytes, kind) => ContentFields {
                value: None,
                base64: Some(BASE64_STANDARD.encode(bytes)),
                kind: Some(*kind),
            },
        }
    }
}

/// Content as it stands in a request: at most one of the first two is there.
#[derive(Debug, Default)]
pub(crate) struct ContentFields<'a> {
    pub value: Option<&'a RawValue>,
    pub base64: Option<String>,
    pub kind: Option<ContentType>,
}
