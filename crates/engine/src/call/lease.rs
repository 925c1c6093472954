//! Leases: taking a job, with its payload.

use std::borrow::Borrow;
use std::sync::Arc;

use spindle_core::Rejection;
use spindle_core::command::Lease;

use crate::answer::{LeaseReply, Refused};
use crate::door::LeaseRef;
use crate::gate::Gated;
use crate::views::Leases;
use crate::wait::{Caller, Spare, WaitFor};

impl Leases<'_> {
    /// Leases a job, or waits for one up to `wait_ms`. A caller that may have to ask again lends
    /// the request.
    pub fn take(
        &self,
        caller: &Caller,
        request: impl Borrow<Lease>,
        wait_ms: u64,
    ) -> Gated<Result<LeaseReply, Refused>> {
        let request = request.borrow();
        let mut inner = self.0.enter();
        let inner = &mut *inner;
        if inner.stopping {
            return inner.gated(Ok(LeaseReply::Nothing));
        }
        inner.numbers.asked(request, &inner.state, inner.now_ms);
        inner.end_call_of(caller.connection);
        let spare = if wait_ms == 0 { Spare::Nothing } else { Spare::Reserved };
        let leased = inner.lease(request, spare);
        // A job that it was called for and did not take is for others.
        inner.serve_waiting();
        match leased {
            Ok(job) => job.map(|job| Ok(LeaseReply::Leased(Box::new(job)))),
            Err(Rejection::NothingReady) if wait_ms == 0 => inner.gated(Ok(LeaseReply::Nothing)),
            Err(Rejection::NothingReady) => {
                let request = Arc::new(request.clone());
                let wait = WaitFor::Lease(request.clone());
                let added = inner.add_wait(caller, wait, Some(wait_ms));
                if added.is_ok() {
                    inner.numbers.workers.begins_to_wait(&request);
                }
                Gated::open(added.map(LeaseReply::Waiting))
            }
            Err(rejection) => inner.refused(rejection),
        }
    }

    /// A lease whose bytes never left: its attempt is given back.
    pub fn undo(&self, lease: LeaseRef) {
        self.0.enter().undo_lease(lease);
    }
}
