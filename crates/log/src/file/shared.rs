//! What the log's threads share.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use parking_lot::{Mutex, RwLock};

use super::{FileLogOptions, SyncPolicy, segment::Segment, spares::Spares, tail::Tail};
use crate::{
    bounds::{BOUNDS_FILE, Bounds, BoundsFile},
    contract::{LogError, Position},
    disk::{Disk, FolderLock},
    folder::OpenError,
};

/// Locks are taken in this order: `flushing`, `tail`, `trimming`, `bounds`, `syncing`, `segments`. None but
/// `flushing`, `bounds` and `syncing` is held while the disk syncs, and readers take only `segments`.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: FileLogOptions,
    pub(super) record_bytes_max: u32,
    /// Oldest first, never empty, the last one is open.
    pub(super) segments: RwLock<VecDeque<Arc<Segment>>>,
    pub(super) tail: Mutex<Tail>,
    pub(super) flushing: Mutex<Flush>,
    pub(super) trimming: Mutex<()>,
    /// The kernel tells a failed sync to one caller only: the next one must find the log poisoned.
    pub(super) syncing: Mutex<()>,
    pub(super) spares: Spares,
    /// Where the log must begin and end; none while the disk has no room for it.
    pub(super) bounds: Option<Mutex<BoundsFile>>,
    pub(super) positions: Positions,
    pub(super) poisoned: OnceLock<LogError>,
    pub(super) lock: FolderLock,
}

/// How far the flush is.
pub(super) struct Flush {
    pub(super) open: Arc<Segment>,
    /// The next record to acknowledge; those below the committed position can be at once.
    pub(super) answered: Position,
    /// Whether the open segment has bytes that were not synced here.
    pub(super) unsynced: bool,
    /// How much of the open segment came in large batches.
    pub(super) large_bytes: u64,
    /// The bounds say that the log has ended: nothing is appended before they say otherwise.
    pub(super) ended: bool,
    /// When the folder was last found to be the log's own.
    pub(super) looked_at: Instant,
}

/// Numbers that are read without a lock.
pub(super) struct Positions {
    pub(super) first: AtomicU64,
    pub(super) synced: AtomicU64,
    pub(super) committed: AtomicU64,
    pub(super) next: AtomicU64,
    /// Bytes of the frames from first to committed.
    pub(super) kept_bytes: AtomicU64,
}

impl Shared {
    pub(super) fn first(&self) -> Position {
        Position(self.positions.first.load(Ordering::Acquire))
    }

    pub(super) fn next(&self) -> Position {
        Position(self.positions.next.load(Ordering::Acquire))
    }

    pub(super) fn committed(&self) -> Position {
        Position(self.positions.committed.load(Ordering::Acquire))
    }

