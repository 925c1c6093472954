//! Reading records back.
//!
//! Records are requested by number, many at once, from any server that has the stream ("direct
//! get"); the newest ones are in memory. Each is checked ([`crate::record`]), and it is checked
//! that none is missing.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use parking_lot::Mutex;
use spindle_log::{Position, ReadError, Stored};
use tokio::runtime::Handle;

use crate::error::damaged;
use crate::record::bytes_in_stream;
use crate::server::{Refusal, Server};
use crate::state::Shared;

/// Records that are asked for in one piece.
const CHUNK_RECORDS: u64 = 512;
/// Of them, those asked for at the same time.
const AT_ONCE: usize = 128;
/// Bytes in one piece, about: fewer records are asked for when they are large.
const CHUNK_BYTES: u64 = 8 * 1024 * 1024;
/// How long a read waits for servers that do not answer: an election takes up to 9 s.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
/// How much a trim keeps in memory, at most, for each reader that has not come that far yet.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What reads need.
#[derive(Clone)]
pub(crate) struct Reads {
    pub shared: Arc<Shared>,
    pub server: Server,
    pub runtime: Handle,
}

impl Reads {
    /// One record that is committed.
    pub(crate) fn one(&self, position: Position) -> Result<Stored, ReadError> {
        if let Some(stored) = self.shared.state.lock().tail.at(position) {
            return Ok(stored.clone());
        }
        let (shared, server) = (Arc::clone(&self.shared), self.server.clone());
        let (answer, answered) = channel();
        self.runtime.spawn(async move {
            // No reader waits any more when the log was closed.
            let _ = answer.send(fetch(&shared, &server, position).await);
        });
        answered.recv().unwrap_or_else(|_| Err(self.shared.unread("the log was closed")))
    }

    /// The next piece of `from..to`, which is committed and not empty.
    fn chunk(&self, from: Position, to: Position) -> Coming {
        let to = {
            let state = self.shared.state.lock();
            let near = state.tail.range(from, Position(to.0.min(from.0 + CHUNK_RECORDS)));
            if !near.is_empty() {
                return Coming::Here(near);
            }
            let ahead = Position(to.0.min(from.0 + CHUNK_RECORDS));
            let bytes = state.sizes.bytes_between(from, ahead).max(1);
            let part = (ahead.0 - from.0).saturating_mul(CHUNK_BYTES) / bytes;
            Position(ahead.0.min(from.0 + part.max(1)))
        };
        let (shared, server) = (Arc::clone(&self.shared), self.server.clone());
        let (answer, answered) = channel();
        self.runtime.spawn(async move {
            let positions = futures_util::stream::iter((from.0..to.0).map(Position));
            let mut fetched =
                positions.map(|position| fetch(&shared, &server, position)).buffered(AT_ONCE);
            let (mut records, mut error) = (Vec::new(), None);
            while let Some(stored) = fetched.next().await {
                match stored {
                    Ok(stored) => records.push(stored),
                    Err(reason) => {
                        error = Some(reason);
                        break;
                    }
                }
            }
            let _ = answer.send((records, error));
        });
        Coming::Asked(answered)
    }
}

