//! Which shard a queue is on.

use spindle_core::seat::Seat;

use crate::Shard;

/// Where each queue is: the same at every node, and after every restart. The rule is the core's, which takes
/// no job into a queue of another shard.
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
        let first = Seat { shard: 0, shards: self.shards };
        Shard(first.shard_of(queue))
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
        assert!((1..=255).all(|shards| Placement::over(shards).of(b"jobq") == Shard::FIRST));
    }
}
