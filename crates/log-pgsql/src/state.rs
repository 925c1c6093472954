//! What the caller's threads and the log's own thread share: records on their way, answers, ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_log::{Ack, LogError, Position, Record, SubmitError};

use crate::queries::News;
use crate::runs::{Runs, weight};

/// Records for one statement at most, and about their bytes.
const BATCH_RECORDS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
pub(crate) const RECORD_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// A record on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub at: Position,
    pub record: Record,
    since: Instant,
}

/// The newest record that is known to be committed: another server must have it too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub at: Position,
    pub epoch: u64,
    checksum: u32,
}

impl Tail {
    pub fn of(at: Position, epoch: u64, bytes: &Bytes) -> Tail {
        Tail { at, epoch, checksum: crc32c::crc32c(bytes) }
    }

    pub fn is(&self, record: &Record) -> bool {
        self.epoch == record.epoch && self.checksum == crc32c::crc32c(&record.bytes)
    }
}

/// What keeps records from being taken.
#[derive(Debug)]
enum Halt {
    /// Answers are Unknown from here on, until all were taken.
    Unknown(Position),
    /// Another writer appends, and the log ends here.
    Conflict(Position),
    Failed(LogError),
}

pub(crate) struct State {
    pub runs: Runs,
    /// Where the log begins for readers.
    pub first: Position,
    /// Acknowledged, so readable, below this.
    pub committed: Position,
    pub next: Position,
    /// Known to be committed below this; [`committed`](Self::committed) follows when it is asked.
    pub heard: Position,
    pub tail: Option<Tail>,
    /// Something was submitted: what others say of the end does not count for this process.
    pub writes: bool,
    pending: VecDeque<Pending>,
    /// Taken by the writer, and not answered.
    sent: usize,
    answers: VecDeque<Ack>,
    halt: Option<Halt>,
    /// How many confirmations were asked for, and which of them were made.
    asked: u64,
    confirmed: u64,
    /// Where the log is to begin.
    pub trim_to: Position,
}

impl State {
    pub fn new(news: &News, runs: Runs) -> State {
        State {
            runs,
            first: news.first,
            committed: news.end,
            next: news.end,
            heard: news.end,
            tail: None,
            writes: false,
            pending: VecDeque::new(),
            sent: 0,
            answers: VecDeque::new(),
            halt: None,
            asked: 0,
            confirmed: 0,
            trim_to: Position(0),
        }
    }

    pub fn submit(&mut self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let bytes = record.bytes.len() as u64;
        if bytes > u64::from(RECORD_BYTES_MAX) {
            return Err(SubmitError::TooLarge { bytes, max: RECORD_BYTES_MAX });
        }
        match self.halt {
            Some(Halt::Failed(ref error)) => return Err(SubmitError::Poisoned(error.clone())),
            Some(Halt::Unknown(next) | Halt::Conflict(next)) => {
                return Err(SubmitError::Conflict { at, next });
            }
            None if at != self.next => return Err(SubmitError::Conflict { at, next: self.next }),
            None => {}
        }
        self.writes = true;
        self.next = at.next();
        self.pending.push_back(Pending { at, record: record.clone(), since: Instant::now() });
        Ok(())
    }

    /// The next answer, `None` while it is not known.
    pub fn next_ack(&mut self) -> Option<Ack> {
        let Some(ack) = self.answers.pop_front() else {
            return self.is_idle().then_some(Ack::Fatal(LogError::NothingSubmitted));
        };
        match &ack {
            Ack::Committed(position) => self.committed = position.next(),
            Ack::Unknown(_) if self.answers.is_empty() && self.is_idle() => {
                if let Some(Halt::Unknown(next)) = self.halt {
                    self.next = next;
                    self.halt = None;
                }
            }
            _ => {}
        }
        Some(ack)
    }

