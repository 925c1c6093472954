//! Where the queues are that a person has moved to another shard.
//!
//! A queue is on the shard that its name says ([`Seat::shard_of`]) until it is
//! moved. A **map** in the first shard's log says where moved queues are ([`Placed`]). What a shard does
//! about a move is in its own log ([`Known`]): no decision looks into another log. Jobs never move; only new
//! jobs go to another shard. So a job's id says where it is for as long as it lives.
//!
//! A move takes steps in several logs, and the leader of each shard does that shard's part:
//!
//! 1. A person moves the queue: the map gets a new version of its place, and names the shard that is to
//!    *drain*.
//! 2. That shard learns of it, and *offers* the queue: it goes on as before, but the queue's settings can no
//!    longer change, and are part of the offer.
//! 3. The shard that the queue moves to takes over the settings. It is *open*: it takes jobs.
//! 4. Only then is the shard that offers it *sealed*: it takes no new jobs, and any job that it refuses is
//!    taken by the other shard. The jobs that it has are worked there; their names stay taken.
//! 5. A sealed shard that has nothing of the queue any more *leaves* it, and the map no longer lists it as
//!    draining: the queue has moved. Only then can it be moved again.
//!
//! A submit goes first to the shard that drains, and to the shard that the queue moves to only if the
//! first refuses it because of the queue's place. So no name is taken on both.

use bytes::Bytes;

use crate::queue::QueueSettings;
use crate::seat::Seat;

/// Most queues whose place the map has.
pub const PLACED_MAX: usize = 1_000;

/// The place of a moved queue, in the map.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Placed {
    /// Which queue.
    #[prost(bytes = "bytes", tag = "1")]
    pub queue: Bytes,
    /// The number of this move among all moves.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The shard that takes its jobs.
    #[prost(uint32, tag = "3")]
    pub shard: u32,
    /// The shard that it was on before, as long as that may have jobs of it.
    #[prost(uint32, optional, tag = "4")]
    pub drains: Option<u32>,
}

/// What one shard knows of the place of a queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Known {
    /// Which queue.
    #[prost(bytes = "bytes", tag = "1")]
    pub queue: Bytes,
    /// The move that it knows of.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The shard that takes its jobs.
    #[prost(uint32, tag = "3")]
    pub shard: u32,
    /// How far it is with the move.
    #[prost(enumeration = "Stage", tag = "4")]
    pub stage: i32,
    /// The queue's settings, where it is offered.
    #[prost(message, optional, tag = "5")]
    pub settings: Option<QueueSettings>,
}

/// How far a shard is with a queue that moves or has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Stage {
    /// The queue is here.
    Open = 0,
    /// It is to move away: its jobs are taken, its settings stay as they are.
    Offered = 1,
    /// It takes no new jobs; those that are here are worked here.
    Sealed = 2,
    /// There is nothing of it here.
    Left = 3,
}

/// What a log knows about places. The map is empty on all but the first shard.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Places {
    /// How many moves there have been.
    #[prost(uint64, tag = "1")]
    pub moves: u64,
    /// The map, in the order of the queues' names.
    #[prost(message, repeated, tag = "2")]
    pub map: Vec<Placed>,
    /// What this shard knows, in the order of the queues' names.
    #[prost(message, repeated, tag = "3")]
    pub known: Vec<Known>,
}

impl Places {
    /// Where the map has a queue; none if it has never moved.
    #[must_use]
    pub fn placed(&self, queue: &[u8]) -> Option<&Placed> {
        let at = self.map.binary_search_by(|it| it.queue[..].cmp(queue)).ok()?;
        self.map.get(at)
    }

    /// What this shard knows of a queue.
    #[must_use]
    pub fn known(&self, queue: &[u8]) -> Option<&Known> {
        let at = self.known.binary_search_by(|it| it.queue[..].cmp(queue)).ok()?;
        self.known.get(at)
    }

    /// Changes the map. A queue that is only where its name says is not on it.
    pub(crate) fn place(&mut self, placed: &Placed, seat: Seat) {
        self.moves = self.moves.max(placed.version);
        let is_home = u32::from(seat.shard_of(&placed.queue)) == placed.shard;
        let goes = is_home && placed.drains.is_none();
        match self.map.binary_search_by(|it| it.queue.cmp(&placed.queue)) {
            Ok(at) if goes => drop(self.map.remove(at)),
            Ok(at) => self.map[at] = placed.clone(),
            Err(_) if goes => {}
            Err(at) => self.map.insert(at, placed.clone()),
        }
    }

    pub(crate) fn note(&mut self, known: &Known) {
        match self.known.binary_search_by(|it| it.queue.cmp(&known.queue)) {
            Ok(at) => self.known[at] = known.clone(),
            Err(at) => self.known.insert(at, known.clone()),
        }
    }
}
