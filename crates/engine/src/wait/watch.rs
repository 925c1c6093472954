//! Watching a job: one wait with several answers, news first and the job's end last.
//!
//! Who calls: a door whose clients stay until their job is done (Gearman's foreground jobs, the
//! draft's sync ones). What comes: [`Answer::Told`] for what the holder of the live lease reports,
//! then exactly one of [`Answer::Ended`] (done or dead; its gate is the record of the end) and
//! [`Answer::Gone`]. News are volatile: they wait for no record, are forgotten when the lease ends,
//! and a watcher that comes later hears only what is new from then on.
//!
//! A slow watcher costs the engine nothing: news go into its reactor's mailbox at once, and it is
//! the session that stops taking them when its outbox is full.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_core::command::Claim;
use spindle_core::job::Status;
use spindle_core::{Found, JobId, JobImage, Rejection, Type};

use super::waits::{Caller, Wait, WaitFor};
use crate::answer::{Answer, News};
use crate::door::{Delivery, Gate, Ticket};
use crate::engine::{Engine, Refused, WorkResult};
use crate::inner::Inner;
use crate::read::JobRef;

/// The numerator and the denominator of a progress are at most this long.
const PROGRESS_BYTES_MAX: usize = 64;

/// Where a job stands, as far as it is not in the log.
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

/// What holders of live leases reported.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    by_job: HashMap<JobId, Report>,
    /// Bytes of pieces of results in all of them.
    data_bytes: usize,
}

#[derive(Debug, Default)]
struct Report {
    numerator: Bytes,
    denominator: Bytes,
    remaining_s: u32,
    /// Pieces of the result, in order.
    data: Vec<Bytes>,
    data_bytes: usize,
    /// A piece was not kept for want of room: none after it is.
    cut: bool,
    /// The result that is being logged begins with so many bytes that watchers know.
    streamed_bytes: u32,
}

impl Reports {
    fn forget(&mut self, job: JobId) -> Option<Report> {
        if self.by_job.is_empty() {
            return None;
        }
        let report = self.by_job.remove(&job)?;
        self.data_bytes -= report.data_bytes;
        Some(report)
    }

    fn keep_data(&mut self, job: JobId, piece: &Bytes, job_max: usize, all_max: usize) {
        let report = self.by_job.entry(job).or_default();
        report.cut |= report.data_bytes + piece.len() > job_max;
        report.cut |= self.data_bytes + piece.len() > all_max;
        if report.cut {
            return;
        }
        // A copy: the piece may be a small part of a large read.
        report.data.push(Bytes::copy_from_slice(piece));
        report.data_bytes += piece.len();
        self.data_bytes += piece.len();
    }
}

