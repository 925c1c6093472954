//! The contract, in terms of the stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use spindle_log::{
    ANNOUNCEMENT_BYTES_MAX, Ack, Log, LogError, LogHealth, OnAnnouncement, Position, ReadError,
    Record, SharedLog, Space, Stored, StoredRecords, SubmitError, slice_of,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::append::{self, Purge, Work};
use crate::error::failed;
use crate::open::Thread;
use crate::read::{Reads, Records};
use crate::server::{Refusal, Server};
use crate::settings;
use crate::state::{Flight, Outcome, Shared, State, Verdict};

/// Records that were read for a slice and may be needed for another one.
const SLICED_MAX: usize = 8;
/// How long a trim waits for servers that do not answer; then it is put off.
const TRIM_PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// The fraction of a limited stream that is kept for changes that free space: one of this many
/// parts.
const RESERVE_PART: u64 = 16;

/// A log on a NATS JetStream stream. The [crate's documentation](crate) says how.
pub struct NatsLog {
    reads: Reads,
    submitted: UnboundedSender<Work>,
    sliced: Mutex<VecDeque<Stored>>,
    /// One trim at a time.
    trimming: Mutex<()>,
    /// Dropped last: the tasks of the others run on it.
    _thread: Thread,
}

impl NatsLog {
    pub(crate) fn new(reads: Reads, submitted: UnboundedSender<Work>, thread: Thread) -> NatsLog {
        let (sliced, trimming) = (Mutex::default(), Mutex::default());
        NatsLog { reads, submitted, sliced, trimming, _thread: thread }
    }

    fn shared(&self) -> &Shared {
        &self.reads.shared
    }

    /// Runs something on the log's thread and waits for it; nothing when that thread has ended.
    fn run<T, F>(&self, work: impl FnOnce(Arc<Shared>, Server) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let work = work(Arc::clone(&self.reads.shared), self.reads.server.clone());
        let (answer, answered) = channel();
        self.reads.runtime.spawn(async move {
            let _ = answer.send(work.await);
        });
        answered.recv().ok()
    }

    fn closed(&self) -> LogError {
        failed("go on with", &self.shared().stream, "the log was closed")
    }

    /// The oldest flight, once its outcome is known.
    fn front(&self) -> Result<Front, LogError> {
        let mut state = self.shared().state.lock();
        loop {
            if let Some(fatal) = &state.fatal {
                let fatal = fatal.clone();
                return if state.flights.is_empty() {
                    Err(LogError::NothingSubmitted)
                } else {
                    Err(fatal)
                };
            }
            let Some(flight) = state.flights.front() else {
                return Err(LogError::NothingSubmitted);
            };
            let at = flight.position;
            match (state.verdict, &flight.outcome) {
                (Some(Verdict::Conflict), _) => {
                    return Ok(Front::Known(Ack::Conflict { at, stored: None }));
                }
                (Some(Verdict::Unknown), _) => return Ok(Front::Known(Ack::Unknown(at))),
                (None, Some(Outcome::Committed)) => return Ok(Front::Known(Ack::Committed(at))),
                (None, Some(outcome)) if all_answered(&state) => {
                    return Ok(Front::Unsure(at, flight.record.clone(), outcome.clone()));
                }
                _ => self.shared().moved.wait(&mut state),
            }
        }
    }

    /// Sends all records whose acknowledgement was not taken; those before them are committed. False
    /// when the log's thread has ended.
    fn send_again(&self) -> bool {
        let mut state = self.shared().state.lock();
        // Records submitted meanwhile must not be on their way twice.
        while !all_answered(&state) {
            if state.fatal.is_some() {
                return true;
            }
            self.shared().moved.wait(&mut state);
        }
        state.broken = false;
        state.flights.iter_mut().all(|flight| {
            flight.outcome = None;
            self.submitted.send(Work::Record(flight.position, flight.record.clone())).is_ok()
        })
    }

