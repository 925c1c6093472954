//! After every command, the clients that wait for what it changed are served, the longest waiter
//! first.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_core::command::{Claim, Lease, Select};
use spindle_core::job::{Cause, Origin, Status};
use spindle_core::{
    Command, Decision, Event, Found, JobId, Rejection, State, decide, decide_lease,
};

use super::calls::{Callable, Spare};
use super::list::{Rank, Service, Wait, WaitFor};
use crate::answer::{Answer, LeasedJob};
use crate::commit::Payload;
use crate::door::{ConnectionId, LeaseRef, Ticket};
use crate::gate::Gated;
use crate::inner::Inner;

/// How often timed changes that wait for room on a full disk are looked at, in milliseconds.
pub(crate) const HELD_MS: u64 = 100;

/// Who is served next.
#[derive(Default)]
struct NextInLine {
    /// The first for each service at each woken queue.
    next: BTreeSet<(Rank, Service, Bytes)>,
    /// Waiting clients for which there was nothing.
    failed: BTreeSet<Ticket>,
}

impl Inner {
    // ---- commands and time ----

    /// Decides, logs, folds, and serves those who waited for it.
    pub fn run(&mut self, command: &Command) -> Result<(), Rejection> {
        self.run_with(command, None)
    }

    /// As [`Inner::run`], for a command that names the bytes of a payload.
    pub fn run_with(
        &mut self,
        command: &Command,
        payload: Option<&Payload>,
    ) -> Result<(), Rejection> {
        self.run_decided(payload, |state, now_ms, out| decide(state, command, now_ms, out))
    }

    /// As [`Inner::run_with`], with what decides in the place of a command.
    pub fn run_decided(
        &mut self,
        payload: Option<&Payload>,
        decide: impl FnOnce(&State, u64, &mut Decision) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        self.apply_decided(payload, decide)?;
        // An end may have freed a bucket: clients that wait for a job it held back are served now.
        self.serve_waiting();
        Ok(())
    }

    /// Lets happen what is due. Call before every command, with the lock held; `true` means there
    /// is more: let others in between.
    pub fn tick(&mut self, now_ms: u64) -> bool {
        self.set_now(now_ms);
        let now_ms = self.now_ms;
        let rebases = self.state.is_rebasing();
        if rebases {
            self.state.rebase();
        }
        if self.holds_timers {
            self.serve_waiting();
            return false;
        }
        let has_surplus = self.state.has_surplus();
        if has_surplus {
            self.let_happen();
        }
        let is_due = now_ms >= self.state.due_hint_ms();
        if is_due {
            self.state.wake_buckets(now_ms);
            self.let_happen();
            self.state.renew_due_hint(self.hold_expiry);
        }
        // Jobs whose blockers ended just now are ready in the next step, and may go before others.
        if (has_surplus || is_due || rebases) && !self.state.has_ended_blockers() {
            self.serve_waiting();
        }
        now_ms >= self.state.due_hint_ms() || self.state.has_surplus()
    }

    /// A step of what is due. Nobody is served.
    fn let_happen(&mut self) {
        let tick = Command::Tick { hold_expiry: self.hold_expiry };
        // A tick refuses nothing.
        self.apply(&tick, None).ok();
    }

    /// When the engine must be woken next.
    pub fn next_deadline(&self) -> Option<u64> {
        let core = if self.state.is_rebasing() { self.now_ms } else { self.state.due_hint_ms() };
        let earliest = if self.holds_timers { self.now_ms.saturating_add(HELD_MS) } else { 0 };
        let core = Some(core).filter(|due| *due != u64::MAX).map(|due| due.max(earliest));
        let waiting = [self.waiting.list.next_deadline(), self.waiting.calls.next_due()];
        waiting.into_iter().chain([core, self.next_firing()]).flatten().min()
    }

    // ---- serving ----

