//! Group commit: whoever commits takes what was decided, writes and syncs it, and opens the gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spindle_log::{Ack, LogError, Position, Record, SubmitError};

use super::batch::Sealed;
use crate::answer::{Answer, Failure};
use crate::door::{Committer, Mailbox};
use crate::engine::Engine;
use crate::gate::Gate;

/// Where a commit takes longer than this, the log thread does it: reads and leases should not wait
/// for a slow disk.
const INLINE_SYNC_MAX: Duration = Duration::from_millis(1);
/// The same goes for more bytes than this, which take a quick disk about as long.
const INLINE_BYTES_MAX: usize = 512 * 1024;

/// How long commits take nowadays: a moving average, the newest an eighth of it.
#[derive(Debug, Default)]
pub(crate) struct SyncTime(AtomicU64);

impl SyncTime {
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Only who commits comes here: one thread at a time.
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
    /// The disk is full: the records wait.
    Full,
    /// The log has failed; the process must stop.
    Failed,
}

impl Committer for Engine {
    fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        Engine::attach(self, mailbox);
    }

    fn durable(&self) -> Gate {
        Engine::durable(self)
    }

    fn end_turn(&self) -> bool {
        let inner = self.shared.inner.lock();
        let (has_work, deadline_ms) = (inner.batch.has_work(), inner.next_deadline());
        drop(inner);
        self.shared.timer.ring_if_before(deadline_ms);
        has_work
    }

    fn commit(&self) {
        if self.commit_once() == Committed::Full {
            // The log thread tries again when there may be room.
            self.shared.work.notify_one();
        }
    }

    fn commit_if_quick(&self) {
        let is_quick = self.sync_time() <= INLINE_SYNC_MAX
            && self.undurable_bytes() <= INLINE_BYTES_MAX
            && !self.shared.committing.is_locked();
        if is_quick {
            self.commit();
        } else {
            self.shared.work.notify_one();
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

    /// Takes everything decided so far, commits it, and lets the answers go. The log thread calls
    /// this in a loop; the simulator calls it itself.
    pub fn commit_once(&self) -> Committed {
        let _committing = self.shared.committing.lock();
        let batch = self.shared.inner.lock().batch.take_sealed();
        if batch.is_empty() {
            return Committed::Nothing;
        }
        self.shared.admission.begin_commit(self.now_ms());
        let begun = Instant::now();
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
                    self.fail(match error {
                        SubmitError::Poisoned(error) => Failure::Log(error),
                        SubmitError::Conflict { .. } => Failure::Conflict,
                        other => Failure::Refused(other.to_string()),
                    });
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
            durable_bytes += record.bytes.len();
            self.shared.durable.store(record.position + 1, Ordering::Release);
        }
        if submitted > 0 {
            let took = begun.elapsed();
            self.shared.sync_time.note(took);
            self.shared.meters.note_commit(took, durable_bytes);
        }
        self.after_commit(&batch[..submitted], &batch[submitted..]);
        outcome
    }

    fn submit_record(&self, record: &Sealed) -> Result<(), SubmitError> {
        let stored = Record { epoch: record.epoch, bytes: record.bytes.clone() };
        self.shared.log.submit(Position(record.position), &stored)
    }

    /// Waits for the acknowledgement of the oldest submitted record. An unknown outcome is asked
    /// again, with the identical record at the same position, until it is known.
    fn acknowledged(&self, record: &Sealed) -> Result<(), Failure> {
        loop {
            match self.shared.log.next_ack() {
                Ack::Committed(position) if position.0 == record.position => return Ok(()),
                Ack::Committed(_) => return Err(Failure::Conflict),
                Ack::Unknown(_) => {
                    self.submit_record(record).map_err(|_| Failure::Conflict)?;
                }
                Ack::Conflict { stored, .. } => {
                    // Ours after all, if a lost answer hid that it was written.
                    let mine = stored.is_some_and(|stored| {
                        stored.epoch == record.epoch && stored.bytes == record.bytes
                    });
                    return if mine { Ok(()) } else { Err(Failure::Conflict) };
                }
                Ack::Fatal(error) => return Err(Failure::Log(error)),
            }
        }
    }

    fn after_commit(&self, written: &[Sealed], unwritten: &[Sealed]) {
        let now_ms = self.now_ms();
        self.shared.admission.note_commit(&*self.shared.log, !unwritten.is_empty(), now_ms);
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

    fn call_mailboxes(&self) {
        self.shared.mailboxes.read().iter().for_each(|mailbox| mailbox.durable_moved());
    }

    /// The log has failed: nothing that waits for it will ever be answered.
    pub(crate) fn fail(&self, failure: Failure) {
        {
            let mut first = self.shared.failure.lock();
            if first.is_some() {
                // Another thread met it before, and reported it.
                return;
            }
            *first = Some(failure.clone());
        }
        tracing::error!("the log has failed: {failure}");
        self.call_mailboxes();
        if let Some(report) = self.shared.on_failure.get() {
            report(failure);
        }
    }

    /// Syncs and ends: for an orderly stop, when no more calls come.
    pub fn flush(&self) -> Result<(), LogError> {
        while self.commit_once() == Committed::Some {}
        match self.shared.failure.lock().clone() {
            Some(Failure::Log(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
