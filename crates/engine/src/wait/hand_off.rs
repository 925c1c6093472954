//! Handing jobs to those who wait, and ending waits.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_core::command::{Claim, Lease};
use spindle_core::job::{Cause, Status};
use spindle_core::{Command, Event, Found, JobId, Rejection};

use super::waits::{Kind, Turn, Wait, WaitFor};
use super::wakeups::Spare;
use crate::answer::{Answer, LeasedJob};
use crate::door::{ConnectionId, Gate, LeaseRef, Ticket};
use crate::inner::Inner;

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    /// The next turn of each kind at each woken queue.
    next: BTreeSet<(Turn, Kind, Bytes)>,
    /// Those who wait and for whom there was nothing.
    failed: BTreeSet<Ticket>,
}

impl Inner {
    // ---- hand-off ----

    pub(crate) fn dispatch_promoted(&mut self) {
        for queue in self.state.take_promoted() {
            self.wake_queue(&queue);
        }
        self.dispatch();
    }

    /// Serves those who wait for woken queues and those who sleep, in turn: the longest waiter that
    /// can carry a job is handed it, a sleeper is called.
    pub(crate) fn dispatch(&mut self) {
        while let Some(id) = self.unwanted.pop() {
            self.run(&Command::Delete { id, cause: Cause::Abandoned }).ok();
        }
        let mut turns = Turns::default();
        loop {
            for queue in self.state.take_promoted() {
                self.wake_queue(&queue);
                turns.failed.clear();
            }
            while let Some(queue) = self.woken.pop_first() {
                for kind in [Kind::Lease, Kind::Sleep] {
                    self.line_up(&mut turns, kind, &queue, None);
                }
            }
            let Some((turn, kind, queue)) = turns.next.pop_first() else { return };
            if self.stopping {
                return;
            }
            if self.serve(&mut turns, turn, kind, &queue) {
                self.line_up(&mut turns, kind, &queue, Some(turn));
            }
        }
    }

    /// The next turn of a kind at a queue, if there may be a job.
    fn line_up(&self, turns: &mut Turns, kind: Kind, queue: &Bytes, after: Option<Turn>) {
        let has_ready = self.state.queue(queue).is_some_and(|queue| queue.count(Status::Ready) > 0);
        if has_ready && let Some(turn) = self.waits.next_turn(kind, queue, after) {
            turns.next.insert((turn, kind, queue.clone()));
        }
    }

    /// It is somebody's turn. Returns whether the next of its kind has one: only if there is something
    /// for any of them, so that a job that cannot be leased costs no walk along the line.
    fn serve(&mut self, turns: &mut Turns, turn: Turn, kind: Kind, queue: &Bytes) -> bool {
        if self.waits.find(turn.ticket).is_none() {
            // It was served at another queue.
            return true;
        }
        match kind {
            Kind::Lease => {
                // What it cannot have at one queue it cannot have at another: it asks for all.
                let is_new = turns.failed.insert(turn.ticket);
                (is_new && self.hand_over(turn.ticket, Spare::Reserved))
                    || self.has_unreserved(queue)
            }
            Kind::Sleep => self.call(turn, queue) || self.has_uncalled(queue),
        }
    }

    /// Hands a job to one who waits, if there is one for it.
    fn hand_over(&mut self, ticket: Ticket, leave: Spare) -> bool {
        let Some(Wait { caller, request: WaitFor::Lease(request), .. }) = self.waits.find(ticket)
        else {
            return false;
        };
        let (connection, request) = (caller.connection, request.clone());
        let Ok((job, gate)) = self.lease_decided(&request, leave) else { return false };
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        self.delivered.insert(connection, (ticket, lease));
        self.deliver(ticket, Answer::Leased(Box::new(job)), gate);
        true
    }

    /// Leases a job and says what its answer must wait for.
    pub fn lease_decided(
        &mut self,
        request: &Lease,
        leave: Spare,
    ) -> Result<(LeasedJob, Gate), Rejection> {
        loop {
            // A job whose maximum was lowered dies instead of being leased: then the next is tried.
            if let Some(leased) = self.try_lease(request, leave)? {
                return Ok(leased);
            }
        }
    }

