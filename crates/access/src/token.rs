//! The secret that a client presents.

use std::borrow::Cow;
use std::fmt;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sha2::{Digest as _, Sha256};

/// What every token begins with, so that people and programs that look for leaked secrets know it.
const PREFIX: &str = "spindle_";
const RANDOM_BYTES: usize = 32;
/// How many letters of base64 the random bytes are.
const RANDOM_LETTERS: usize = (RANDOM_BYTES * 8).div_ceil(6);

/// A token in clear. Its `Debug` hides it, and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Longer texts are no tokens, and are not even hashed.
    pub const BYTES_MAX: usize = 128;

    /// A new one, of 256 random bits.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers.
    pub fn random() -> io::Result<Token> {
        let mut bytes = [0; RANDOM_BYTES];
        OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
        Ok(Token(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A token as it stands in a file or in the environment, white space around it taken off.
    ///
    /// # Errors
    ///
    /// It is empty, too long, or not of visible ASCII: it could not be sent through every door. The
    /// text does not say what was there.
    pub fn parse(text: &str) -> Result<Token, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("there is no token in it");
        }
        if text.len() > Token::BYTES_MAX {
            return Err("what is in it is too long for a token");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one line of visible ASCII, without spaces");
        }
        Ok(Token(text.to_owned()))
    }

    /// The token itself, to be sent or printed on purpose.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its digest, which the tokens file has.
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(&self.0).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A text that quotes what came from outside, for errors and logs: whatever has the form of a token
/// is `spindle_…`, because somebody may have typed a token in a wrong place. A token that somebody
/// made up has no such form, and is not found.
pub fn hidden(text: &str) -> Cow<'_, str> {
    match hidden_bytes(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        // Only ASCII was replaced, so it is still text.
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// The same of bytes that may be no text.
pub fn hidden_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut shown = Vec::new();
    // What is before this is in `shown`.
    let mut from = 0;
    for found in memmem::find_iter(text, PREFIX) {
        let start = found + PREFIX.len();
        if found < from {
            continue;
        }
        // Letters behind a token may be a part of it: all of them are hidden.
        let letters = text[start..].iter().take_while(is_letter).count();
        if letters >= RANDOM_LETTERS {
            shown.extend_from_slice(&text[from..start]);
            shown.extend_from_slice("…".as_bytes());
            from = start + letters;
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    shown.extend_from_slice(&text[from..]);
    Cow::Owned(shown)
}

/// The SHA-256 of a token's text. It opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of what somebody presents as a token; none if that is too long for one.
    pub fn of(presented: &[u8]) -> Option<Digest> {
        (presented.len() <= Token::BYTES_MAX).then(|| Digest(Sha256::digest(presented).into()))
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Digest> {
        let digits = text.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(*pair.first()?)? << 4 | digit(*pair.last()?)?;
        }
        Some(Digest(digest))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tokens_are_random_and_can_be_sent_through_every_door() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), PREFIX.len() + RANDOM_LETTERS);
        assert_eq!(Token::parse(&format!(" {}\n", one.reveal())), Ok(one.clone()));
        assert_eq!(Digest::of(one.reveal().as_bytes()), Some(one.digest()));
    }

    #[test]
    fn a_digest_is_the_sha_256_that_every_tool_computes() {
        // printf %s abc | sha256sum
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").unwrap().to_string(), hex);
        assert_eq!(Digest::parse(&hex.to_uppercase()), Digest::of(b"abc"));
        for text in ["", &hex[1..], &format!("{hex}0"), &hex.replace('b', "g"), &"é".repeat(32)] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        assert!(Token::parse(&"x".repeat(Token::BYTES_MAX)).is_ok());
        for text in ["", " \n", "two words", "sécret", &"x".repeat(Token::BYTES_MAX + 1)] {
            let reason = Token::parse(text).unwrap_err();
            assert!(text.trim().is_empty() || !reason.contains(text), "{reason}");
        }
        assert_eq!(Digest::of(&[b'x'; Token::BYTES_MAX + 1]), None);
    }

    #[test]
    fn nothing_shows_a_token_by_mistake() {
        let token = Token::parse("sesame").unwrap();
        assert_eq!(format!("{token:?} {:?}", token.digest()), "Token(..) Digest(..)");
    }

    #[test]
    fn a_text_that_quotes_somebody_shows_no_token() {
        let token = Token::random().unwrap();
        let token = token.reveal();
        for (text, shown) in [
            (token.to_owned(), "spindle_…"),
            (format!("cannot read `{token}`: größe"), "cannot read `spindle_…`: größe"),
            (
                format!("/jobs/{token}/{token}?a={token}&b"),
                "/jobs/spindle_…/spindle_…?a=spindle_…&b",
            ),
            // What touches it may be a part of it.
            (format!("x{token}x_-"), "xspindle_…"),
            (format!("{token}{token} spindle_"), "spindle_… spindle_"),
            (format!("spindle_spindle_{token}"), "spindle_…"),
            (format!("{token}."), "spindle_…."),
            (token.to_lowercase(), "spindle_…"),
        ] {
            assert_eq!(hidden(&text), shown, "{text}");
            assert_eq!(*hidden_bytes(text.as_bytes()), *shown.as_bytes(), "{text}");
        }
        let short = &token[..token.len() - 1];
        let many = "spindle_ ".repeat(1000);
        for text in ["", "mail", "spindle_", "spindle_requests_too_fast_total", short, &many] {
            assert!(matches!(hidden(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        let bytes = [b"\xff", token.as_bytes(), b"\xfe"].concat();
        assert_eq!(*hidden_bytes(&bytes), *[b"\xff", "spindle_…".as_bytes(), b"\xfe"].concat());
    }
}
