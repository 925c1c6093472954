//! One record of the log: a header, then entries - events and payload bytes, each with its length
//! and checksum, so that a fold passes over payloads and a reader finds either by its offset.
//!
//! ```text
//! header  version u8 | min_reader u8 | marks u16 | entries u32 | epoch u64 | now_ms u64   (24 bytes)
//! entry   kind << 28 | length u32    | CRC-32C u32 | bytes
//! ```
//!
//! A record that needs a newer version (`min_reader`) than a program knows is refused by its fold. The highest version
//! that any folded record needs is the *format in force*: a writer's records need that version, and the additions of a
//! later version are written only when that one is in force. It is raised by a record that needs a higher version than
//! those before it, once all readers of the log know that version
//! ([`Engine::raise_format`](crate::Engine::raise_format)).
//!
//! Numbers are little-endian. An offset names the first byte of an entry's bytes, behind its length
//! and checksum. Of the marks one is used: the record begins an epoch. A record without entries is a
//! beat, see `lead.rs`.

use std::ops::Range;

use bytes::Bytes;
use prost::DecodeError;
use spindle_core::{Event, EventReader};
use spindle_log::CheckedPart;

/// The newest version that this program knows.
pub const VERSION: u8 = 1;
/// The first version: every program knows it.
pub(crate) const FIRST_VERSION: u8 = 1;

pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const ENTRY_HEADER_BYTES: usize = 8;
/// The mark of a record that begins an epoch, in the header's third byte.
const BEGINS_EPOCH: u8 = 1;
/// Lengths have 28 bits.
const LENGTH_MASK: u32 = (1 << 28) - 1;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An event, protobuf.
    Event = 0,
    /// Bytes that events refer to.
    Bytes = 1,
}

/// Why a record cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Too short, or an entry reaches over its end.
    #[error("the record is malformed at byte {0}")]
    Malformed(usize),
    /// Written by a newer program that says this one cannot read it.
    #[error("the record needs version {needed} of the record format, this program knows {VERSION}")]
    TooNew {
        /// The version it needs.
        needed: u8,
    },
    /// An entry that is not what its checksum says.
    #[error("the record is damaged at byte {0}: a checksum does not match")]
    Damaged(usize),
    /// It stands in the log under another epoch than the one it was written in.
    #[error(
        "the record was written in epoch {written}, and the log has it as one of epoch {stored}"
    )]
    OtherEpoch {
        /// What its header says.
        written: u64,
        /// What the log says.
        stored: u64,
    },
    /// An event of a kind this program does not know.
    #[error("the record holds an event this program does not know, at byte {0}")]
    UnknownEvent(usize),
}

/// A record under construction.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    bytes: Vec<u8>,
    entries: u32,
    begins_epoch: bool,
    /// The version that a reader of the records has to know.
    format: u8,
}

impl Default for RecordWriter {
    fn default() -> RecordWriter {
        RecordWriter { bytes: Vec::new(), entries: 0, begins_epoch: false, format: FIRST_VERSION }
    }
}

impl RecordWriter {
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The format in force.
    pub fn format(&self) -> u8 {
        self.format
    }

    /// Records need this version from here on. None is open.
    pub fn set_format(&mut self, format: u8) {
        self.format = format;
    }

    /// Bytes so far, header included.
    pub fn len(&self) -> usize {
        self.bytes.len().max(HEADER_BYTES)
    }

    /// The offset the next entry's bytes will have.
    pub fn next_offset(&self) -> u32 {
        (self.len() + ENTRY_HEADER_BYTES) as u32
    }

