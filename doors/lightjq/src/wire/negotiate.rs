//! Which of the two formats a body is in, and which an answer.

use spindle_http::preference;

/// How bodies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `application/msgpack`, the protocol's own.
    Msgpack,
    /// `application/json`, for clients that ask for it.
    Json,
}

/// The media types in use for MessagePack; answers use the first one.
const MSGPACK: [&str; 3] =
    ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"];
const JSON: [&str; 1] = ["application/json"];

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Msgpack => "application/msgpack",
            Format::Json => "application/json",
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Format::Msgpack => &MSGPACK,
            Format::Json => &JSON,
        }
    }

    fn of_essence(essence: &str) -> Option<Format> {
        let called =
            |format: &Format| format.names().iter().any(|name| essence.eq_ignore_ascii_case(name));
        [Format::Msgpack, Format::Json].into_iter().find(called)
    }
}

/// The format of a body by its Content-Type; a body that says nothing is MessagePack. None: neither
/// of the two.
pub fn body_format(content_type: Option<&str>) -> Option<Format> {
    let Some(value) = content_type else { return Some(Format::Msgpack) };
    Format::of_essence(value.split(';').next().unwrap_or_default().trim())
}

/// The format of an answer by Accept. Where that leaves both open it is the request's own, and
/// MessagePack where the request had no body. None: Accept takes neither.
pub fn answer_format(accept: Option<&str>, request: Option<Format>) -> Option<Format> {
    let usual = request.unwrap_or(Format::Msgpack);
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
        return Some(usual);
    };
    let other = if usual == Format::Json { Format::Msgpack } else { Format::Json };
    let weight = |format: Format| preference(accept, format.names(), None).weight;
    let (best, second) = (weight(usual), weight(other));
    match (best, second) {
        (0, 0) => None,
        _ if second > best => Some(other),
        _ => Some(usual),
    }
}
