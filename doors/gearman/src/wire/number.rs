//! Numbers in decimal text.

/// A number as text without an allocation.
pub(super) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub fn new(mut value: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; 20], start: 20 };
        for digit in decimal.digits.iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            decimal.start -= 1;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        decimal
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

/// The value of the digits that a text begins with, as gearmand reads numbers: 0 if there are none,
/// and the maximum if the value is too large.
#[must_use]
pub fn parse_number(text: &[u8]) -> u64 {
    text.iter()
        .take_while(|letter| letter.is_ascii_digit())
        .fold(0u64, |value, digit| value.saturating_mul(10).saturating_add((digit - b'0').into()))
}
