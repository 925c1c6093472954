//! Whose certificates the other side may have.

use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Who vouches for the certificates of those that are reached over TLS.
#[derive(Clone, Debug, Default)]
pub enum Authorities {
    /// Those that browsers trust.
    #[default]
    Public,
    /// Only these.
    Own(Vec<Certificate<'static>>),
}

/// Why a text names no authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// It is damaged.
    #[error("it is no PEM: {0}")]
    NoPem(String),
    /// There is none.
    #[error("it holds no certificate")]
    None,
}

impl Authorities {
    /// The certificates in a text of PEM. Other things in it are passed over.
    pub fn of_pem(text: &[u8]) -> Result<Authorities, AuthoritiesError> {
        let mut certificates = Vec::new();
        for item in parse_pem(text) {
            let item = item.map_err(|error| AuthoritiesError::NoPem(error.to_string()))?;
            if let PemItem::Certificate(certificate) = item {
                certificates.push(certificate);
            }
        }
        if certificates.is_empty() {
            return Err(AuthoritiesError::None);
        }
        Ok(Authorities::Own(certificates))
    }

    /// The same for the HTTP library.
    pub fn roots(&self) -> RootCerts {
        match self {
            Authorities::Public => RootCerts::WebPki,
            Authorities::Own(certificates) => RootCerts::new_with_certs(certificates),
        }
    }
}
