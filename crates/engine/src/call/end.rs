//! The end of attempts, and everything else that is done to a job by its name.

use bytes::{Bytes, BytesMut};
use spindle_core::audit::Action;
use spindle_core::command::{Claim, Extend, Finish};
use spindle_core::event::Requeued;
use spindle_core::job::{Cause, Deletion, Outcome, Status};
use spindle_core::{Command, Event, JobId, Rejection, State, decide_finish};

use crate::answer::Refused;
use crate::audit::{Audit, Deed, People};
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::read::JobRef;
use crate::views::{Jobs, Leases};

/// The result a worker reports.
#[derive(Clone, Debug, Default)]
pub struct WorkResult {
    /// Completed, or failed.
    pub success: bool,
    /// On failure: false kills the job, however many tries it has left.
    pub retry: bool,
    /// The result.
    pub result: Payload,
    /// For people.
    pub message: Bytes,
    /// As it came.
    pub error: Bytes,
    /// As it came.
    pub code: Bytes,
    /// As it came.
    pub worker_finished_at: Bytes,
}

impl WorkResult {
    /// What it takes in a record besides the result itself.
    fn words_bytes(&self) -> usize {
        let words = [&self.message, &self.error, &self.code, &self.worker_finished_at];
        words.into_iter().map(Bytes::len).sum()
    }
}

impl Leases<'_> {
    /// Reports the end of an attempt.
    pub fn finish(&self, claim: Claim, result: WorkResult) -> Gated<Result<(), Refused>> {
        self.0.finish(result, |inner| Ok((claim, inner.state.is_foreground(claim.id()))))
    }

    /// As [`Leases::finish`], for a holder that has reported pieces of its result before: a success
    /// is kept with them in front, up to the limit for results.
    pub fn finish_streamed(
        &self,
        claim: Claim,
        mut result: WorkResult,
    ) -> Gated<Result<(), Refused>> {
        if result.success {
            let (pieces, max) = {
                let inner = self.0.enter();
                (inner.streamed_pieces(claim), inner.options.payload_bytes_max)
            };
            if !pieces.is_empty() {
                let whole = whole_result(&pieces, result.result.bytes(), max);
                result.result = Payload::new(whole, result.result.kind());
                let streamed_bytes = pieces.iter().map(Bytes::len).sum::<usize>();
                self.0.enter().waiting.reports.note_streamed(claim.id(), streamed_bytes);
            }
        }
        self.finish(claim, result)
    }

    /// Extends a live lease.
    pub fn extend(&self, extend: Extend) -> Gated<Result<(), Refused>> {
        self.0.jobs().execute(&Command::Extend(extend))
    }

    /// Gives a leased job back.
    pub fn release(&self, claim: Claim, cause: Cause) -> Gated<Result<(), Refused>> {
        self.0.jobs().execute(&Command::Release { claim, cause })
    }
}

/// The pieces and the end of a result, cut to the limit: pieces that were already acknowledged must
/// not make the end impossible.
fn whole_result(pieces: &[Bytes], end: &Bytes, max: usize) -> Bytes {
    let len = pieces.iter().map(Bytes::len).sum::<usize>() + end.len();
    let mut whole = BytesMut::with_capacity(len);
    for piece in pieces.iter().chain([end]) {
        whole.extend_from_slice(piece);
    }
    whole.truncate(max);
    whole.freeze()
}

impl Jobs<'_> {
    /// Reports the end of any unfinished job, leased or not.
    pub fn finish_unfinished(&self, job: JobRef, result: WorkResult) -> Gated<Result<(), Refused>> {
        self.0.finish(result, |inner| {
            let found = inner.look_up(job).ok_or(Rejection::NotFound)?;
            let foreground = found.live().is_some_and(|job| job.is_foreground());
            Ok((Claim::Unfinished { id: found.id() }, foreground))
        })
    }
}

