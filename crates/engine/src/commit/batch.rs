//! The end of the log that is still in memory: the open batch, and records that wait to be written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use prost::Message as _;
use spindle_core::job::{JobOptions, Outcome};
use spindle_core::{BytesRef, Event, Place, Type};

use super::recent::Recent;
use super::record::{ENTRY_HEADER_BYTES, HEADER_BYTES, RecordWriter, entry_of};
use crate::gate::Gate;

/// Room kept behind bytes in a record for the event that names them. Events with more than this (long
/// lists of a job's events) get a record of their own.
const EVENT_ROOM_BYTES: usize = 16 * 1024;
/// The same for an entry of the audit log, whose texts are short.
const AUDIT_ROOM_BYTES: usize = 4 * 1024;

/// A record that is complete and waits to be written.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub position: u64,
    pub epoch: u64,
    pub bytes: Bytes,
    /// Whether the feed shows something of it.
    pub in_feed: bool,
}

/// A payload or result in hand: its bytes, what they are, and their checksum once it is made.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    bytes: Bytes,
    kind: Type,
    crc: Option<u32>,
}

impl Payload {
    /// Bytes of a kind.
    pub fn new(bytes: impl Into<Bytes>, kind: Type) -> Payload {
        Payload { bytes: bytes.into(), kind, crc: None }
    }

    /// Makes the checksum, so that it need not be made under the lock.
    pub(crate) fn make_checksum(&mut self) {
        self.crc = Some(self.checksum());
    }

    pub(crate) fn with_checksum(mut self) -> Payload {
        self.make_checksum();
        self
    }

