//! Watching a job: one wait with several answers, news first and the job's end last.
//!
//! Who calls: a door whose clients stay until their job is done (Gearman's foreground jobs, the
//! draft's sync ones). What comes: [`Answer::Reported`] for what the holder of the live lease reports,
//! then exactly one of [`Answer::Ended`] (done or dead; its gate is the record of the end) and
//! [`Answer::Gone`]. News are volatile: they wait for no record, are forgotten when the lease ends,
//! and a watcher that comes later hears only what is new from then on.
//!
//! A slow watcher costs the engine nothing: news go into its reactor's mailbox at once, and it is
//! the session that stops taking them when its outbox is full.

use bytes::{Bytes, BytesMut};
use spindle_core::command::Claim;
use spindle_core::job::Status;
use spindle_core::{Found, JobId, Rejection};

use super::waits::{Caller, WaitFor};
use crate::answer::{Answer, News, Refused};
use crate::call::WorkResult;
use crate::commit::Payload;
use crate::door::Ticket;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::read::JobRef;
use crate::views::{Leases, Waits};

/// The numerator and the denominator of a progress are at most this long.
const PROGRESS_BYTES_MAX: usize = 64;

/// Where an unfinished job stands, as far as it is not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// The job.
    pub id: JobId,
    /// Where it stands in its life.
    pub status: Status,
    /// The numerator its holder reported last, as text; empty if none.
    pub numerator: Bytes,
    /// The denominator its holder reported last, as text; empty if none.
    pub denominator: Bytes,
    /// How long it will take by its holder's last estimate; 0 if none.
    pub remaining_s: u32,
    /// Clients that wait for its end.
    pub waiting: usize,
}

impl Waits<'_> {
    /// Watches an unfinished job. None if it has ended already, or is not there: look it up.
    pub fn watch(&self, caller: &Caller, job: JobId) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.0.enter();
        match inner.state.status(job) {
            Some(status) if !status.is_finished() => inner.add_watch(caller, job).map(Some),
            _ => Ok(None),
        }
    }

    /// Where an unfinished job stands; none if there is no such job, or it has finished.
    pub fn progress(&self, job: JobRef) -> Gated<Option<JobProgress>> {
        let inner = self.0.enter();
        match inner.look_up(job) {
            Some(found) => Gated::new(inner.progress(&found), inner.gate_of(&found)),
            None => inner.gated(None),
        }
    }
}

impl Leases<'_> {
    /// The holder of a live lease reports something. Nothing of it waits for the log.
    pub fn report(&self, claim: Claim, news: News) -> Gated<Result<(), Refused>> {
        let mut inner = self.0.enter();
        let reported = inner.report(claim, &news);
        inner.closed(reported.map(Gated::open))
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
                let whole = join(&pieces, result.result.bytes(), max);
                result.result = Payload::new(whole, result.result.kind());
                let streamed_bytes = pieces.iter().map(Bytes::len).sum::<usize>();
                self.0.enter().waiting.reports.note_streamed(claim.id(), streamed_bytes);
            }
        }
        self.finish(claim, result)
    }
}

/// The pieces and the end of a result, cut to the limit: what was acknowledged piece by piece must
/// not make the end impossible.
fn join(pieces: &[Bytes], end: &Bytes, max: usize) -> Bytes {
    let len = pieces.iter().map(Bytes::len).sum::<usize>() + end.len();
    let mut whole = BytesMut::with_capacity(len);
    for piece in pieces.iter().chain([end]) {
        whole.extend_from_slice(piece);
    }
    whole.truncate(max);
    whole.freeze()
}

impl Inner {
    pub(super) fn add_watch(&mut self, caller: &Caller, job: JobId) -> Result<Ticket, Refused> {
        let ticket = self.add_wait(caller, WaitFor::Watch { job }, None)?;
        // Somebody waits again.
        self.waiting.set_abandoned(job, false);
        Ok(ticket)
    }

    fn report(&mut self, claim: Claim, news: &News) -> Result<(), Rejection> {
        let job = claim.id();
        if !self.is_held(claim) {
            return Err(Rejection::NotHeld);
        }
        if let News::Progress { numerator, denominator, .. } = news
            && numerator.len().max(denominator.len()) > PROGRESS_BYTES_MAX
        {
            return Err(Rejection::OutOfRange("progress"));
        }
        let (job_max, all_max) = (self.options.payload_bytes_max, self.options.streamed_bytes_max);
        self.waiting.reports.add(job, news, job_max, all_max);
        for ticket in self.waiting.list.for_job(job) {
            let Some(wait) = self.waiting.list.find(ticket) else { continue };
            if matches!(wait.request, WaitFor::Watch { .. }) {
                let answer = Answer::Reported { job, news: news.clone() };
                wait.caller.deliver(ticket, Gated::open(answer));
            }
        }
        Ok(())
    }

    /// Whether a claim is the job's live lease.
    fn is_held(&self, claim: Claim) -> bool {
        let Some(Found::Live(job)) = self.state.job(claim.id()) else { return false };
        match claim {
            Claim::Unfinished { .. } => job.status() == Status::Leased,
            Claim::Token { epoch, attempt, .. } => {
                job.status() == Status::Leased
                    && job.attempts() == attempt
                    && job.lease().is_some_and(|lease| lease.epoch == epoch)
            }
        }
    }

    fn streamed_pieces(&self, claim: Claim) -> Vec<Bytes> {
        if self.is_held(claim) { self.waiting.reports.pieces(claim.id()) } else { Vec::new() }
    }

    pub(crate) fn progress(&self, found: &Found<'_>) -> Option<JobProgress> {
        let Found::Live(job) = found else { return None };
        let report = self.waiting.reports.of(job.id());
        Some(JobProgress {
            id: job.id(),
            status: job.status(),
            numerator: report.map(|report| report.numerator.clone()).unwrap_or_default(),
            denominator: report.map(|report| report.denominator.clone()).unwrap_or_default(),
            remaining_s: report.map_or(0, |report| report.remaining_s),
            waiting: self.waiting.list.count_for_job(job.id()),
        })
    }
}
