//! Jobs that are deleted, while that can be undone. They cannot be found by any name, and go when
//! the time for the undo is over, if neither their TTL nor their retention ends before.

use super::evolve::end_lease;
use super::*;
use crate::event::{Deleted, Undeleted};
use crate::job::{Cause, Deletion, JobId, Status};

impl State {
    /// The deletion of a job, if it is deleted.
    pub fn deletion(&self, id: JobId) -> Option<Deletion> {
        self.handle(id).and_then(|handle| self.jobs.deletion_of(handle))
    }

    pub(super) fn is_deleted_by(&self, handle: u32, requests: &[u64]) -> bool {
        self.jobs.deletion_of(handle).is_some_and(|it| requests.contains(&it.request))
    }

    /// A job's names, under which it may not be found.
    pub(crate) fn names_of(&self, id: JobId) -> (Option<[u8; 16]>, &[Key]) {
        match self.job(id) {
            Some(Found::Live(job)) => (job.uuid(), job.keys()),
            Some(Found::Finished(job)) => {
                (job.uuid(), self.jobs.finished_keys.get(&id.0).map_or(&[], Vec::as_slice))
            }
            None => (None, &[]),
        }
    }

    pub(super) fn on_deleted(&mut self, deleted: &Deleted, at: Place) {
        let id = JobId(deleted.id);
        let Some(handle) = self.handle(id) else { return };
        self.leave_keys(handle);
        if handle & FINISHED != 0 {
            self.change_finished(handle & !FINISHED, |job| job.delete(&deleted.deletion));
            self.note_due(deleted.deletion.gone_ms);
            return;
        }
        self.leave_expiry(handle);
        self.change(id, at, |job| {
            end_lease(job, Cause::Deleted, None, deleted.at_ms);
            job.set_status(Status::Parked);
            job.options_mut().deletion = Some(Box::new(deleted.deletion));
        });
        self.enter_expiry(handle);
    }

    pub(super) fn on_undeleted(&mut self, undeleted: &Undeleted, at: Place) {
        let id = JobId(undeleted.id);
        let Some(handle) = self.handle(id) else { return };
        if self.jobs.deletion_of(handle).is_none() {
            return;
        }
        if handle & FINISHED != 0 {
            self.change_finished(handle & !FINISHED, FinishedJob::undelete);
        } else {
            self.leave_expiry(handle);
            self.change(id, at, |job| {
                job.options_mut().deletion = None;
                job.set_status(undeleted.status());
                job.set_run_at(undeleted.run_at_ms);
                job.set_rank(job.priority(), undeleted.order);
            });
            self.enter_expiry(handle);
        }
        // A finished job has another place now.
        if let Some(handle) = self.handle(id) {
            self.enter_keys(handle);
        }
    }
}
