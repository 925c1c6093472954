//! What this process knows of the log, and what it has on its way there.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spindle_log::{LogError, LogHealth, OnAnnouncement, Position, ReadError, Record};

use crate::error::{failed, unread};
use crate::options::IN_FLIGHT_MAX;
use crate::read::Reading;
use crate::settings::Subjects;
use crate::sizes::Sizes;
use crate::tail::Tail;

/// How long a stream may look shorter than it was. A server that was cut off from the others goes
/// on answering as the leader until it misses them, after 10 s, and may not have the newest
/// records.
const SHORTER_PATIENCE: Duration = Duration::from_secs(15);
/// The same for a single server, which cannot be cut off from others: it may be starting.
const ALONE_PATIENCE: Duration = Duration::from_secs(2);

const MADE_ANEW: &str = "it was deleted and made anew under this process: stop all nodes, and restore the stream or \
                         begin with an empty one";
/// Streams of one name whose times of creation are closer are one: when several nodes make it at the same
/// time, each server keeps the time of any of these requests, and may tell another one after a restart. One
/// that is deleted and made anew that soon shows by its end.
const MADE_TOGETHER: Duration = Duration::from_secs(60);

/// Shared by the callers' threads and the tasks on the log's own thread.
pub(crate) struct Shared {
    pub stream: String,
    pub subjects: Subjects,
    pub replicas: usize,
    /// When the stream was made, in nanoseconds: another time is another stream, see [`MADE_TOGETHER`].
    pub created: i128,
    pub record_bytes_max: u32,
    pub in_flight_max: usize,
    pub state: Mutex<State>,
    /// Something in the state has changed that a caller may wait for.
    pub moved: Condvar,
    pub listener: Mutex<Option<OnAnnouncement>>,
    pub health: Mutex<LogHealth>,
}

/// Everything that changes.
pub(crate) struct State {
    pub first: Position,
    /// A trim up to here is being made: no read may begin below it.
    pub trimming: Position,
    /// Can be read below this.
    pub committed: Position,
    /// What the next submit names.
    pub next: Position,
    /// The stream is known to reach up to here. May be ahead of `committed` until a caller asks.
    pub seen: Position,
    /// Submitted, and the acknowledgement not taken; the oldest first.
    pub flights: VecDeque<Flight>,
    /// An answer has failed: nothing more is sent until all answers were taken.
    pub broken: bool,
    /// What becomes of the flights that are left after the first that was not committed.
    pub verdict: Option<Verdict>,
    /// Pipelining begins here, see `append.rs`; unknown until a first record is committed.
    pub pipelined_from: Option<Position>,
    pub tail: Tail,
    pub sizes: Sizes,
    /// What the server counts, and its limit if there is one.
    pub stream_bytes: u64,
    pub bytes_max: Option<u64>,
    /// The last record did not fit.
    pub is_full: bool,
    pub trouble: Trouble,
    shorter_since: Option<Instant>,
    pub readings: Vec<Weak<Reading>>,
    pub fatal: Option<LogError>,
}

/// A record that was submitted.
pub(crate) struct Flight {
    pub position: Position,
    pub record: Record,
    pub outcome: Option<Outcome>,
}

/// What came of sending a record.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The stream has it.
    Committed,
    /// The server refused it, or did not answer: the stream may have it or not.
    Unsure(String),
    /// The server refused it because it expects another one at its position.
    OutOfPlace(String),
    /// The server refused it because there is no room.
    Full(String),
    /// It was not sent, because one before it failed.
    NotSent,
}

/// What became of the first record that is not committed, and so of all behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Conflict,
    Unknown,
}

/// What the server says of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    pub created: i128,
    pub first: Position,
    pub end: Position,
    pub bytes: u64,
    pub bytes_max: Option<u64>,
}

/// Since when appends fail, so that the log file says it once and not for each try.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
}

impl Trouble {
    const AGAIN: Duration = Duration::from_secs(10);

    /// An append failed. Returns how long they have, when it is time to say so.
    pub(crate) fn goes_on(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let is_time = self.said.is_none_or(|said| now - said >= Self::AGAIN);
        is_time.then(|| {
            self.said = Some(now);
            now - since
        })
    }

