//! The HTTP listener: bounded connections on several threads, an orderly end.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spindle_budget::Budgets;
use spindle_engine::{Committer, Peer};
use spindle_limits::Places;
use spindle_tls::ListenerTls;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};

use crate::large::give_way;
use crate::serving::{self, Arrival, OpenConnections, Server, Stage, turn_away};
use crate::site::Site;

/// How the listener serves.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Threads that own connections, at least 1. Default: as many as the reactors of the TCP doors.
    pub threads: usize,
    /// What a client may not exceed.
    pub limits: Limits,
    /// Budgets of the memory that all clients together make the server hold.
    pub budgets: Budgets,
    /// How many connections may be open; shared with the other listeners of the server.
    pub places: Places,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        let reactors = spindle_net::NetConfig::default().reactors;
        let (threads, limits) = (reactors, Limits::default());
        HttpConfig { threads, limits, budgets: Budgets::default(), places: Places::default() }
    }
}

/// Limits of the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A request's head comes whole within this time; a connection idles at most so long.
    pub head_time: Duration,
    /// A handshake of TLS ends within this time.
    pub handshake_time: Duration,
    /// The longest head of a request.
    pub head_bytes_max: usize,
    /// So many connections keep their buffers for as long as they are open. Further ones give them back when
    /// nothing was asked for a while, which costs a few percent of the rate.
    pub restless_max: usize,
    /// About how long that is.
    pub rest_time: Duration,
    /// The rest of a body that no handler has read is read for this time, and thrown away.
    pub unread_body_time: Duration,
    /// A client that takes no byte of its answers for this time loses its connection.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_time: Duration::from_secs(60),
            handshake_time: Duration::from_secs(10),
            head_bytes_max: 64 * 1024,
            restless_max: 1024,
            rest_time: Duration::from_millis(100),
            unread_body_time: Duration::from_secs(1),
            write_time: Duration::from_secs(60),
        }
    }
}

/// A claimed address. Clients can connect already; they wait until [`HttpListener::start`].
#[derive(Debug)]
pub struct HttpListener {
    /// None: it serves only the connections that it is given.
    listener: Option<TcpListener>,
    tls: ListenerTls,
    local_addr: SocketAddr,
}

/// Claims an address.
pub fn bind(addr: SocketAddr) -> io::Result<HttpListener> {
    let (listener, local_addr) = spindle_net::listen(addr)?;
    Ok(HttpListener { listener: Some(listener), tls: ListenerTls::Off, local_addr })
}

/// Takes an address that was claimed before: for a process that keeps it while it opens and closes its door.
pub fn bound(listener: TcpListener) -> io::Result<HttpListener> {
    let local_addr = listener.local_addr()?;
    Ok(HttpListener { listener: Some(listener), tls: ListenerTls::Off, local_addr })
}

/// A listener that listens nowhere: it serves the connections that it is given ([`Handle::adopt`]).
/// `local_addr` is the address that its clients have come to.
pub fn inner(local_addr: SocketAddr) -> HttpListener {
    HttpListener { listener: None, tls: ListenerTls::Off, local_addr }
}

impl HttpListener {
    /// The address claimed: with port 0 asked for, the port the system chose. Of one that listens nowhere,
    /// the address it was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The same with TLS; without this call, its connections are plain.
    pub fn with_tls(self, tls: ListenerTls) -> HttpListener {
        HttpListener { tls, ..self }
    }

