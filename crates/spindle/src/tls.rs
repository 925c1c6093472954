//! TLS of a running server: its certificate, and which door uses it how.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
    time::SystemTime,
};

use spindle_cluster::NodeTls;
use spindle_tls::client::Trust;
use spindle_tls::{Handshakes, ListenerTls, ServerFiles, ServerTls};

use crate::{
    config::Config,
    exit::{Code, Failure},
};

/// The certificate in force, if there is one, and what nodes of a cluster do with it.
#[derive(Clone, Default)]
pub struct Tls {
    certificate: Option<Arc<ServerTls>>,
    nodes: NodeTls,
}

impl Tls {
    /// Reads the files that the settings name, and says in the log which doors use them and why clients may
    /// refuse the certificate.
    pub fn load(config: &Config) -> anyhow::Result<Self> {
        let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else {
            return Ok(Self::default());
        };
        let (certificate, key) = (certificate.clone(), key.clone());
        let client_ca = config.tls_client_ca.clone();
        let client_certificate_required = false;
        let files = ServerFiles { certificate, key, client_ca, client_certificate_required };
        let loaded = ServerTls::load(files)
            .map_err(|error| Failure::with(Code::Usage, format!("cannot serve TLS: {error}")))?;
        let doors = config.doors();
        let doors = doors.map(|(door, addr)| format!("{door} {}", config.tls_mode(door, addr)));
        let path = loaded.files().certificate.display();
        tracing::info!("TLS with {path}: {}", doors.collect::<Vec<_>>().join(", "));
        loaded.warn_of_flaws(SystemTime::now());
        let certificate = Some(Arc::new(loaded));
        let nodes = match &config.cluster_ca_file {
            None => NodeTls::default(),
            Some(path) => {
                let listener = ListenerTls::new(config.cluster_tls(), certificate.as_ref());
                NodeTls::new(listener, Trust::File(path.clone())).map_err(|error| {
                    Failure::with(Code::Usage, format!("--cluster-ca-file: {error}"))
                })?
            }
        };
        Ok(Self { certificate, nodes })
    }

    /// How nodes of a cluster speak to each other.
    pub fn between_nodes(&self) -> &NodeTls {
        &self.nodes
    }

    /// Whether a door that listens on this address takes encrypted connections, plain ones or both.
    pub fn of_door(&self, config: &Config, door: &str, addr: SocketAddr) -> ListenerTls {
        ListenerTls::new(config.tls_mode(door, addr), self.certificate())
    }

    /// Handshakes since the start, by how they ended; empty without TLS.
    pub fn handshakes(&self) -> Vec<(&'static str, Arc<AtomicU64>)> {
        let Some(tls) = &self.certificate else { return Vec::new() };
        let Handshakes { done, failed } = tls.handshakes().clone();
        vec![("done", done), ("failed", failed)]
    }

    /// Until when the certificate is valid, in seconds since 1970; none without TLS.
    pub fn expires(&self) -> Option<Arc<AtomicU64>> {
        self.certificate.as_ref().map(|tls| Arc::clone(tls.expires()))
    }

    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&Arc<ServerTls>> {
        self.certificate.as_ref()
    }

    /// Reads the files anew, and says in the log what came of it.
    pub fn reload(&self) {
        let Some(tls) = &self.certificate else { return };
        let path = tls.files().certificate.display();
        let now = SystemTime::now();
        match tls.reload(now) {
            Ok(()) => {
                tracing::info!("SIGHUP: new connections get the certificate in {path} now");
                tls.warn_of_flaws(now);
            }
            Err(error) => {
                tracing::error!("SIGHUP: the old certificate stays in force: {error}");
            }
        }
        if let Err(error) = self.nodes.reload() {
            tracing::error!("SIGHUP: other nodes are trusted as before: {error}");
        }
    }
}
