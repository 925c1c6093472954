//! The wait between failures, as clients write and read it.
//!
//! Factor and jitter are numbers with up to three decimals outside and whole thousandths inside.
//! They are parsed from the digits of the text, without going through a floating-point number.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use spindle_core::job;
use utoipa::ToSchema;

use spindle_http::{Answered, Problem, whole};

/// The largest factor accepted: a wait that grows more than a thousandfold at each failure is taken
/// for a typing error.
pub(crate) const FACTOR_MAX: u32 = 1_000;
const ONE: u32 = 1_000;

/// The wait after failure number n: base x factor^(n-1), at most the cap, minus a jitter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backoff {
    /// Wait after the first failure.
    #[serde(deserialize_with = "whole")]
    base_ms: u64,
    /// Growth per failure: 2 doubles, 1.5 is half as much again. 1 to 1000, with at most three
    /// decimals.
    #[serde(default = "no_growth")]
    #[schema(value_type = f64, required = false, default = 1)]
    #[schema(minimum = 1, maximum = 1000, multiple_of = 0.001)]
    factor: Thousandths,
    /// Never longer than this.
    #[serde(default = "an_hour", deserialize_with = "whole")]
    #[schema(default = 3_600_000)]
    cap_ms: u64,
    /// Up to this share of the wait is taken off: 0.25 is a quarter. 0 to 1, with at most three
    /// decimals.
    #[serde(default)]
    #[schema(value_type = f64, required = false, default = 0)]
    #[schema(minimum = 0, maximum = 1, multiple_of = 0.001)]
    jitter: Thousandths,
}

fn no_growth() -> Thousandths {
    Thousandths(Some(ONE))
}

fn an_hour() -> u64 {
    3_600_000
}

impl From<job::Backoff> for Backoff {
    /// Older servers took limits that mean the same as these.
    fn from(from: job::Backoff) -> Backoff {
        let factor = from.factor_thousandths.clamp(ONE, FACTOR_MAX * ONE);
        Backoff {
            base_ms: from.base_ms,
            factor: Thousandths(Some(factor)),
            cap_ms: from.cap_ms,
            jitter: Thousandths(Some(from.jitter_thousandths.min(ONE))),
        }
    }
}

impl Backoff {
    /// The core's words for it.
    pub fn read(self) -> Answered<job::Backoff> {
        let wrong = |detail: &str| Problem::out_of_range(detail);
        let factor = self.factor.0.filter(|factor| (ONE..=FACTOR_MAX * ONE).contains(factor));
        let jitter = self.jitter.0.filter(|jitter| *jitter <= ONE);
        Ok(job::Backoff {
            base_ms: self.base_ms,
            factor_thousandths: factor.ok_or_else(|| {
                wrong("backoff.factor is 1 to 1000, with at most three decimals: 2, or 1.125")
            })?,
            cap_ms: self.cap_ms,
            jitter_thousandths: jitter.ok_or_else(|| {
                wrong("backoff.jitter is 0 to 1, with at most three decimals: 0.25")
            })?,
        })
    }
}

/// A number with up to three decimals. None: it is negative, finer, or too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Thousandths(Option<u32>);

impl Default for Thousandths {
    fn default() -> Thousandths {
        Thousandths(Some(0))
    }
}

impl Serialize for Thousandths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.0.unwrap_or_default();
        if value.is_multiple_of(ONE) {
            serializer.serialize_u32(value / ONE)
        } else {
            // The shortest text of the number nearest to it: those three decimals.
            serializer.serialize_f64(f64::from(value) / f64::from(ONE))
        }
    }
}

impl<'de> Deserialize<'de> for Thousandths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Thousandths, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(D::Error::invalid_type(Unexpected::Other(text), &"a number"));
        }
        Ok(Thousandths(read(text)))
    }
}

/// The value of a JSON number in thousandths, in whichever notation it is written.
fn read(text: &str) -> Option<u32> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()),
        None => (text, Some(0)),
    };
    let negative = digits.starts_with('-');
    let (whole, fraction) = digits
        .trim_start_matches('-')
        .split_once('.')
        .unwrap_or((digits.trim_start_matches('-'), ""));
    let all = [whole, fraction].concat();
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros_cut = all.len() - all.trim_end_matches('0').len();
    // What the last digit that counts is worth, as a power of ten of a thousandth.
    let worth = i64::try_from(zeros_cut).ok()? - i64::try_from(fraction.len()).ok()? + 3;
    let shift = u32::try_from(worth.checked_add(exponent?)?).ok()?;
    let value = significant.parse::<u32>().ok()?.checked_mul(10_u32.checked_pow(shift)?)?;
    (!negative).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_by_its_digits_however_it_is_written() {
        for (text, thousandths) in [
            ("0", 0),
            ("-0.0", 0),
            ("0e99999999999999999999", 0),
            ("3", 3_000),
            ("1.5", 1_500),
            ("2.125", 2_125),
            ("2.125000", 2_125),
            ("0.001", 1),
            ("1000", 1_000_000),
            ("1e3", 1_000_000),
            ("15E-1", 1_500),
            ("2125e-3", 2_125),
            ("0.0015e+3", 1_500),
            ("1.1", 1_100),
            ("4294967.295", u32::MAX),
        ] {
            assert_eq!(read(text), Some(thousandths), "{text}");
        }
    }

    #[test]
    fn what_is_finer_than_a_thousandth_or_negative_or_huge_is_none() {
        for text in [
            "-1",
            "1.0005",
            "2.1250000000000001",
            "1e-4",
            "15e-5",
            "4294967.296",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "99999999999999999999",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn every_number_of_thousandths_goes_out_as_it_came_in() {
        for thousandths in (0..=5_000).chain([999_999, 1_000_000]) {
            let text = serde_json::to_string(&Thousandths(Some(thousandths))).unwrap();
            assert_eq!(read(&text), Some(thousandths), "{text}");
            let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 3 && !text.contains('e'), "{text}");
        }
        assert_eq!(serde_json::to_string(&Thousandths(Some(3_000))).unwrap(), "3");
        assert_eq!(serde_json::to_string(&Thousandths(Some(2_125))).unwrap(), "2.125");
    }
}
