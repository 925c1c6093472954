//! MessagePack and JSON, one into the other.
//!
//! | MessagePack | JSON |
//! |---|---|
//! | nil, booleans, integers, texts, arrays, maps | the same |
//! | a float that is no number or infinite | null |
//! | a text that is no UTF-8 | the same with U+FFFD for what is none |
//! | bin | a text in base64 |
//! | ext | an object: `ext_type` and, in base64, `data` |
//! | a key that is no text | the key's JSON as a text |
//! | a key that is an array, a map or an ext | its MessagePack as a text in base64 |
//!
//! Of equal keys the last one holds. The JSON of a key with keys of its own would double with each level:
//! a few bytes of MessagePack could come to more than any memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value, json};

use crate::error::WireError;
use crate::pack::Pack;
use crate::scan::{Head, check, read_head, value_len};

/// The JSON text as MessagePack. Integers stay what they are up to 64 bits.
pub fn from_json(text: &[u8]) -> Result<Vec<u8>, WireError> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| WireError::BadJson(error.to_string()))?;
    let mut pack = Pack::new();
    put(&mut pack, &value);
    Ok(pack.into_bytes())
}

/// Recurses no deeper than JSON's reader has read.
fn put(pack: &mut Pack, value: &Value) {
    match value {
        Value::Null => pack.nil(),
        Value::Bool(value) => pack.bool(*value),
        Value::Number(number) => put_number(pack, number),
        Value::String(text) => pack.text(text),
        Value::Array(values) => {
            pack.array(count(values.len()));
            values.iter().for_each(|value| put(pack, value));
            pack
        }
        Value::Object(members) => {
            pack.map(count(members.len()));
            for (key, value) in members {
                pack.text(key);
                put(pack, value);
            }
            pack
        }
    };
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a body has less than 4 GiB")
}

fn put_number<'a>(pack: &'a mut Pack, number: &Number) -> &'a mut Pack {
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(value), _, _) => pack.uint(value),
        (_, Some(value), _) => pack.int(value),
        (_, _, Some(value)) => pack.float(value),
        _ => pack.nil(),
    }
}

/// The MessagePack as JSON, by the table above.
pub fn to_json(bytes: &[u8]) -> Result<Value, WireError> {
    // That it nests no deeper than it may is known before anything recurses.
    check(bytes)?;
    take(bytes).map(|(value, _)| value)
}

/// The MessagePack as a JSON text.
pub fn to_json_text(bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let value = to_json(bytes)?;
    Ok(serde_json::to_vec(&value).expect("a value of texts, numbers and maps is JSON"))
}

fn take(bytes: &[u8]) -> Result<(Value, &[u8]), WireError> {
    let (head, mut rest) = read_head(bytes)?;
    let value = match head {
        Head::Nil => Value::Null,
        Head::Bool(value) => Value::Bool(value),
        Head::Int(value) => Number::from_i128(value).map_or(Value::Null, Value::Number),
        Head::Float(value) => Number::from_f64(value).map_or(Value::Null, Value::Number),
        Head::Text(text) => Value::String(String::from_utf8_lossy(text).into_owned()),
        Head::Bin(bytes) => Value::String(STANDARD.encode(bytes)),
        Head::Ext(kind, data) => json!({ "ext_type": kind, "data": STANDARD.encode(data) }),
        Head::Array(count) => {
            let mut values = Vec::new();
            for _ in 0..count {
                let (value, behind) = take(rest)?;
                rest = behind;
                values.push(value);
            }
            Value::Array(values)
        }
        Head::Map(count) => {
            let mut members = Map::new();
            for _ in 0..count {
                let (key, behind) = take_key(rest)?;
                let (value, behind) = take(behind)?;
                rest = behind;
                members.insert(key, value);
            }
            Value::Object(members)
        }
    };
    Ok((value, rest))
}

/// A key of a map as a text.
fn take_key(bytes: &[u8]) -> Result<(String, &[u8]), WireError> {
    if let (Head::Array(_) | Head::Map(_) | Head::Ext(..), _) = read_head(bytes)? {
        let (key, behind) = bytes.split_at(value_len(bytes)?);
        return Ok((STANDARD.encode(key), behind));
    }
    let (key, behind) = take(bytes)?;
    let key = match key {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok((key, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEPTH_MAX;

    #[test]
    fn keys_are_texts_whatever_they_were() {
        let key_of = |key: &[u8]| {
            let bytes = [&[0x81], key, &[0xc0]].concat();
            let json = to_json(&bytes).unwrap();
            json.as_object().unwrap().keys().next().cloned().unwrap()
        };
        for (key, text) in [
            (&b"\xa1k"[..], "k"),
            (b"\x07", "7"),
            (b"\xc0", "null"),
            (b"\xc3", "true"),
            (b"\xc4\x02\xff\xfe", "//4="),
            (b"\x92\x01\x02", "kgEC"),
            (b"\x81\xa1k\x01", "gaFrAQ=="),
            (b"\xd4\x05\x09", "1AUJ"),
        ] {
            assert_eq!(key_of(key), text, "{key:x?}");
        }
    }

    #[test]
    fn keys_that_have_keys_that_have_keys_come_to_no_more_than_their_bytes() {
        // A map whose only key is such a map, and so on, as deep as values may nest.
        let nested = |depth: usize| [vec![0x81; depth], vec![0x01; depth + 1]].concat();
        let bytes = nested(DEPTH_MAX);
        let text = to_json_text(&bytes).unwrap();
        assert!(text.len() < 2 * bytes.len(), "{} of {}", text.len(), bytes.len());
        assert_eq!(to_json(&nested(DEPTH_MAX + 1)), Err(WireError::TooDeep));
    }
}
