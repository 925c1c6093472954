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
    links: Mutex<Vec<Link>>,
}

struct Door(Arc<Shared>);

impl Service for Door {
    fn request(&self, request: Request, responder: Responder) {
        self.0.answer(&request, responder);
    }

    fn opened(&self, link: &Link) {
        self.0.links.lock().push(link.clone());
    }

    fn closed(&self, link: &Link) {
        self.0.links.lock().retain(|known| known != link);
        if let Some(worker) = self.0.workers.lock().drop_link(link) {
            info!(worker = worker.name, peer = %link.remote(), "went away");
        }
    }
}

/// A running master.
#[derive(Debug)]
pub struct Master {
    address: SocketAddr,
    shared: Arc<Shared>,
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
            links: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let service = Arc::new(Door(Arc::clone(&shared)));
        tokio::spawn(server::serve(listener, listen.gate.clone(), listen.limits, service, stopped));
        let pings = tokio::spawn(ping(Arc::clone(&shared), config.ping_interval));
        info!(%address, "listening");
        Ok(Self { address, shared, stop, pings })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nobody any more. Requests under way go on, and who is connected may ask for more.
    pub fn begin_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until each request has its answer, then closes all connections. That may take as long
    /// as the longest job somebody waits for.
    pub async fn finish(&self) {
        self.begin_stop();
        let links = std::mem::take(&mut *self.shared.links.lock());
        for link in &links {
            tokio::select! {
                () = link.answered() => {}
                () = link.closed() => {}
            }
        }
        links.iter().for_each(Link::close);
        for link in &links {
            link.closed().await;
        }
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
