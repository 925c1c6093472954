//! Dates of HTTP (RFC 9110, 5.6.7), for whatever the clock says.
//!
//! It replaces the crate of the same name (`[patch]` in the workspace's `Cargo.toml`), and has the part of its
//! interface that our dependencies call. The original panics before 1970 and after the year 9999, and hyper
//! formats the time of each connection, whether or not it sends a `Date`: a server whose clock has lost its battery
//! would answer nobody over HTTP. Here such a time becomes the nearest that can be written. (The `Date` that
//! Spindle sends is its own: see `date.rs` of `spindle-http`.)
//!
//! To be taken out when hyper asks for the time only where it sends it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

/// A second from 1970 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpDate(Timestamp);

/// A text that is no date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no date of HTTP")
    }
}

impl std::error::Error for Error {}

impl From<SystemTime> for HttpDate {
    fn from(time: SystemTime) -> HttpDate {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let last = Timestamp::MAX;
        HttpDate(Timestamp::from_second(second.min(last.as_second())).unwrap_or(last))
    }
}

impl From<HttpDate> for SystemTime {
    fn from(HttpDate(at): HttpDate) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0))
    }
}

impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.0);
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

impl FromStr for HttpDate {
    type Err = Error;

    fn from_str(text: &str) -> Result<HttpDate, Error> {
        let read = DateTimeParser::new().parse_timestamp(text).map_err(|_| Error)?;
        if read < Timestamp::UNIX_EPOCH { Err(Error) } else { Ok(HttpDate(read)) }
    }
}

/// Reads a date. Of the three forms of HTTP dates, only the one that is sent today.
///
/// # Errors
///
/// The text is none.
pub fn parse_http_date(text: &str) -> Result<SystemTime, Error> {
    text.parse::<HttpDate>().map(SystemTime::from)
}

/// Writes a date.
#[must_use]
pub fn fmt_http_date(time: SystemTime) -> String {
    HttpDate::from(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> SystemTime {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let at = if seconds < 0 { UNIX_EPOCH.checked_sub(by) } else { UNIX_EPOCH.checked_add(by) };
        at.unwrap()
    }

    #[test]
    fn any_time_is_written_in_29_bytes() {
        const FIRST: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
        const LAST: &str = "Thu, 30 Dec 9999 22:00:00 GMT";
        for (seconds, written) in [
            (0, FIRST),
            (-1, FIRST),
            (-60 * 365 * 24 * 3600, FIRST),
            (i64::MIN + 1, FIRST),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (253_402_207_200, LAST),
            (253_402_300_800, LAST),
            (i64::MAX, LAST),
        ] {
            assert_eq!(fmt_http_date(at(seconds)), written, "{seconds}");
            assert_eq!(written.len(), 29);
        }
    }

    #[test]
    fn a_date_that_was_written_is_read() {
        let time = at(784_111_777);
        assert_eq!(parse_http_date(&fmt_http_date(time)), Ok(time));
        for wrong in ["", "0", "tomorrow", "Sun, 06 Nov 1894 08:49:37 GMT"] {
            assert_eq!(parse_http_date(wrong), Err(Error), "{wrong:?}");
        }
    }
}