    /// Serves a site on threads of their own. `committer` is the engine that its routes call.
    /// `connections` counts those that are open. Each request carries its [`Peer`](spindle_engine::Peer)
    /// as an extension.
    pub fn start(
        self,
        site: Site,
        committer: Arc<dyn Committer>,
        config: HttpConfig,
        connections: Arc<AtomicUsize>,
    ) -> io::Result<Handle> {
        let (stage, stages) = watch::channel(Stage::Serving);
        let (ending, ended) = channel::<()>();
        let HttpConfig { threads, limits, budgets, places } = config;
        let open = OpenConnections::new(places.door(DOOR), connections);
        let committer_of_all = Arc::clone(&committer);
        let server = Server {
            site,
            limits,
            budgets,
            tls: self.tls,
            stages,
            open,
            committer: committer_of_all,
        };
        // From here on an early return drops the handle, which ends the threads that are there.
        let mut handle = Handle {
            stage,
            ended: Mutex::new(ended),
            threads: Vec::new(),
            local_addr: self.local_addr,
            open: server.open.clone(),
            adopts: Vec::new(),
            next_thread: AtomicUsize::new(0),
        };
        let mut runtimes = Vec::new();
        let mut dealt = Vec::new();
        for _ in 0..threads.max(1) {
            let (sender, arrivals) = mpsc::unbounded_channel();
            handle.adopts.push(sender.downgrade());
            dealt.push(sender);
            let runtime =
                Builder::new_current_thread().enable_all().on_thread_start(give_way).build()?;
            runtimes.push((runtime, arrivals));
        }
        if let Some((first, _)) = runtimes.first() {
            let _inside = first.enter();
            let listener = self.listener.map(tokio::net::TcpListener::from_std).transpose()?;
            tokio::spawn(server.clone().accept(listener, dealt));
        }
        for (runtime, arrivals) in runtimes {
            let (server, committer) = (server.clone(), Arc::clone(&committer));
            let ending = ending.clone();
            let thread = std::thread::Builder::new().name("spindle-http".to_owned());
            handle.threads.push(thread.spawn(move || {
                // Nothing is sent on it: that it is dropped shows that the thread has ended.
                let _ending = ending;
                serving::serve(runtime, server, committer, arrivals);
            })?);
        }
        Ok(handle)
    }
}

/// The listener's name in settings, the log and the metrics.
const DOOR: &str = "http";

/// A listener at work. Dropping it aborts it.
pub struct Handle {
    stage: watch::Sender<Stage>,
    /// Disconnected once all threads have ended.
    ended: Mutex<Receiver<()>>,
    threads: Vec<JoinHandle<()>>,
    local_addr: SocketAddr,
    open: OpenConnections,
    /// The ways to the serving threads, for as long as these take connections.
    adopts: Vec<mpsc::WeakUnboundedSender<Arrival>>,
    /// The thread that gets the next adopted connection.
    next_thread: AtomicUsize,
}

impl Handle {
    /// Serves a connection that somebody else has accepted, as if it had been accepted here, from this
    /// client. `stream` has been read up to where the client's own bytes begin. False if there is no place
    /// for it, or the end has begun: then it is closed.
    pub fn adopt(&self, stream: TcpStream, peer: SocketAddr) -> bool {
        self.adopt_one(stream, peer, None)
    }

    /// As [`Handle::adopt`], for a client that is known already: its bytes come in plain, and any TLS it
    /// used has ended at the node that it came to.
    pub fn adopt_known(&self, stream: TcpStream, peer: Peer) -> bool {
        self.adopt_one(stream, peer.address, Some(peer))
    }

    fn adopt_one(&self, stream: TcpStream, peer: SocketAddr, known: Option<Peer>) -> bool {
        let next = self.next_thread.fetch_add(1, Ordering::Relaxed) % self.adopts.len().max(1);
        let Some(thread) = self.adopts.get(next).and_then(mpsc::WeakUnboundedSender::upgrade)
        else {
            return false;
        };
        if *self.stage.borrow() != Stage::Serving || stream.set_nonblocking(true).is_err() {
            return false;
        }
        let Some(counted) = self.open.one_more(peer) else {
            turn_away(stream);
            return false;
        };
        thread.send(Arrival { stream, peer, known, counted }).is_ok()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Begins the orderly end: no new connections, each open one closes with its answer under way.
    /// Does not wait.
    pub fn begin_shutdown(&self) {
        self.stage.send_if_modified(|stage| {
            let serving = *stage == Stage::Serving;
            if serving {
                *stage = Stage::Stopping;
            }
            serving
        });
    }

    /// Waits for the orderly end until the deadline, then closes what is left. True when nothing was
    /// left. Waits for a commit that a thread has begun, however long the disk takes.
    pub fn finish(&self, deadline: Instant) -> bool {
        self.begin_shutdown();
        let ended = self.ended.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        let in_time = ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
        if !in_time {
            self.abort();
            // Nothing is ever sent: this returns when the threads end.
            let _ = ended.recv();
        }
        in_time
    }

    /// Closes everything now, unanswered: for a log that failed. Does not wait.
    pub fn abort(&self) {
        self.stage.send_replace(Stage::Aborted);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.abort();
        for thread in self.threads.drain(..) {
            // If the thread panicked, that was reported when it happened.
            let _ = thread.join();
        }
    }
}
