//! The patterns of LIKE and GLOB, matched as SQLite matches them.
//!
//! SQLite's own matcher is not used because it checks no clock, and a pattern of 256 bytes over a
//! long text takes it most of a second. This one asks now and then whether to go on.

use std::ops::RangeInclusive;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;

/// Letters looked at between two questions whether to go on.
const LETTERS: usize = 1 << 14;

/// The letter that stands for an invalid byte, as in SQLite.
const NO_LETTER: u32 = 0xfffd;

/// A pattern that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// None: it matches nothing.
    parts: Option<Vec<Part>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    /// Any letters, also none.
    Many,
    /// Any letter.
    One,
    /// This one; of LIKE's ASCII letters, lower case stands for both cases.
    Letter { letter: u32, any_case: bool },
    /// One of these, or none of these.
    Set { letters: Vec<RangeInclusive<u32>>, negated: bool },
}

impl Pattern {
    /// A pattern of LIKE: `%`, `_`, and letters behind the escape letter.
    pub fn like(pattern: &[u8], escape: Option<u32>) -> Pattern {
        let mut letters = Letters(until_nul(pattern));
        let mut parts = Vec::new();
        while let Some(letter) = letters.next() {
            parts.push(if escape == Some(letter) {
                let Some(letter) = letters.next() else { return Pattern { parts: None } };
                Part::of_like(letter)
            } else {
                match u8::try_from(letter) {
                    Ok(b'%') => Part::Many,
                    Ok(b'_') => Part::One,
                    _ => Part::of_like(letter),
                }
            });
        }
        Pattern { parts: Some(parts) }
    }

    /// A pattern of GLOB: `*`, `?`, and sets between brackets.
    pub fn glob(pattern: &[u8]) -> Pattern {
        let mut letters = Letters(until_nul(pattern));
        let mut parts = Vec::new();
        while let Some(letter) = letters.next() {
            parts.push(match u8::try_from(letter) {
                Ok(b'*') => Part::Many,
                Ok(b'?') => Part::One,
                Ok(b'[') => match set(&mut letters) {
                    Some(set) => set,
                    None => return Pattern { parts: None },
                },
                _ => Part::Letter { letter, any_case: false },
            });
        }
        Pattern { parts: Some(parts) }
    }

    /// Whether a text matches as a whole. None: it was stopped.
    pub fn matches(&self, text: &[u8], mut go_on: impl FnMut() -> bool) -> Option<bool> {
        let Some(parts) = &self.parts else { return Some(false) };
        let text = until_nul(text);
        let (mut at, mut part, mut looked_at) = (0, 0, 0_usize);
        // After the last part that matches any number of letters: the next part, and where it was
        // tried last.
        let mut retry = None;
        loop {
            looked_at += 1;
            if looked_at.is_multiple_of(LETTERS) && !go_on() {
                return None;
            }
            match parts.get(part) {
                None if at == text.len() => return Some(true),
                None => {}
                Some(Part::Many) => {
                    part += 1;
                    if part == parts.len() {
                        return Some(true);
                    }
                    at = parts[part].next_place(text, at);
                    retry = Some((part, at));
                    continue;
                }
                // If an earlier part matched more letters, even fewer would be left for this one.
                Some(_) if at == text.len() => return Some(false),
                Some(one) => {
                    let (letter, bytes) = first_letter(&text[at..]);
                    if one.takes(letter) {
                        (at, part) = (at + bytes, part + 1);
                        continue;
                    }
                }
            }
            let Some((from, tried)) = retry else { return Some(false) };
            if tried == text.len() {
                return Some(false);
            }
            at = parts[from].next_place(text, tried + first_letter(&text[tried..]).1);
            (part, retry) = (from, Some((from, at)));
        }
    }
}

impl Part {
    fn of_like(letter: u32) -> Part {
        match u8::try_from(letter) {
            Ok(byte) if byte.is_ascii_alphabetic() => {
                Part::Letter { letter: byte.to_ascii_lowercase().into(), any_case: true }
            }
            _ => Part::Letter { letter, any_case: false },
        }
    }

    fn takes(&self, text: u32) -> bool {
        match self {
            Part::Many | Part::One => true,
            Part::Letter { letter, any_case: false } => *letter == text,
            Part::Letter { letter, any_case: true } => {
                let byte = u8::try_from(text).unwrap_or_default();
                *letter == u32::from(byte.to_ascii_lowercase())
            }
            Part::Set { letters, negated } => {
                letters.iter().any(|range| range.contains(&text)) != *negated
            }
        }
    }

    /// From here on, the first place that this part may take; the end if there is none.
    fn next_place(&self, text: &[u8], from: usize) -> usize {
        let found = match self {
            Part::Letter { letter, any_case } => match u8::try_from(*letter) {
                Ok(byte) if byte.is_ascii() && *any_case => {
                    memchr::memchr2(byte, byte.to_ascii_uppercase(), &text[from..])
                }
                Ok(byte) if byte.is_ascii() => memchr::memchr(byte, &text[from..]),
                _ => return from,
            },
            Part::Many | Part::One | Part::Set { .. } => return from,
        };
        found.map_or(text.len(), |found| from + found)
    }
}

