//! How far a job is.

use bytes::Bytes;
use spindle_core::Status;
use spindle_core::address::from_gearman_handle;
use spindle_core::job::Origin;
use spindle_engine::{Gate, JobProgress, JobRef, Outbox};

use super::GearmanSession;
use super::naming::unique_prefix;
use crate::wire::{JobStatus, encode, parse_number};

impl GearmanSession {
    pub(super) fn status(&self, handle: &Bytes, out: &mut Outbox) {
        let (progress, gate) = match from_gearman_handle(handle) {
            Some(id) => self.engine.progress(JobRef::Id(id)),
            None => (None, Gate::OPEN),
        };
        let status = shown(progress.as_ref());
        out.put(gate, |out| encode::status(out, handle, status));
    }

    /// A unique counts within a function, and the question names none: the first function that
    /// has it answers.
    pub(super) fn status_unique(&self, unique: &Bytes, out: &mut Outbox) {
        let (progress, gate) = self.find_unique(unique);
        let status = shown(progress.as_ref());
        let clients = progress.map_or(0, |progress| progress.waiting as u64);
        out.put(gate, |out| encode::status_unique(out, unique, status, clients));
    }

    fn find_unique(&self, unique: &Bytes) -> (Option<JobProgress>, Gate) {
        if unique.is_empty() {
            return (None, Gate::OPEN);
        }
        let prefix = unique_prefix(unique);
        match self.engine.find_by_key_prefix(Origin::Gearman, &prefix) {
            (Some(id), _) => self.engine.progress(JobRef::Id(id)),
            (None, gate) => (None, gate),
        }
    }
}

/// Scheduled, ready and leased jobs are known.
fn shown(progress: Option<&JobProgress>) -> JobStatus {
    let Some(progress) = progress.filter(|progress| progress.status != Status::Parked) else {
        return JobStatus::default();
    };
    JobStatus {
        is_known: true,
        is_running: progress.status == Status::Leased,
        numerator: parse_number(&progress.numerator),
        denominator: parse_number(&progress.denominator),
    }
}
