//! The fields of a message: a map with texts for keys.

use crate::error::WireError;
use crate::scan::{Head, check, read_head, value_len};

/// A message taken apart: what the fields it may have are, as MessagePack. Others are passed over.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    known: Vec<(&'static str, &'a [u8])>,
}

impl<'a> Fields<'a> {
    /// Takes a body apart that is one map and nothing else.
    pub fn read(body: &'a [u8], names: &[&'static str]) -> Result<Fields<'a>, WireError> {
        check(body)?;
        let (Head::Map(count), mut rest) = read_head(body)? else {
            return Err(WireError::NotAMap("the body"));
        };
        let mut known: Vec<(&'static str, &'a [u8])> = Vec::new();
        for _ in 0..count {
            let (Head::Text(key), behind) = read_head(rest)? else {
                return Err(WireError::KeyNotText);
            };
            let key = std::str::from_utf8(key).map_err(|_| WireError::KeyNotText)?;
            let (value, behind) =
                behind.split_at_checked(value_len(behind)?).ok_or(WireError::Truncated)?;
            rest = behind;
            let Some(name) = names.iter().find(|name| **name == key) else { continue };
            if known.iter().any(|(other, _)| other == name) {
                return Err(WireError::Duplicate(name));
            }
            known.push((name, value));
        }
        Ok(Fields { known })
    }

    /// A field as it came, nil included.
    pub fn raw(&self, name: &'static str) -> Option<&'a [u8]> {
        self.known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// A field that is there: nil stands for one that is not.
    fn head(&self, name: &'static str) -> Result<Option<(Head<'a>, &'a [u8])>, WireError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let (head, rest) = read_head(value)?;
        Ok((head != Head::Nil).then_some((head, rest)))
    }

    /// A field that is a text.
    pub fn text(&self, name: &'static str) -> Result<Option<&'a str>, WireError> {
        let wrong = WireError::WrongType { field: name, wanted: "a string of UTF-8" };
        match self.head(name)? {
            None => Ok(None),
            Some((Head::Text(bytes), _)) => std::str::from_utf8(bytes).map(Some).map_err(|_| wrong),
            Some(_) => Err(wrong),
        }
    }

    /// A field that is an integer. JSON, and languages with one type of numbers, may write it
    /// with a fraction of zero.
    pub fn int(&self, name: &'static str) -> Result<Option<i128>, WireError> {
        // Beyond these a float stands for many integers.
        let sure = i64::MIN as f64 + 1.0..u64::MAX as f64;
        match self.head(name)? {
            None => Ok(None),
            Some((Head::Int(value), _)) => Ok(Some(value)),
            Some((Head::Float(value), _)) if value.fract() == 0.0 && sure.contains(&value) => {
                Ok(Some(value as i128))
            }
            Some(_) => Err(WireError::WrongType { field: name, wanted: "an integer" }),
        }
    }

    /// A field that is true or false.
    pub fn bool(&self, name: &'static str) -> Result<Option<bool>, WireError> {
        match self.head(name)? {
            None => Ok(None),
            Some((Head::Bool(value), _)) => Ok(Some(value)),
            Some(_) => Err(WireError::WrongType { field: name, wanted: "true or false" }),
        }
    }

    /// A field that is a map, as it came.
    pub fn map(&self, name: &'static str) -> Result<Option<&'a [u8]>, WireError> {
        match self.head(name)? {
            None => Ok(None),
            Some((Head::Map(_), _)) => Ok(self.raw(name)),
            Some(_) => Err(WireError::WrongType { field: name, wanted: "a map" }),
        }
    }

    /// A field that is a time in seconds, whole or not, in milliseconds: rounded up, so that a
    /// little time is not none.
    pub fn seconds_ms(&self, name: &'static str, max_ms: u64) -> Result<Option<u64>, WireError> {
        let out_of_range = WireError::OutOfRange {
            field: name,
            wanted: "a number of seconds above 0, at most 49 days",
        };
        let ms = match self.head(name)? {
            None => return Ok(None),
            Some((Head::Int(seconds), _)) => {
                u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000))
            }
            // What is no number at all is below nothing, and what is too large saturates.
            Some((Head::Float(seconds), _)) if seconds > 0.0 => {
                Some((seconds * 1000.0).ceil() as u64)
            }
            Some((Head::Float(_), _)) => None,
            Some(_) => {
                return Err(WireError::WrongType { field: name, wanted: "a number of seconds" });
            }
        };
        ms.filter(|ms| (1..=max_ms).contains(ms)).map(Some).ok_or(out_of_range)
    }

    /// A field that is a list of texts.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<&'a str>>, WireError> {
        let wrong = WireError::WrongType { field: name, wanted: "a list of strings of UTF-8" };
        let (count, mut rest) = match self.head(name)? {
            None => return Ok(None),
            Some((Head::Array(count), rest)) => (count, rest),
            Some(_) => return Err(wrong),
        };
        let mut texts = Vec::new();
        for _ in 0..count {
            let (Head::Text(text), behind) = read_head(rest)? else { return Err(wrong) };
            texts.push(std::str::from_utf8(text).map_err(|_| wrong.clone())?);
            rest = behind;
        }
        Ok(Some(texts))
    }
}
