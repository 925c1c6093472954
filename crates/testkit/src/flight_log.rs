//! A log at the other end of a network, that has several records on their way.
//!
//! A [`FlightStore`] is the other end, which survives its writers. A [`FlightLog`] is one writer's
//! view of it. A submitted record is in transit until it arrives. The store accepts a record only
//! if it names the store's end and the epoch of the record in front of it: a record that arrives
//! before the one in front of it is refused, and so is one that follows another writer's record.
//! The network moves only while a caller waits for an answer ([`Log::next_ack`]), by one record at
//! a time, so that the seed decides everything; and an answer that cannot come any more is Unknown,
//! so that no caller waits for ever. A test can also hold answers back and say which are lost.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};

use crate::random;

/// What the network does to records and answers, in parts per thousand.
#[derive(Clone, Copy, Default, Debug)]
pub struct Weather {
    /// Records that are overtaken by a later one.
    pub overtaken: u64,
    /// Records that never arrive.
    pub lost_records: u64,
    /// Answers that never come, though the record has arrived.
    pub lost_answers: u64,
    /// Answers that are given up while the record is in transit: it arrives later, or not at all.
    pub given_up: u64,
    /// Answers are given in any order, before their records have arrived, which no log may do.
    pub acks_out_of_order: bool,
}

impl Weather {
    /// Everything arrives, in order, and is answered.
    pub const CALM: Weather = Weather {
        overtaken: 0,
        lost_records: 0,
        lost_answers: 0,
        given_up: 0,
        acks_out_of_order: false,
    };
}

/// What survives the writers: the records that have arrived.
#[derive(Clone)]
pub struct FlightStore {
    log: Arc<MemoryLog>,
    shore: Arc<Mutex<Shore>>,
    record_bytes_max: u32,
}

#[derive(Debug)]
struct Shore {
    /// The epoch of the last record that has arrived.
    last_epoch: Option<u64>,
    has_power: bool,
    /// The power fails after this many records have arrived or were lost.
    power_left: Option<u64>,
}

impl FlightStore {
    /// An empty store with the given number of records per run and the given longest record.
    #[must_use]
    pub fn new(run_records: usize, record_bytes_max: u32) -> FlightStore {
        FlightStore {
            log: Arc::new(MemoryLog::with_run_records(run_records)),
            shore: Arc::new(Mutex::new(Shore {
                last_epoch: None,
                has_power: true,
                power_left: None,
            })),
            record_bytes_max,
        }
    }

    /// Opens the log for one more writer, with `places` slots for records on their way.
    #[must_use]
    pub fn open(&self, seed: u64, places: usize, weather: Weather) -> FlightLog {
        let (next, last_epoch) = (self.log.next(), self.shore.lock().last_epoch);
        let epochs = Epochs { submitted: last_epoch, committed: last_epoch };
        let link = Link { seed, next, committed: next, epochs, ..Link::default() };
        let (link, let_go) = (Mutex::new(link), Condvar::new());
        FlightLog { store: self.clone(), places, weather, link, let_go }
    }

    /// Somebody else's record comes in at the end.
    pub fn append(&self, record: &Record) -> Position {
        let mut shore = self.shore.lock();
        self.append_to(&mut shore, self.log.next(), record).unwrap()
    }

    /// The end of what has arrived.
    #[must_use]
    pub fn end(&self) -> Position {
        self.log.next()
    }

    /// The writer's power fails after `count` more records have arrived or were lost.
    pub fn cut_power_after(&self, count: u64) {
        self.shore.lock().power_left = Some(count);
    }

    /// Whether the writer has power.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.shore.lock().has_power
    }

    fn append_to(&self, shore: &mut Shore, at: Position, record: &Record) -> Option<Position> {
        self.log.submit(at, record).ok()?;
        shore.last_epoch = Some(record.epoch);
        matches!(self.log.next_ack(), Ack::Committed(_)).then_some(at)
    }

    /// A record arrives.
    fn arrive(&self, Letter { at, behind, record, .. }: &Letter) -> Reply {
        let (at, mut shore) = (*at, self.shore.lock());
        if at == self.log.next() && shore.last_epoch != *behind {
            return Reply::Stranger;
        }
        if self.append_to(&mut shore, at, record).is_some() {
            return Reply::Appended;
        }
        match self.at(at) {
            Some(stored) if is_same(&stored, record) => Reply::Known,
            Some(stored) => Reply::Other(stored),
            None => Reply::Refused,
        }
    }

    fn at(&self, position: Position) -> Option<Record> {
        let stored = self.log.read(position).ok()?.next()?.ok()?;
        Some(Record { epoch: stored.epoch, bytes: stored.bytes })
    }
}

fn is_same(one: &Record, other: &Record) -> bool {
    one.epoch == other.epoch && one.bytes == other.bytes
}

/// A record in transit.
struct Letter {
    at: Position,
    /// The epoch of the record in front of it.
    behind: Option<u64>,
    record: Record,
    /// The try in which it was submitted: an answer to an earlier try is ignored.
    attempt: u64,
}

