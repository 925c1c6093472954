//! The bytes that events refer to: in the open record, in memory, or read from the log.

use bytes::{Bytes, BytesMut};
use spindle_core::{BytesRef, Event, JobImage, Place};
use spindle_log::{Position, ReadError};

use crate::commit::record::{ENTRY_HEADER_BYTES, HEADER_BYTES, read_entry_header};
use crate::engine::Engine;

/// Why bytes or an image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// They are in a newer record by now, or the job went: look the job up again.
    #[error("the record is gone")]
    Moved,
    /// They do not match their checksum.
    #[error("the bytes in record {0} are damaged")]
    Damaged(u64),
    /// The log cannot be read.
    #[error("cannot read the log: {0}")]
    Read(ReadError),
}

impl From<ReadError> for FetchError {
    fn from(error: ReadError) -> FetchError {
        match error {
            ReadError::Trimmed { .. } => FetchError::Moved,
            ReadError::Damaged { position, .. } => FetchError::Damaged(position.0),
            other => FetchError::Read(other),
        }
    }
}

/// A stub does not know how long its image is: the entry's header says.
const LENGTH_UNKNOWN: u32 = 0;

const ENTRY_HEADER: u32 = ENTRY_HEADER_BYTES as u32;

impl Engine {
    /// The bytes a reference names.
    pub(crate) fn bytes(&self, place: &BytesRef) -> Result<Bytes, FetchError> {
        if let Some(inline) = &place.inline {
            return Ok(inline.clone());
        }
        if place.len == 0 {
            return Ok(Bytes::new());
        }
        let mut whole = BytesMut::new();
        let mut position = place.position;
        let mut left = place.len;
        let mut offset = place.offset;
        loop {
            let chunk = self.entry(Place { position, offset }, left)?;
            if chunk.len() as u32 >= left && whole.is_empty() {
                return Ok(chunk);
            }
            if whole.is_empty() {
                whole.reserve(left as usize);
            }
            left = left.checked_sub(chunk.len() as u32).ok_or(FetchError::Damaged(position))?;
            whole.extend_from_slice(&chunk);
            if left == 0 {
                return Ok(whole.freeze());
            }
            // Further chunks begin their records.
            position += 1;
            offset = HEADER_BYTES as u32 + ENTRY_HEADER;
        }
    }

    /// One entry's bytes, at most `wanted` long as far as the caller knows (0: not known).
    fn entry(&self, place: Place, wanted: u32) -> Result<Bytes, FetchError> {
        let damaged = || FetchError::Damaged(place.position);
        let start = place.offset.checked_sub(ENTRY_HEADER).ok_or_else(damaged)?;
        {
            let inner = self.shared.inner.lock();
            if place.position == inner.batch.position() {
                let header = inner.batch.slice(start, ENTRY_HEADER);
                let header = header.and_then(read_entry_header).ok_or_else(damaged)?;
                let body = inner.batch.slice(place.offset, header.len).ok_or_else(damaged)?;
                return Ok(Bytes::copy_from_slice(body));
            }
            if let Some(record) = inner.batch.recent(place.position) {
                let record = record.clone();
                drop(inner);
                let header = record.get(start as usize..).and_then(read_entry_header);
                let end = place.offset as usize + header.ok_or_else(damaged)?.len as usize;
                return Ok(record.slice(place.offset as usize..end.min(record.len())));
            }
        }
        let position = Position(place.position);
        let guess = ENTRY_HEADER + wanted;
        // A chunk may be shorter than what is wanted in all: then the header alone is read first.
        let read =
            self.shared.log.read_at(position, start, guess).or_else(|error| match error {
                ReadError::OutOfRange { .. } => {
                    self.shared.log.read_at(position, start, ENTRY_HEADER)
                }
                other => Err(other),
            })?;
        let header = read_entry_header(&read).ok_or_else(damaged)?;
        let body = match read.get(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.len as usize) {
            Some(_) => read.slice(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.len as usize),
            None => self.shared.log.read_at(position, place.offset, header.len)?,
        };
        if crc32c::crc32c(&body) != header.crc {
            return Err(damaged());
        }
        Ok(body)
    }

    /// The image of a finished job.
    pub(crate) fn finished_image(&self, place: Place) -> Result<JobImage, FetchError> {
        let body = self.entry(place, LENGTH_UNKNOWN)?;
        match Event::decode(body).map_err(|_| FetchError::Damaged(place.position))? {
            Some(Event::Finished(image) | Event::Compacted(image)) => Ok(image),
            _ => Err(FetchError::Damaged(place.position)),
        }
    }

    /// The first bytes of what a reference names, at most `max`, in one small read. So the checksum,
    /// which is that of the whole, is looked at only where all of it is read.
    pub(crate) fn beginning(&self, place: &BytesRef, max: u32) -> Result<Bytes, FetchError> {
        if let Some(inline) = &place.inline {
            return Ok(inline.slice(..inline.len().min(max as usize)));
        }
        if place.len <= max {
            return self.bytes(place);
        }
        let damaged = || FetchError::Damaged(place.position);
        let start = place.offset.checked_sub(ENTRY_HEADER).ok_or_else(damaged)?;
        let wanted = ENTRY_HEADER + max;
        let in_memory = {
            let inner = self.shared.inner.lock();
            if place.position == inner.batch.position() {
                let header = inner.batch.slice(start, ENTRY_HEADER).and_then(read_entry_header);
                let len = header.ok_or_else(damaged)?.len.min(max);
                let bytes = inner.batch.slice(place.offset, len).ok_or_else(damaged)?;
                return Ok(Bytes::copy_from_slice(bytes));
            }
            inner.batch.recent(place.position).cloned()
        };
        let read = match in_memory {
            Some(record) => record.slice(record.len().min(start as usize)..),
            None => self.beginning_on_disk(Position(place.position), start, wanted)?,
        };
        let header = read_entry_header(&read).ok_or_else(damaged)?;
        let end = ENTRY_HEADER + header.len.min(max);
        let bytes = read.get(ENTRY_HEADER_BYTES..end as usize).ok_or_else(damaged)?;
        Ok(Bytes::copy_from_slice(bytes))
    }

    /// The first chunk of a payload may be shorter than what is wanted: then it ends its record.
    fn beginning_on_disk(
        &self,
        position: Position,
        start: u32,
        wanted: u32,
    ) -> Result<Bytes, FetchError> {
        let log = &self.shared.log;
        match log.read_at(position, start, wanted) {
            Err(ReadError::OutOfRange { .. }) => {}
            read => return Ok(read?),
        }
        let header = read_entry_header(&log.read_at(position, start, ENTRY_HEADER)?);
        let len = header.ok_or(FetchError::Damaged(position.0))?.len;
        Ok(log.read_at(position, start, wanted.min(ENTRY_HEADER + len))?)
    }
}
