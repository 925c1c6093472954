//! TLS of a running server: its certificate, and which door uses it how.

use std::{net::SocketAddr, sync::Arc};

use spindle_tls::{ListenerTls, ServerFiles, ServerTls};

use crate::{
    config::{Config, TlsMode},
    exit::{Code, Failure},
};

/// An address that a door listens on, and how its clients may speak there.
#[derive(Debug, Clone)]
pub struct Place {
    /// The address.
    pub addr: SocketAddr,
    /// How clients may speak.
    pub tls: ListenerTls,
}

/// The certificate in force, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Tls(Option<Arc<ServerTls>>);

impl Tls {
    /// Reads the files that the settings name, and says in the log which doors use them.
    pub fn load(config: &Config) -> anyhow::Result<Self> {
        let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else {
            return Ok(Self(None));
        };
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = ServerFiles { certificate, key, client_ca: config.tls_client_ca.clone() };
        let loaded = ServerTls::load(files)
            .map_err(|error| Failure::with(Code::Usage, format!("cannot serve TLS: {error}")))?;
        let doors = config.doors();
        let doors = doors.map(|(door, addr)| format!("{door} {}", config.tls_mode(door, addr)));
        let path = loaded.files().certificate.display();
        tracing::info!("TLS with {path}: {}", doors.collect::<Vec<_>>().join(", "));
        Ok(Self(Some(Arc::new(loaded))))
    }

    /// Where a door listens, and how.
    pub fn place(&self, config: &Config, door: &str, addr: SocketAddr) -> Place {
        let tls = match (&self.0, config.tls_mode(door, addr)) {
            (None, _) | (_, TlsMode::Off) => ListenerTls::Off,
            (Some(tls), TlsMode::Optional) => ListenerTls::Optional(Arc::clone(tls)),
            (Some(tls), TlsMode::Required) => ListenerTls::Required(Arc::clone(tls)),
        };
        Place { addr, tls }
    }

    /// Reads the files anew, and says in the log what came of it.
    pub fn reload(&self) {
        let Some(tls) = &self.0 else {
            tracing::info!("SIGHUP: there is no certificate to read anew");
            return;
        };
        let path = tls.files().certificate.display();
        match tls.reload() {
            Ok(()) => tracing::info!("SIGHUP: new connections get the certificate in {path} now"),
            Err(error) => {
                tracing::error!("SIGHUP: the old certificate stays in force: {error}");
            }
        }
    }
}