impl Engine {
    /// Watches an unfinished job. None if it has ended already, or is not there: look it up.
    pub fn watch(&self, caller: &Caller, job: JobId) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.enter();
        match inner.state.status(job) {
            Some(status) if !status.is_finished() => inner.add_watch(caller, job).map(Some),
            _ => Ok(None),
        }
    }

    /// The holder of a live lease tells something. Nothing of it waits for the log.
    pub fn report(&self, claim: Claim, news: News) -> Result<(), Refused> {
        let mut inner = self.enter();
        match inner.report(claim, news) {
            Ok(()) => Ok(()),
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// As [`Engine::finish`], for a holder that has told pieces of its result before: a success is
    /// kept with them in front, up to the limit for results.
    pub fn finish_streamed(
        &self,
        claim: Claim,
        mut result: WorkResult,
        kind: Type,
    ) -> Result<Gate, Refused> {
        if result.success {
            let (pieces, max) = {
                let inner = self.enter();
                (inner.streamed_pieces(claim), inner.options.payload_bytes_max)
            };
            if !pieces.is_empty() {
                result.bytes = join(&pieces, &result.bytes, max);
                let streamed_bytes = pieces.iter().map(Bytes::len).sum::<usize>();
                self.enter().note_streamed(claim.id(), streamed_bytes);
            }
        }
        self.finish(claim, result, kind)
    }

    /// Where an unfinished job stands; none if there is no such job, or it has finished.
    pub fn progress(&self, which: JobRef) -> (Option<JobProgress>, Gate) {
        let inner = self.enter();
        match inner.resolve(which).and_then(|id| inner.state.job(id)) {
            Some(found) => inner.progress(&found),
            None => (None, inner.tail()),
        }
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
    pub fn add_watch(&mut self, caller: &Caller, job: JobId) -> Result<Ticket, Refused> {
        if self.waits.len() >= self.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        // Somebody waits again.
        self.abandoned.remove(&job);
        let request = WaitFor::Watch { job };
        Ok(self.waits.add(Wait { caller: caller.clone(), request, deadline_ms: None }))
    }

    fn report(&mut self, claim: Claim, news: News) -> Result<(), Rejection> {
        let job = claim.id();
        if !self.is_held(claim) {
            return Err(Rejection::NotHeld);
        }
        match &news {
            News::Progress { numerator, denominator, remaining_s } => {
                if numerator.len().max(denominator.len()) > PROGRESS_BYTES_MAX {
                    return Err(Rejection::OutOfRange("progress"));
                }
                let report = self.reports.by_job.entry(job).or_default();
                report.numerator = Bytes::copy_from_slice(numerator);
                report.denominator = Bytes::copy_from_slice(denominator);
                report.remaining_s = *remaining_s;
            }
            News::Data(piece) => {
                let job_max = self.options.payload_bytes_max;
                let all_max = self.options.streamed_bytes_max;
                self.reports.keep_data(job, piece, job_max, all_max);
            }
            News::Warning(_) => {}
        }
        for ticket in self.waits.for_job(job) {
            let Some(wait) = self.waits.find(ticket) else { continue };
            if !matches!(wait.request, WaitFor::Watch { .. }) {
                continue;
            }
            let connection = wait.caller.connection;
            let answer = Answer::Told { job, news: news.clone() };
            wait.caller.mailbox.deliver(Delivery { connection, ticket, answer, gate: Gate::OPEN });
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
        let report = self.reports.by_job.get(&claim.id()).filter(|_| self.is_held(claim));
        report.map(|report| report.data.clone()).unwrap_or_default()
    }

    fn note_streamed(&mut self, job: JobId, bytes: usize) {
        if let Some(report) = self.reports.by_job.get_mut(&job) {
            report.streamed_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// What a holder reported counts no more: its lease has ended. Returns how much of the result
    /// watchers know.
    pub fn forget_report(&mut self, job: JobId) -> u32 {
        self.reports.forget(job).map_or(0, |report| report.streamed_bytes)
    }

    /// Tells those who wait for a job's end, and those who watch it.
    pub fn tell_finished(&mut self, image: &JobImage, gate: Gate) {
        let id = JobId(image.id);
        let streamed_bytes = self.forget_report(id);
        if !self.waits.has_any_for_job(id) {
            return;
        }
        let image = Arc::new(image.clone());
        for ticket in self.waits.for_job(id) {
            let answer = match self.waits.find(ticket).map(|wait| &wait.request) {
                Some(WaitFor::Watch { .. }) => {
                    Answer::Ended { image: image.clone(), streamed_bytes }
                }
                _ => Answer::Finished(image.clone()),
            };
            self.deliver(ticket, answer, gate);
        }
    }

    pub fn progress(&self, found: &Found<'_>) -> (Option<JobProgress>, Gate) {
        let Found::Live(job) = found else { return (None, self.gate_of(found)) };
        let gate = if job.is_foreground() { Gate::OPEN } else { self.gate_of(found) };
        let report = self.reports.by_job.get(&job.id());
        let progress = JobProgress {
            id: job.id(),
            status: job.status(),
            numerator: report.map(|report| report.numerator.clone()).unwrap_or_default(),
            denominator: report.map(|report| report.denominator.clone()).unwrap_or_default(),
            remaining_s: report.map_or(0, |report| report.remaining_s),
            waiting: self.waits.count_for_job(job.id()),
        };
        (Some(progress), gate)
    }
}
