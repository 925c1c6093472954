//! Accepts connections for the reactors.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use crate::counters::NetCounters;
use crate::places::{DoorPlaces, Place, Taken};

/// Counts an open connection, and holds its place. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct Permit {
    counters: Arc<NetCounters>,
    _place: Place,
}

impl Permit {
    fn new(counters: &Arc<NetCounters>, place: Place) -> Permit {
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
pub(crate) struct Arrival {
    pub(crate) door: usize,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) permit: Permit,
}

/// The listeners of all doors, in the reactor that accepts.
pub(crate) struct Acceptor {
    listeners: Vec<(TcpListener, DoorPlaces)>,
    counters: Arc<NetCounters>,
    /// Accepting failed: wait for the next sweep, because no event will come.
    paused: bool,
    /// Accepting failed last time, which was logged.
    failing: bool,
    /// Refused since the last sweep.
    refused: u64,
}

impl Acceptor {
    /// `listeners[n]` belongs to door `n`.
    pub(crate) fn new(
        listeners: Vec<(TcpListener, DoorPlaces)>,
        counters: Arc<NetCounters>,
    ) -> Acceptor {
        Acceptor { listeners, counters, paused: false, failing: false, refused: 0 }
    }

    /// The next connection of any door; `None` when none waits (the listeners wake us then).
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let mut door = 0;
        while !self.paused {
            let (listener, places) = self.listeners.get(door)?;
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => door += 1,
                Ok((stream, peer)) => {
                    self.failing = false;
                    match places.take(peer.ip()) {
                        Ok(place) => {
                            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                            let permit = Permit::new(&self.counters, place);
                            return Some(Arrival { door, stream, peer, permit });
                        }
                        Err(taken) => self.refuse(stream, peer, taken),
                    }
                }
                Err(error) => self.note_failure(&error),
            }
        }
        None
    }

    fn refuse(&mut self, stream: TcpStream, peer: SocketAddr, taken: Taken) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        drop(stream);
        if self.refused == 0 {
            warn!(%peer, "connection refused: {taken}");
        }
        self.refused += 1;
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

    /// Called once per sweep. Logs what was refused; returns whether to try to accept again.
    pub(crate) fn sweep(&mut self) -> bool {
        if self.refused > 1 {
            info!(count = self.refused, "connections refused: no place was left");
        }
        self.refused = 0;
        mem::take(&mut self.paused)
    }

    /// Closes the listeners; what the system has queued for them is reset.
    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
    }
}
