//! The feed: everything that happens on this server, in order, for clients that follow it.
//!
//! It is the log itself, as far as it is durable, without events that only keep the log small or
//! the server going. So it can be resumed exactly, even after a restart, as long as the log still
//! holds the place: if compaction has trimmed it, the answer is a [`FeedError::Gap`]. Foreground
//! jobs are in no log and in no feed.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use spindle_core::Event;
use spindle_log::{Position, ReadError, StoredRecords};

use crate::answer::{Answer, Refused};
use crate::commit::is_in_feed;
use crate::commit::record::{RecordError, RecordReader};
use crate::door::Ticket;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::views::Feed;
use crate::wait::{Caller, WaitFor};

/// A place in the feed, written `position.index`: right behind the event it names.
///
/// The index counts all events of a record from 1 on, those that the feed does not show too; 0 is the
/// place before all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FeedId {
    /// The record.
    pub position: u64,
    /// The event in it.
    pub index: u32,
}

impl FeedId {
    /// The place before the first event of a record.
    fn before(position: u64) -> FeedId {
        FeedId { position, index: 0 }
    }
}

impl fmt::Display for FeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.position, self.index)
    }
}

/// A text that is no [`FeedId`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a feed id has the form position.index, such as 120.3")]
pub struct FeedIdError;

impl FromStr for FeedId {
    type Err = FeedIdError;

    fn from_str(text: &str) -> Result<FeedId, FeedIdError> {
        // Numbers parse with a plus sign too; an id has only one form.
        if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(FeedIdError);
        }
        let (position, index) = text.split_once('.').ok_or(FeedIdError)?;
        let position = position.parse().map_err(|_| FeedIdError)?;
        Ok(FeedId { position, index: index.parse().map_err(|_| FeedIdError)? })
    }
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct FeedEvent {
    /// When its record was written, by the engine's clock.
    pub at_ms: u64,
    /// What. Its bytes may be slices of a larger buffer: copy what is kept for long.
    pub event: Event,
}

/// Some events in a row.
#[derive(Clone, PartialEq, Debug)]
pub struct FeedPage {
    /// The events, oldest first. None need not mean that there are no more: see `next`.
    pub events: Vec<(FeedId, FeedEvent)>,
    /// Where to go on. A page without events but with a new `next` passed over events that the feed
    /// does not show; with the same `next` as asked after, it has reached the end of what is durable.
    pub next: FeedId,
}

/// Why the feed cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The log no longer holds what came next: events are missing.
    #[error("the feed now begins at record {first}, what came before is gone")]
    Gap {
        /// The oldest record there is.
        first: u64,
    },
    /// The place lies beyond the end: it is another log's, or a repair has cut this one.
    #[error("the feed ends before record {end}, the place to go on from lies behind it")]
    Ahead {
        /// The first position that is not durable.
        end: u64,
    },
    /// The log cannot be read.
    #[error("cannot read the log: {0}")]
    Read(ReadError),
    /// A record does not decode.
    #[error("record {position} of the log: {source}")]
    Record {
        /// Which record.
        position: u64,
        /// What is wrong with it.
        source: RecordError,
    },
}

/// Records looked through for one page.
const RECORDS_MAX: usize = 1024;
/// Bytes of records looked through for one page; one record is always looked through whole.
const BYTES_MAX: usize = 4 << 20;

