//! Puts a master together, and ends it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tracing::warn;

use crate::{
    handle::MasterHandle,
    pokes::Pokes,
    requests::Requests,
    server::{Adopter, BindError, ListenSettings, Listener, Server},
};

/// A worker that has not answered this many pings is dropped.
const SILENT_PINGS_MAX: u32 = 3;

/// What a master needs to start.
#[derive(Clone, Debug)]
pub struct MasterSettings {
    /// Where to listen, and who may ask.
    pub listen: ListenSettings,
    /// How often each worker is pinged.
    pub ping_interval: Duration,
    /// Pokes within this time after one that went through are joined.
    pub poke_throttle_interval: Duration,
}

impl MasterSettings {
    /// The defaults of everything but the listener.
    pub fn new(listen: ListenSettings) -> Self {
        Self {
            listen,
            ping_interval: Duration::from_secs(30),
            poke_throttle_interval: Duration::from_millis(500),
        }
    }
}

/// A running master. Dropping it stops accepting and pinging; open connections end with the
/// process.
#[derive(Debug)]
pub struct Master {
    address: SocketAddr,
    server: Server,
    pings: JoinHandle<()>,
    handle: MasterHandle,
}

impl Master {
    /// Starts a master, which listens from then on.
    ///
    /// # Errors
    /// [`BindError`] when it cannot listen.
    pub async fn start(settings: &MasterSettings) -> Result<Self, BindError> {
        let listener = Listener::bind(&settings.listen).await?;
        let address = listener.address();
        let pokes = Arc::new(Pokes::new(settings.poke_throttle_interval));
        let server = listener.serve(Arc::new(Requests(Arc::clone(&pokes))));
        let handle = MasterHandle::new(address, Arc::clone(&pokes));
        let pings = tokio::spawn(ping(pokes, settings.ping_interval));
        Ok(Self { address, server, pings, handle })
    }

    /// The handle for other threads of the program.
    pub fn handle(&self) -> MasterHandle {
        self.handle.clone()
    }

    /// Passes connections to it that were accepted elsewhere.
    pub fn adopter(&self) -> Adopter {
        self.server.adopter()
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections. Requests under way go on, and open connections may ask for
    /// more.
    pub fn begin_stop(&self) {
        self.server.stop();
    }

    /// Waits until each request has its answer, then closes all connections. That may take as long
    /// as the longest job that a client waits for.
    pub async fn finish(&self) {
        self.begin_stop();
        for link in self.server.links().all() {
            tokio::select! {
                () = link.answered() => {}
                () = link.closed() => {}
            }
        }
        self.server.links().close_all().await;
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.pings.abort();
    }
}

/// Only workers are pinged: some clients break on a message they did not ask for.
async fn ping(pokes: Arc<Pokes>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        for worker in pokes.workers.lock().all_mut() {
            let reads = worker.link.reads();
            worker.silent_pings = if reads == worker.reads { worker.silent_pings + 1 } else { 0 };
            worker.reads = reads;
            if worker.silent_pings > SILENT_PINGS_MAX {
                warn!(worker = worker.name, "does not answer; dropped");
                worker.link.close();
            } else {
                worker.link.ping();
            }
        }
    }
}