    /// Serves those who wait for woken queues and those who sleep, by rank: the longest waiter that
    /// can carry a job is handed it, a sleeper is called.
    pub(crate) fn serve_waiting(&mut self) {
        while let Some(id) = self.waiting.next_unwanted() {
            self.run(&Command::Delete { id, cause: Cause::Abandoned }).ok();
        }
        let mut line = NextInLine::default();
        loop {
            for queue in self.state.take_promoted() {
                self.waiting.wake_queue(&queue);
                line.failed.clear();
            }
            while let Some(queue) = self.waiting.next_woken() {
                for service in [Service::Lease, Service::Sleep] {
                    self.line_up(&mut line, service, &queue, None);
                }
            }
            let Some((rank, service, queue)) = line.next.pop_first() else { return };
            if self.stopping {
                return;
            }
            if self.serve(&mut line, rank, service, &queue) {
                self.line_up(&mut line, service, &queue, Some(rank));
            }
        }
    }

    /// Lines up the next one for a service at a queue, if there may be a job.
    fn line_up(&self, line: &mut NextInLine, service: Service, queue: &Bytes, after: Option<Rank>) {
        let has_ready = self.state.queue(queue).is_some_and(|queue| queue.count(Status::Ready) > 0);
        if has_ready && let Some(rank) = self.waiting.list.next_rank(service, queue, after) {
            line.next.insert((rank, service, queue.clone()));
        }
    }

    /// Serves one waiting client. Returns whether to serve the next in its line: only if there is a job for any of
    /// them, so that a job that cannot be leased costs no walk along the line.
    fn serve(
        &mut self,
        line: &mut NextInLine,
        rank: Rank,
        service: Service,
        queue: &Bytes,
    ) -> bool {
        if self.waiting.list.find(rank.ticket).is_none() {
            // It was served at another queue.
            return true;
        }
        match service {
            Service::Lease => {
                // A request that got no job at one queue gets none at another: it asks for all its
                // queues at once.
                let is_new = line.failed.insert(rank.ticket);
                (is_new && self.hand_over(rank.ticket, Spare::Reserved))
                    || self.has_more(queue, Spare::Reserved)
            }
            Service::Sleep => self.call(rank, queue) || self.has_more(queue, Spare::Called),
        }
    }

    /// Hands a job to a waiting client, if there is one for it.
    fn hand_over(&mut self, ticket: Ticket, spare: Spare) -> bool {
        let Some(Wait { caller, request: WaitFor::Lease(request), .. }) =
            self.waiting.list.find(ticket)
        else {
            return false;
        };
        let (connection, request) = (caller.connection, request.clone());
        let Ok(job) = self.lease(&request, spare) else { return false };
        let answer = job.map(|job| {
            let lease = LeaseRef { job: job.id, attempt: job.attempt };
            self.waiting.note_delivered(connection, ticket, lease);
            Answer::Leased(Box::new(job))
        });
        self.answer(ticket, answer);
        true
    }

    /// Whether there is a job of a queue to lease besides those that are spared.
    fn has_more(&mut self, queue: &Bytes, spare: Spare) -> bool {
        self.callable(vec![queue.clone()], u32::MAX, spare).is_some()
    }

    /// Calls a sleeper to a queue. Returns whether it was called: if not, there is no job it could
    /// lease.
    fn call(&mut self, rank: Rank, queue: &Bytes) -> bool {
        let Some(Wait { caller, request: WaitFor::Sleep(sleep), .. }) =
            self.waiting.list.find(rank.ticket)
        else {
            return false;
        };
        let (connection, payload_bytes_max) = (caller.connection, sleep.payload_bytes_max);
        let queues = vec![queue.clone()];
        let Some(job) = self.callable(queues, payload_bytes_max, Spare::Called) else {
            return false;
        };
        // It may have several tickets: its last call counts.
        self.end_call(connection);
        self.waiting.calls.add(connection, job, !rank.is_late, self.now_ms);
        self.answer(rank.ticket, Gated::open(Answer::Called));
        true
    }

