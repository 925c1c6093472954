//! Sizes and durations as people write them: `64MiB`, `10s`.

use std::{fmt, time::Duration};

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not begin with digits.
    #[error("it must begin with a whole number, such as {example}")]
    NoNumber { example: &'static str },
    /// A duration without a unit.
    #[error("it needs a unit: {units}")]
    NoUnit { units: &'static str },
    /// A unit that is none.
    #[error("`{unit}` is no unit, use {units}")]
    UnknownUnit { unit: String, units: &'static str },
    /// More than 64 bits hold.
    #[error("it is too large")]
    TooLarge,
    /// Outside of what the option takes.
    #[error("it must be {min} to {max}")]
    OutOfRange { min: Written, max: Written },
}

const SIZE_UNITS: &str = "KiB, MiB, GiB or nothing for bytes";
const DURATION_UNITS: &str = "ms, s, m, h or d";

/// Reads `1048576`, `64KiB`, `64MiB` or `2GiB` (a space may stand before the unit) as bytes.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split(text, "64MiB")?;
    let factor = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => {
            return Err(QuantityError::UnknownUnit { unit: unit.to_owned(), units: SIZE_UNITS });
        }
    };
    number.checked_mul(factor).ok_or(QuantityError::TooLarge)
}

/// Reads `500ms`, `10s`, `5m`, `2h` or `30d` as milliseconds. Zero needs no unit.
pub fn parse_duration_ms(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split(text, "10s")?;
    let factor = match unit {
        "" if number == 0 => 1,
        "" => return Err(QuantityError::NoUnit { units: DURATION_UNITS }),
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            return Err(QuantityError::UnknownUnit {
                unit: unit.to_owned(),
                units: DURATION_UNITS,
            });
        }
    };
    number.checked_mul(factor).ok_or(QuantityError::TooLarge)
}

/// Reads a duration.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    parse_duration_ms(text).map(Duration::from_millis)
}

/// Reads a duration from `min_ms` to a day, the longest that the Workq protocol takes.
pub fn parse_duration_to_a_day(text: &str, min_ms: u32) -> Result<u32, QuantityError> {
    let ms = parse_duration_ms(text)?;
    u32::try_from(ms).ok().filter(|ms| (min_ms..=DAY_MS).contains(ms)).ok_or(
        QuantityError::OutOfRange { min: Written(min_ms.into()), max: Written(DAY_MS.into()) },
    )
}

const DAY_MS: u32 = 86_400_000;

fn split<'a>(text: &'a str, example: &'static str) -> Result<(u64, &'a str), QuantityError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(QuantityError::NoNumber { example });
    }
    // Only digits are left, so the only possible error is that there are too many of them.
    let number = number.parse().map_err(|_| QuantityError::TooLarge)?;
    Ok((number, unit.trim_start()))
}

/// A number of milliseconds, displayed in the largest unit that spells it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub u64);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let fits = |&(factor, _): &(u64, _)| self.0 >= factor && self.0.is_multiple_of(factor);
        match units.into_iter().find(fits) {
            Some((factor, unit)) => write!(f, "{}{unit}", self.0 / factor),
            None => f.write_str("0"),
        }
    }
}

/// `4.2 MiB`, with one digit behind the point.
pub fn shown_size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut at = 0;
    while at + 1 < units.len() && bytes >> (10 * (at + 1)) > 0 {
        at += 1;
    }
    let unit = units.get(at).copied().unwrap_or_default();
    if at == 0 {
        return format!("{bytes} {unit}");
    }
    let tenths = (u128::from(bytes) * 10) >> (10 * at);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_up_to_their_limit() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("1048576"), Ok(1 << 20));
        assert_eq!(parse_size("64KiB"), Ok(64 << 10));
        assert_eq!(parse_size(" 64 MiB "), Ok(64 << 20));
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_size("17179869183GiB"), Ok(17_179_869_183 << 30));
        assert_eq!(parse_size("17179869184GiB"), Err(QuantityError::TooLarge));
        assert_eq!(parse_size("18446744073709551616"), Err(QuantityError::TooLarge));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "MiB", "-1", "+1", "1.5GiB", "64mib", "64MB", "64M", "1 2", "1KiBx"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_up_to_their_limit() {
        assert_eq!(parse_duration_ms("0"), Ok(0));
        assert_eq!(parse_duration_ms("1ms"), Ok(1));
        assert_eq!(parse_duration_ms("10s"), Ok(10_000));
        assert_eq!(parse_duration_ms("5m"), Ok(300_000));
        assert_eq!(parse_duration_ms("2h"), Ok(7_200_000));
        assert_eq!(parse_duration_ms("30d"), Ok(2_592_000_000));
        assert_eq!(parse_duration_ms("18446744073709551615ms"), Ok(u64::MAX));
        assert_eq!(parse_duration_ms("18446744073709552s"), Err(QuantityError::TooLarge));
        assert_eq!(parse_duration_to_a_day("24h", 1), Ok(86_400_000));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "10", "-1s", "1.5s", "10S", "10sec", "1m30s", "10 s x"] {
            assert!(parse_duration_ms(text).is_err(), "{text}");
        }
        let refused = parse_duration_to_a_day("86400001ms", 1).unwrap_err();
        assert_eq!(refused.to_string(), "it must be 1ms to 1d");
        assert!(parse_duration_to_a_day("0", 1).is_err());
        assert!(parse_duration_to_a_day("50d", 0).is_err());
    }

    #[test]
    fn sizes_are_shown_with_one_digit_behind_the_point() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1.0 KiB"),
            (1_535, "1.4 KiB"),
            (4 << 20, "4.0 MiB"),
            ((64 << 20) - 1, "63.9 MiB"),
            (3 << 40, "3.0 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(shown_size(bytes), expected);
        }
    }
}
