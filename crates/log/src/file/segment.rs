//! One segment and where its committed frames are.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::{
    contract::Position,
    disk::DiskFile,
    frame::{FrameSpot, SEGMENT_HEADER_BYTES},
};

pub(super) struct Segment {
    pub(super) first: Position,
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    /// How long the file is: nothing is ever written beyond.
    pub(super) capacity: u32,
    pub(super) salt: u32,
    index: RwLock<Index>,
}

struct Index {
    spots: Vec<FrameSpot>,
    /// Where the last committed frame ends.
    end: u32,
}

/// A frame's place in the file.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) payload_bytes: u32,
}

impl Segment {
    pub(super) fn new(
        first: Position,
        name: String,
        file: Arc<dyn DiskFile>,
        capacity: u32,
        salt: u32,
    ) -> Self {
        let index = Index { spots: Vec::new(), end: SEGMENT_HEADER_BYTES as u32 };
        Self { first, name, file, capacity, salt, index: RwLock::new(index) }
    }

    /// Lets readers see frames that were written behind the last one.
    pub(super) fn publish(&self, spots: &[FrameSpot], end: u32) {
        let mut index = self.index.write();
        index.spots.extend_from_slice(spots);
        index.end = end;
    }

    /// No frame follows: gives back the room the index kept for more, and what only appends need of the file.
    pub(super) fn close(&self) {
        self.file.settle();
        self.index.write().spots.shrink_to_fit();
    }

    /// Where the last committed frame ends.
    pub(super) fn end(&self) -> u32 {
        self.index.read().end
    }

    /// How many committed frames there are, where the last one begins, and where it ends.
    pub(super) fn extent(&self) -> (u64, Option<u32>, u32) {
        let index = self.index.read();
        (index.spots.len() as u64, index.spots.last().map(|spot| spot.start()), index.end)
    }

    pub(super) fn frames_bytes(&self) -> u64 {
        u64::from(self.end()) - SEGMENT_HEADER_BYTES as u64
    }

    /// Where a committed frame is.
    pub(super) fn place(&self, position: Position) -> Option<Place> {
        let index = self.index.read();
        let nth = usize::try_from(position.0.checked_sub(self.first.0)?).ok()?;
        let spot = *index.spots.get(nth)?;
        let end = index.spots.get(nth + 1).map_or(index.end, |next| next.start());
        Some(Place { start: spot.start(), payload_bytes: spot.payload_bytes(end) })
    }

    /// Where the frame of a position begins, or the end when the position is behind the last one,
    /// or the first frame when it is before the segment.
    pub(super) fn offset_of(&self, position: Position) -> u32 {
        if position < self.first {
            return SEGMENT_HEADER_BYTES as u32;
        }
        self.place(position).map_or_else(|| self.end(), |place| place.start)
    }
}