/// The store's answer to a record that has arrived.
#[derive(Clone, Debug)]
enum Reply {
    Appended,
    /// It is there already.
    Known,
    Other(Record),
    /// Another writer's record is in front of it.
    Stranger,
    /// The one in front of it has not arrived.
    Refused,
}

/// One writer's log: see [the module](self).
pub struct FlightLog {
    store: FlightStore,
    places: usize,
    weather: Weather,
    link: Mutex<Link>,
    let_go: Condvar,
}

#[derive(Default)]
struct Link {
    seed: u64,
    next: Position,
    /// Below this, answers were taken.
    committed: Position,
    /// Submitted, and their answers not taken.
    waiting: VecDeque<Waiting>,
    transit: Vec<Letter>,
    /// Counts how often the records on their way were taken back.
    attempt: u64,
    epochs: Epochs,
    behind: Behind,
    is_dead: bool,
    is_full: bool,
    is_held: bool,
    /// How many answers may be taken while answers are held.
    let_go: u64,
    /// How many of the next records do not arrive, and for how many of those that arrive no answer
    /// comes.
    lose_records: u64,
    lose_answers: u64,
}

#[derive(Clone)]
struct Waiting {
    at: Position,
    epoch: u64,
    reply: Option<Reply>,
}

/// Of the last records.
#[derive(Default)]
struct Epochs {
    submitted: Option<u64>,
    committed: Option<u64>,
}

/// The outcome of what is in front of the records that wait.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Behind {
    #[default]
    Committed,
    /// An Unknown, at that position.
    Unknown(Position),
    Conflict,
}

impl Link {
    fn falls(&mut self, of_thousand: u64) -> bool {
        of_thousand > 0 && random::next(&mut self.seed) % 1_000 < of_thousand
    }

    fn choose(&mut self, below: usize) -> usize {
        (random::next(&mut self.seed) % below.max(1) as u64) as usize
    }

    fn take_from(count: &mut u64) -> bool {
        let has = *count > 0;
        *count -= u64::from(has);
        has
    }

    fn committed(&mut self, waited: &Waiting) -> Ack {
        self.committed = self.committed.max(waited.at.next());
        self.epochs.committed = Some(waited.epoch);
        Ack::Committed(waited.at)
    }
}

impl FlightLog {
    /// Holds answers back from now on, or lets go of them.
    pub fn hold(&self, held: bool) {
        let mut link = self.link.lock();
        (link.is_held, link.let_go) = (held, 0);
        self.let_go.notify_all();
    }

    /// Lets `count` answers go, though the others are held back.
    pub fn let_go(&self, count: u64) {
        self.link.lock().let_go += count;
        self.let_go.notify_all();
    }

    /// The next `count` records never arrive.
    pub fn lose_records(&self, count: u64) {
        self.link.lock().lose_records += count;
    }

    /// No answer comes for the next `count` records that arrive.
    pub fn lose_answers(&self, count: u64) {
        self.link.lock().lose_answers += count;
    }

    /// From now on the log has no room, or has some again.
    pub fn fill(&self, is_full: bool) {
        self.link.lock().is_full = is_full;
    }

