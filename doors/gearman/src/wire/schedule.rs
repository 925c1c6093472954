//! The five fields of SUBMIT_JOB_SCHED.

use jiff::civil::{Date, Time};
use jiff::{Timestamp, tz::TimeZone};

use super::number::parse_number;

/// When a scheduled job is due, in UTC: the first minute at which every field that is given
/// matches. An absent field (empty or `*` on the wire) matches always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Schedule {
    fields: [Option<u8>; 5],
}

/// A field that is neither empty nor a number in its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("schedule that never matches")]
pub struct ScheduleError;

/// Minute, hour, day of the month, month, day of the week with 0 = Monday.
const RANGES: [std::ops::RangeInclusive<u8>; 5] = [0..=59, 0..=23, 1..=31, 1..=12, 0..=6];

/// A day and month fall on every weekday within 28 years, or 40 around a year 2100; more days
/// than that need not be looked at.
const DAYS_MAX: usize = 41 * 366;

impl Schedule {
    /// From minute, hour, day of the month, month and day of the week (0 = Monday).
    ///
    /// # Errors
    ///
    /// When a field is out of its range.
    pub fn new(fields: [Option<u8>; 5]) -> Result<Schedule, ScheduleError> {
        let is_in_range = |(field, range): (&Option<u8>, &std::ops::RangeInclusive<u8>)| {
            field.is_none_or(|value| range.contains(&value))
        };
        if fields.iter().zip(&RANGES).all(is_in_range) {
            Ok(Schedule { fields })
        } else {
            Err(ScheduleError)
        }
    }

    /// From the five texts of the packet.
    pub(super) fn parse(texts: [&[u8]; 5]) -> Result<Schedule, ScheduleError> {
        let mut fields = [None; 5];
        for (field, text) in fields.iter_mut().zip(texts) {
            if text.is_empty() || text == b"*" {
                continue;
            }
            if !text.iter().all(u8::is_ascii_digit) {
                return Err(ScheduleError);
            }
            *field = Some(u8::try_from(parse_number(text)).map_err(|_| ScheduleError)?);
        }
        Schedule::new(fields)
    }

    /// Minute, hour, day of the month, month and day of the week.
    #[must_use]
    pub fn fields(&self) -> [Option<u8>; 5] {
        self.fields
    }

    /// The start of the first matching minute that begins after `now_ms`. `None` when there is
    /// none, such as for the 30th of February.
    #[must_use]
    pub fn next_after_ms(&self, now_ms: u64) -> Option<u64> {
        let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
        let now = now.to_zoned(TimeZone::UTC).datetime();
        let mut after = Some(now.time());
        let mut date = now.date();
        for _ in 0..DAYS_MAX {
            if let Some(time) = self.matches_day(date).then(|| self.first_time(after)).flatten() {
                let at = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
                return u64::try_from(at.timestamp().as_millisecond()).ok();
            }
            date = date.tomorrow().ok()?;
            after = None;
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let [_, _, day, month, weekday] = self.fields;
        let is = |field: Option<u8>, value: i8| {
            field.is_none_or(|field| i16::from(field) == i16::from(value))
        };
        is(day, date.day())
            && is(month, date.month())
            && is(weekday, date.weekday().to_monday_zero_offset())
    }

    /// The first matching minute of a day, after a given time of that day.
    fn first_time(&self, after: Option<Time>) -> Option<Time> {
        let [minute, hour, ..] = self.fields;
        let values = |field: Option<u8>, max: u8| match field {
            Some(value) => value..=value,
            None => 0..=max,
        };
        let time = |hour, minute| {
            Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()
        };
        values(hour, 23)
            .flat_map(|hour| values(minute, 59).filter_map(move |minute| time(hour, minute)))
            .find(|time| after.is_none_or(|after| *time > after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: [Option<u8>; 5], now: &str, next: Option<&str>) {
        let ms = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond());
        let schedule = Schedule::new(fields).unwrap();
        let expected = next.map(|next| ms(next).unwrap());
        assert_eq!(schedule.next_after_ms(ms(now).unwrap()), expected);
    }

    #[test]
    fn the_next_match_is_the_first_minute_after_now() {
        let any = [None; 5];
        check(any, "2026-08-01T10:20:30Z", Some("2026-08-01T10:21:00Z"));
        check(any, "2026-08-01T10:20:00Z", Some("2026-08-01T10:21:00Z"));
        check(any, "2026-12-31T23:59:59.999Z", Some("2027-01-01T00:00:00Z"));
        let half_past_four = [Some(30), Some(4), None, None, None];
        check(half_past_four, "2026-08-01T04:29:59Z", Some("2026-08-01T04:30:00Z"));
        check(half_past_four, "2026-08-01T04:30:00Z", Some("2026-08-02T04:30:00Z"));
    }

    #[test]
    fn every_given_field_must_match() {
        // 2026-08-01 is a Saturday.
        let monday = [Some(0), Some(0), None, None, Some(0)];
        check(monday, "2026-08-01T00:00:00Z", Some("2026-08-03T00:00:00Z"));
        let sunday = [Some(0), Some(0), None, None, Some(6)];
        check(sunday, "2026-08-01T00:00:00Z", Some("2026-08-02T00:00:00Z"));
        let first_of_january = [Some(1), Some(1), Some(1), Some(1), None];
        check(first_of_january, "2026-08-01T00:00:00Z", Some("2027-01-01T01:01:00Z"));
        let and_a_tuesday = [Some(1), Some(1), Some(1), Some(1), Some(1)];
        check(and_a_tuesday, "2026-08-01T00:00:00Z", Some("2030-01-01T01:01:00Z"));
    }

    #[test]
    fn rare_days_are_found_and_days_that_never_come_are_told() {
        let leap_monday = [None, None, Some(29), Some(2), Some(0)];
        check(leap_monday, "2096-03-01T00:00:00Z", Some("2112-02-29T00:00:00Z"));
        check([None, None, Some(30), Some(2), None], "2026-08-01T00:00:00Z", None);
        check([None, None, Some(31), Some(4), None], "2026-08-01T00:00:00Z", None);
    }

    #[test]
    fn a_time_outside_the_calendar_has_no_next_match() {
        let any = Schedule::default();
        assert_eq!(any.next_after_ms(u64::MAX), None);
        assert_eq!(any.next_after_ms(253_402_300_799_999), None);
    }

    #[test]
    fn fields_are_numbers_in_their_range_or_nothing() {
        let last: [&[u8]; 5] = [b"59", b"23", b"31", b"12", b"6"];
        let first: [&[u8]; 5] = [b"0", b"0", b"1", b"1", b"0"];
        assert!(Schedule::parse(last).is_ok());
        assert!(Schedule::parse(first).is_ok());
        assert_eq!(Schedule::parse([b"", b"*", b"", b"", b""]), Ok(Schedule::default()));
        let beyond: [&[u8]; 5] = [b"60", b"24", b"32", b"13", b"7"];
        let below: [&[u8]; 5] = [b"-1", b"-1", b"0", b"0", b"-1"];
        let junk: [&[u8]; 5] = [b"1x", b"300", b" 1", b"1,2", b"99999999999999999999999"];
        for (place, texts) in
            [beyond, below, junk].iter().flat_map(|texts| texts.iter().enumerate())
        {
            let mut fields = last;
            fields[place] = texts;
            assert_eq!(Schedule::parse(fields), Err(ScheduleError), "{}", texts.escape_ascii());
        }
    }
}