/// One record from the servers, which are asked until they answer.
async fn fetch(shared: &Shared, server: &Server, position: Position) -> Result<Stored, ReadError> {
    let began = Instant::now();
    loop {
        let refusal = match server.record(position).await {
            Ok(stored) => return Ok(stored),
            Err(refusal) => refusal,
        };
        match &refusal {
            Refusal::Unreadable(reason) => return Err(damaged(&shared.stream, position, reason)),
            Refusal::NoMessage => {
                if let Some(error) = why_missing(shared, server, position).await {
                    return Err(error);
                }
            }
            refusal if !refusal.may_pass() => return Err(shared.unread(refusal.to_string())),
            _ => {}
        }
        if began.elapsed() > PATIENCE {
            return Err(shared.unread(refusal.to_string()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Why the leader of the stream has no message where a committed record stands; none if it may not
/// have come so far yet.
async fn why_missing(shared: &Shared, server: &Server, position: Position) -> Option<ReadError> {
    let survey = server.survey().await.ok()?;
    if let Err(fatal) = shared.survey(survey) {
        return Some(shared.unread(fatal.to_string()));
    }
    if position < survey.first {
        return Some(ReadError::Trimmed { position, first: survey.first });
    }
    let reason = "it is missing, and others behind it are there";
    (position < survey.end).then(|| damaged(&shared.stream, position, reason))
}

/// A piece of the log, fetched or on its way: the records before the first that cannot be read, and the reason for that
/// one.
enum Coming {
    Here(Vec<Stored>),
    Asked(Receiver<(Vec<Stored>, Option<ReadError>)>),
}

/// A read that is not at its end. Trims keep the records it needs, see [`Reading::keep`].
pub(crate) struct Reading {
    reads: Reads,
    end: Position,
    place: Mutex<Place>,
}

struct Place {
    ready: VecDeque<Stored>,
    ready_bytes: usize,
    /// What stands below is ready or was given out.
    fetched: Position,
    coming: Option<Coming>,
    /// Why the record at `fetched` cannot be read.
    error: Option<ReadError>,
    has_failed: bool,
}

impl Reading {
    fn fetch(&self, place: &mut Place) -> Result<(), ReadError> {
        if let Some(error) = place.error.take() {
            return Err(error);
        }
        let coming = place.coming.take();
        let coming = coming.unwrap_or_else(|| self.reads.chunk(place.fetched, self.end));
        let (fetched, error) = match coming {
            Coming::Here(records) => (records, None),
            Coming::Asked(answered) => {
                let closed = |_| self.reads.shared.unread("the log was closed");
                answered.recv().map_err(closed)?
            }
        };
        let error = match error {
            Some(error) if fetched.is_empty() => return Err(error),
            error => error,
        };
        let mut state = self.reads.shared.state.lock();
        for stored in &fetched {
            let bytes = bytes_in_stream(&self.reads.shared.subjects.log, stored.bytes.len());
            state.sizes.note(stored.position, bytes);
            place.ready_bytes += stored.bytes.len();
        }
        drop(state);
        place.fetched = Position(place.fetched.0 + fetched.len() as u64);
        place.ready.extend(fetched);
        place.error = error;
        if place.error.is_none() && place.fetched < self.end {
            place.coming = Some(self.reads.chunk(place.fetched, self.end));
        }
        Ok(())
    }

    /// Fetches what this read still needs below a position that a trim is to drop. A reader that is
    /// too far behind is left to find the records trimmed.
    pub(crate) fn keep(&self, below: Position) {
        let mut place = self.place.lock();
        while place.fetched < below.min(self.end) && !place.has_failed {
            if place.ready_bytes > KEPT_BYTES_MAX || self.fetch(&mut place).is_err() {
                return;
            }
        }
    }
}

/// The iterator that [`Log::read`](spindle_log::Log::read) gives out.
pub(crate) struct Records(Arc<Reading>);

impl Records {
    /// The records in `from..end`, which are committed.
    pub(crate) fn new(reads: Reads, from: Position, end: Position) -> Records {
        let place = Place {
            ready: VecDeque::new(),
            ready_bytes: 0,
            fetched: from,
            coming: None,
            error: None,
            has_failed: false,
        };
        Records(Arc::new(Reading { reads, end, place: Mutex::new(place) }))
    }

    /// The reads that trims keep records for.
    pub(crate) fn reading(&self) -> Weak<Reading> {
        Arc::downgrade(&self.0)
    }
}

impl Iterator for Records {
    type Item = Result<Stored, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut place = self.0.place.lock();
        if place.has_failed {
            return None;
        }
        if place.ready.is_empty()
            && place.fetched < self.0.end
            && let Err(error) = self.0.fetch(&mut place)
        {
            place.has_failed = true;
            return Some(Err(error));
        }
        let stored = place.ready.pop_front()?;
        place.ready_bytes -= stored.bytes.len();
        Some(Ok(stored))
    }
}