/// The set behind an opening bracket, up to the closing one. `None` if there is no closing bracket.
fn set(letters: &mut Letters<'_>) -> Option<Part> {
    let mut taken = Vec::new();
    let mut next = letters.next()?;
    let negated = next == u32::from(b'^');
    if negated {
        next = letters.next()?;
    }
    if next == u32::from(b']') {
        taken.push(next..=next);
        next = letters.next()?;
    }
    let mut before = None;
    while next != u32::from(b']') {
        let ends_range = next == u32::from(b'-') && letters.0.first().is_some_and(|b| *b != b']');
        match before {
            Some(first) if ends_range => {
                taken.push(first..=letters.next()?);
                before = None;
            }
            _ => {
                taken.push(next..=next);
                before = Some(next);
            }
        }
        next = letters.next()?;
    }
    Some(Part::Set { letters: taken, negated })
}

/// The letters of a text, one after the other.
struct Letters<'a>(&'a [u8]);

impl Iterator for Letters<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.0.is_empty() {
            return None;
        }
        let (letter, bytes) = first_letter(self.0);
        self.0 = &self.0[bytes..];
        Some(letter)
    }
}

/// The first letter of a text that is not empty, and how many bytes it has.
fn first_letter(text: &[u8]) -> (u32, usize) {
    let lead = text[0];
    if lead < 0xc0 {
        return (if lead < 0x80 { lead.into() } else { NO_LETTER }, 1);
    }
    let bytes = match lead {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    let letter = text.get(..bytes).and_then(|bytes| std::str::from_utf8(bytes).ok());
    match letter.and_then(|letter| letter.chars().next()) {
        Some(letter) => (letter.into(), bytes),
        None => (NO_LETTER, 1),
    }
}

/// SQLite's patterns and their texts end where a byte is zero.
pub fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, params};

    use super::*;

    /// A number from the one before.
    fn next(state: &mut u64) -> usize {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*state >> 33) as usize
    }

    fn word(state: &mut u64, letters: &[&str]) -> String {
        let count = next(state) % 9;
        (0..count).map(|_| letters[next(state) % letters.len()]).collect()
    }

    /// SQLite's own functions give the same results for random patterns and texts.
    #[test]
    fn patterns_match_what_they_match_in_sqlite() {
        const TEXT: &[&str] =
            &["a", "A", "b", "B", "é", "É", "]", "-", "^", "%", "_", "*", "ſ", "K"];
        const LIKE: &[&str] = &["a", "A", "b", "é", "%", "%", "_", "\\", "k", "s"];
        const GLOB: &[&str] =
            &["a", "A", "b", "é", "*", "*", "?", "[", "]", "^", "-", "[a-b]", "[^é]", "[]a]"];
        let db = Connection::open_in_memory().unwrap();
        let mut ask = db.prepare("SELECT ?1 LIKE ?2, ?1 LIKE ?2 ESCAPE '\\', ?1 GLOB ?3").unwrap();
        let (mut state, mut matched) = (3, 0);
        for _ in 0..60_000 {
            let text = word(&mut state, TEXT);
            let (like, glob) = (word(&mut state, LIKE), word(&mut state, GLOB));
            let expected: (bool, bool, bool) = ask
                .query_row(params![text, like, glob], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .unwrap();
            let is = |pattern: Pattern| pattern.matches(text.as_bytes(), || true) == Some(true);
            let found = (
                is(Pattern::like(like.as_bytes(), None)),
                is(Pattern::like(like.as_bytes(), Some(u32::from(b'\\')))),
                is(Pattern::glob(glob.as_bytes())),
            );
            assert_eq!(found, expected, "{text:?} {like:?} {glob:?}");
            matched += usize::from(found.0) + usize::from(found.2);
        }
        assert!(matched > 1_000, "only {matched} matched");
    }

    #[test]
    fn a_match_that_takes_long_can_be_ended() {
        let text = vec![b'a'; 1 << 20];
        let pattern = format!("%{}b%", "a".repeat(250));
        let mut asked = 0;
        let ended = Pattern::like(pattern.as_bytes(), None).matches(&text, || {
            asked += 1;
            asked < 5
        });
        // The letter that is nowhere is looked for once.
        assert_eq!((ended, asked), (None, 5));
        assert_eq!(Pattern::like(b"%b%a%", None).matches(&text, || false), Some(false));
    }

    #[test]
    fn what_stands_behind_a_zero_byte_does_not_count() {
        assert_eq!(Pattern::like(b"a\0b", None).matches(b"a\0c", || true), Some(true));
        assert_eq!(Pattern::glob(b"a[b\0]").matches(b"ab", || true), Some(false));
        assert_eq!(Pattern::glob(b"\xff?").matches(b"\xfe\xff", || true), Some(true));
    }
}