    /// How long appends have failed.
    pub(crate) fn time(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// An append was committed. Returns how long they had failed, if they had.
    pub(crate) fn ends(&mut self) -> Option<Duration> {
        self.said = None;
        Some(self.since.take()?.elapsed())
    }
}

impl State {
    pub(crate) fn begin(survey: Survey, average: u64, run_bytes: u64) -> Self {
        Self {
            first: survey.first,
            trimming: survey.first,
            committed: survey.end,
            next: survey.end,
            seen: survey.end,
            flights: VecDeque::new(),
            broken: false,
            verdict: None,
            pipelined_from: None,
            tail: Tail::default(),
            sizes: Sizes::begin_at(survey.first, run_bytes, average),
            stream_bytes: survey.bytes,
            bytes_max: survey.bytes_max,
            is_full: false,
            trouble: Trouble::default(),
            shorter_since: None,
            readings: Vec::new(),
            fatal: None,
        }
    }

    /// How many records may be on their way now: one until stragglers of another writer are ruled
    /// out.
    pub(crate) fn in_flight_max(&self, option: usize) -> usize {
        match self.pipelined_from {
            Some(from) if from <= self.sent_and_committed() => option,
            _ => 1,
        }
    }

    /// The end of this process's records that are committed without one missing before them.
    fn sent_and_committed(&self) -> Position {
        let is_committed = |flight: &&Flight| matches!(flight.outcome, Some(Outcome::Committed));
        let more = self.flights.iter().take_while(is_committed).count();
        Position(self.committed.0 + more as u64)
    }

    /// What became of a record that was sent.
    pub(crate) fn answered(&mut self, position: Position, outcome: Outcome) {
        match outcome {
            Outcome::Committed => {
                let from = Position(position.0 + IN_FLIGHT_MAX as u64);
                self.pipelined_from.get_or_insert(from);
                self.seen = self.seen.max(position.next());
            }
            _ => self.broken = true,
        }
        let flight = self.flights.iter_mut().find(|flight| flight.position == position);
        if let Some(flight) = flight {
            flight.outcome = Some(outcome);
        }
    }

    /// All answers were taken: the next submit names the first record that is not committed.
    pub(crate) fn settle(&mut self) {
        if !self.flights.is_empty() {
            return;
        }
        self.broken = false;
        if let Some(verdict) = self.verdict.take() {
            self.next = self.committed;
            if verdict == Verdict::Conflict {
                self.pipelined_from = None;
            }
        }
    }

    /// What is seen counts as committed, unless records are on their way.
    pub(crate) fn follow(&mut self) {
        if self.flights.is_empty() {
            self.committed = self.committed.max(self.seen);
            self.next = self.committed;
        }
    }

    /// The log begins at `first` now, after a trim by any process.
    pub(crate) fn trimmed(&mut self, first: Position) {
        let first = first.min(self.next);
        if first > self.first {
            self.first = first;
            self.sizes.trimmed(first);
        }
    }
}

impl Shared {
    /// Takes what the leader of the stream says of it. An error is fatal for the log.
    pub(crate) fn survey(&self, survey: Survey) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if let Some(fatal) = &state.fatal {
            return Err(fatal.clone());
        }
        if survey.created.abs_diff(self.created) >= MADE_TOGETHER.as_nanos() {
            return Err(self.fail(&mut state, MADE_ANEW.to_owned()));
        }
        self.note_end(&mut state, survey.end, survey.created != self.created)?;
        (state.stream_bytes, state.bytes_max) = (survey.bytes, survey.bytes_max);
        if survey.end > state.seen {
            state.seen = survey.end;
            self.moved.notify_all();
        }
        state.trimmed(survey.first);
        Ok(())
    }

    /// There is no stream of this name. That may be temporary, too, while servers start.
    pub(crate) fn survey_missing(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        self.note_end(&mut state, Position(0), false)
    }

