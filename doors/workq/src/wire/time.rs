//! Times as the protocol spells them: RFC 3339 in UTC with a capital `T` and `Z`.

use bytes::{BufMut, BytesMut};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::number::write_unsigned;

/// Reads `2020-02-02T00:00:00Z`, with or without a fraction of a second, as milliseconds since
/// 1970; earlier times count as 1970. An offset, even `+00:00`, is refused (recorded). Digits
/// beyond milliseconds are cut.
#[must_use]
pub fn parse_time(text: &[u8]) -> Option<u64> {
    let (date_and_time, rest) = text.split_at_checked(19)?;
    let (date, time) = date_and_time.split_at_checked(10)?;
    let &[y1, y2, y3, y4, b'-', mo1, mo2, b'-', d1, d2] = date else { return None };
    let &[b'T', h1, h2, b':', mi1, mi2, b':', s1, s2] = time else { return None };
    let year = pair(y1, y2)? * 100 + pair(y3, y4)?;
    let (month, day) = (pair(mo1, mo2)? as i8, pair(d1, d2)? as i8);
    let (hour, minute, second) = (pair(h1, h2)? as i8, pair(mi1, mi2)? as i8, pair(s1, s2)? as i8);
    let fraction_ms = parse_fraction(rest)?;
    let civil = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    // Only the last hours of the year 9999 have no timestamp; they count as its end.
    let timestamp = TimeZone::UTC.to_timestamp(civil).unwrap_or(Timestamp::MAX);
    Some(u64::try_from(timestamp.as_second()).map_or(0, |second| second * 1000 + fraction_ms))
}

/// Reads `Z` or `.<digits>Z` as milliseconds.
fn parse_fraction(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"Z")?;
    if text.is_empty() {
        return Some(0);
    }
    let digits = text.strip_prefix(b".")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(3);
    Some(padded.fold(0, |ms, digit| ms * 10 + u64::from(digit - b'0')))
}

fn pair(tens: u8, ones: u8) -> Option<i16> {
    let both_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
    both_digits.then(|| i16::from(tens - b'0') * 10 + i16::from(ones - b'0'))
}

/// Appends a time in whole seconds. A time beyond the year 9999 is written as the end of it.
pub fn write_time(out: &mut BytesMut, time_ms: u64) {
    write_civil(out, time_ms);
    out.put_u8(b'Z');
}

/// Appends a time and its milliseconds when there are any, as a client asks for a time.
pub(super) fn write_time_exactly(out: &mut BytesMut, time_ms: u64) {
    write_civil(out, time_ms);
    let ms = time_ms % 1000;
    if ms != 0 {
        out.put_u8(b'.');
        write_padded(out, ms, 3);
    }
    out.put_u8(b'Z');
}

fn write_civil(out: &mut BytesMut, time_ms: u64) {
    let timestamp = i64::try_from(time_ms / 1000)
        .ok()
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(Timestamp::MAX);
    let civil = TimeZone::UTC.to_datetime(timestamp);
    write_padded(out, civil.year().unsigned_abs().into(), 4);
    let parts = [
        (b'-', civil.month()),
        (b'-', civil.day()),
        (b'T', civil.hour()),
        (b':', civil.minute()),
        (b':', civil.second()),
    ];
    for (separator, part) in parts {
        out.put_u8(separator);
        write_padded(out, part.unsigned_abs().into(), 2);
    }
}

fn write_padded(out: &mut BytesMut, number: u64, width: u32) {
    for place in (1..width).rev() {
        if number >= 10u64.pow(place) {
            break;
        }
        out.put_u8(b'0');
    }
    write_unsigned(out, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(time_ms: u64) -> String {
        let mut out = BytesMut::new();
        write_time(&mut out, time_ms);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn times_are_written_in_whole_seconds() {
        assert_eq!(written(1_471_830_651_000), "2016-08-22T01:50:51Z");
        assert_eq!(written(1_471_830_651_999), "2016-08-22T01:50:51Z");
        assert_eq!(written(0), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn times_nobody_can_spell_are_written_as_the_last() {
        for time_ms in [253_402_300_800_000, i64::MAX as u64, u64::MAX] {
            assert_eq!(written(time_ms), "9999-12-30T22:00:00Z");
        }
    }

    #[test]
    fn times_are_read_with_and_without_a_fraction() {
        assert_eq!(parse_time(b"2016-08-22T01:50:51Z"), Some(1_471_830_651_000));
        assert_eq!(parse_time(b"2016-08-22T01:50:51.5Z"), Some(1_471_830_651_500));
        assert_eq!(parse_time(b"2016-08-22T01:50:51.0078999999999Z"), Some(1_471_830_651_007));
        assert!(parse_time(b"9999-12-31T23:59:59Z").is_some());
    }

    #[test]
    fn times_before_1970_count_as_1970() {
        assert_eq!(parse_time(b"1969-12-31T23:59:59.999Z"), Some(0));
        assert_eq!(parse_time(b"0000-01-01T00:00:00Z"), Some(0));
    }

    #[test]
    fn anything_but_utc_in_the_one_form_is_refused() {
        for text in [
            "",
            "Z",
            "notatime",
            "2016-08-22",
            "2016-08-22T01:50:51",
            "2016-08-22T01:50:51z",
            "2016-08-22t01:50:51Z",
            "2016-08-22 01:50:51Z",
            "2016-08-22T01:50:51+01:00",
            "2016-08-22T01:50:51+00:00",
            "2016-08-22T01:50:51.Z",
            "2016-08-22T01:50:51.5",
            "2016-08-22T01:50:51.5xZ",
            "2016-08-22T01:50:51ZZ",
            "2016-02-30T00:00:00Z",
            "2016-13-01T00:00:00Z",
            "2016-01-01T24:00:00Z",
            "2016-12-31T23:59:60Z",
            "+016-12-31T23:59:50Z",
            "16-12-31T23:59:50Z",
        ] {
            assert_eq!(parse_time(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_exact_time_keeps_its_milliseconds() {
        for time_ms in [0, 5, 1_471_830_651_070, 1_471_830_651_000] {
            let mut out = BytesMut::new();
            write_time_exactly(&mut out, time_ms);
            assert_eq!(parse_time(&out), Some(time_ms), "{}", out.escape_ascii());
        }
    }
}
