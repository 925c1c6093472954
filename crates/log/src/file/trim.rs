//! Drops segments that are no longer needed.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use super::{segment::Segment, shared::Shared, spares::Spare};
use crate::{
    contract::{LogError, Position},
    folder::spare_name,
};

impl Shared {
    pub(super) fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let _trimming = self.trimming.lock();
        if let Some(error) = self.poison() {
            return Err(error.clone());
        }
        let position = position.min(self.committed());
        let Some(first) = self.first_from(position) else { return Ok(()) };
        self.check_folder()?;
        // The records that replace the dropped ones must not be less durable than those were.
        self.sync_committed()?;
        // The bounds change before anything is removed: a missing segment from `first` on is damage, and a segment that
        // a crash leaves before it is not.
        let reached = self.synced();
        self.change_bounds(|bounds| {
            bounds.first = first;
            bounds.reach(reached);
        })?;
        while let Some(end) = self.oldest_below(position) {
            let Some(segment) = self.take_oldest(end) else { break };
            let name = segment.name.clone();
            // One folder sync for each: where the bounds could not be written, the log would have a hole if the folder
            // lost a later removal and kept an earlier one's, or the other way round.
            let dropped = self.drop_file(segment).and_then(|spare| {
                self.disk.sync_folder()?;
                Ok(spare)
            });
            match dropped {
                Ok(Some(spare)) => self.spares.put(spare),
                Ok(None) => self.spares.retry(),
                Err(error) => return Err(self.poison_with("drop", &name, error)),
            }
        }
        Ok(())
    }

    /// The position that the log begins with after a trim to `position`, if that drops anything.
    fn first_from(&self, position: Position) -> Option<Position> {
        let segments = self.segments.read();
        segments
            .iter()
            .skip(1)
            .map(|segment| segment.first)
            .take_while(|first| *first <= position)
            .last()
    }

    /// The end of the oldest segment, if it ends at or below a position and is not the open one.
    fn oldest_below(&self, position: Position) -> Option<Position> {
        let second = self.segments.read().get(1)?.first;
        (second <= position).then_some(second)
    }

    /// From here on the segment cannot be found.
    fn take_oldest(&self, end: Position) -> Option<Arc<Segment>> {
        let mut segments = self.segments.write();
        let oldest = segments.pop_front()?;
        self.positions.first.store(end.0, Ordering::Release);
        self.positions.kept_bytes.fetch_sub(oldest.frames_bytes(), Ordering::Relaxed);
        Some(oldest)
    }

    /// Makes the file a spare, or removes it if there are enough spares, or if it is still being
    /// read: a reader must not see what a new life of the file writes.
    fn drop_file(&self, segment: Arc<Segment>) -> io::Result<Option<Spare>> {
        let name = segment.name.clone();
        let unread = Arc::into_inner(segment);
        let recycled = unread.and_then(|segment| {
            let number = self.spares.room_for_one(segment.capacity)?;
            Some((segment, spare_name(number)))
        });
        let Some((segment, spare)) = recycled else {
            self.disk.remove(&name)?;
            return Ok(None);
        };
        self.disk.rename(&name, &spare)?;
        Ok(Some(Spare { name: spare, file: segment.file, capacity: segment.capacity }))
    }
}
