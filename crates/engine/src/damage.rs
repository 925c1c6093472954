//! Which jobs are hit when bytes of payloads and results have rotted on the disk.
//!
//! Such a record is folded all the same: the log returns it only if nothing but such parts is damaged
//! ([`checked_parts`]). The fold shows which jobs the damaged bytes belong to: an unfinished job with a damaged payload
//! dies at the start, a finished one has lost its result.
//!
//! [`checked_parts`]: crate::commit::record::checked_parts

use std::collections::BTreeMap;

use spindle_core::job::Outcome;
use spindle_core::{BytesRef, Event, Found, JobId, Place, State};
use spindle_log::{CheckedPart, Stored};

use crate::commit::record::{
    ENTRY_HEADER_BYTES, HEADER_BYTES, Kind, checked_parts, read_entry_header,
};

/// What of a job is damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DamagedBytes {
    /// Its payload.
    Payload,
    /// Its result, or its last failure's.
    Result,
}

/// A job of which bytes on the disk are damaged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DamagedJob {
    /// Which job.
    pub id: JobId,
    /// Whether it is done or dead.
    pub finished: bool,
    /// What is damaged.
    pub bytes: DamagedBytes,
}

/// Follows a fold and notes what is damaged and which jobs refer to it.
#[derive(Debug, Default)]
pub(crate) struct DamageFinder {
    /// Records in a row that hold one piece of bytes and nothing else, and how long those are:
    /// they may be the chunks of a payload.
    chunks: Vec<(u64, u32)>,
    /// A reference to the bytes at this position and offset that is longer than this reaches into
    /// damage.
    damaged: BTreeMap<(u64, u32), u32>,
    /// Finished jobs of which an image refers to damaged bytes, and the latest such image.
    finished: BTreeMap<JobId, (Place, DamagedBytes)>,
}

const FIRST_OFFSET: u32 = (HEADER_BYTES + ENTRY_HEADER_BYTES) as u32;

impl DamageFinder {
    /// Takes note of the next record, before its events.
    pub fn record(&mut self, stored: &Stored) {
        let position = stored.position.0;
        match lone_piece(&stored.bytes) {
            Some(len) => {
                if self.chunks.last().is_some_and(|(last, _)| last + 1 != position) {
                    self.chunks.clear();
                }
                self.chunks.push((position, len));
            }
            None => self.chunks.clear(),
        }
        if !stored.damaged {
            return;
        }
        for CheckedPart { offset, len, crc } in checked_parts(&stored.bytes) {
            let bytes = stored.bytes.get(offset as usize..(offset + len) as usize);
            if bytes.is_none_or(|bytes| crc32c::crc32c(bytes) != crc) {
                self.damaged.insert((position, offset), 0);
                self.chunks_before_are_damaged();
            }
        }
    }

    /// The last chunk is damaged: so are all bytes that begin before it and reach into it.
    fn chunks_before_are_damaged(&mut self) {
        let mut between = 0u32;
        for (position, len) in self.chunks.iter().rev().skip(1) {
            between = between.saturating_add(*len);
            let shortest = self.damaged.entry((*position, FIRST_OFFSET)).or_insert(between);
            *shortest = between.min(*shortest);
        }
    }

    /// Takes note of the next event.
    pub fn event(&mut self, event: &Event, place: Place) {
        if self.damaged.is_empty() {
            return;
        }
        if let Event::Finished(image) | Event::Compacted(image) = event
            && image.status().is_finished()
            && let Some(bytes) = self.damage(image.payload.as_ref(), image.outcome.as_deref())
        {
            self.finished.insert(JobId(image.id), (place, bytes));
        }
    }

    fn damage(
        &self,
        payload: Option<&BytesRef>,
        outcome: Option<&Outcome>,
    ) -> Option<DamagedBytes> {
        let hit = |place: &BytesRef| {
            let longer_than = self.damaged.get(&(place.position, place.offset));
            place.needs().is_some() && longer_than.is_some_and(|shorter| place.len > *shorter)
        };
        if payload.is_some_and(hit) {
            return Some(DamagedBytes::Payload);
        }
        let result = outcome.and_then(|outcome| outcome.bytes.as_ref());
        result.is_some_and(hit).then_some(DamagedBytes::Result)
    }

    /// Whether anything is damaged at all.
    pub fn is_empty(&self) -> bool {
        self.damaged.is_empty()
    }

    /// The jobs that are damaged in the state that the fold came to, by their numbers.
    pub fn jobs(&self, state: &State) -> Vec<DamagedJob> {
        if self.is_empty() {
            return Vec::new();
        }
        let hit = |found: Found<'_>| match found {
            Found::Live(job) => {
                let bytes = self.damage(Some(&job.payload()), job.outcome())?;
                Some(DamagedJob { id: job.id(), finished: false, bytes })
            }
            Found::Finished(stub) => {
                let (place, bytes) = self.finished.get(&stub.id())?;
                let id = stub.id();
                (stub.image() == *place).then_some(DamagedJob { id, finished: true, bytes: *bytes })
            }
        };
        state.jobs_from(JobId(0)).filter_map(hit).collect()
    }
}

/// The length of a record's one piece of bytes, if it holds nothing else.
fn lone_piece(record: &[u8]) -> Option<u32> {
    let head = read_entry_header(record.get(HEADER_BYTES..)?)?;
    let alone =
        head.kind == Some(Kind::Bytes) && record.len() == FIRST_OFFSET as usize + head.len as usize;
    alone.then_some(head.len)
}
