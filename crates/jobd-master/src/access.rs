//! Who may ask a daemon for something: the password, and the time to show it.

use std::{
    fmt,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use subtle::ConstantTimeEq;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use crate::{link::Responder, wire::Request};

/// Who may ask for something.
#[derive(Clone, Default)]
pub struct Access {
    /// The password that a connection's first request must carry.
    pub password: Option<String>,
    /// Whether a peer on a loopback address needs none.
    pub always_allow_localhost: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("has_password", &self.password.is_some())
            .field("always_allow_localhost", &self.always_allow_localhost)
            .finish()
    }
}

impl Access {
    /// The password that a peer at this address needs.
    fn wanted(&self, remote: SocketAddr) -> Option<&str> {
        let is_free = self.always_allow_localhost && remote.ip().to_canonical().is_loopback();
        self.password.as_deref().filter(|_| !is_free)
    }

    /// Whether a connection from this address may go on with this first request.
    pub fn admits(&self, remote: SocketAddr, password: Option<&str>) -> bool {
        let Some(wanted) = self.wanted(remote) else { return true };
        let given = password.unwrap_or_default();
        bool::from(wanted.as_bytes().ct_eq(given.as_bytes()))
    }
}

/// Whether the peer of one connection was admitted.
pub(crate) struct Admission {
    access: Arc<Access>,
    peer: SocketAddr,
    is_admitted: AtomicBool,
}

impl Admission {
    pub fn new(access: Arc<Access>, peer: SocketAddr) -> Self {
        let is_admitted = AtomicBool::new(access.wanted(peer).is_none());
        Self { access, peer, is_admitted }
    }

    /// A peer that needs no password is admitted from the beginning.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// Wraps `serve` so that it only gets the requests of an admitted peer. The first request that is
    /// not admitted is refused and closes the connection.
    pub fn guard(
        &self,
        mut serve: impl FnMut(Request, Responder),
    ) -> impl FnMut(Request, Responder) {
        let mut is_refused = false;
        move |request, responder| {
            if is_refused {
                return;
            }
            let password = request.password.as_deref();
            if self.is_admitted() || self.access.admits(self.peer, password) {
                self.is_admitted.store(true, Ordering::Relaxed);
                return serve(request, responder);
            }
            is_refused = true;
            info!(peer = %self.peer, "invalid password");
            let link = responder.link().clone();
            responder.error("invalid password");
            link.close();
        }
    }

    /// Ready at that time if the peer is not admitted then; otherwise never.
    pub async fn is_late(&self, by: Instant) {
        sleep_until(by).await;
        if self.is_admitted() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(always_allow_localhost: bool) -> Access {
        Access { password: Some("sesame".to_owned()), always_allow_localhost }
    }

    #[test]
    fn only_the_whole_password_opens() {
        let far = "192.0.2.1:5".parse().unwrap();
        assert!(access(false).admits(far, Some("sesame")));
        for wrong in [None, Some(""), Some("sesam"), Some("sesame!"), Some("SESAME")] {
            assert!(!access(false).admits(far, wrong), "{wrong:?}");
        }
        assert!(Access::default().admits(far, None));
    }

    #[test]
    fn localhost_needs_no_password_when_it_is_always_allowed() {
        for near in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            let near = near.parse().unwrap();
            assert!(access(true).admits(near, None), "{near}");
            assert!(!access(false).admits(near, None), "{near}");
            let is_admitted = |access| Admission::new(Arc::new(access), near).is_admitted();
            assert!(is_admitted(access(true)) && !is_admitted(access(false)), "{near}");
        }
        assert!(!access(true).admits("192.0.2.1:5".parse().unwrap(), None));
    }
}
