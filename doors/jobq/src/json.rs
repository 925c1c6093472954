//! JSON as text: this door keeps JSON as clients wrote it, and compares it by its meaning.

use serde_json::Value;
use serde_json::value::RawValue;

/// Deeper values are refused: SQLite reads JSON a thousand levels deep, and one job that cannot be
/// read would spoil every query that looks at it.
const DEPTH_MAX: usize = 128;

/// Why bytes are not JSON that this door accepts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// They are no JSON at all.
    #[error("the body is not JSON: {0}")]
    Malformed(String),
    /// They nest too deep.
    #[error("the JSON is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// The one JSON value a body holds, as it was written.
pub fn read(body: &[u8]) -> Result<&RawValue, JsonError> {
    let malformed = |error: &dyn std::fmt::Display| JsonError::Malformed(error.to_string());
    let text = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    let value: &RawValue = serde_json::from_str(text).map_err(|error| malformed(&error))?;
    if depth(value.get()) > DEPTH_MAX {
        return Err(JsonError::TooDeep);
    }
    Ok(value)
}

/// How deep a JSON text nests.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

/// A JSON text with exactly one space behind each comma and colon, and no other: the form queries
/// see, so that equal texts can be compared. Clients of the original server know this form.
pub fn spaced(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut escaped = false;
    for letter in text.chars() {
        if in_string {
            out.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            ' ' | '\t' | '\n' | '\r' => {}
            ',' | ':' => {
                out.push(letter);
                out.push(' ');
            }
            _ => {
                in_string = letter == '"';
                out.push(letter);
            }
        }
    }
    out
}

/// Whether two JSON texts mean the same: the order of keys, white space, and how a number or a
/// string is written do not count.
pub fn is_same(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (serde_json::from_str::<Value>(one), serde_json::from_str::<Value>(other)) {
        (Ok(one), Ok(other)) => same_values(&one, &other),
        _ => false,
    }
}

fn same_values(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.is_f64() != other.is_f64() && one.as_f64() == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same_values(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, a)| other.get(key).is_some_and(|b| same_values(a, b)))
        }
        _ => one == other,
    }
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaced_text_changes_white_space_outside_of_strings_only() {
        let text = "{ \"a b\":[1,\n2 ,{}] , \"c\":\"x,\\\":y\\\\\" ,\"d\":null}";
        let same = "{\"a b\": [1, 2, {}], \"c\": \"x,\\\":y\\\\\", \"d\": null}";
        assert_eq!(spaced(text), same);
        assert_eq!(spaced(same), same);
    }

    #[test]
    fn sameness_is_of_meaning() {
        for (one, other) in [
            ("{\"a\":1,\"b\":[2]}", "{ \"b\": [2.0], \"a\": 1 }"),
            ("\"\\u0041\"", "\"A\""),
            ("null", " null"),
        ] {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [("1", "\"1\""), ("[]", "{}"), ("{\"a\":1}", "{\"a\":1,\"b\":null}")] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn bodies_are_one_value_and_not_too_deep() {
        assert_eq!(read(b" [1] ").map(|value| value.get().to_owned()), Ok("[1]".to_owned()));
        assert!(matches!(read(b""), Err(JsonError::Malformed(_))));
        assert!(matches!(read(b"1 2"), Err(JsonError::Malformed(_))));
        assert!(matches!(read(b"\"\xff\""), Err(JsonError::Malformed(_))));
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(nested(128).as_bytes()).is_ok());
        assert_eq!(read(nested(129).as_bytes()).err(), Some(JsonError::TooDeep));
        assert_eq!(read(nested(100_000).as_bytes()).err(), Some(JsonError::TooDeep));
        assert!(read(b"\"[[[[\\\"[[\"").is_ok());
    }
}