    /// Ends a connection's call: what was left for it is there for the others. Returns whether there
    /// was one. Dispatch afterwards.
    pub fn end_call(&mut self, connection: ConnectionId) -> bool {
        let Some(queues) = self.waiting.calls.end(connection) else { return false };
        queues.iter().for_each(|queue| self.waiting.wake_queue(queue));
        true
    }

    // ---- leases ----

    /// Leases a job. Its answer waits for what the lease reveals, the record that made the job
    /// ready, and for the lease's own record where a forgotten lease would break a limit, or where all
    /// leases are to outlive a crash.
    pub fn lease(&mut self, request: &Lease, spare: Spare) -> Result<Gated<LeasedJob>, Rejection> {
        loop {
            // A job whose maximum was lowered dies instead of being leased: then the next is tried.
            if let Some(leased) = self.try_lease(request, spare)? {
                return Ok(leased);
            }
        }
    }

    fn try_lease(
        &mut self,
        request: &Lease,
        spare: Spare,
    ) -> Result<Option<Gated<LeasedJob>>, Rejection> {
        let mut decision = std::mem::take(&mut self.decision);
        let decided = self.decide_lease(request, spare, &mut decision);
        let mut leased = None;
        if decided.is_ok() {
            let mut waits = decision.waits_for_own_record;
            for (event, logged) in &decision.events {
                if let Event::Leased(event) = event {
                    leased = Some(self.describe_lease(event)?);
                    waits |= *logged && self.options.leases_wait();
                }
                self.happen(event, *logged);
            }
            if waits && !self.options.faults.lease_not_awaited {
                let own = Gated::new((), self.own_gate());
                leased = leased.map(|job| own.and_then(|()| job));
            }
        }
        self.decision = decision;
        decided.map(|()| leased)
    }

    fn describe_lease(
        &self,
        event: &spindle_core::event::Leased,
    ) -> Result<Gated<LeasedJob>, Rejection> {
        let found = self.state.job(JobId(event.id)).ok_or(Rejection::NotFound)?;
        let gate = self.gate_of(&found);
        let Found::Live(job) = found else { return Err(Rejection::Finished) };
        let payload = job.payload();
        let leased = LeasedJob {
            id: job.id(),
            uuid: job.uuid(),
            queue: job.queue().clone(),
            bytes: self.bytes_in_memory(&payload),
            payload,
            length_ms: event.lease.deadline_ms.map(|at| at.saturating_sub(self.now_ms)),
            epoch: event.lease.epoch,
            attempt: event.attempts,
            keys: job.keys().to_vec(),
            trace: self.lease_span(&job, event.attempts),
            after: job.options().after.as_ref().map_or_else(Vec::new, |it| self.before(&it.jobs)),
        };
        Ok(Gated::new(leased, gate))
    }

    /// Decides a lease that leaves the spared jobs to called sleepers.
    fn decide_lease(
        &mut self,
        request: &Lease,
        spare: Spare,
        decision: &mut Decision,
    ) -> Result<(), Rejection> {
        loop {
            #[cfg(test)]
            {
                self.decided += 1;
            }
            let reserved = self.waiting.calls.reservations(spare);
            let decided = decide_lease(&self.state, request, reserved, self.now_ms, decision);
            if decision.blocked.is_empty() {
                self.waiting.calls.leave(decision.left.drain(..));
                return decided;
            }
            self.state.apply_hints(decision, self.now_ms);
        }
    }

    /// The job a lease would take now. Ready jobs may be held back by a pause or a constraint: a
    /// sleeper called for those would come and go without end.
    pub fn callable(
        &mut self,
        queues: Vec<Bytes>,
        payload_bytes_max: u32,
        spare: Spare,
    ) -> Option<Callable> {
        // Only to see which job it would be: no event is folded, so holder and door do not matter.
        let request = Lease {
            queues,
            select: Select::ByPriority,
            holder: 0,
            bound: true,
            timeout_ms: None,
            door: Origin::Gearman,
            worker: Bytes::new(),
            payload_bytes_max,
        };
        let mut decision = std::mem::take(&mut self.decision);
        let decided = self.decide_lease(&request, spare, &mut decision);
        let job = decision.events.iter().find_map(|(event, _)| match event {
            Event::Leased(leased) => Some(JobId(leased.id)),
            _ => None,
        });
        self.decision = decision;
        decided.ok()?;
        let job = self.state.live(job?)?;
        Some(Callable { queue: job.queue().clone(), labels: job.labels().to_vec() })
    }

