//! The fields of a message: a map with texts for keys.

use crate::error::WireError;
use crate::scan::{Head, check, read_head, value_len};

/// A message taken apart: its known fields, each as MessagePack. Others are skipped.
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

    /// A field that is there, if `read` accepts it. Nil counts as an absent field.
    fn take<T>(
        &self,
        field: &'static str,
        wanted: &'static str,
        read: impl FnOnce(Head<'a>, &'a [u8]) -> Option<T>,
    ) -> Result<Option<T>, WireError> {
        let Some(value) = self.raw(field) else { return Ok(None) };
        match read_head(value)? {
            (Head::Nil, _) => Ok(None),
            (head, rest) => {
                read(head, rest).map(Some).ok_or(WireError::WrongType { field, wanted })
            }
        }
    }

    /// A field that is a text.
    pub fn text(&self, name: &'static str) -> Result<Option<&'a str>, WireError> {
        self.take(name, "a string of UTF-8", |head, _| text_of(head))
    }

    /// A field that is an integer. JSON, and languages with one type of numbers, may write it
    /// with a fraction of zero.
    pub fn int(&self, name: &'static str) -> Result<Option<i128>, WireError> {
        // Beyond this range a float can stand for many integers.
        let sure = i64::MIN as f64 + 1.0..u64::MAX as f64;
        self.take(name, "an integer", |head, _| match head {
            Head::Int(value) => Some(value),
            Head::Float(value) if value.fract() == 0.0 && sure.contains(&value) => {
                Some(value as i128)
            }
            _ => None,
        })
    }

    /// A field that is true or false.
    pub fn bool(&self, name: &'static str) -> Result<Option<bool>, WireError> {
        self.take(name, "true or false", |head, _| match head {
            Head::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// A field that is a map, as it came.
    pub fn map(&self, name: &'static str) -> Result<Option<&'a [u8]>, WireError> {
        let is_map = |head, _: &_| matches!(head, Head::Map(_)).then(|| self.raw(name)).flatten();
        self.take(name, "a map", is_map)
    }

    /// A field that is a time in seconds, whole or not, in milliseconds: rounded up, so that a very
    /// short time does not become zero.
    pub fn seconds_ms(&self, name: &'static str, max_ms: u64) -> Result<Option<u64>, WireError> {
        let ms = self.take(name, "a number of seconds", |head, _| match head {
            Head::Int(seconds) => {
                Some(u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000)))
            }
            // NaN counts as below zero, and too large a number saturates.
            Head::Float(seconds) => Some((seconds > 0.0).then(|| (seconds * 1000.0).ceil() as u64)),
            _ => None,
        })?;
        let Some(ms) = ms else { return Ok(None) };
        let wanted = "a number of seconds above 0, at most 49 days";
        let ms = ms.filter(|ms| (1..=max_ms).contains(ms));
        ms.map(Some).ok_or(WireError::OutOfRange { field: name, wanted })
    }

    /// A field that is a list of texts.
    pub fn texts(&self, name: &'static str) -> Result<Option<Vec<&'a str>>, WireError> {
        self.take(name, "a list of strings of UTF-8", |head, mut rest| {
            let Head::Array(count) = head else { return None };
            let mut texts = Vec::new();
            for _ in 0..count {
                let (head, behind) = read_head(rest).ok()?;
                texts.push(text_of(head)?);
                rest = behind;
            }
            Some(texts)
        })
    }
}

fn text_of(head: Head<'_>) -> Option<&str> {
    match head {
        Head::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
