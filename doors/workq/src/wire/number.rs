//! Decimal numbers as the protocol spells them.

use bytes::{BufMut, BytesMut};

/// Reads digits only: no sign, no spaces, leading zeros allowed. `None` beyond `u64`.
pub(super) fn parse_unsigned(text: &[u8]) -> Option<u64> {
    /// Numbers with this many digits always fit.
    const DIGITS_FITTING: usize = 19;
    if text.is_empty() {
        return None;
    }
    let (fitting, rest) = text.split_at(text.len().min(DIGITS_FITTING));
    let number = fitting.iter().try_fold(0u64, |number, letter| {
        digit(*letter).map(|digit| number.wrapping_mul(10).wrapping_add(digit))
    })?;
    rest.iter()
        .try_fold(number, |number, letter| number.checked_mul(10)?.checked_add(digit(*letter)?))
}

fn digit(letter: u8) -> Option<u64> {
    let digit = letter.wrapping_sub(b'0');
    (digit <= 9).then_some(u64::from(digit))
}

/// Reads digits behind at most one sign, which may be a plus (recorded for payload sizes).
pub(super) fn parse_signed(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(parse_unsigned(digits)?),
        [b'+', digits @ ..] | digits => i64::try_from(parse_unsigned(digits)?).ok(),
    }
}

/// Reads a number of at most `max`.
pub(super) fn parse_up_to(text: &[u8], max: u32) -> Option<u32> {
    let number = u32::try_from(parse_unsigned(text)?).ok()?;
    (number <= max).then_some(number)
}

/// Appends a number in decimal without allocating.
pub(super) fn write_unsigned(out: &mut BytesMut, mut number: u64) {
    // 2^64-1 has 20 digits.
    let mut digits = [0u8; 20];
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (number % 10) as u8;
        used += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// Appends a number in decimal, with a minus when it is negative.
pub(super) fn write_signed(out: &mut BytesMut, number: i64) {
    if number < 0 {
        out.put_u8(b'-');
    }
    write_unsigned(out, number.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_digits_only() {
        assert_eq!(parse_unsigned(b"0"), Some(0));
        assert_eq!(parse_unsigned(b"0060"), Some(60));
        assert_eq!(parse_unsigned(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"+1", b"-1", b" 1", b"1_0", b"0x1", b"18446744073709551616"] {
            assert_eq!(parse_unsigned(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn signed_numbers_take_one_sign_and_their_whole_range() {
        assert_eq!(parse_signed(b"+7"), Some(7));
        assert_eq!(parse_signed(b"-0"), Some(0));
        assert_eq!(parse_signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_signed(b"9223372036854775807"), Some(i64::MAX));
        for text in [&b"-"[..], b"+", b"--1", b"+-1", b"9223372036854775808"] {
            assert_eq!(parse_signed(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn written_numbers_are_those_the_standard_library_writes() {
        for number in [0, 1, 9, 10, 99, 100, 1_048_576, u64::MAX] {
            let mut out = BytesMut::new();
            write_unsigned(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
        for number in [i64::MIN, -1, 0, i64::MAX] {
            let mut out = BytesMut::new();
            write_signed(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
