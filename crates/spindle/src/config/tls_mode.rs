//! Which connections a door takes.

use std::{fmt, net::SocketAddr};

use super::address::{Loopback, loopback};

/// Which connections a door takes.
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
    /// What holds for an address when there is a certificate and nobody says anything.
    pub fn usual(addr: SocketAddr) -> TlsMode {
        match loopback(addr) {
            Loopback::Yes => TlsMode::Optional,
            Loopback::No => TlsMode::Required,
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
