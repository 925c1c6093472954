//! The worker's side of the connection to its master.

use std::{sync::Arc, time::Duration};

use spindle_jobd_master::{
    link::{Link, RequestError},
    server::{Links, Service},
    wire::raw,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use super::run::Requests;
use crate::{
    config::MasterAddress,
    connect::{Names, connect},
};

/// How long the master may take to accept and to register.
const PATIENCE: Duration = Duration::from_secs(10);
const TLS_NAMES: Names = Names { plain: "switch master_tls off", authority: "master_sslrootcert" };
/// The first pause before a new try.
const RECONNECT_LEAST: Duration = Duration::from_millis(500);
/// A master that has been silent for this long is pinged; after as long again it counts as gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Keeps the worker registered until the process ends.
pub(super) struct MasterLink {
    pub(super) address: MasterAddress,
    pub(super) name: String,
    pub(super) names: watch::Receiver<Vec<String>>,
    pub(super) requests: Arc<Requests>,
    /// The worker's connections, among which this one is.
    pub(super) links: Links,
    pub(super) message_bytes_max: usize,
}

impl MasterLink {
    pub(super) async fn run(mut self) {
        let mut pause = RECONNECT_LEAST;
        let mut current: Option<Link> = None;
        loop {
            if self.names.borrow_and_update().is_empty() {
                // A master takes no worker without targets.
                if let Some(old) = current.take() {
                    retire(old);
                }
                if self.names.changed().await.is_err() {
                    return;
                }
                continue;
            }
            match self.register().await {
                Ok(link) => {
                    info!(master = ?self.address, "registered");
                    pause = RECONNECT_LEAST;
                    // A new list goes over a new connection, so that masters learn it that
                    // add to a list instead of replacing it. Requests over the old one are
                    // still answered.
                    if let Some(old) = current.replace(link.clone()) {
                        retire(old);
                    }
                    tokio::select! {
                        () = silence(&link) => {
                            warn!(master = ?self.address, "connection lost");
                            sleep(pause).await;
                        }
                        changed = self.names.changed() => if changed.is_err() { return },
                    }
                }
                Err(error) => {
                    warn!(master = ?self.address, %error, retry_in_ms = pause.as_millis(),
                        "cannot register");
                    sleep(pause.mul_f64(rand::random_range(0.8..1.0))).await;
                    pause = (pause * 2).min(self.address.reconnect_max).max(RECONNECT_LEAST);
                }
            }
        }
    }

    async fn register(&self) -> Result<Link, RequestError> {
        let refused = |error: std::io::Error| RequestError::Refused(error.to_string());
        let MasterAddress { host, port, tls, .. } = &self.address;
        let stream = timeout(PATIENCE, connect(host, *port, tls.as_ref(), &TLS_NAMES)).await;
        let stream = stream.map_err(|_| RequestError::Silent(PATIENCE))?.map_err(refused)?;
        let (link, connection) = Link::open(stream, self.message_bytes_max).map_err(refused)?;
        let (requests, links) = (Arc::clone(&self.requests), self.links.clone());
        tokio::spawn(async move {
            links.run(connection, |request, responder| requests.request(request, responder)).await;
        });
        let targets = self.names.borrow().clone();
        let data = raw(&serde_json::json!({ "targets": targets, "name": self.name }));
        let password = self.address.password.as_deref();
        let answer =
            timeout(PATIENCE, link.request("register-worker", Some(&data), password)).await;
        match answer.unwrap_or(Err(RequestError::Silent(PATIENCE))) {
            Ok(_) => Ok(link),
            Err(error) => {
                link.close();
                Err(error)
            }
        }
    }
}

/// Lets a connection end once it owes nothing.
fn retire(link: Link) {
    debug!(?link, "the master has a newer connection");
    tokio::spawn(async move {
        link.answered().await;
        link.close();
    });
}

/// Ready when the connection has ended or the master does not even answer a ping.
async fn silence(link: &Link) {
    loop {
        let reads = link.reads();
        if timeout(SILENCE, link.closed()).await.is_ok() {
            return;
        }
        if link.reads() != reads {
            continue;
        }
        link.ping();
        if timeout(SILENCE, link.closed()).await.is_ok() {
            return;
        }
        if link.reads() == reads {
            link.close();
            return;
        }
    }
}
