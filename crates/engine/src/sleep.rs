//! Sleepers: workers that want to be called when there is work, and come for it themselves.
//!
//! Who calls: a door whose workers go to sleep (Gearman's PRE_SLEEP, the draft's worker_sleep).
//! What comes: [`Answer::Called`], once, which ends the sleep and waits for no record: a call
//! promises nothing and reserves nothing. As many sleepers are called as there are ready jobs they
//! can do; whoever is called counts for a while, so that one job does not wake everybody. If a job
//! is still ready when that while is over, the next one is called.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use spindle_core::command::{Lease, Select};
use spindle_core::job::{Origin, Status};
use spindle_core::{Command, Event, Found, JobId, decide};

use crate::answer::Answer;
use crate::door::{Gate, Ticket};
use crate::engine::{Engine, Refused};
use crate::inner::Inner;
use crate::waits::{Caller, Sleep, Wait, Wish};

/// How long one who was called has time to come for the job.
pub(crate) const CALL_MS: u64 = 100;

/// What a worker that goes to sleep is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// There is work: it need not sleep.
    Called,
    /// It sleeps; the call comes as this ticket's answer.
    Asleep(Ticket),
}

/// Sleepers that were called for jobs of a queue and have not come yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    by_queue: HashMap<Bytes, Called>,
    due: BTreeSet<(u64, Bytes)>,
}

#[derive(Debug)]
struct Called {
    count: usize,
    due_ms: u64,
}

impl Calls {
    fn count(&self, queue: &[u8]) -> usize {
        self.by_queue.get(queue).map_or(0, |called| called.count)
    }

    fn add(&mut self, queue: &Bytes, now_ms: u64) {
        if let Some(called) = self.by_queue.get_mut(queue) {
            called.count += 1;
            return;
        }
        let due_ms = now_ms.saturating_add(CALL_MS);
        self.by_queue.insert(queue.clone(), Called { count: 1, due_ms });
        self.due.insert((due_ms, queue.clone()));
    }

    /// One came.
    fn take(&mut self, queue: &Bytes) {
        let Some(called) = self.by_queue.get_mut(queue) else { return };
        called.count = called.count.saturating_sub(1);
        if called.count == 0 {
            self.forget(queue);
        }
    }

    fn forget(&mut self, queue: &Bytes) {
        if let Some(called) = self.by_queue.remove(queue) {
            self.due.remove(&(called.due_ms, queue.clone()));
        }
    }

    fn due(&self, now_ms: u64) -> Option<Bytes> {
        self.due.first().filter(|(due, _)| *due <= now_ms).map(|(_, queue)| queue.clone())
    }

    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    pub fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }
}

impl Engine {
    /// Sleeps until there is something to lease from these queues.
    pub fn sleep(
        &self,
        caller: &Caller,
        queues: Vec<Bytes>,
        payload_bytes_max: u32,
    ) -> Result<Slept, Refused> {
        let mut inner = self.enter();
        if inner.waits.len() >= inner.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        let sleep = Sleep { queues, payload_bytes_max };
        if let Some(queue) = inner.work_for(&sleep) {
            let now_ms = inner.now_ms;
            inner.calls.add(&queue, now_ms);
            return Ok(Slept::Called);
        }
        let wish = Wish::Sleep(Box::new(sleep));
        let wait = Wait { caller: caller.clone(), wish, deadline_ms: None };
        Ok(Slept::Asleep(inner.waits.add(wait)))
    }
}

impl Inner {
    /// The queue one who sleeps would get a job from, not counting jobs others were called for.
    fn work_for(&mut self, sleep: &Sleep) -> Option<Bytes> {
        if self.stopping {
            return None;
        }
        let waiting: Vec<Bytes> =
            sleep.queues.iter().filter(|queue| self.uncalled(queue) > 0).cloned().collect();
        if waiting.is_empty() {
            return None;
        }
        self.would_lease(waiting, sleep.payload_bytes_max)
    }

    /// Ready jobs of a queue nobody was called for.
    fn uncalled(&self, queue: &[u8]) -> usize {
        let ready = self.state.queue(queue).map_or(0, |queue| queue.count(Status::Ready));
        ready.saturating_sub(self.calls.count(queue))
    }

    /// The queue a lease would take a job from now. Ready jobs may be held back by a pause or
    /// a constraint: to call somebody for those would make it come and go without end.
    fn would_lease(&mut self, queues: Vec<Bytes>, payload_bytes_max: u32) -> Option<Bytes> {
        let wish = Command::Lease(Lease {
            queues,
            select: Select::ByPriority,
            holder: 0,
            bound: true,
            timeout_ms: None,
            door: Origin::Gearman,
            worker: Bytes::new(),
            payload_bytes_max,
        });
        let mut decision = std::mem::take(&mut self.decision);
        let mut decided = decide(&self.state, &wish, self.now_ms, &mut decision);
        while !decision.blocked.is_empty() {
            self.state.apply_hints(&decision, self.now_ms);
            decided = decide(&self.state, &wish, self.now_ms, &mut decision);
        }
        let job = decision.events.iter().find_map(|(event, _)| match event {
            Event::Leased(leased) => Some(JobId(leased.id)),
            _ => None,
        });
        self.decision = decision;
        decided.ok()?;
        match self.state.job(job?)? {
            Found::Live(job) => Some(job.queue().clone()),
            Found::Finished(_) => None,
        }
    }

    /// Calls sleepers for the queues in which jobs became ready and stayed so.
    pub fn call_sleepers(&mut self) {
        for at in 0..self.woken.len() {
            let queue = self.woken[at].clone();
            self.call_for(&queue);
        }
    }

    fn call_for(&mut self, queue: &Bytes) {
        if self.stopping {
            return;
        }
        for _ in 0..self.uncalled(queue) {
            let Some(ticket) = self.waits.first_asleep(queue) else { return };
            let Some(Wish::Sleep(sleep)) = self.waits.find(ticket).map(|wait| &wait.wish) else {
                return;
            };
            let payload_bytes_max = sleep.payload_bytes_max;
            if self.would_lease(vec![queue.clone()], payload_bytes_max).is_none() {
                return;
            }
            let now_ms = self.now_ms;
            self.calls.add(queue, now_ms);
            self.deliver(ticket, Answer::Called, Gate::OPEN);
        }
    }

    /// Somebody came for a job: one of those called, or one who did not sleep.
    pub fn note_came(&mut self, job: JobId) {
        if self.calls.is_empty() {
            return;
        }
        if let Some(Found::Live(job)) = self.state.job(job) {
            let queue = job.queue().clone();
            self.calls.take(&queue);
        }
    }

    /// Those who were called have had their time: the next ones are called for what is left.
    pub fn call_again(&mut self, now_ms: u64) {
        while let Some(queue) = self.calls.due(now_ms) {
            self.calls.forget(&queue);
            self.call_for(&queue);
        }
    }
}
