//! Which authorities may have signed the certificate of the other side.

use std::path::Path;

use spindle_tls::{FileError, client::read_authorities};
use ureq::tls::{Certificate, RootCerts};

/// The authorities that vouch for the certificates of receivers reached over TLS. By default those that
/// browsers trust.
#[derive(Clone, Debug)]
pub struct Authorities(RootCerts);

impl Default for Authorities {
    fn default() -> Authorities {
        Authorities(RootCerts::WebPki)
    }
}

impl Authorities {
    /// Only those in a file of PEM.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(path: &Path) -> Result<Authorities, FileError> {
        let read = read_authorities(path)?;
        let certificates: Vec<_> =
            read.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
        Ok(Authorities(RootCerts::new_with_certs(&certificates)))
    }

    /// The same for the HTTP library.
    pub(crate) fn roots(&self) -> RootCerts {
        self.0.clone()
    }
}
