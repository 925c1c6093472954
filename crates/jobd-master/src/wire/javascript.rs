//! The original is a JavaScript program, and its error texts show values the way JavaScript does.

use serde_json::Value;

/// The text JavaScript makes of a value when it joins it to a string.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => {
            integer_of(value).map_or_else(|| number.to_string(), |n| n.to_string())
        }
        Value::String(text) => text.clone(),
        Value::Array(items) => items
            .iter()
            .map(|item| if item.is_null() { String::new() } else { text_of(item) })
            .collect::<Vec<_>>()
            .join(","),
        Value::Object(_) => "[object Object]".to_owned(),
    }
}

/// What JavaScript's `typeof` says of a value.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => "object",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    }
}

/// The integer that a JSON value is for JavaScript, which knows no difference between 1 and 1.0.
pub(super) fn integer_of(value: &Value) -> Option<i64> {
    /// Where floats stop telling neighbouring integers apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits, checked above")]
    let integer = float as i64;
    Some(integer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_floats_are_integers_and_others_are_not() {
        assert_eq!(integer_of(&json!(1.0)), Some(1));
        assert_eq!(integer_of(&json!(-5)), Some(-5));
        assert_eq!(integer_of(&json!(1.5)), None);
        assert_eq!(integer_of(&json!(1e300)), None);
        assert_eq!(integer_of(&json!("1")), None);
    }

    #[test]
    fn values_read_as_javascript_joins_them_to_a_string() {
        assert_eq!(text_of(&json!({"a": 1})), "[object Object]");
        assert_eq!(text_of(&json!([1, null, ["x", 2.0]])), "1,,x,2");
        assert_eq!(text_of(&json!(null)), "null");
    }
}
