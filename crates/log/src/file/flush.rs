//! Writes what was submitted, makes it as durable as the policy says, and publishes it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    SyncPolicy,
    segment::Segment,
    shared::{Flush, Shared},
    tail::{Opening, Run},
};
use crate::{
    contract::{Ack, LogError, Position},
    folder::name_segment,
};

/// A batch of this many bytes takes the disk several times as long as its sync.
const LARGE_BATCH_BYTES: usize = 512 * 1024;
/// How often the folder is checked if records are acknowledged before they are synced.
const LOOK_AT_FOLDER: Duration = Duration::from_millis(10);

impl Shared {
    pub(super) fn next_ack(&self) -> Ack {
        let mut flush = self.flushing.lock();
        if let Some(error) = self.poison() {
            return Ack::Fatal(error.clone());
        }
        if flush.answered == self.committed() {
            let runs = std::mem::take(&mut self.tail.lock().runs);
            if runs.is_empty() {
                return Ack::Fatal(LogError::NothingSubmitted);
            }
            for run in runs {
                if let Err(error) = self.write_out(&mut flush, run) {
                    return Ack::Fatal(error);
                }
            }
        }
        let position = flush.answered;
        flush.answered = position.next();
        Ack::Committed(position)
    }

    fn write_out(&self, flush: &mut Flush, mut run: Run) -> Result<(), LogError> {
        self.go_on(flush)?;
        if let Some(opening) = run.opening.take() {
            self.open_next(flush, opening)?;
        }
        let open = &flush.open;
        let end = run.start + run.bytes.len() as u32;
        debug_assert!(end <= open.capacity, "a run was planned beyond its segment");
        let upto = Position(self.committed().0 + run.spots.len() as u64);
        let start = u64::from(run.start);
        if self.options.sync == SyncPolicy::Always {
            self.append_durably(open, &run.bytes, start)?;
            self.synced_upto(upto);
        } else {
            open.file
                .write_at(&run.bytes, start)
                .map_err(|error| self.poison_with("write", &open.name, error))?;
            flush.unsynced = true;
        }
        // Without a sync, checking the folder would be half the cost of a commit.
        if self.options.sync == SyncPolicy::Always || flush.looked_at.elapsed() > LOOK_AT_FOLDER {
            self.check_folder()?;
            flush.looked_at = Instant::now();
        }
        open.publish(&run.spots, end);
        if run.bytes.len() >= LARGE_BATCH_BYTES {
            flush.large_bytes += run.bytes.len() as u64;
        }
        self.positions.kept_bytes.fetch_add(run.bytes.len() as u64, Ordering::Relaxed);
        self.positions.committed.store(upto.0, Ordering::Release);
        self.tail.lock().reuse(run);
        Ok(())
    }

    /// Ends the open segment and opens the next. The order is what recovery relies on: a segment
    /// has its name only when all before it is durable, and its own header too.
    fn open_next(&self, flush: &mut Flush, opening: Opening) -> Result<(), LogError> {
        if flush.unsynced {
            let committed = self.committed();
            self.sync_segment(&flush.open)?;
            self.synced_upto(committed);
            flush.unsynced = false;
        }
        flush.open.close();
        self.spares.note_large_bytes(std::mem::take(&mut flush.large_bytes));
        self.check_folder()?;
        let Opening { spare, header } = opening;
        let name = name_segment(&*self.disk, &*spare.file, &spare.name, header)
            .map_err(|(operation, error)| self.poison_with(operation, &spare.name, error))?;
        let segment = Segment::new(header.first, name, spare.file, spare.capacity, header.salt);
        flush.open = Arc::new(segment);
        self.segments.write().push_back(flush.open.clone());
        let (newest, reached) = (header.first, self.synced());
        self.change_bounds(|bounds| {
            bounds.newest = newest;
            bounds.reach(reached);
        })?;
        if !self.options.background {
            self.spares.prepare_if_short(&*self.disk);
        }
        Ok(())
    }
}
