//! What workers do: say what they can, sleep, grab, report, finish.

use bytes::Bytes;
use spindle_core::address::from_gearman_handle;
use spindle_core::command::{Claim, Command, Extend, Lease, Select};
use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection, Type};
use spindle_engine::{
    JobRef, LeaseRef, LeaseReply, LeasedJob, News, Outbox, Payload, Refused, SleepReply, WorkResult,
};

use super::abilities::Added;
use super::naming::{reducer_of, shown_unique};
use super::watch::{EXCEPTION_CODE, FAILED_CODE};
use super::{GearmanSession, refuse, refuse_with, reply};
use crate::wire::{Assignment, ErrorReply, GrabKind, Request, Response};

/// A timeout below this counts as this (recorded).
const TIMEOUT_MS_MIN: u64 = 1000;
/// How many jobs ended with WORK_EXCEPTION are remembered, so that a late WORK_FAIL is no error.
const EXCEPTED_MAX: usize = 16;

/// A job this connection has grabbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrabbedJob {
    epoch: u64,
    attempt: u32,
    /// Pieces of its result were sent as WORK_DATA.
    streamed: bool,
}

impl GrabbedJob {
    fn claim(self, id: JobId) -> Claim {
        Claim::Token { id, epoch: self.epoch, attempt: self.attempt }
    }
}

impl GearmanSession {
    // ---- abilities ----

    pub(super) fn can_do(&mut self, function: Bytes, timeout_ms: Option<u64>, out: &mut Outbox) {
        let timeout_ms = timeout_ms.filter(|ms| *ms > 0).map(|ms| ms.max(TIMEOUT_MS_MIN));
        match self.abilities.add(&function, timeout_ms) {
            Added::New { place, name } => {
                self.common.registry.lock().add_ability(self.number, place, &name);
                self.sleep_for(name, out);
            }
            Added::Known => {}
            Added::TooMany => refuse_with(out, ErrorReply::TooMany),
        }
    }

    /// The worker keeps the jobs of the function that it has already grabbed.
    pub(super) fn cant_do(&mut self, function: &Bytes) {
        let Some(place) = self.abilities.remove(function) else { return };
        self.common.registry.lock().remove_ability(self.number, place);
        if let Some(ticket) = self.asleep {
            self.engine.waits().sleep_without(ticket, function);
        }
    }

    pub(super) fn reset_abilities(&mut self) {
        self.abilities.reset();
        self.common.registry.lock().reset_abilities(self.number);
        self.cancel_sleep();
    }

    // ---- sleep ----

    pub(super) fn pre_sleep(&mut self, out: &mut Outbox) {
        if !self.sleeps {
            self.sleeps = true;
            self.start_sleep(out);
            if !self.sleeps {
                // The worker asks for another job, and the timer of the one it has goes on.
                return;
            }
        }
        self.stop_timer();
    }

    /// A connection has one timer, as in gearmand: that of the job it grabbed last. Another grab ends
    /// it, and so does sleep. libgearman's worker relies on both: once a job has run out of time it
    /// asks for each job before it has done the one before, and would run out of time with all of
    /// them, over and over.
    fn stop_timer(&mut self) {
        let timed = self.timed.take().and_then(|id| Some((id, self.held.get(&id)?)));
        if let Some((id, held)) = timed {
            let command = Command::DropTimeout { claim: held.claim(id) };
            let dropped = self.engine.jobs().execute(&command);
            // A lease that has ended has no timer.
            dropped.without_waiting("the worker gets no answer to it").ok();
        }
    }

    fn start_sleep(&mut self, out: &mut Outbox) {
        if self.abilities.is_empty() {
            // There is nothing to wake it for until it can do something.
            return;
        }
        let payload_bytes_max = self.common.payload_bytes_max();
        let slept =
            self.engine.waits().sleep(&self.caller, self.abilities.names(), payload_bytes_max);
        self.slept(slept, out);
    }

    /// Lets one more function wake a sleeping worker.
    fn sleep_for(&mut self, function: Bytes, out: &mut Outbox) {
        match self.asleep {
            Some(ticket) => {
                let slept = self.engine.waits().sleep_also(ticket, function);
                self.slept(slept, out);
            }
            None if self.sleeps => self.start_sleep(out),
            None => {}
        }
    }

