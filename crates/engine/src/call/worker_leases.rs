//! Leases as their holders name them, for doors whose workers are registered: no connection is
//! behind such a lease, and no token is told.

use spindle_core::command::Claim;
use spindle_core::job::{Cause, Lease, Status};
use spindle_core::{Command, Found, JobId, Rejection};

use crate::door::Gate;
use crate::engine::{Engine, Refused};
use crate::inner::Inner;
use crate::read::JobRef;

impl Engine {
    /// The claim on a job's live lease if the lease is the caller's, which `is_own` says; and what
    /// a "no" must wait for.
    pub fn claim_of(&self, id: JobId, is_own: impl Fn(&Lease) -> bool) -> (Option<Claim>, Gate) {
        let inner = self.enter();
        (inner.claim_of(id, &is_own), inner.tail())
    }

    /// Those of some jobs whose live lease is the caller's. For small lists: the lock is held.
    pub fn still_held(&self, jobs: &[JobId], is_own: impl Fn(&Lease) -> bool) -> Vec<JobId> {
        let inner = self.enter();
        jobs.iter().copied().filter(|id| inner.claim_of(*id, &is_own).is_some()).collect()
    }

    /// A holder without a connection is lost: its leases of these jobs end, as if it had had one.
    /// For small lists: the lock is held.
    pub fn holder_lost(
        &self,
        jobs: &[JobId],
        is_own: impl Fn(&Lease) -> bool,
    ) -> Result<Gate, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        for id in jobs {
            let Some(claim) = inner.claim_of(*id, &is_own) else { continue };
            if let Err(rejection) = inner.run(&Command::Release { claim, cause: Cause::HolderGone })
            {
                return Err(self.refuse(&inner, rejection));
            }
        }
        Ok(inner.own_gate())
    }

    /// Deletes a job that nobody works on and that has not ended: else it is refused as leased or
    /// finished.
    pub fn delete_waiting(&self, which: JobRef) -> Result<Gate, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        let found = inner.resolve(which).and_then(|id| Some((id, inner.state.status(id)?)));
        let decided = match found {
            None => Err(Rejection::NotFound),
            Some((_, Status::Leased)) => Err(Rejection::Leased),
            Some((_, status)) if status.is_finished() => Err(Rejection::Finished),
            Some((id, _)) => inner.run(&Command::Delete { id, cause: Cause::Deleted }),
        };
        match decided {
            Ok(()) => Ok(inner.own_gate()),
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }
}

impl Inner {
    fn claim_of(&self, id: JobId, is_own: &impl Fn(&Lease) -> bool) -> Option<Claim> {
        let Some(Found::Live(job)) = self.state.job(id) else { return None };
        let lease = job.lease().filter(|lease| is_own(lease))?;
        Some(Claim::Token { id, epoch: lease.epoch, attempt: job.attempts() })
    }
}