    /// Submitted records whose answers were not taken.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.link.lock().waiting.len()
    }

    /// The writer is gone. Any of what is in transit arrives, and the rest never does.
    pub fn crash(&self) {
        let link = &mut *self.link.lock();
        let count = link.choose(link.transit.len() + 1);
        for _ in 0..count {
            let at = if link.falls(700) { 0 } else { link.choose(link.transit.len()) };
            let letter = link.transit.remove(at);
            self.store.arrive(&letter);
        }
        link.transit.clear();
        link.is_dead = true;
        let mut shore = self.store.shore.lock();
        (shore.has_power, shore.power_left) = (true, None);
    }

    fn failure() -> LogError {
        LogError::Failed {
            operation: "reach",
            file: "the other end".into(),
            source: Arc::new(io::ErrorKind::NotConnected.into()),
        }
    }

    fn is_cut_off(&self, link: &Link) -> bool {
        link.is_dead || !self.store.is_powered()
    }

    /// One record arrives, or is lost.
    fn step(&self, link: &mut Link) {
        {
            let mut shore = self.store.shore.lock();
            shore.has_power = shore.power_left != Some(0);
            shore.power_left = shore.power_left.map(|left| left.saturating_sub(1));
            if !shore.has_power {
                return;
            }
        }
        let is_overtaken = link.falls(self.weather.overtaken);
        let at = if is_overtaken { link.choose(link.transit.len()) } else { 0 };
        let letter = link.transit.remove(at);
        if Link::take_from(&mut link.lose_records) || link.falls(self.weather.lost_records) {
            return;
        }
        let reply = self.store.arrive(&letter);
        if Link::take_from(&mut link.lose_answers) || link.falls(self.weather.lost_answers) {
            return;
        }
        let is_heard = letter.attempt == link.attempt;
        let waiting = link.waiting.iter_mut().find(|waiting| waiting.at == letter.at);
        if let Some(waiting) = waiting.filter(|_| is_heard) {
            waiting.reply.get_or_insert(reply);
        }
    }

    /// The answer of the oldest record that waits: the network moves until there is one.
    fn answer(&self, link: &mut Link) -> Ack {
        loop {
            if self.is_cut_off(link) {
                return Ack::Fatal(Self::failure());
            }
            let Some(Waiting { at: position, reply, .. }) = link.waiting.front().cloned() else {
                return Ack::Fatal(LogError::NothingSubmitted);
            };
            let attempt = link.attempt;
            let is_it = |letter: &Letter| (letter.at, letter.attempt) == (position, attempt);
            let is_in_transit = link.transit.iter().any(is_it);
            match (link.behind, reply) {
                (Behind::Committed, None) if is_in_transit => {
                    if link.falls(self.weather.given_up) {
                        link.behind = Behind::Unknown(position);
                        continue;
                    }
                    self.step(link);
                    continue;
                }
                (Behind::Committed, None | Some(Reply::Refused)) => {
                    link.behind = Behind::Unknown(position);
                    continue;
                }
                _ => {}
            }
            if self.weather.acks_out_of_order && link.waiting.len() > 1 {
                let at = link.choose(link.waiting.len());
                if let Some(waited) = link.waiting.remove(at) {
                    return link.committed(&waited);
                }
            }
            return self.give(link);
        }
    }

    /// Gives the answer of the oldest record that waits, once its outcome is known.
    fn give(&self, link: &mut Link) -> Ack {
        let Some(waited) = link.waiting.pop_front() else {
            return Ack::Fatal(LogError::NothingSubmitted);
        };
        let position = waited.at;
        match (link.behind, waited.reply.clone()) {
            (Behind::Unknown(first), _) => {
                if link.waiting.is_empty() {
                    (link.next, link.behind) = (first, Behind::Committed);
                    link.epochs.submitted = link.epochs.committed;
                    link.attempt += 1;
                }
                Ack::Unknown(position)
            }
            (Behind::Committed, Some(Reply::Appended)) => link.committed(&waited),
            (Behind::Committed, Some(Reply::Known)) => {
                let committed = link.committed(&waited);
                let shown = link.falls(500).then(|| self.store.at(position)).flatten();
                shown.map_or(committed, |stored| Ack::Conflict {
                    at: position,
                    stored: Some(stored),
                })
            }
            (Behind::Committed, other) => {
                link.behind = Behind::Conflict;
                // What is in transit arrives all the same.
                std::mem::take(&mut link.transit).iter().for_each(|letter| {
                    self.store.arrive(letter);
                });
                let stored = match other {
                    Some(Reply::Other(stored)) => Some(stored),
                    _ => None,
                };
                Ack::Conflict { at: position, stored }
            }
            _ => Ack::Conflict { at: position, stored: self.store.at(position) },
        }
    }
}

impl Log for FlightLog {
    fn first(&self) -> Position {
        self.store.log.first()
    }

    fn next(&self) -> Position {
        self.link.lock().next
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let (bytes, max) = (record.bytes.len() as u64, self.store.record_bytes_max);
        if bytes > u64::from(max) {
            return Err(SubmitError::TooLarge { bytes, max });
        }
        let mut link = self.link.lock();
        if self.is_cut_off(&link) {
            return Err(SubmitError::Poisoned(Self::failure()));
        }
        if at != link.next {
            return Err(SubmitError::Conflict { at, next: link.next });
        }
        if link.is_full {
            return Err(SubmitError::Full);
        }
        let behind = link.epochs.submitted.replace(record.epoch);
        let (record, epoch, attempt) = (record.clone(), record.epoch, link.attempt);
        link.transit.push(Letter { at, behind, record, attempt });
        link.waiting.push_back(Waiting { at, epoch, reply: None });
        link.next = at.next();
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        let mut link = self.link.lock();
        while link.is_held && link.let_go == 0 {
            self.let_go.wait(&mut link);
        }
        link.let_go = link.let_go.saturating_sub(1);
        self.answer(&mut link)
    }

    fn in_flight_max(&self) -> usize {
        self.places
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let (next, committed) = {
            let link = self.link.lock();
            (link.next, link.committed)
        };
        if from > next {
            return Err(ReadError::Absent { position: from, next: committed });
        }
        if from >= committed && from >= self.first() {
            return Ok(Box::new(std::iter::empty()));
        }
        let stored = self.store.log.read(from)?;
        Ok(Box::new(stored.take_while(move |one| {
            one.as_ref().map_or(true, |stored| stored.position < committed)
        })))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let committed = self.link.lock().committed;
        if position >= committed {
            return Err(ReadError::Absent { position, next: committed });
        }
        self.store.log.read_at(position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let committed = self.link.lock().committed;
        self.store.log.trim_before(position.min(committed))
    }

    fn record_bytes_max(&self) -> u32 {
        self.store.record_bytes_max
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    fn space(&self) -> Space {
        self.store.log.space()
    }

    fn room_bytes(&self) -> u64 {
        self.store.log.room_bytes()
    }

    fn bytes_on_disk(&self) -> u64 {
        self.store.log.bytes_on_disk()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.store.log.segment_end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.store.log.bytes_between(from, to)
    }
}
