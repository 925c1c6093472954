//! Which shard a queue is on.

use spindle_core::rendezvous::score;

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
        if queue == OF_JOBQ {
            return Shard::FIRST;
        }
        // Of equal scores the lower shard's counts, so that the answer is one.
        let best = self
            .shards()
            .max_by_key(|shard| (score(queue, u64::from(shard.0)), std::cmp::Reverse(*shard)));
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

/// The queue of Jobq's jobs whose creator names none. Jobq's queries are about the first shard's jobs.
const OF_JOBQ: &[u8] = b"jobq";

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
