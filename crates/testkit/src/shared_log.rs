//! A log in memory that several nodes share, and whose connections a test cuts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use spindle_log::{
    Ack, Log, LogError, LogHealth, LogServer, LogServerRole, LogServerState, OnAnnouncement,
    Position, ReadError, Record, SharedLog, Space, Stored, StoredRecords, SubmitError, slice_of,
};

/// The log itself, which every [`SharedLogHandle`] reaches until a test cuts it off. It accepts one
/// record at each position, the first to arrive.
#[derive(Clone, Default)]
pub struct SharedMemoryLog {
    world: Arc<World>,
}

#[derive(Default)]
struct World {
    store: Mutex<Store>,
    changed: Condvar,
}

#[derive(Default)]
struct Store {
    first: u64,
    records: VecDeque<Record>,
    listeners: Vec<Listener>,
    handles: u64,
    /// Appends that are on their way for as long as a test holds them, with their writers.
    late: Vec<(u64, Position, Record)>,
}

#[derive(Clone)]
struct Listener {
    handle: u64,
    cut_off: Arc<AtomicBool>,
    hear: Arc<OnAnnouncement>,
}

impl Store {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn at(&self, position: u64) -> Option<&Record> {
        self.records.get(usize::try_from(position.checked_sub(self.first)?).ok()?)
    }

    /// Whether the record stands at that position afterwards.
    fn append(&mut self, at: Position, record: &Record) -> Ack {
        if at.0 == self.next() {
            self.records.push_back(record.clone());
        }
        let stored = self.at(at.0).cloned();
        let is_mine = |it: &Record| it.epoch == record.epoch && it.bytes == record.bytes;
        if stored.as_ref().is_some_and(is_mine) {
            Ack::Committed(at)
        } else {
            Ack::Conflict { at, stored }
        }
    }
}

impl SharedMemoryLog {
    /// An empty log.
    pub fn new() -> SharedMemoryLog {
        SharedMemoryLog::default()
    }

    /// An empty log whose first record gets this position.
    pub fn beginning_at(first: Position) -> SharedMemoryLog {
        let log = SharedMemoryLog::new();
        log.world.store.lock().first = first.0;
        log
    }

    /// One more process that has the log open.
    pub fn open(&self) -> Arc<SharedLogHandle> {
        let mut store = self.world.store.lock();
        store.handles += 1;
        let (number, next) = (store.handles, store.next());
        drop(store);
        let hands = Hands { known: next, next, ..Hands::default() };
        let (world, hands) = (self.world.clone(), Mutex::new(hands));
        let (cut_off, freed) = (Arc::default(), Condvar::new());
        Arc::new(SharedLogHandle { world, number, cut_off, hands, freed })
    }

    /// All records there are, with their epochs.
    pub fn epochs(&self) -> Vec<u64> {
        self.world.store.lock().records.iter().map(|record| record.epoch).collect()
    }

    /// How many records were ever appended.
    pub fn len(&self) -> u64 {
        self.world.store.lock().next()
    }

    /// Whether nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The log as one process has it open. Until it is cut off, it is at once as others left it.
pub struct SharedLogHandle {
    world: Arc<World>,
    number: u64,
    cut_off: Arc<AtomicBool>,
    hands: Mutex<Hands>,
    /// A fault has changed.
    freed: Condvar,
}

#[derive(Default)]
struct Hands {
    /// Records below this are known to be committed.
    known: u64,
    /// What the next submit names.
    next: u64,
    submitted: VecDeque<(Position, Record)>,
    /// The answer that the records behind the first uncommitted one get, too.
    lost: Option<Lost>,
    held: bool,
    /// Appends are sent and do not arrive.
    slow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Conflict,
    Unknown,
}

/// How long an answer of a log that is out of reach is waited for.
const TIMEOUT: Duration = Duration::from_millis(20);

impl SharedLogHandle {
    /// Cuts this process off from the log and from all others, or connects it again. What it appends
    /// meanwhile has an unknown outcome.
    pub fn cut_off(&self, cut: bool) {
        self.cut_off.store(cut, Ordering::SeqCst);
        self.freed.notify_all();
    }

    /// Holds acknowledgements back, or lets go of them. What is appended is in the log all the same.
    pub fn hold_acks(&self, held: bool) {
        self.hands.lock().held = held;
        self.freed.notify_all();
    }

    /// Appends of this process leave it and do not arrive, until [`SharedLogHandle::deliver`]. To
    /// the process their outcome is unknown.
    pub fn delay_appends(&self, slow: bool) {
        self.hands.lock().slow = slow;
    }

    /// Lets all appends of this process arrive that are on their way, whatever is in the log by now.
    /// Returns how many of them were taken.
    pub fn deliver(&self) -> usize {
        let mut store = self.world.store.lock();
        let late = std::mem::take(&mut store.late);
        let (mine, others) = late.into_iter().partition(|(whose, ..)| *whose == self.number);
        store.late = others;
        let arrive = |(_, at, record): (u64, Position, Record)| {
            matches!(store.append(at, &record), Ack::Committed(_))
        };
        let mine: Vec<_> = mine;
        let taken = mine.into_iter().map(arrive).filter(|taken| *taken).count();
        self.world.changed.notify_all();
        taken
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::SeqCst)
    }

