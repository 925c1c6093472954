//! The bytes that events refer to: in the open record, in memory, or read from the log.

use bytes::{Bytes, BytesMut};
use spindle_core::{BytesRef, Event, JobImage, Place};
use spindle_log::{Position, ReadError};

use crate::commit::record::{ENTRY_HEADER_BYTES, HEADER_BYTES, read_entry_header};
use crate::engine::Engine;
use crate::inner::Inner;
use crate::views::Jobs;

/// Why bytes or an image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// They are in a newer record by now, or the job is gone: look the job up again.
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

impl Jobs<'_> {
    /// The bytes a reference names, as long as it is the newest.
    pub fn bytes(&self, place: &BytesRef) -> Result<Bytes, FetchError> {
        if let Some(inline) = &place.inline {
            return Ok(inline.clone());
        }
        if place.len == 0 {
            return Ok(Bytes::new());
        }
        let mut whole = BytesMut::new();
        let mut left = place.len;
        let mut at = Place { position: place.position, offset: place.offset };
        loop {
            let chunk = self.0.entry(at, left, u32::MAX)?;
            if chunk.len() as u32 >= left && whole.is_empty() {
                return Ok(chunk);
            }
            if whole.is_empty() {
                whole.reserve(left as usize);
            }
            left = left.checked_sub(chunk.len() as u32).ok_or(FetchError::Damaged(at.position))?;
            whole.extend_from_slice(&chunk);
            if left == 0 {
                return Ok(whole.freeze());
            }
            // Further chunks begin their records.
            at = Place { position: at.position + 1, offset: HEADER_BYTES as u32 + ENTRY_HEADER };
        }
    }

    /// The first bytes of what a reference names, at most `max`, in one small read.
    pub(super) fn beginning(&self, place: &BytesRef, max: u32) -> Result<Bytes, FetchError> {
        if place.inline.is_some() || place.len <= max {
            let whole = self.bytes(place)?;
            return Ok(whole.slice(..whole.len().min(max as usize)));
        }
        let at = Place { position: place.position, offset: place.offset };
        // A copy: these bytes may be a small part of a large record.
        Ok(Bytes::copy_from_slice(&self.0.entry(at, max, max)?))
    }
}

impl Engine {
    /// One entry's first bytes, at most `max`. `wanted` is how many there are, as far as the caller
    /// knows (0: not known). Their checksum, which is that of the whole entry, is looked at where
    /// all of it is read from the disk.
    fn entry(&self, place: Place, wanted: u32, max: u32) -> Result<Bytes, FetchError> {
        let damaged = || FetchError::Damaged(place.position);
        let start = place.offset.checked_sub(ENTRY_HEADER).ok_or_else(damaged)?;
        if let Some(in_memory) = self.shared.inner.lock().batch.entry(place, max) {
            return in_memory.ok_or_else(damaged);
        }
        let (log, position) = (&self.shared.log, Position(place.position));
        let entry = match log.read_at(position, start, ENTRY_HEADER + wanted) {
            // A chunk may be shorter than what is wanted in all: then the header alone is read first.
            Err(ReadError::OutOfRange { .. }) => log.read_at(position, start, ENTRY_HEADER)?,
            read => read?,
        };
        let header = read_entry_header(&entry).ok_or_else(damaged)?;
        let len = header.len.min(max);
        let body = match body_of(&entry, len) {
            Some(body) => body,
            None => log.read_at(position, place.offset, len)?,
        };
        if len == header.len && crc32c::crc32c(&body) != header.crc {
            return Err(damaged());
        }
        Ok(body)
    }

    /// The image of a finished job.
    pub(crate) fn finished_image(&self, place: Place) -> Result<JobImage, FetchError> {
        let body = self.entry(place, LENGTH_UNKNOWN, u32::MAX)?;
        match Event::decode(body).map_err(|_| FetchError::Damaged(place.position))? {
            Some(Event::Finished(image) | Event::Compacted(image)) => Ok(image),
            _ => Err(FetchError::Damaged(place.position)),
        }
    }
}

impl Inner {
    /// The bytes a reference names, if they are in memory and in one piece.
    pub(crate) fn bytes_in_memory(&self, place: &BytesRef) -> Option<Bytes> {
        if place.inline.is_some() || place.len == 0 {
            return Some(place.inline.clone().unwrap_or_default());
        }
        let at = Place { position: place.position, offset: place.offset };
        self.batch.entry(at, place.len)?.filter(|bytes| bytes.len() == place.len as usize)
    }
}

fn body_of(entry: &Bytes, len: u32) -> Option<Bytes> {
    let body = ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + len as usize;
    (body.end <= entry.len()).then(|| entry.slice(body))
}
