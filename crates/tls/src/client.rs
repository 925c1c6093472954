//! Which servers our clients trust, and how they identify themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::files::{FileError, authorities, certificates, private_key, unusable};

/// Who has to vouch for the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that browsers trust.
    #[default]
    Public,
    /// One of the certificates in this file.
    File(PathBuf),
    /// Nobody: the connection is encrypted, and the other side may be anybody.
    Anybody,
}

/// Who the client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, followed by those that lead to an authority; PEM.
    pub certificate: PathBuf,
    /// The private key of the first certificate; PEM.
    pub key: PathBuf,
}

/// The files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Who has to vouch for the server.
    pub trust: Trust,
    /// Who the client is, if the server asks.
    pub identity: Option<Identity>,
}

impl Identity {
    /// Reads both files.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn read(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), FileError> {
        Ok((certificates(&self.certificate)?, private_key(&self.key)?))
    }
}

/// The certificates of authorities in a file.
///
/// # Errors
/// What is wrong with the file; also when there is none.
pub fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    certificates(path)
}

impl ClientFiles {
    /// The rustls configuration for connections.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn config(&self) -> Result<ClientConfig, FileError> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            Trust::Anybody => Arc::new(Anybody { provider: Arc::clone(&provider) }),
            Trust::Public => {
                let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
                verifier(roots, &provider, Path::new("the public authorities"))?
            }
            Trust::File(path) => verifier(authorities(path)?, &provider, path)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(Path::new("TLS"), error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some(identity) = &self.identity else { return Ok(config.with_no_client_auth()) };
        let (chain, key) = identity.read()?;
        config.with_client_auth_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => FileError::Mismatch {
                key: identity.key.clone(),
                certificate: identity.certificate.clone(),
            },
            other => unusable(&identity.certificate, other),
        })
    }
}

fn verifier(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
    path: &Path,
) -> Result<Arc<WebPkiServerVerifier>, FileError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| unusable(path, error))
}

/// Takes any certificate. It is still checked that the server has the certificate's key.
#[derive(Debug)]
struct Anybody {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
