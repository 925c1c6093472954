//! Puts a worker together, and takes it apart again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use spindle_jobd_master::{
    link::Responder,
    server::{BindError, Listener, Service},
    wire::{Concurrency, Request},
};
use thiserror::Error;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{error, info, warn};

use super::{
    daemon::{Daemon, Event, Parts},
    master_link::MasterLink,
    spool::{self, Spooled},
    state_file::{StateError, StateFile},
    stop::StopStep,
    writer::{Write, Writer},
};
use crate::{
    config::WorkerConfig,
    table::{Finish, JobTable},
};

/// How long clients have to take their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Why a worker cannot start.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// It cannot use its state file.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Passes requests on to the daemon, those of clients and those of the master.
#[derive(Debug)]
pub(super) struct Requests(mpsc::UnboundedSender<Event>);

impl Service for Requests {
    fn request(&self, request: Request, responder: Responder) {
        // After its end the daemon answers nothing; the connection closes with the process.
        let _ = self.0.send(Event::Request(request, responder));
    }
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    address: SocketAddr,
    events: mpsc::UnboundedSender<Event>,
    task: JoinHandle<()>,
}

impl Worker {
    /// Listens, registers at the master, and works through the table. The table may be away.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub async fn start(
        config: &WorkerConfig,
        table: Arc<dyn JobTable>,
    ) -> Result<Self, WorkerError> {
        let listener = Listener::bind(&config.listen).await?;
        let address = listener.address();
        let state = StateFile::open_or_forget(&config.state_file)?;
        let (events, incoming) = mpsc::unbounded_channel();
        let (to_writer, writes) = mpsc::unbounded_channel();
        let names =
            watch::Sender::new(config.targets.iter().map(|(name, _)| name.clone()).collect());
        let requests = Arc::new(Requests(events.clone()));
        let server = listener.serve(Arc::clone(&requests) as _);
        let master = config.master.clone().map(|address| {
            let link = MasterLink {
                address,
                name: config.name.clone(),
                names: names.subscribe(),
                requests,
                links: server.links().clone(),
                message_bytes_max: config.listen.limits.message_bytes_max,
            };
            tokio::spawn(link.run())
        });
        let mark = state.mark().clone();
        let kept_at = Arc::clone(&table);
        let writer = Writer::new(Arc::clone(&table), mark.clone(), writes, events.clone());
        let mut daemon = Daemon::new(Parts {
            table,
            mark,
            begun: state.begun(kept_at.describe()),
            launcher: config.launcher.clone(),
            fetch_limit: config.fetch_limit,
            shutdown_timeout: config.shutdown_timeout,
            second_look: config.second_look,
            targets: config.targets.clone(),
            events: events.clone(),
            writer: to_writer.clone(),
            names,
        });
        let spooled = load_spool(&state);
        daemon.hold(spooled.iter().map(|spooled| spooled.finish.id));
        for Spooled { finish, receipt } in spooled {
            if let (Some(leases), Some(receipt)) = (kept_at.leases(), receipt) {
                leases.remember(finish.id, receipt);
            }
            to_writer.send(Write::Finish(finish)).expect("the writer has its receiver here");
        }
        info!(%address, "listening");
        let task = tokio::spawn(async move {
            let (halt, halted) = oneshot::channel();
            let writer = tokio::spawn(writer.run(halted));
            daemon.run(incoming).await;
            server.stop();
            drop(halt);
            let unwritten = writer.await.unwrap_or_default();
            save_spool(&state, &*kept_at, unwritten);
            if timeout(LAST_ANSWERS, server.links().close_all()).await.is_err() {
                warn!("some clients have not taken their last answers");
            }
            if let Some(master) = master {
                master.abort();
            }
            info!("ended");
        });
        Ok(Self { address, events, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins the end: nothing new is started, and running jobs may go on for `shutdown_timeout`.
    /// The second call signals running jobs at once.
    pub fn stop(&self) {
        // It may have ended already.
        let _ = self.events.send(Event::Stop(StopStep::Begin));
    }

    /// Serves exactly these targets from now on.
    pub fn retarget(&self, targets: Vec<(String, Concurrency)>) {
        let _ = self.events.send(Event::Retarget(targets));
    }

    /// Ready when the worker has ended.
    pub async fn ended(&mut self) {
        // A panic in the task was reported where it happened.
        let _ = (&mut self.task).await;
    }
}

fn load_spool(state: &StateFile) -> Vec<Spooled> {
    let Some(path) = state.spool_path() else { return Vec::new() };
    let finishes = spool::load(&path).unwrap_or_else(|error| {
        error!(path = %path.display(), %error, "cannot read results of an earlier run");
        Vec::new()
    });
    if !finishes.is_empty() {
        warn!(results = finishes.len(), "results of an earlier run are written now");
    }
    finishes
}

/// Keeps what could not be written for the next start; removes what has been written since.
fn save_spool(state: &StateFile, table: &dyn JobTable, unwritten: Vec<Finish>) {
    let receipt = |id| table.leases()?.receipt(id);
    let spooled = |finish: Finish| Spooled { receipt: receipt(finish.id), finish };
    let unwritten: Vec<Spooled> = unwritten.into_iter().map(spooled).collect();
    let Some(path) = state.spool_path() else {
        if !unwritten.is_empty() {
            error!(results = unwritten.len(), "results are lost: there is no state file");
        }
        return;
    };
    let saved =
        if unwritten.is_empty() { spool::remove(&path) } else { spool::save(&path, &unwritten) };
    match saved {
        Ok(()) if unwritten.is_empty() => {}
        Ok(()) => {
            warn!(results = unwritten.len(), path = %path.display(),
                "the job table is away; results are kept for the next start");
        }
        Err(error) => error!(path = %path.display(), %error, "cannot keep results"),
    }
}