impl People<'_> {
    /// Deletes a job.
    pub fn delete(self, job: JobRef) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| inner.delete(self.audit, job, |_| Ok(())))
    }

    /// Deletes a job so that it can be undone for some time; none: it is gone at once, because that
    /// time is 0, or because the job is in no log.
    pub fn delete_for(self, job: JobRef, undo_ms: u64) -> Gated<Result<Option<Deletion>, Refused>> {
        self.engine.change(|inner| {
            let id = inner.look_up(job).ok_or(Rejection::NotFound)?.id();
            inner.delete_job(self.audit, id, Action::Delete, undo_ms)?;
            Ok(inner.state.deletion(id))
        })
    }

    /// Undoes a job's deletion.
    pub fn undo(self, id: JobId) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            let deed = Deed::to_job(inner, id, Action::Undo, String::new());
            Ok(inner.run_for(self.audit, deed, Some(Command::Undelete { id }), None)?)
        })
    }

    /// Deletes a job that is neither leased nor finished; otherwise the call is refused as leased
    /// or finished.
    pub fn delete_waiting(self, job: JobRef) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            inner.delete(self.audit, job, |status| match status {
                Status::Leased => Err(Rejection::Leased),
                status if status.is_finished() => Err(Rejection::Finished),
                _ => Ok(()),
            })
        })
    }

    /// Ends a job as dead.
    pub fn cancel(self, id: JobId) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            let deed = Deed::to_job(inner, id, Action::Cancel, String::new());
            Ok(inner.run_for(self.audit, deed, Some(Command::Cancel { id }), None)?)
        })
    }

    /// Gives the holder of a job more time.
    pub fn extend(self, id: JobId, ttr_ms: u64) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            let deed = Deed::to_job(inner, id, Action::Extend, format!("to {ttr_ms} ms from now"));
            let extend = Extend { claim: Claim::Unfinished { id }, ttr_ms };
            Ok(inner.run_for(self.audit, deed, Some(Command::Extend(extend)), None)?)
        })
    }
}

impl Engine {
    /// `claim` returns the claim, and whether the job is a foreground job.
    fn finish(
        &self,
        mut result: WorkResult,
        claim: impl FnOnce(&Inner) -> Result<(Claim, bool), Refused>,
    ) -> Gated<Result<(), Refused>> {
        result.result.make_checksum();
        let mut inner = self.enter();
        let finished = claim(&inner)
            .and_then(|(claim, foreground)| inner.finish(self, claim, foreground, result));
        inner.closed(finished)
    }
}

impl Inner {
    /// Deletes a job for a person: at once, or so that it can be undone for some time.
    pub(crate) fn delete_job(
        &mut self,
        audit: &mut Audit,
        id: JobId,
        action: Action,
        undo_ms: u64,
    ) -> Result<(), Rejection> {
        let deed = Deed::to_job(self, id, action, String::new());
        let delete = match undo_ms {
            0 => Command::Delete { id, cause: Cause::Deleted },
            _ => {
                let next = self.state.server().last_audit + 1;
                let request = audit.number().unwrap_or(next);
                Command::DeleteLater { id, request, undo_ms }
            }
        };
        self.run_for(audit, deed, Some(delete), None)
    }

    fn delete(
        &mut self,
        audit: &mut Audit,
        job: JobRef,
        check: impl FnOnce(Status) -> Result<(), Rejection>,
    ) -> Result<(), Refused> {
        let found = self.look_up(job).ok_or(Rejection::NotFound)?;
        let id = found.id();
        check(found.status())?;
        Ok(self.delete_job(audit, id, Action::Delete, 0)?)
    }

    fn finish(
        &mut self,
        engine: &Engine,
        claim: Claim,
        foreground: bool,
        result: WorkResult,
    ) -> Result<Gated<()>, Refused> {
        self.check_len(&result.result)?;
        let words_bytes = result.words_bytes();
        let payload = result.result;
        if !foreground {
            engine.check_reserve(self, payload.len() + words_bytes)?;
        }
        self.claimed(claim);
        let place =
            if foreground { payload.shared_in_memory() } else { self.batch.place_for(&payload) };
        let finish = Finish {
            claim,
            success: result.success,
            retry: result.retry,
            result: Some(place),
            message: result.message,
            error: result.error,
            code: result.code,
            worker_finished_at: result.worker_finished_at,
        };
        let room = self.foreground_room();
        self.run_decided(Some(&payload).filter(|_| !foreground), |state, now_ms, out| {
            decide_finish(state, &finish, now_ms, out)?;
            if foreground {
                out.events.iter_mut().for_each(|(event, _)| keep_within(room, event, state));
            }
            Ok(())
        })?;
        Ok(Gated::new((), self.own_gate_if(!foreground)))
    }
}

/// A foreground job that is tried again keeps its result in memory, if there is room for it. The
/// report is not refused, since the attempt did end.
fn keep_within(room: usize, event: &mut Event, state: &State) {
    let Event::Requeued(Requeued { id, outcome: Some(outcome), .. }) = event else { return };
    let job = state.live(JobId(*id));
    let replaced = job.as_ref().and_then(|job| job.outcome()).map_or(0, Outcome::bytes_len);
    if outcome.bytes_len() > room + replaced {
        outcome.leave_out_result("foreground payloads and results in memory are at their limit");
    }
}
