//! Parts of an answer: the `Range` header (RFC 9110, 14.2), one range of bytes.

use std::ops::Range;

use axum::http::{HeaderMap, header};

use crate::numbers::digits;

/// Which bytes of an answer a request wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// All of them: there is no `Range`, or one that a server may ignore.
    All,
    /// Some.
    Part(Range<u64>),
    /// A range outside of the answer.
    Nothing,
}

/// What a request wants of an answer of `len` bytes.
pub(crate) fn wanted(headers: &HeaderMap, len: u64) -> Wanted {
    let mut given = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return Wanted::All };
    let range = value.to_str().ok().and_then(|text| text.strip_prefix("bytes="));
    let Some((from, to)) = range.and_then(|range| range.split_once('-')) else {
        return Wanted::All;
    };
    let last = if to.is_empty() { Some(u64::MAX) } else { digits(to) };
    let (Some(from), Some(last)) = (digits::<u64>(from), last) else { return Wanted::All };
    if from > last {
        return Wanted::All;
    }
    if from >= len {
        return Wanted::Nothing;
    }
    Wanted::Part(from..last.saturating_add(1).min(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_taken_and_what_is_none_is_passed_over() {
        for (text, expected) in [
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=0-99", Wanted::Part(0..100)),
            ("bytes=99-", Wanted::Part(99..100)),
            ("bytes=5-1000", Wanted::Part(5..100)),
            ("bytes=5-18446744073709551615", Wanted::Part(5..100)),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=100-200", Wanted::Nothing),
            ("bytes=5-4", Wanted::All),
            ("bytes=-5", Wanted::All),
            ("bytes=0-1,5-6", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=+1-2", Wanted::All),
            ("bytes=18446744073709551616-", Wanted::All),
            ("lines=0-1", Wanted::All),
            ("", Wanted::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, text.parse().unwrap());
            assert_eq!(wanted(&headers, 100), expected, "{text}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 100), Wanted::All);
    }
}
