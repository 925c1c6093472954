//! Which of a cluster's logs one is.

use std::fmt;

use crate::rendezvous::first;

/// The place of one log among all that make a cluster. It is written down when a server first begins on the
/// log, and never changes: where queues are, and what ids say, depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    /// Its number, from 0.
    pub shard: u8,
    /// How many there are.
    pub shards: u8,
}

impl Seat {
    /// The shard that a queue is on. By rendezvous hashing, so that a cluster of one shard more takes over its
    /// share of the queues, and no queue moves between others.
    #[must_use]
    pub fn shard_of(self, queue: &[u8]) -> u8 {
        if queue == JOBQ_QUEUE {
            return 0;
        }
        let shard = first(queue, 0..u64::from(self.shards));
        shard.and_then(|shard| u8::try_from(shard).ok()).unwrap_or_default()
    }
}

/// The queue of Jobq's jobs whose creator names none. Jobq's queries are about the first shard's jobs.
pub const JOBQ_QUEUE: &[u8] = b"jobq";

impl Default for Seat {
    /// The only one.
    fn default() -> Seat {
        Seat { shard: 0, shards: 1 }
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shards {
            1 => f.write_str("a log without shards"),
            shards => write!(f, "shard {} of {shards}, counted from 0", self.shard),
        }
    }
}
