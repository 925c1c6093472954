//! The time of `spindle schedule`.

use jiff::Timestamp;

use crate::quantity::parse_duration_ms;

/// Reads an RFC 3339 time, with `Z` or an offset, or `+10m` counted from `now_ms`. In milliseconds
/// since 1970.
pub fn parse_when(text: &str, now_ms: u64) -> Result<u64, String> {
    if let Some(duration) = text.strip_prefix('+') {
        let ms = parse_duration_ms(duration).map_err(|error| error.to_string())?;
        let time_ms = now_ms.checked_add(ms).filter(|ms| *ms <= LAST_MS);
        return time_ms.ok_or_else(|| "it is after the year 9999".to_owned());
    }
    let time: Timestamp = text.parse().map_err(|_| {
        "write a time such as 2030-01-31T08:00:00Z or 2030-01-31T08:00:00+02:00, or +10m for ten \
         minutes from now"
            .to_owned()
    })?;
    u64::try_from(time.as_millisecond()).map_err(|_| "it is before 1970".to_owned())
}

/// The last second that the protocol can spell.
const LAST_MS: u64 = 253_402_207_200_000;

/// A time as the native API takes it.
pub fn rfc3339(time_ms: u64) -> String {
    let ms = i64::try_from(time_ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_string()
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    u64::try_from(spindle_client::now().as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_zone_offset_or_from_now() {
        assert_eq!(parse_when("2016-08-22T01:50:51Z", 0), Ok(1_471_830_651_000));
        assert_eq!(parse_when("2016-08-22T03:50:51.5+02:00", 0), Ok(1_471_830_651_500));
        assert_eq!(parse_when("+10m", 1_000), Ok(601_000));
        assert_eq!(parse_when("+0", 7), Ok(7));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "tomorrow", "2016-08-22", "2016-08-22T01:50:51", "10m", "+", "+10", "+x"] {
            assert!(parse_when(text, 0).is_err(), "{text}");
        }
        assert!(parse_when("1969-12-31T23:59:59Z", 0).is_err());
        assert!(parse_when("+9999999999999d", 0).is_err());
        assert!(parse_when("+3000000d", 0).is_err());
    }
}
