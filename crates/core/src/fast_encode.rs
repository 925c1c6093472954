//! Writing the messages of the hot path: the same bytes as prost's, in a tenth of the instructions.
//!
//! prost checks the room and writes one byte at a time through a trait, for every key and every
//! byte of every number; that was half the cost of an acknowledged submit. Reading has a file of its own
//! (`fast_decode.rs`). A test compares every message that is written here with what prost writes.

use crate::job::{Attempt, HeldLease, JobImage, Outcome, Words};
use crate::payload::BytesRef;
use crate::queue::BucketImage;

/// The longest fixed part of a message written here; bytes of unknown length come on top.
pub(crate) const FIXED_BYTES_MAX: usize = 256;

/// Wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;

/// A message that is written without prost's help.
pub(crate) trait Put {
    /// Appends the fields that are not at their default, in the order of their tags.
    fn put(&self, out: &mut Vec<u8>);
}

#[inline]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn key(out: &mut Vec<u8>, tag: u32, kind: u32) {
    varint(out, u64::from(tag << 3 | kind));
}

#[inline]
pub(crate) fn uint(out: &mut Vec<u8>, tag: u32, value: u64) {
    if value != 0 {
        key(out, tag, VARINT);
        varint(out, value);
    }
}

#[inline]
fn uint_given(out: &mut Vec<u8>, tag: u32, value: Option<u64>) {
    if let Some(value) = value {
        key(out, tag, VARINT);
        varint(out, value);
    }
}

/// Enumerations: what is negative is written as ten bytes.
#[inline]
fn number(out: &mut Vec<u8>, tag: u32, value: i32) {
    uint(out, tag, i64::from(value) as u64);
}

#[inline]
fn fixed_given(out: &mut Vec<u8>, tag: u32, value: Option<u64>) {
    let Some(value) = value else { return };
    if tag > 15 {
        key(out, tag, FIXED64);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        // Key and number in one go.
        let mut field = [0; 9];
        field[0] = (tag << 3 | FIXED64) as u8;
        field[1..].copy_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&field);
    }
}

#[inline]
fn fixed(out: &mut Vec<u8>, tag: u32, value: u64) {
    fixed_given(out, tag, (value != 0).then_some(value));
}

#[inline]
fn bytes(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    if !value.is_empty() {
        bytes_given(out, tag, value);
    }
}

#[inline]
fn bytes_given(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    key(out, tag, DELIMITED);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A message in a message: its length goes before it, and is mostly one byte.
#[inline]
pub(crate) fn message(out: &mut Vec<u8>, tag: u32, body: impl FnOnce(&mut Vec<u8>)) {
    key(out, tag, DELIMITED);
    let at = out.len();
    out.push(0);
    body(out);
    let len = out.len() - at - 1;
    match u8::try_from(len) {
        Ok(short) if short < 0x80 => out[at] = short,
        _ => {
            let mut head = Vec::with_capacity(10);
            varint(&mut head, len as u64);
            out.splice(at..=at, head);
        }
    }
}

impl Put for JobImage {
    fn put(&self, out: &mut Vec<u8>) {
        use prost::Message;
        out.reserve(FIXED_BYTES_MAX);
        uint(out, 1, self.id);
        bytes(out, 2, &self.queue);
        number(out, 3, self.status);
        number(out, 4, self.origin);
        let zigzag = (self.priority << 1) ^ (self.priority >> 63);
        uint(out, 5, zigzag as u64);
        uint(out, 6, self.order);
        fixed(out, 7, self.created_ms);
        uint_given(out, 8, self.ttl_ms);
        uint_given(out, 9, self.ttr_ms);
        uint(out, 10, self.attempts.into());
        uint(out, 11, self.fails.into());
        uint(out, 12, self.revision.into());
        if let Some(payload) = &self.payload {
            message(out, 13, |out| payload.put(out));
        }
        fixed(out, 14, self.uuid_high);
        fixed(out, 15, self.uuid_low);
        uint(out, 16, self.foreground.into());
        if let Some(options) = self.options.as_deref() {
            message(out, 17, |out| options.encode_raw(out));
        }
        fixed_given(out, 18, self.started_ms);
        fixed_given(out, 19, self.finished_ms);
        fixed_given(out, 20, self.kept_until_ms);
        if let Some(lease) = self.lease.as_deref() {
            message(out, 21, |out| lease.put(out));
        }
        if let Some(outcome) = self.outcome.as_deref() {
            message(out, 22, |out| outcome.put(out));
        }
        for attempt in &self.history {
            message(out, 23, |out| attempt.put(out));
        }
    }
}

impl Put for BytesRef {
    fn put(&self, out: &mut Vec<u8>) {
        uint(out, 1, self.position);
        uint(out, 2, self.offset.into());
        uint(out, 3, self.len.into());
        number(out, 4, self.kind);
        if let Some(inline) = &self.inline {
            bytes_given(out, 5, inline);
        }
    }
}

impl Put for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        uint(out, 1, self.success.into());
        if let Some(place) = &self.bytes {
            message(out, 2, |out| place.put(out));
        }
        bytes(out, 3, &self.message);
        bytes(out, 4, &self.error);
        bytes(out, 5, &self.code);
        bytes(out, 6, &self.worker_finished_at);
        number(out, 7, self.error_kind);
    }
}

