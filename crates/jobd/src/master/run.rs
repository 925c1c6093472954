//! Puts a master together.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::{sync::watch, task::JoinHandle};
use tracing::{info, warn};

use super::{poke::Pokes, workers::Workers};
use crate::{
    config::MasterConfig,
    link::{Link, Responder},
    server::{self, BindError, Service},
    wire::Request,
};

/// A worker that has not answered so many pings is dropped.
const SILENT_PINGS_MAX: u32 = 3;

/// Why a master cannot start.
#[derive(Debug, Error)]
pub enum MasterError {
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// What all connections of a master share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) workers: Mutex<Workers>,
    pub(super) pokes: Mutex<Pokes>,
    pub(super) poke_throttle_interval: Duration,
}

struct Door(Arc<Shared>);

impl Service for Door {
    fn request(&self, request: Request, responder: Responder) {
        self.0.answer(&request, responder);
    }

    fn closed(&self, link: &Link) {
        if let Some(worker) = self.0.workers.lock().drop_link(link) {
            info!(worker = worker.name, peer = %link.remote(), "went away");
        }
    }
}

/// A running master.
#[derive(Debug)]
pub struct Master {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    pings: JoinHandle<()>,
}

impl Master {
    /// Listens.
    ///
    /// # Errors
    /// [`MasterError`].
    pub async fn start(config: &MasterConfig) -> Result<Self, MasterError> {
        let listen = &config.listen;
        let has_password = listen.gate.password.is_some();
        let listener =
            server::bind(&listen.host, listen.port, has_password, listen.insecure).await?;
        let address = listener
            .local_addr()
            .map_err(|cause| BindError::Listen { address: listen.host.clone(), cause })?;
        let shared = Arc::new(Shared {
            workers: Mutex::default(),
            pokes: Mutex::default(),
            poke_throttle_interval: config.poke_throttle_interval,
        });
        let (stop, stopped) = watch::channel(false);
        let service = Arc::new(Door(Arc::clone(&shared)));
        tokio::spawn(server::serve(listener, listen.gate.clone(), listen.limits, service, stopped));
        let pings = tokio::spawn(ping(shared, config.ping_interval));
        info!(%address, "listening");
        Ok(Self { address, stop, pings })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Master {
    /// Accepts nobody any more. Connections end with the process.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.pings.abort();
    }
}

/// Only workers are pinged: some clients break on a message they did not ask for.
async fn ping(shared: Arc<Shared>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        for worker in shared.workers.lock().all_mut() {
            let heard = worker.link.heard();
            worker.silent_pings = if heard == worker.heard { worker.silent_pings + 1 } else { 0 };
            worker.heard = heard;
            if worker.silent_pings > SILENT_PINGS_MAX {
                warn!(worker = worker.name, "does not answer; dropped");
                worker.link.close();
            } else {
                worker.link.ping();
            }
        }
    }
}
