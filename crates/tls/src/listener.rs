//! What a listener makes of a connection.

use std::sync::Arc;

use crate::mode::TlsMode;
use crate::server::ServerTls;

/// How a listener takes connections.
#[derive(Clone, Debug, Default)]
pub enum ListenerTls {
    /// In plain bytes only.
    #[default]
    Off,
    /// As the client likes.
    Optional(Arc<ServerTls>),
    /// Encrypted only.
    Required(Arc<ServerTls>),
}

/// What a connection's first byte says.
#[derive(Clone, Debug)]
pub enum FirstByte {
    /// The client speaks in plain bytes, and may.
    Plain,
    /// The client speaks in plain bytes, and may not.
    Refused,
    /// The client begins a handshake.
    Handshake(Arc<ServerTls>),
}

impl ListenerTls {
    /// How a listener of this mode takes connections. Without a certificate: in plain bytes.
    pub fn new(mode: TlsMode, tls: Option<&Arc<ServerTls>>) -> ListenerTls {
        match (tls, mode) {
            (None, _) | (_, TlsMode::Off) => ListenerTls::Off,
            (Some(tls), TlsMode::Optional) => ListenerTls::Optional(Arc::clone(tls)),
            (Some(tls), TlsMode::Required) => ListenerTls::Required(Arc::clone(tls)),
        }
    }

    /// Judges a connection by its first byte. No protocol of the doors begins with that of TLS.
    pub fn judge(&self, byte: u8) -> FirstByte {
        match self {
            ListenerTls::Off => FirstByte::Plain,
            ListenerTls::Optional(tls) | ListenerTls::Required(tls) if byte == TLS_FIRST_BYTE => {
                FirstByte::Handshake(Arc::clone(tls))
            }
            ListenerTls::Optional(_) => FirstByte::Plain,
            ListenerTls::Required(_) => FirstByte::Refused,
        }
    }

    /// The certificate, unless every connection is plain.
    pub fn server(&self) -> Option<&Arc<ServerTls>> {
        match self {
            ListenerTls::Off => None,
            ListenerTls::Optional(tls) | ListenerTls::Required(tls) => Some(tls),
        }
    }

    /// Whether every connection is encrypted.
    pub fn is_required(&self) -> bool {
        matches!(self, ListenerTls::Required(_))
    }

    /// Whether every connection is plain, so that no byte is needed to judge it.
    pub fn is_off(&self) -> bool {
        matches!(self, ListenerTls::Off)
    }
}

/// A record of the handshake (RFC 8446, 5.1).
pub const TLS_FIRST_BYTE: u8 = 0x16;