    fn reach(&self) -> Result<MutexGuard<'_, Store>, ReadError> {
        if self.is_cut_off() {
            let source = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            return Err(ReadError::Failed { file: "the shared log".to_owned(), source });
        }
        Ok(self.world.store.lock())
    }

    /// Returns the outcome of the process's oldest record, if the process may know it.
    fn outcome(&self, hands: &mut Hands, at: Position, record: &Record) -> Ack {
        let ack = match hands.lost {
            Some(Lost::Conflict) => {
                Ack::Conflict { at, stored: self.world.store.lock().at(at.0).cloned() }
            }
            Some(Lost::Unknown) => Ack::Unknown(at),
            None if self.is_cut_off() || hands.slow => Ack::Unknown(at),
            None => self.world.store.lock().append(at, record),
        };
        match ack {
            Ack::Committed(at) => hands.known = hands.known.max(at.0 + 1),
            Ack::Conflict { .. } => hands.lost = Some(Lost::Conflict),
            _ => {
                hands.lost.get_or_insert(Lost::Unknown);
                hands.next = hands.next.min(at.0);
            }
        }
        if hands.submitted.is_empty() && hands.lost == Some(Lost::Unknown) {
            hands.lost = None;
        }
        ack
    }
}

impl Log for SharedLogHandle {
    fn first(&self) -> Position {
        Position(self.world.store.lock().first)
    }

    fn next(&self) -> Position {
        Position(self.hands.lock().next)
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let mut hands = self.hands.lock();
        if at.0 != hands.next {
            return Err(SubmitError::Conflict { at, next: Position(hands.next) });
        }
        hands.next += 1;
        hands.submitted.push_back((at, record.clone()));
        if hands.slow {
            let mut store = self.world.store.lock();
            let late = (self.number, at, record.clone());
            if !store.late.iter().any(|(whose, place, _)| *whose == late.0 && *place == at) {
                store.late.push(late);
            }
        } else if !self.is_cut_off() && hands.lost.is_none() {
            // What became of it is found out by the acknowledgement.
            self.world.store.lock().append(at, record);
            self.world.changed.notify_all();
        }
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        let mut hands = self.hands.lock();
        if hands.submitted.is_empty() {
            return Ack::Fatal(LogError::NothingSubmitted);
        }
        let until = Instant::now() + TIMEOUT;
        while hands.held || ((self.is_cut_off() || hands.slow) && Instant::now() < until) {
            self.freed.wait_for(&mut hands, TIMEOUT);
        }
        let Some((at, record)) = hands.submitted.pop_front() else {
            return Ack::Fatal(LogError::NothingSubmitted);
        };
        self.outcome(&mut hands, at, &record)
    }

    fn in_flight_max(&self) -> usize {
        4
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let known = self.hands.lock().known;
        let store = self.reach()?;
        if from.0 < store.first {
            return Err(ReadError::Trimmed { position: from, first: Position(store.first) });
        }
        if from.0 > known {
            return Err(ReadError::Absent { position: from, next: Position(known) });
        }
        let stored = |at: u64| {
            let Record { epoch, bytes } = store.at(at)?.clone();
            Some(Ok(Stored { position: Position(at), epoch, bytes, damaged: false }))
        };
        let records: Vec<_> = (from.0..known).filter_map(stored).collect();
        Ok(Box::new(records.into_iter()))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let store = self.reach()?;
        let next = Position(store.next());
        let record = store.at(position.0).ok_or(ReadError::Absent { position, next })?;
        slice_of(&record.bytes, position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let mut store = self.world.store.lock();
        while store.first < position.0 && store.records.pop_front().is_some() {
            store.first += 1;
        }
        Ok(())
    }

    fn record_bytes_max(&self) -> u32 {
        1 << 20
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
        self.world.store.lock().records.iter().map(|record| record.bytes.len() as u64).sum()
    }

    fn segment_end_before(&self, _: Position) -> Option<Position> {
        None
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let store = self.world.store.lock();
        (from.0..to.0).filter_map(|at| store.at(at)).map(|it| it.bytes.len() as u64).sum()
    }
}

impl SharedLog for SharedLogHandle {
    fn refresh(&self) -> Result<Position, ReadError> {
        let next = self.reach()?.next();
        let mut hands = self.hands.lock();
        (hands.known, hands.next) = (hands.known.max(next), hands.next.max(next));
        Ok(Position(hands.next))
    }

    fn wait_beyond(&self, position: Position, timeout: Duration) -> Result<Position, ReadError> {
        let deadline = Instant::now() + timeout;
        let mut store = self.world.store.lock();
        // A move of another handle's fault ends the wait early, which is allowed.
        if store.next() <= position.0 {
            self.world.changed.wait_until(&mut store, deadline);
        }
        drop(store);
        self.refresh()
    }

    fn announce(&self, bytes: &[u8]) {
        if self.is_cut_off() {
            return;
        }
        let listeners = self.world.store.lock().listeners.clone();
        let is_reached =
            |it: &Listener| it.handle != self.number && !it.cut_off.load(Ordering::SeqCst);
        listeners.iter().filter(|it| is_reached(it)).for_each(|it| (it.hear)(bytes));
    }

    fn on_announcement(&self, listener: OnAnnouncement) {
        let mut store = self.world.store.lock();
        store.listeners.retain(|it| it.handle != self.number);
        let (cut_off, hear) = (self.cut_off.clone(), Arc::new(listener));
        store.listeners.push(Listener { handle: self.number, cut_off, hear });
    }

    fn log_id(&self) -> String {
        format!("{:p}", self.world)
    }

    /// One server, which says that it is there as long as it is reached.
    fn health(&self) -> LogHealth {
        let mut health = LogHealth::default();
        match self.reach() {
            Ok(_) => health.hear(vec![LogServer {
                name: "memory".to_owned(),
                role: LogServerRole::Leader,
                state: LogServerState::Current,
                is_synchronous: Some(true),
                lag: None,
            }]),
            Err(error) => health.miss(error),
        }
        health
    }

    fn end_restore(&self) -> Result<(), LogError> {
        Ok(())
    }
}

impl Drop for SharedLogHandle {
    fn drop(&mut self) {
        self.world.store.lock().listeners.retain(|it| it.handle != self.number);
    }
}
