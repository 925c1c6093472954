//! What the daemon does with a table that leases its rows: it keeps a lease request open for each
//! free slot, ends processes whose leases were lost, and finds out how rows ended that clients wait
//! for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use spindle_jobd_master::wire::raw;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tracing::{debug, info, warn};

use super::{
    daemon::{Daemon, Event, Stage},
    stop::TERM_TO_KILL,
    writer::Pause,
};
use crate::{
    job_result::JobResult,
    launcher::{SignalNumber, SignalRequest},
    table::{Fate, Finish, JobTable, Leased, RowId, TableError},
};

/// How long to wait before rows that may run elsewhere are looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The lease requests that are open.
#[derive(Debug)]
pub(super) struct Leasing {
    /// A request failed, and the pause after it is not over.
    pub(super) is_pausing: bool,
    pause: Pause,
    open: usize,
    /// To cancel requests, by their targets: dropping one cancels its request.
    recalls: HashMap<String, Vec<oneshot::Sender<()>>>,
}

impl Leasing {
    pub(super) fn new() -> Self {
        Self { is_pausing: false, pause: Pause::new(), open: 0, recalls: HashMap::new() }
    }

    /// Whether no request is open: no row can come any more.
    pub(super) fn has_ended(&self) -> bool {
        self.open == 0
    }
}

impl Daemon {
    /// Asks for rows where there are slots, and cancels requests whose rows are not wanted any more.
    pub(super) fn ask_for_leases(&mut self) {
        if self.parts.table.leases().is_none() {
            return;
        }
        let (queues, is_stopping) = (&self.queues, self.stopping.is_some());
        self.leasing.recalls.retain(|target, recalls| {
            recalls.retain(|recall| !recall.is_closed());
            !is_stopping && queues.wants(target) && !recalls.is_empty()
        });
        if is_stopping || self.leasing.is_pausing || self.turn.must_check {
            return;
        }
        while let Some(target) = self.queues.next_ask() {
            let (recall, recalled) = oneshot::channel();
            self.leasing.recalls.entry(target.clone()).or_default().push(recall);
            self.leasing.open += 1;
            let (table, events) = (Arc::clone(&self.parts.table), self.parts.events.clone());
            tokio::spawn(async move {
                let outcome = match table.leases() {
                    Some(leases) => leases.lease(&target, recalled).await,
                    None => Ok(None),
                };
                // Fails when the daemon has ended meanwhile.
                let _ = events.send(Event::Leased(target, outcome));
            });
        }
    }

    pub(super) fn leased(&mut self, target: &str, outcome: Result<Option<Leased>, TableError>) {
        self.leasing.open -= 1;
        self.queues.asked(target);
        match outcome {
            Ok(row) => {
                self.leasing.pause.reset();
                self.trouble = None;
                if let Some(row) = row {
                    let id = row.id;
                    self.accept(row);
                    if let Some(leases) = self.parts.table.leases() {
                        leases.taken(id);
                    }
                }
            }
            // Several requests fail together; the first decides when to ask again.
            Err(_) if self.leasing.is_pausing => {}
            Err(error) => {
                let pause = self.leasing.pause.next();
                warn!(%error, retry_in_ms = pause.as_millis(), "cannot lease jobs");
                self.trouble = Some(error.to_string());
                self.leasing.is_pausing = true;
                self.send_after(pause, Event::LeaseAgain);
            }
        }
    }

    /// Sends the daemon the rows whose leases are lost, as long as it lives.
    pub(super) fn watch_for_losses(&self) {
        let (table, events) = (Arc::clone(&self.parts.table), self.parts.events.clone());
        if table.leases().is_none() {
            return;
        }
        tokio::spawn(async move {
            while let Some(leases) = table.leases() {
                let id = tokio::select! {
                    id = leases.lost() => id,
                    () = events.closed() => return,
                };
                if events.send(Event::Lost(id)).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the process of a row whose lease was lost, first with SIGTERM, because its result would
    /// be refused. A row that has not started is not started any more.
    pub(super) fn lost(&mut self, id: RowId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Stage::Running(signals) = &job.stage else { return };
        warn!(%id, target = job.target,
            "cancelled, or somebody else's by now: its process is asked to end");
        let signals = signals.clone();
        tokio::spawn(async move {
            SignalRequest::send(&signals, SignalNumber::TERM).await;
            tokio::select! {
                () = sleep(TERM_TO_KILL) => {
                    SignalRequest::send(&signals, SignalNumber::KILL).await;
                }
                () = signals.closed() => {}
            }
        });
    }

    /// Sends the daemon how these rows end, as long as a client waits for one of them. They were
    /// released, and any worker may lease them.
    pub(super) fn watch_for_ends(&self, mut ids: Vec<RowId>) {
        let (table, events) = (Arc::clone(&self.parts.table), self.parts.events.clone());
        if ids.is_empty() {
            return;
        }
        info!(rows = ids.len(), "released for a client that waits for their ends");
        tokio::spawn(async move {
            while !ids.is_empty() && !events.is_closed() {
                sleep(LOOK_AGAIN).await;
                ids = still_open(&*table, ids, &events).await;
            }
        });
    }

    /// Passes an end on to the client that waits. A row that ended here has been passed on already.
    pub(super) fn ended_somewhere(&mut self, id: RowId, finish: Option<&Finish>) {
        if self.jobs.contains_key(&id) {
            // Its end is being written, and is passed on after that.
            return;
        }
        match finish {
            Some(finish) => self.tickets.done(id, raw(&JobResult::from(finish))),
            None => self.tickets.failed(id, format!("job {id} not found")),
        }
    }
}

/// Those of the rows that have not ended for good. The ends of the others go to the daemon.
async fn still_open(
    table: &dyn JobTable,
    ids: Vec<RowId>,
    events: &mpsc::UnboundedSender<Event>,
) -> Vec<RowId> {
    let mut open = Vec::new();
    for id in ids {
        let Some(leases) = table.leases() else { break };
        let finish = match leases.fate(id).await {
            Ok(Fate::Ended(finish)) => Some(finish),
            Ok(Fate::Gone) => None,
            Ok(Fate::Open) => {
                open.push(id);
                continue;
            }
            Err(error) => {
                debug!(%id, %error, "cannot look how a job is doing");
                open.push(id);
                continue;
            }
        };
        // Fails when the daemon has ended; its clients are gone then, too.
        let _ = events.send(Event::EndedSomewhere(id, finish));
    }
    open
}
