//! Job ids as Workq's clients give them.

use std::fmt;

use bytes::{BufMut, BytesMut};
use spindle_core::address;

/// A UUID of any version, 16 bytes in the order in which they are written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The UUID with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A version 4 UUID made of random bytes that the caller drew.
    #[must_use]
    pub fn from_random(random: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(random);
        let version_cleared = number & !(0xf << 76) & !(0b11 << 62);
        Self((version_cleared | (0x4 << 76) | (0b10 << 62)).to_be_bytes())
    }

    /// The 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether it lies in the range by which jobs of other doors are named: no job of this door
    /// can have it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        address::is_foreign(&self.0)
    }

    /// Whether all bits are zero: an id that was not filled in.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }

    /// Reads the forms that the original takes: 32 hexadecimal digits of either case with or
    /// without each of the four hyphens, behind `urn:uuid:` or an opening brace (whose closing
    /// brace may be missing). Anything after them is refused, where the original ignored it.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.try_into().ok().and_then(Self::parse_canonical).or_else(|| Self::parse_any(text))
    }

    /// The form that nearly all clients use, without a branch per letter.
    fn parse_canonical(text: &[u8; 36]) -> Option<Self> {
        let mut bytes = [0u8; 16];
        let mut seen = 0;
        for (byte, place) in bytes.iter_mut().zip(PLACES) {
            let (high, low) = (hex_value(text[place]), hex_value(text[place + 1]));
            seen |= high | low;
            *byte = (high << 4) | (low & 0xf);
        }
        let hyphens = [text[8], text[13], text[18], text[23]];
        (seen <= 0xf && hyphens == *b"----").then_some(Self(bytes))
    }

    fn parse_any(text: &[u8]) -> Option<Self> {
        let mut rest = if let Some(rest) = text.strip_prefix(b"urn:uuid:") {
            rest
        } else if let Some(rest) = text.strip_prefix(b"{") {
            rest.strip_suffix(b"}").unwrap_or(rest)
        } else {
            text
        };
        let mut bytes = [0u8; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                rest = rest.strip_prefix(b"-").unwrap_or(rest);
            }
            let [high, low, tail @ ..] = rest else { return None };
            let (high, low) = (hex_value(*high), hex_value(*low));
            if (high | low) > 0xf {
                return None;
            }
            *byte = (high << 4) | low;
            rest = tail;
        }
        rest.is_empty().then_some(Self(bytes))
    }

    /// The canonical form: 36 letters, lower case.
    #[must_use]
    pub fn to_letters(self) -> [u8; 36] {
        let mut letters = [b'-'; 36];
        for (byte, place) in self.0.into_iter().zip(PLACES) {
            letters[place] = HEX[usize::from(byte >> 4)];
            letters[place + 1] = HEX[usize::from(byte & 0xf)];
        }
        letters
    }

    /// Appends the canonical form without allocating.
    pub fn write(self, out: &mut BytesMut) {
        out.put_slice(&self.to_letters());
    }
}

/// Where in the canonical form the first digit of each byte stands.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The value of each hexadecimal digit; 0xff for every other byte.
const HEX_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

fn hex_value(letter: u8) -> u8 {
    HEX_VALUES[usize::from(letter)]
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.to_letters();
        f.pad(str::from_utf8(&letters).expect("hexadecimal digits and hyphens are ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";

    #[test]
    fn every_recorded_form_reads_as_the_same_id() {
        let id = Uuid::parse(EXAMPLE.as_bytes()).unwrap();
        for form in [
            "6BA7B810-9DAD-11D1-80B4-00C04FD430C4",
            "6ba7b8109dad11d180b400c04fd430c4",
            "6ba7b810-9dad11d1-80b400c04fd430c4",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "{6ba7b8109dad11d180b400c04fd430c4}",
            "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c4",
        ] {
            assert_eq!(Uuid::parse(form.as_bytes()), Some(id), "{form}");
            assert_eq!(id.to_string(), EXAMPLE);
        }
    }

    #[test]
    fn anything_else_is_no_id() {
        for text in [
            "",
            "x",
            "short",
            "{",
            "{}",
            "urn:uuid:",
            "urn:uuid:11111111-1111-1111-1111",
            "6ba7b810-9dad-11d1-80b4-00c04fd430",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c",
            "6ba7b810-9dad-11d1-80b4-00c04fd430zz",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4x",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4TRAILING",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4}}",
            "6ba7b810--9dad-11d1-80b4-00c04fd430c4",
            "-6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "6b-a7b810-9dad-11d1-80b4-00c04fd430c4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4-",
        ] {
            assert_eq!(Uuid::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_random_id_is_version_4() {
        for random in [[0; 16], [0xff; 16]] {
            let text = Uuid::from_random(random).to_string();
            assert_eq!(text.as_bytes()[14], b'4', "{text}");
            assert!(matches!(text.as_bytes()[19], b'8' | b'b'), "{text}");
        }
        assert_eq!(Uuid::from_random([0; 16]).to_string(), "00000000-0000-4000-8000-000000000000");
        let text = Uuid::from_random([0xff; 16]).to_string();
        assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