impl Put for HeldLease {
    fn put(&self, out: &mut Vec<u8>) {
        uint(out, 1, self.epoch);
        uint(out, 2, self.holder);
        uint(out, 3, self.bound.into());
        fixed_given(out, 4, self.deadline_ms);
        fixed(out, 5, self.started_ms);
        number(out, 6, self.door);
        bytes(out, 7, &self.worker);
    }
}

impl Put for Attempt {
    fn put(&self, out: &mut Vec<u8>) {
        uint(out, 1, self.attempt.into());
        fixed(out, 2, self.started_ms);
        fixed(out, 3, self.ended_ms);
        number(out, 4, self.cause);
        number(out, 5, self.door);
        bytes(out, 6, &self.worker);
        if let Some(words) = self.words.as_deref() {
            message(out, 7, |out| words.put(out));
        }
    }
}

impl Put for Words {
    fn put(&self, out: &mut Vec<u8>) {
        bytes(out, 1, &self.message);
        bytes(out, 2, &self.error);
        bytes(out, 3, &self.code);
    }
}

impl Put for BucketImage {
    fn put(&self, out: &mut Vec<u8>) {
        message(out, 1, |out| {
            uint(out, 1, self.label.constraint.into());
            uint(out, 2, self.label.value);
        });
        uint(out, 2, self.level);
        uint(out, 3, self.at_ms);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use crate::event::{Event, Leased};
    use crate::job::{
        Attempt, Backoff, HeldLease, JobImage, JobOptions, Key, Label, Outcome, TraceParent, Words,
    };
    use crate::payload::BytesRef;
    use crate::queue::BucketImage;

    /// Values from a seed. Short and long ones come more often than by chance.
    pub(crate) struct Draw(pub(crate) u64);

    impl Draw {
        pub(crate) fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z ^ (z >> 27)
        }

        fn number(&mut self) -> u64 {
            match self.bits() % 5 {
                0 => 0,
                1 => u64::MAX,
                2 => self.bits() % 300,
                _ => self.bits() >> (self.bits() % 64),
            }
        }

        fn small(&mut self) -> u32 {
            self.number() as u32
        }

        fn flag(&mut self) -> bool {
            self.bits().is_multiple_of(2)
        }

        fn name(&mut self) -> Bytes {
            let len = [0, 1, 16, 127, 128, 300][(self.bits() % 6) as usize];
            Bytes::from(vec![b'n'; len])
        }

        fn given<T>(&mut self, value: impl FnOnce(&mut Draw) -> T) -> Option<T> {
            self.flag().then(|| value(self))
        }

        fn some<T>(&mut self, value: impl Fn(&mut Draw) -> T) -> Vec<T> {
            (0..self.bits() % 3).map(|_| value(self)).collect()
        }

        fn place(&mut self) -> BytesRef {
            BytesRef {
                position: self.number(),
                offset: self.small(),
                len: self.small(),
                kind: (self.bits() % 3) as i32,
                inline: self.given(Draw::name),
            }
        }

        fn lease(&mut self) -> HeldLease {
            HeldLease {
                epoch: self.number(),
                holder: self.number(),
                bound: self.flag(),
                deadline_ms: self.given(Draw::number),
                started_ms: self.number(),
                door: self.small() as i32,
                worker: self.name(),
            }
        }

        fn outcome(&mut self) -> Outcome {
            Outcome {
                success: self.flag(),
                bytes: self.given(Draw::place),
                message: self.name(),
                error: self.name(),
                code: self.name(),
                worker_finished_at: self.name(),
                error_kind: (self.bits() % 3) as i32,
            }
        }

        fn attempt(&mut self) -> Attempt {
            Attempt {
                attempt: self.small(),
                started_ms: self.number(),
                ended_ms: self.number(),
                cause: (self.bits() % 14) as i32,
                door: (self.bits() % 6) as i32,
                worker: self.name(),
                words: self.given(|draw| {
                    let (message, error, code) = (draw.name(), draw.name(), draw.name());
                    Box::new(Words { message, error, code })
                }),
            }
        }

        fn label(&mut self) -> Label {
            Label { constraint: self.small(), value: self.number() }
        }

        fn trace(&mut self) -> TraceParent {
            TraceParent {
                trace_high: self.number(),
                trace_low: self.number(),
                span: self.number(),
                flags: self.small() & 3,
            }
        }

        fn options(&mut self) -> JobOptions {
            JobOptions {
                run_at_ms: self.given(Draw::number),
                attempts_max: self.given(Draw::small),
                backoff: self.given(|draw| Backoff { cap_ms: draw.number(), ..Backoff::NONE }),
                keys: self.some(|draw| Key { namespace: 2, name: draw.name(), scope: 1 }),
                labels: self.some(Draw::label),
                state: self.given(Draw::name),
                events: self.some(Draw::name),
                drop_result: self.flag(),
                trace: self.given(|draw| Box::new(draw.trace())),
                ..JobOptions::NONE
            }
        }

        fn image(&mut self) -> JobImage {
            JobImage {
                id: self.number(),
                queue: self.name(),
                status: (self.bits() % 6) as i32,
                origin: (self.bits() % 6) as i32,
                priority: self.number() as i64,
                order: self.number(),
                created_ms: self.number(),
                ttl_ms: self.given(Draw::number),
                ttr_ms: self.given(Draw::number),
                attempts: self.small(),
                fails: self.small(),
                revision: self.small(),
                payload: self.given(Draw::place),
                uuid_high: self.number(),
                uuid_low: self.number(),
                foreground: self.flag(),
                options: self.given(|draw| Box::new(draw.options())),
                started_ms: self.given(Draw::number),
                finished_ms: self.given(Draw::number),
                kept_until_ms: self.given(Draw::number),
                lease: self.given(|draw| Box::new(draw.lease())),
                outcome: self.given(|draw| Box::new(draw.outcome())),
                history: self.some(Draw::attempt),
            }
        }

        /// An event that is read and written without prost's help.
        pub(crate) fn hot_event(&mut self) -> Event {
            match self.bits() % 6 {
                0 => Event::Submitted(self.image()),
                1 => Event::Finished(self.image()),
                2 => Event::Retried(self.image()),
                3 => Event::Persisted(self.image()),
                4 => Event::Compacted(self.image()),
                _ => Event::Leased(self.leased()),
            }
        }

        fn leased(&mut self) -> Leased {
            let bucket = |draw: &mut Draw| BucketImage {
                label: draw.label(),
                level: draw.number(),
                at_ms: draw.number(),
            };
            Leased {
                id: self.number(),
                attempts: self.small(),
                lease: self.lease(),
                buckets: self.some(bucket),
            }
        }
    }

    #[test]
    fn what_is_written_here_is_what_prost_writes_and_reads() {
        for seed in 0..2_000 {
            let mut draw = Draw(seed);
            for event in [Event::Submitted(draw.image()), Event::Leased(draw.leased())] {
                let (mut here, mut by_prost) = (Vec::new(), Vec::new());
                event.encode(&mut here);
                event.encode_plainly(&mut by_prost);
                assert_eq!(&here[1..], &by_prost[..], "seed {seed}: {event:?}");
                let read = Event::decode(Bytes::from(here)).expect("it is whole");
                assert_eq!(read, Some(event), "seed {seed}");
            }
        }
    }
}
