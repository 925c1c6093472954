//! MessagePack and JSON, one into the other.
//!
//! | MessagePack | JSON |
//! |---|---|
//! | nil, booleans, integers, texts, arrays, maps | the same |
//! | a float that is no number or infinite | null |
//! | a text that is no UTF-8 | the same with U+FFFD for what is none |
//! | bin | a text in base64 |
//! | ext | an object: `ext_type` and, in base64, `data` |
//! | a key that is no text | the key's JSON as a text; of equal keys the last one holds |
//! | a key that is an array, a map or an ext | its MessagePack as a text in base64 |
//!
//! The JSON of a key with keys of its own would double in size with each level: a few bytes of
//! MessagePack could exceed any memory.

use std::borrow::Cow;
use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

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
    let value = AsJson::of(bytes)?;
    Ok(serde_json::to_value(value).expect("a value of texts, numbers and maps is JSON"))
}

/// The MessagePack as a JSON text.
pub fn to_json_text(bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let value = AsJson::of(bytes)?;
    Ok(serde_json::to_vec(&value).expect("a value of texts, numbers and maps is JSON"))
}

/// One value in MessagePack that is serialized as JSON, by the table above. No tree is built for it,
/// because the JSON of small values takes much more memory than their bytes. So equal keys are all
/// written, in their order, and the reader takes the last.
#[derive(Clone, Debug)]
pub struct AsJson<T>(T);

impl<T: AsRef<[u8]>> AsJson<T> {
    /// The bytes as exactly one value, which nests no deeper than it may.
    pub fn of(bytes: T) -> Result<AsJson<T>, WireError> {
        check(bytes.as_ref())?;
        Ok(AsJson(bytes))
    }
}

impl<T: AsRef<[u8]>> Serialize for AsJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Rest(Cell::new(self.0.as_ref())).serialize(serializer)
    }
}

/// What is still to be read. Each value that is serialized is the next one, and is taken from here.
struct Rest<'a>(Cell<&'a [u8]>);

impl<'a> Rest<'a> {
    fn take(&self) -> Result<Head<'a>, WireError> {
        let (head, behind) = read_head(self.0.get())?;
        self.0.set(behind);
        Ok(head)
    }

    /// A key of a map as a text.
    fn take_key(&self) -> Result<Cow<'a, str>, WireError> {
        let bytes = self.0.get();
        Ok(match self.take()? {
            Head::Text(text) => String::from_utf8_lossy(text),
            Head::Bin(bytes) => Cow::Owned(STANDARD.encode(bytes)),
            Head::Nil => Cow::Borrowed("null"),
            Head::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
            Head::Int(value) => Cow::Owned(value.to_string()),
            Head::Float(value) => Cow::Owned(Value::from(value).to_string()),
            Head::Array(_) | Head::Map(_) | Head::Ext(..) => {
                let (key, behind) = bytes.split_at(value_len(bytes)?);
                self.0.set(behind);
                Cow::Owned(STANDARD.encode(key))
            }
        })
    }
}

impl Serialize for Rest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.take().map_err(S::Error::custom)? {
            Head::Nil => serializer.serialize_unit(),
            Head::Bool(value) => serializer.serialize_bool(value),
            // All but those from 2^63 on fit the first.
            Head::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => serializer.serialize_i64(value),
                (_, Ok(value)) => serializer.serialize_u64(value),
                _ => serializer.serialize_unit(),
            },
            // A float that is not a number is null in JSON.
            Head::Float(value) => serializer.serialize_f64(value),
            Head::Text(text) => serializer.serialize_str(&String::from_utf8_lossy(text)),
            Head::Bin(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
            Head::Ext(kind, data) => {
                let mut ext = serializer.serialize_map(Some(2))?;
                ext.serialize_entry("ext_type", &kind)?;
                ext.serialize_entry("data", &STANDARD.encode(data))?;
                ext.end()
            }
            Head::Array(count) => {
                let mut array = serializer.serialize_seq(None)?;
                for _ in 0..count {
                    array.serialize_element(self)?;
                }
                array.end()
            }
            Head::Map(count) => {
                let mut map = serializer.serialize_map(None)?;
                for _ in 0..count {
                    let key = self.take_key().map_err(S::Error::custom)?;
                    map.serialize_entry(&key, self)?;
                }
                map.end()
            }
        }
    }
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

    #[test]
    fn a_value_is_serialized_where_it_stands_each_time_anew() {
        let bytes = b"\x82\xa1a\x93\x80\x90\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa1b\xcb\x7f\xf8\0\0\0\0\0\0";
        let value = [AsJson::of(&bytes[..]).unwrap(), AsJson::of(&bytes[..]).unwrap()];
        let once = r#"{"a":[{},[],18446744073709551615],"b":null}"#;
        for _ in 0..2 {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(text, format!("[{once},{once}]"));
        }
        assert_eq!(AsJson::of(b"\x01\x02").unwrap_err(), WireError::Trailing(1));
    }
}
