//! Deletions that can be undone.

use spindle_core::job::{Cause, Deletion, Key, Scope};
use spindle_core::{Command, JobId, JobImage, Rejection, Status};

use super::refuse::Refusals;
use super::{Model, waiting};

/// Whether a job is deleted, and still there.
pub(crate) fn is_deleted(job: &JobImage) -> bool {
    job.options().deletion.is_some()
}

impl Model {
    /// Commands on a deleted job are refused: people are told that it is deleted, other callers
    /// that it does not exist.
    pub(super) fn refuse_deleted(
        &self,
        id: JobId,
        reason: Rejection,
        refusals: Refusals,
    ) -> Refusals {
        refusals.or(self.job(id).is_some_and(is_deleted), reason)
    }

    pub(super) fn refuse_undo(&self, id: JobId) -> Refusals {
        let refusals = self.refuse_absent(id);
        let Some(job) = self.job(id) else { return refusals };
        // A finished job had let go of its unique keys before.
        let is_finished = job.status().is_finished();
        let comes_back = |key: &&Key| !is_finished || key.scope() == Scope::WhileKept;
        let names = job.options().keys.iter().filter(comes_back);
        let holders = names.filter_map(|key| self.key_holder(key));
        holders.fold(refusals.or(!is_deleted(job), Rejection::NotDeleted), |refusals, holder| {
            refusals.or(holder != id, Rejection::KeyTaken(holder))
        })
    }

    /// Marks the job as deleted: no worker has it, and it is kept until the deletion can no longer
    /// be undone.
    pub(super) fn apply_deletion(&mut self, command: &Command, now_ms: u64) {
        let Command::DeleteLater { id, request, undo_ms } = *command else { return };
        let job = &self.jobs[&id.0];
        if job.foreground {
            self.forget(id);
            return;
        }
        let gone_ms = now_ms.saturating_add(undo_ms);
        let was_parked = job.status() == Status::Parked;
        let deletion = Some(Box::new(Deletion { gone_ms, request, was_parked }));
        if job.status().is_finished() {
            self.change(id.0).options_mut().deletion = deletion;
            return;
        }
        self.end_attempt(id.0, Cause::Deleted, None, now_ms);
        let job = self.revise(id.0);
        job.status = Status::Parked as i32;
        job.options_mut().deletion = deletion;
    }

    /// Restores the job at its old place; a job that a worker had waits for the next worker.
    pub(super) fn apply_undo(&mut self, id: JobId, now_ms: u64) {
        let Some(deletion) = self.change(id.0).options_mut().deletion.take() else { return };
        let job = &self.jobs[&id.0];
        if job.status().is_finished() {
            return;
        }
        if self.is_spent(id) {
            self.end_spent(id, now_ms);
            return;
        }
        let after = job.options().after.as_ref();
        if let Some(because_of) = after.map(|after| after.cancelled_by).filter(|id| *id > 0) {
            self.cancel_after(id.0, because_of, now_ms);
            return;
        }
        let run_at_ms = job.options().run_at_ms.filter(|at| *at > now_ms);
        let blocked = !job.options().open().is_empty();
        let status = waiting(deletion.was_parked, blocked, run_at_ms.is_some());
        let is_new_in_line = status == Status::Ready && job.order == 0;
        let order = if is_new_in_line { self.take_order() } else { job.order };
        let job = self.revise(id.0);
        (job.status, job.order) = (status as i32, order);
        job.options_mut().run_at_ms = run_at_ms;
    }
}