    /// The record so far, its header still to be filled in.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn begin_entry(&mut self) -> usize {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
        self.entries += 1;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ENTRY_HEADER_BYTES]);
        start
    }

    fn end_entry(&mut self, start: usize, kind: Kind, crc: Option<u32>) {
        let body = start + ENTRY_HEADER_BYTES;
        let length = (self.bytes.len() - body) as u32;
        debug_assert!(length <= LENGTH_MASK, "callers split what is larger than a record");
        let crc = crc.unwrap_or_else(|| crc32c::crc32c(&self.bytes[body..]));
        let word = ((kind as u32) << 28) | length;
        self.bytes[start..start + 4].copy_from_slice(&word.to_le_bytes());
        self.bytes[start + 4..body].copy_from_slice(&crc.to_le_bytes());
    }

    /// Appends bytes whose checksum the caller has computed before taking any lock.
    pub fn put_bytes(&mut self, bytes: &[u8], crc: u32) {
        let start = self.begin_entry();
        self.bytes.extend_from_slice(bytes);
        self.end_entry(start, Kind::Bytes, Some(crc));
    }

    /// Appends an event.
    pub fn put_event(&mut self, event: &Event) {
        let start = self.begin_entry();
        event.encode(&mut self.bytes);
        self.end_entry(start, Kind::Event, None);
        self.begins_epoch |= matches!(event, Event::Started(_));
    }

    /// Completes the record, even an empty one, and begins a new one.
    pub fn seal(&mut self, epoch: u64, now_ms: u64) -> Bytes {
        /// Larger records are handed over with their buffer, smaller ones are copied out of it.
        const COPY_BYTES_MAX: usize = 64 * 1024;
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
        let header = &mut self.bytes[..HEADER_BYTES];
        header[0] = VERSION;
        header[1] = self.format;
        header[2] = if std::mem::take(&mut self.begins_epoch) { BEGINS_EPOCH } else { 0 };
        header[4..8].copy_from_slice(&self.entries.to_le_bytes());
        header[8..16].copy_from_slice(&epoch.to_le_bytes());
        header[16..24].copy_from_slice(&now_ms.to_le_bytes());
        self.entries = 0;
        if self.bytes.len() <= COPY_BYTES_MAX {
            let sealed = Bytes::copy_from_slice(&self.bytes);
            self.bytes.clear();
            sealed
        } else {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.shrink_to_fit();
            Bytes::from(bytes)
        }
    }
}

