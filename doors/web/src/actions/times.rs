//! Times of forms, with their units.

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// As `90 s` or `1 h 30 min`.
pub(crate) fn time_written(ms: u64) -> String {
    match i64::try_from(ms) {
        Ok(ms) => format!("{:#}", SignedDuration::from_millis(ms)),
        Err(_) => format!("{ms} ms"),
    }
}

/// Milliseconds. None: it is no time.
pub(crate) fn time_read(text: &str) -> Option<u64> {
    // A span has no room for the longest times.
    let number = text.strip_suffix("ms").map(str::trim_end);
    if let Some(number) = number.filter(|number| number.bytes().all(|it| it.is_ascii_digit())) {
        return number.parse().ok();
    }
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for ms in [0, 1, 999, 1_000, 90_000, 5_400_000, 604_800_001, u64::MAX] {
            assert_eq!(time_read(&time_written(ms)), Some(ms), "{}", time_written(ms));
        }
        for (text, ms) in [
            ("90 s", 90_000),
            ("5 min", 300_000),
            ("1h 30m", 5_400_000),
            ("7 days", 604_800_000),
            ("0 s", 0),
        ] {
            assert_eq!(time_read(text), Some(ms), "{text}");
        }
        for wrong in ["5", "-5 s", "soon", "1 month", "", "ms", "1.5.5 s"] {
            assert_eq!(time_read(wrong), None, "{wrong}");
        }
    }
}