    fn slept(&mut self, slept: Result<SleepReply, Refused>, out: &mut Outbox) {
        match slept {
            Ok(SleepReply::Called) => {
                self.asleep = None;
                self.sleeps = false;
                reply(out, Response::Noop);
            }
            Ok(SleepReply::Asleep(ticket)) => self.asleep = Some(ticket),
            Err(refused) => refuse(out, &refused),
        }
    }

    fn cancel_sleep(&mut self) {
        if let Some(ticket) = self.asleep.take() {
            self.engine.waits().cancel(&self.caller, ticket);
        }
    }

    // ---- grab ----

    pub(super) fn grab(&mut self, kind: GrabKind, out: &mut Outbox) {
        self.cancel_sleep();
        self.sleeps = false;
        if self.abilities.is_empty() {
            return reply(out, Response::NoJob);
        }
        loop {
            let request = Lease {
                queues: self.abilities.names(),
                select: Select::RoundRobin { after: self.abilities.last.clone() },
                holder: self.caller.connection.0,
                bound: true,
                timeout_ms: self.abilities.common_timeout_ms().flatten(),
                door: Origin::Gearman,
                worker: self.id.clone(),
                payload_bytes_max: self.common.payload_bytes_max(),
            };
            match out.open(self.engine.leases().take(&self.caller, request, 0)) {
                Ok(LeaseReply::Leased(job)) => {
                    if self.hand_out(kind, &job, out) {
                        return;
                    }
                }
                Ok(LeaseReply::Nothing) => return reply(out, Response::NoJob),
                Err(refused) => return refuse(out, &refused),
                Ok(LeaseReply::Waiting(ticket)) => {
                    // The worker did not ask to wait.
                    self.engine.waits().cancel(&self.caller, ticket);
                    return reply(out, Response::NoJob);
                }
            }
        }
    }

    /// Writes a leased job. Returns false if it has no payload to give out: another job may be there.
    fn hand_out(&mut self, kind: GrabKind, job: &LeasedJob, out: &mut Outbox) -> bool {
        let payload = match self.engine.leases().payload(job) {
            Ok(Some(payload)) => payload,
            Ok(None) => return false,
            Err(_) => {
                reply(out, Response::NoJob);
                return true;
            }
        };
        let held = GrabbedJob { epoch: job.epoch, attempt: job.attempt, streamed: false };
        self.limit_lease(job, held);
        self.stop_timer();
        self.held.insert(job.id, held);
        self.timed = self.abilities.has_timeout(&job.queue).then_some(job.id);
        self.abilities.last = Some(job.queue.clone());
        let handle = self.common.handles.handle(job.id.0);
        let reducer = match kind {
            GrabKind::All => self.reducer_of(job.id, out),
            GrabKind::Plain | GrabKind::Uniq => None,
        };
        let unique = shown_unique(&job.keys);
        let assignment = Response::JobAssign(Assignment {
            handle: handle.as_bytes(),
            function: &job.queue[..],
            unique: (kind != GrabKind::Plain).then_some(&unique[..]),
            reducer: reducer.as_deref(),
            payload: &payload[..],
        });
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        out.put_lease(lease, |out| assignment.encode(out));
        true
    }

    /// Sets the timeout of a lease, where the worker's functions have different ones: only now is
    /// it known which one applies.
    fn limit_lease(&self, job: &LeasedJob, held: GrabbedJob) {
        if self.abilities.common_timeout_ms().is_some() {
            return;
        }
        let Some(timeout_ms) = self.abilities.timeout_ms(&job.queue) else { return };
        let ttr_ms = job.length_ms.map_or(timeout_ms, |length| length.min(timeout_ms));
        let limited = self.engine.leases().extend(Extend { claim: held.claim(job.id), ttr_ms });
        // Refused: the lease has ended, as the worker will hear when it reports.
        limited.without_waiting("a crash ends the lease of this connection anyway").ok();
    }

    fn reducer_of(&self, id: JobId, out: &mut Outbox) -> Option<Bytes> {
        let image = out.open(self.engine.jobs().get(JobRef::Id(id)).ok()?);
        reducer_of(&image?.options().tags)
    }

    // ---- reports and ends ----

