//! Accepts connections for the reactors.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use crate::counters::NetCounters;

/// One of the `connections_max` permits for an open connection. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit {
    counters: Arc<NetCounters>,
}

impl Permit {
    fn acquire(counters: &Arc<NetCounters>, places_max: usize) -> Option<Permit> {
        let claimed = counters.open.try_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < places_max).then_some(open + 1)
        });
        claimed.ok().map(|_| Permit { counters: Arc::clone(counters) })
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
    listeners: Vec<TcpListener>,
    counters: Arc<NetCounters>,
    connections_max: usize,
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
        listeners: Vec<TcpListener>,
        counters: Arc<NetCounters>,
        connections_max: usize,
    ) -> Acceptor {
        Acceptor { listeners, counters, connections_max, paused: false, failing: false, refused: 0 }
    }

    /// The next connection of any door; `None` when none waits (the listeners wake us then).
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let mut door = 0;
        while !self.paused {
            let listener = self.listeners.get(door)?;
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => door += 1,
                Ok((stream, peer)) => {
                    self.failing = false;
                    match Permit::acquire(&self.counters, self.connections_max) {
                        Some(permit) => {
                            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                            return Some(Arrival { door, stream, peer, permit });
                        }
                        None => self.refuse(stream, peer),
                    }
                }
                Err(error) => self.note_failure(&error),
            }
        }
        None
    }

    fn refuse(&mut self, stream: TcpStream, peer: SocketAddr) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        drop(stream);
        if self.refused == 0 {
            let max = self.connections_max;
            warn!(%peer, max, "connection refused: all places are taken");
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
            info!(count = self.refused, "connections refused: all places are taken");
        }
        self.refused = 0;
        mem::take(&mut self.paused)
    }

    /// Closes the listeners; what the system has queued for them is reset.
    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
    }
}
