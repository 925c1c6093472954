//! Where submitted records wait, already encoded, for the next flush.

use super::spares::Spare;
use crate::{
    contract::{Position, Record},
    frame::{FrameHeader, FrameSpot, SegmentHeader, encode_frame, frame_bytes},
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
    pub(super) fn begin_run(&mut self, opening: Option<Opening>) {
        let unused = self.unused.take().unwrap_or_default();
        self.runs.push(Run { opening, start: self.offset, ..unused });
    }

    pub(super) fn push(&mut self, record: &Record, synced_upto: Position) {
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
            if run.bytes.is_empty() {
                // Growing it would copy what it had been.
                let needed = frame_bytes(record.bytes.len());
                if run.bytes.capacity() < needed {
                    run.bytes = Vec::with_capacity(needed);
                }
            }
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
