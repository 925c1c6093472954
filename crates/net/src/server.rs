//! Starts the reactors and ends them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Interest, Registry};
use parking_lot::{Condvar, Mutex};
use spindle_engine::door::{Committer, Mailbox, Peer};
use spindle_limits::{DoorPlaces, Taken};

use crate::accept::{Acceptor, Arrival, Permit};
use crate::bind::BoundDoor;
use crate::config::NetConfig;
use crate::counters::NetCounters;
use crate::inbox::{Command, poll_and_inbox};
use crate::reactor::{DoorEntry, LISTENERS, Reactor, Shared};
use crate::stand_in::Shift;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start serving")]
pub struct StartError {
    #[source]
    source: io::Error,
}

impl From<io::Error> for StartError {
    fn from(source: io::Error) -> StartError {
        StartError { source }
    }
}

/// Serves doors.
pub struct Server;

impl Server {
    /// Starts threads that serve the bound doors and commit what their sessions decide to the log.
    /// Every reactor has introduced itself ([`attach`](Committer::attach)) when this returns.
    pub fn start(
        committer: Arc<dyn Committer>,
        doors: Vec<BoundDoor>,
        config: NetConfig,
    ) -> Result<ServerHandle, StartError> {
        let reactors = config.reactors.clamp(1, REACTORS_MAX);
        let local_addrs = doors.iter().map(|b| (b.door.name(), b.local_addr())).collect();
        let mut entries = Vec::new();
        let mut listeners = Vec::new();
        for BoundDoor { door, listener, connections, tls, .. } in doors {
            listeners.extend(listener.map(|listener| (entries.len(), listener)));
            entries.push(DoorEntry { door, connections, tls });
        }
        let (polls, inboxes): (Vec<_>, Vec<_>) = (0..reactors)
            .map(|_| poll_and_inbox().map(|(poll, inbox)| (poll, Arc::new(inbox))))
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        for inbox in &inboxes {
            committer.attach(&(Arc::clone(inbox) as Arc<dyn Mailbox>));
        }
        let shared = Arc::new(Shared {
            committer,
            doors: entries,
            limits: config.limits,
            budgets: config.budgets,
            counters: Arc::default(),
            aborted: AtomicBool::new(false),
            inboxes,
        });
        let places: Vec<DoorPlaces> =
            shared.doors.iter().map(|entry| config.places.door(entry.door.name())).collect();
        let mut acceptor = Some(acceptor(&shared, polls[0].registry(), listeners, &places)?);
        // From here on the handle's drop ends what was started if something fails.
        let running = Arc::new(Running::default());
        let next_reactor = AtomicUsize::new(0);
        let handle = ServerHandle { shared, running, local_addrs, places, next_reactor };
        for (number, poll) in polls.into_iter().enumerate() {
            let reactor = Reactor::new(number, &handle.shared, poll, acceptor.take());
            let shift = Arc::new(Shift::new(reactor)?);
            let other = Arc::clone(&shift);
            handle.spawn(format!("spindle-net-{number}"), move || shift.serve())?;
            handle.spawn(format!("spindle-net-{number}b"), move || other.stand_in())?;
        }
        Ok(handle)
    }
}

/// The listeners, in the poll of the reactor that accepts.
fn acceptor(
    shared: &Shared,
    registry: &Registry,
    listeners: Vec<(usize, std::net::TcpListener)>,
    places: &[DoorPlaces],
) -> io::Result<Acceptor> {
    let mut accepting = Vec::new();
    for (door, listener) in listeners {
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, LISTENERS, Interest::READABLE)?;
        accepting.push((door, listener, places[door].clone()));
    }
    Ok(Acceptor::new(accepting, Arc::clone(&shared.counters)))
}

/// How many reactors run.
#[derive(Default)]
struct Running {
    reactors: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    /// Waits until no reactor runs; false when `deadline` came first.
    fn wait_until_none(&self, deadline: Option<Instant>) -> bool {
        let mut reactors = self.reactors.lock();
        while *reactors > 0 {
            match deadline {
                None => self.changed.wait(&mut reactors),
                Some(deadline) => {
                    if self.changed.wait_until(&mut reactors, deadline).timed_out() {
                        return *reactors == 0;
                    }
                }
            }
        }
        true
    }
}

/// Counts a reactor as running until it is dropped, however its thread ends.
struct Run(Arc<Running>);

impl Run {
    fn begin(running: &Arc<Running>) -> Run {
        *running.reactors.lock() += 1;
        Run(Arc::clone(running))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        *self.0.reactors.lock() -= 1;
        self.0.changed.notify_all();
    }
}

