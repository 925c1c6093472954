//! Waiting for the end of a job or of a batch, giving a wait up, and what ends waits at a stop.

use std::time::Duration;

use spindle_core::{Command, JobId, Status};

use super::list::{Caller, Wait, WaitFor};
use crate::answer::{Answer, Refused};
use crate::door::{ConnectionId, Ticket};
use crate::engine::Engine;
use crate::gate::Gated;
use crate::views::Waits;

impl Waits<'_> {
    /// Waits for a job's end; `until_leased`: the time counts only until somebody leases it. None
    /// if the job has ended already, or is not there: look it up again.
    pub fn for_result(
        &self,
        caller: &Caller,
        job: JobId,
        wait_ms: u64,
        until_leased: bool,
    ) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.0.enter();
        inner.check_waits()?;
        let status = match inner.state.status(job) {
            Some(status) if !status.is_finished() => status,
            _ => return Ok(None),
        };
        // Somebody waits again.
        inner.waiting.set_abandoned(job, false);
        let request = WaitFor::Result { job, until_leased };
        let ticket = inner.add_wait(caller, request, Some(wait_ms))?;
        inner.waiting.list.stop_deadlines(job, status == Status::Leased);
        Ok(Some(ticket))
    }

    /// Waits for a batch's end, with [`Answer::BatchEnded`]. None if it has ended already, or is not
    /// there: look it up again.
    pub fn for_batch_end(
        &self,
        caller: &Caller,
        batch: JobId,
        wait_ms: u64,
    ) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.0.enter();
        inner.check_waits()?;
        if inner.state.batch(batch).is_none_or(|batch| batch.ended_ms.is_some()) {
            return Ok(None);
        }
        inner.add_wait(caller, WaitFor::BatchEnd { batch }, Some(wait_ms)).map(Some)
    }

    /// Lets other connections go first: the ticket's [`Answer::Room`] is in the mailbox already, so
    /// the session goes on in a later turn of its reactor.
    pub fn after_others(&self, caller: &Caller) -> Ticket {
        let mut inner = self.0.shared.inner.lock();
        let wait = Wait { caller: caller.clone(), request: WaitFor::Room, deadline_ms: None };
        let ticket = inner.waiting.list.add(wait);
        inner.waiting.answer(ticket, Gated::open(Answer::Room));
        ticket
    }

    /// Lets a client go on after a time: the ticket gets [`Answer::Room`] then. For requests that come
    /// faster than they may.
    pub fn after(&self, caller: &Caller, time: Duration) -> Ticket {
        let mut inner = self.0.enter();
        let wait_ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let deadline_ms = Some(inner.now_ms.saturating_add(wait_ms));
        let wait = Wait { caller: caller.clone(), request: WaitFor::Time, deadline_ms };
        inner.waiting.list.add(wait)
    }

    /// The caller no longer waits. A lease that is on its way to it already is undone.
    pub fn cancel(&self, caller: &Caller, ticket: Ticket) {
        self.0.enter().give_up_wait(caller.connection, ticket);
    }

    /// A connection is gone: its waits end, and the leases bound to it. `waiting` is the ticket it
    /// had no answer to yet.
    pub fn connection_gone(&self, connection: ConnectionId, waiting: Option<Ticket>) {
        let mut inner = self.0.enter();
        if let Some(ticket) = waiting {
            inner.give_up_wait(connection, ticket);
        }
        inner.waiting.forget_delivered(connection);
        inner.numbers.workers.gone(connection.0);
        for ticket in inner.waiting.list.of_connection(connection) {
            inner.end_wait(ticket, None);
        }
        inner.end_call_of(connection);
        inner.serve_waiting();
        let command = Command::HolderGone { holder: connection.0 };
        while inner.run(&command).is_ok() && inner.state.holds_any(connection.0) {}
    }
}

impl Engine {
    /// No leases are given from now on, and no foreground jobs taken; those who wait for a lease,
    /// for the result of somebody else's job or for the end of a batch, are answered that their time is
    /// up. Jobs that are logged are still taken: what clients had sent before they learned of it is
    /// served, and kept.
    pub fn stop_leasing(&self) {
        let mut inner = self.enter();
        inner.stopping = true;
        for ticket in inner.waiting.list.leases_and_results() {
            inner.end_wait(ticket, Some(Answer::TimedOut));
        }
        self.leave(inner);
    }
}
