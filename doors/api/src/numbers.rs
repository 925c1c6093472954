//! Numbers in requests: within bounds, and in cursors.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use spindle_http::{Answered, Problem};

/// The longest wait of a request, in seconds: proxies and clients give up sooner.
pub(crate) const WAIT_S_MAX: u64 = 300;

/// A number within its bounds.
pub(crate) fn bounded<T: Display + PartialOrd>(
    field: &str,
    number: T,
    bounds: RangeInclusive<T>,
) -> Answered<T> {
    if bounds.contains(&number) {
        return Ok(number);
    }
    let detail = format!("{field} is {} to {}", bounds.start(), bounds.end());
    Err(Problem::out_of_range(detail))
}

/// How long a request may wait, in milliseconds.
pub(crate) fn wait_ms(wait_s: u64) -> Answered<u64> {
    if wait_s > WAIT_S_MAX {
        return Err(Problem::out_of_range(format!("wait_s is at most {WAIT_S_MAX}")));
    }
    Ok(wait_s * 1000)
}

/// A number in digits and nothing else.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A cursor that is a number, if there is one.
pub(crate) fn cursor_number(cursor: Option<&str>) -> Answered<Option<u64>> {
    cursor.map(|text| digits(text).ok_or_else(bad_cursor)).transpose()
}

/// A cursor that no page has given.
pub(crate) fn bad_cursor() -> Problem {
    Problem::out_of_range("cursor is the next_cursor of the page before")
}
