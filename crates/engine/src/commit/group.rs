//! Group commit: the committing thread takes everything decided, writes and syncs it, and opens the
//! gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spindle_log::{Ack, LogError, Position, Record, SubmitError};

use super::batch::Sealed;
use super::flight::{Submitted, pause_after};
use crate::admission::Begun;
use crate::answer::{Answer, Failure};
use crate::door::{Committer, Mailbox};
use crate::engine::Engine;
use crate::gate::Gate;
use crate::lead::Lead;

/// Where a commit takes longer than this, the log thread does it: reads and leases should not wait
/// for a slow disk.
const INLINE_SYNC_MAX: Duration = Duration::from_millis(1);
/// The same goes for more bytes than this, which take a quick disk about as long.
const INLINE_BYTES_MAX: usize = 512 * 1024;
/// How many answers in a row may be lost while an engine starts or stops.
const LOST_MAX: u32 = 12;

/// How long commits take nowadays: a moving average, the newest an eighth of it.
#[derive(Debug, Default)]
pub(crate) struct SyncTime(AtomicU64);

impl SyncTime {
    pub fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Only the committing thread comes here: one at a time.
        let before = self.0.load(Ordering::Relaxed);
        let average = if before == 0 { took } else { before - before / 8 + took / 8 };
        self.0.store(average, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What a commit did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Committed {
    /// There was nothing to write.
    Nothing,
    /// Records were committed.
    Some,
    /// The log does not say whether records were written: they are submitted again.
    Unknown,
    /// The disk is full: the records wait.
    Full,
    /// The log has failed; the process must stop.
    Failed,
}

/// What an answer of the log says about its record.
pub(super) enum Verdict {
    Durable,
    Unknown,
    Failed(Failure),
}

impl Verdict {
    pub fn of(ack: Ack, record: &Sealed) -> Verdict {
        match ack {
            Ack::Committed(position) if position.0 == record.position => Verdict::Durable,
            Ack::Committed(_) => Verdict::Failed(Failure::Conflict),
            Ack::Unknown(_) => Verdict::Unknown,
            Ack::Conflict { stored, .. } => {
                // Ours after all, if a lost answer hid that it was written.
                let is_ours = stored.is_some_and(|stored| {
                    stored.epoch == record.epoch && stored.bytes == record.bytes
                });
                if is_ours { Verdict::Durable } else { Verdict::Failed(Failure::Conflict) }
            }
            Ack::Fatal(error) => Verdict::Failed(Failure::Log(error)),
        }
    }
}

impl Committer for Engine {
    fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        Engine::attach(self, mailbox);
    }

    fn durable(&self) -> Gate {
        Engine::durable(self)
    }

    fn released(&self) -> Option<Gate> {
        Engine::released(self)
    }

    fn end_turn(&self) -> bool {
        let inner = self.shared.inner.lock();
        let (has_work, deadline_ms) = (inner.batch.has_work(), inner.next_deadline());
        drop(inner);
        self.shared.timer.ring_if_before(deadline_ms);
        has_work
    }

    fn commit(&self) {
        // Where several records are on their way the log thread does it; on a full disk it tries again.
        let is_left = match &self.shared.flight {
            None => self.commit_once() == Committed::Full,
            Some(flight) if flight.goes_alone() => self.commit_alone(flight) == Submitted::Full,
            Some(_) => true,
        };
        if is_left {
            self.call_log_thread();
        }
    }

    fn commit_if_quick(&self) {
        // A commit over a network is never certain to be quick.
        let is_quick = self.shared.flight.is_none()
            && self.sync_time() <= INLINE_SYNC_MAX
            && self.undurable_bytes() <= INLINE_BYTES_MAX
            && !self.shared.committing.is_locked();
        if is_quick {
            self.commit();
        } else {
            self.call_log_thread();
        }
    }

    fn sync_time(&self) -> Duration {
        self.shared.sync_time.get()
    }
}

impl Engine {
    /// Ends a turn of calls: what they decided is handed to the log thread, and the timer learns of
    /// new deadlines. No call does that by itself: see [`Turn`](crate::Turn).
    pub(crate) fn hand_to_log_thread(&self) {
        self.leave(self.shared.inner.lock());
    }

    /// There is something for the log thread to do.
    pub(crate) fn call_log_thread(&self) {
        match &self.shared.flight {
            None => {
                self.shared.work.notify_one();
            }
            Some(flight) => flight.submits.ring(),
        }
    }

