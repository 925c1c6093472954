//! Shows segments to callers that copy them. Nothing here waits for a write or a sync.

use std::{io, sync::Arc};

use super::{read::failed, segment::Segment, shared::Shared};
use crate::{
    contract::{Position, ReadError},
    copy::{SegmentReader, without_empty_end},
    frame::{SEGMENT_HEADER_BYTES, SegmentHeader, frame_crc},
};

impl Shared {
    pub(super) fn segment_readers(&self) -> Result<Vec<SegmentReader>, ReadError> {
        let segments: Vec<_> = self.segments.read().iter().cloned().collect();
        let readers: Result<_, _> = segments.into_iter().map(reader).collect();
        readers.map(without_empty_end)
    }

    pub(super) fn segment_reader(
        &self,
        first: Position,
    ) -> Result<Option<SegmentReader>, ReadError> {
        let found = self.segments.read().iter().find(|segment| segment.first == first).cloned();
        found.map(reader).transpose()
    }
}

fn reader(segment: Arc<Segment>) -> Result<SegmentReader, ReadError> {
    let (records, last, end) = segment.extent();
    let crc = last_crc(&segment, last).map_err(|error| failed(&segment, error))?;
    let positions = (segment.first, Position(segment.first.0 + records));
    let (salt, file) = (segment.salt, segment.file.clone());
    Ok(SegmentReader::new((salt, crc), positions, u64::from(end), file, segment))
}

/// The CRC of the last frame; without one, that of the frame before the segment.
fn last_crc(segment: &Segment, last: Option<u32>) -> io::Result<u32> {
    if let Some(start) = last {
        let mut bytes = [0; 4];
        segment.file.read_at(&mut bytes, u64::from(start))?;
        return Ok(frame_crc(&bytes));
    }
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    segment.file.read_at(&mut bytes, 0)?;
    let header = SegmentHeader::decode(&bytes);
    header.map(|header| header.prev_crc).map_err(|_| io::ErrorKind::InvalidData.into())
}
