//! When an answer was made, as HTTP writes it (RFC 9110, 6.6.1): `Sun, 06 Nov 1994 08:49:37 GMT`.
//!
//! hyper's own header panics if the clock says a time that its format cannot express.

use std::cell::RefCell;
use std::time::SystemTime;

use axum::http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The value of `Date` now. None while the clock says a time before 1970 or after the year 9999: a
/// server whose clock is that wrong sends no `Date`.
pub(crate) fn date(now: SystemTime) -> Option<HeaderValue> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let second = i64::try_from(since.as_secs()).ok()?;
    WRITTEN.with_borrow_mut(|written| match written {
        Some((at, value)) if *at == second => Some(value.clone()),
        _ => {
            let value = write(second)?;
            *written = Some((second, value.clone()));
            Some(value)
        }
    })
}

fn write(second: i64) -> Option<HeaderValue> {
    let at = Timestamp::from_second(second).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()?;
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok()
}

thread_local! {
    /// The last value that this thread has written, and its second: many answers share it.
    static WRITTEN: RefCell<Option<(i64, HeaderValue)>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_may_say_anything() {
        let at = |seconds: i64| {
            let by = Duration::from_secs(seconds.unsigned_abs());
            let epoch = SystemTime::UNIX_EPOCH;
            let now = if seconds < 0 { epoch.checked_sub(by) } else { epoch.checked_add(by) };
            date(now.unwrap()).map(|value| value.to_str().unwrap().to_owned())
        };
        for (seconds, written) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (253_402_207_200, "Thu, 30 Dec 9999 22:00:00 GMT"),
        ] {
            assert_eq!(at(seconds).as_deref(), Some(written), "{seconds}");
        }
        for seconds in [-1, -86_400 * 365, 253_402_300_800, i64::MAX] {
            assert_eq!(at(seconds), None, "{seconds}");
        }
    }
}
