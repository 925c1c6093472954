//! Functions that read the values of the table's entries, and the ranges that values must be in.

use std::{ops::RangeInclusive, time::Duration};

use crate::quantity::{parse_duration, parse_size};

/// `http-idle-timeout` and `login-timeout`.
pub(super) const PATIENCE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(24);

/// `segment-size`: less would be mostly overhead, more is not addressed.
pub(super) const SEGMENT_BYTES: RangeInclusive<u64> = (64 << 10)..=(2 << 30);

/// `jobq-query-time`.
pub(super) const JOBQ_QUERY_TIME: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_mins(10);

/// `jobq-list-size`: less would not hold one job.
pub(super) const JOBQ_LIST_BYTES: RangeInclusive<u64> = (1 << 10)..=(1 << 30);

/// Puts what was read into its field.
pub(super) fn set<T>(field: &mut T, read: Result<T, String>) -> Result<(), String> {
    *field = read?;
    Ok(())
}

/// Refuses a value outside of `range`; `hint` says what to do.
pub(super) fn within<T: PartialOrd>(
    read: Result<T, String>,
    range: RangeInclusive<T>,
    hint: &str,
) -> Result<T, String> {
    read.and_then(|value| if range.contains(&value) { Ok(value) } else { Err(hint.to_owned()) })
}

/// Reads a limit that may be off: the largest number then.
pub(super) fn limit<N: TryInto<u64>>(
    text: &str,
    read: impl Fn(&str) -> Result<N, String>,
) -> Result<u64, String> {
    match text {
        "off" => Ok(u64::MAX),
        text => Ok(read(text)?.try_into().unwrap_or(u64::MAX)),
    }
}

/// Reads a size in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Reads a time.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}
