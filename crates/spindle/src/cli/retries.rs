//! How long a failed job waits, as people write it: `5s*3..1h`.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use crate::quantity::{Written, parse_duration_ms};

const ONE: u32 = 1_000;
const FACTOR_MAX: u32 = 1_000 * ONE;
/// The longest wait of one that grows, where nothing is said.
const CAP_MS: u64 = 3_600_000;

/// The wait before a failed job is tried again. It grows with each failure, up to a longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryWait {
    base_ms: u64,
    /// In thousandths.
    factor: u32,
    cap_ms: u64,
    /// Up to this share is taken off, in thousandths.
    jitter: u32,
}

impl FromStr for RetryWait {
    type Err = String;

    /// Reads `none`, `30s`, `5s..1h`, `5s*3`, `5s*3..1h`, each with `~0.2` behind it.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self { base_ms: 0, factor: ONE, cap_ms: 0, jitter: 0 });
        }
        let (text, jitter) = cut(text, "~");
        let (text, cap) = cut(text, "..");
        let (base, factor) = cut(text, "*");
        let time = |text: &str| {
            let why = |error| {
                format!("`{text}`: {error}; write none, 30s, 5s..1h (doubles), 5s*3 or 5s*3..1h")
            };
            parse_duration_ms(text).map_err(why)
        };
        let base_ms = time(base)?;
        let factor = match factor {
            Some(factor) => thousandths(factor, ONE..=FACTOR_MAX).ok_or_else(|| {
                format!("`{factor}`: a wait grows 1 to 1000 times, with up to three decimals: *1.5")
            })?,
            None if cap.is_some() => 2 * ONE,
            None => ONE,
        };
        let cap_ms = match cap {
            Some(cap) => time(cap)?,
            None if factor > ONE => base_ms.max(CAP_MS),
            None => base_ms,
        };
        if cap_ms < base_ms {
            return Err(format!(
                "the longest wait, {}, is shorter than the first",
                Written(cap_ms)
            ));
        }
        let jitter = match jitter {
            Some(share) => thousandths(share, 0..=ONE)
                .ok_or_else(|| format!("`{share}`: a share is 0 to 1, such as ~0.2 for a fifth"))?,
            None => 0,
        };
        // What is as long as it may be from the first does not grow.
        let factor = if cap_ms == base_ms { ONE } else { factor };
        Ok(Self { base_ms, factor, cap_ms, jitter })
    }
}

impl RetryWait {
    /// As the native API takes it.
    pub fn to_json(self) -> Value {
        let Self { base_ms, factor, cap_ms, jitter } = self;
        let number = |thousandths: u32| match thousandths.is_multiple_of(ONE) {
            true => json!(thousandths / ONE),
            // The number nearest to it, whose shortest text has those three decimals.
            false => json!(f64::from(thousandths) / f64::from(ONE)),
        };
        json!({
            "base_ms": base_ms, "factor": number(factor), "cap_ms": cap_ms,
            "jitter": number(jitter),
        })
    }

    /// As the native API shows it.
    pub fn of_json(value: &Value) -> Option<Self> {
        let ms = |name: &str| value.get(name).and_then(Value::as_u64);
        let share = |name: &str, range| thousandths(&value.get(name)?.to_string(), range);
        Some(Self {
            base_ms: ms("base_ms")?,
            factor: share("factor", ONE..=FACTOR_MAX)?,
            cap_ms: ms("cap_ms")?,
            jitter: share("jitter", 0..=ONE)?,
        })
    }
}

impl fmt::Display for RetryWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_ms, factor, cap_ms, jitter } = *self;
        let base_ms = base_ms.min(cap_ms);
        if base_ms == 0 {
            return f.write_str("none");
        }
        write!(f, "{}", Written(base_ms))?;
        if factor > ONE && cap_ms > base_ms {
            write!(f, "*{}..{}", decimals(factor), Written(cap_ms))?;
        }
        if jitter > 0 {
            write!(f, "~{}", decimals(jitter))?;
        }
        Ok(())
    }
}

/// What stands before a sign, and what stands behind it if it is there.
fn cut<'a>(text: &'a str, sign: &str) -> (&'a str, Option<&'a str>) {
    match text.split_once(sign) {
        Some((before, behind)) => (before.trim(), Some(behind.trim())),
        None => (text.trim(), None),
    }
}

/// Reads a number with up to three decimals by its digits.
fn thousandths(text: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let value = whole.parse::<u32>().ok()?.checked_mul(ONE)?;
    let value = value.checked_add(format!("{decimals:0<3}").parse().ok()?)?;
    range.contains(&value).then_some(value)
}

fn decimals(thousandths: u32) -> String {
    let text = format!("{}.{:03}", thousandths / ONE, thousandths % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, expected: Value, written: &str) {
        let wait: RetryWait = text.parse().unwrap();
        assert_eq!(wait.to_json(), expected, "{text}");
        assert_eq!(wait.to_string(), written, "{text}");
        assert_eq!(written.parse(), Ok(wait), "{written}");
        assert_eq!(RetryWait::of_json(&expected), Some(wait), "{text}");
    }

    fn json_of(base_ms: u64, factor: f64, cap_ms: u64, jitter: f64) -> Value {
        let number =
            |value: f64| if value.fract() == 0.0 { json!(value as u64) } else { json!(value) };
        json!({
            "base_ms": base_ms, "factor": number(factor), "cap_ms": cap_ms,
            "jitter": number(jitter),
        })
    }

    #[test]
    fn a_wait_is_a_first_one_how_it_grows_and_a_longest_one() {
        reads("none", json_of(0, 1.0, 0, 0.0), "none");
        reads("30s", json_of(30_000, 1.0, 30_000, 0.0), "30s");
        reads("5s..1h", json_of(5_000, 2.0, 3_600_000, 0.0), "5s*2..1h");
        reads("5s*3", json_of(5_000, 3.0, 3_600_000, 0.0), "5s*3..1h");
        reads("2h*3", json_of(7_200_000, 1.0, 7_200_000, 0.0), "2h");
        reads("5s*3..1h", json_of(5_000, 3.0, 3_600_000, 0.0), "5s*3..1h");
        reads("500ms*1.125..10m~0.2", json_of(500, 1.125, 600_000, 0.2), "500ms*1.125..10m~0.2");
        reads("5s * 1.5 .. 1h ~ 1", json_of(5_000, 1.5, 3_600_000, 1.0), "5s*1.5..1h~1");
        reads("90s~0.25", json_of(90_000, 1.0, 90_000, 0.25), "90s~0.25");
    }

    #[test]
    fn what_is_no_wait_is_refused_with_how_to_write_it() {
        for (text, part) in [
            ("", "5s*3..1h"),
            ("5", "unit"),
            ("5s..", "5s*3..1h"),
            ("..1h", "5s*3..1h"),
            ("5s*..1h", "1 to 1000"),
            ("5s*0.5..1h", "1 to 1000"),
            ("5s*1001", "1 to 1000"),
            ("5s*1.0005", "three decimals"),
            ("5s*1e2", "1 to 1000"),
            ("5s*-2", "1 to 1000"),
            ("1h..5s", "shorter than the first"),
            ("5s~1.001", "0 to 1"),
            ("5s~", "0 to 1"),
            ("None", "5s*3..1h"),
        ] {
            let message = text.parse::<RetryWait>().unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!("5s*1000".parse::<RetryWait>().is_ok());
        assert!("5s~1".parse::<RetryWait>().is_ok());
    }
}
