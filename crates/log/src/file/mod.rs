//! The log in a folder of segment files.
//!
//! One thread submits and takes acknowledgements, at the cost of one write and one `fdatasync` for
//! all records submitted meanwhile. Beside it, when [`background`](FileLogOptions::background) is
//! on, run a thread that prepares segments ahead and, with [`SyncPolicy::Interval`], one that
//! syncs.
//!
//! - `open`: reads the folder, refuses damage, cuts the torn tail, makes what is kept durable
//! - `submit`: takes records; `tail`: where they wait, encoded
//! - `flush`: writes and syncs them, moves on to the next segment, publishes positions
//! - `segment`: the index of one segment, for readers
//! - `spares`: prepares segments before they are needed
//! - `trim`: drops segments
//! - `copy`: shows segments to callers that copy them

mod copy;
mod flush;
mod open;
mod read;
mod segment;
mod shared;
mod spares;
mod submit;
mod tail;
mod trim;

use std::{path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use bytes::Bytes;

use self::shared::Shared;
use crate::{
    contract::{
        Ack, Log, LogError, Position, ReadError, Record, Space, Stored, StoredRecords, SubmitError,
    },
    copy::SegmentReader,
    disk::{Disk, RealDisk},
    faults::Faults,
    folder::OpenError,
    parts::{PartsOf, no_parts},
};

/// When written records are made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// Before they are acknowledged. A power cut loses no acknowledged record.
    #[default]
    Always,
    /// This often. A power cut loses at most what came in one interval, and what the last sync was still writing.
    Interval(Duration),
    /// When the operating system chooses, when a segment ends, before a trim, and at the end.
    Os,
}

/// How a file log behaves.
#[derive(Clone, Debug)]
pub struct FileLogOptions {
    /// When written records are made durable.
    pub sync: SyncPolicy,
    /// How long a segment file is: 4 KiB to 2 GiB. The first one of a new folder, and those made on
    /// a disk that is nearly full, are shorter. One that begins with a record which does not fit is
    /// longer, by that record.
    pub segment_bytes: u64,
    /// The longest record to take, whatever `segment_bytes` is.
    pub record_bytes_max: u32,
    /// Whether threads prepare segments and sync. Without them the log does that work when it
    /// needs it, or in [`FileLog::maintain`], and is deterministic.
    pub background: bool,
    /// Names parts of a record that may be damaged without the whole record being lost.
    pub parts_of: PartsOf,
    /// Faults for the simulator to find.
    #[doc(hidden)]
    pub faults: Faults,
}

impl Default for FileLogOptions {
    fn default() -> Self {
        Self {
            sync: SyncPolicy::Always,
            segment_bytes: 64 * 1024 * 1024,
            record_bytes_max: 4 * 1024 * 1024,
            background: true,
            parts_of: no_parts,
            faults: Faults::default(),
        }
    }
}

/// A log in a folder. Dropping it syncs what was written and frees the folder; what was submitted
/// and never acknowledged may be lost. That is no orderly end: [`Log::end`] is.
pub struct FileLog {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl FileLog {
    /// Opens the log in a folder, or begins one in an empty folder. Everything that the log says it
    /// has is durable when this returns.
    pub fn open(disk: Arc<dyn Disk>, options: FileLogOptions) -> Result<Self, OpenError> {
        Self::open_with(disk, options, &mut |_| {})
    }

    /// As [`FileLog::open`], and shows every record to `each` while the folder is read, oldest first, then `None`: what
    /// follows is work on the disk. So a caller that folds the log need not read it a second time, and folds while it
    /// is opened.
    ///
    /// The records shown are valid only if a log is returned: there may be damage behind them.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        options: FileLogOptions,
        each: &mut dyn FnMut(Option<Stored>),
    ) -> Result<Self, OpenError> {
        let shared = Arc::new(open::open(disk, options, each)?);
        let threads = shared::start_threads(&shared)?;
        Ok(Self { shared, threads })
    }

    /// Opens the log in a directory, which is created when it is missing.
    pub fn open_dir(path: impl Into<PathBuf>, options: FileLogOptions) -> Result<Self, OpenError> {
        Self::open_dir_with(path, options, &mut |_| {})
    }

    /// As [`FileLog::open_dir`], and shows the records as [`FileLog::open_with`] does.
    pub fn open_dir_with(
        path: impl Into<PathBuf>,
        options: FileLogOptions,
        each: &mut dyn FnMut(Option<Stored>),
    ) -> Result<Self, OpenError> {
        let path = path.into();
        let disk = RealDisk::create_or_open(&path).map_err(|source| OpenError::Failed {
            operation: "open the folder",
            path: path.display().to_string(),
            source,
        })?;
        let direct = options.sync == SyncPolicy::Always;
        Self::open_with(Arc::new(disk.with_direct_access(direct)), options, each)
    }

    /// Does what the threads would do: prepares the next segment and, with an interval, syncs.
    /// Does nothing while there are threads.
    pub fn maintain(&self) {
        self.shared.maintain();
    }

    /// Makes everything that is committed durable, whatever the sync policy.
    pub fn sync(&self) -> Result<(), LogError> {
        self.shared.sync_committed()
    }

    /// All records below this position are durable.
    #[must_use]
    pub fn synced_upto(&self) -> Position {
        self.shared.synced()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.shared.spares.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
        if self.shared.poison().is_none()
            && let Err(error) = self.shared.sync_committed()
        {
            tracing::error!(%error, "the log could not be synced at its end");
        }
    }
}

impl Log for FileLog {
    fn first(&self) -> Position {
        self.shared.first()
    }

    fn next(&self) -> Position {
        self.shared.next()
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        self.shared.submit(at, record)
    }

    fn next_ack(&self) -> Ack {
        self.shared.next_ack()
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        self.shared.read(from)
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        self.shared.read_at(position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        self.shared.trim_before(position)
    }

    fn check(&self) -> Result<(), LogError> {
        match self.shared.poison() {
            Some(error) => Err(error.clone()),
            None => self.shared.check_folder(),
        }
    }

    fn end(&self) -> Result<(), LogError> {
        self.shared.end()
    }

    fn record_bytes_max(&self) -> u32 {
        self.shared.record_bytes_max
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    fn space(&self) -> Space {
        self.shared.spares.space()
    }

    fn room_bytes(&self) -> u64 {
        self.shared.room_bytes()
    }

    fn bytes_on_disk(&self) -> u64 {
        self.shared.kept_bytes()
    }

    fn open_files(&self) -> usize {
        self.shared.segments.read().len()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.shared.segment_end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.shared.bytes_between(from, to)
    }

    fn segments(&self) -> Option<Result<Vec<SegmentReader>, ReadError>> {
        Some(self.shared.segment_readers())
    }

    fn segment(&self, first: Position) -> Result<Option<SegmentReader>, ReadError> {
        self.shared.segment_reader(first)
    }
}
