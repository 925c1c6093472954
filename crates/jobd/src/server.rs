//! The listening side that the worker and the master share: addresses, the password, limits.

use std::{io, net::SocketAddr, sync::Arc};

use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tracing::{debug, info, warn};

use crate::{
    link::{Link, Responder},
    wire::Request,
};

/// Who may ask for something.
#[derive(Clone, Default)]
pub struct Gate {
    /// The password that a connection's first request must carry.
    pub password: Option<String>,
    /// Whether a peer on a loopback address needs none.
    pub always_allow_localhost: bool,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("has_password", &self.password.is_some())
            .field("always_allow_localhost", &self.always_allow_localhost)
            .finish()
    }
}

impl Gate {
    /// Whether a connection from this address may go on with this first request.
    pub fn admits(&self, remote: SocketAddr, password: Option<&str>) -> bool {
        let Some(wanted) = &self.password else { return true };
        if self.always_allow_localhost && remote.ip().to_canonical().is_loopback() {
            return true;
        }
        let given = password.unwrap_or_default();
        bool::from(wanted.as_bytes().ct_eq(given.as_bytes()))
    }
}

/// What a listener may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; further ones are closed at once.
    pub connections_max: usize,
    /// Bytes of one message from a client.
    pub message_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 1024, message_bytes_max: 16 * 1024 * 1024 }
    }
}

/// Whoever answers requests.
pub trait Service: Send + Sync + 'static {
    /// Takes one request of a peer that may ask; must not block.
    fn request(&self, request: Request, responder: Responder);

    /// A connection was accepted.
    fn opened(&self, _link: &Link) {}

    /// A connection that was served has ended.
    fn closed(&self, _link: &Link) {}
}

/// Why a daemon cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// The address is taken or not this machine's.
    #[error("cannot listen at {address}: {cause}; change host or port in the configuration")]
    Listen {
        /// `host:port` as configured.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The address can be reached from outside and anybody could start jobs.
    #[error(
        "{address} can be reached from other machines and no password is set; \
         set password, or allow it with insecure = 1 or --insecure"
    )]
    Open {
        /// The address that was resolved.
        address: SocketAddr,
    },
}

/// Claims `host:port`. An address that other machines can reach needs a password, unless
/// `insecure`.
///
/// # Errors
/// [`BindError`].
pub async fn bind(
    host: &str,
    port: u16,
    has_password: bool,
    insecure: bool,
) -> Result<TcpListener, BindError> {
    let failed = |cause| BindError::Listen { address: format!("{host}:{port}"), cause };
    let listener = TcpListener::bind((host, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if !address.ip().to_canonical().is_loopback() && !has_password && !insecure {
        return Err(BindError::Open { address });
    }
    Ok(listener)
}

/// Accepts connections until `stop` becomes true; those that are open then stay.
pub async fn serve(
    listener: TcpListener,
    gate: Gate,
    limits: Limits,
    service: Arc<dyn Service>,
    mut stop: watch::Receiver<bool>,
) {
    let gate = Arc::new(gate);
    let places = Arc::new(Semaphore::new(limits.connections_max));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: some have to close before the next try helps.
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            debug!(connections_max = limits.connections_max, "too many connections, one closed");
            continue;
        };
        let (gate, service) = (Arc::clone(&gate), Arc::clone(&service));
        tokio::spawn(async move {
            attend(stream, &gate, limits, service).await;
            drop(place);
        });
    }
}

async fn attend(stream: TcpStream, gate: &Gate, limits: Limits, service: Arc<dyn Service>) {
    let Ok((link, connection)) = Link::open(stream, limits.message_bytes_max) else { return };
    debug!(peer = %link.remote(), "connected");
    service.opened(&link);
    let mut is_admitted = false;
    let mut is_refused = false;
    connection
        .run(|request, responder| {
            if is_refused {
                return;
            }
            is_admitted |= gate.admits(responder.link().remote(), request.password.as_deref());
            if is_admitted {
                service.request(request, responder);
                return;
            }
            is_refused = true;
            info!(peer = %responder.link().remote(), "invalid password");
            let link = responder.link().clone();
            responder.error("invalid password");
            link.close();
        })
        .await;
    service.closed(&link);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(always_allow_localhost: bool) -> Gate {
        Gate { password: Some("sesame".to_owned()), always_allow_localhost }
    }

    #[test]
    fn only_the_whole_password_opens() {
        let far = "192.0.2.1:5".parse().unwrap();
        assert!(gate(false).admits(far, Some("sesame")));
        for wrong in [None, Some(""), Some("sesam"), Some("sesame!"), Some("SESAME")] {
            assert!(!gate(false).admits(far, wrong), "{wrong:?}");
        }
        assert!(Gate::default().admits(far, None));
    }

    #[test]
    fn localhost_needs_no_password_when_it_is_always_allowed() {
        for near in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(gate(true).admits(near.parse().unwrap(), None), "{near}");
            assert!(!gate(false).admits(near.parse().unwrap(), None), "{near}");
        }
        assert!(!gate(true).admits("192.0.2.1:5".parse().unwrap(), None));
    }

    #[tokio::test]
    async fn an_open_address_without_a_password_is_refused_unless_told_otherwise() {
        let refused = bind("0.0.0.0", 0, false, false).await;
        assert!(matches!(refused, Err(BindError::Open { .. })), "{refused:?}");
        assert!(bind("0.0.0.0", 0, true, false).await.is_ok());
        assert!(bind("0.0.0.0", 0, false, true).await.is_ok());
        assert!(bind("127.0.0.1", 0, false, false).await.is_ok());
    }
}
