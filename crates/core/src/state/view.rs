//! A job as it is read: what an unfinished one has, and what is known of a finished one without its
//! image, which is in the log.

use super::*;
use crate::failure_text::attempts_len;
use crate::job::{Deletion, JobId, JobImage, Outcome, Status};
use crate::payload::BytesRef;

/// A job that was looked up.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// It is unfinished: everything is in memory.
    Live(JobView<'a>),
    /// It is done or dead: its image is in the log.
    Finished(FinishedView<'a>),
}

/// An unfinished job.
#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    state: &'a State,
    job: &'a LiveJob,
    number: u32,
}

/// A finished job.
#[derive(Clone, Copy, Debug)]
pub struct FinishedView<'a> {
    job: FinishedJob<Slot<'a>>,
    number: u32,
}

/// Changes to a finished job that are not in its image in the log: its retention, which a read of
/// the result shortens, and its deletion.
#[derive(Clone, Copy, Debug)]
pub struct FinishedChanges {
    kept_until_ms: Option<u64>,
    deletion: Option<Deletion>,
}

impl FinishedChanges {
    /// Puts them into the image.
    pub fn put_into(self, image: &mut JobImage) {
        image.kept_until_ms = self.kept_until_ms;
        let deletion = self.deletion.map(Box::new);
        if image.options().deletion != deletion {
            image.options_mut().deletion = deletion;
        }
    }
}

impl<'a> Found<'a> {
    /// The job, if it is unfinished.
    pub fn live(self) -> Option<JobView<'a>> {
        match self {
            Found::Live(job) => Some(job),
            Found::Finished(_) => None,
        }
    }

    /// Its number.
    pub fn id(&self) -> JobId {
        match self {
            Found::Live(job) => job.id(),
            Found::Finished(job) => job.id(),
        }
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        match self {
            Found::Live(job) => job.status(),
            Found::Finished(job) => job.status(),
        }
    }

    /// The position of its last event; none if only the tail is known to cover it.
    pub fn last(&self) -> Option<u64> {
        match self {
            Found::Live(job) => job.live().last(),
            Found::Finished(job) => Some(job.image().position),
        }
    }

    /// The oldest record it needs; none for a job that is not logged.
    pub fn oldest_record(&self) -> Option<u64> {
        match self {
            Found::Live(job) => (!job.is_foreground()).then(|| job.live().oldest_record()),
            Found::Finished(job) => Some(job.job.oldest_record()),
        }
    }

    /// The number of its queue.
    pub(super) fn queue(&self) -> u32 {
        match self {
            Found::Live(job) => job.live().queue(),
            Found::Finished(finished) => finished.job.queue(),
        }
    }

    fn handle(&self) -> u32 {
        match self {
            Found::Live(job) => job.number,
            Found::Finished(job) => job.number | FINISHED,
        }
    }
}

impl FinishedView<'_> {
    /// Its number.
    pub fn id(&self) -> JobId {
        self.job.job_id()
    }

    /// Done or dead.
    pub fn status(&self) -> Status {
        self.job.status()
    }

    /// Where its image is.
    pub fn image(&self) -> Place {
        self.job.image()
    }

    /// When it goes.
    pub fn kept_until_ms(&self) -> Option<u64> {
        self.job.kept_until_ms()
    }

    /// When its retention ends: it goes then, or before if it is deleted.
    pub fn retained_until_ms(&self) -> Option<u64> {
        self.job.retained_until_ms()
    }

    /// Its deletion, if it is deleted.
    pub fn deletion(&self) -> Option<Deletion> {
        self.job.deletion()
    }

    /// What has changed since its image was written.
    pub fn changes(&self) -> FinishedChanges {
        FinishedChanges { kept_until_ms: self.retained_until_ms(), deletion: self.deletion() }
    }

    /// Its UUID.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.job.uuid()
    }
}

