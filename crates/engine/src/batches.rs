//! Batches: opened, sealed, cancelled, and looked at.

use spindle_core::audit::Action;
use spindle_core::batch::Batch;
use spindle_core::command::OpenBatch;
use spindle_core::{Command, JobId, Rejection};

use crate::answer::Refused;
use crate::audit::{Deed, People};
use crate::gate::Gated;
use crate::views::Batches;

impl Batches<'_> {
    /// Opens a batch, whose number the engine gives.
    pub fn open(&self, mut open: OpenBatch) -> Gated<Result<JobId, Refused>> {
        self.0.change(|inner| {
            self.0.check_space()?;
            let id = inner.take_id();
            open.id = id;
            let opened = inner.run(&Command::OpenBatch(Box::new(open)));
            if opened.is_err() {
                inner.return_id(id);
            }
            opened.map(|()| id).map_err(Refused::from)
        })
    }

    /// From now on no job is added: the batch ends when all of its jobs have. Returns the batch as it is then: it may
    /// be gone at once.
    pub fn seal(&self, id: JobId) -> Gated<Result<Batch, Refused>> {
        self.0.change(|inner| {
            inner.run(&Command::SealBatch { id })?;
            Ok(inner.state.batch(id).cloned().ok_or(Rejection::NoBatch(id))?)
        })
    }

    /// A batch as it is.
    pub fn get(&self, id: JobId) -> Gated<Option<Batch>> {
        self.0.read(|inner| inner.state.batch(id).cloned())
    }

    /// Batches, the newest first, those below a number.
    pub fn list(&self, below: Option<JobId>, limit: usize) -> Gated<Vec<Batch>> {
        self.0.read(|inner| inner.state.batches_below(below).take(limit).cloned().collect())
    }

    /// Jobs of a batch that are there, and batches in it, by number, from one on.
    pub fn members(&self, id: JobId, from: JobId, limit: usize) -> Gated<Vec<JobId>> {
        self.0.read(|inner| inner.state.members(id, from).take(limit).collect())
    }
}

impl People<'_> {
    /// Seals a batch and notes that it is cancelled. The caller cancels its jobs and the batches in
    /// it: they may be many, and other calls come in between.
    pub fn cancel_batch(self, id: JobId) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            let queue = inner.state.batch(id).map(|batch| batch.queue.clone());
            let detail = format!("batch {id}");
            let deed = Deed { queue, ..Deed::new(Action::CancelBatch, detail) };
            Ok(inner.run_for(self.audit, deed, Some(Command::CancelBatch { id }), None)?)
        })
    }
}
