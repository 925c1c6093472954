//! Takes records: plans where each goes and encodes it for the next flush.

use std::sync::atomic::Ordering;

use super::{
    shared::Shared,
    tail::{Opening, Tail},
};
use crate::{
    contract::{Position, Record, SubmitError},
    frame::{SEGMENT_HEADER_BYTES, SegmentHeader, frame_bytes},
};

impl Shared {
    pub(super) fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        let bytes = record.bytes.len();
        if bytes as u64 > u64::from(self.record_bytes_max) {
            return Err(SubmitError::TooLarge { bytes: bytes as u64, max: self.record_bytes_max });
        }
        let mut tail = self.tail.lock();
        if let Some(error) = self.poison() {
            return Err(SubmitError::Poisoned(error.clone()));
        }
        if at != tail.next {
            return Err(SubmitError::Conflict { at, next: tail.next });
        }
        if (tail.capacity.saturating_sub(tail.offset) as usize) < frame_bytes(bytes) {
            self.move_on(&mut tail, frame_bytes(bytes) as u32)?;
        }
        if tail.offset > tail.capacity / 2 && self.options.background {
            self.spares.await_outlook();
        }
        // Taken now, not when the run is written: this much is durable already, so a frame never
        // vouches for one that is written together with it.
        tail.push(record, self.synced());
        self.positions.next.store(tail.next.0, Ordering::Release);
        if tail.offset > tail.capacity / 4 || tail.capacity < self.spares.capacity {
            self.spares.hurry();
        }
        Ok(())
    }

    /// What is left of the segment that takes the next frame, and all spares.
    pub(super) fn room_bytes(&self) -> u64 {
        let tail = self.tail.lock();
        u64::from(tail.capacity.saturating_sub(tail.offset)) + self.spares.bytes()
    }

    /// Plans to go on in a prepared segment, with a frame of so many bytes; the flush opens it.
    fn move_on(&self, tail: &mut Tail, frame_bytes: u32) -> Result<(), SubmitError> {
        let spare = self.spares.take(&*self.disk, self.options.background, frame_bytes);
        let spare = spare.ok_or(SubmitError::Full)?;
        let (salt, first) = (self.disk.salt(), tail.next);
        tail.salt = salt;
        tail.capacity = spare.capacity;
        tail.offset = SEGMENT_HEADER_BYTES as u32;
        let header = SegmentHeader {
            salt,
            first,
            prev_crc: tail.last_crc,
            keeps_bounds: self.bounds.is_some(),
        };
        tail.begin_run(Some(Opening { spare, header }));
        Ok(())
    }
}
