//! What the daemon does with a table that leases its rows: it keeps questions open for rows it has
//! slots for, ends processes whose rows were lost, and learns how rows ended that clients wait for.

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

/// The questions that are open.
#[derive(Debug)]
pub(super) struct Leasing {
    /// A question failed, and the pause after it is not over.
    pub(super) is_pausing: bool,
    pause: Pause,
    open: usize,
    /// To take questions back, by their targets. A dropped one is taken back.
    recalls: HashMap<String, Vec<oneshot::Sender<()>>>,
}

impl Leasing {
    pub(super) fn new() -> Self {
        Self { is_pausing: false, pause: Pause::new(), open: 0, recalls: HashMap::new() }
    }

    /// Whether no question is open: no row can come any more.
    pub(super) fn has_ended(&self) -> bool {
        self.open == 0
    }
}

impl Daemon {
    /// Asks for rows where there are slots, and takes questions back whose rows nobody wants.
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
                // Nobody is there to be told when the daemon has ended meanwhile.
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
            // Several questions fail together; the first decides when they are asked again.
            Err(_) if self.leasing.is_pausing => {}
            Err(error) => {
                let pause = self.leasing.pause.next();
                warn!(%error, retry_in_ms = pause.as_millis(), "cannot lease jobs");
                self.trouble = Some(error.to_string());
                self.leasing.is_pausing = true;
                self.tell_after(pause, Event::LeaseAgain);
            }
        }
    }

    /// Has the daemon told of rows that are lost, as long as it lives.
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

    /// What a lost row's process does counts for nothing: it is asked to end, then ended. One that
    /// has not started will not.
    pub(super) fn lost(&mut self, id: RowId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Stage::Running(signals) = &job.stage else { return };
        warn!(%id, target = job.target,
            "cancelled, or somebody else's by now: its process is told to end");
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

    /// Has the daemon told how these rows end, as long as a client waits for one of them. They
    /// were let go and may be leased by any worker.
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

    /// The client who waits is told; a row that ended here has been told already.
    pub(super) fn ended_somewhere(&mut self, id: RowId, finish: Option<&Finish>) {
        if self.jobs.contains_key(&id) {
            // Its end is being written, and is told when it is.
            return;
        }
        match finish {
            Some(finish) => self.tickets.done(id, raw(&JobResult::from(finish))),
            None => self.tickets.failed(id, format!("job {id} not found")),
        }
    }
}

/// Those of the rows that have not ended for good. The others are told.
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
        // When the daemon is gone, so is whoever asked.
        let _ = events.send(Event::EndedSomewhere(id, finish));
    }
    open
}
