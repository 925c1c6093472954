//! The size of jobs: in the log if it were written anew, and in memory for those that are in no
//! log.

use spindle_core::event::{Deleted, Requeued};
use spindle_core::job::{JobImage, Outcome};
use spindle_core::state::JobView;
use spindle_core::{BytesRef, Event, JobId, State};

/// What an item takes in the log besides its payload, roughly.
const ITEM_BYTES: u64 = 128;

/// Sums over all jobs, kept up to date by the events.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    live_bytes: u64,
    foreground_bytes: usize,
}

impl Footprint {
    /// What unfinished jobs would take if the log were written anew.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Payloads of jobs that live in memory only, and what their last failures left.
    pub fn foreground_bytes(&self) -> usize {
        self.foreground_bytes
    }

    /// Counts an event that is about to be folded: what it ends is still in the state.
    pub fn before_fold(&mut self, event: &Event, state: &State) {
        match event {
            Event::StateSet(set) if !state.is_foreground(JobId(set.id)) => {
                self.live_bytes += set.event.len() as u64;
            }
            Event::Gone(gone) => gone.ids.iter().for_each(|id| self.job_ends(JobId(*id), state)),
            Event::Finished(image) => self.job_ends(JobId(image.id), state),
            Event::Requeued(Requeued { id, .. }) | Event::Deleted(Deleted { id, .. }) => {
                let before = logged_outcome_bytes(state, JobId(*id));
                self.live_bytes = self.live_bytes.saturating_sub(before);
                let before = foreground_outcome_bytes(state, JobId(*id));
                self.foreground_bytes = self.foreground_bytes.saturating_sub(before);
            }
            Event::Persisted(image) => {
                self.job_ends(JobId(image.id), state);
                self.live_bytes += live_cost(image);
            }
            Event::Compacted(image)
                if !image.status().is_finished() && state.status(JobId(image.id)).is_none() =>
            {
                self.live_bytes += live_cost(image);
            }
            Event::Submitted(image) | Event::Retried(image) => {
                if image.foreground {
                    self.foreground_bytes += payload_len(image);
                } else {
                    self.live_bytes += live_cost(image);
                }
            }
            _ => {}
        }
    }

    /// Counts an event that was folded.
    pub fn after_fold(&mut self, event: &Event, state: &State) {
        if let Event::Requeued(Requeued { id, .. }) | Event::Deleted(Deleted { id, .. }) = event {
            self.live_bytes += logged_outcome_bytes(state, JobId(*id));
            self.foreground_bytes += foreground_outcome_bytes(state, JobId(*id));
        }
    }

    fn job_ends(&mut self, id: JobId, state: &State) {
        let Some(job) = state.live(id) else { return };
        if job.is_foreground() {
            let bytes = job.payload_len() as usize + last_outcome_bytes(&job);
            self.foreground_bytes = self.foreground_bytes.saturating_sub(bytes);
        } else {
            let cost = ITEM_BYTES + u64::from(job.payload_len()) + job.options().update_bytes();
            self.live_bytes = self.live_bytes.saturating_sub(cost + outcome_bytes(&job));
        }
    }
}

fn payload_len(image: &JobImage) -> usize {
    image.payload.as_ref().map_or(0, |payload| payload.len as usize)
}

/// What a live job's last result and its workers' messages take, if it is logged.
fn logged_outcome_bytes(state: &State, id: JobId) -> u64 {
    state.live(id).filter(|job| !job.is_foreground()).map_or(0, |job| outcome_bytes(&job))
}

/// What a foreground job's last result takes in memory.
fn foreground_outcome_bytes(state: &State, id: JobId) -> usize {
    state.live(id).filter(|job| job.is_foreground()).map_or(0, |job| last_outcome_bytes(&job))
}

fn last_outcome_bytes(job: &JobView<'_>) -> usize {
    job.outcome().map_or(0, Outcome::bytes_len)
}

fn outcome_bytes(job: &JobView<'_>) -> u64 {
    let result = job.outcome().and_then(|outcome| outcome.bytes.as_ref());
    result.map_or(0, |result| u64::from(result.len)) + job.words_len() as u64
}

fn live_cost(image: &JobImage) -> u64 {
    let updates = image.options.as_ref().map_or(0, |options| options.update_bytes());
    let len = |place: Option<&BytesRef>| place.map_or(0, |place| u64::from(place.len));
    let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    let bytes = len(image.payload.as_ref()) + len(result) + image.words_len() as u64;
    ITEM_BYTES + bytes + updates
}
