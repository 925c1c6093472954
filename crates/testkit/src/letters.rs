//! A mailbox that a test reads.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use spindle_engine::{ConnectionId, Delivery, Mailbox};

/// What the engine has delivered and nobody has looked at yet, for all connections of a test.
#[derive(Default)]
pub struct Letters {
    deliveries: Mutex<Vec<Delivery>>,
    durable_moves: AtomicU64,
}

impl Letters {
    /// Takes everything that was delivered since the last look, in order.
    pub fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.deliveries.lock())
    }

    /// Takes what was delivered for one connection since the last look, in order.
    pub fn take_for(&self, connection: ConnectionId) -> Vec<Delivery> {
        self.deliveries.lock().extract_if(.., |letter| letter.connection == connection).collect()
    }

    /// How often the engine has said that more is durable.
    pub fn durable_moves(&self) -> u64 {
        self.durable_moves.load(Ordering::SeqCst)
    }
}

impl Mailbox for Letters {
    fn deliver(&self, delivery: Delivery) {
        self.deliveries.lock().push(delivery);
    }

    fn durable_moved(&self) {
        self.durable_moves.fetch_add(1, Ordering::SeqCst);
    }
}
