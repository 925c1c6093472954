//! Leases identified by the names of their holders, for doors whose workers are registered: such a
//! lease has no connection, and its worker gets no token.

use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::job::{Cause, HeldLease, Origin};
use spindle_core::{Command, JobId};

use crate::answer::Refused;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Leases;

/// A registered worker, as its leases name it.
#[derive(Clone, Debug)]
pub struct WorkerRef {
    /// The door it is registered at.
    pub door: Origin,
    /// What the worker's name in its leases ends with.
    pub id: Bytes,
}

impl WorkerRef {
    fn holds(&self, lease: &HeldLease) -> bool {
        lease.door() == self.door && lease.worker.ends_with(&self.id)
    }
}

impl Leases<'_> {
    /// The claim on a job's live lease, if it is this worker's.
    pub fn claim_of(&self, id: JobId, worker: &WorkerRef) -> Gated<Option<Claim>> {
        self.0.read(|inner| inner.claim_of(id, worker))
    }

    /// Those of some jobs whose live lease is this worker's. For small lists: the lock is held.
    pub fn still_held(&self, jobs: &[JobId], worker: &WorkerRef) -> Gated<Vec<JobId>> {
        let is_held = |inner: &Inner, id: &JobId| inner.claim_of(*id, worker).is_some();
        self.0.read(|inner| jobs.iter().copied().filter(|id| is_held(inner, id)).collect())
    }

    /// A worker without a connection is lost: its leases of these jobs end, as if its connection
    /// had closed. For small lists: the lock is held.
    pub fn worker_lost(&self, jobs: &[JobId], worker: &WorkerRef) -> Gated<Result<(), Refused>> {
        self.0.change(|inner| {
            for id in jobs {
                if let Some(claim) = inner.claim_of(*id, worker) {
                    inner.run(&Command::Release { claim, cause: Cause::HolderGone })?;
                }
            }
            Ok(())
        })
    }
}

impl Inner {
    fn claim_of(&self, id: JobId, worker: &WorkerRef) -> Option<Claim> {
        let job = self.state.live(id)?;
        let lease = job.lease().filter(|lease| worker.holds(lease))?;
        Some(Claim::Token { id, epoch: lease.epoch, attempt: job.attempts() })
    }
}