/// The epoch in the header of a record, which has one.
fn epoch_of(record: &[u8]) -> u64 {
    record.get(8..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// A record read back.
#[derive(Debug)]
pub(crate) struct RecordReader {
    bytes: Bytes,
    /// The engine's time when it was sealed.
    pub now_ms: u64,
    /// The version that its reader has to know.
    pub needed: u8,
    entries: u32,
}

impl RecordReader {
    /// Reads the header of a record that is to be folded by a reader that knows versions up to
    /// `newest`.
    pub fn knowing(newest: u8, bytes: Bytes) -> Result<RecordReader, RecordError> {
        let reader = RecordReader::new(bytes)?;
        let needed = reader.needed;
        if needed > newest { Err(RecordError::TooNew { needed }) } else { Ok(reader) }
    }

    /// Reads the header of a record that was folded before, or is not to be folded.
    pub fn new(bytes: Bytes) -> Result<RecordReader, RecordError> {
        let header: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(RecordError::Malformed(bytes.len()))?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Ok(RecordReader {
            entries: (word(0) >> 32) as u32,
            now_ms: word(16),
            needed: header[1],
            bytes,
        })
    }

    /// Hands on the events with the offsets of their bytes, until `take` returns false. Returns
    /// whether it took all of them. The log has checked the whole record, so the entries' checksums
    /// are not looked at.
    pub fn for_each_event(
        self,
        mut take: impl FnMut(Event, u32) -> bool,
    ) -> Result<bool, RecordError> {
        self.for_each_entry(|bytes, range| {
            let offset = range.start;
            let event = known(Event::decode(bytes.slice(range)), offset)?;
            Ok(take(event, offset as u32))
        })
    }

    /// As [`RecordReader::for_each_event`], for a start: reads each event into the place that
    /// `events` has for it, as [`EventReader::read`] does.
    pub fn read_events(
        self,
        reader: &mut EventReader,
        events: &mut impl Places,
    ) -> Result<(), RecordError> {
        let all = self.for_each_entry(|bytes, range| {
            let offset = range.start;
            let event = events.next(offset as u32);
            known(reader.read(bytes, range, event), offset).map(|()| true)
        });
        all.map(|_| ())
    }

    /// Hands on where the events are, until `take` returns false. Returns whether it took all.
    fn for_each_entry(
        &self,
        mut take: impl FnMut(&Bytes, Range<usize>) -> Result<bool, RecordError>,
    ) -> Result<bool, RecordError> {
        let mut at = HEADER_BYTES;
        for _ in 0..self.entries {
            let header = read_entry_header(self.bytes.get(at..).unwrap_or_default())
                .ok_or(RecordError::Malformed(at))?;
            let start = at + ENTRY_HEADER_BYTES;
            let end = start + header.len as usize;
            if end > self.bytes.len() {
                return Err(RecordError::Malformed(at));
            }
            at = end;
            let kind = header.kind.ok_or(RecordError::UnknownEvent(start))?;
            if kind == Kind::Event && !take(&self.bytes, start..end)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a record begins an epoch: it is the first one of its writer.
pub(crate) fn begins_epoch(record: &[u8]) -> bool {
    record.get(2).is_some_and(|marks| marks & BEGINS_EPOCH != 0)
}

/// A record without entries, as a leader writes it to show that it leads: it changes nothing.
#[must_use]
pub fn beat(epoch: u64, now_ms: u64) -> Bytes {
    RecordWriter::default().seal(epoch, now_ms)
}

/// Checks what stands in a log that does not check the bytes itself: that the record is of this epoch and all events are
/// as they were written. Returns whether all other bytes (payloads and results) are as written, too: damage to those
/// costs a job, not the record.
pub fn check(record: &Bytes, stored: u64) -> Result<bool, RecordError> {
    let reader = RecordReader::knowing(VERSION, record.clone())?;
    let written = epoch_of(record);
    if written != stored {
        return Err(RecordError::OtherEpoch { written, stored });
    }
    let mut end = HEADER_BYTES;
    reader.for_each_entry(|record, range| {
        end = end.max(range.end);
        let head = read_entry_header(&record[range.start - ENTRY_HEADER_BYTES..]);
        let is_sound = head.is_some_and(|head| head.crc == crc32c::crc32c(&record[range.clone()]));
        if is_sound { Ok(true) } else { Err(RecordError::Damaged(range.start)) }
    })?;
    let parts = checked_parts(record);
    let sound = parts.iter().all(|part| {
        let start = part.offset as usize;
        crc32c::crc32c(&record[start..start + part.len as usize]) == part.crc
    });
    let end = parts.iter().map(|part| (part.offset + part.len) as usize).fold(end, usize::max);
    if end == record.len() { Ok(sound) } else { Err(RecordError::Malformed(end)) }
}

/// When a record was written: milliseconds since 1970. None for bytes that are not a record.
pub fn written_ms(record: &[u8]) -> Option<u64> {
    let field = record.get(16..HEADER_BYTES)?.try_into().ok()?;
    Some(u64::from_le_bytes(field))
}

/// Places that events are read into.
pub(crate) trait Places {
    /// The place of the next event, which stands at this offset.
    fn next(&mut self, offset: u32) -> &mut Event;
}

/// What was read at an offset, if it could be and is of a kind that this program knows.
fn known<T>(read: Result<Option<T>, DecodeError>, offset: usize) -> Result<T, RecordError> {
    match read {
        Ok(Some(read)) => Ok(read),
        Ok(None) => Err(RecordError::UnknownEvent(offset)),
        Err(_) => Err(RecordError::Malformed(offset)),
    }
}

/// Length, kind and checksum of an entry.
pub(crate) struct EntryHeader {
    pub len: u32,
    pub kind: Option<Kind>,
    pub crc: u32,
}

pub(crate) fn read_entry_header(bytes: &[u8]) -> Option<EntryHeader> {
    let header: &[u8; ENTRY_HEADER_BYTES] = bytes.first_chunk()?;
    let word = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let crc = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let kind = match word >> 28 {
        0 => Some(Kind::Event),
        1 => Some(Kind::Bytes),
        _ => None,
    };
    Some(EntryHeader { len: word & LENGTH_MASK, kind, crc })
}

/// Where in a record the first bytes of the entry at `offset` are, at most `max`. None if the record
/// has no such entry.
pub(crate) fn entry_of(record: &[u8], offset: u32, max: u32) -> Option<Range<usize>> {
    let start = offset as usize;
    let header = read_entry_header(record.get(start.checked_sub(ENTRY_HEADER_BYTES)?..)?)?;
    let range = start..start + header.len.min(max) as usize;
    (range.end <= record.len()).then_some(range)
}

/// The pieces of bytes in a record, for the log: damage to one of them costs a job its payload, but
/// does not cost the record its events. Takes any bytes; reads up to where they stop being a
/// record's.
#[must_use]
pub fn checked_parts(record: &[u8]) -> Vec<CheckedPart> {
    let mut parts = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some(head) = record.get(at..).and_then(read_entry_header) {
        let offset = at + ENTRY_HEADER_BYTES;
        at = offset + head.len as usize;
        if at > record.len() {
            break;
        }
        if head.kind == Some(Kind::Bytes) {
            parts.push(CheckedPart { offset: offset as u32, len: head.len, crc: head.crc });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::event::{Gone, IdsReserved};

    fn events() -> [Event; 2] {
        [
            Event::IdsReserved(IdsReserved { until: 70_000, returned: false }),
            Event::Gone(Gone { ids: vec![1, 2], cause: 9 }),
        ]
    }

    #[test]
    fn entries_come_back_with_the_offsets_they_were_promised() {
        let [first, second] = events();
        let mut writer = RecordWriter::default();
        let payload_offset = writer.next_offset();
        writer.put_bytes(b"payload", crc32c::crc32c(b"payload"));
        let first_offset = writer.next_offset();
        writer.put_event(&first);
        writer.put_event(&second);
        let entry = |record: &[u8], max| {
            entry_of(record, payload_offset, max).map(|range| record[range].to_vec())
        };
        assert_eq!(entry(writer.bytes(), 100), Some(b"payload".to_vec()));
        assert_eq!(entry(writer.bytes(), 3), Some(b"pay".to_vec()));
        assert_eq!(entry(&writer.bytes()[..payload_offset as usize + 6], 100), None);
        let sealed = writer.seal(3, 99);
        assert!(writer.is_empty());
        let reader = RecordReader::new(sealed.clone()).unwrap();
        assert_eq!((epoch_of(&sealed), reader.now_ms), (3, 99));
        let mut read = Vec::new();
        let take = |event, offset| {
            read.push((event, offset));
            read.len() < 2
        };
        assert!(!reader.for_each_event(take).unwrap(), "it stops where it is asked to");
        assert_eq!(read[0], (first, first_offset));
        assert_eq!(read[1].0, second);
        assert!(matches!(
            checked_parts(&sealed)[..],
            [CheckedPart { offset, len: 7, .. }] if offset == payload_offset
        ));
        let header = read_entry_header(&sealed[payload_offset as usize - 8..]).unwrap();
        assert_eq!((header.len, header.crc), (7, crc32c::crc32c(b"payload")));
    }

    /// Places that held other events before.
    #[derive(Default)]
    struct Used {
        events: Vec<Event>,
        offsets: Vec<u32>,
    }

    impl Places for Used {
        fn next(&mut self, offset: u32) -> &mut Event {
            self.offsets.push(offset);
            self.events.push(events()[self.offsets.len() % 2].clone());
            self.events.last_mut().unwrap()
        }
    }

    #[test]
    fn events_are_read_into_places_as_they_are_handed_on() {
        let mut writer = RecordWriter::default();
        writer.put_bytes(b"payload", crc32c::crc32c(b"payload"));
        for event in events().iter().chain(&events()) {
            writer.put_event(event);
        }
        let sealed = writer.seal(1, 1);
        let mut handed_on = Vec::new();
        let reader = RecordReader::new(sealed.clone()).unwrap();
        let take = |event, offset| {
            handed_on.push((event, offset));
            true
        };
        assert!(reader.for_each_event(take).unwrap());
        let mut used = Used::default();
        let reader = RecordReader::new(sealed.clone()).unwrap();
        reader.read_events(&mut EventReader::default(), &mut used).unwrap();
        assert_eq!(used.events.into_iter().zip(used.offsets).collect::<Vec<_>>(), handed_on);

        let kind = handed_on[2].1 as usize;
        let mut unknown = sealed.to_vec();
        unknown[kind] = 0xee;
        let reader = RecordReader::new(Bytes::from(unknown)).unwrap();
        let read = reader.read_events(&mut EventReader::default(), &mut Used::default());
        assert!(matches!(read, Err(RecordError::UnknownEvent(at)) if at == kind));
    }

    #[test]
    fn a_record_without_entries_reads_as_one_that_says_nothing() {
        let mut writer = RecordWriter::default();
        let beat = writer.seal(7, 5);
        assert_eq!(
            (beat.len(), begins_epoch(&beat), written_ms(&beat)),
            (HEADER_BYTES, false, Some(5))
        );
        let reader = RecordReader::new(beat.clone()).unwrap();
        assert!(reader.for_each_event(|_, _| panic!("there is none")).unwrap());
        assert!(checked_parts(&beat).is_empty());
        writer.put_event(&Event::Started(Default::default()));
        assert!(begins_epoch(&writer.seal(8, 6)));
        writer.put_event(&events()[0]);
        assert!(!begins_epoch(&writer.seal(8, 7)));
    }

    #[test]
    fn a_record_cut_anywhere_is_refused_and_never_panics() {
        let mut writer = RecordWriter::default();
        writer.put_bytes(b"payload", 0);
        for event in &events() {
            writer.put_event(event);
        }
        let sealed = writer.seal(1, 1);
        for cut in 0..sealed.len() {
            let read = RecordReader::new(sealed.slice(..cut))
                .and_then(|reader| reader.for_each_event(|_, _| true));
            assert!(read.is_err(), "cut at {cut}");
            let read = RecordReader::new(sealed.slice(..cut)).and_then(|reader| {
                reader.read_events(&mut EventReader::default(), &mut Used::default())
            });
            assert!(read.is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn pieces_of_bytes_are_named_with_their_checksums_and_never_outside_the_record() {
        let mut writer = RecordWriter::default();
        let offset = writer.next_offset();
        writer.put_bytes(b"payload", crc32c::crc32c(b"payload"));
        writer.put_event(&events()[0]);
        let sealed = writer.seal(1, 1).to_vec();
        let named = CheckedPart { offset, len: 7, crc: crc32c::crc32c(b"payload") };
        assert_eq!(checked_parts(&sealed), [named]);
        for cut in 0..sealed.len() {
            for bit in 0..8 {
                let mut bytes = sealed[..cut].to_vec();
                if let Some(byte) = bytes.get_mut(cut / 2) {
                    *byte ^= 1 << bit;
                }
                for part in checked_parts(&bytes) {
                    assert!(part.offset as usize + part.len as usize <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn a_record_is_checked_by_its_checksums_its_epoch_and_its_length() {
        let mut writer = RecordWriter::default();
        let payload = writer.next_offset() as usize;
        writer.put_bytes(b"payload", crc32c::crc32c(b"payload"));
        let event = writer.next_offset() as usize;
        writer.put_event(&events()[0]);
        let sealed = writer.seal(3, 1);
        assert!(check(&sealed, 3).unwrap());
        assert!(check(&beat(3, 1), 3).unwrap());
        let wrong = check(&sealed, 4).unwrap_err();
        assert!(matches!(wrong, RecordError::OtherEpoch { written: 3, stored: 4 }), "{wrong}");
        let flipped = |at: usize| {
            let mut bytes = sealed.to_vec();
            bytes[at] ^= 1;
            check(&Bytes::from(bytes), 3)
        };
        assert!(!flipped(payload).unwrap(), "it costs a job and no record");
        assert!(matches!(flipped(event), Err(RecordError::Damaged(at)) if at == event));
        let longer = Bytes::from([&sealed[..], b"x"].concat());
        assert!(matches!(check(&longer, 3), Err(RecordError::Malformed(at)) if at == sealed.len()));
        assert!(check(&sealed.slice(..sealed.len() - 1), 3).is_err());
    }

    #[test]
    fn a_record_for_newer_readers_names_the_version_it_needs() {
        let mut writer = RecordWriter::default();
        writer.put_event(&events()[0]);
        let mut sealed = writer.seal(1, 1).to_vec();
        sealed[1] = VERSION + 1;
        let refused = RecordReader::knowing(VERSION, Bytes::from(sealed)).unwrap_err();
        assert!(matches!(refused, RecordError::TooNew { needed } if needed == VERSION + 1));
    }
}
