//! A log that nodes share, at the other end of a network that delays, reorders and loses.
//!
//! Time passes for a record on its way only when the simulator says so: it lets single records
//! arrive ([`Sea::arrive`]), and has answers taken that have come, or given up. But a node that
//! asks to lead waits for the answer of its epoch record: then the network moves and time passes
//! until there is one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_log::{
    Ack, Log, LogError, Position, ReadError, Record, Space, Stored, StoredRecords, SubmitError,
    slice_of,
};
use spindle_testkit::ManualClock;

const RECORD_BYTES_MAX: u32 = 64 * 1024;
/// Records on their way.
pub const PLACES: usize = 4;
/// How many of a thousand records never arrive.
const LOST: u32 = 30;
/// How many of a thousand arriving records overtake others.
const OVERTAKES: u32 = 200;
/// The most time that passes in one step while a record is waited for.
const STEP_MS: u64 = 40;

/// The log, and all that is on its way to it.
#[derive(Clone)]
pub struct Sea(Arc<Mutex<State>>);

struct State {
    rng: ChaCha8Rng,
    records: Vec<Record>,
    transit: Vec<Letter>,
    wires: u64,
    clocks: Vec<Arc<ManualClock>>,
}

struct Letter {
    wire: u64,
    attempt: u64,
    at: Position,
    record: Record,
    link: Arc<Mutex<Link>>,
}

/// The log's answer to a record that has arrived.
#[derive(Clone)]
enum Reply {
    Stands,
    Other(Record),
    /// The record in front of it has not arrived.
    Early,
}

impl Sea {
    pub fn new(seed: u64, clocks: Vec<Arc<ManualClock>>) -> Sea {
        let rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5ea);
        Sea(Arc::new(Mutex::new(State {
            rng,
            records: Vec::new(),
            transit: Vec::new(),
            wires: 0,
            clocks,
        })))
    }

    /// The log as one more process has it open.
    pub fn open(&self) -> Arc<Wire> {
        let mut state = self.0.lock();
        state.wires += 1;
        let next = state.end();
        let link = Link { next, known: next, ..Link::default() };
        Arc::new(Wire { sea: self.clone(), number: state.wires, link: Arc::new(Mutex::new(link)) })
    }

    /// All records that are in the log.
    pub fn records(&self) -> Vec<Record> {
        self.0.lock().records.clone()
    }

    /// One record arrives, or is lost.
    pub fn arrive(&self) {
        self.0.lock().arrive();
    }

    /// Time passes everywhere, nearly equally fast.
    pub fn pass(&self, most_ms: u64) {
        self.0.lock().pass(most_ms);
    }
}

impl State {
    fn end(&self) -> Position {
        Position(self.records.len() as u64)
    }

    fn arrive(&mut self) {
        if self.transit.is_empty() {
            return;
        }
        let overtakes = self.rng.random_ratio(OVERTAKES, 1000);
        let at = if overtakes { self.rng.random_range(0..self.transit.len()) } else { 0 };
        let letter = self.transit.remove(at);
        if self.rng.random_ratio(LOST, 1000) {
            return;
        }
        let reply = self.take(letter.at, &letter.record);
        letter.link.lock().hear(letter.at, letter.attempt, reply);
    }

    /// A record that names the end is accepted, whoever sent it.
    fn take(&mut self, at: Position, record: &Record) -> Reply {
        if at == self.end() {
            self.records.push(record.clone());
        }
        match self.records.get(at.0 as usize) {
            Some(stored) if is_same(stored, record) => Reply::Stands,
            Some(stored) => Reply::Other(stored.clone()),
            None => Reply::Early,
        }
    }

    fn pass(&mut self, most_ms: u64) {
        let ms = self.rng.random_range(0..=most_ms);
        for clock in &self.clocks {
            // Within the difference that two machines' clocks may have.
            clock.advance(ms * self.rng.random_range(990..=1000) / 1000);
        }
    }
}

fn is_same(one: &Record, other: &Record) -> bool {
    one.epoch == other.epoch && one.bytes == other.bytes
}

/// The log as one process has it open.
pub struct Wire {
    sea: Sea,
    number: u64,
    link: Arc<Mutex<Link>>,
}

#[derive(Default)]
struct Link {
    next: Position,
    /// Below this, records are known to be committed.
    known: Position,
    waiting: VecDeque<Waiting>,
    attempt: u64,
    lost: Option<Lost>,
}

struct Waiting {
    at: Position,
    reply: Option<Reply>,
}