    /// An end before the known one is believed only when it stays that way. If the stream was made at another time, it
    /// is another one.
    fn note_end(
        &self,
        state: &mut State,
        end: Position,
        is_made_anew: bool,
    ) -> Result<(), LogError> {
        let known = state.committed;
        if end >= known {
            state.shorter_since = None;
            return Ok(());
        }
        let since = *state.shorter_since.get_or_insert_with(Instant::now);
        let patience = if self.replicas == 1 { ALONE_PATIENCE } else { SHORTER_PATIENCE };
        if since.elapsed() < patience {
            return Ok(());
        }
        if is_made_anew {
            return Err(self.fail(state, MADE_ANEW.to_owned()));
        }
        let reason = format!(
            "it ends at position {end}, and this process knows records up to {known}: committed \
             records are lost. Stop all nodes, and find out what happened to the servers' data"
        );
        Err(self.fail(state, reason))
    }

    /// The log can not go on.
    pub(crate) fn fail(&self, state: &mut State, reason: String) -> LogError {
        let error = failed("go on with", &self.stream, reason);
        tracing::error!(stream = %self.stream, "{error}");
        state.fatal = Some(error.clone());
        self.moved.notify_all();
        error
    }

    /// A read that could not be made, because the log can not go on or is closed.
    pub(crate) fn unread(&self, reason: impl Into<String>) -> ReadError {
        unread(&self.stream, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(end: u64) -> Survey {
        let (first, end) = (Position(0), Position(end));
        Survey { created: 0, first, end, bytes: 0, bytes_max: None }
    }

    fn state() -> State {
        State::begin(survey(5), 0, 1)
    }

    fn fly(state: &mut State, position: u64) {
        let record = Record { epoch: 1, bytes: "bytes".into() };
        state.flights.push_back(Flight { position: Position(position), record, outcome: None });
        state.next = Position(position + 1);
    }

    fn shared() -> Shared {
        let survey = Survey { created: 7, ..survey(5) };
        Shared {
            stream: "jobs".to_owned(),
            subjects: Subjects::of("jobs"),
            replicas: 3,
            created: survey.created,
            record_bytes_max: 1,
            in_flight_max: 1,
            state: Mutex::new(State::begin(survey, 0, 1)),
            moved: Condvar::new(),
            listener: Mutex::new(None),
            health: Mutex::default(),
        }
    }

    #[test]
    fn servers_that_tell_other_times_of_a_stream_that_nodes_made_together_are_believed() {
        let shared = shared();
        let another = Survey { created: 26_000_007, ..survey(6) };
        shared.survey(another).expect("a time of another request that made it");
        assert_eq!(shared.state.lock().seen, Position(6));
        // A stream that looks shorter proves nothing yet: its server may have been cut off.
        shared.survey(Survey { end: Position(2), ..another }).expect("for a while");
        let created = i128::try_from(MADE_TOGETHER.as_nanos()).expect("small") + 7;
        let error = shared.survey(Survey { created, ..survey(6) }).expect_err("another stream");
        assert!(error.to_string().contains("made anew"), "{error}");
    }

    #[test]
    fn a_writer_sends_one_by_one_until_nobody_elses_records_can_come() {
        let mut state = state();
        for position in 5..5 + IN_FLIGHT_MAX as u64 {
            assert_eq!(state.in_flight_max(8), 1, "at {position}");
            fly(&mut state, position);
            state.answered(Position(position), Outcome::Committed);
        }
        assert_eq!(state.in_flight_max(8), 8);
    }

    #[test]
    fn an_end_that_goes_back_is_the_first_unknown_record() {
        let mut state = state();
        (5..8).for_each(|position| fly(&mut state, position));
        state.answered(Position(5), Outcome::Committed);
        state.answered(Position(6), Outcome::Unsure("lost".to_owned()));
        assert!(state.broken);
        state.flights.pop_front();
        state.committed = Position(6);
        state.verdict = Some(Verdict::Unknown);
        state.settle();
        assert_eq!(state.next, Position(8), "answers are left");
        state.flights.clear();
        state.settle();
        assert_eq!((state.next, state.broken), (Position(6), false));
    }
}
