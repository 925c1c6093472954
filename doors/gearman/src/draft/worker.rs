//! What workers do: say what they can, sleep, ask for a job, tell how far they are, finish.

use std::collections::HashSet;

use bytes::Bytes;
use spindle_core::command::{Claim, Lease, Select};
use spindle_core::job::{Origin, Status};
use spindle_core::{BytesRef, JobId, Rejection, Type};
use spindle_engine::{
    FetchError, Gate, JobRef, LeaseRef, LeaseReply, LeasedJob, News, Outbox, Refused, Slept,
    WorkResult,
};

use super::{Done, DraftSession, error, refuse, reply};
use crate::wire::draft::{ErrorCode, Progress, Reply, Request};

/// A name, its NUL and what frames them: what an assignment carries besides its payload.
const ASSIGNMENT_BYTES_MAX: usize = 1024;

/// The job this connection has.
#[derive(Clone, Debug)]
pub(super) struct Held {
    id: JobId,
    epoch: u64,
    attempt: u32,
    name: Bytes,
    payload: BytesRef,
}

impl Held {
    fn of(job: &LeasedJob) -> Held {
        Held {
            id: job.id,
            epoch: job.epoch,
            attempt: job.attempt,
            name: job.queue.clone(),
            payload: job.payload.clone(),
        }
    }

    fn claim(&self) -> Claim {
        Claim::Token { id: self.id, epoch: self.epoch, attempt: self.attempt }
    }

    fn lease(&self) -> LeaseRef {
        LeaseRef { job: self.id, attempt: self.attempt }
    }
}

impl DraftSession {
    // ---- announcements ----

    pub(super) fn connect(&mut self, names: Vec<Bytes>, out: &mut Outbox) -> Done {
        // Copies: the packet may be large, and the names stay.
        let names: Vec<Bytes> = names.iter().map(|name| Bytes::copy_from_slice(name)).collect();
        let mut roll = self.common.roll.lock();
        roll.reset_abilities(self.number);
        // One said twice counts once.
        let mut said = HashSet::new();
        for (place, name) in (0..).zip(names.iter()).filter(|(_, name)| said.insert(*name)) {
            roll.add_ability(self.number, place, name);
        }
        drop(roll);
        self.names = names;
        if self.sleeps {
            // A sleeper is called for what it can do now.
            self.rise();
            return self.sleep(out);
        }
        Done::Yes
    }

    pub(super) fn sleep(&mut self, out: &mut Outbox) -> Done {
        if self.asleep.is_some() {
            return Done::Yes;
        }
        self.sleeps = true;
        if self.names.is_empty() {
            // There is nothing to call it for until it can do something.
            return Done::Yes;
        }
        let payload_bytes_max = self.payload_bytes_max();
        match self.engine.sleep(&self.caller, self.names.clone(), payload_bytes_max) {
            Ok(Slept::Called) => {
                self.sleeps = false;
                reply(out, Gate::OPEN, &Reply::Noop);
            }
            Ok(Slept::Asleep(ticket)) => self.asleep = Some(ticket),
            Err(refused) => refuse(out, &refused),
        }
        Done::Yes
    }

    fn rise(&mut self) {
        if let Some(ticket) = self.asleep.take() {
            self.engine.cancel_wait(&self.caller, ticket);
        }
    }

    // ---- asking for a job ----

    pub(super) fn assign(&mut self, out: &mut Outbox) -> Done {
        self.rise();
        self.sleeps = false;
        if let Some(held) = self.still_held() {
            return self.assign_again(&held, out);
        }
        if self.names.is_empty() {
            reply(out, Gate::OPEN, &Reply::Noop);
            return Done::Yes;
        }
        loop {
            let wish = Lease {
                queues: self.names.clone(),
                select: Select::RoundRobin { after: self.last.clone() },
                holder: self.caller.connection.0,
                bound: true,
                timeout_ms: None,
                door: Origin::GearmanDraft,
                worker: Bytes::new(),
                payload_bytes_max: self.payload_bytes_max(),
            };
            match self.engine.lease(&self.caller, wish, 0) {
                Ok(LeaseReply::Leased(job, gate)) => {
                    if self.hand_out(&job, gate, out) {
                        return Done::Yes;
                    }
                }
                Ok(LeaseReply::Nothing(gate)) => {
                    reply(out, gate, &Reply::Noop);
                    return Done::Yes;
                }
                Ok(LeaseReply::Waiting(ticket)) => {
                    // Not asked for.
                    self.engine.cancel_wait(&self.caller, ticket);
                    reply(out, Gate::OPEN, &Reply::Noop);
                    return Done::Yes;
                }
                Err(Refused::Busy) => return Done::Again(Request::JobAssign),
                Err(refused) => {
                    refuse(out, &refused);
                    return Done::Yes;
                }
            }
        }
    }