    fn checksum(&self) -> u32 {
        self.crc.unwrap_or_else(|| crc32c::crc32c(&self.bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What they are.
    pub fn kind(&self) -> Type {
        self.kind
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Kept in memory only: a copy, since the bytes may be a small part of a large read.
    pub(crate) fn in_memory(&self) -> BytesRef {
        BytesRef::in_memory(Bytes::copy_from_slice(&self.bytes), self.kind)
    }

    /// Kept in memory only, and not for long.
    pub(crate) fn shared_in_memory(&self) -> BytesRef {
        BytesRef::in_memory(self.bytes.clone(), self.kind)
    }
}

/// What is decided and not written yet. Positions go on from the log's end.
#[derive(Debug)]
pub(crate) struct Batch {
    open: RecordWriter,
    /// The position the open record will have.
    position: u64,
    /// The log's end when this began.
    begun_at: u64,
    /// Whether the feed will show something of the open record.
    in_feed: bool,
    sealed: VecDeque<Sealed>,
    recent: Recent,
    record_bytes_max: usize,
    /// Shared with callers that ask for room without the lock.
    undurable_bytes: Arc<AtomicUsize>,
    /// Durable events of the feed are in records below this.
    feed_end: u64,
    epoch: u64,
    now_ms: u64,
}

impl Batch {
    pub fn new(recent_bytes_max: usize) -> Batch {
        Batch {
            open: RecordWriter::default(),
            position: 0,
            begun_at: 0,
            in_feed: false,
            sealed: VecDeque::new(),
            recent: Recent::new(recent_bytes_max),
            record_bytes_max: 0,
            undurable_bytes: Arc::default(),
            feed_end: 0,
            epoch: 0,
            now_ms: 0,
        }
    }

    /// Begins at the log's end, with records that it takes. Nothing is put before that.
    pub fn begin_at(&mut self, position: u64, record_bytes_max: usize) {
        self.record_bytes_max = record_bytes_max;
        (self.position, self.feed_end) = (position, position);
        self.begun_at = position;
    }

    /// The log's end when this began.
    pub fn begun_at(&self) -> u64 {
        self.begun_at
    }

    /// Durable events of the feed are in records below this.
    pub fn feed_end(&self) -> u64 {
        self.feed_end
    }

    /// The time and the epoch that the next records will have.
    pub fn set_header(&mut self, epoch: u64, now_ms: u64) {
        (self.epoch, self.now_ms) = (epoch, now_ms);
    }

    /// Where the next event will stand.
    pub fn next_place(&self) -> Place {
        Place { position: self.position, offset: self.open.next_offset() }
    }

    /// The position the open record will have.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// All that is decided so far.
    pub fn tail(&self) -> Gate {
        Gate(self.position + u64::from(!self.open.is_empty()))
    }

    /// Whether there is something to write.
    pub fn has_work(&self) -> bool {
        !self.open.is_empty() || !self.sealed.is_empty()
    }

    /// Bytes decided and not durable yet.
    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes.load(Ordering::Relaxed)
    }

    /// The same count, for callers without the lock.
    pub fn undurable_counter(&self) -> Arc<AtomicUsize> {
        self.undurable_bytes.clone()
    }

    fn note_undurable(&self, bytes: usize) {
        self.undurable_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Closes the open record, if there is something in it.
    pub fn seal(&mut self) {
        if !self.open.is_empty() {
            self.seal_open();
        }
    }

    /// A record with nothing in it, for a log that is shared: that it is committed proves that this
    /// process still leads. What waits to be written proves it as well.
    pub fn put_beat(&mut self) {
        if !self.has_work() {
            self.seal_open();
        }
    }

    /// The format in force: additions of a later version of records are written only from that
    /// version on.
    pub fn format(&self) -> u8 {
        self.open.format()
    }

    /// The format that the folded records have brought into force.
    pub fn begin_format(&mut self, format: u8) {
        self.open.set_format(format);
    }

    /// Brings a newer format into force, by a record with nothing in it that needs it. Returns whether it is newer.
    pub fn raise_format(&mut self, format: u8) -> bool {
        if format <= self.format() {
            return false;
        }
        self.seal();
        self.open.set_format(format);
        self.seal_open();
        true
    }

    fn seal_open(&mut self) {
        let (position, epoch) = (self.position, self.epoch);
        let bytes = self.open.seal(epoch, self.now_ms);
        self.recent.push(position, bytes.clone());
        let in_feed = std::mem::take(&mut self.in_feed);
        self.sealed.push_back(Sealed { position, epoch, bytes, in_feed });
        self.position += 1;
    }

    /// All that waits to be written, oldest first.
    pub fn take_sealed(&mut self) -> Vec<Sealed> {
        self.seal();
        self.sealed.drain(..).collect()
    }

    /// The record that is to be written next.
    pub fn take_next(&mut self) -> Option<Sealed> {
        if self.sealed.is_empty() {
            self.seal();
        }
        self.sealed.pop_front()
    }

    /// Records are durable; those that found no room wait again. Returns whether the feed shows
    /// more than before.
    pub fn note_durable(&mut self, written: &[Sealed], unwritten: &[Sealed]) -> bool {
        for record in unwritten.iter().rev() {
            self.sealed.push_front(record.clone());
        }
        let Some(last) = written.last() else { return false };
        let bytes: usize = written.iter().map(|record| record.bytes.len()).sum();
        let before = self.undurable_bytes();
        self.undurable_bytes.store(before.saturating_sub(bytes), Ordering::Relaxed);
        self.recent.shrink(last.position + 1);
        let shown = written.iter().rev().find(|record| record.in_feed);
        self.feed_end = shown.map_or(self.feed_end, |record| record.position + 1);
        shown.is_some()
    }

    /// Makes sure that this many more entry bytes fit into the open record.
    fn make_room(&mut self, entry_bytes: usize) {
        if !self.open.is_empty()
            && self.open.len() + entry_bytes + ENTRY_HEADER_BYTES > self.record_bytes_max
        {
            self.seal();
        }
    }

    /// Makes sure that events which are put next will be in one record: a crash leaves all of them,
    /// or none. Each takes no more than the room that is made for it alone.
    pub fn make_room_for<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        self.make_room(events.map(|event| room_for(event) + ENTRY_HEADER_BYTES).sum());
    }

    /// Where bytes will be if they are put next. Nothing is written yet.
    pub fn place_for(&mut self, payload: &Payload) -> BytesRef {
        let (len, kind) = (payload.len(), payload.kind);
        if len == 0 {
            return BytesRef::empty(kind);
        }
        if len > self.chunk_bytes_max() {
            self.seal();
        } else {
            // The event that names the bytes should find room behind them.
            self.make_room(len + EVENT_ROOM_BYTES);
        }
        BytesRef::logged(self.position, self.open.next_offset(), len as u32, kind)
    }

    fn chunk_bytes_max(&self) -> usize {
        self.record_bytes_max - HEADER_BYTES - ENTRY_HEADER_BYTES - EVENT_ROOM_BYTES
    }

    /// Writes bytes to the place they were promised. Larger ones than a record go as chunks, each
    /// in a record of its own.
    pub fn put_payload(&mut self, payload: &Payload) {
        if payload.is_empty() {
            return;
        }
        if payload.len() <= self.chunk_bytes_max() {
            self.open.put_bytes(&payload.bytes, payload.checksum());
            self.note_undurable(payload.len() + ENTRY_HEADER_BYTES);
            return;
        }
        for chunk in payload.bytes.chunks(self.chunk_bytes_max()) {
            self.open.put_bytes(chunk, crc32c::crc32c(chunk));
            self.note_undurable(chunk.len() + ENTRY_HEADER_BYTES);
            self.seal();
        }
    }

    /// Appends an event.
    pub fn put_event(&mut self, event: &Event) -> Place {
        self.make_room(room_for(event));
        let place = self.next_place();
        let before = self.open.len();
        self.open.put_event(event);
        self.in_feed |= is_in_feed(event);
        self.note_undurable(self.open.len() - before);
        place
    }

    /// The first bytes of an entry of the open record, or of one that was sealed not long ago, at
    /// most `max`. None if the record is on disk only, and none inside if there is no such entry.
    pub fn entry(&self, place: Place, max: u32) -> Option<Option<Bytes>> {
        if place.position == self.position {
            let entry = entry_of(self.open.bytes(), place.offset, max);
            return Some(entry.map(|range| Bytes::copy_from_slice(&self.open.bytes()[range])));
        }
        let record = self.recent(place.position)?;
        Some(entry_of(record, place.offset, max).map(|range| record.slice(range)))
    }

    /// A record that was sealed not long ago.
    pub fn recent(&self, position: u64) -> Option<&Bytes> {
        self.recent.find(position)
    }
}

/// Whether the feed shows an event. It shows no events that say nothing new, that only concern the
/// server's own bookkeeping, or that concern people: not everybody with read access may see the
/// audit log. Of a schedule that fires it shows the job.
pub(crate) fn is_in_feed(event: &Event) -> bool {
    !matches!(
        event,
        Event::Compacted(_)
            | Event::ServerCompacted(_)
            | Event::IdsReserved(_)
            | Event::FormatRaised(_)
            | Event::BucketSet(_)
            | Event::PageMoved(_)
            | Event::Audited(_)
            | Event::ScheduleSet(_)
            | Event::ScheduleRemoved(_)
            | Event::ScheduleFired(_)
            | Event::BatchSet(_)
            | Event::BatchesCounted(_)
            | Event::BatchesGone(_)
            | Event::ConsumerMoved(_)
    )
}

/// What an event may take in a record.
fn room_for(event: &Event) -> usize {
    match event {
        Event::Audited(_) => AUDIT_ROOM_BYTES,
        _ => EVENT_ROOM_BYTES + long_bytes(event),
    }
}

/// Bytes of an event that may be many: what it takes in a record besides its fixed part.
fn long_bytes(event: &Event) -> usize {
    match event {
        Event::StateSet(set) => set.event.len() + set.state.as_ref().map_or(0, Bytes::len),
        Event::ScheduleSet(set) => {
            set.schedule.as_ref().map_or(0, |schedule| schedule.encoded_len())
        }
        Event::BatchSet(set) => set.batch.as_ref().map_or(0, |batch| batch.encoded_len()),
        Event::BatchesCounted(counted) => counted.encoded_len(),
        Event::BatchesGone(gone) => gone.encoded_len(),
        Event::Requeued(requeued) => requeued.outcome.as_deref().map_or(0, Outcome::words_len),
        _ => event.image().map_or(0, |image| {
            image.options.as_deref().map_or(0, options_bytes) + image.words_len()
        }),
    }
}

/// What a job's place in a trace takes at most: three numbers of eight bytes, and the flags.
const TRACE_BYTES_MAX: usize = 32;

fn options_bytes(options: &JobOptions) -> usize {
    let texts = options.events.iter().chain(&options.tags).chain(&options.state);
    let keys = options.keys.iter().map(|key| &key.name);
    let trace = if options.trace.is_some() { TRACE_BYTES_MAX } else { 0 };
    texts.chain(keys).map(|text| text.len() + 16).sum::<usize>() + 32 * options.pages.len() + trace
}

#[cfg(test)]
mod tests {
    use spindle_core::JobImage;
    use spindle_core::audit::{Action, Actor, ActorKind};
    use spindle_core::job::{Attempt, Origin, Words};

    use super::*;

    #[test]
    fn events_that_room_was_made_for_stand_in_one_record_however_full_it_is() {
        const MAX: usize = 64 * 1024;
        let gone = spindle_core::event::Gone { ids: vec![7], cause: 0 };
        let events = [Event::Gone(gone), Event::Audited(Default::default())];
        for filled in (0..MAX - 64).step_by(509) {
            let mut batch = Batch::new(0);
            batch.begin_at(1, MAX);
            batch.open.put_bytes(&vec![0; filled], 0);
            batch.make_room_for(events.iter());
            let [change, entry] = [0, 1].map(|at| batch.put_event(&events[at]).position);
            assert_eq!(change, entry, "{filled} bytes");
        }
    }

    #[test]
    fn an_event_takes_no_more_than_the_room_that_is_made_for_it() {
        let text = |len: usize| Bytes::from(vec![b'x'; len]);
        let (message, error, code) = (text(256), text(256), text(64));
        let words = Some(Box::new(Words { message, error, code }));
        let attempt = Attempt { worker: text(1024), words, ended_ms: 1, ..Attempt::default() };
        let outcome = Outcome { message: text(16_384), error: text(16_384), ..Outcome::default() };
        let image = JobImage {
            history: vec![attempt; 32],
            outcome: Some(Box::new(outcome.clone())),
            ..JobImage::default()
        };
        let requeued = spindle_core::event::Requeued {
            outcome: Some(Box::new(outcome)),
            ..Default::default()
        };
        let long = "\u{1f9f5}".repeat(1_000);
        let mut entry = spindle_core::audit::AuditEntry {
            seq: u64::MAX,
            at_ms: u64::MAX,
            actor: Some(Actor::new(ActorKind::Token, &long, &long, Origin::Jobq)),
            action: Action::AcceptClock as i32,
            job: Some(u64::MAX),
            queue: Some(text(512)),
            constraint: Some("c".repeat(255)),
            count: Some(u64::MAX),
            ..Default::default()
        };
        entry.set_detail(&long);
        for event in [Event::Finished(image), Event::Requeued(requeued), Event::Audited(entry)] {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            let room = room_for(&event);
            assert!(bytes.len() <= room, "{} of {}: {}", bytes.len(), room, event.name());
        }
    }
}
