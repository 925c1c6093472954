//! Which shard a queue is on.

use crate::Shard;

/// Where each queue is: the same at every node, and after every restart.
///
/// By rendezvous hashing: each shard draws a score for the queue's name, and the highest has it. So a
/// cluster with one shard more takes over its share of the queues, and no queue moves between others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    shards: u8,
}

impl Placement {
    /// Queues on so many shards; at least one.
    #[must_use]
    pub fn over(shards: u8) -> Placement {
        Placement { shards: shards.max(1) }
    }

    /// The shard that a queue is on.
    #[must_use]
    pub fn of(self, queue: &[u8]) -> Shard {
        let name = hashed(queue);
        // Of equal scores the lower shard's counts, so that the answer is one.
        let best = self.shards().max_by_key(|shard| {
            let score = mixed(name ^ mixed(u64::from(shard.0)));
            (score, std::cmp::Reverse(*shard))
        });
        best.unwrap_or(Shard::FIRST)
    }

    /// All shards, by number.
    pub fn shards(self) -> impl Iterator<Item = Shard> + Clone {
        (0..self.shards).map(Shard)
    }

    /// Whether there is such a shard.
    #[must_use]
    pub fn has(self, shard: Shard) -> bool {
        shard.0 < self.shards
    }
}

/// FNV-1a, 64 bits. Nodes of all versions have to agree: it never changes.
fn hashed(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64: each bit of what comes out depends on each bit of what went in.
pub(crate) fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_spread_evenly() {
        let placement = Placement::over(4);
        let mut on = [0_u32; 4];
        for number in 0..4_000 {
            on[usize::from(placement.of(format!("queue-{number}").as_bytes()).0)] += 1;
        }
        assert!(on.iter().all(|count| count.abs_diff(1_000) < 120), "{on:?}");
    }

    #[test]
    fn one_shard_more_takes_queues_and_moves_none_between_others() {
        let (four, five) = (Placement::over(4), Placement::over(5));
        let mut moved = 0;
        for number in 0..5_000 {
            let name = format!("queue-{number}").into_bytes();
            if four.of(&name) != five.of(&name) {
                assert_eq!(five.of(&name), Shard(4));
                moved += 1;
            }
        }
        assert!((850..1_150).contains(&moved), "{moved}");
    }

    #[test]
    fn where_a_queue_is_never_changes() {
        let placed = ["mail", "", "reports.daily", "\u{1F9F5}", "a"];
        let on = placed.map(|queue| Placement::over(8).of(queue.as_bytes()).0);
        assert_eq!(on, [0, 4, 2, 2, 5]);
    }
}
