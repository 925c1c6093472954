//! Sessions of a TCP door, without sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_engine::{ConnectionId, Door, Engine, Mailbox, Peer, Session};

use crate::Letters;

/// A door for which a test plays the reactor: the test opens sessions, gives them bytes, hands them
/// their deliveries, and sends what their outboxes release.
pub struct Sessions<D> {
    /// The engine behind the door.
    pub engine: Engine,
    /// The door.
    pub door: D,
    /// What the engine has delivered for the sessions.
    pub letters: Arc<Letters>,
    opened: AtomicU64,
}

impl<D: Door> Sessions<D> {
    /// A door at an engine.
    pub fn new(engine: &Engine, door: D) -> Sessions<D> {
        let letters = Arc::new(Letters::default());
        engine.attach(&(letters.clone() as Arc<dyn Mailbox>));
        Sessions { engine: engine.clone(), door, letters, opened: AtomicU64::new(0) }
    }

    /// A session for a new connection, and the connection's number, which counts from 1.
    pub fn open(&self) -> (ConnectionId, Box<dyn Session>) {
        let id = ConnectionId(self.opened.fetch_add(1, Ordering::SeqCst) + 1);
        let mailbox = self.letters.clone() as Arc<dyn Mailbox>;
        let peer = Peer::plain(([127, 0, 0, 1], 1).into());
        (id, self.door.open(id, &peer, &mailbox))
    }
}
