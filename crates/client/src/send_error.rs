//! Why a request has no answer.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Why the bytes received are no answer to a request over plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHttp {
    /// The other side speaks TLS.
    #[error("it speaks TLS")]
    Tls,
    /// It speaks something else, which begins like this.
    #[error("it does not speak HTTP: {}", String::from_utf8_lossy(.0))]
    Other(Vec<u8>),
    /// It begins like HTTP, but does not continue as HTTP.
    #[error("it does not speak HTTP ({0})")]
    Broken(String),
}

impl NotHttp {
    /// Judges the first bytes of an answer.
    pub(crate) fn check(bytes: &[u8]) -> Result<(), Self> {
        // An alert or a handshake of version 3.
        if let [21 | 22, 3, ..] = bytes {
            return Err(Self::Tls);
        }
        let begin = b"HTTP/";
        let known = bytes.len().min(begin.len());
        if bytes.get(..known) == begin.get(..known) {
            return Ok(());
        }
        Err(Self::Other(bytes.to_vec()))
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no connection, so the server has not received the request.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The connection ended before the answer was there.
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
    /// No answer came in time.
    #[error("no answer came within {} s", .0.as_secs())]
    Silent(Duration),
    /// TLS: most often a certificate that is not trusted.
    #[error("TLS failed: {0}")]
    Tls(#[source] rustls::Error),
    /// What is there speaks another protocol.
    #[error(transparent)]
    NotHttp(NotHttp),
    /// The answer is longer than any answer of the API.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The request cannot be written: its path or one of its headers has characters that HTTP does
    /// not allow.
    #[error("no request can be made of this: {0}")]
    Unwritable(String),
}

impl SendError {
    /// Whether the server may have received the request, and done what it asks for.
    #[must_use]
    pub fn maybe_received(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Silent(_) | Self::TooLong(_))
    }

    /// Whether the same request may succeed later, without anybody having changed a setting.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            // An invalid address stays invalid.
            Self::Connect(error) => error.kind() != ErrorKind::InvalidInput,
            Self::Lost(_) | Self::Silent(_) => true,
            Self::Tls(_) | Self::NotHttp(_) | Self::TooLong(_) | Self::Unwritable(_) => false,
        }
    }

    /// What a handshake of TLS failed with.
    pub(crate) fn of_handshake(error: io::Error) -> Self {
        match tls_error(&error) {
            Some(error) => Self::Tls(error.clone()),
            None => Self::Connect(error),
        }
    }

    /// What a conversation in HTTP failed with.
    pub(crate) fn of_http(error: &hyper::Error) -> Self {
        if let Some(cause) = io_cause(error) {
            let inner = cause.get_ref();
            if let Some(other) = inner.and_then(|inner| inner.downcast_ref::<NotHttp>()) {
                return Self::NotHttp(other.clone());
            }
            if let Some(error) = tls_error(cause) {
                return Self::Tls(error.clone());
            }
            let same = cause.raw_os_error().map(io::Error::from_raw_os_error);
            let same = same.unwrap_or_else(|| io::Error::new(cause.kind(), cause.to_string()));
            return Self::Lost(same);
        }
        if error.is_incomplete_message() {
            return Self::Lost(ErrorKind::UnexpectedEof.into());
        }
        if error.is_parse() {
            return Self::NotHttp(NotHttp::Broken(error.to_string()));
        }
        let lost = io::Error::new(ErrorKind::ConnectionAborted, error.to_string());
        // The connection was closed before it took the request from us.
        if error.is_canceled() { Self::Connect(lost) } else { Self::Lost(lost) }
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn io_cause(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_first_bytes() {
        for bytes in [&b"HTTP/1.1 200 OK"[..], b"HTTP/", b"H", b""] {
            assert!(NotHttp::check(bytes).is_ok(), "{bytes:?}");
        }
        for bytes in [&b"\x15\x03\x03\0\x02\x02\x46"[..], b"\x16\x03"] {
            assert!(matches!(NotHttp::check(bytes), Err(NotHttp::Tls)), "{bytes:?}");
        }
        for bytes in [&b"-CLIENT-ERROR"[..], b"HTTX", b"\x15\x02", b"\x15"] {
            assert!(matches!(NotHttp::check(bytes), Err(NotHttp::Other(_))), "{bytes:?}");
        }
    }
}
