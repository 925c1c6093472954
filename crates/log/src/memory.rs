//! A log that lives in memory: tests, benchmarks and `--memory`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::contract::{
    Ack, Log, LogError, Position, ReadError, Record, Space, Stored, StoredRecords, SubmitError,
    slice_of,
};

const RUN_RECORDS: usize = 1024;
const RUN_BYTES: u64 = 4 * 1024 * 1024;
const RECORD_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// A log without a disk. Records are kept in runs that play the part of segments: a trim drops
/// whole runs, and the open run stays.
pub struct MemoryLog {
    run_records: usize,
    record_bytes_max: u32,
    records: Mutex<Records>,
}

struct Records {
    /// Never empty; the last one is open.
    runs: VecDeque<Run>,
    next: Position,
    /// Acknowledged, so readable, below this.
    committed: Position,
    bytes: u64,
}

struct Run {
    first: Position,
    bytes: u64,
    /// Shared with readers: a run is copied at most once for them, while it is open.
    records: Arc<Vec<Record>>,
}

impl MemoryLog {
    /// An empty log that begins at position 0.
    #[must_use]
    pub fn new() -> Self {
        Self::with_run_records(RUN_RECORDS)
    }

    /// An empty log whose runs are closed after `run_records` records (or 4 MiB), so that a test
    /// can see trims with few of them.
    #[must_use]
    pub fn with_run_records(run_records: usize) -> Self {
        let runs = VecDeque::from([Run { first: Position(0), bytes: 0, records: Arc::default() }]);
        let records = Records { runs, next: Position(0), committed: Position(0), bytes: 0 };
        Self {
            run_records: run_records.max(1),
            record_bytes_max: RECORD_BYTES_MAX,
            records: Mutex::new(records),
        }
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl Records {
    fn first(&self) -> Position {
        self.runs.front().map_or(self.next, |run| run.first)
    }

    /// The index of the run that holds `position`, which is not below `first()`.
    fn run_of(&self, position: Position) -> usize {
        self.runs.partition_point(|run| run.first <= position).saturating_sub(1)
    }

    fn committed(&self, position: Position) -> Result<&Record, ReadError> {
        let first = self.first();
        if position < first {
            return Err(ReadError::Trimmed { position, first });
        }
        let absent = ReadError::Absent { position, next: self.committed };
        if position >= self.committed {
            return Err(absent);
        }
        let run = &self.runs[self.run_of(position)];
        usize::try_from(position.0 - run.first.0)
            .ok()
            .and_then(|index| run.records.get(index))
            .ok_or(absent)
    }
}

impl Log for MemoryLog {
    fn first(&self) -> Position {
        self.records.lock().first()
    }

    fn next(&self) -> Position {
        self.records.lock().next
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        if record.bytes.len() as u64 > u64::from(self.record_bytes_max) {
            let bytes = record.bytes.len() as u64;
            return Err(SubmitError::TooLarge { bytes, max: self.record_bytes_max });
        }
        let mut log = self.records.lock();
        if at != log.next {
            return Err(SubmitError::Conflict { at, next: log.next });
        }
        let bytes = record.bytes.len() as u64;
        let full = log
            .runs
            .back()
            .is_none_or(|run| run.records.len() >= self.run_records || run.bytes >= RUN_BYTES);
        if full {
            log.runs.push_back(Run { first: at, bytes: 0, records: Arc::default() });
        }
        if let Some(run) = log.runs.back_mut() {
            run.bytes += bytes;
            Arc::make_mut(&mut run.records).push(record.clone());
        }
        log.bytes += bytes;
        log.next = at.next();
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        let mut log = self.records.lock();
        if log.committed == log.next {
            return Ack::Fatal(LogError::NothingSubmitted);
        }
        let position = log.committed;
        log.committed = position.next();
        Ack::Committed(position)
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let log = self.records.lock();
        let first = log.first();
        if from < first {
            return Err(ReadError::Trimmed { position: from, first });
        }
        if from > log.next {
            return Err(ReadError::Absent { position: from, next: log.committed });
        }
        // A handle for each run: a trim must not disturb the iterator, and what it yields is made
        // one by one, so that reading a little of a long log is cheap.
        let runs = log.runs.range(log.run_of(from)..);
        let runs: Vec<(Position, Arc<Vec<Record>>)> =
            runs.map(|run| (run.first, run.records.clone())).collect();
        let committed = log.committed;
        let stored = runs.into_iter().flat_map(move |(first, records)| {
            let skip = usize::try_from(from.0.saturating_sub(first.0)).unwrap_or(usize::MAX);
            (skip..records.len()).map_while(move |at| {
                let position = Position(first.0 + at as u64);
                let record = records.get(at).filter(|_| position < committed)?;
                let (epoch, bytes) = (record.epoch, record.bytes.clone());
                Some(Ok(Stored { position, epoch, bytes, damaged: false }))
            })
        });
        Ok(Box::new(stored))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let log = self.records.lock();
        slice_of(&log.committed(position)?.bytes, position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let mut dropped = Vec::new();
        let mut log = self.records.lock();
        let position = position.min(log.committed);
        while log.runs.get(1).is_some_and(|second| second.first <= position) {
            if let Some(run) = log.runs.pop_front() {
                log.bytes -= run.bytes;
                dropped.push(run);
            }
        }
        // The records are freed without the lock: there may be many.
        drop(log);
        drop(dropped);
        Ok(())
    }

    fn record_bytes_max(&self) -> u32 {
        self.record_bytes_max
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn space(&self) -> Space {
        Space::Ample
    }

    fn room_bytes(&self) -> u64 {
        u64::MAX
    }

    fn bytes_on_disk(&self) -> u64 {
        self.records.lock().bytes
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        let log = self.records.lock();
        let run = log.run_of(from);
        log.runs.get(run + 1).map(|next| next.first)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let log = self.records.lock();
        let mut bytes = 0;
        for (index, run) in log.runs.iter().enumerate() {
            let end = log.runs.get(index + 1).map_or(log.next, |next| next.first);
            let (low, high) = (run.first.max(from), end.min(to));
            if low < high {
                // Spread evenly over the run: near enough to judge what a trim would free.
                let share = (high.0 - low.0) as u128 * u128::from(run.bytes);
                bytes += (share / u128::from(end.0 - run.first.0)) as u64;
            }
        }
        bytes
    }
}
