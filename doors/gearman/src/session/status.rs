//! How far a job is.

use bytes::Bytes;
use spindle_access::{Role, Target};
use spindle_core::Status;
use spindle_core::address::from_gearman_handle;
use spindle_core::job::Origin;
use spindle_engine::{JobProgress, JobRef, Outbox};

use super::naming::unique_prefix;
use super::{GearmanSession, reply};
use crate::wire::{JobStatus, Response, parse_number};

impl GearmanSession {
    pub(super) fn status(&self, handle: &Bytes, out: &mut Outbox) {
        let id = from_gearman_handle(handle);
        let progress = id.and_then(|id| out.open(self.engine.waits().progress(JobRef::Id(id))));
        let status = shown(progress.as_ref());
        reply(out, Response::Status { handle: &handle[..], status });
    }

    /// A unique is unique within a function only, and the question names no function: the first
    /// function that has it and that the client may see is used.
    pub(super) fn status_unique(&mut self, unique: &Bytes, out: &mut Outbox) {
        let progress = self.find_unique(unique, out);
        let status = shown(progress.as_ref());
        let clients = progress.map_or(0, |progress| progress.waiting as u64);
        reply(out, Response::StatusUnique { unique: &unique[..], status, clients });
    }

    fn find_unique(&mut self, unique: &Bytes, out: &mut Outbox) -> Option<JobProgress> {
        if unique.is_empty() {
            return None;
        }
        let prefix = unique_prefix(unique);
        let login = &mut self.login;
        let may_see = |queue: &[u8]| login.authorize(Role::Read, Target::Queue(queue)).is_ok();
        let found = self.engine.jobs().find_by_key_prefix(Origin::Gearman, &prefix, may_see);
        let id = out.open(found)?;
        out.open(self.engine.waits().progress(JobRef::Id(id)))
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
