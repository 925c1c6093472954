//! A log that a test holds back.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};

/// A log in memory whose commits can be held back, and that can say that it has no room.
#[derive(Default)]
pub struct HeldLog {
    log: MemoryLog,
    held: Mutex<bool>,
    let_go: Condvar,
    /// An answer given in place of the log's own.
    space: Mutex<Option<Space>>,
}

impl HeldLog {
    /// Holds commits back from now on, or lets go of them.
    pub fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.let_go.notify_all();
    }

    /// Says that the disk is full from now on, or that it is not.
    pub fn fill(&self, full: bool) {
        *self.space.lock() = full.then_some(Space::ReserveOnly);
    }

    /// Says that it cannot be made longer from now on, or that it can.
    pub fn stop_growth(&self, stopped: bool) {
        *self.space.lock() = stopped.then_some(Space::CannotGrow);
    }
}

impl Log for HeldLog {
    fn first(&self) -> Position {
        self.log.first()
    }

    fn next(&self) -> Position {
        self.log.next()
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        self.log.submit(at, record)
    }

    fn next_ack(&self) -> Ack {
        let mut held = self.held.lock();
        while *held {
            self.let_go.wait(&mut held);
        }
        self.log.next_ack()
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        self.log.read(from)
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        self.log.read_at(position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        self.log.trim_before(position)
    }

    fn check(&self) -> Result<(), LogError> {
        self.log.check()
    }

    fn end(&self) -> Result<(), LogError> {
        self.log.end()
    }

    fn record_bytes_max(&self) -> u32 {
        self.log.record_bytes_max()
    }

    fn is_exclusive(&self) -> bool {
        self.log.is_exclusive()
    }

    fn space(&self) -> Space {
        self.space.lock().unwrap_or_else(|| self.log.space())
    }

    fn room_bytes(&self) -> u64 {
        if self.space.lock().is_some() { 1 << 20 } else { self.log.room_bytes() }
    }

    fn bytes_on_disk(&self) -> u64 {
        self.log.bytes_on_disk()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.log.segment_end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.log.bytes_between(from, to)
    }
}
