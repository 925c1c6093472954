//! Which shard a queue is on.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use spindle_core::seat::Seat;
use tokio::sync::watch;

use crate::Shard;

/// Where each queue is. Its name decides that, the same at every node and after every restart, unless it was
/// moved. The rule is the core's, which takes no job into a queue of another shard. Clones are the same
/// placement.
#[derive(Clone, Debug)]
pub struct Placement {
    shards: u8,
    moved: Arc<Moved>,
}

/// Where moved queues are, as far as this node knows.
#[derive(Default)]
struct Moved {
    queues: RwLock<HashMap<Bytes, Spread>>,
    /// Counts changes.
    version: watch::Sender<u64>,
}

/// Where a moved queue is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// The shard that it was on, as long as that shard may have jobs of it.
    pub drains: Option<Shard>,
    /// The shard that it moves or has moved to.
    pub to: Shard,
    /// Whether that shard takes its jobs.
    pub is_open: bool,
}

impl fmt::Debug for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.queues.read().iter()).finish()
    }
}

impl Placement {
    /// Queues on so many shards; at least one.
    #[must_use]
    pub fn over(shards: u8) -> Placement {
        Placement { shards: shards.max(1), moved: Arc::default() }
    }

    /// Sets where moved queues are, from now on. Returns whether anything has changed.
    pub fn set_moved(&self, queues: HashMap<Bytes, Spread>) -> bool {
        if *self.moved.queues.read() == queues {
            return false;
        }
        *self.moved.queues.write() = queues;
        self.moved.version.send_modify(|version| *version += 1);
        true
    }

    /// A number that changes whenever a queue's place changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        *self.moved.version.borrow()
    }

    /// Notifies of each change of queues' places, from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.moved.version.subscribe()
    }

    /// The shard that takes a queue's jobs, and has its settings.
    #[must_use]
    pub fn of(&self, queue: &[u8]) -> Shard {
        let takes =
            |spread: &Spread| spread.drains.filter(|_| !spread.is_open).unwrap_or(spread.to);
        self.if_moved(queue, takes).unwrap_or_else(|| self.home(queue))
    }

    /// All shards that may have jobs of a queue. A new job is offered to one after the other, in this order: so
    /// it cannot take a name that a job has on the shard which the queue is leaving.
    #[must_use]
    pub fn all_of(&self, queue: &[u8]) -> Vec<Shard> {
        let all = |spread: &Spread| spread.drains.into_iter().chain([spread.to]).collect();
        self.if_moved(queue, all).unwrap_or_else(|| vec![self.home(queue)])
    }

    /// The only shard that has jobs of a queue; none while it moves.
    #[must_use]
    pub fn only_of(&self, queue: &[u8]) -> Option<Shard> {
        let only = |spread: &Spread| spread.drains.is_none().then_some(spread.to);
        self.if_moved(queue, only).unwrap_or_else(|| Some(self.home(queue)))
    }

    fn if_moved<T>(&self, queue: &[u8], look: impl FnOnce(&Spread) -> T) -> Option<T> {
        // Before anything has moved, which is nearly always, nothing is locked.
        if self.version() == 0 {
            return None;
        }
        self.moved.queues.read().get(queue).map(look)
    }

    /// Where a queue is by its name.
    fn home(&self, queue: &[u8]) -> Shard {
        let first = Seat { shard: 0, shards: self.shards };
        Shard(first.shard_of(queue))
    }

    /// All shards, by number.
    pub fn shards(&self) -> impl Iterator<Item = Shard> + Clone + use<> {
        (0..self.shards).map(Shard)
    }

    /// Whether there is such a shard.
    #[must_use]
    pub fn has(&self, shard: Shard) -> bool {
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
    fn where_a_queue_is_by_its_name_never_changes() {
        let placed = ["mail", "", "reports.daily", "\u{1F9F5}", "a"];
        let on = placed.map(|queue| Placement::over(8).of(queue.as_bytes()).0);
        assert_eq!(on, [0, 4, 2, 2, 5]);
        assert!((1..=255).all(|shards| Placement::over(shards).of(b"jobq") == Shard::FIRST));
    }

    #[test]
    fn a_queue_that_moves_is_at_several_shards_and_then_at_one() {
        let placement = Placement::over(8);
        let clone = placement.clone();
        assert_eq!((clone.version(), clone.only_of(b"mail")), (0, Some(Shard(0))));
        let spread = |drains: Option<u8>, is_open| {
            let spread = Spread { drains: drains.map(Shard), to: Shard(3), is_open };
            HashMap::from([(Bytes::from_static(b"mail"), spread)])
        };
        assert!(placement.set_moved(spread(Some(0), false)));
        assert!(!placement.set_moved(spread(Some(0), false)));
        assert_eq!(
            (clone.version(), clone.of(b"mail"), clone.only_of(b"mail")),
            (1, Shard(0), None)
        );
        assert_eq!(clone.all_of(b"mail"), [0, 3].map(Shard));
        assert_eq!(clone.all_of(b"a"), [Shard(5)]);
        assert!(placement.set_moved(spread(Some(0), true)));
        assert_eq!(
            (clone.of(b"mail"), clone.all_of(b"mail")),
            (Shard(3), [0, 3].map(Shard).to_vec())
        );
        assert!(placement.set_moved(spread(None, true)));
        assert_eq!((clone.version(), clone.only_of(b"mail")), (3, Some(Shard(3))));
        assert!(placement.set_moved(HashMap::new()));
        assert_eq!(clone.all_of(b"mail"), [Shard(0)]);
    }
}