/// The outcome of what is in front of the records that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Unknown(Position),
    Conflict,
}

impl Link {
    fn hear(&mut self, at: Position, attempt: u64, reply: Reply) {
        if attempt != self.attempt {
            return;
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.at == at) {
            waiting.reply.get_or_insert(reply);
        }
    }

    /// Whether the answer of the oldest record is there.
    fn is_answered(&self) -> bool {
        self.lost.is_some() || self.waiting.front().is_some_and(|oldest| oldest.reply.is_some())
    }
}

impl Wire {
    /// Whether an answer can be taken.
    pub fn is_answered(&self) -> bool {
        self.link.lock().is_answered()
    }

    /// The answer of the oldest record on its way is not waited for any longer.
    pub fn give_up(&self) {
        let mut link = self.link.lock();
        if let (None, Some(oldest)) = (link.lost, link.waiting.front()) {
            link.lost = Some(Lost::Unknown(oldest.at));
        }
    }

    /// Lets the network move until the answer of the oldest record is there, or can come no more.
    fn wait(&self) {
        while !self.is_answered() {
            let mut state = self.sea.0.lock();
            let attempt = self.link.lock().attempt;
            let is_ours = |letter: &Letter| (letter.wire, letter.attempt) == (self.number, attempt);
            if !state.transit.iter().any(is_ours) {
                drop(state);
                return self.give_up();
            }
            state.pass(STEP_MS);
            state.arrive();
        }
    }
}

impl Log for Wire {
    fn first(&self) -> Position {
        Position(0)
    }

    fn next(&self) -> Position {
        self.link.lock().next
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let mut link = self.link.lock();
        if at != link.next {
            return Err(SubmitError::Conflict { at, next: link.next });
        }
        link.next = at.next();
        link.waiting.push_back(Waiting { at, reply: None });
        let (wire, attempt, record) = (self.number, link.attempt, record.clone());
        drop(link);
        let link = Arc::clone(&self.link);
        self.sea.0.lock().transit.push(Letter { wire, attempt, at, record, link });
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        self.wait();
        let mut link = self.link.lock();
        let Some(Waiting { at, reply }) = link.waiting.pop_front() else {
            return Ack::Fatal(LogError::NothingSubmitted);
        };
        match (link.lost, reply) {
            (Some(Lost::Unknown(first)), _) => {
                if link.waiting.is_empty() {
                    (link.next, link.lost) = (first, None);
                    link.attempt += 1;
                }
                Ack::Unknown(at)
            }
            (None, Some(Reply::Stands)) => {
                link.known = link.known.max(at.next());
                Ack::Committed(at)
            }
            // The one before it is committed by now, so it can be sent again.
            (None, None | Some(Reply::Early)) => {
                if link.waiting.is_empty() {
                    link.next = at;
                    link.attempt += 1;
                } else {
                    link.lost = Some(Lost::Unknown(at));
                }
                Ack::Unknown(at)
            }
            (_, reply) => {
                link.lost = Some(Lost::Conflict);
                let stored = match reply {
                    Some(Reply::Other(stored)) => Some(stored),
                    _ => None,
                };
                Ack::Conflict { at, stored }
            }
        }
    }

    fn in_flight_max(&self) -> usize {
        PLACES
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let known = self.link.lock().known;
        let state = self.sea.0.lock();
        let stored = |at: u64| {
            let Record { epoch, bytes } = state.records.get(at as usize)?.clone();
            Some(Ok(Stored { position: Position(at), epoch, bytes, damaged: false }))
        };
        let records: Vec<_> = (from.0..known.0).filter_map(stored).collect();
        Ok(Box::new(records.into_iter()))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let state = self.sea.0.lock();
        let next = state.end();
        let record = state.records.get(position.0 as usize);
        let record = record.ok_or(ReadError::Absent { position, next })?;
        slice_of(&record.bytes, position, offset, len)
    }

    fn trim_before(&self, _: Position) -> Result<(), LogError> {
        Ok(())
    }

    fn record_bytes_max(&self) -> u32 {
        RECORD_BYTES_MAX
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn space(&self) -> Space {
        Space::Ample
    }

    fn room_bytes(&self) -> u64 {
        u64::MAX
    }

    fn bytes_on_disk(&self) -> u64 {
        self.sea.0.lock().records.iter().map(|record| record.bytes.len() as u64).sum()
    }

    fn segment_end_before(&self, _: Position) -> Option<Position> {
        None
    }

    fn bytes_between(&self, _: Position, _: Position) -> u64 {
        0
    }
}
