//! How a worker ends: it takes nothing new, gives back rows that have not started, lets running
//! jobs go on for a while, then signals them, and writes how each ended.

use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{
    daemon::{Daemon, Event, Stage},
    writer::Write,
};
use crate::launcher::{SignalNumber, SignalRequest};

/// What clients get as an error meanwhile.
pub(super) const SHUTTING_DOWN: &str = "jobd is shutting down";

/// How long processes have after SIGTERM, and how long those that are left have after SIGKILL.
pub(super) const TERM_TO_KILL: Duration = Duration::from_secs(5);
/// How long to try to write the last results. They are spooled afterwards.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// The steps of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// The worker is asked to end; the second time, to end at once.
    Begin,
    /// Processes are asked to end.
    Terminate,
    /// Processes are ended.
    Kill,
    /// Everything that is still open is left as it is.
    GiveUp,
}

/// How far an end has come.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    is_terminating: bool,
    is_writing_last: bool,
    has_given_up: bool,
}

impl Daemon {
    pub(super) fn stop(&mut self, step: StopStep) {
        match step {
            StopStep::Begin if self.stopping.is_none() => self.begin_stop(),
            StopStep::Begin | StopStep::Terminate => self.terminate(),
            StopStep::Kill => {
                self.signal_all(SignalNumber::KILL);
                self.send_after(TERM_TO_KILL, Event::Stop(StopStep::GiveUp));
            }
            StopStep::GiveUp => self.stopping.get_or_insert_default().has_given_up = true,
        }
    }

    fn begin_stop(&mut self) {
        self.stopping = Some(Stopping::default());
        // The writer lives as long as the daemon.
        let _ = self.parts.writer.send(Write::NoMoreStarts);
        for id in std::mem::take(&mut self.turn.manual) {
            self.tickets.failed(id, SHUTTING_DOWN.to_owned());
        }
        let queued = self.queues.drain_queued();
        self.turn.must_recover |= !queued.is_empty();
        for id in &queued {
            self.jobs.remove(id);
            self.in_hand.lock().remove(id);
            self.tickets.failed(*id, SHUTTING_DOWN.to_owned());
        }
        let running = self.jobs.values().filter(|job| matches!(job.stage, Stage::Running(_)));
        info!(running = running.count(), given_back = queued.len(), "shutting down");
        self.send_after(self.parts.shutdown_timeout, Event::Stop(StopStep::Terminate));
    }

    fn terminate(&mut self) {
        let stopping = self.stopping.get_or_insert_default();
        if std::mem::replace(&mut stopping.is_terminating, true) {
            return;
        }
        self.signal_all(SignalNumber::TERM);
        self.send_after(TERM_TO_KILL, Event::Stop(StopStep::Kill));
    }

    fn signal_all(&self, signal: SignalNumber) {
        for (id, job) in &self.jobs {
            let Stage::Running(signals) = &job.stage else { continue };
            warn!(%id, ?signal, "still running at the end of shutdown_timeout");
            let (sent, _) = oneshot::channel();
            // Full or closed: others have signalled it, or it has just ended.
            let _ = signals.try_send(SignalRequest { signal, sent });
        }
    }

    /// Whether the worker may end now. Asked after every event.
    pub(super) fn is_stopped(&mut self) -> bool {
        let Some(stopping) = &mut self.stopping else { return false };
        if stopping.has_given_up {
            return true;
        }
        let has_processes =
            self.jobs.values().any(|job| matches!(job.stage, Stage::Starting | Stage::Running(_)));
        if !has_processes && !std::mem::replace(&mut stopping.is_writing_last, true) {
            self.send_after(LAST_WRITES, Event::Stop(StopStep::GiveUp));
        }
        self.jobs.is_empty()
            && !self.turn.is_taken
            && !self.turn.must_recover
            && self.leasing.has_ended()
    }
}
