//! The connections of one reactor, by id.

use mio::Token;
use spindle_engine::door::ConnectionId;

use crate::connection::Connection;

/// A table of connections. An id consists of slot, reactor and a serial number: so a connection is found
/// without a search, and the id of a connection that is gone finds nothing.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    reactor: u64,
    serial: u32,
}

const SLOT_BITS: u32 = 24;
const REACTOR_BITS: u32 = 8;

impl Connections {
    pub(crate) fn new(reactor: usize) -> Connections {
        Connections { reactor: reactor as u64, ..Connections::default() }
    }

    /// Adds what `open` makes for the new id.
    pub(crate) fn insert(&mut self, open: impl FnOnce(ConnectionId) -> Connection) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.serial = self.serial.wrapping_add(1);
        let reactor = self.reactor << SLOT_BITS;
        let serial = u64::from(self.serial) << (SLOT_BITS + REACTOR_BITS);
        let id = ConnectionId(serial | reactor | slot as u64);
        if let Some(free) = self.slots.get_mut(slot) {
            *free = Some(open(id));
        }
        id
    }

    pub(crate) fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slots.get_mut(slot_of(id))?.as_mut().filter(|connection| connection.id == id)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let slot = slot_of(id);
        let gone = self.slots.get_mut(slot)?.take_if(|connection| connection.id == id)?;
        self.free.push(slot);
        Some(gone)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().flatten()
    }
}

/// What a connection's socket is registered with.
pub(crate) fn token_of(id: ConnectionId) -> Token {
    const { assert!(usize::BITS == u64::BITS, "a token holds a connection's whole id") };
    Token(id.0 as usize)
}

/// The connection that a socket's token names.
pub(crate) fn connection_of(token: Token) -> ConnectionId {
    ConnectionId(token.0 as u64)
}

fn slot_of(id: ConnectionId) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}
