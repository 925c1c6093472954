//! Values of fields: how they compare with those of a matcher, and what distinguishes them.

use std::borrow::Cow;
use std::cmp::Ordering;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use spindle_core::job::Label;
use spindle_core::queue::FAIR_KEY_BYTES_MAX;

use crate::spec::{Scalar, Test};

/// What was found at a place in a payload.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) enum Field<'a> {
    /// Nothing is there.
    #[default]
    Absent,
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Cow<'a, str>),
    Bin(&'a [u8]),
    /// MessagePack's own types.
    Ext,
    Array,
    Object,
}

impl Field<'_> {
    pub fn passes(&self, test: &Test) -> bool {
        if matches!(self, Field::Absent) {
            return *test == Test::Absent;
        }
        match test {
            Test::Eq(value) => self.is(value),
            Test::Ne(value) => !self.is(value),
            Test::Lt(value) => self.order(value) == Some(Ordering::Less),
            Test::Le(value) => self.order(value).is_some_and(Ordering::is_le),
            Test::Gt(value) => self.order(value) == Some(Ordering::Greater),
            Test::Ge(value) => self.order(value).is_some_and(Ordering::is_ge),
            Test::In(values) => values.iter().any(|value| self.is(value)),
            Test::Glob(pattern) => match self {
                Field::Text(text) => spindle_core::glob::fits(pattern.as_bytes(), text.as_bytes()),
                _ => false,
            },
            Test::Exists => true,
            Test::Absent => false,
        }
    }

    fn is(&self, value: &Scalar) -> bool {
        match (self, value) {
            (Field::Null, Scalar::Null) => true,
            (Field::Bool(a), Scalar::Bool(b)) => a == b,
            (Field::Bin(a), Scalar::Bin(b)) => *a == b.as_ref(),
            _ => self.order(value) == Some(Ordering::Equal),
        }
    }

    /// Numbers and texts have an order.
    fn order(&self, value: &Scalar) -> Option<Ordering> {
        if let (Field::Text(a), Scalar::Text(b)) = (self, value) {
            return Some(a.as_ref().cmp(b.as_str()));
        }
        let own = match self {
            Field::Int(number) => Number::Int(*number),
            Field::Float(number) => Number::Float(*number),
            _ => return None,
        };
        let other = match value {
            Scalar::Int(number) => Number::Int(i128::from(*number)),
            Scalar::Uint(number) => Number::Int(i128::from(*number)),
            Scalar::Float(number) => Number::Float(*number),
            _ => return None,
        };
        own.order(other)
    }

    /// The key of a job for fair shares: a text as it stands, a number in digits, `true` or `false`,
    /// binary data in hexadecimal digits; cut to the length of the longest key. No other value is a
    /// key.
    pub fn fair_key(&self) -> Option<Bytes> {
        let text = match self {
            Field::Text(text) => Cow::Borrowed(text.as_ref()),
            Field::Bool(value) => value.to_string().into(),
            Field::Int(number) => number.to_string().into(),
            Field::Float(number) => match whole(*number) {
                Some(number) => number.to_string().into(),
                None => number.to_string().into(),
            },
            Field::Bin(bytes) => {
                let bytes = &bytes[..bytes.len().min(FAIR_KEY_BYTES_MAX / 2)];
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
            }
            Field::Absent | Field::Null | Field::Ext | Field::Array | Field::Object => return None,
        };
        let kept = &text[..text.floor_char_boundary(FAIR_KEY_BYTES_MAX)];
        (!kept.is_empty()).then(|| Bytes::copy_from_slice(kept.as_bytes()))
    }

    /// What distinguishes values under `per`: 64 bits that stay the same for ever, since levels of
    /// buckets are kept by them. They come from a cryptographic hash, so that nobody can make up a
    /// value that shares another's limit. All objects count as one value, and so do all arrays.
    pub fn label_value(&self) -> u64 {
        let mut hash = Sha256::new();
        match self {
            Field::Absent => hash.update(b"-"),
            Field::Null => hash.update(b"n"),
            Field::Bool(value) => hash.update([b'b', u8::from(*value)]),
            Field::Int(number) => hash.update(format!("i{number}")),
            Field::Float(number) => match whole(*number) {
                Some(number) => hash.update(format!("i{number}")),
                None if number.is_nan() => hash.update(b"f-"),
                None => hash.update(format!("f{:x}", number.to_bits())),
            },
            Field::Text(text) => {
                hash.update(b"t");
                hash.update(text.as_bytes());
            }
            Field::Bin(bytes) => {
                hash.update(b"y");
                hash.update(bytes);
            }
            Field::Ext => hash.update(b"x"),
            Field::Array => hash.update(b"a"),
            Field::Object => hash.update(b"o"),
        }
        value_of(hash)
    }
}

/// What distinguishes keys: the same number as for a field with the same text. Jobs without a key
/// count like those without the field.
pub(super) fn key_value(key: &[u8]) -> u64 {
    if key.is_empty() {
        return Field::Absent.label_value();
    }
    let mut hash = Sha256::new();
    hash.update(b"t");
    hash.update(key);
    value_of(hash)
}

