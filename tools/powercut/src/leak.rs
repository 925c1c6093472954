//! Which unsynced bytes reach the disk anyway.

/// Disks keep or lose whole sectors.
const SECTOR_BYTES: u64 = 512;

/// A seeded choice of parts of writes.
pub(crate) struct Leak {
    state: u64,
}

impl Leak {
    pub(crate) fn new(seed: u64) -> Self {
        // An xorshift generator never leaves zero, so the seed is made odd.
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// The part of `start..end` that the disk keeps: nothing for three writes of four, else whole
    /// sectors from a random one on, never past `durable_len` (a leak does not make files grow).
    pub(crate) fn part(&mut self, start: u64, end: u64, durable_len: u64) -> Option<(u64, u64)> {
        let end = end.min(durable_len);
        if start >= end || !self.next().is_multiple_of(4) {
            return None;
        }
        let (first, last) = (start / SECTOR_BYTES, (end - 1) / SECTOR_BYTES);
        let from = first + self.next() % (last - first + 1);
        let to = from + 1 + self.next() % (last - from + 1);
        Some(((from * SECTOR_BYTES).max(start), (to * SECTOR_BYTES).min(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_stays_inside_the_write_and_the_durable_size() {
        let mut leak = Leak::new(7);
        let mut seen = 0;
        for _ in 0..1_000 {
            if let Some((from, to)) = leak.part(700, 9_000, 5_000) {
                assert!(700 <= from && from < to && to <= 5_000, "{from}..{to}");
                seen += 1;
            }
        }
        assert!((100..500).contains(&seen), "{seen} of 1000 writes leaked");
        assert_eq!(leak.part(6_000, 9_000, 5_000), None);
    }
}
