//! The jobd master of a running server: its listener, its end.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use spindle_budget::Budgets;
use spindle_jobd_master::{
    Master, MasterHandle, MasterSettings,
    server::{Access, Adopter, Limits, ListenPlaces, ListenSettings},
};
use spindle_limits::{Places, RequestRates};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::{config::Config, tls::Tls};

/// The door's name in settings and messages.
pub const DOOR: &str = "jobd-master";

/// What the server asks of the master's thread.
enum Ending {
    /// Accept no more connections.
    Begin,
    /// Finish the requests under way within this time, and say whether that was enough.
    Within(Duration, Sender<bool>),
}

/// A master that runs on a thread of its own. Dropping it closes it at once.
pub struct JobdMaster {
    handle: MasterHandle,
    adopter: Adopter,
    endings: UnboundedSender<Ending>,
}

impl JobdMaster {
    /// Serves an address that was claimed. Without a password, every client is admitted; without
    /// rates, requests are not limited.
    pub fn open(
        (listener, addr): (TcpListener, SocketAddr),
        tls: &Tls,
        (password, rates): (Option<String>, Option<Arc<RequestRates>>),
        config: &Config,
        budgets: &Budgets,
        places: &Places,
    ) -> anyhow::Result<Self> {
        let settings = MasterSettings::new(ListenSettings {
            host: addr.ip().to_string(),
            port: addr.port(),
            listener: Some(Arc::new(listener)),
            access: Access { password, always_allow_localhost: false },
            insecure: config.is_insecure(DOOR),
            tls: tls.certificate().cloned(),
            tls_mode: Some(config.tls_mode(DOOR, addr)),
            limits: Limits { login_time: config.login_timeout, ..Limits::default() },
            budgets: budgets.clone(),
            places: ListenPlaces(places.door(DOOR)),
            rates,
            idle_time: config.idle_timeout,
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("jobd-master: cannot start")?;
        let master = runtime.block_on(Master::start(&settings));
        let master = master.map_err(|error| anyhow!("{DOOR}: {error}"))?;
        let (handle, adopter) = (master.handle(), master.adopter());
        let (endings, to_end) = unbounded_channel();
        let serve = move || runtime.block_on(until_the_end(master, to_end));
        let thread = thread::Builder::new().name(DOOR.to_owned()).spawn(serve);
        thread.context("jobd-master: cannot start a thread")?;
        Ok(Self { handle, adopter, endings })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.address()
    }

    /// Serves a connection that was accepted elsewhere.
    pub fn adopt(&self, stream: TcpStream, client: SocketAddr) {
        self.adopter.adopt(stream, client);
    }

    /// What other threads see of its workers, and can have them do.
    pub fn handle(&self) -> MasterHandle {
        self.handle.clone()
    }

    /// Accepts no more connections from now on. Does not wait.
    pub fn begin_shutdown(&self) {
        // The thread lives until it has answered `Within`.
        let _ = self.endings.send(Ending::Begin);
    }

    /// Waits for requests under way until the deadline. Returns whether all were answered.
    pub fn finish(&self, deadline: Instant) -> bool {
        let (done, was_done) = channel();
        let left = deadline.saturating_duration_since(Instant::now());
        let is_sent = self.endings.send(Ending::Within(left, done)).is_ok();
        is_sent && was_done.recv().unwrap_or(false)
    }

    /// Closes everything now, unanswered.
    pub fn abort(&self) {
        self.finish(Instant::now());
    }
}

async fn until_the_end(master: Master, mut endings: UnboundedReceiver<Ending>) {
    while let Some(ending) = endings.recv().await {
        match ending {
            Ending::Begin => master.begin_stop(),
            Ending::Within(left, done) => {
                let in_time = timeout(left, master.finish()).await.is_ok();
                // `finish` waits for this answer.
                let _ = done.send(in_time);
                return;
            }
        }
    }
}
