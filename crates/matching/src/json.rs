//! Fields of JSON. Values that no pointer leads to are skipped without recursion, so only the depth
//! of the pointers costs stack.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::fields::{Found, Paths};
use crate::value::Field;

/// Finds the fields of a JSON text; none if the text is not JSON.
pub(super) fn find<'p, 'a>(paths: &'p Paths, payload: &'a [u8]) -> Found<'p, 'a> {
    let mut found = Found::nothing(paths);
    let mut json = serde_json::Deserializer::from_slice(payload);
    let walked = Walk { found: &mut found, node: Paths::ROOT }.deserialize(&mut json);
    match walked.and_then(|()| json.end()) {
        Ok(()) => found,
        Err(_) => Found::nothing(paths),
    }
}

/// Reads the value that stands at a node.
struct Walk<'f, 'p, 'a> {
    found: &'f mut Found<'p, 'a>,
    node: usize,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Walk<'_, '_, 'a> {
    fn is<E>(self, field: Field<'a>) -> Result<(), E> {
        self.found.set(self.node, field);
        Ok(())
    }
}

impl<'a> Visitor<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.is(Field::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.is(Field::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.is(Field::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.is(Field::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.is(Field::Float(value))
    }

    fn visit_borrowed_str<E>(self, value: &'a str) -> Result<(), E> {
        self.is(Field::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.is(Field::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let Walk { found, node } = self;
        found.set(node, Field::Array);
        let mut index = 0;
        loop {
            let more = match found.paths.element(node, index) {
                Some(node) => items.next_element_seed(Walk { found, node })?.is_some(),
                None => items.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let Walk { found, node } = self;
        found.set(node, Field::Object);
        while let Some(child) = members.next_key_seed(Key { paths: found.paths, node })? {
            match child {
                Some(node) => {
                    found.forget(node);
                    members.next_value_seed(Walk { found, node })?;
                }
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a member's name, and says which child it is.
struct Key<'p> {
    paths: &'p Paths,
    node: usize,
}

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.paths.member(self.node, name))
    }
}