    /// Takes everything decided so far, commits it, and lets the answers go. The log thread calls
    /// this in a loop; the simulator calls it itself. Over a log that takes several records at a time
    /// threads do it in steps, see [`Engine::submit_once`].
    pub fn commit_once(&self) -> Committed {
        if self.shared.flight.is_some() {
            return self.commit_in_flight();
        }
        let _committing = self.shared.committing.lock();
        // Decisions made after the log has failed are void, but a shared log would still take them.
        if self.shared.failure.lock().is_some() {
            return Committed::Failed;
        }
        let batch = self.shared.inner.lock().batch.take_sealed();
        if batch.is_empty() {
            return Committed::Nothing;
        }
        let begun = self.shared.admission.begin_commit(self.now_ms());
        let since = Instant::now();
        let lead = self.shared.lead.as_ref();
        let append = lead.map(Lead::begins);
        let mut submitted = 0;
        let mut outcome = Committed::Some;
        for record in &batch {
            match self.submit_record(record) {
                Ok(()) => submitted += 1,
                Err(SubmitError::Full) => {
                    outcome = Committed::Full;
                    break;
                }
                Err(error) => {
                    self.fail(error.into());
                    return Committed::Failed;
                }
            }
        }
        let mut durable_bytes = 0;
        for record in &batch[..submitted] {
            if let Err(failure) = self.acknowledged(record) {
                self.fail(failure);
                return Committed::Failed;
            }
            if let (Some(lead), Some(append)) = (lead, append) {
                lead.committed(append);
            }
            durable_bytes += record.bytes.len();
            self.publish_durable(record.position + 1);
        }
        if submitted > 0 {
            let took = since.elapsed();
            self.shared.sync_time.note(took);
            self.shared.meters.note_commit(took, durable_bytes);
        }
        let (written, unwritten) = batch.split_at(submitted);
        self.after_commit(written, unwritten, begun, !unwritten.is_empty());
        outcome
    }

    /// All records below this are durable: gates up to it are open.
    pub(super) fn publish_durable(&self, durable: u64) {
        self.shared.durable.store(durable, Ordering::Release);
    }

    pub(super) fn submit_record(&self, record: &Sealed) -> Result<(), SubmitError> {
        let stored = Record { epoch: record.epoch, bytes: record.bytes.clone() };
        self.shared.log.submit(Position(record.position), &stored)
    }

    /// Waits for the acknowledgement of the oldest submitted record. An unknown outcome is asked
    /// again, with the identical record at the same position, until it is known.
    fn acknowledged(&self, record: &Sealed) -> Result<(), Failure> {
        loop {
            match Verdict::of(self.shared.log.next_ack(), record) {
                Verdict::Durable => return Ok(()),
                Verdict::Unknown => {
                    if let Some(failure) = self.failure() {
                        return Err(failure);
                    }
                    self.submit_record(record).map_err(|_| Failure::Conflict)?;
                }
                Verdict::Failed(failure) => return Err(failure),
            }
        }
    }

    /// Records are durable; others found no room and go back to the batch. `has_refused`: the log
    /// has no room for what comes next.
    pub(super) fn after_commit(
        &self,
        written: &[Sealed],
        unwritten: &[Sealed],
        begun: Begun,
        has_refused: bool,
    ) {
        let now_ms = self.now_ms();
        self.shared.admission.note_commit(&*self.shared.log, begun, has_refused, now_ms);
        {
            let mut inner = self.shared.inner.lock();
            if inner.batch.note_durable(written, unwritten) {
                let end = inner.batch.feed_end();
                let tickets = inner.waiting.list.for_feed(end);
                inner.waiting.answer_all(tickets, &Answer::FeedMoved);
            }
            self.answer_room(&mut inner);
        }
        self.call_mailboxes();
    }

    pub(crate) fn call_mailboxes(&self) {
        self.shared.mailboxes.read().iter().for_each(|mailbox| mailbox.durable_moved());
    }

    /// The log has failed: nothing that waits for it will ever be answered.
    pub(crate) fn fail(&self, failure: Failure) {
        {
            let mut first = self.shared.failure.lock();
            if first.is_some() {
                // Another thread met the failure before, and reported it.
                return;
            }
            *first = Some(failure.clone());
        }
        if let Some(lead) = &self.shared.lead {
            lead.end();
        }
        if matches!(failure, Failure::Abandoned) {
            // The caller that asked for it knows.
            self.call_mailboxes();
            return;
        }
        match failure {
            Failure::Conflict if self.shared.lead.is_some() => {
                tracing::warn!("this server leads the log no more: {failure}");
            }
            _ => tracing::error!("the log has failed: {failure}"),
        }
        self.call_mailboxes();
        if let Some(report) = self.shared.on_failure.get() {
            report(failure);
        }
    }

    /// Syncs and ends: for an orderly stop, when no more calls come. A log that loses its answers
    /// is asked a few times more; records that it still does not confirm are not durable.
    pub fn flush(&self) -> Result<(), LogError> {
        let mut lost = 0;
        loop {
            match self.commit_once() {
                Committed::Some => lost = 0,
                Committed::Unknown if lost < LOST_MAX => {
                    std::thread::sleep(pause_after(lost));
                    lost += 1;
                }
                _ => break,
            }
        }
        match self.shared.failure.lock().clone() {
            Some(Failure::Log(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
