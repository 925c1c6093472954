//! Points in time: milliseconds inside, RFC 3339 outside.

use jiff::Timestamp;

use spindle_http::{Code, Problem};

/// What people and programs read: `2026-01-31T08:00:00.250Z`. Times after the year 9999, which no
/// client could read, are told as its end.
pub(crate) fn shown(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = at.unwrap_or(Timestamp::MAX);
    format!("{at:.3}")
}

/// Reads RFC 3339, or `now`. What lies before 1970 is long past either way.
pub(crate) fn read(field: &str, text: &str) -> Result<u64, Problem> {
    if text == "now" {
        return Ok(0);
    }
    let at: Timestamp = text.parse().map_err(|_| {
        let detail =
            format!("{field} must be a time such as 2030-01-31T08:00:00Z (RFC 3339), or now");
        Problem::new(Code::OutOfRange, detail)
    })?;
    Ok(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_out_with_milliseconds_and_come_in_with_any_offset() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(1_767_323_045_678), "2026-01-02T03:04:05.678Z");
        assert_eq!(read("t", "2026-01-02T05:04:05.678+02:00"), Ok(1_767_323_045_678));
        assert_eq!(read("t", "now"), Ok(0));
        assert_eq!(read("t", "1960-01-01T00:00:00Z"), Ok(0));
        assert!(shown(u64::MAX).starts_with("9999-12-"), "{}", shown(u64::MAX));
        for text in ["", "soon", "2026-01-02", "1767323045678", "2026-13-02T00:00:00Z"] {
            assert!(read("t", text).is_err(), "{text}");
        }
    }
}
