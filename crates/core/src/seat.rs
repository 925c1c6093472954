//! Which of a cluster's logs one is.

use std::fmt;

/// The place of one log among all that make a cluster. It is written down when a server first begins on the
/// log, and never changes: where queues are, and what ids say, depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    /// Its number, from 0.
    pub shard: u8,
    /// How many there are.
    pub shards: u8,
}

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
