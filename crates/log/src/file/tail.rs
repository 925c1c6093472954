//! Where submitted records wait, already encoded, for the next flush.

use std::sync::atomic::Ordering;

use super::{shared::Shared, spares::Spare};
use crate::{
    contract::{Position, Record, SubmitError},
    frame::{
        FrameHeader, FrameSpot, SEGMENT_HEADER_BYTES, SegmentHeader, encode_frame, frame_bytes,
    },
};

/// Buffers larger than this are freed after use.
const BUFFER_BYTES_KEPT: usize = 4 * 1024 * 1024;

pub(super) struct Tail {
    pub(super) next: Position,
    pub(super) last_crc: u32,
    pub(super) salt: u32,
    /// Where the next frame goes in the segment that will be open by then.
    pub(super) offset: u32,
    pub(super) capacity: u32,
    /// Empty, or the last one takes the next frame.
    pub(super) runs: Vec<Run>,
    /// From the last flush, to be filled again.
    pub(super) unused: Option<Run>,
}

/// Frames that stand together in one segment and are written at once.
#[derive(Default)]
pub(super) struct Run {
    /// The segment to move on to first, when the frames did not fit in the one before.
    pub(super) opening: Option<Opening>,
    pub(super) start: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) spots: Vec<FrameSpot>,
}

pub(super) struct Opening {
    pub(super) spare: Spare,
    pub(super) header: SegmentHeader,
}

impl Tail {
    fn begin_run(&mut self, opening: Option<Opening>) {
        let unused = self.unused.take().unwrap_or_default();
        self.runs.push(Run { opening, start: self.offset, ..unused });
    }

    fn push(&mut self, record: &Record, synced_upto: Position) {
        if self.runs.is_empty() {
            self.begin_run(None);
        }
        let header = FrameHeader {
            position: self.next,
            epoch: record.epoch,
            synced_upto,
            prev_crc: self.last_crc,
        };
        if let Some(run) = self.runs.last_mut() {
            run.spots.push(FrameSpot::new(self.offset, record.bytes.len()));
            self.last_crc = encode_frame(&mut run.bytes, self.salt, header, &record.bytes);
        }
        self.offset += frame_bytes(record.bytes.len()) as u32;
        self.next = self.next.next();
    }

    /// Takes a run back that was written.
    pub(super) fn reuse(&mut self, mut run: Run) {
        if run.bytes.capacity() <= BUFFER_BYTES_KEPT {
            run.bytes.clear();
            run.spots.clear();
            self.unused = Some(run);
        }
    }
}

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
            self.move_on(&mut tail)?;
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

    /// Plans to go on in a prepared segment; the flush opens it.
    fn move_on(&self, tail: &mut Tail) -> Result<(), SubmitError> {
        let spare = self.spares.take(&*self.disk, self.options.background);
        let spare = spare.ok_or(SubmitError::Full)?;
        let (salt, first) = (self.disk.salt(), tail.next);
        tail.salt = salt;
        tail.capacity = spare.capacity;
        tail.offset = SEGMENT_HEADER_BYTES as u32;
        let header = SegmentHeader { salt, first, prev_crc: tail.last_crc };
        tail.begin_run(Some(Opening { spare, header }));
        Ok(())
    }
}