/// A running server. Dropping it aborts it. All methods may be called from any thread that is
/// not a reactor's.
pub struct ServerHandle {
    shared: Arc<Shared>,
    running: Arc<Running>,
    local_addrs: Vec<(&'static str, SocketAddr)>,
    /// By door.
    places: Vec<DoorPlaces>,
    /// The reactor that gets the next adopted connection.
    next_reactor: AtomicUsize,
}

/// Why a connection is not taken over. It is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdoptError {
    /// No door has that name.
    #[error("there is no such door")]
    NoDoor,
    /// There is no place for it.
    #[error(transparent)]
    NoPlace(#[from] Taken),
    /// The socket cannot be used.
    #[error("the socket cannot be used")]
    Socket,
}

impl ServerHandle {
    /// Serves a connection that somebody else has accepted, as if that door had, from this client:
    /// its limits, its TLS and what is written of it are the same. `stream` has been read up to where the
    /// client's own bytes begin.
    ///
    /// # Errors
    ///
    /// When it is not served: then it is closed.
    pub fn adopt(&self, door: &str, stream: TcpStream, peer: SocketAddr) -> Result<(), AdoptError> {
        self.adopt_one(door, stream, peer, None)
    }

    /// As [`ServerHandle::adopt`], for a client that is known already: its bytes come in plain, and any TLS
    /// it used has ended at the node that it came to.
    ///
    /// # Errors
    ///
    /// When it is not served: then it is closed.
    pub fn adopt_known(&self, door: &str, stream: TcpStream, peer: Peer) -> Result<(), AdoptError> {
        self.adopt_one(door, stream, peer.address, Some(peer))
    }

    fn adopt_one(
        &self,
        door: &str,
        stream: TcpStream,
        peer: SocketAddr,
        known: Option<Peer>,
    ) -> Result<(), AdoptError> {
        let number = self.shared.doors.iter().position(|entry| entry.door.name() == door);
        let door = number.ok_or(AdoptError::NoDoor)?;
        let counters = &self.shared.counters;
        let place = self.places[door].take(peer).inspect_err(|_| {
            counters.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        stream.set_nonblocking(true).map_err(|_| AdoptError::Socket)?;
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        let (stream, permit) =
            (mio::net::TcpStream::from_std(stream), Permit::new(counters, place));
        let inboxes = &self.shared.inboxes;
        let next = self.next_reactor.fetch_add(1, Ordering::Relaxed) % inboxes.len();
        inboxes[next].command(Command::Adopt(Arrival { door, stream, peer, known, permit }));
        Ok(())
    }

    /// Each door's name with the address it listens on.
    pub fn local_addrs(&self) -> &[(&'static str, SocketAddr)] {
        &self.local_addrs
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Arc<NetCounters> {
        &self.shared.counters
    }

    /// Closes the listeners. Open connections are served on. Does not wait.
    pub fn stop_accepting(&self) {
        self.broadcast(|| Command::StopAccepting);
    }

    /// Begins the orderly end: no new connections, every session hears of it (`on_shutdown(false)`),
    /// and each connection closes when its session has nothing under way and its answers have
    /// left. Does not wait.
    pub fn begin_shutdown(&self) {
        self.broadcast(|| Command::Shutdown { last: false });
    }

    /// Ends the server in order and waits for it, at most `timeout` (and the moment it takes to
    /// close what is left then: sessions hear `on_shutdown(true)`, and what is released is sent).
    /// True when nothing was left.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.begin_shutdown();
        let deadline = Instant::now().checked_add(timeout);
        let in_time = self.running.wait_until_none(deadline);
        if !in_time {
            self.broadcast(|| Command::Shutdown { last: true });
            self.running.wait_until_none(None);
        }
        in_time
    }

    /// Closes everything now, unanswered: for a log that failed. Does not wait, and may be called
    /// while [`shutdown`](ServerHandle::shutdown) waits, which then returns. A reactor finishes the
    /// write it is in the middle of, and begins no other.
    pub fn abort(&self) {
        self.shared.aborted.store(true, Ordering::SeqCst);
        self.broadcast(|| Command::Abort);
    }

    fn broadcast(&self, command: impl Fn() -> Command) {
        for inbox in &self.shared.inboxes {
            inbox.command(command());
        }
    }

    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let run = Run::begin(&self.running);
        thread::Builder::new().name(name).spawn(move || {
            let _run = run;
            body();
        })?;
        Ok(())
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.abort();
        self.running.wait_until_none(None);
    }
}

/// Connection ids keep room for this many.
const REACTORS_MAX: usize = 64;
