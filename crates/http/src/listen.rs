//! The HTTP listener: one thread, bounded connections, an orderly end.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

use crate::write_timeout::WriteTimeout;

/// Limits of the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once. The excess is closed as it comes.
    pub connections_max: usize,
    /// A request's head comes whole within this time; a connection idles at most so long.
    pub head_time: Duration,
    /// The longest head of a request.
    pub head_bytes_max: usize,
    /// A client that takes no byte of its answers for this time loses its connection.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 10_000,
            head_time: Duration::from_secs(60),
            head_bytes_max: 64 * 1024,
            write_time: Duration::from_secs(60),
        }
    }
}

/// A claimed address. Clients can connect already; they wait until [`HttpListener::start`].
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    local_addr: SocketAddr,
}

/// Claims an address.
pub fn bind(addr: SocketAddr) -> io::Result<HttpListener> {
    let (listener, local_addr) = spindle_net::listen(addr)?;
    Ok(HttpListener { listener, local_addr })
}

/// After an accept that failed (no more file descriptors): to come again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl HttpListener {
    /// The address claimed: with port 0 asked for, the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves routes on a thread of its own. `connections` counts those that are open. Each
    /// request carries its client's address, as axum's `ConnectInfo<SocketAddr>`.
    pub fn start(
        self,
        router: Router,
        limits: Limits,
        connections: Arc<AtomicUsize>,
    ) -> io::Result<Handle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        drop(inside);
        let (stage, stages) = watch::channel(Stage::Serving);
        let (ending, ended) = channel::<()>();
        let ended = Mutex::new(ended);
        let server = Server { router, limits, connections, stages };
        let thread = std::thread::Builder::new().name("spindle-http".to_owned());
        let thread = thread.spawn(move || {
            // Nothing is sent: that it is dropped says that the thread has ended.
            let _ending = ending;
            drive(&runtime, server, listener);
            // Dropping the runtime drops what is under way: its waits and leases go back.
        })?;
        Ok(Handle { stage, ended, thread: Some(thread), local_addr: self.local_addr })
    }
}

/// Waits for a stage, or a later one. A handle that is gone has aborted.
async fn reached(stages: &mut watch::Receiver<Stage>, wanted: Stage) {
    // What it returns holds a lock: it is dropped here, not kept over an await.
    drop(stages.wait_for(|stage| *stage >= wanted).await);
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Serving,
    /// No new connections and requests; those under way are answered.
    Stopping,
    /// Everything ends now.
    Aborted,
}

/// A listener at work. Dropping it aborts it.
pub struct Handle {
    stage: watch::Sender<Stage>,
    /// Disconnected once the thread has ended.
    ended: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<()>>,
    local_addr: SocketAddr,
}

impl Handle {
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

    /// Waits for the orderly end until the deadline, then closes what is left. True when nothing
    /// was.
    pub fn finish(&self, deadline: Instant) -> bool {
        self.begin_shutdown();
        let ended = self.ended.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        let in_time = ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
        if !in_time {
            self.abort();
            // Nothing is ever sent: this returns when the thread ends.
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
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Server {
    router: Router,
    limits: Limits,
    connections: Arc<AtomicUsize>,
    stages: watch::Receiver<Stage>,
}

fn drive(runtime: &Runtime, server: Server, listener: tokio::net::TcpListener) {
    let mut stages = server.stages.clone();
    runtime.block_on(async {
        // The sender lives until the handle is dropped, which aborts.
        select! {
            () = server.serve(listener) => {}
            () = reached(&mut stages, Stage::Aborted) => {}
        }
    });
}

impl Server {
    /// Accepts until it is time to stop, then waits for the open connections.
    async fn serve(self, listener: tokio::net::TcpListener) {
        // Nothing is sent: each connection holds a sender until it ends.
        let (open, mut all_ended) = mpsc::channel::<Infallible>(1);
        let mut stages = self.stages.clone();
        loop {
            let accepted = select! {
                accepted = listener.accept() => accepted,
                () = reached(&mut stages, Stage::Stopping) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if self.connections.load(Ordering::Relaxed) < self.limits.connections_max {
                        let counted = OpenConnection::new(&self.connections, &open);
                        tokio::spawn(self.clone().converse(stream, peer, counted));
                    }
                }
                Err(error) => {
                    tracing::warn!("http: cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop((listener, open));
        all_ended.recv().await;
    }

    async fn converse(self, stream: TcpStream, peer: SocketAddr, counted: OpenConnection) {
        let mut stages = self.stages;
        let router = self.router;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        let stream = TokioIo::new(WriteTimeout::new(stream, self.limits.write_time));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_buf_size(self.limits.head_bytes_max)
            .serve_connection(stream, service);
        let mut connection = pin!(connection);
        let ended = select! {
            ended = connection.as_mut() => ended,
            () = reached(&mut stages, Stage::Stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("http: a connection broke off: {error}");
        }
        drop(counted);
    }
}

/// Counts one connection as open until it is dropped.
struct OpenConnection {
    connections: Arc<AtomicUsize>,
    _open: mpsc::Sender<Infallible>,
}

impl OpenConnection {
    fn new(connections: &Arc<AtomicUsize>, open: &mpsc::Sender<Infallible>) -> OpenConnection {
        connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection { connections: Arc::clone(connections), _open: open.clone() }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
