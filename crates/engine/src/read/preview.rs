//! The beginnings of payloads, for lists that people read.

use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage};
use spindle_log::{Position, ReadError};

use super::jobs::{FetchError, JobRef};
use crate::commit::record::{ENTRY_HEADER_BYTES, read_entry_header};
use crate::engine::Engine;

/// Looking up a payload that is being carried is tried this often.
const TRIES: usize = 16;

impl Engine {
    /// The first bytes of a job's payload, at most `max`. None: they are damaged or gone.
    ///
    /// However long the payload is, this is one small read; so the checksum, which is that of the
    /// whole payload, is looked at only where all of it is read.
    pub fn payload_beginning(&self, id: JobId, place: &BytesRef, max: u32) -> Option<Bytes> {
        let mut place = place.clone();
        for _ in 0..TRIES {
            match self.beginning(&place, max) {
                Ok(bytes) => return Some(bytes),
                Err(FetchError::Moved) => {}
                Err(_) => return None,
            }
            let (image, _) = self.job(JobRef::Id(id)).ok()?;
            let JobImage { payload, .. } = image?;
            place = payload?;
        }
        None
    }

    fn beginning(&self, place: &BytesRef, max: u32) -> Result<Bytes, FetchError> {
        if let Some(inline) = &place.inline {
            return Ok(inline.slice(..inline.len().min(max as usize)));
        }
        if place.len <= max {
            return self.bytes(place);
        }
        let header_bytes = ENTRY_HEADER_BYTES as u32;
        let damaged = || FetchError::Damaged(place.position);
        let start = place.offset.checked_sub(header_bytes).ok_or_else(damaged)?;
        let wanted = header_bytes + max;
        let in_memory = {
            let inner = self.shared.inner.lock();
            if place.position == inner.open_position {
                let header = inner.batch.slice(start, header_bytes).and_then(read_entry_header);
                let len = header.ok_or_else(damaged)?.len.min(max);
                let bytes = inner.batch.slice(place.offset, len).ok_or_else(damaged)?;
                return Ok(Bytes::copy_from_slice(bytes));
            }
            inner.recent.find(place.position).cloned()
        };
        let read = match in_memory {
            Some(record) => record.slice(record.len().min(start as usize)..),
            None => self.beginning_on_disk(Position(place.position), start, wanted)?,
        };
        let header = read_entry_header(&read).ok_or_else(damaged)?;
        let end = header_bytes + header.len.min(max);
        let bytes = read.get(header_bytes as usize..end as usize).ok_or_else(damaged)?;
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
        let header_bytes = ENTRY_HEADER_BYTES as u32;
        let header = read_entry_header(&log.read_at(position, start, header_bytes)?);
        let len = header.ok_or(FetchError::Damaged(position.0))?.len;
        Ok(log.read_at(position, start, wanted.min(header_bytes + len))?)
    }
}
