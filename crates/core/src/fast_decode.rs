//! Reading the events of the hot path at a start: what prost reads, in three fifths of the
//! instructions, and without moving an event about.
//!
//! A start reads an image for each job that was ever submitted, and another for each that ended. Here
//! the fields are read in the order in which `fast_encode.rs` writes them, so that each costs one
//! look at its key. An event with anything out of the ordinary (another order, unknown fields, other
//! wire types, numbers of ten bytes, an end too early) is left to prost as a whole: so there is one
//! definition of what bytes mean, and tests compare the two.
//!
//! Names that come again and again, queues' and workers', are kept and shared, so an event does not
//! hold on to the record that it was read from.

use std::ops::Range;

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::event::{Event, Leased};
use crate::job::{Attempt, HeldLease, JobImage, Outcome};
use crate::payload::BytesRef;

/// Reads events, and remembers the names in them.
#[derive(Debug, Default)]
pub struct EventReader {
    /// Names by [`place_of`], or none yet. Each is the last that was seen there.
    names: Vec<Bytes>,
}

/// Wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;

/// Names that are remembered.
const NAMES: usize = 64;

impl EventReader {
    /// Reads back the event that stands at `range` of a record, into the place of another one. None
    /// for a kind that this version does not know.
    ///
    /// The parts that the two have in common stay where they are: while a start reads image after
    /// image, no event is moved about and no name is copied or counted. On an error any event may
    /// be left in its place.
    pub fn read(
        &mut self,
        record: &Bytes,
        range: Range<usize>,
        event: &mut Event,
    ) -> Result<Option<()>, DecodeError> {
        if self.read_plain(record, range.clone(), event).is_some() {
            return Ok(Some(()));
        }
        let read = Event::decode(record.slice(range))?;
        Ok(read.map(|read| *event = read))
    }

    /// An event of the hot path with nothing out of the ordinary.
    fn read_plain(&mut self, record: &Bytes, range: Range<usize>, event: &mut Event) -> Option<()> {
        let (kind, body) = record.get(range)?.split_first()?;
        let source = &mut Source { names: &mut self.names, record };
        if *kind == Event::LEASED {
            *event = Event::Leased(Leased::read_all(body, source)?);
            return Some(());
        }
        let make = Event::of_image(*kind)?;
        if event.kind() != *kind {
            *event = make(JobImage::default());
        }
        event.image_mut()?.read_again(body, source)
    }
}

/// What an event is read from.
struct Source<'a> {
    names: &'a mut Vec<Bytes>,
    record: &'a Bytes,
}

impl Source<'_> {
    /// Bytes that stay a slice of the record.
    fn slice(&self, bytes: &[u8]) -> Bytes {
        self.record.slice_ref(bytes)
    }

    fn text(&self, bytes: Option<&[u8]>) -> Bytes {
        bytes.map(|bytes| self.slice(bytes)).unwrap_or_default()
    }

    /// A name, shared with others that are equal.
    fn name(&mut self, name: Option<&[u8]>) -> Bytes {
        let Some(name) = name else { return Bytes::new() };
        if self.names.is_empty() {
            self.names.resize(NAMES, Bytes::new());
        }
        let kept = &mut self.names[place_of(name)];
        if kept != name {
            *kept = Bytes::copy_from_slice(name);
        }
        kept.clone()
    }
}

fn place_of(name: &[u8]) -> usize {
    let mix = |sum: usize, byte: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*byte));
    name.iter().fold(name.len(), mix) % NAMES
}

/// What is left of a message. Each method takes the field of one tag if it comes next. It returns
/// none if that field is out of the ordinary.
struct Fields<'a> {
    left: &'a [u8],
}

/// A field: the outer none means that it is out of the ordinary, the inner none that it is not
/// there.
type Given<T> = Option<Option<T>>;

impl<'a> Fields<'a> {
    /// Whether this field comes next; then its key is taken.
    #[inline(always)]
    fn comes(&mut self, tag: u8, kind: u32) -> bool {
        let key = u32::from(tag) << 3 | kind;
        match self.left {
            [byte, left @ ..] if key < 0x80 && u32::from(*byte) == key => self.left = left,
            [low, high, left @ ..]
                if key >= 0x80
                    && u32::from(*low) == key & 0x7f | 0x80
                    && u32::from(*high) == key >> 7 =>
            {
                self.left = left;
            }
            _ => return false,
        }
        true
    }

