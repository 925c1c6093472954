//! Fields of MessagePack. The reader is total: any bytes are either a value or not one, and values
//! that no pointer leads to are skipped without recursion.

use std::borrow::Cow;

use spindle_msgpack::{Head, read_head};

use crate::fields::{Found, Paths};
use crate::value::Field;

/// Finds the fields of a MessagePack value; none if the bytes are not exactly one value.
pub(super) fn find<'p, 'a>(paths: &'p Paths, payload: &'a [u8]) -> Found<'p, 'a> {
    let mut found = Found::nothing(paths);
    let mut reader = Reader { rest: payload };
    let walked = reader.walk(&mut found, Paths::ROOT);
    if walked.is_some() && reader.rest.is_empty() { found } else { Found::nothing(paths) }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn walk(&mut self, found: &mut Found<'_, 'a>, node: usize) -> Option<()> {
        let head = self.head()?;
        found.set(node, field(head));
        match head {
            Head::Array(count) => {
                for index in 0..u64::from(count) {
                    match found.paths.element(node, index) {
                        Some(child) => self.walk(found, child)?,
                        None => self.skip(1)?,
                    }
                }
            }
            Head::Map(count) => {
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
            _ => {}
        }
        Some(())
    }

    /// A key of a map, and which child it is. Keys that are not text have no child.
    fn key(&mut self, paths: &Paths, node: usize) -> Option<Option<usize>> {
        let head = self.head()?;
        match field(head) {
            Field::Text(name) => Some(paths.member(node, &name)),
            _ => self.skip(head.members()).map(|()| None),
        }
    }

    /// Skips so many values. Each takes at least a byte, so the loop ends with the payload.
    fn skip(&mut self, values: u64) -> Option<()> {
        let mut left = values;
        while left > 0 {
            left = (left - 1).saturating_add(self.head()?.members());
        }
        Some(())
    }

    fn head(&mut self) -> Option<Head<'a>> {
        let (head, rest) = read_head(self.rest).ok()?;
        self.rest = rest;
        Some(head)
    }
}

fn field(head: Head<'_>) -> Field<'_> {
    match head {
        Head::Nil => Field::Null,
        Head::Bool(value) => Field::Bool(value),
        Head::Int(number) => Field::Int(number),
        Head::Float(number) => Field::Float(number),
        // Text that is not UTF-8 counts as bytes.
        Head::Text(bytes) => std::str::from_utf8(bytes)
            .map_or(Field::Bin(bytes), |text| Field::Text(Cow::Borrowed(text))),
        Head::Bin(bytes) => Field::Bin(bytes),
        Head::Ext(..) => Field::Ext,
        Head::Array(_) => Field::Array,
        Head::Map(_) => Field::Object,
    }
}
