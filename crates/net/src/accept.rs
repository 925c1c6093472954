//! Accepts connections for the reactors.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::{TcpListener, TcpStream};
use spindle_engine::door::Peer;
use spindle_limits::{DoorPlaces, Place};
use tracing::warn;

use crate::counters::NetCounters;

/// Counts an open connection, and holds its place. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct Permit {
    counters: Arc<NetCounters>,
    _place: Place,
}

impl Permit {
    pub(crate) fn new(counters: &Arc<NetCounters>, place: Place) -> Permit {
        counters.open.fetch_add(1, Ordering::Relaxed);
        Permit { counters: Arc::clone(counters), _place: place }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) door: usize,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// The client, if it is known already: then its TLS has ended elsewhere, and plain bytes come.
    pub(crate) known: Option<Peer>,
    pub(crate) permit: Permit,
}

/// What came of looking for a connection.
pub(crate) enum Accepted {
    One(Arrival),
    /// One that was refused, or had gone: there may be another.
    Nobody,
    /// No connection waits: an event of the listeners or a sweep wakes the reactor.
    Nothing,
}

/// The listeners of all doors, in the reactor that accepts.
pub(crate) struct Acceptor {
    listeners: Vec<(usize, TcpListener, DoorPlaces)>,
    counters: Arc<NetCounters>,
    /// The listener to look at next: in turn, so that a flood at one leaves the others theirs.
    next: usize,
    /// Accepting failed: wait for the next sweep, because no event will come.
    paused: bool,
    /// Accepting failed last time, which was logged.
    failing: bool,
}

impl Acceptor {
    /// Each listener with the number of its door, and that door's places.
    pub(crate) fn new(
        listeners: Vec<(usize, TcpListener, DoorPlaces)>,
        counters: Arc<NetCounters>,
    ) -> Acceptor {
        Acceptor { listeners, counters, next: 0, paused: false, failing: false }
    }

    /// The next connection of any door.
    pub(crate) fn next(&mut self) -> Accepted {
        let count = self.listeners.len();
        for _ in 0..count {
            if self.paused {
                break;
            }
            let at = self.next;
            self.next = (at + 1) % count;
            let (door, listener, places) = &self.listeners[at];
            let door = *door;
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.note_failure(&error);
                    return Accepted::Nobody;
                }
                Ok((stream, peer)) => {
                    self.failing = false;
                    let Ok(place) = places.take(peer) else {
                        self.counters.refused.fetch_add(1, Ordering::Relaxed);
                        return Accepted::Nobody;
                    };
                    self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                    let permit = Permit::new(&self.counters, place);
                    return Accepted::One(Arrival { door, stream, peer, known: None, permit });
                }
            }
        }
        Accepted::Nothing
    }

    fn note_failure(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return;
        }
        if !self.failing {
            warn!(%error, "cannot accept connections; trying again until it works");
        }
        self.failing = true;
        self.paused = true;
    }

    /// Called once per sweep. Returns whether to try to accept again.
    pub(crate) fn sweep(&mut self) -> bool {
        mem::take(&mut self.paused)
    }

    /// Closes the listeners; what the system has queued for them is reset.
    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
    }
}