impl<'a> JobView<'a> {
    fn live(&self) -> &'a LiveJob {
        self.job
    }

    /// Its number.
    pub fn id(&self) -> JobId {
        self.live().job_id()
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        self.live().status()
    }

    /// The door it came through.
    pub fn origin(&self) -> Origin {
        self.live().origin()
    }

    /// The name of its queue.
    pub fn queue(&self) -> &'a Bytes {
        static NONE: Bytes = Bytes::new();
        self.state.queue_at(self.live().queue()).map_or(&NONE, |queue| &queue.name)
    }

    /// Its UUID.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.live().uuid()
    }

    /// Higher goes first.
    pub fn priority(&self) -> i64 {
        self.live().priority()
    }

    /// Age among equals.
    pub fn order(&self) -> u64 {
        self.live().order()
    }

    /// When it was submitted.
    pub fn created_ms(&self) -> u64 {
        self.live().created_ms()
    }

    /// Time to run, as given.
    pub fn ttr_ms(&self) -> Option<u64> {
        (self.live().ttr_ms != NO_TTR).then(|| u64::from(self.live().ttr_ms))
    }

    /// Time to live, as given.
    pub fn ttl_ms(&self) -> Option<u64> {
        Some(self.live().ttl_ms()).filter(|ttl| *ttl != NO_TTL)
    }

    /// When its TTL ends.
    pub fn expires_ms(&self) -> Option<u64> {
        self.live().expires_ms()
    }

    /// Leases given.
    pub fn attempts(&self) -> u32 {
        self.live().attempts()
    }

    /// Failures that workers reported.
    pub fn fails(&self) -> u32 {
        self.live().fails()
    }

    /// Its deletion, if it is deleted.
    pub fn deletion(&self) -> Option<&'a Deletion> {
        self.live().deletion()
    }

    /// What few jobs have, whether this one has any of it or not.
    pub fn options(&self) -> &'a JobOptions {
        self.live().options()
    }

    /// When it may run, while that lies ahead.
    pub fn run_at_ms(&self) -> Option<u64> {
        self.live().run_at_ms()
    }

    /// Where its payload is.
    pub fn payload(&self) -> BytesRef {
        self.live().payload_ref()
    }

    /// How long its payload is.
    pub fn payload_len(&self) -> u32 {
        self.live().payload_len
    }

    /// Its last outcome, if an attempt failed and was to be tried again.
    pub fn outcome(&self) -> Option<&'a Outcome> {
        self.live().outcome()
    }

    /// How many bytes texts of workers take in its image; see
    /// [`JobImage::words_len`](crate::JobImage::words_len).
    pub fn words_len(&self) -> usize {
        let Some(extra) = self.live().extra.as_deref() else { return 0 };
        extra.outcome.as_deref().map_or(0, Outcome::words_len) + attempts_len(&extra.history)
    }

    /// Its first and last attempts that have ended.
    pub fn history(&self) -> &'a [crate::job::Attempt] {
        self.live().extra.as_deref().map_or(&[], |extra| &extra.history)
    }

    /// Its live lease.
    pub fn lease(&self) -> Option<&'a crate::job::HeldLease> {
        self.live().lease()
    }

    /// Whose share of a fair queue it takes; empty if it has no key.
    pub fn fair_key(&self) -> &'a Bytes {
        self.live().fair_key()
    }

    /// Which constraint values it falls under.
    pub fn labels(&self) -> &'a [Label] {
        self.live().labels()
    }

    /// Its names besides the UUID.
    pub fn keys(&self) -> &'a [Key] {
        self.live().other_keys()
    }

    /// Counts its events.
    pub fn revision(&self) -> u32 {
        self.live().revision
    }

    /// Never logged.
    pub fn is_foreground(&self) -> bool {
        self.live().is_foreground()
    }
}

impl State {
    pub(super) fn found(&self, handle: u32) -> Found<'_> {
        if handle & FINISHED == 0 {
            Found::Live(self.view(handle))
        } else {
            let number = handle & !FINISHED;
            Found::Finished(FinishedView { job: self.jobs.finished.job(number), number })
        }
    }

    /// An unfinished job by its internal number.
    pub(crate) fn view(&self, number: u32) -> JobView<'_> {
        JobView { state: self, job: &self.jobs.live[number], number }
    }
}

impl std::fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "job {} ({:?}, handle {})", self.id(), self.status(), self.handle())
    }
}
