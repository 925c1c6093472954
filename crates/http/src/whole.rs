//! Integers of JSON bodies.
//!
//! JSON knows numbers only: to it, and to what checks values against a schema, `60000` and
//! `60000.0` are the same integer, and languages that have one type of numbers write either.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// An integer type that fields have.
pub trait Integer: TryFrom<i128> {
    /// What it holds, for people.
    const WANTED: &'static str;
}

impl Integer for u64 {
    const WANTED: &'static str = "an integer, 0 or above, of 64 bits";
}

impl Integer for u32 {
    const WANTED: &'static str = "an integer, 0 or above, of 32 bits";
}

impl Integer for i64 {
    const WANTED: &'static str = "an integer of 64 bits";
}

/// Reads an integer, however it is written: `#[serde(deserialize_with = "whole")]`.
pub fn whole<'de, D: Deserializer<'de>, T: Integer>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Digits(PhantomData))
}

/// The same, or null, which is none.
pub fn whole_or_null<'de, D: Deserializer<'de>, T: Integer>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Whole<T>>::deserialize(deserializer)?.map(|whole| whole.0))
}

/// Whole numbers by name.
pub fn whole_values<'de, D: Deserializer<'de>, T: Integer>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let values = BTreeMap::<String, Whole<T>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, Whole(number))| (name, number)).collect())
}

struct Whole<T>(T);

impl<'de, T: Integer> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole(deserializer).map(Whole)
    }
}

struct Digits<T>(PhantomData<T>);

impl<T: Integer> Visitor<'_> for Digits<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::WANTED)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        let wrong = |_| E::invalid_value(Unexpected::Unsigned(value), &T::WANTED);
        T::try_from(i128::from(value)).map_err(wrong)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(value), &T::WANTED);
        T::try_from(i128::from(value)).map_err(wrong)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        // A number just below all integers of 64 bits is read as a float, which rounds to the least of them.
        let is_whole = value.fract() == 0.0 && value > i64::MIN as f64;
        // Beyond what the integer holds the conversion saturates, which is still beyond.
        let read = is_whole.then(|| T::try_from(value as i128).ok()).flatten();
        read.ok_or_else(|| E::invalid_value(Unexpected::Float(value), &T::WANTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "whole")]
        count: i64,
        #[serde(default, deserialize_with = "whole_or_null")]
        time_ms: Option<u64>,
    }

    fn read(text: &str) -> Result<Body, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_integer_is_one_however_it_is_written() {
        for text in [r#"{"count": -3, "time_ms": 60000}"#, r#"{"count": -3.0, "time_ms": 6e4}"#] {
            let body = read(text).unwrap();
            assert_eq!((body.count, body.time_ms), (-3, Some(60_000)), "{text}");
        }
        assert_eq!(read(r#"{"time_ms": null}"#).unwrap().time_ms, None);
        assert_eq!(read(r#"{"time_ms": 18446744073709551615}"#).unwrap().time_ms, Some(u64::MAX));
        assert_eq!(read("{}").unwrap().time_ms, None);
    }

    #[test]
    fn what_is_no_integer_of_its_size_is_refused() {
        for value in ["1.5", "-1", "-1.0", "18446744073709551616", "1e300", "\"1\"", "true", "[]"] {
            let error = read(&format!(r#"{{"time_ms": {value}}}"#)).unwrap_err();
            assert!(error.contains("an integer, 0 or above, of 64 bits"), "{value}: {error}");
        }
        for count in ["9223372036854775808", "-9223372036854775809", "-1e300"] {
            assert!(read(&format!(r#"{{"count": {count}}}"#)).is_err(), "{count}");
        }
        assert_eq!(read(r#"{"count": -9223372036854775808}"#).unwrap().count, i64::MIN);
        assert!(read(r#"{"count": null}"#).is_err());
    }
}
