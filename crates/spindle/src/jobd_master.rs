//! The jobd master of a running server: its listener, its end.

use std::{
    net::SocketAddr,
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use spindle_jobd::{
    config::MasterConfig,
    master::{Master, MasterError},
    server::BindError as MasterBindError,
};
use spindle_net::BindError;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::config::Config;

/// The door's name in settings and messages.
pub const DOOR: &str = "jobd-master";

/// How the master is to end.
enum Ending {
    /// Nobody is accepted any more.
    Begin,
    /// What is under way may take so long.
    Within(Duration, Sender<bool>),
}

/// The master at work. Dropping it closes it at once.
pub struct JobdMaster {
    address: SocketAddr,
    end: UnboundedSender<Ending>,
}

impl JobdMaster {
    /// Claims the address and serves it, on a thread of its own.
    pub fn open(
        addr: SocketAddr,
        config: &Config,
        not_bound: impl FnOnce(BindError) -> anyhow::Error,
    ) -> anyhow::Result<Self> {
        let is_insecure = config.insecure.iter().any(|door| door == DOOR);
        let settings = MasterConfig::inside(addr, config.connections_max, is_insecure);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("jobd-master: cannot start")?;
        let master = runtime.block_on(Master::start(&settings)).map_err(|error| match error {
            MasterError::Bind(MasterBindError::Listen { cause, .. }) => {
                not_bound(BindError { door: DOOR, addr, source: cause })
            }
            MasterError::Bind(other) => anyhow!("{DOOR}: {other}"),
        })?;
        let address = master.address();
        let (end, endings) = unbounded_channel();
        let serve = move || runtime.block_on(until_the_end(master, endings));
        let thread = thread::Builder::new().name(DOOR.to_owned()).spawn(serve);
        thread.context("jobd-master: cannot start a thread")?;
        Ok(Self { address, end })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Begins the orderly end: nobody is accepted any more. Does not wait.
    pub fn begin_shutdown(&self) {
        // The thread ends only when it is told to.
        let _ = self.end.send(Ending::Begin);
    }

    /// Waits for requests under way until the deadline. True when nothing was left.
    pub fn finish(&self, deadline: Instant) -> bool {
        let (tell, told) = channel();
        let left = deadline.saturating_duration_since(Instant::now());
        let was_told = self.end.send(Ending::Within(left, tell)).is_ok();
        was_told && told.recv().unwrap_or(false)
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
            Ending::Within(left, tell) => {
                let in_time = timeout(left, master.finish()).await.is_ok();
                // Whoever asked waits for it.
                let _ = tell.send(in_time);
                return;
            }
        }
    }
}
