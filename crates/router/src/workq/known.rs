//! Where the jobs are that a session has used.

use std::collections::{HashMap, VecDeque};

use spindle_workq::wire::Uuid;

use crate::Shard;

/// The most jobs that are remembered.
const KNOWN_MAX: usize = 1024;

/// The shards of the jobs that a session added, leased or asked for last.
#[derive(Default)]
pub(super) struct Known {
    shards: HashMap<Uuid, Shard>,
    /// Oldest first.
    order: VecDeque<Uuid>,
}

impl Known {
    /// The shard that a job is on.
    pub(super) fn shard_of(&self, id: Uuid) -> Option<Shard> {
        self.shards.get(&id).copied()
    }

    /// The job is on this shard.
    pub(super) fn note(&mut self, id: Uuid, shard: Shard) {
        if self.shards.insert(id, shard).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.shards.remove(&oldest);
        }
    }

    /// The job is not where it was: it may be anywhere.
    pub(super) fn forget(&mut self, id: Uuid) {
        if self.shards.remove(&id).is_some() {
            self.order.retain(|known| *known != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_jobs_are_remembered_the_last_ones() {
        let mut known = Known::default();
        let id = |number: usize| Uuid::from_bytes((number as u128).to_be_bytes());
        for number in 0..KNOWN_MAX + 2 {
            known.note(id(number), Shard(7));
            known.note(id(number), Shard(3));
        }
        assert_eq!((known.shard_of(id(1)), known.shard_of(id(2))), (None, Some(Shard(3))));
        assert_eq!((known.shards.len(), known.order.len()), (KNOWN_MAX, KNOWN_MAX));
        for _ in 0..2 * KNOWN_MAX {
            known.forget(id(5));
            known.note(id(5), Shard(1));
        }
        assert_eq!((known.shards.len(), known.order.len()), (KNOWN_MAX, KNOWN_MAX));
    }
}