    /// The job of a handle, if this connection holds it.
    fn find_held(&self, handle: &[u8]) -> Option<(JobId, GrabbedJob)> {
        let id = from_gearman_handle(handle)?;
        self.held.get(&id).map(|held| (id, *held))
    }

    /// Forgets a job that this connection held.
    fn let_go(&mut self, id: JobId) {
        self.held.remove(&id);
        self.timed.take_if(|timed| *timed == id);
    }

    pub(super) fn report(&mut self, request: Request, out: &mut Outbox) {
        let unknown = ErrorReply::of_job_not_held(&request);
        let (handle, news) = match request {
            Request::WorkStatus { handle, numerator, denominator } => {
                (handle, News::Progress { numerator, denominator, remaining_s: 0 })
            }
            Request::WorkData { handle, data } => (handle, News::Data(data)),
            Request::WorkWarning { handle, data } => (handle, News::Warning(data)),
            _ => return,
        };
        let Some((id, held)) = self.find_held(&handle) else {
            return refuse_with(out, unknown);
        };
        let is_data = matches!(news, News::Data(_));
        match out.open(self.engine.leases().report(held.claim(id), news)) {
            Ok(()) if is_data => {
                self.held.insert(id, GrabbedJob { streamed: true, ..held });
            }
            Ok(()) => {}
            Err(Refused::Rejected(Rejection::NotHeld)) => {
                self.let_go(id);
                refuse_with(out, unknown);
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    pub(super) fn finish(&mut self, request: Request, out: &mut Outbox) {
        let unknown = ErrorReply::of_job_not_held(&request);
        let is_fail = matches!(request, Request::WorkFail { .. });
        let is_exception = matches!(request, Request::WorkException { .. });
        let (handle, result) = match request {
            Request::WorkComplete { handle, result } => {
                let result = Payload::new(result, Type::Bytes);
                (handle, WorkResult { success: true, result, ..WorkResult::default() })
            }
            Request::WorkFail { handle } => (handle, failure(FAILED_CODE, Bytes::new())),
            Request::WorkException { handle, data } => (handle, failure(EXCEPTION_CODE, data)),
            _ => return,
        };
        let Some((id, held)) = self.find_held(&handle) else {
            if !(is_fail && self.forgive(&handle)) {
                refuse_with(out, unknown);
            }
            return;
        };
        match self.record_end(id, held, result, out) {
            Ok(()) => {
                self.let_go(id);
                if is_exception {
                    self.excepted.push_back(id);
                    self.excepted.drain(..self.excepted.len().saturating_sub(EXCEPTED_MAX));
                }
            }
            Err(Refused::Rejected(_)) => {
                self.let_go(id);
                refuse_with(out, unknown);
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    fn record_end(
        &self,
        id: JobId,
        held: GrabbedJob,
        result: WorkResult,
        out: &mut Outbox,
    ) -> Result<(), Refused> {
        let claim = held.claim(id);
        let leases = self.engine.leases();
        let finished = if held.streamed {
            leases.finish_streamed(claim, result)
        } else {
            leases.finish(claim, result)
        };
        let finished = finished.success_without_waiting("it gets no answer to what it reports");
        match finished.map_err(|refused| out.open(refused)) {
            // The clients must not wait for a result that can never be kept.
            Err(Refused::TooLarge { bytes, max }) => {
                out.open(leases.finish(claim, failure(b"result too large", Bytes::new())))?;
                Err(Refused::TooLarge { bytes, max })
            }
            finished => finished,
        }
    }

    /// Whether a WORK_FAIL only repeats a WORK_EXCEPTION for the same job.
    fn forgive(&mut self, handle: &[u8]) -> bool {
        let Some(id) = from_gearman_handle(handle) else { return false };
        let at = self.excepted.iter().position(|excepted| *excepted == id);
        at.and_then(|at| self.excepted.remove(at)).is_some()
    }
}

/// A failed attempt: the job's own policy decides whether it is tried again.
fn failure(code: &'static [u8], bytes: Bytes) -> WorkResult {
    let code = Bytes::from_static(code);
    let result = Payload::new(bytes, Type::Bytes);
    WorkResult { success: false, retry: true, result, code, ..WorkResult::default() }
}
