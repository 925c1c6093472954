//! Encrypted connections to databases.

use rustls::ClientConfig;
use rustls::crypto::ring;
use spindle_tls::client::{ClientFiles, Identity, Trust};

use super::settings::{Tls, TlsMode};

/// Sets the process's default cryptography, for drivers that take the default.
pub(super) fn set_up() {
    // Fails when a default is set already.
    let _ = ring::default_provider().install_default();
}

/// What a driver needs to open a connection of this kind.
///
/// # Errors
/// What is wrong with the files.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, String> {
    let trust = match (tls.mode, &tls.roots) {
        (TlsMode::Disable | TlsMode::Require, _) => Trust::Anybody,
        (TlsMode::VerifyFull, None) => Trust::Public,
        (TlsMode::VerifyFull, Some(path)) => Trust::File(path.clone()),
    };
    let identity = tls.identity.clone();
    let identity = identity.map(|(certificate, key)| Identity { certificate, key });
    ClientFiles { trust, identity }.config().map_err(|error| error.to_string())
}