    pub(super) fn synced(&self) -> Position {
        Position(self.positions.synced.load(Ordering::Acquire))
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.positions.kept_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn poison(&self) -> Option<&LogError> {
        self.poisoned.get()
    }

    /// Stops the log for good. The first failure is the one that is reported.
    pub(super) fn poison_with(
        &self,
        operation: &'static str,
        file: &str,
        source: io::Error,
    ) -> LogError {
        let file = crate::folder::path(&*self.disk, file);
        tracing::error!(operation, file, error = %source, "the log failed and takes nothing more");
        let error = LogError::Failed { operation, file, source: Arc::new(source) };
        self.poisoned.get_or_init(|| error).clone()
    }

    /// Stops the log for good when the folder is not its own any more: what was written may be in no folder, or another
    /// server may have this one. Asked before anything is acknowledged and before the names of files change.
    pub(super) fn check_folder(&self) -> Result<(), LogError> {
        let Err(error) = self.lock.check() else { return Ok(()) };
        let folder = self.disk.folder();
        tracing::error!(folder, %error, "the data folder was taken away: nothing more is acknowledged");
        let error = LogError::FolderLost { folder, source: Arc::new(error) };
        Err(self.poisoned.get_or_init(|| error).clone())
    }

    /// Writes and syncs, unless an earlier failure has poisoned the log.
    pub(super) fn append_durably(
        &self,
        segment: &Segment,
        bytes: &[u8],
        offset: u64,
    ) -> Result<(), LogError> {
        let _syncing = self.syncing.lock();
        if let Some(error) = self.poison() {
            return Err(error.clone());
        }
        segment
            .file
            .append_durably(bytes, offset)
            .map_err(|error| self.poison_with("write and sync", &segment.name, error))
    }

    /// Makes a segment's bytes durable, unless an earlier failure has poisoned the log.
    pub(super) fn sync_segment(&self, segment: &Segment) -> Result<(), LogError> {
        let _syncing = self.syncing.lock();
        if let Some(error) = self.poison() {
            return Err(error.clone());
        }
        segment.file.sync().map_err(|error| self.poison_with("sync", &segment.name, error))
    }

    pub(super) fn synced_upto(&self, position: Position) {
        self.positions.synced.fetch_max(position.0, Ordering::AcqRel);
    }

    /// Makes all that is committed durable.
    pub(super) fn sync_committed(&self) -> Result<(), LogError> {
        if let Some(error) = self.poison() {
            return Err(error.clone());
        }
        let committed = self.committed();
        if self.synced() < committed {
            // All segments but the last were synced when they ended. One that ends right now
            // is synced before it stops being the last.
            let open = self.segments.read().back().cloned();
            if let Some(open) = open {
                self.sync_segment(&open)?;
            }
            self.synced_upto(committed);
        }
        Ok(())
    }

    /// Changes where the log must begin and end, durably.
    pub(super) fn change_bounds(&self, change: impl FnOnce(&mut Bounds)) -> Result<(), LogError> {
        let Some(file) = &self.bounds else { return Ok(()) };
        let mut file = file.lock();
        let mut bounds = file.bounds;
        change(&mut bounds);
        file.change(bounds).map_err(|error| self.poison_with("write", BOUNDS_FILE, error))
    }

    /// Notes where the log ends, when all of it is durable and nothing waits to be written.
    pub(super) fn end(&self) -> Result<(), LogError> {
        let mut flush = self.flushing.lock();
        self.sync_committed()?;
        let (crc, is_whole) = {
            let tail = self.tail.lock();
            (tail.last_crc, tail.runs.is_empty())
        };
        if is_whole {
            let end = self.committed();
            self.change_bounds(|bounds| (bounds.reached, bounds.end) = (end, Some(crc)))?;
            flush.ended = true;
        }
        Ok(())
    }

    /// The log goes on: from here on the bounds must not say that it ended.
    pub(super) fn go_on(&self, flush: &mut Flush) -> Result<(), LogError> {
        if flush.ended && !self.options.faults.end_kept {
            self.change_bounds(|bounds| bounds.end = None)?;
        }
        flush.ended = false;
        Ok(())
    }

    pub(super) fn maintain(&self) {
        if self.options.background {
            return;
        }
        self.spares.prepare_if_short(&*self.disk);
        if matches!(self.options.sync, SyncPolicy::Interval(_)) && self.poison().is_none() {
            // A failure has poisoned the log, and the next acknowledgement says so.
            let _ = self.sync_committed();
        }
    }
}

/// Starts the threads that the options ask for.
pub(super) fn start_threads(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, OpenError> {
    let mut threads = Vec::new();
    if !shared.options.background {
        return Ok(threads);
    }
    let failed = |source| OpenError::Failed {
        operation: "start a thread for",
        path: shared.disk.folder(),
        source,
    };
    let preparer = shared.clone();
    threads.push(
        thread::Builder::new()
            .name("log-prepare".to_owned())
            .spawn(move || preparer.spares.keep_preparing(&*preparer.disk))
            .map_err(failed)?,
    );
    if let SyncPolicy::Interval(interval) = shared.options.sync {
        let syncer = shared.clone();
        let sync = move || {
            while syncer.spares.wait_unless_stopped(interval) {
                if syncer.poison().is_some() || syncer.sync_committed().is_err() {
                    break;
                }
            }
        };
        let syncer = thread::Builder::new().name("log-sync".to_owned()).spawn(sync);
        threads.push(syncer.map_err(failed)?);
    }
    Ok(threads)
}