    fn try_lease(
        &mut self,
        request: &Lease,
        leave: Spare,
    ) -> Result<Option<(LeasedJob, Gate)>, Rejection> {
        let mut decision = std::mem::take(&mut self.decision);
        let decided = self.decide_leaving(request, leave, &mut decision);
        let mut leased = None;
        if decided.is_ok() {
            for (event, logged) in &decision.events {
                if let Event::Leased(event) = event {
                    // What the lease reveals: the record that made the job ready.
                    leased = Some(self.describe_lease(event, *logged)?);
                }
                self.happen(event, *logged);
            }
            if decision.waits_for_own_record {
                let own = self.own_gate();
                leased = leased.map(|(job, _)| (job, own));
            }
        }
        self.decision = decision;
        decided.map(|()| leased)
    }

    fn describe_lease(
        &self,
        event: &spindle_core::event::Leased,
        logged: bool,
    ) -> Result<(LeasedJob, Gate), Rejection> {
        let found = self.state.job(JobId(event.id)).ok_or(Rejection::NotFound)?;
        let gate = if logged { self.gate_of(&found) } else { self.ids_gate };
        let Found::Live(job) = found else { return Err(Rejection::Finished) };
        let leased = LeasedJob {
            id: job.id(),
            uuid: job.uuid(),
            queue: job.queue().clone(),
            payload: job.payload(),
            length_ms: event.lease.deadline_ms.map(|at| at.saturating_sub(self.now_ms)),
            epoch: event.lease.epoch,
            attempt: event.attempts,
            keys: job.keys().to_vec(),
        };
        Ok((leased, gate))
    }

    // ---- waits ----

    /// Ends waits whose time has passed, at most `budget` of them.
    pub fn expire_waits(&mut self, now_ms: u64, budget: usize) {
        for _ in 0..budget {
            let Some(ticket) = self.waits.due(now_ms) else { return };
            // Nobody ends with nothing for what is only reserved.
            let takes_reserved = self.calls.reserves_any() && !self.stopping;
            if !(takes_reserved && self.hand_over(ticket, Spare::Nothing)) {
                self.end_wait(ticket, Some(Answer::TimedOut));
            }
        }
    }

    /// Ends a wait, with an answer or (its connection is gone) without one. An unstarted foreground
    /// job goes with its last waiter; a started one ends with its lease.
    pub fn end_wait(&mut self, ticket: Ticket, answer: Option<Answer>) {
        let job = match self.waits.find(ticket).map(|wait| &wait.request) {
            Some(WaitFor::Result { job, .. } | WaitFor::Watch { job }) => Some(*job),
            Some(_) => None,
            None => return,
        };
        let gate = self.tail();
        match answer {
            Some(answer) => self.deliver(ticket, answer, gate),
            None => {
                self.remove_wait(ticket);
            }
        }
        let Some(job) = job else { return };
        if !self.state.is_foreground(job) || self.waits.has_any_for_job(job) {
            return;
        }
        if self.state.status(job) == Some(Status::Leased) {
            self.abandoned.insert(job);
        } else {
            self.run(&Command::Delete { id: job, cause: Cause::Abandoned }).ok();
        }
    }

    /// The connection no longer waits for this ticket. If the answer is on its way already, the
    /// lease in it is nobody's: its attempt is given back.
    pub fn give_up_wait(&mut self, connection: ConnectionId, ticket: Ticket) {
        if self.waits.find(ticket).is_some() {
            self.end_wait(ticket, None);
            return;
        }
        if let Some((delivered, lease)) = self.delivered.get(&connection).copied()
            && delivered == ticket
        {
            self.delivered.remove(&connection);
            self.undo_lease(lease);
        }
    }

    /// A lease whose bytes never left: its attempt is given back.
    pub fn undo_lease(&mut self, lease: LeaseRef) {
        let epoch = self.state.server().epoch;
        let claim = Claim::Token { id: lease.job, epoch, attempt: lease.attempt };
        self.run(&Command::Release { claim, cause: Cause::Undone }).ok();
    }

    /// When the engine must be woken next.
    pub fn next_deadline(&self) -> Option<u64> {
        let core = if self.state.is_rebasing() { self.now_ms } else { self.state.due_hint_ms() };
        let core = Some(core).filter(|due| *due != u64::MAX);
        [core, self.waits.next_deadline(), self.calls.next_due()].into_iter().flatten().min()
    }
}
