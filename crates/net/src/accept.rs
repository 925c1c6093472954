//! Takes up connections and deals them out to the reactors.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use crate::counters::NetCounters;

/// A connection's place among `connections_max`, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    counters: Arc<NetCounters>,
}

impl Place {
    fn claim(counters: &Arc<NetCounters>, places_max: usize) -> Option<Place> {
        let claimed = counters.open.try_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
            (open < places_max).then_some(open + 1)
        });
        claimed.ok().map(|_| Place { counters: Arc::clone(counters) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that was taken up.
pub(crate) struct Arrival {
    pub(crate) door: usize,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) place: Place,
}

/// The listeners of all doors, in the reactor that accepts.
pub(crate) struct Acceptor {
    listeners: Vec<TcpListener>,
    waker: Waker,
    counters: Arc<NetCounters>,
    connections_max: usize,
    /// The system gave no descriptor: wait for the next sweep, the event will not come again.
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
        waker: Waker,
        counters: Arc<NetCounters>,
        connections_max: usize,
    ) -> Acceptor {
        Acceptor {
            listeners,
            waker,
            counters,
            connections_max,
            paused: false,
            failing: false,
            refused: 0,
        }
    }

    /// The next connection of any door; `None` when none waits (the listeners wake us then).
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let mut door = 0;
        while !self.paused {
            let listener = self.listeners.get(door)?;
            match listener.poll_accept(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => door += 1,
                Poll::Ready(Ok((stream, peer))) => {
                    self.failing = false;
                    match Place::claim(&self.counters, self.connections_max) {
                        Some(place) => {
                            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                            return Some(Arrival { door, stream, peer, place });
                        }
                        None => self.refuse(stream, peer),
                    }
                }
                Poll::Ready(Err(error)) => self.note_failure(&error),
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

    /// Once per sweep: reports; whether accepting is to be tried again.
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