impl Feed<'_> {
    /// At most `limit` durable events after a place, or from the oldest that is kept. One call
    /// looks through a bounded part of the log.
    pub fn page(&self, after: Option<FeedId>, limit: usize) -> Result<FeedPage, FeedError> {
        let end = self.0.durable().0;
        let first = self.0.shared.log.first().0;
        let next = after.unwrap_or(FeedId::before(first));
        if next.position < first {
            return Err(FeedError::Gap { first });
        }
        if next > FeedId::before(end) {
            return Err(FeedError::Ahead { end });
        }
        let mut page = FeedPage { events: Vec::new(), next };
        let mut records = Records { engine: self.0, stored: None };
        let mut bytes = 0;
        for position in (next.position..end).take(RECORDS_MAX) {
            if page.events.len() >= limit || bytes >= BYTES_MAX {
                break;
            }
            match records.take(position) {
                Ok(_) if self.0.shared.fenced.binary_search(&position).is_ok() => {
                    page.next = FeedId::before(position + 1);
                }
                Ok(record) => {
                    bytes += record.len();
                    page.read(position, record, limit)
                        .map_err(|source| FeedError::Record { position, source })?;
                }
                // A trim overtook this call. What was read before it still counts.
                Err(ReadError::Trimmed { .. }) if !page.events.is_empty() => break,
                Err(ReadError::Trimmed { .. }) if after.is_none() => return self.page(None, limit),
                Err(ReadError::Trimmed { first, .. }) => {
                    return Err(FeedError::Gap { first: first.0 });
                }
                Err(error) => return Err(FeedError::Read(error)),
            }
        }
        Ok(page)
    }

    /// Waits for something newer than a place in the feed to be durable. The answer comes at once
    /// if there is, or if the feed cannot be read from there: either shows at the next
    /// [`Feed::page`].
    pub fn wait(&self, caller: &Caller, after: FeedId) -> Result<Ticket, Refused> {
        // Read without the lock, up to the end of what is durable where possible.
        let unread = match self.page(Some(after), 1) {
            Ok(page) if page.events.is_empty() => Some(page.next.position),
            _ => None,
        };
        let mut inner = self.0.shared.inner.lock();
        let request = WaitFor::Feed { position: unread.unwrap_or(0) };
        let ticket = inner.add_wait(caller, request, None)?;
        // It may have come between the reading and the wait.
        if unread.is_none_or(|position| position < inner.batch.feed_end()) {
            inner.waiting.answer(ticket, Gated::open(Answer::FeedMoved));
        }
        Ok(ticket)
    }
}

/// Durable records in order: the newest from memory, others from the log.
struct Records<'a> {
    engine: &'a Engine,
    stored: Option<StoredRecords>,
}

impl Records<'_> {
    fn take(&mut self, position: u64) -> Result<Bytes, ReadError> {
        let shared = &self.engine.shared;
        if let Some(record) = shared.inner.lock().batch.recent(position) {
            self.stored = None;
            return Ok(record.clone());
        }
        let at = Position(position);
        let stored = match &mut self.stored {
            Some(stored) => stored,
            none => none.insert(shared.log.read(at)?),
        };
        match stored.next() {
            Some(record) => Ok(record?.bytes),
            None => Err(ReadError::Absent { position: at, next: shared.log.next() }),
        }
    }
}

impl FeedPage {
    /// Takes the events of a record behind `next` that the feed shows, and moves `next` on.
    fn read(&mut self, position: u64, record: Bytes, limit: usize) -> Result<(), RecordError> {
        let reader = RecordReader::new(record)?;
        let at_ms = reader.now_ms;
        let mut index = 0;
        let took_all = reader.for_each_event(|event, _| {
            index += 1;
            let id = FeedId { position, index };
            if id <= self.next || !is_in_feed(&event) {
                return true;
            }
            if self.events.len() >= limit {
                return false;
            }
            self.events.push((id, FeedEvent { at_ms, event }));
            self.next = id;
            true
        })?;
        if took_all {
            self.next = FeedId::before(position + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_form() {
        let id = FeedId { position: 120, index: 3 };
        assert_eq!(id.to_string(), "120.3");
        assert_eq!("120.3".parse(), Ok(id));
        for text in
            ["", "1", ".", "1.", ".1", "+1.2", "1.+2", "1.2.3", "1.-2", " 1.2", "1.4294967296"]
        {
            assert_eq!(text.parse::<FeedId>(), Err(FeedIdError), "{text}");
        }
    }
}
