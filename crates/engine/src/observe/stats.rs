//! Counts since the start.

use spindle_core::job::{Cause, Status};
use spindle_core::state::FinishedCap;
use spindle_core::{Event, JobId, State};

/// Numbers people look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Unfinished jobs whose TTL passed, since the start.
    pub expired_unfinished: u64,
    /// Finished jobs that went because a cap on them was reached, since the start: the sum of the
    /// next three.
    pub finished_dropped: u64,
    /// Those that were too many for their queue.
    pub finished_over_queue: u64,
    /// Those that were too many for the server.
    pub finished_over_count: u64,
    /// Those for which there was no room on disk.
    pub finished_over_bytes: u64,
    /// Payloads that failed their checksum, since the start.
    pub payloads_damaged: u64,
    /// Records of the log that do not count: a server that led no more had written them.
    pub records_fenced: u64,
    /// Jobs submitted, since the start.
    pub submitted: u64,
    /// Leases given, since the start.
    pub leased: u64,
    /// Jobs done, since the start.
    pub completed: u64,
    /// Jobs that died, since the start.
    pub died: u64,
    /// Attempts that ended without completing a job that is to be tried again, since the start.
    pub requeued: u64,
    /// Attempts that failed, timed out or lost their worker, since the start.
    pub failed: u64,
}

impl Stats {
    /// Counts an event that was folded. `has_failed`: it ends an attempt that failed.
    pub(crate) fn after_fold(&mut self, event: &Event, has_failed: bool) {
        self.failed += u64::from(has_failed);
        match event {
            Event::Submitted(_) => self.submitted += 1,
            Event::Leased(_) => self.leased += 1,
            Event::Requeued(_) => self.requeued += 1,
            Event::Finished(image) if image.status() == Status::Done => self.completed += 1,
            Event::Finished(_) => self.died += 1,
            _ => {}
        }
    }

    /// Counts jobs that are about to go.
    pub(crate) fn before_fold(&mut self, event: &Event, state: &State) {
        let Event::Gone(gone) = event else { return };
        match gone.cause() {
            Cause::Expired => {
                let live = gone.ids.iter().filter(|id| state.live(JobId(**id)).is_some());
                self.expired_unfinished += live.count() as u64;
            }
            Cause::Limit => self.count_dropped(gone.ids.len() as u64, state.exceeded_cap()),
            _ => {}
        }
    }

    fn count_dropped(&mut self, count: u64, cap: Option<FinishedCap>) {
        let Some(cap) = cap else { return };
        self.finished_dropped += count;
        *match cap {
            FinishedCap::Queue => &mut self.finished_over_queue,
            FinishedCap::Count => &mut self.finished_over_count,
            FinishedCap::Bytes => &mut self.finished_over_bytes,
        } += count;
    }
}
