//! What workers do: say what they can, sleep, grab, report, finish.

use bytes::Bytes;
use spindle_core::address::from_gearman_handle;
use spindle_core::command::{Claim, Command, Extend, Lease, Select};
use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection, Type};
use spindle_engine::{
    FetchError, Gate, JobRef, LeaseRef, LeaseReply, LeasedJob, News, Outbox, Refused, Slept,
    WorkResult,
};

use super::abilities::Added;
use super::naming::{reducer_of, shown_unique};
use super::watch::{EXCEPTION_CODE, FAILED_CODE};
use super::{GearmanSession, error, refuse};
use crate::wire::{ErrorReply, GrabKind, Request, encode};

/// A timeout below this counts as this (recorded).
const TIMEOUT_MS_MIN: u64 = 1000;
/// Jobs ended with WORK_EXCEPTION that a late WORK_FAIL is forgiven for.
const EXCEPTED_MAX: usize = 16;

/// A job this connection has grabbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    epoch: u64,
    attempt: u32,
    /// Pieces of its result were told.
    told: bool,
}

impl Held {
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
                self.common.roll.lock().add_ability(self.number, place, &name);
                self.sleep_for(name, out);
            }
            Added::Known => {}
            Added::TooMany => error(out, Gate::OPEN, ErrorReply::TooMany),
        }
    }

    /// A job of the function that is under way stays with the worker.
    pub(super) fn cant_do(&mut self, function: &Bytes) {
        let Some(place) = self.abilities.remove(function) else { return };
        self.common.roll.lock().remove_ability(self.number, place);
        if let Some(ticket) = self.asleep {
            self.engine.sleep_without(ticket, function);
        }
    }

    pub(super) fn reset_abilities(&mut self) {
        self.abilities.reset();
        self.common.roll.lock().reset_abilities(self.number);
        self.rise();
    }

    // ---- sleep ----

    /// Returns the request if it must be tried again.
    pub(super) fn pre_sleep(&mut self, out: &mut Outbox) -> Option<Request> {
        if !std::mem::take(&mut self.stops_timer) && !self.sleeps {
            self.sleeps = true;
            self.fall_asleep(out);
            if !self.sleeps {
                // It comes for another job, and the time of the one it has goes on.
                return None;
            }
        }
        self.stops_timer = !self.stop_timer();
        self.stops_timer.then_some(Request::PreSleep)
    }

    /// A connection has one timer, as in gearmand: that of the job it grabbed last. Another grab ends
    /// it, and so does sleep. libgearman's worker relies on both: once a job has run out of time it
    /// asks for each job before it has done the one before, and would run out of time with all of
    /// them, over and over. False if the log is too far behind to say so.
    fn stop_timer(&mut self) -> bool {
        let Some((id, held)) = self.timed.and_then(|id| Some((id, self.held.get(&id)?))) else {
            return true;
        };
        let command = Command::DropTimeout { claim: held.claim(id) };
        let is_busy = matches!(self.engine.execute(&command), Err(Refused::Busy));
        if !is_busy {
            self.timed = None;
        }
        !is_busy
    }

    fn fall_asleep(&mut self, out: &mut Outbox) {
        if self.abilities.is_empty() {
            // There is nothing to call it for until it can do something.
            return;
        }
        let payload_bytes_max = self.common.payload_bytes_max();
        let slept = self.engine.sleep(&self.caller, self.abilities.names(), payload_bytes_max);
        self.slept(slept, out);
    }

    /// A sleeper can do one more function: it is called for that one too.
    fn sleep_for(&mut self, function: Bytes, out: &mut Outbox) {
        match self.asleep {
            Some(ticket) => {
                let slept = self.engine.sleep_also(ticket, function);
                self.slept(slept, out);
            }
            None if self.sleeps => self.fall_asleep(out),
            None => {}
        }
    }

    fn slept(&mut self, slept: Result<Slept, Refused>, out: &mut Outbox) {
        match slept {
            Ok(Slept::Called) => {
                self.asleep = None;
                self.sleeps = false;
                out.put(Gate::OPEN, encode::noop);
            }
            Ok(Slept::Asleep(ticket)) => self.asleep = Some(ticket),
            Err(refused) => refuse(out, &refused),
        }
    }

    fn rise(&mut self) {
        if let Some(ticket) = self.asleep.take() {
            self.engine.cancel_wait(&self.caller, ticket);
        }
    }

    // ---- grab ----

    /// Returns the request if it must be tried again.
    pub(super) fn grab(&mut self, kind: GrabKind, out: &mut Outbox) -> Option<GrabKind> {
        self.rise();
        self.sleeps = false;
        if self.abilities.is_empty() {
            out.put(Gate::OPEN, encode::no_job);
            return None;
        }
        loop {
            let wish = Lease {
                queues: self.abilities.names(),
                select: Select::RoundRobin { after: self.abilities.last.clone() },
                holder: self.caller.connection.0,
                bound: true,
                timeout_ms: self.abilities.common_timeout_ms().flatten(),
                door: Origin::Gearman,
                worker: self.id.clone(),
                payload_bytes_max: self.common.payload_bytes_max(),
            };
            match self.engine.lease(&self.caller, wish, 0) {
                Ok(LeaseReply::Leased(job, gate)) => match self.hand_out(kind, &job, gate, out) {
                    Handed::Done => return None,
                    Handed::Damaged => {}
                    Handed::Busy => return Some(kind),
                },
                Ok(LeaseReply::Nothing(gate)) => {
                    out.put(gate, encode::no_job);
                    return None;
                }
                Err(Refused::Busy) => return Some(kind),
                Err(refused) => {
                    refuse(out, &refused);
                    return None;
                }
                Ok(LeaseReply::Waiting(ticket)) => {
                    // Not asked for.
                    self.engine.cancel_wait(&self.caller, ticket);
                    out.put(Gate::OPEN, encode::no_job);
                    return None;
                }
            }
        }
    }

    fn hand_out(
        &mut self,
        kind: GrabKind,
        job: &LeasedJob,
        gate: Gate,
        out: &mut Outbox,
    ) -> Handed {
        let lease = LeaseRef { job: job.id, attempt: job.attempt };
        let payload = match self.engine.leased_payload(job) {
            Ok(payload) => payload,
            // It is dead now; another job may be there.
            Err(FetchError::Damaged(_)) => return Handed::Damaged,
            Err(FetchError::Read(error)) => {
                tracing::error!("the payload of job {} cannot be read: {error}", job.id);
                self.engine.undo_lease(lease);
                out.put(gate, encode::no_job);
                return Handed::Done;
            }
            // The job went between its lease and this read; should it still be there, nobody may
            // hold it for a payload that nobody got.
            Err(FetchError::Moved) => {
                self.engine.undo_lease(lease);
                out.put(gate, encode::no_job);
                return Handed::Done;
            }
        };
        let held = Held { epoch: job.epoch, attempt: job.attempt, told: false };
        if !(self.limit_lease(job, held) && self.stop_timer()) {
            self.engine.undo_lease(lease);
            return Handed::Busy;
        }
        self.held.insert(job.id, held);
        self.timed = self.abilities.timeout_ms(&job.queue).map(|_| job.id);
        self.abilities.last = Some(job.queue.clone());
        let handle = self.common.handles.handle(job.id.0);
        let (handle, function) = (handle.as_bytes(), &job.queue[..]);
        let reducer = match kind {
            GrabKind::All => self.reducer_of(job.id),
            GrabKind::Plain | GrabKind::Uniq => None,
        };
        let unique = shown_unique(&job.keys);
        out.put_lease(gate, lease, |out| match (kind, &reducer) {
            (GrabKind::Plain, _) => encode::job_assign(out, handle, function, &payload),
            (GrabKind::All, Some(reducer)) => {
                encode::job_assign_all(out, handle, function, &unique, reducer, &payload);
            }
            _ => encode::job_assign_uniq(out, handle, function, &unique, &payload),
        });
        Handed::Done
    }

    /// A worker whose functions have different timeouts learns only now which one counts. False if
    /// the log is too far behind to say so.
    fn limit_lease(&self, job: &LeasedJob, held: Held) -> bool {
        if self.abilities.common_timeout_ms().is_some() {
            return true;
        }
        let Some(timeout_ms) = self.abilities.timeout_ms(&job.queue) else { return true };
        let ttr_ms = job.length_ms.map_or(timeout_ms, |length| length.min(timeout_ms));
        let extend = Extend { claim: held.claim(job.id), ttr_ms };
        self.engine.execute(&Command::Extend(extend)).is_ok()
    }

    fn reducer_of(&self, id: JobId) -> Option<Bytes> {
        let (image, _) = self.engine.job(JobRef::Id(id)).ok()?;
        reducer_of(&image?.options().tags)
    }

    // ---- reports and ends ----

    /// The job of a handle, if this connection holds it.
    fn find_held(&self, handle: &[u8]) -> Option<(JobId, Held)> {
        let id = from_gearman_handle(handle)?;
        self.held.get(&id).map(|held| (id, *held))
    }

    /// This connection no longer holds a job.
    fn let_go(&mut self, id: JobId) {
        self.held.remove(&id);
        self.timed.take_if(|timed| *timed == id);
    }

    pub(super) fn report(&mut self, request: Request, out: &mut Outbox) {
        let (handle, news, unknown) = match request {
            Request::WorkStatus { handle, numerator, denominator } => {
                let news = News::Progress { numerator, denominator, remaining_s: 0 };
                (handle, news, ErrorReply::WorkResultJobNotFound)
            }
            Request::WorkData { handle, data } => {
                (handle, News::Data(data), ErrorReply::WorkDataJobNotFound)
            }
            Request::WorkWarning { handle, data } => {
                (handle, News::Warning(data), ErrorReply::WorkDataJobNotFound)
            }
            _ => return,
        };
        let Some((id, held)) = self.find_held(&handle) else {
            return error(out, Gate::OPEN, unknown);
        };
        let is_data = matches!(news, News::Data(_));
        match self.engine.report(held.claim(id), news) {
            Ok(()) if is_data => {
                self.held.insert(id, Held { told: true, ..held });
            }
            Ok(()) => {}
            Err(Refused::Rejected(Rejection::NotHeld, gate)) => {
                self.let_go(id);
                error(out, gate, unknown);
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    /// Returns the request if it must be tried again.
    pub(super) fn finish(&mut self, request: Request, out: &mut Outbox) -> Option<Request> {
        let (handle, result) = match &request {
            Request::WorkComplete { handle, result } => {
                let bytes = result.clone();
                (handle, WorkResult { success: true, bytes, ..WorkResult::default() })
            }
            Request::WorkFail { handle } => (handle, failure(FAILED_CODE, Bytes::new())),
            Request::WorkException { handle, data } => {
                (handle, failure(EXCEPTION_CODE, data.clone()))
            }
            _ => return None,
        };
        let unknown = match &request {
            Request::WorkException { .. } => ErrorReply::WorkExceptionJobNotFound,
            _ => ErrorReply::WorkResultJobNotFound,
        };
        let Some((id, held)) = self.find_held(handle) else {
            let is_fail = matches!(request, Request::WorkFail { .. });
            if !(is_fail && self.forgive(handle)) {
                error(out, Gate::OPEN, unknown);
            }
            return None;
        };
        match self.tell_engine(id, held, result) {
            Ok(_) => {
                self.let_go(id);
                if matches!(request, Request::WorkException { .. }) {
                    self.excepted.push_back(id);
                    self.excepted.drain(..self.excepted.len().saturating_sub(EXCEPTED_MAX));
                }
            }
            Err(Refused::Busy) => return Some(request),
            Err(Refused::Rejected(_, gate)) => {
                self.let_go(id);
                error(out, gate, unknown);
            }
            Err(refused) => refuse(out, &refused),
        }
        None
    }

    fn tell_engine(&self, id: JobId, held: Held, result: WorkResult) -> Result<Gate, Refused> {
        let claim = held.claim(id);
        let told = |result| {
            if held.told {
                self.engine.finish_streamed(claim, result, Type::Bytes)
            } else {
                self.engine.finish(claim, result, Type::Bytes)
            }
        };
        match told(result) {
            // The clients must not wait for a result that can never be kept.
            Err(Refused::TooLarge { bytes, max }) => {
                let result = failure(b"result too large", Bytes::new());
                self.engine.finish(claim, result, Type::Bytes)?;
                Err(Refused::TooLarge { bytes, max })
            }
            outcome => outcome,
        }
    }

    /// A WORK_FAIL behind a WORK_EXCEPTION for the same job says nothing new.
    fn forgive(&mut self, handle: &[u8]) -> bool {
        let Some(id) = from_gearman_handle(handle) else { return false };
        let at = self.excepted.iter().position(|excepted| *excepted == id);
        at.and_then(|at| self.excepted.remove(at)).is_some()
    }
}

/// What became of a leased job.
enum Handed {
    /// An answer is written.
    Done,
    /// Its payload is damaged.
    Damaged,
    /// The log is too far behind; the lease was undone.
    Busy,
}

/// Failures are tried again as long as the job's own policy has it.
fn failure(code: &'static [u8], bytes: Bytes) -> WorkResult {
    let code = Bytes::from_static(code);
    WorkResult { success: false, retry: true, bytes, code, ..WorkResult::default() }
}
