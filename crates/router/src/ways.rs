//! What a router session has instead of an engine: ways to shards.

use std::sync::Arc;

use bytes::Bytes;
use spindle_engine::door::{ConnectionId, Delivery, Mailbox, Peer, Ticket};
use spindle_engine::{Answer, Gate, Gated};

use crate::Shard;

/// A connection of one client to one shard's door.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Way {
    /// The shard.
    pub shard: Shard,
    /// Which of the client's connections to that shard it is, for protocols in which a connection that waits
    /// can do nothing else.
    pub lane: u8,
}

impl Way {
    /// The client's first connection to a shard.
    #[must_use]
    pub fn to(shard: Shard) -> Way {
        Way { shard, lane: 0 }
    }
}

/// What came on a way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// The next bytes that the shard's door has sent.
    Bytes(Bytes),
    /// The way has ended: the door has closed it, the leader is gone, or nobody led the shard for too long.
    /// The shard may or may not have read bytes sent before. A later send opens a new way.
    Ended,
}

/// One client's ways to shards. Nothing here waits.
pub trait Ways: Send {
    /// Sends bytes on a way, behind those sent before. A way that is not open is opened, to the shard's leader;
    /// if there is none, it is waited for some seconds.
    fn send(&mut self, way: Way, bytes: Bytes);

    /// Bytes on all ways that were sent and have not left yet: above some limit the session takes no
    /// more requests until it is woken.
    fn unsent_bytes(&self) -> usize;

    /// Sends no more on a way: its door hears the end of input, and what it still answers is received.
    fn finish(&mut self, way: Way);

    /// Closes a way. Nothing more comes on it; a later send opens a new one.
    fn close(&mut self, way: Way);

    /// What has come next, on any way; none if nothing has. The session is woken when there is something
    /// again, and when `unsent_bytes` has fallen.
    fn receive(&mut self) -> Option<(Way, Came)>;

    /// Wakes the session in a moment in any case: for a session that can take no more now, because its
    /// client has yet to read what it was sent.
    fn wake_later(&mut self);
}

/// Opens ways.
pub trait Network: Send + Sync {
    /// The ways of one client that came to a door. `wake` wakes its session.
    fn ways(&self, door: &'static str, client: &Peer, wake: Wake) -> Box<dyn Ways>;
}

/// Wakes a router session: it is called as for an answer to [`Wake::TICKET`].
#[derive(Clone)]
pub struct Wake {
    connection: ConnectionId,
    mailbox: Arc<dyn Mailbox>,
}

impl Wake {
    /// The ticket by which a session knows that it was woken. Wakes are not counted: one may stand for
    /// several reasons, or there may be nothing to receive.
    pub const TICKET: Ticket = Ticket(0);

    /// What wakes the session of this connection.
    #[must_use]
    pub fn new(connection: ConnectionId, mailbox: &Arc<dyn Mailbox>) -> Wake {
        Wake { connection, mailbox: Arc::clone(mailbox) }
    }

    /// Wakes it.
    pub fn wake(&self) {
        let answer = Gated::new(Answer::Room, Gate::OPEN);
        let (connection, ticket) = (self.connection, Wake::TICKET);
        self.mailbox.deliver(Delivery { connection, ticket, answer });
    }
}
