//! Fields of MessagePack. The reader is total: any bytes are either a value or not one, and what no
//! pointer leads to is skipped without recursion.

use std::borrow::Cow;

use crate::fields::{Found, Paths};
use crate::value::Field;

/// Finds the fields of a MessagePack value; none of them in what is not exactly one value.
pub(super) fn find<'p, 'a>(paths: &'p Paths, payload: &'a [u8]) -> Found<'p, 'a> {
    let mut found = Found::nothing(paths);
    let mut reader = Reader { rest: payload };
    let walked = reader.walk(&mut found, Paths::ROOT);
    if walked.is_some() && reader.rest.is_empty() { found } else { Found::nothing(paths) }
}

struct Reader<'a> {
    rest: &'a [u8],
}

/// A value, or the beginning of one that has others in it.
enum Head<'a> {
    Scalar(Field<'a>),
    Array(u64),
    Map(u64),
}

impl<'a> Reader<'a> {
    fn walk(&mut self, found: &mut Found<'_, 'a>, node: usize) -> Option<()> {
        match self.head()? {
            Head::Scalar(field) => found.set(node, field),
            Head::Array(count) => {
                found.set(node, Field::Array);
                for index in 0..count {
                    match found.paths.element(node, index) {
                        Some(child) => self.walk(found, child)?,
                        None => self.skip(1)?,
                    }
                }
            }
            Head::Map(count) => {
                found.set(node, Field::Object);
                for _ in 0..count {
                    match self.key(found.paths, node)? {
                        Some(child) => {
                            found.forget(child);
                            self.walk(found, child)?;
                        }
                        None => self.skip(1)?,
                    }
                }
            }
        }
        Some(())
    }

    /// A key of a map, and which child it is. Keys that are not text are none.
    fn key(&mut self, paths: &Paths, node: usize) -> Option<Option<usize>> {
        match self.head()? {
            Head::Scalar(Field::Text(name)) => Some(paths.member(node, &name)),
            Head::Scalar(_) => Some(None),
            Head::Array(count) => self.skip(count).map(|()| None),
            Head::Map(count) => self.skip(count * 2).map(|()| None),
        }
    }

    /// Passes over so many values. Each takes at least a byte, so the loop ends with the payload.
    fn skip(&mut self, values: u64) -> Option<()> {
        let mut left = values;
        while left > 0 {
            left -= 1;
            match self.head()? {
                Head::Scalar(_) => {}
                Head::Array(count) => left = left.saturating_add(count),
                Head::Map(count) => left = left.saturating_add(count * 2),
            }
        }
        Some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// A big-endian number of so many bytes, at most eight.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let taken = self.take(bytes)?;
        Some(taken.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Option<usize> {
        usize::try_from(self.number(bytes)?).ok()
    }

    fn head(&mut self) -> Option<Head<'a>> {
        let first = self.number(1)?;
        let scalar = match first {
            0x00..=0x7f => Field::Int(first.into()),
            0x80..=0x8f => return Some(Head::Map(first & 0x0f)),
            0x90..=0x9f => return Some(Head::Array(first & 0x0f)),
            0xa0..=0xbf => text(self.take((first & 0x1f) as usize)?),
            0xc0 => Field::Null,
            0xc2 | 0xc3 => Field::Bool(first == 0xc3),
            0xc4..=0xc6 => {
                let len = self.length(1 << (first - 0xc4))?;
                Field::Bin(self.take(len)?)
            }
            0xc7..=0xc9 => {
                let len = self.length(1 << (first - 0xc7))?;
                self.take(len.checked_add(1)?)?;
                Field::Ext
            }
            0xca => Field::Float(f32::from_bits(self.number(4)? as u32).into()),
            0xcb => Field::Float(f64::from_bits(self.number(8)?)),
            0xcc..=0xcf => Field::Int(self.number(1 << (first - 0xcc))?.into()),
            0xd0..=0xd3 => {
                let bytes = 1 << (first - 0xd0);
                let unused = 64 - 8 * bytes as u32;
                Field::Int((((self.number(bytes)? << unused) as i64) >> unused).into())
            }
            0xd4..=0xd8 => {
                self.take(1 + (1 << (first - 0xd4)))?;
                Field::Ext
            }
            0xd9..=0xdb => {
                let len = self.length(1 << (first - 0xd9))?;
                text(self.take(len)?)
            }
            0xdc | 0xdd => return Some(Head::Array(self.number(2 << (first - 0xdc))?)),
            0xde | 0xdf => return Some(Head::Map(self.number(2 << (first - 0xde))?)),
            0xe0..=0xff => Field::Int(i128::from(first) - 0x100),
            _ => return None,
        };
        Some(Head::Scalar(scalar))
    }
}

/// Text that is no UTF-8 is bytes.
fn text(bytes: &[u8]) -> Field<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Field::Text(Cow::Borrowed(text)),
        Err(_) => Field::Bin(bytes),
    }
}
