//! What a connection holds for its client, counted against the budgets of all.

use std::sync::Arc;

use bytes::BytesMut;
use spindle_budget::{Account, FREE_BYTES, Kind};
use spindle_engine::door::{ConnectionId, Unread};
use tracing::debug;

use crate::connection::{Connection, Stage, TurnBuffers};

/// How much of the budgets a connection has.
pub(crate) struct Held {
    input: Account,
    output: Account,
    /// Bytes of input that the session took in its last call, if it has not gone on since: they may hold a
    /// request that waits for room.
    pub(crate) in_hand: usize,
}

impl Held {
    pub(crate) fn new(id: ConnectionId, buffers: &TurnBuffers) -> Held {
        let budgets = &buffers.shared.budgets;
        Held {
            input: budgets.input.open(Arc::clone(&buffers.holder), id.0),
            output: budgets.output.open(Arc::clone(&buffers.holder), id.0),
            in_hand: 0,
        }
    }
}

impl Connection {
    /// Tells the budgets what it holds. Called whenever that may have changed: for a connection with
    /// nothing unfinished and little unread, it is a few comparisons.
    pub(crate) fn count_held(&mut self) {
        self.held.input.set(self.input_bytes());
        self.held.output.set(self.out.reserved_bytes());
    }

    fn input_bytes(&self) -> usize {
        let in_hand = if self.stage == Stage::Waiting { self.held.in_hand } else { 0 };
        self.input.capacity() + in_hand
    }

    /// This connection held the most when a budget was exceeded. A client that is sending a request gets
    /// an error first; a client that does not read would not read that either. A connection that holds
    /// little by now stays open.
    pub(crate) fn let_go(&mut self, kind: Kind, buffers: &TurnBuffers) {
        let bytes = match kind {
            Kind::Input => self.input_bytes(),
            Kind::Output => self.out.reserved_bytes(),
        };
        if bytes <= FREE_BYTES {
            // Dropping the old accounts takes their bytes off the budgets.
            let in_hand = self.held.in_hand;
            self.held = Held { in_hand, ..Held::new(self.id, buffers) };
            return self.count_held();
        }
        let door = &buffers.shared.doors[self.door].door;
        debug!(
            door = door.name(), connection = self.id.0, peer = %self.peer, budget = kind.name(),
            "closed the client that held the most"
        );
        let is_told = kind == Kind::Input
            && self.stage == Stage::Reading
            && !self.input.is_empty()
            && self.out.pending_bytes() <= FREE_BYTES;
        if !is_told {
            return self.kill();
        }
        let input = std::mem::take(&mut self.input);
        self.out.put(|bytes| door.refuse(Unread::TooMuch, &input, bytes));
        self.stage = Stage::Closing;
    }

    /// Lets go of memory that has not been used since the sweep before the last one.
    pub(crate) fn shrink_if_idle(&mut self, now: u64) {
        let used_at = self.last_read_at.max(self.last_write_at);
        if now > used_at + 1 && self.out.reserved_bytes() > 2 * self.out.pending_bytes() {
            self.out.shrink();
            self.count_held();
        }
    }
}

/// Copies the input that a session has left to memory of its own, if it is the smaller part: otherwise a
/// few bytes of the next request would keep the memory of a large one.
pub(crate) fn own_rest(input: &mut BytesMut, taken: usize) {
    if taken > input.len().max(FREE_BYTES) {
        *input = BytesMut::from(&**input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bytes_do_not_keep_the_memory_of_a_large_request() {
        let with_rest = |rest: usize| {
            let mut input = BytesMut::from(&*vec![7; 100_000 + rest]);
            drop(input.split_to(100_000).freeze());
            own_rest(&mut input, 100_000);
            assert_eq!(input, vec![7; rest]);
            input
        };
        assert!(!with_rest(99_999).try_reclaim(100_000));
        // Copying the larger part would cost more than it gives back.
        assert!(with_rest(100_000).try_reclaim(100_000));
    }
}
