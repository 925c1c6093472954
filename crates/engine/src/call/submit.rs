//! Submitting jobs, alone and many at once.

use std::collections::VecDeque;

use spindle_core::command::Submit;
use spindle_core::{JobId, Status, decide_submit};

use crate::answer::Refused;
use crate::commit::Payload;
use crate::door::Ticket;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Jobs;
use crate::wait::{Caller, WaitFor};

/// Jobs taken in one hold of the lock: as long as a few dozen single calls would hold it together.
const JOBS_PER_HOLD: usize = 32;
/// Their payloads, except the last one, are no longer than this together.
const BYTES_PER_HOLD: usize = 1 << 20;

/// A job to submit. As [`Submit`], with its payload still in hand.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Everything but the id and the payload's place.
    pub submit: Submit,
    /// The payload.
    pub payload: Payload,
}

impl NewJob {
    /// Whether it comes without labels of its own.
    pub(crate) fn is_unmatched(&self) -> bool {
        self.submit.constraints_revision == Submit::UNMATCHED
    }

    /// The checksum of what goes to the log is made without the lock.
    pub(crate) fn make_checksum(&mut self) {
        if !self.submit.foreground {
            self.payload.make_checksum();
        }
    }
}

impl Jobs<'_> {
    /// Submits a job.
    pub fn submit(&self, mut job: NewJob) -> Gated<Result<JobId, Refused>> {
        job.make_checksum();
        let mut inner = self.0.enter_matched(&mut job);
        inner.submit(self.0, job)
    }

    /// Submits the first jobs of a queue in their order, each as [`Jobs::submit`] does: one that is
    /// refused does not keep the others out. Takes as many as there is room for in the log, at
    /// least one, and stops after about [`BYTES_PER_HOLD`] so that other calls come in between.
    pub fn submit_batch(&self, jobs: &mut VecDeque<NewJob>) -> Vec<Gated<Result<JobId, Refused>>> {
        let mut answers = Vec::with_capacity(jobs.len());
        let mut bytes = 0;
        while !jobs.is_empty()
            && (answers.is_empty() || self.0.has_room())
            && bytes < BYTES_PER_HOLD
        {
            let count = if self.0.has_room() { part_of(jobs) } else { 1 };
            let mut part: Vec<NewJob> = jobs.drain(..count).collect();
            part.iter_mut().for_each(NewJob::make_checksum);
            bytes += part.iter().map(|job| job.payload.len()).sum::<usize>();
            let mut unmatched: Vec<&mut NewJob> =
                part.iter_mut().filter(|job| job.is_unmatched()).collect();
            let mut inner = self.0.enter_all_matched(&mut unmatched);
            answers.extend(part.into_iter().map(|job| inner.submit(self.0, job)));
        }
        answers
    }

    /// Submits a foreground job and waits for its end: first `wait_ms` for somebody to lease it,
    /// then as long as the lease lasts.
    pub fn submit_and_wait(
        &self,
        caller: &Caller,
        mut job: NewJob,
        wait_ms: u64,
    ) -> Gated<Result<Ticket, Refused>> {
        job.make_checksum();
        let mut inner = self.0.enter_matched(&mut job);
        if let Err(refused) = inner.check_waits() {
            return Gated::open(Err(refused));
        }
        let submitted = inner.submit(self.0, job);
        submitted.map(|submitted| {
            let id = submitted?;
            let request = WaitFor::Result { job: id, until_leased: true };
            let ticket = inner.add_wait(caller, request, Some(wait_ms))?;
            let leased = inner.state.status(id) == Some(Status::Leased);
            inner.waiting.list.stop_deadlines(id, leased);
            Ok(ticket)
        })
    }
}

/// How many of the first jobs go into one hold of the lock: at least one.
fn part_of(jobs: &VecDeque<NewJob>) -> usize {
    let mut bytes = 0;
    let fitting = jobs.iter().take(JOBS_PER_HOLD).take_while(|job| {
        let fits = bytes < BYTES_PER_HOLD;
        bytes += job.payload.len();
        fits
    });
    fitting.count()
}

impl Inner {
    /// Submits a job that was matched by the newest constraints.
    pub(crate) fn submit(
        &mut self,
        engine: &Engine,
        mut job: NewJob,
    ) -> Gated<Result<JobId, Refused>> {
        let submitted = self.try_submit(engine, &mut job);
        self.closed(submitted)
    }

    /// How many more bytes foreground jobs may have in memory.
    pub(crate) fn foreground_room(&self) -> usize {
        self.options.foreground_bytes_max.saturating_sub(self.footprint.foreground_bytes())
    }

    fn try_submit(&mut self, engine: &Engine, job: &mut NewJob) -> Result<Gated<JobId>, Refused> {
        let NewJob { submit, payload } = job;
        self.check_len(payload)?;
        let foreground = submit.foreground;
        if foreground {
            if self.stopping {
                return Err(Refused::Stopping);
            }
            if payload.len() > self.foreground_room() {
                return Err(Refused::TooMany("foreground jobs in memory"));
            }
        } else {
            engine.check_space()?;
        }
        let id = self.take_id();
        submit.id = id;
        submit.payload =
            if foreground { payload.in_memory() } else { self.batch.place_for(payload) };
        let span = self.begin_submit_span(submit);
        let logged = Some(&*payload).filter(|_| !foreground);
        let decided = self
            .run_decided(logged, |state, now_ms, out| decide_submit(state, submit, now_ms, out));
        if let Some(span) = span {
            span.end(submit, &decided);
        }
        if let Err(rejection) = decided {
            self.return_id(id);
            return Err(rejection.into());
        }
        let gate = if foreground { self.ids_gate() } else { self.own_gate() };
        Ok(Gated::new(id, gate))
    }
}
