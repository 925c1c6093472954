//! Watching a job: one wait with several answers, news first and the job's end last.
//!
//! Called by doors whose clients stay until their job is done (Gearman's foreground jobs, the draft's sync ones). The
//! answers: [`Answer::Reported`] for what the holder of the live lease reports, then exactly one of [`Answer::Ended`]
//! (done or dead; its gate is the record of the end) and [`Answer::Gone`]. News are volatile: they wait for no record,
//! are forgotten when the lease ends, and a watcher that comes later gets only what is new from then on.
//!
//! A slow watcher costs the engine nothing: news go into its reactor's mailbox at once, and its
//! session stops taking them when its outbox is full.

use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::job::Status;
use spindle_core::{JobId, Rejection};

use super::list::{Caller, WaitFor};
use super::output::{OUTPUT_PIECE_BYTES_MAX, Written};
use crate::answer::{Answer, News, Refused};
use crate::door::Ticket;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::{Leases, Waits};

/// The numerator and the denominator of a progress are at most this long.
const PROGRESS_BYTES_MAX: usize = 64;

impl Waits<'_> {
    /// Watches an unfinished job. None if it has ended already, or is not there: look it up.
    pub fn watch(&self, caller: &Caller, job: JobId) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.0.enter();
        match inner.state.status(job) {
            Some(status) if !status.is_finished() => inner.add_watch(caller, job).map(Some),
            _ => Ok(None),
        }
    }
}

impl Leases<'_> {
    /// The holder of a live lease reports something. Does not wait for the log.
    pub fn report(&self, claim: Claim, news: News) -> Gated<Result<(), Refused>> {
        let mut inner = self.0.enter();
        let reported = inner.report(claim, &news);
        inner.closed(reported.map(Gated::open))
    }

    /// The holder of a live lease writes something for people who follow the job; its clients do not
    /// get it. At most [`OUTPUT_PIECE_BYTES_MAX`](crate::OUTPUT_PIECE_BYTES_MAX). Nothing of it
    /// waits for the log.
    pub fn write(&self, claim: Claim, text: Bytes) -> Gated<Result<(), Refused>> {
        let mut inner = self.0.enter();
        let written = inner.write(claim, text);
        inner.closed(written.map(Gated::open))
    }
}

impl Inner {
    pub(crate) fn add_watch(&mut self, caller: &Caller, job: JobId) -> Result<Ticket, Refused> {
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
        if let News::Warning(text) = news {
            self.keep_output(job, text.slice(..text.len().min(OUTPUT_PIECE_BYTES_MAX)));
        }
        let (job_max, all_max) = (self.options.payload_bytes_max, self.options.streamed_bytes_max);
        self.waiting.reports.add(job, news, job_max, all_max);
        self.waiting.notify_followers(job);
        for ticket in self.waiting.list.for_job(job) {
            let Some(wait) = self.waiting.list.find(ticket) else { continue };
            if matches!(wait.request, WaitFor::Watch { .. }) {
                let queue = self.state.live(job).map(|job| job.queue().clone()).unwrap_or_default();
                let answer = Answer::Reported { job, queue, news: news.clone() };
                wait.caller.deliver(ticket, Gated::open(answer));
            }
        }
        Ok(())
    }

    /// The holder of a live lease wrote something for people who look on.
    fn write(&mut self, claim: Claim, text: Bytes) -> Result<(), Rejection> {
        if !self.is_held(claim) {
            return Err(Rejection::NotHeld);
        }
        if text.len() > OUTPUT_PIECE_BYTES_MAX {
            return Err(Rejection::OutOfRange("output"));
        }
        self.keep_output(claim.id(), text);
        self.waiting.notify_followers(claim.id());
        Ok(())
    }

    fn keep_output(&mut self, job: JobId, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let attempt = self.state.live(job).map_or(0, |job| job.attempts());
        let (at_ms, all_max) = (self.now_ms, self.options.output_bytes_max);
        self.waiting.output.add(job, Written { at_ms, attempt, bytes }, all_max);
    }

    /// Whether a claim is the job's live lease.
    pub(crate) fn is_held(&self, claim: Claim) -> bool {
        let leased = self.state.live(claim.id()).filter(|job| job.status() == Status::Leased);
        leased.is_some_and(|job| match claim {
            Claim::Unfinished { .. } => true,
            Claim::Token { epoch, attempt, .. } => {
                job.attempts() == attempt && job.lease().is_some_and(|lease| lease.epoch == epoch)
            }
        })
    }

    /// The pieces of a result that the holder of a job's live lease has reported so far.
    pub(crate) fn streamed_pieces(&self, claim: Claim) -> Vec<Bytes> {
        if self.is_held(claim) { self.waiting.reports.pieces(claim.id()) } else { Vec::new() }
    }
}