    /// Whether no record is on its way to the server.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.sent == 0
    }

    /// Whether every answer was taken.
    pub fn is_answered(&self) -> bool {
        self.is_idle() && self.answers.is_empty()
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The records for the next statement.
    pub fn take_batch(&mut self) -> Vec<Pending> {
        let mut bytes = 0;
        let fits = |pending: &&Pending| {
            bytes += pending.record.bytes.len();
            bytes <= BATCH_BYTES_MAX
        };
        let count = self.pending.iter().take(BATCH_RECORDS_MAX).take_while(fits).count();
        self.sent += count;
        self.pending.drain(..count).collect()
    }

    /// They are not in the log, for sure.
    pub fn put_back(&mut self, batch: Vec<Pending>) {
        self.sent -= batch.len();
        for pending in batch.into_iter().rev() {
            self.pending.push_front(pending);
        }
    }

    /// They are in the log: appended now, or found there and confirmed.
    pub fn commit(&mut self, batch: &[Pending]) {
        for Pending { at, record, .. } in batch {
            if *at == self.runs.end() {
                self.runs.push(weight(record.bytes.len()));
            }
            self.answers.push_back(Ack::Committed(*at));
        }
        if let Some(Pending { at, record, .. }) = batch.last() {
            self.tail = Some(Tail::of(*at, record.epoch, &record.bytes));
            self.heard = self.heard.max(at.next());
        }
        self.sent -= batch.len();
    }

    /// It is not known what became of the batch.
    pub fn unknown(&mut self, batch: Vec<Pending>) {
        self.put_back(batch);
        if let Some(oldest) = self.pending.front() {
            self.halt = Some(Halt::Unknown(oldest.at));
        }
        self.answers.extend(self.pending.drain(..).map(|pending| Ack::Unknown(pending.at)));
    }

    /// As [`unknown`](Self::unknown), of all that have waited too long and those behind them.
    pub fn give_up_late(&mut self, within: Duration) {
        if self.pending.front().is_some_and(|oldest| oldest.since.elapsed() >= within) {
            self.unknown(Vec::new());
        }
    }

    /// Another writer's record stands at the first position of the batch, or of what is pending.
    pub fn conflict(&mut self, batch: Vec<Pending>, mut stored: Option<Record>) {
        self.put_back(batch);
        self.halt = Some(Halt::Conflict(self.runs.end()));
        let answer = |pending: Pending| Ack::Conflict { at: pending.at, stored: stored.take() };
        self.answers.extend(self.pending.drain(..).map(answer));
    }

    /// The log cannot go on.
    pub fn fail(&mut self, error: &LogError) {
        let open = self.pending.len() + self.sent;
        self.pending.clear();
        self.sent = 0;
        self.answers.extend((0..open).map(|_| Ack::Fatal(error.clone())));
        self.halt = Some(Halt::Failed(error.clone()));
    }

    pub fn failure(&self) -> Option<&LogError> {
        match &self.halt {
            Some(Halt::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Asks for a confirmation, and returns its number.
    pub fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// The number of the newest confirmation that somebody waits for, if any.
    pub fn asked(&self) -> Option<u64> {
        (self.asked > self.confirmed).then_some(self.asked)
    }

    pub fn is_confirmed(&self, number: u64) -> bool {
        self.confirmed >= number
    }

    /// The confirmation of this number, and all before it, were made: the log ended at `end` before.
    pub fn confirm(&mut self, number: u64, end: Position, first: Position) {
        self.confirmed = self.confirmed.max(number);
        self.heard = self.heard.max(end);
        self.begin_at(first);
    }

    /// Takes over what a look at the tables found.
    pub fn learn(&mut self, news: &News) {
        self.runs.learn(&news.runs);
        if news.end > self.runs.end() {
            self.runs.extend(news.end, news.added);
        }
        self.begin_at(news.first);
    }

    /// The log begins here, as far as this process has got.
    pub fn begin_at(&mut self, first: Position) {
        self.first = self.first.max(first);
        self.runs.drop_before(self.first);
        // A follower may be so far behind that the log begins after all that it knows.
        if self.is_answered() && self.halt.is_none() {
            self.committed = self.committed.max(self.first);
            self.next = self.next.max(self.committed);
        }
    }

    /// Moves the end of what can be read to what is known to be committed, of a process that has
    /// nothing on its way.
    pub fn follow(&mut self) -> Position {
        if self.is_answered() && self.halt.is_none() {
            let known = self.heard.min(self.runs.end());
            self.committed = self.committed.max(known);
            self.next = self.committed;
        }
        self.committed
    }

    pub fn note_tail(&mut self, tail: Tail) {
        if self.tail.is_none_or(|known| known.at < tail.at) {
            self.tail = Some(tail);
        }
    }
}
