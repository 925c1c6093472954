//! All numbers that follow the events, as one part of what is behind the lock.

use std::sync::Arc;

use spindle_core::command::Lease;
use spindle_core::{Event, JobId, State};

use super::failures::Failures;
use super::fingerprint::FailedAttempt;
use super::meters::Meters;
use super::retention::DroppedNews;
use super::stats::Stats;
use super::traffic::Traffic;
use super::workers::Workers;

/// Counts, rates and workers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub stats: Stats,
    pub traffic: Traffic,
    pub workers: Workers,
    /// Failed attempts by what they say.
    pub failures: Failures,
    /// How late scheduled jobs are; the commits' share is the log thread's.
    pub meters: Arc<Meters>,
    dropped: DroppedNews,
}

impl Numbers {
    /// Counts what an event is about to take away.
    pub fn before_fold(&mut self, event: &Event, state: &State) {
        self.stats.before_fold(event, state);
    }

    /// Counts an event that was folded.
    pub fn after_fold(&mut self, event: &Event, state: &State, now_ms: u64) {
        let failed = FailedAttempt::of(event);
        self.stats.after_fold(event, failed.is_some());
        self.traffic.after_fold(event, failed.is_some(), state, now_ms);
        if let Some(failed) = failed
            && let Some(queue) = failed.queue(state)
        {
            self.failures.count(&failed, queue, now_ms);
        }
    }

    /// A scheduled job becomes ready: how late.
    pub fn becomes_ready(&self, id: JobId, state: &State, now_ms: u64) {
        if let Some(run_at_ms) = state.live(id).and_then(|job| job.run_at_ms()) {
            self.meters.lag_ms.note(now_ms.saturating_sub(run_at_ms));
        }
    }

    /// A worker asks for a job: it is seen, and so are its queues.
    pub fn asked(&mut self, request: &Lease, state: &State, now_ms: u64) {
        self.workers.asked(request, now_ms);
        self.traffic.asked(&request.queues, state, now_ms);
    }

    /// Warns of finished jobs that a cap dropped, if it is time to.
    pub fn report_dropped(&mut self, now_ms: u64) {
        self.dropped.report(&self.stats, now_ms);
    }
}
