//! The signature of a delivery: a receiver with the secret can tell that it is ours, and how old it is.

use std::fmt::{self, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Where the signature stands: `t=1767323045,v1=5257a8...`.
pub const SIGNATURE_HEADER: &str = "Spindle-Signature";
/// A shorter secret can be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// What sender and receiver know, and nobody else. Never shown.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Why a secret will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook's secret has at least {SECRET_BYTES_MIN} bytes; line ends do not count")]
pub struct SecretError;

impl Secret {
    /// A secret as it stands in a file: the line end behind it is not part of it.
    pub fn new(text: &[u8]) -> Result<Secret, SecretError> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() < SECRET_BYTES_MIN {
            return Err(SecretError);
        }
        Ok(Secret(text.to_vec()))
    }

    /// The header's value for a body sent at this time, in seconds since 1970: the time, and
    /// HMAC-SHA256 of the time, a dot and the body.
    pub fn sign(&self, time_s: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(time_s.to_string().as_bytes());
        mac.update(b".");
        mac.update(body);
        let mut signature = format!("t={time_s},v1=");
        for byte in mac.finalize().into_bytes() {
            // Writing into a string cannot fail.
            let _ = write!(signature, "{byte:02x}");
        }
        signature
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `printf '1767323045.{"a":1}' | openssl dgst -sha256 -hmac SECRET`.
    #[test]
    fn a_signature_is_what_other_tools_compute() {
        let secret = Secret::new(b"0123456789abcdef\n").unwrap();
        assert_eq!(
            secret.sign(1_767_323_045, br#"{"a":1}"#),
            "t=1767323045,v1=4c32cf781f3565724c268f18d7bc9ba04dd466529b0127d152f7e9f20a8ea5e0"
        );
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        assert!(Secret::new(b"").is_err());
        assert!(Secret::new(b"0123456789abcde\r\n").is_err());
        assert!(Secret::new(b"0123456789abcdef\r\n").is_ok());
    }
}