    /// Drops what stands below `first`, which is a record that stays.
    fn purge(&self, first: Position) -> Result<(), LogError> {
        let deadline = Instant::now() + TRIM_PATIENCE;
        loop {
            let (purged, answered) = channel();
            let sent = self.submitted.send(Work::Purge(Purge { first, purged }));
            let purged = sent.ok().and_then(|()| answered.recv().ok());
            let Some(purged) = purged else { return Err(self.closed()) };
            let Err(refusal) = purged else {
                self.shared().state.lock().trimmed(first);
                return Ok(());
            };
            let stream = &self.shared().stream;
            if !refusal.may_pass() && !matches!(refusal, Refusal::NoStream) {
                return Err(failed("trim", stream, refusal.to_string()));
            }
            self.check()?;
            if Instant::now() >= deadline {
                tracing::warn!(%stream, "the trim is put off: {refusal}");
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn whole(&self, position: Position) -> Result<Stored, ReadError> {
        let sliced = self.sliced.lock().iter().find(|stored| stored.position == position).cloned();
        if let Some(stored) = sliced {
            return Ok(stored);
        }
        let stored = self.reads.one(position)?;
        let mut sliced = self.sliced.lock();
        sliced.push_back(stored.clone());
        if sliced.len() > SLICED_MAX {
            sliced.pop_front();
        }
        Ok(stored)
    }
}

enum Front {
    Known(Ack),
    Unsure(Position, Record, Outcome),
}

fn all_answered(state: &State) -> bool {
    state.flights.iter().all(|flight| flight.outcome.is_some())
}

impl Log for NatsLog {
    fn first(&self) -> Position {
        self.shared().state.lock().first
    }

    fn next(&self) -> Position {
        self.shared().state.lock().next
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let (bytes, max) = (record.bytes.len() as u64, self.record_bytes_max());
        if bytes > u64::from(max) {
            return Err(SubmitError::TooLarge { bytes, max });
        }
        let mut state = self.shared().state.lock();
        if let Some(fatal) = &state.fatal {
            return Err(SubmitError::Poisoned(fatal.clone()));
        }
        if at != state.next {
            return Err(SubmitError::Conflict { at, next: state.next });
        }
        // Under the lock: the order of the channel is that of the positions.
        if self.submitted.send(Work::Record(at, record.clone())).is_err() {
            return Err(SubmitError::Poisoned(self.closed()));
        }
        state.flights.push_back(Flight { position: at, record: record.clone(), outcome: None });
        state.next = at.next();
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        let ack = loop {
            let (at, record, outcome) = match self.front() {
                Err(error) => return Ack::Fatal(error),
                Ok(Front::Known(ack)) => break ack,
                Ok(Front::Unsure(at, record, outcome)) => (at, record, outcome),
            };
            let resolved =
                self.run(|shared, server| append::resolve(shared, server, at, record, outcome));
            match resolved {
                Some(Some(ack)) => break ack,
                Some(None) if self.send_again() => {}
                _ => break Ack::Fatal(self.closed()),
            }
        };
        append::take(self.shared(), ack)
    }

    fn in_flight_max(&self) -> usize {
        self.shared().in_flight_max
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let mut state = self.shared().state.lock();
        let (first, committed) = (state.first.max(state.trimming), state.committed);
        if from < first {
            return Err(ReadError::Trimmed { position: from, first });
        }
        if from > state.next {
            return Err(ReadError::Absent { position: from, next: committed });
        }
        let records = Records::new(self.reads.clone(), from, committed);
        if from < committed {
            // In the same hold of the lock as the look at the beginning: no trim overlooks it.
            state.readings.retain(|reading| reading.strong_count() > 0);
            state.readings.push(records.reading());
        }
        Ok(Box::new(records))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let state = self.shared().state.lock();
        let (first, committed) = (state.first, state.committed);
        drop(state);
        if position < first {
            return Err(ReadError::Trimmed { position, first });
        }
        if position >= committed {
            return Err(ReadError::Absent { position, next: committed });
        }
        slice_of(&self.whole(position)?.bytes, position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let _one = self.trimming.lock();
        let (first, readings) = {
            let mut state = self.shared().state.lock();
            let first = state.sizes.first_after_trim(state.first, position.min(state.committed));
            if first <= state.first {
                return Ok(());
            }
            state.trimming = first;
            state.readings.retain(|reading| reading.strong_count() > 0);
            (first, state.readings.clone())
        };
        for reading in readings.iter().filter_map(std::sync::Weak::upgrade) {
            reading.keep(first);
        }
        let purged = self.purge(first);
        let mut state = self.shared().state.lock();
        state.trimming = state.first;
        purged
    }

    fn check(&self) -> Result<(), LogError> {
        self.shared().state.lock().fatal.clone().map_or(Ok(()), Err)
    }

    fn record_bytes_max(&self) -> u32 {
        self.shared().record_bytes_max
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn space(&self) -> Space {
        let state = self.shared().state.lock();
        let is_short = state
            .bytes_max
            .is_some_and(|max| max.saturating_sub(state.stream_bytes) < max / RESERVE_PART);
        if state.is_full || is_short { Space::ReserveOnly } else { Space::Ample }
    }

    fn room_bytes(&self) -> u64 {
        let state = self.shared().state.lock();
        state.bytes_max.map_or(u64::MAX, |max| max.saturating_sub(state.stream_bytes))
    }

    fn bytes_on_disk(&self) -> u64 {
        let state = self.shared().state.lock();
        state.sizes.bytes(state.committed)
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.shared().state.lock().sizes.end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let state = self.shared().state.lock();
        state.sizes.bytes_between(from, to.min(state.committed))
    }
}

impl SharedLog for NatsLog {
    fn refresh(&self) -> Result<Position, ReadError> {
        let surveyed = self.run(|shared, server| async move {
            match server.survey().await {
                Ok(survey) => shared.survey(survey).map_err(|fatal| fatal.to_string()),
                Err(refusal) => Err(refusal.to_string()),
            }
        });
        let surveyed = surveyed.unwrap_or_else(|| Err("the log was closed".to_owned()));
        surveyed.map_err(|reason| self.shared().unread(reason))?;
        let mut state = self.shared().state.lock();
        state.follow();
        Ok(state.next)
    }

    fn wait_beyond(&self, position: Position, timeout: Duration) -> Result<Position, ReadError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared().state.lock();
        while state.seen <= position {
            if let Some(fatal) = &state.fatal {
                return Err(self.shared().unread(fatal.to_string()));
            }
            if self.shared().moved.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.follow();
        Ok(state.committed)
    }

    fn announce(&self, bytes: &[u8]) {
        if bytes.len() > ANNOUNCEMENT_BYTES_MAX {
            return;
        }
        let (shared, server) = (self.shared(), &self.reads.server);
        let subject = shared.subjects.announce.clone();
        let (client, bytes) = (server.context.client(), Bytes::copy_from_slice(bytes));
        self.reads.runtime.spawn(async move {
            if let Err(error) = client.publish(subject, bytes).await {
                tracing::debug!("an announcement was dropped: {error}");
            }
        });
    }

    fn on_announcement(&self, listener: OnAnnouncement) {
        *self.shared().listener.lock() = Some(listener);
    }

    /// When the stream was made: a stream that is deleted and made anew is another log.
    fn log_id(&self) -> String {
        format!("{} of {}", self.shared().stream, self.shared().created)
    }

    fn health(&self) -> LogHealth {
        self.shared().health.lock().clone()
    }

    fn end_restore(&self) -> Result<(), LogError> {
        let ended = self.run(|_, server| async move {
            let config = settings::restored(server.info().await?.config);
            server.update(&config).await
        });
        let refused = |refusal: Refusal| {
            failed("end the restore of", &self.shared().stream, refusal.to_string())
        };
        ended.ok_or_else(|| self.closed())?.map(drop).map_err(refused)
    }
}
