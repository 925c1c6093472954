//! Points in time: milliseconds inside, RFC 3339 outside.

use jiff::{Timestamp, civil};

use spindle_http::Problem;

/// What people and programs read: `2026-01-31T08:00:00.250Z`. Times after the year 9999, which no
/// client could read, are shown as its end.
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
    let ms = rfc3339_ms(text).ok_or_else(|| {
        let detail =
            format!("{field} must be a time such as 2030-01-31T08:00:00Z (RFC 3339), or now");
        Problem::out_of_range(detail)
    })?;
    Ok(u64::try_from(ms).unwrap_or(0))
}

/// Milliseconds since 1970 of a time that is just what RFC 3339, section 5.6, calls one. Calendars'
/// own parsers take more, and none of it for a time that is not meant.
fn rfc3339_ms(text: &str) -> Option<i64> {
    let (local, rest) = text.split_at_checked("2026-01-31T08:00:00".len())?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let is_shaped = local.bytes().enumerate().all(|(at, byte)| {
        match separators.iter().find(|(place, _)| *place == at) {
            Some((_, separator)) => byte.eq_ignore_ascii_case(separator),
            None => byte.is_ascii_digit(),
        }
    });
    let local: civil::DateTime = is_shaped.then(|| local.to_ascii_uppercase().parse().ok())??;
    let since = local.duration_since(civil::date(1970, 1, 1).at(0, 0, 0, 0));
    let (fraction_ms, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, offset) = rest.split_at_checked(digits).filter(|_| digits > 0)?;
            let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
            (thousandths.parse::<i64>().ok()?, offset)
        }
    };
    let ms = i64::try_from(since.as_millis()).ok()?;
    Some(ms + fraction_ms - offset_ms(offset)?)
}

/// `Z`, or how far the clocks there are ahead: `+02:00`.
fn offset_ms(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, end: i64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| digits && *number < end)
    };
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_out_with_milliseconds_and_come_in_with_any_offset() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(1_767_323_045_678), "2026-01-02T03:04:05.678Z");
        assert_eq!(read("t", "2026-01-02T05:04:05.678+02:00"), Ok(1_767_323_045_678));
        assert_eq!(read("t", "2026-01-01t23:34:05.6789z"), Ok(1_767_310_445_678));
        assert_eq!(read("t", "2026-01-01T23:34:05-03:30"), Ok(1_767_323_045_000));
        assert_eq!(read("t", "now"), Ok(0));
        assert_eq!(read("t", "1960-01-01T00:00:00Z"), Ok(0));
        assert_eq!(read("t", "1969-12-31T23:59:59.999Z"), Ok(0));
        assert_eq!(read("t", "9999-12-31T23:59:60-23:59"), Ok(253_402_387_139_000));
        assert!(shown(u64::MAX).starts_with("9999-12-"), "{}", shown(u64::MAX));
    }

    #[test]
    fn what_is_no_time_of_rfc_3339_is_refused() {
        for text in [
            "",
            "soon",
            "2026-01-02",
            "1767323045678",
            "2026-13-02T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-02T24:00:00Z",
            "2026-01-02 00:00:00Z",
            "2026-01-02T00:00Z",
            "2026-01-02T00:00:00",
            "2026-01-02T00:00:00.Z",
            "2026-01-02T00:00:00+2:00",
            "2026-01-02T00:00:00+24:00",
            "2026-01-02T00:00:00+02",
            "2026-01-02T00:00:00Z[UTC]",
            "+2026-01-02T00:00:00Z",
            "2026-01-02T00:00:0\u{e9}Z",
        ] {
            assert!(read("t", text).is_err(), "{text}");
        }
    }
}
