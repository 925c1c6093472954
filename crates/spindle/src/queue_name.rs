//! Names of queues, as they are typed and printed: any bytes, in one line of text.
//!
//! Text stands as it is. A backslash is written `\\`; a byte that is not text, or that a terminal
//! would not show as a letter, is written `\xNN`. A printed name can be typed again.

use std::{
    fmt::{self, Write as _},
    str::FromStr,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Map, Value};
use spindle_core::queue::QUEUE_NAME_BYTES_MAX;

use crate::output::{is_shown, put_bytes};

/// A queue's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueName(Bytes);

impl QueueName {
    /// A name as a server shows it.
    pub fn of(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// A name as the native API shows it: text, or base64 where it is none.
    pub fn from_api(text: Option<&str>, base64: Option<&str>) -> Self {
        let decoded = || BASE64_STANDARD.decode(base64.unwrap_or_default()).unwrap_or_default();
        Self(text.map_or_else(|| decoded().into(), |text| Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Puts it into an object as the native API takes and shows it: as a text `name`, or as
    /// `name_base64` if it is none.
    pub fn put(&self, object: &mut Map<String, Value>, name: &str) {
        put_bytes(object, name, &self.0);
    }

    /// The field that [`Self::put`] puts, for the query part of a URL.
    pub fn field(&self) -> (&'static str, String) {
        match str::from_utf8(&self.0) {
            Ok(text) => ("queue", text.to_owned()),
            Err(_) => ("queue_base64", BASE64_STANDARD.encode(&self.0)),
        }
    }

    /// Its path in the native API.
    pub fn path(&self) -> String {
        format!("/api/v1/queues/{}", percent_encode(&self.0, NON_ALPHANUMERIC))
    }

    /// As a word of a command that is typed into a shell.
    pub fn for_shell(&self) -> String {
        let text = self.to_string();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/@%+=,".contains(&byte);
        if text.bytes().all(is_plain) && !text.starts_with('-') {
            return text;
        }
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

impl AsRef<[u8]> for QueueName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    letter if is_shown(letter) => f.write_char(letter)?,
                    letter => hex(f, letter.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            hex(f, chunk.invalid())?;
        }
        Ok(())
    }
}

impl FromStr for QueueName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            if byte != b'\\' {
                bytes.push(byte);
                continue;
            }
            let (byte, len) = match behind {
                [b'\\', ..] => (Some(b'\\'), 1),
                [b'x', high, low, ..] => (hex(*high, *low), 3),
                _ => (None, 0),
            };
            bytes.push(byte.ok_or_else(|| {
                "in a queue's name a backslash is written \\\\, and any byte \\xNN".to_owned()
            })?);
            rest = behind.get(len..).unwrap_or_default();
        }
        if (1..=QUEUE_NAME_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes.into()));
        }
        Err(format!("a queue's name has 1 to {QUEUE_NAME_BYTES_MAX} bytes"))
    }
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<Vec<u8>> {
        text.parse::<QueueName>().ok().map(|name| name.bytes().to_vec())
    }

    #[test]
    fn any_byte_can_be_typed() {
        for (text, bytes) in [
            ("mail", &b"mail"[..]),
            ("grüße an/alle?", "grüße an/alle?".as_bytes()),
            (r"\xff\x00\x0A", b"\xff\x00\n"),
            (r"C:\\queues\\x41", br"C:\queues\x41"),
            (r"\x5c\\", br"\\"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["", r"\", r"a\b", r"\x", r"\x4", r"\xg0", r"\x+1", r"\n", r"\X41"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert!(parsed(&r"\xff".repeat(512)).is_some());
        assert!(parsed(&r"\xff".repeat(513)).is_none());
    }

    #[test]
    fn a_name_neither_breaks_a_line_nor_steers_a_terminal() {
        for (bytes, text) in [
            (&b"mail"[..], "mail"),
            ("grüße".as_bytes(), "grüße"),
            (b"a\\b", r"a\\b"),
            (b"a\tb\n\x1b[2J", r"a\x09b\x0a\x1b[2J"),
            (b"\xffx\xc3", r"\xffx\xc3"),
            ("\u{202e}x\u{9b}".as_bytes(), r"\xe2\x80\xaex\xc2\x9b"),
        ] {
            assert_eq!(QueueName::of(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_suggested_command_can_be_pasted_into_a_shell() {
        let word = |bytes: &'static [u8]| QueueName::of(bytes).for_shell();
        assert_eq!(word(b"mail.eu/1"), "mail.eu/1");
        assert_eq!(word(b"a b"), "'a b'");
        assert_eq!(word(b"it's \xff"), r"'it'\''s \xff'");
        assert_eq!(word(b"$(rm)"), "'$(rm)'");
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_typed_again(bytes in prop::collection::vec(any::<u8>(), 1..=64)) {
            let name = QueueName::of(bytes.clone());
            prop_assert_eq!(parsed(&name.to_string()), Some(bytes));
        }

        #[test]
        fn texts_are_printed_so_that_they_can_be_typed_again(text in "\\PC{1,40}|.{1,40}") {
            let name = QueueName::of(text.clone());
            prop_assert_eq!(parsed(&name.to_string()), Some(text.into_bytes()));
        }
    }
}
