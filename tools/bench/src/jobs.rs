//! The jobs of one run: their ids, their payloads, and the requests that submit them.
//!
//! Payloads are windows into a pool of random bytes made beforehand, each headed by the job's
//! number, so that a job costs the load a copy and no arithmetic, no two payloads are equal, and a
//! leased payload can be checked byte by byte.

use crate::wire::http::{BATCH_JOBS, Submits, encode_state};
use crate::wire::{AddParts, Wire};
use std::hash::{BuildHasher, Hasher};

/// The bytes at the start of a payload that carry the job's number.
const NUMBER_BYTES: usize = 8;
/// Small enough to stay in the cache, large enough for a million different windows.
const POOL_BYTES_MIN: usize = 1 << 20;
const ID_BYTES: usize = 36;
const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// In the order of [`Jobs::add_parts`].
const WIRES: [Wire; 8] = [
    Wire::Workq,
    Wire::Beanstalkd,
    Wire::Gearman,
    Wire::GearmanForeground,
    Wire::Http(Submits::Api),
    Wire::Http(Submits::Batch),
    Wire::Http(Submits::Lightjq),
    Wire::Http(Submits::JobqCreate),
];
/// A number in letters, as it heads a payload that has to be text; no payload is shorter.
pub(crate) const NUMBER_LETTERS: usize = 16;

/// A family of jobs that share a queue and a prefix of their ids.
pub(crate) struct Jobs {
    prefix: u64,
    queue: String,
    payload_bytes: usize,
    pool: Vec<u8>,
    /// The same in letters that JSON takes as they are.
    letters: Vec<u8>,
    /// What stands between two payloads of a batch.
    between: Vec<u8>,
    /// How each of [`WIRES`] is submitted to.
    add_parts: [AddParts; WIRES.len()],
}

impl Jobs {
    /// A family whose ids, queue and bytes nobody has seen before.
    pub(crate) fn fresh(payload_bytes: usize) -> Self {
        // The standard library draws the keys of its hasher at random.
        Self::seeded(std::hash::RandomState::new().build_hasher().finish(), payload_bytes)
    }

    fn seeded(seed: u64, payload_bytes: usize) -> Self {
        assert!(payload_bytes >= NUMBER_LETTERS, "a payload has room for its job's number");
        let mut random = Random::seeded(seed);
        let prefix = random.next();
        let queue = format!("bench-{:08x}", random.next() >> 32);
        let pool_bytes = POOL_BYTES_MIN.max(payload_bytes * 2);
        let mut pool = Vec::with_capacity(pool_bytes + 8);
        while pool.len() < pool_bytes {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        let letters = pool.iter().map(|byte| LETTERS[usize::from(byte % 64)]).collect();
        let between = crate::wire::http::between(&queue);
        let add_parts = WIRES.map(|wire| wire.add_parts(&queue, payload_bytes));
        Self { prefix, queue, payload_bytes, pool, letters, between, add_parts }
    }

    /// The queue (or tube) these jobs go to.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// How many bytes one submit of these jobs has on `wire`; all have the same.
    pub(crate) fn add_bytes(&self, wire: Wire) -> usize {
        let mut out = vec![];
        self.encode_add(wire, 0, &mut out);
        out.len()
    }

    /// Appends the request that submits job `number`.
    pub(crate) fn encode_add(&self, wire: Wire, number: u64, out: &mut Vec<u8>) {
        let [workq, beanstalkd, gearman, gearman_foreground, api, batch, lightjq, jobq] =
            &self.add_parts;
        let parts = match wire {
            Wire::Workq | Wire::Frames(_) => workq,
            Wire::Beanstalkd => beanstalkd,
            Wire::Gearman => gearman,
            Wire::GearmanForeground => gearman_foreground,
            Wire::Http(Submits::Api) => api,
            Wire::Http(Submits::Batch) => batch,
            Wire::Http(Submits::Lightjq) => lightjq,
            Wire::Http(Submits::JobqCreate) => jobq,
            Wire::Http(Submits::JobqState) => return encode_state(number, out),
        };
        out.extend_from_slice(&parts.head);
        if matches!(wire, Wire::Workq | Wire::Frames(_)) {
            out.extend_from_slice(&self.id(number));
        }
        out.extend_from_slice(&parts.tail);
        match wire {
            Wire::Http(Submits::Api | Submits::JobqCreate) => self.put_letters(number, out),
            Wire::Http(Submits::Batch) => {
                for place in 0..BATCH_JOBS as u64 {
                    if place > 0 {
                        out.extend_from_slice(&self.between);
                    }
                    self.put_letters(number * BATCH_JOBS as u64 + place, out);
                }
            }
            _ => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(self.filling(number));
            }
        }
        out.extend_from_slice(parts.end);
    }

    /// A payload that is text: the job's number, and letters.
    fn put_letters(&self, number: u64, out: &mut Vec<u8>) {
        let digits =
            (0..NUMBER_LETTERS).rev().map(|at| LETTERS[(number >> (at * 4)) as usize & 15]);
        out.extend(digits);
        let window = self.window(number, self.payload_bytes - NUMBER_LETTERS);
        out.extend_from_slice(&self.letters[window]);
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
        (filling == self.filling(number)).then_some(number)
    }

    /// The window of the pool that fills up the payload of job `number`.
    fn filling(&self, number: u64) -> &[u8] {
        &self.pool[self.window(number, self.payload_bytes - NUMBER_BYTES)]
    }

    fn window(&self, number: u64, bytes: usize) -> std::ops::Range<usize> {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let from = spread as usize % (self.pool.len() - bytes);
        from..from + bytes
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
        let jobs = Jobs::seeded(7, 16);
        let ids: HashSet<_> = (0..10_000).map(|number| jobs.id(number)).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let text = String::from_utf8(id.to_vec()).unwrap();
            assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            assert_eq!(&text[14..15], "4");
            assert_eq!(&text[19..20], "8");
        }
        assert_ne!(jobs.id(1), Jobs::seeded(9, 16).id(1));
    }

    #[test]
    fn payloads_are_distinct_and_recognised() {
        let jobs = Jobs::seeded(7, 256);
        let mut seen = HashSet::new();
        for number in 0..5_000 {
            let mut out = vec![];
            jobs.encode_add(Wire::Workq, number, &mut out);
            assert_eq!(out.len(), jobs.add_bytes(Wire::Workq));
            let payload = &out[out.len() - 258..out.len() - 2];
            assert_eq!(jobs.recognise(payload), Some(number));
            assert!(seen.insert(payload[NUMBER_BYTES..40].to_vec()), "same bytes for {number}");
        }
    }

    #[test]
    fn a_changed_byte_is_not_recognised() {
        let jobs = Jobs::seeded(7, 64);
        let mut out = vec![];
        jobs.encode_add(Wire::Beanstalkd, 3, &mut out);
        assert!(out.starts_with(b"put 0 0 60 64\r\n"));
        let mut payload = out[out.len() - 66..out.len() - 2].to_vec();
        assert_eq!(jobs.recognise(&payload), Some(3));
        payload[40] ^= 1;
        assert_eq!(jobs.recognise(&payload), None);
        assert_eq!(jobs.recognise(b"short"), None);
    }
}