    // ---- waits ----

    /// Ends a wait with an answer. A worker that waited for a lease was here until now.
    pub fn answer(&mut self, ticket: Ticket, answer: Gated<Answer>) {
        let wait = self.waiting.answer(ticket, answer);
        self.note_wait_ended(wait);
    }

    fn note_wait_ended(&mut self, wait: Option<Wait>) {
        if let Some(Wait { request: WaitFor::Lease(request), .. }) = wait {
            self.numbers.workers.waited(&request, self.now_ms);
        }
    }

    /// Ends waits whose time has passed, at most `budget` of them.
    pub fn expire_waits(&mut self, now_ms: u64, budget: usize) {
        for _ in 0..budget {
            let Some(ticket) = self.waiting.list.due(now_ms) else { return };
            if matches!(self.waiting.list.find(ticket), Some(Wait { request: WaitFor::Time, .. })) {
                self.answer(ticket, Gated::open(Answer::Room));
                continue;
            }
            // A wait does not end with nothing while a job is merely reserved.
            let takes_reserved = self.waiting.calls.reserves_any() && !self.stopping;
            if !(takes_reserved && self.hand_over(ticket, Spare::Nothing)) {
                self.end_wait(ticket, Some(Answer::TimedOut));
            }
        }
    }

    /// Called sleepers have had their time: what they left is for others.
    pub fn end_due_calls(&mut self, now_ms: u64) {
        let mut any = false;
        while let Some(connection) = self.waiting.calls.due(now_ms) {
            self.end_call(connection);
            self.waiting.calls.set_missed(connection, true);
            any = true;
        }
        if any {
            self.serve_waiting();
        }
    }

    /// Ends a wait, with an answer or (its connection is gone) without one. An unstarted foreground
    /// job goes with its last waiter; a started one ends with its lease.
    pub fn end_wait(&mut self, ticket: Ticket, answer: Option<Answer>) {
        let job = match self.waiting.list.find(ticket).map(|wait| &wait.request) {
            Some(WaitFor::Result { job, .. } | WaitFor::Watch { job }) => Some(*job),
            Some(_) => None,
            None => return,
        };
        match answer {
            Some(answer) => self.answer(ticket, self.gated(answer)),
            None => {
                let wait = self.waiting.list.remove(ticket);
                self.note_wait_ended(wait);
            }
        }
        let Some(job) = job else { return };
        if !self.state.is_foreground(job) || self.waiting.list.count_for_job(job) > 0 {
            return;
        }
        if self.state.status(job) == Some(Status::Leased) {
            self.waiting.set_abandoned(job, true);
        } else {
            self.run(&Command::Delete { id: job, cause: Cause::Abandoned }).ok();
        }
    }

    /// The connection no longer waits for this ticket. If the answer is on its way already, the
    /// lease in it has no holder: its attempt is given back.
    pub fn give_up_wait(&mut self, connection: ConnectionId, ticket: Ticket) {
        if self.waiting.list.find(ticket).is_some() {
            self.end_wait(ticket, None);
        } else if let Some(lease) = self.waiting.take_delivered(connection, ticket) {
            self.undo_lease(lease);
        }
    }

    /// A lease whose bytes never left: its attempt is given back.
    pub fn undo_lease(&mut self, lease: LeaseRef) {
        let epoch = self.state.server().epoch;
        let claim = Claim::Token { id: lease.job, epoch, attempt: lease.attempt };
        self.run(&Command::Release { claim, cause: Cause::Undone }).ok();
    }
}
