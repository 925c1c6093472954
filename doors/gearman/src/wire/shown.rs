//! Names in text answers: bytes that could end a field or a line, or that a terminal would
//! interpret, are written as `\xNN`, and commands read that again.
//!
//! What is written this way: what is no UTF-8, control characters (C0, DEL, C1), the line and
//! paragraph separators, and the characters that turn the direction of writing. A backslash stays a
//! backslash, because names with some are common (`App\Mailer`), except where it would be read as
//! such an escape: there it is `\x5c`. So every name is shown in one way, and reads back as itself.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends a name as it is shown.
pub(super) fn put_shown(out: &mut BytesMut, name: &[u8]) {
    if name.iter().all(|byte| matches!(byte, b' '..=b'[' | b']'..=b'~')) {
        out.put_slice(name);
        return;
    }
    let mut rest = name;
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let (bytes, behind) = rest.split_at(letter.len_utf8());
            if is_interpreted(letter) || escape_at(rest).is_some() {
                put_escaped(out, bytes);
            } else {
                out.put_slice(bytes);
            }
            rest = behind;
        }
        put_escaped(out, chunk.invalid());
        rest = &rest[chunk.invalid().len()..];
    }
}

/// Appends bytes as `\xNN`.
pub(super) fn put_escaped(out: &mut BytesMut, bytes: &[u8]) {
    for byte in bytes {
        let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        out.put_slice(&[b'\\', b'x', high, low]);
    }
}

/// The name of a word that was shown.
pub(super) fn read_shown(word: &[u8]) -> Cow<'_, [u8]> {
    let mut name = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &word[at..]) {
        at += found;
        match escape_at(&word[at..]) {
            Some(byte) => {
                name.extend_from_slice(&word[from..at]);
                name.push(byte);
                at += 4;
                from = at;
            }
            None => at += 1,
        }
    }
    if from == 0 {
        return Cow::Borrowed(word);
    }
    name.extend_from_slice(&word[from..]);
    Cow::Owned(name)
}

/// The byte of the escape these bytes begin with.
fn escape_at(bytes: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    match bytes {
        [b'\\', b'x', high, low, ..] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    }
}

/// Whether a reader or a terminal would interpret it as more than a letter.
fn is_interpreted(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}')
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_shown(&mut out, name);
        out.to_vec()
    }

    #[track_caller]
    fn shows(name: impl AsRef<[u8]>, expected: &str) {
        let name = name.as_ref();
        assert_eq!(
            shown(name).escape_ascii().to_string(),
            expected.as_bytes().escape_ascii().to_string()
        );
        assert_eq!(read_shown(expected.as_bytes()), name, "{expected}");
    }

    #[test]
    fn what_ends_a_line_or_moves_a_cursor_is_escaped() {
        shows("a\tb\r\nc\0", r"a\x09b\x0d\x0ac\x00");
        shows("\x1b[2J\x7f\x08", r"\x1b[2J\x7f\x08");
        // CSI as one character, and as one byte for terminals that do not speak UTF-8.
        shows("\u{9b}2J", r"\xc2\x9b2J");
        shows(b"\x9b2J\xff", r"\x9b2J\xff");
        shows("a\u{85}b\u{2028}c\u{202e}d", r"a\xc2\x85b\xe2\x80\xa8c\xe2\x80\xaed");
        // Cut off in the middle of a letter.
        shows(b"ok \xe2\x82", r"ok \xe2\x82");
    }

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for name in ["mail", "my name", "größe ✉", r"App\Mailer", r"\x", r"a\x0", r"\\", r"\X41"]
        {
            shows(name, name);
        }
    }

    #[test]
    fn a_backslash_that_would_begin_an_escape_is_escaped() {
        shows(r"App\xDebug", r"App\x5cxDebug");
        shows(r"\\x41", r"\\x5cx41");
        shows(r"\x5cx41", r"\x5cx5cx41");
    }

    #[test]
    fn every_name_reads_back_as_itself_and_no_two_are_shown_alike() {
        let letters = [&b"\\"[..], b"x", b"5", b"c", b"4", b"1", b"\n", b"\xc2", b"\x9b", b"A"];
        let mut seen = std::collections::BTreeSet::new();
        let mut names = vec![Vec::new()];
        for _ in 0..5 {
            names = names
                .iter()
                .flat_map(|name| letters.map(|letter| [&name[..], letter].concat()))
                .collect();
            for name in &names {
                let shown = shown(name);
                assert_eq!(read_shown(&shown), &name[..], "{}", name.escape_ascii());
                assert!(seen.insert(shown), "{}", name.escape_ascii());
            }
        }
    }
}
