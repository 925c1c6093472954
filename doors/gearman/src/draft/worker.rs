//! What workers do: say what they can, sleep, ask for a job, tell how far they are, finish.

use std::collections::HashSet;

use bytes::Bytes;
use spindle_core::command::{Claim, Lease, Select};
use spindle_core::job::{Origin, Status};
use spindle_core::{BytesRef, JobId, Rejection, Type};
use spindle_engine::{
    JobRef, LeaseRef, LeaseReply, LeasedJob, News, Outbox, Payload, Refused, SleepReply, WorkResult,
};

use super::{DraftSession, error, refuse, reply};
use crate::wire::draft::{ErrorCode, Progress, Reply};

/// The job this connection has.
#[derive(Clone, Debug)]
pub(super) struct AssignedJob {
    id: JobId,
    epoch: u64,
    attempt: u32,
    name: Bytes,
    payload: BytesRef,
}

impl AssignedJob {
    fn of(job: &LeasedJob) -> AssignedJob {
        AssignedJob {
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

    pub(super) fn connect(&mut self, names: Vec<Bytes>, out: &mut Outbox) {
        // Copies: the packet may be large, and the names stay.
        let names: Vec<Bytes> = names.iter().map(|name| Bytes::copy_from_slice(name)).collect();
        let mut registry = self.common.registry.lock();
        registry.reset_abilities(self.number);
        // A name given twice counts once.
        let mut said = HashSet::new();
        for (place, name) in (0..).zip(names.iter()).filter(|(_, name)| said.insert(*name)) {
            registry.add_ability(self.number, place, name);
        }
        drop(registry);
        self.names = names;
        if self.sleeps {
            // Wake it for what it can do now.
            self.cancel_sleep();
            self.sleep(out);
        }
    }

    pub(super) fn sleep(&mut self, out: &mut Outbox) {
        if self.asleep.is_some() {
            return;
        }
        self.sleeps = true;
        if self.names.is_empty() {
            // There is nothing to wake it for until it can do something.
            return;
        }
        let payload_bytes_max = self.common.payload_bytes_max();
        match self.engine.waits().sleep(&self.caller, self.names.clone(), payload_bytes_max) {
            Ok(SleepReply::Called) => {
                self.sleeps = false;
                reply(out, &Reply::Noop);
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

    // ---- asking for a job ----

    pub(super) fn assign(&mut self, out: &mut Outbox) {
        self.cancel_sleep();
        self.sleeps = false;
        if let Some(held) = self.still_held(out) {
            return self.assign_again(&held, out);
        }
        if self.names.is_empty() {
            reply(out, &Reply::Noop);
            return;
        }
        loop {
            let request = Lease {
                queues: self.names.clone(),
                select: Select::RoundRobin { after: self.last.clone() },
                holder: self.caller.connection.0,
                bound: true,
                timeout_ms: None,
                door: Origin::GearmanDraft,
                worker: Bytes::new(),
                payload_bytes_max: self.common.payload_bytes_max(),
            };
            match out.open(self.engine.leases().take(&self.caller, request, 0)) {
                Ok(LeaseReply::Leased(job)) => {
                    if self.hand_out(&job, out) {
                        return;
                    }
                }
                Ok(LeaseReply::Nothing) => return reply(out, &Reply::Noop),
                Ok(LeaseReply::Waiting(ticket)) => {
                    // The worker did not ask to wait.
                    self.engine.waits().cancel(&self.caller, ticket);
                    return reply(out, &Reply::Noop);
                }
                Err(refused) => return refuse(out, &refused),
            }
        }
    }

    /// False if the job cannot be worked: another may be there.
    fn hand_out(&mut self, job: &LeasedJob, out: &mut Outbox) -> bool {
        let payload = match self.engine.leases().payload(job) {
            Ok(Some(payload)) => payload,
            Ok(None) => return false,
            Err(_) => {
                reply(out, &Reply::Noop);
                return true;
            }
        };
        let held = AssignedJob::of(job);
        let assigned = Reply::JobAssigned { name: held.name.clone(), payload };
        out.put_lease(held.lease(), |out| assigned.encode(out));
        self.last = Some(held.name.clone());
        self.held = Some(held);
        true
    }

    /// A worker that asks while it has a job has lost track of it: it gets that job again.
    fn assign_again(&mut self, held: &AssignedJob, out: &mut Outbox) {
        match self.engine.jobs().payload(held.id, &held.payload) {
            Ok(payload) => {
                let name = held.name.clone();
                reply(out, &Reply::JobAssigned { name, payload });
            }
            Err(refusal) => {
                tracing::error!("the payload of job {} cannot be read: {refusal}", held.id);
                reply(out, &Reply::Noop);
            }
        }
    }

    /// The job this connection has, if the engine still agrees: it may have been cancelled, or its
    /// time may have run out.
    fn still_held(&mut self, out: &mut Outbox) -> Option<AssignedJob> {
        let held = self.held.take()?;
        let image = out.open(self.engine.jobs().get(JobRef::Id(held.id)).ok()?)?;
        let is_live = image.status() == Status::Leased
            && image.attempts == held.attempt
            && image.lease.as_ref().is_some_and(|lease| lease.epoch == held.epoch);
        self.held = is_live.then_some(held);
        self.held.clone()
    }

    // ---- what becomes of it ----

    pub(super) fn announce_status(&mut self, progress: Progress, out: &mut Outbox) {
        let Some(held) = &self.held else {
            error(out, ErrorCode::NoJobHeld);
            return;
        };
        let news = News::Progress {
            numerator: progress.numerator.to_string().into(),
            denominator: progress.denominator.to_string().into(),
            remaining_s: progress.remaining_s,
        };
        match out.open(self.engine.leases().report(held.claim(), news)) {
            Ok(()) => {}
            Err(Refused::Rejected(Rejection::NotHeld)) => {
                self.held = None;
                error(out, ErrorCode::NoJobHeld);
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    pub(super) fn announce_completion(&mut self, code: u8, result: Bytes, out: &mut Outbox) {
        let Some(held) = &self.held else {
            error(out, ErrorCode::NoJobHeld);
            return;
        };
        let outcome = |code: u8, bytes: Bytes| WorkResult {
            success: code == 0,
            // A failed job is tried again if its queue's settings say so.
            retry: true,
            result: Payload::new(bytes, Type::Bytes),
            code: if code == 0 { Bytes::new() } else { code.to_string().into() },
            ..WorkResult::default()
        };
        let (claim, leases) = (held.claim(), self.engine.leases());
        let finished = leases.finish(claim, outcome(code, result));
        let finished = finished.success_without_waiting("it gets no answer to what it reports");
        let Err(refused) = finished.map_err(|refused| out.open(refused)) else {
            self.held = None;
            return;
        };
        match refused {
            Refused::Rejected(_) => {
                self.held = None;
                error(out, ErrorCode::NoJobHeld);
            }
            // The application must not wait for a result that can never be kept.
            Refused::TooLarge { .. } => {
                out.open(leases.finish(claim, outcome(FAILED_CODE, Bytes::new()))).ok();
                self.held = None;
                refuse(out, &refused);
            }
            refused => refuse(out, &refused),
        }
    }
}

/// The code of failures that no worker gave a code for.
pub(super) const FAILED_CODE: u8 = 255;
