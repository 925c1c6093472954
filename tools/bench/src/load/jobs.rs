//! The jobs of one run: their ids, their payloads, and the requests that submit them.
//!
//! Payloads are windows into a pool of random bytes made beforehand, each headed by the job's
//! number, so that a job costs the load a copy and no arithmetic, no two payloads are equal, and a
//! leased payload can be checked byte by byte.

use crate::wire::{SubmitParts, Wire};
use std::hash::{BuildHasher, Hasher};

/// Bytes of a payload, where a suite does not say otherwise.
pub(crate) const PAYLOAD_BYTES: usize = 256;
/// The bytes at the start of a payload that carry the job's number.
const NUMBER_BYTES: usize = 8;
/// The same where a payload has to be text.
const NUMBER_LETTERS: usize = 16;
/// Small enough to stay in the cache, large enough for a million different windows.
const POOL_BYTES: usize = 1 << 20;
const ID_BYTES: usize = 36;
const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// How the names of queues begin.
pub(crate) const QUEUE_PREFIX: &str = "bench-";

/// A family of jobs that share a protocol, a queue and a prefix of their ids.
pub(crate) struct Jobs {
    wire: Wire,
    prefix: u64,
    queue: String,
    payload_bytes: usize,
    /// Letters only, if the protocol needs payloads to be text.
    pool: Vec<u8>,
    parts: SubmitParts,
    /// Whether submits carry the ids; then deliveries must have them.
    brings_ids: bool,
}

impl Jobs {
    /// A family with ids, a queue and bytes that were never used before.
    pub(crate) fn fresh(wire: Wire) -> Self {
        Self::sized(wire, PAYLOAD_BYTES)
    }

    /// The same with payloads of this size.
    pub(crate) fn sized(wire: Wire, payload_bytes: usize) -> Self {
        // The standard library draws the keys of its hasher at random.
        Self::seeded(std::hash::RandomState::new().build_hasher().finish(), wire, payload_bytes)
    }

    fn seeded(seed: u64, wire: Wire, payload_bytes: usize) -> Self {
        let mut random = Random::seeded(seed);
        let prefix = random.next();
        let queue = match wire {
            // The queue of jobs whose creator names none.
            Wire::Jobq => "jobq".to_owned(),
            _ => format!("{QUEUE_PREFIX}{:08x}", random.next() >> 32),
        };
        let mut pool = Vec::with_capacity(POOL_BYTES);
        while pool.len() < POOL_BYTES {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        if wire.is_text() {
            pool.iter_mut().for_each(|byte| *byte = LETTERS[usize::from(*byte % 64)]);
        }
        let parts = wire.submit_parts(&queue, payload_bytes);
        Self { wire, prefix, queue, payload_bytes, pool, parts, brings_ids: wire == Wire::Workq }
    }

    /// From now on they come through a door that gives them ids of its own.
    pub(crate) fn let_server_name(&mut self) {
        self.brings_ids = false;
    }

    /// Whether job `number` may be delivered under this id.
    pub(crate) fn may_have(&self, number: u64, id: &[u8]) -> bool {
        !self.brings_ids || id == self.id(number)
    }

    /// The protocol they are submitted in.
    pub(crate) fn wire(&self) -> Wire {
        self.wire
    }

    /// The queue (or tube) these jobs go to.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// How many bytes one submit of these jobs has; all have the same.
    pub(crate) fn request_bytes(&self) -> usize {
        let mut out = vec![];
        self.encode_submit(0, &mut out);
        out.len()
    }

    /// Appends the request that submits job `number`.
    pub(crate) fn encode_submit(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.parts.head);
        if self.wire == Wire::Workq {
            out.extend_from_slice(&self.id(number));
        }
        out.extend_from_slice(&self.parts.tail);
        self.encode_payload(number, out);
        out.extend_from_slice(self.parts.end);
    }

    /// Appends the payload of job `number`.
    pub(crate) fn encode_payload(&self, number: u64, out: &mut Vec<u8>) {
        if self.wire.is_text() {
            let digits = (0..NUMBER_LETTERS).rev();
            out.extend(digits.map(|at| LETTERS[(number >> (at * 4)) as usize & 15]));
            out.extend_from_slice(self.filling(number, NUMBER_LETTERS));
        } else {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(self.filling(number, NUMBER_BYTES));
        }
    }

