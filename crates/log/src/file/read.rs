//! Reads committed records back. Nothing here waits for a write or a sync.

use std::{collections::VecDeque, io, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{segment::Segment, shared::Shared};
use crate::{
    contract::{Position, ReadError, Stored, StoredRecords},
    disk::DiskFile,
    frame::FRAME_HEADER_BYTES,
    parts::PartsOf,
    scan::{Expected, Frames, NoFrame},
};

impl Shared {
    pub(super) fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let segments = self.segments.read();
        let first = segments.front().map_or(Position(0), |segment| segment.first);
        if from < first {
            return Err(ReadError::Trimmed { position: from, first });
        }
        let next = self.committed();
        if from > self.next() {
            return Err(ReadError::Absent { position: from, next });
        }
        let parts: VecDeque<_> = segments
            .range(segment_of(&segments, from)..)
            .map(|segment| Part {
                segment: segment.clone(),
                start: segment.offset_of(from),
                end: segment.offset_of(next),
            })
            .filter(|part| part.start < part.end)
            .collect();
        let position = from.min(next);
        Ok(Box::new(Records {
            parts,
            frames: None,
            position,
            prev_crc: None,
            check_chain: !self.options.faults.tail_left,
            parts_of: self.options.parts_of,
            failed: false,
        }))
    }

    pub(super) fn read_at(
        &self,
        position: Position,
        offset: u32,
        len: u32,
    ) -> Result<Bytes, ReadError> {
        let segment = {
            let segments = self.segments.read();
            let first = segments.front().map_or(Position(0), |segment| segment.first);
            if position < first {
                return Err(ReadError::Trimmed { position, first });
            }
            segments[segment_of(&segments, position)].clone()
        };
        let place = segment.place(position);
        let place = place.ok_or(ReadError::Absent { position, next: self.committed() })?;
        let bytes = place.payload_bytes;
        if u64::from(offset) + u64::from(len) > u64::from(bytes) {
            return Err(ReadError::OutOfRange { position, offset, len, bytes });
        }
        let mut buffer = BytesMut::zeroed(len as usize);
        let start = u64::from(place.start) + FRAME_HEADER_BYTES as u64 + u64::from(offset);
        let read = segment.file.read_at(&mut buffer, start).and_then(|read| {
            let whole = read == buffer.len();
            if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        });
        match read {
            Ok(()) => Ok(buffer.freeze()),
            Err(error) => Err(failed(&segment, error)),
        }
    }

    pub(super) fn segment_end_before(&self, from: Position) -> Option<Position> {
        let segments = self.segments.read();
        let next = segments.get(segment_of(&segments, from) + 1)?;
        Some(next.first)
    }

    pub(super) fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let segments = self.segments.read();
        segments
            .range(segment_of(&segments, from)..)
            .take_while(|segment| segment.first < to)
            .map(|segment| segment.offset_of(to).saturating_sub(segment.offset_of(from)))
            .map(u64::from)
            .sum()
    }
}

/// Which segment holds a position that is not below the first.
fn segment_of(segments: &VecDeque<Arc<Segment>>, position: Position) -> usize {
    segments.partition_point(|segment| segment.first <= position).saturating_sub(1)
}

pub(super) fn failed(segment: &Segment, error: io::Error) -> ReadError {
    ReadError::Failed { file: segment.name.clone(), source: Arc::new(error) }
}

/// A piece of a segment that is read, from frame to frame.
struct Part {
    /// Holding the segment, not only its file, keeps a trim from recycling it.
    segment: Arc<Segment>,
    start: u32,
    end: u32,
}

struct Records {
    parts: VecDeque<Part>,
    /// Of the first part.
    frames: Option<Frames<Arc<dyn DiskFile>>>,
    position: Position,
    prev_crc: Option<u32>,
    check_chain: bool,
    parts_of: PartsOf,
    failed: bool,
}

impl Iterator for Records {
    type Item = Result<Stored, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        loop {
            let part = self.parts.front()?;
            let frames = self.frames.get_or_insert_with(|| {
                let segment = &part.segment;
                let range = (u64::from(part.start), u64::from(part.end));
                Frames::new(segment.file.clone(), segment.salt, range, self.parts_of)
            });
            if frames.offset() < u64::from(part.end) {
                break;
            }
            self.frames = None;
            self.parts.pop_front();
        }
        let (part, frames) = (self.parts.front()?, self.frames.as_mut()?);
        let position = self.position;
        let expected = Expected { position, prev_crc: self.prev_crc };
        match frames.take(expected) {
            Ok(frame) => {
                self.position = position.next();
                self.prev_crc = self.check_chain.then_some(frame.crc);
                Some(Ok(frames.stored(position, &frame)))
            }
            Err(error) => {
                self.failed = true;
                let (file, offset) = (part.segment.name.clone(), frames.offset());
                Some(Err(match error {
                    NoFrame::Bad(reason) => ReadError::Damaged { position, file, offset, reason },
                    NoFrame::Failed(error) => failed(&part.segment, error),
                }))
            }
        }
    }
}
