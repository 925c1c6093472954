//! Which of the two formats a body is in, and which an answer.

/// How bodies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `application/msgpack`, the protocol's own.
    Msgpack,
    /// `application/json`, for those who ask.
    Json,
}

/// Names people have given MessagePack; the first one is what answers say.
const MSGPACK: [&str; 3] =
    ["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"];
const JSON: &str = "application/json";

impl Format {
    /// What stands in Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Msgpack => "application/msgpack",
            Format::Json => JSON,
        }
    }

    fn of_essence(essence: &str) -> Option<Format> {
        if essence.eq_ignore_ascii_case(JSON) {
            Some(Format::Json)
        } else if MSGPACK.iter().any(|name| essence.eq_ignore_ascii_case(name)) {
            Some(Format::Msgpack)
        } else {
            None
        }
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
    let (best, second) = (weight(accept, usual), weight(accept, other));
    match (best, second) {
        (0, 0) => None,
        _ if second > best => Some(other),
        _ => Some(usual),
    }
}

/// How much Accept wants a format, in thousandths. The most precise range that matches tells.
fn weight(accept: &str, format: Format) -> u32 {
    let mut found = (0, 0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        let precision = match essence {
            _ if Format::of_essence(essence) == Some(format) => 3,
            "application/*" => 2,
            "*/*" => 1,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
        if precision > found.0 {
            found = (precision, weight);
        }
    }
    found.1
}

/// `0.8` is 800. What is no weight is none.
fn thousandths(text: &str) -> u32 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse::<u32>()) {
        ("0" | "", Ok(part)) => part,
        ("1", Ok(_)) => 1000,
        _ => 0,
    }
}