    /// The id of job `number`: a version 4 UUID, since some servers take no other.
    pub(crate) fn id(&self, number: u64) -> [u8; ID_BYTES] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let high = (self.prefix & !0xf000) | 0x4000;
        let low = (number & 0x3fff_ffff_ffff_ffff) | (1 << 63);
        let value = u128::from(high) << 64 | u128::from(low);
        let mut id = [b'-'; ID_BYTES];
        let mut shift = 128;
        for (at, digit) in id.iter_mut().enumerate() {
            if !matches!(at, 8 | 13 | 18 | 23) {
                shift -= 4;
                *digit = DIGITS[(value >> shift) as usize & 0xf];
            }
        }
        id
    }

    /// The number of the job whose payload this is, or `None` when a byte of it is wrong.
    pub(crate) fn recognise(&self, payload: &[u8]) -> Option<u64> {
        let (number, filling) = payload.split_first_chunk::<NUMBER_BYTES>()?;
        let number = u64::from_le_bytes(*number);
        (filling == self.filling(number, NUMBER_BYTES)).then_some(number)
    }

    /// The window of the pool that fills up the payload of job `number`.
    fn filling(&self, number: u64, number_bytes: usize) -> &[u8] {
        let bytes = self.payload_bytes - number_bytes;
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let from = spread as usize % (self.pool.len() - bytes);
        &self.pool[from..from + bytes]
    }
}

/// Marsaglia's xorshift with a multiplication: fast, and random enough that nothing compresses.
struct Random(u64);

impl Random {
    fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_distinct_version_4_uuids() {
        let jobs = Jobs::seeded(7, Wire::Workq, PAYLOAD_BYTES);
        let ids: HashSet<_> = (0..10_000).map(|number| jobs.id(number)).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let text = String::from_utf8(id.to_vec()).unwrap();
            assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            assert_eq!(&text[14..15], "4");
            assert_eq!(&text[19..20], "8");
        }
        assert_ne!(jobs.id(1), Jobs::seeded(9, Wire::Workq, PAYLOAD_BYTES).id(1));
    }

    #[test]
    fn payloads_are_distinct_and_recognised() {
        let jobs = Jobs::seeded(7, Wire::Workq, PAYLOAD_BYTES);
        let mut seen = HashSet::new();
        for number in 0..5_000 {
            let mut out = vec![];
            jobs.encode_submit(number, &mut out);
            assert_eq!(out.len(), jobs.request_bytes());
            let payload = &out[out.len() - 258..out.len() - 2];
            assert_eq!(jobs.recognise(payload), Some(number));
            assert!(seen.insert(payload[NUMBER_BYTES..40].to_vec()), "same bytes for {number}");
        }
    }

    #[test]
    fn payloads_in_json_are_letters_and_distinct() {
        let jobs = Jobs::seeded(7, Wire::Api, PAYLOAD_BYTES);
        let mut seen = HashSet::new();
        for number in 0..5_000 {
            let mut out = vec![];
            jobs.encode_submit(number, &mut out);
            let request = String::from_utf8(out).unwrap();
            let (_, body) = request.split_once("\r\n\r\n").unwrap();
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let payload = body["payload"].as_str().unwrap().to_owned();
            assert_eq!(payload.len(), PAYLOAD_BYTES);
            assert!(seen.insert(payload[NUMBER_LETTERS..].to_owned()), "the same for {number}");
        }
    }

    #[test]
    fn a_changed_byte_is_not_recognised() {
        let jobs = Jobs::seeded(7, Wire::Beanstalkd, PAYLOAD_BYTES);
        let mut out = vec![];
        jobs.encode_submit(3, &mut out);
        assert!(out.starts_with(b"put 0 0 60 256\r\n"));
        let mut payload = out[out.len() - 258..out.len() - 2].to_vec();
        assert_eq!(jobs.recognise(&payload), Some(3));
        payload[40] ^= 1;
        assert_eq!(jobs.recognise(&payload), None);
        assert_eq!(jobs.recognise(b"short"), None);
    }
}
