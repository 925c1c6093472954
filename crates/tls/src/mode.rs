//! Which connections a listener takes.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Which connections a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain ones.
    Off,
    /// Plain and encrypted ones.
    Optional,
    /// Encrypted ones.
    Required,
}

impl TlsMode {
    /// The words that [`TlsMode::from_str`] reads.
    pub const WORDS: &str = "off, optional or required";

    /// The mode of an address when there is a certificate and no setting: clients of this machine may
    /// speak in plain bytes, others may not.
    pub fn usual(address: SocketAddr) -> TlsMode {
        if address.ip().to_canonical().is_loopback() {
            TlsMode::Optional
        } else {
            TlsMode::Required
        }
    }
}

/// A word that names no mode.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write {}", TlsMode::WORDS)]
pub struct NoTlsMode;

impl FromStr for TlsMode {
    type Err = NoTlsMode;

    fn from_str(text: &str) -> Result<TlsMode, NoTlsMode> {
        match text {
            "off" => Ok(TlsMode::Off),
            "optional" => Ok(TlsMode::Optional),
            "required" => Ok(TlsMode::Required),
            _ => Err(NoTlsMode),
        }
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsMode::Off => "off",
            TlsMode::Optional => "optional",
            TlsMode::Required => "required",
        })
    }
}