    /// False if the job's payload is damaged: the job is dead now, and another may be there.
    fn hand_out(&mut self, job: &LeasedJob, gate: Gate, out: &mut Outbox) -> bool {
        let held = Held::of(job);
        let payload = match self.engine.leased_payload(job) {
            Ok(payload) => payload,
            Err(FetchError::Damaged(_)) => return false,
            Err(refusal) => {
                tracing::error!("the payload of job {} cannot be read: {refusal}", job.id);
                self.engine.undo_lease(held.lease());
                reply(out, gate, &Reply::Noop);
                return true;
            }
        };
        let assigned = Reply::JobAssigned { name: held.name.clone(), payload };
        out.put_lease(gate, held.lease(), |out| assigned.encode(out));
        self.last = Some(held.name.clone());
        self.held = Some(held);
        true
    }

    /// A worker that asks while it has a job has lost track of it: it gets that job again.
    fn assign_again(&mut self, held: &Held, out: &mut Outbox) -> Done {
        match self.engine.payload(held.id, &held.payload) {
            Ok(payload) => {
                let name = held.name.clone();
                reply(out, Gate::OPEN, &Reply::JobAssigned { name, payload });
            }
            Err(refusal) => {
                tracing::error!("the payload of job {} cannot be read: {refusal}", held.id);
                reply(out, Gate::OPEN, &Reply::Noop);
            }
        }
        Done::Yes
    }

    /// The job this connection has, if the engine thinks so too: it may have been cancelled, or
    /// its time may have run out.
    fn still_held(&mut self) -> Option<Held> {
        let held = self.held.take()?;
        let (image, _) = self.engine.job(JobRef::Id(held.id)).ok()?;
        let image = image?;
        let is_live = image.status() == Status::Leased
            && image.attempts == held.attempt
            && image.lease.as_ref().is_some_and(|lease| lease.epoch == held.epoch);
        self.held = is_live.then_some(held);
        self.held.clone()
    }

    /// Larger payloads are passed over by this connection's leases: a packet cannot carry them.
    fn payload_bytes_max(&self) -> u32 {
        let room = self.limits.packet_bytes_max.saturating_sub(ASSIGNMENT_BYTES_MAX);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    // ---- what becomes of it ----

    pub(super) fn announce_status(&mut self, progress: Progress, out: &mut Outbox) -> Done {
        let Some(held) = &self.held else {
            error(out, Gate::OPEN, ErrorCode::NoJobHeld);
            return Done::Yes;
        };
        let news = News::Progress {
            numerator: progress.numerator.to_string().into(),
            denominator: progress.denominator.to_string().into(),
            remaining_s: progress.remaining_s,
        };
        match self.engine.report(held.claim(), news) {
            Ok(()) => {}
            Err(Refused::Rejected(Rejection::NotHeld, gate)) => {
                self.held = None;
                error(out, gate, ErrorCode::NoJobHeld);
            }
            Err(refused) => refuse(out, &refused),
        }
        Done::Yes
    }

    pub(super) fn announce_completion(
        &mut self,
        code: u8,
        result: Bytes,
        out: &mut Outbox,
    ) -> Done {
        let Some(held) = &self.held else {
            error(out, Gate::OPEN, ErrorCode::NoJobHeld);
            return Done::Yes;
        };
        let outcome = |code: u8, bytes: Bytes| WorkResult {
            success: code == 0,
            // A failed job is tried again if its queue's settings say so.
            retry: true,
            bytes,
            code: if code == 0 { Bytes::new() } else { code.to_string().into() },
            ..WorkResult::default()
        };
        let claim = held.claim();
        match self.engine.finish(claim, outcome(code, result.clone()), Type::Bytes) {
            Ok(_) => self.held = None,
            Err(Refused::Busy) => {
                return Done::Again(Request::JobCompleteAnnounce { code, result });
            }
            Err(Refused::Rejected(_, gate)) => {
                self.held = None;
                error(out, gate, ErrorCode::NoJobHeld);
            }
            // The application must not wait for a result that can never be kept.
            Err(refused @ Refused::TooLarge { .. }) => {
                let failed = outcome(FAILED_CODE, Bytes::new());
                match self.engine.finish(claim, failed, Type::Bytes) {
                    Err(Refused::Busy) => {
                        return Done::Again(Request::JobCompleteAnnounce { code, result });
                    }
                    _ => self.held = None,
                }
                refuse(out, &refused);
            }
            Err(refused) => refuse(out, &refused),
        }
        Done::Yes
    }
}

/// The code of failures that no worker gave a code for.
pub(super) const FAILED_CODE: u8 = 255;