    /// A varint of at most nine bytes.
    #[inline(always)]
    fn varint(&mut self) -> Option<u64> {
        match self.left {
            [byte, left @ ..] if *byte < 0x80 => {
                self.left = left;
                Some(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline]
    fn long_varint(&mut self) -> Option<u64> {
        if let Some(bytes) = self.left.first_chunk() {
            let word = u64::from_le_bytes(*bytes);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let len = ends.trailing_zeros() / 8 + 1;
                self.left = &self.left[len as usize..];
                return Some(sevens(word & (u64::MAX >> (64 - 8 * len))));
            }
        }
        let mut value = 0;
        for (nth, byte) in self.left.iter().take(9).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * nth);
            if *byte < 0x80 {
                self.left = &self.left[nth + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline(always)]
    fn uint(&mut self, tag: u8) -> Given<u64> {
        if self.comes(tag, VARINT) { self.varint().map(Some) } else { Some(None) }
    }

    /// Numbers of 32 bits are cut off, as prost does.
    #[inline(always)]
    fn small(&mut self, tag: u8) -> Option<u32> {
        Some(self.uint(tag)?.unwrap_or(0) as u32)
    }

    #[inline(always)]
    fn kind(&mut self, tag: u8) -> Option<i32> {
        Some(self.uint(tag)?.unwrap_or(0) as i32)
    }

    #[inline(always)]
    fn flag(&mut self, tag: u8) -> Option<bool> {
        Some(self.uint(tag)?.unwrap_or(0) != 0)
    }

    #[inline(always)]
    fn fixed(&mut self, tag: u8) -> Given<u64> {
        if !self.comes(tag, FIXED64) {
            return Some(None);
        }
        let (value, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(Some(u64::from_le_bytes(*value)))
    }

    #[inline(always)]
    fn bytes(&mut self, tag: u8) -> Given<&'a [u8]> {
        if !self.comes(tag, DELIMITED) {
            return Some(None);
        }
        let len = usize::try_from(self.varint()?).ok()?;
        let (bytes, left) = self.left.split_at_checked(len)?;
        self.left = left;
        Some(Some(bytes))
    }

    fn message<M: Read>(&mut self, tag: u8, source: &mut Source<'_>) -> Given<M> {
        match self.bytes(tag)? {
            Some(bytes) => M::read_all(bytes, source).map(Some),
            None => Some(None),
        }
    }

    /// A message that only few events have.
    fn rare<M: Message + Default>(&mut self, tag: u8, source: &Source<'_>) -> Given<M> {
        match self.bytes(tag)? {
            Some(bytes) => M::decode(source.slice(bytes)).ok().map(Some),
            None => Some(None),
        }
    }
}

/// The low seven bits of each byte as one number: put together by two, by four, by eight.
#[inline(always)]
fn sevens(bytes: u64) -> u64 {
    let twos = bytes & 0x007f_007f_007f_007f | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = twos & 0x0000_3fff_0000_3fff | (twos & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// A message that is read here.
trait Read: Sized {
    /// Takes the fields in the order of their tags; none if one is out of the ordinary.
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<Self>;

    /// Nothing may be left: that would be fields in another order, or ones that are not known.
    fn read_all(bytes: &[u8], source: &mut Source<'_>) -> Option<Self> {
        let mut fields = Fields { left: bytes };
        let message = Self::read(&mut fields, source)?;
        fields.left.is_empty().then_some(message)
    }
}

impl JobImage {
    /// Takes all fields anew.
    fn read_again(&mut self, bytes: &[u8], source: &mut Source<'_>) -> Option<()> {
        let fields = &mut Fields { left: bytes };
        self.id = fields.uint(1)?.unwrap_or(0);
        let queue = fields.bytes(2)?;
        if queue.unwrap_or_default() != self.queue {
            self.queue = source.name(queue);
        }
        self.status = fields.kind(3)?;
        self.origin = fields.kind(4)?;
        let zigzag = fields.uint(5)?.unwrap_or(0);
        self.priority = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        self.order = fields.uint(6)?.unwrap_or(0);
        self.created_ms = fields.fixed(7)?.unwrap_or(0);
        self.ttl_ms = fields.uint(8)?;
        self.ttr_ms = fields.uint(9)?;
        self.attempts = fields.small(10)?;
        self.fails = fields.small(11)?;
        self.revision = fields.small(12)?;
        self.payload = fields.message(13, source)?;
        self.uuid_high = fields.fixed(14)?.unwrap_or(0);
        self.uuid_low = fields.fixed(15)?.unwrap_or(0);
        self.foreground = fields.flag(16)?;
        self.options = fields.rare(17, source)?.map(Box::new);
        self.started_ms = fields.fixed(18)?;
        self.finished_ms = fields.fixed(19)?;
        self.kept_until_ms = fields.fixed(20)?;
        self.lease = fields.message(21, source)?.map(Box::new);
        self.outcome = fields.message(22, source)?.map(Box::new);
        self.history.clear();
        while let Some(attempt) = fields.message(23, source)? {
            // Most jobs have one attempt: room for one, not for the four of a vector.
            if self.history.is_empty() {
                self.history.reserve_exact(1);
            }
            self.history.push(attempt);
        }
        fields.left.is_empty().then_some(())
    }
}

impl Read for BytesRef {
    #[inline]
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<BytesRef> {
        Some(BytesRef {
            position: fields.uint(1)?.unwrap_or(0),
            offset: fields.small(2)?,
            len: fields.small(3)?,
            kind: fields.kind(4)?,
            inline: fields.bytes(5)?.map(|bytes| source.slice(bytes)),
        })
    }
}

impl Read for Outcome {
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<Outcome> {
        Some(Outcome {
            success: fields.flag(1)?,
            bytes: fields.message(2, source)?,
            message: source.text(fields.bytes(3)?),
            error: source.text(fields.bytes(4)?),
            code: source.text(fields.bytes(5)?),
            worker_finished_at: source.text(fields.bytes(6)?),
            error_kind: fields.kind(7)?,
        })
    }
}

impl Read for HeldLease {
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<HeldLease> {
        Some(HeldLease {
            epoch: fields.uint(1)?.unwrap_or(0),
            holder: fields.uint(2)?.unwrap_or(0),
            bound: fields.flag(3)?,
            deadline_ms: fields.fixed(4)?,
            started_ms: fields.fixed(5)?.unwrap_or(0),
            door: fields.kind(6)?,
            worker: source.name(fields.bytes(7)?),
        })
    }
}

impl Read for Attempt {
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<Attempt> {
        Some(Attempt {
            attempt: fields.small(1)?,
            started_ms: fields.fixed(2)?.unwrap_or(0),
            ended_ms: fields.fixed(3)?.unwrap_or(0),
            cause: fields.kind(4)?,
            door: fields.kind(5)?,
            worker: source.name(fields.bytes(6)?),
            words: fields.rare(7, source)?.map(Box::new),
        })
    }
}

impl Read for Leased {
    fn read(fields: &mut Fields<'_>, source: &mut Source<'_>) -> Option<Leased> {
        let mut leased = Leased {
            id: fields.uint(1)?.unwrap_or(0),
            attempts: fields.small(2)?,
            lease: fields.message(3, source)?.unwrap_or_default(),
            buckets: Vec::new(),
        };
        while let Some(bucket) = fields.rare(4, source)? {
            leased.buckets.push(bucket);
        }
        Some(leased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_encode::tests::Draw;

    fn by_prost(bytes: &[u8]) -> Result<Option<Event>, DecodeError> {
        Event::decode(Bytes::copy_from_slice(bytes))
    }

    fn here(reader: &mut EventReader, bytes: &[u8]) -> Result<Option<Event>, DecodeError> {
        let mut event = Event::default();
        let read = read_into(reader, bytes, &mut event)?;
        Ok(read.map(|()| event))
    }

    fn read_into(
        reader: &mut EventReader,
        bytes: &[u8],
        event: &mut Event,
    ) -> Result<Option<()>, DecodeError> {
        let record = Bytes::from([b"before", bytes, b"behind"].concat());
        reader.read(&record, 6..6 + bytes.len(), event)
    }

    /// However the bytes of an event were changed, both readers read the same, or both refuse it.
    #[test]
    fn any_bytes_are_read_as_prost_reads_them() {
        let mut reader = EventReader::default();
        let (mut plain, mut used) = (0, Event::default());
        for seed in 0..3_000 {
            let mut draw = Draw(seed);
            let mut bytes = Vec::new();
            draw.hot_event().encode(&mut bytes);
            for damage in 0..12 {
                let mut bytes = bytes.clone();
                let at = draw.bits() as usize % bytes.len();
                match damage {
                    0 => {}
                    1..=6 => bytes[at] ^= 1 << (damage % 8),
                    7 => bytes[at] = draw.bits() as u8,
                    8 => bytes.truncate(at),
                    9 => bytes.extend_from_within(at..),
                    10 => bytes.insert(at, 0x80),
                    _ => drop(bytes.drain(at..at + 1)),
                }
                let (record, all) = (Bytes::from(bytes.clone()), 0..bytes.len());
                plain += u32::from(reader.read_plain(&record, all, &mut used).is_some());
                let expected = by_prost(&bytes);
                assert_eq!(here(&mut reader, &bytes), expected, "seed {seed}, {damage}");
                // The same in the place of the last event, whether that was read in part or whole.
                let again = read_into(&mut reader, &bytes, &mut used);
                let again = again.map(|read| read.map(|()| used.clone()));
                assert_eq!(again, expected, "seed {seed}, {damage} again");
            }
        }
        assert!(plain > 3_000, "only {plain} were read here");
    }

    /// Else all would be right and slow.
    #[test]
    fn events_of_the_hot_path_are_read_here() {
        let place = || Some(BytesRef { position: 7, offset: 40, len: 256, kind: 1, inline: None });
        let attempt = Attempt { attempt: 1, worker: "w".into(), ..Attempt::default() };
        let image = JobImage {
            id: 1 << 52,
            queue: "mail".into(),
            priority: -3,
            ttl_ms: Some(u64::from(u32::MAX)),
            payload: place(),
            outcome: Some(Box::new(Outcome { bytes: place(), ..Outcome::default() })),
            history: vec![attempt],
            ..JobImage::default()
        };
        let lease = HeldLease { worker: "w".into(), deadline_ms: Some(5), ..HeldLease::default() };
        let leased = Leased { id: 9, attempts: 1, lease, buckets: Vec::new() };
        let mut reader = EventReader::default();
        for event in [
            Event::Submitted(image.clone()),
            Event::Finished(image.clone()),
            Event::Retried(image.clone()),
            Event::Persisted(image.clone()),
            Event::Compacted(image),
            Event::Leased(leased),
        ] {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            let (all, mut read) = (0..bytes.len(), Event::default());
            assert!(reader.read_plain(&Bytes::from(bytes), all, &mut read).is_some());
            assert_eq!(read, event);
        }
    }

    #[test]
    fn names_are_shared_and_no_name_is_taken_for_another() {
        let mut reader = EventReader::default();
        let mut queues = Vec::new();
        for round in 0..2 {
            for number in 0..300 {
                let queue = Bytes::from(format!("queue-{number}"));
                let event = Event::Submitted(JobImage { id: 1, queue, ..JobImage::default() });
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                let read = here(&mut reader, &bytes).expect("it is whole");
                assert_eq!(read, Some(event), "round {round}");
                queues.push(read.and_then(|event| event.image().map(|image| image.queue.clone())));
                let again = here(&mut reader, &bytes).expect("it is whole").expect("it is known");
                let pointer = |queue: &Bytes| queue.as_ptr();
                let first = queues.last().and_then(|queue| queue.as_ref()).map(pointer);
                assert_eq!(again.image().map(|image| pointer(&image.queue)), first);
            }
        }
    }
}