fn value_of(hash: Sha256) -> u64 {
    let digest: [u8; 32] = hash.finalize().into();
    let (first, _) = digest.split_first_chunk().expect("32 bytes begin with 8");
    // 0 is for constraints without `per`, and the highest for values that have no room.
    u64::from_be_bytes(*first).clamp(1, Label::OVERFLOW - 1)
}

#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// Exact: no whole number is rounded to be compared.
    fn order(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
            (Number::Int(a), Number::Float(b)) => int_to_float(a, b),
            (Number::Float(a), Number::Int(b)) => int_to_float(b, a).map(Ordering::reverse),
        }
    }
}

fn int_to_float(a: i128, b: f64) -> Option<Ordering> {
    const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if b.is_nan() {
        return None;
    }
    if b >= END {
        return Some(Ordering::Less);
    }
    if b < -END {
        return Some(Ordering::Greater);
    }
    let fraction = b.fract().partial_cmp(&0.0)?;
    Some(a.cmp(&(b.trunc() as i128)).then(fraction.reverse()))
}

/// The whole number a fraction is, if it is one.
fn whole(number: f64) -> Option<i128> {
    const EXACT: f64 = 1e30;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_exactly_whatever_their_form() {
        let passes = |field: Field<'_>, test| field.passes(&test);
        let big = 9_007_199_254_740_993_i64; // 2^53 + 1, which no fraction is
        assert!(passes(Field::Int(1), Test::Eq(Scalar::Float(1.0))));
        assert!(passes(Field::Float(1.0), Test::Eq(Scalar::Uint(1))));
        assert!(!passes(Field::Int(i128::from(big)), Test::Eq(Scalar::Float(big as f64))));
        assert!(passes(Field::Int(i128::from(big)), Test::Gt(Scalar::Float(big as f64))));
        assert!(passes(Field::Float(-0.5), Test::Lt(Scalar::Int(0))));
        assert!(passes(Field::Float(-0.5), Test::Gt(Scalar::Int(-1))));
        assert!(passes(Field::Int(3), Test::Lt(Scalar::Float(f64::INFINITY))));
        assert!(passes(Field::Int(3), Test::Ge(Scalar::Float(f64::NEG_INFINITY))));
        assert!(!passes(Field::Float(f64::NAN), Test::Le(Scalar::Int(0))));
        assert!(passes(Field::Int(u64::MAX.into()), Test::Eq(Scalar::Uint(u64::MAX))));
    }

    #[test]
    fn kinds_are_told_apart_and_only_absent_needs_no_field() {
        let text = || Field::Text("1".into());
        assert!(!text().passes(&Test::Eq(Scalar::Int(1))));
        assert!(text().passes(&Test::Ne(Scalar::Int(1))));
        assert!(!text().passes(&Test::Lt(Scalar::Int(5))));
        assert!(text().passes(&Test::Lt(Scalar::Text("2".to_owned()))));
        assert!(!Field::Bin(b"1").passes(&Test::Eq(Scalar::Text("1".to_owned()))));
        for test in [Test::Ne(Scalar::Null), Test::Exists, Test::Glob("*".to_owned())] {
            assert!(!Field::Absent.passes(&test), "{test:?}");
        }
        assert!(Field::Absent.passes(&Test::Absent) && !Field::Null.passes(&Test::Absent));
        assert!(
            Field::Object.passes(&Test::Exists) && !Field::Object.passes(&Test::Eq(Scalar::Null))
        );
    }

    #[test]
    fn texts_and_numbers_are_keys_and_nothing_else_is() {
        let key = |field: Field<'_>| field.fair_key();
        let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(key(Field::Text("alice".into())), text("alice"));
        assert_eq!(key(Field::Int(-7)), text("-7"));
        assert_eq!(key(Field::Float(7.0)), text("7"));
        assert_eq!(key(Field::Float(0.5)), text("0.5"));
        assert_eq!(key(Field::Bool(true)), text("true"));
        assert_eq!(key(Field::Bin(b"\x00\xfe")), text("00fe"));
        let long = "\u{e9}x".repeat(100);
        assert_eq!(key(Field::Text(long.as_str().into())), text(&long[..255]));
        assert_eq!(key(Field::Bin(&[7; 300])).map(|key| key.len()), Some(256));
        for none in [Field::Absent, Field::Null, Field::Array, Field::Object, Field::Ext] {
            assert_eq!(key(none.clone()), None, "{none:?}");
        }
        assert_eq!(key(Field::Text("".into())), None);
    }

    #[test]
    fn values_keep_their_labels_for_ever() {
        // Levels of buckets are in logs under these numbers.
        let text = Field::Text("alice".into()).label_value();
        assert_eq!(text, Field::Text("alice".into()).label_value());
        assert_eq!(text, first_eight(b"talice"));
        assert_eq!(Field::Int(7).label_value(), first_eight(b"i7"));
        assert_eq!(Field::Float(7.0).label_value(), Field::Int(7).label_value());
        assert_eq!(Field::Float(-0.0).label_value(), Field::Int(0).label_value());
        assert_ne!(Field::Text("7".into()).label_value(), Field::Int(7).label_value());
        assert_ne!(Field::Absent.label_value(), Field::Null.label_value());
    }

    fn first_eight(bytes: &[u8]) -> u64 {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
    }
}
