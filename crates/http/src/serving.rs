//! One serving thread: its runtime, its connections, and the loop that commits for them.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use axum::response::Response;
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, DATE, HeaderValue};
use hyper::server::conn::http1::{self, Parts};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use spindle_budget::{Budgets, Kind};
use spindle_engine::{Committer, Peer, TLS_REQUIRED, logs_commands};
use spindle_limits::{DoorPlaces, Place};
use spindle_tls::stream::{HandshakeTurns, MaybeTls, first_byte, shake_hands};
use spindle_tls::{FirstByte, ListenerTls, Speaks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::commit_loop::{CommitLoop, Member};
use crate::date::date;
use crate::head::head_bytes;
use crate::held::Held;
use crate::listen::Limits;
use crate::put_back::PutBack;
use crate::request::ConnectionNumber;
use crate::rest::shared;
use crate::site::Site;
use crate::write_timeout::WriteTimeout;

/// The pause after an accept that failed (no more file descriptors): an immediate retry would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Serving,
    /// No new connections and requests; those under way are answered.
    Stopping,
    /// Everything ends now.
    Aborted,
}

/// Waits for a stage, or a later one. A dropped handle counts as an abort.
async fn reached(stages: &mut watch::Receiver<Stage>, wanted: Stage) {
    // What it returns holds a lock: it is dropped here, not kept over an await.
    drop(stages.wait_for(|stage| *stage >= wanted).await);
}

/// What all serving threads of a listener share.
#[derive(Clone)]
pub(crate) struct Server {
    pub site: Site,
    pub limits: Limits,
    pub budgets: Budgets,
    pub tls: ListenerTls,
    pub stages: watch::Receiver<Stage>,
    pub open: OpenConnections,
    pub committer: Arc<dyn Committer>,
}

/// The connections of all threads: gives them their places, counts them, and knows when the last one
/// has ended.
#[derive(Clone)]
pub(crate) struct OpenConnections {
    places: DoorPlaces,
    count: Arc<AtomicUsize>,
    /// Nothing is sent on it: each connection holds a receiver until it ends.
    held: Arc<watch::Sender<()>>,
}

impl OpenConnections {
    pub fn new(places: DoorPlaces, count: Arc<AtomicUsize>) -> OpenConnections {
        OpenConnections { places, count, held: Arc::default() }
    }

    /// One more, if there is a place for it.
    pub fn one_more(&self, peer: SocketAddr) -> Option<OpenConnection> {
        let place = self.places.take(peer).ok()?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let (count, held) = (Arc::clone(&self.count), self.held.subscribe());
        Some(OpenConnection { count, _place: place, _held: held })
    }

    /// Waits until none is left, on any thread.
    async fn all_ended(&self) {
        self.held.closed().await;
    }
}

/// Counts one connection as open until it is dropped.
pub(crate) struct OpenConnection {
    count: Arc<AtomicUsize>,
    _place: Place,
    _held: watch::Receiver<()>,
}

impl OpenConnection {
    /// Whether no more than so many are open now.
    fn is_one_of(&self, most: usize) -> bool {
        self.count.load(Ordering::Relaxed) <= most
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way to the thread that serves it.
pub(crate) struct Arrival {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// The client, if it is known already: then its TLS has ended elsewhere, and plain bytes come.
    pub known: Option<Peer>,
    pub counted: OpenConnection,
}

/// The body of a serving thread: serves what arrives until it is time to end.
pub(crate) fn serve(
    runtime: Runtime,
    server: Server,
    committer: Arc<dyn Committer>,
    arrivals: UnboundedReceiver<Arrival>,
) {
    let commit_loop = Arc::<CommitLoop>::default();
    let installed = commit_loop.install(Arc::clone(&committer));
    let mut stages = server.stages.clone();
    runtime.block_on(async {
        // A task of its own, because waking a task costs less than waking the future of `block_on`.
        tokio::spawn(Arc::clone(&commit_loop).run(committer));
        // The sender of stages lives until the handle is dropped, which aborts.
        select! {
            () = server.serve_all(arrivals, &commit_loop) => {}
            () = reached(&mut stages, Stage::Aborted) => {}
        }
    });
    // Dropping the runtime drops what is under way: its waits and leases go back, and by then no
    // loop commits any more.
    drop(installed);
    drop(runtime);
}

impl Server {
    /// Accepts until it is time to stop, and deals the connections out to the threads in turn.
    /// Without a listener it only keeps the threads waiting for connections that they are given.
    pub async fn accept(
        self,
        listener: Option<TcpListener>,
        threads: Vec<UnboundedSender<Arrival>>,
    ) {
        let mut stages = self.stages.clone();
        let Some(listener) = listener else { return reached(&mut stages, Stage::Stopping).await };
        let mut turns = threads.iter().cycle();
        let mut is_failing = false;
        loop {
            let accepted = select! {
                accepted = listener.accept() => accepted,
                () = reached(&mut stages, Stage::Stopping) => break,
            };
            // The thread that serves it has a reactor of its own.
            let accepted = accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
            let was_failing = std::mem::replace(&mut is_failing, accepted.is_err());
            match accepted {
                Ok((stream, peer)) => match (self.open.one_more(peer), turns.next()) {
                    (Some(counted), Some(thread)) => {
                        // A thread that is gone has stopped, or has reported why.
                        let arrival = Arrival { stream, peer, known: None, counted };
                        let _ = thread.send(arrival);
                    }
                    _ if self.tls.is_off() => turn_away(stream),
                    _ => {}
                },
                Err(error) => {
                    if !was_failing {
                        tracing::warn!(%error, "http: cannot accept connections; trying again");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves what arrives until it is time to stop, then waits for the open connections of all
    /// threads: tasks of the doors may serve those of others.
    async fn serve_all(
        &self,
        mut arrivals: UnboundedReceiver<Arrival>,
        commit_loop: &Arc<CommitLoop>,
    ) {
        let mut stages = self.stages.clone();
        let turns = HandshakeTurns::default();
        loop {
            let arrival = select! {
                arrival = arrivals.recv() => arrival,
                () = reached(&mut stages, Stage::Stopping) => None,
            };
            let Some(arrival) = arrival else { break };
            tokio::spawn(self.clone().converse(arrival, commit_loop.member(), turns.clone()));
        }
        drop(arrivals);
        self.open.all_ended().await;
    }

    async fn converse(self, arrival: Arrival, member: Member, turns: HandshakeTurns) {
        let Arrival { stream, peer: address, known, counted } = arrival;
        let mut stages = self.stages.clone();
        let held = Held::new(&self.budgets);
        let opened = select! {
            opened = Box::pin(self.open(stream, &held, &turns, known.is_some())) => opened,
            () = reached(&mut stages, Stage::Stopping) => return,
        };
        let stream = match opened {
            Ok(Some(stream)) => stream,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%address, "http: a connection did not begin: {error}");
                return;
            }
        };
        let client = known.unwrap_or_else(|| {
            let (encrypted, certificate) = (stream.is_encrypted(), stream.certificate_name());
            Peer { address, encrypted, certificate, page_of: None }
        });
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = ConnectionNumber(NEXT.fetch_add(1, Ordering::Relaxed));
        let (site, member) = (self.site.clone(), Arc::new(member));
        let (committer, limits) = (Arc::clone(&self.committer), self.limits);
        let holds = held.clone();
        let respond = move |mut request: Request<Incoming>| {
            let (member, held) = (Arc::clone(&member), holds.clone());
            member.asks();
            held.serves();
            request.extensions_mut().insert(client.clone());
            request.extensions_mut().insert(held.clone());
            if logs_commands() {
                request.extensions_mut().insert(number);
            }
            let fits = head_bytes(&request) <= limits.head_bytes_max;
            let (request, rest) = shared(request);
            let of_node = is_about_this_node(request.uri().path());
            let answer = if fits {
                Ok(site.clone().answer(request))
            } else {
                Err(site.answer_long_head(&request))
            };
            let committer = Arc::clone(&committer);
            async move {
                let mut answer = match answer {
                    Ok(answer) => answer.await,
                    Err(refusal) => refusal,
                };
                if !of_node {
                    member.may_answer(&*committer).await;
                }
                if let Some(date) = date(SystemTime::now()) {
                    answer.headers_mut().insert(DATE, date);
                }
                member.answered();
                if !rest.discard(limits.unread_body_time).await {
                    held.ends();
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                held.answers(&answer.body().size_hint());
                Ok::<_, Infallible>(answer)
            }
        };
        let mut attendant = Attendant { held: &held, address, stages };
        let ended = if counted.is_one_of(self.limits.restless_max) {
            let stream = TokioIo::new(stream);
            let connection = self.protocol().serve_connection(stream, service_fn(respond));
            let mut connection = Box::pin(connection);
            attendant.attend(connection.as_mut(), pending()).await.unwrap_or(Ok(()))
        } else {
            // A request's future in a box, because hyper gives back only what can be moved.
            let service = service_fn(move |request| Box::pin(respond(request)));
            self.serve_and_rest(stream, service, attendant).await
        };
        if let Err(error) = ended {
            tracing::debug!("http: a connection broke off: {error}");
        }
        drop(counted);
    }

    fn protocol(&self) -> http1::Builder {
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).auto_date_header(false);
        protocol.header_read_timeout(self.limits.head_time);
        protocol.max_buf_size(self.limits.head_bytes_max);
        protocol
    }

    /// Serves a connection that rests whenever its client has asked for nothing for a while.
    async fn serve_and_rest<V>(
        &self,
        stream: Stream,
        mut service: V,
        mut attendant: Attendant<'_>,
    ) -> hyper::Result<()>
    where
        V: Service<Request<Incoming>, Response = Response, Error = Infallible> + Unpin,
        V::Future: Unpin,
    {
        let mut stream = PutBack::new(stream, attendant.held.clone());
        loop {
            // In a box, which is freed while the connection rests.
            match Box::pin(self.serve(stream, service, attendant.clone())).await? {
                Some(rests) => (stream, service) = rests,
                None => return Ok(()),
            }
            if !self.asks_again(&mut stream, &mut attendant).await {
                // As hyper ends a connection between two requests. It ends even if this fails.
                let _ = stream.stream().shutdown().await;
                return Ok(());
            }
        }
    }

    /// Serves a connection until it has ended, or until its client has asked for nothing for a while: then
    /// the connection is returned, and rests. hyper keeps two buffers of 8 KiB for each connection that it
    /// serves, and most connections do not need them most of the time.
    async fn serve<V>(
        &self,
        stream: PutBack<Stream>,
        service: V,
        mut attendant: Attendant<'_>,
    ) -> hyper::Result<Option<(PutBack<Stream>, V)>>
    where
        V: Service<Request<Incoming>, Response = Response, Error = Infallible> + Unpin,
        V::Future: Unpin,
    {
        let held = attendant.held;
        let mut connection = self.protocol().serve_connection(stream, service);
        let first = held.requests();
        let (mut requests, mut pause, mut may_rest) = (first, self.limits.rest_time, true);
        loop {
            let rests = async { if may_rest { sleep(pause).await } else { pending().await } };
            if let Some(ended) = attendant.attend(Pin::new(&mut connection), rests).await {
                return ended.map(|()| None);
            }
            let asked = held.requests();
            if asked != std::mem::replace(&mut requests, asked) {
                pause = self.limits.rest_time;
                continue;
            }
            // A connection that has asked for nothing yet has the time for a head, and no more. It is looked
            // at less and less often, like one whose answer goes on.
            pause = pause.saturating_mul(2);
            if asked == first || !held.is_idle() {
                continue;
            }
            // Between two requests hyper ends at once, without another read. Otherwise it ends with the
            // request that is under way, and so does the connection.
            held.was_read();
            Pin::new(&mut connection).graceful_shutdown();
            let ended = poll_fn(|context| Poll::Ready(connection.poll_without_shutdown(context)));
            match ended.await {
                Poll::Ready(Ok(())) if !held.was_read() => {
                    let Parts { io, read_buf, service, .. } = connection.into_parts();
                    // A copy: otherwise a part would keep the whole buffer.
                    return Ok(Some((io.with(Bytes::copy_from_slice(&read_buf)), service)));
                }
                Poll::Ready(ended) => return ended.map(|()| None),
                Poll::Pending => may_rest = false,
            }
        }
    }

    /// Waits until the client of a connection that rests sends something, or ends. False if it is
    /// time to close the connection.
    async fn asks_again(
        &self,
        stream: &mut PutBack<Stream>,
        Attendant { held, stages, .. }: &mut Attendant<'_>,
    ) -> bool {
        // It had been idle for about the rest time when it came to rest.
        let time = self.limits.head_time.saturating_sub(self.limits.rest_time);
        if stream.has_bytes() {
            return true;
        }
        select! {
            readable = timeout(time, stream.stream().io().readable()) => readable.is_ok(),
            () = reached(stages, Stage::Stopping) => false,
            _ = held.asked_to_go() => false,
        }
    }

    /// The stream to speak HTTP over, after the handshake if there is one. None if the client has gone, or
    /// was refused because it did not use TLS.
    async fn open(
        &self,
        stream: TcpStream,
        held: &Held,
        turns: &HandshakeTurns,
        is_known: bool,
    ) -> io::Result<Option<Stream>> {
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let Limits { head_time, handshake_time, write_time, .. } = self.limits;
        if is_known {
            let stream = WriteTimeout::new(stream, write_time, held.clone());
            return Ok(Some(MaybeTls::Plain(stream)));
        }
        // A connection idles as long before its first request as between two of them.
        let Ok(first) = timeout(head_time, first_byte(&stream, &self.tls)).await else {
            return Ok(None);
        };
        let first = first?;
        let mut stream = WriteTimeout::new(stream, write_time, held.clone());
        Ok(match first {
            None => None,
            Some(FirstByte::Plain) => Some(MaybeTls::Plain(stream)),
            Some(FirstByte::Handshake(tls)) => {
                Some(shake_hands(stream, &tls, Speaks::Http, turns, handshake_time).await?)
            }
            Some(FirstByte::Refused) => {
                stream.write_all(refusal().as_bytes()).await?;
                stream.shutdown().await?;
                // Closing the socket with unread bytes of the client would destroy the answer.
                let mut rest = [0; 4096];
                let gone = async {
                    while stream.read(&mut rest).await? > 0 {}
                    io::Result::Ok(())
                };
                let _ = timeout(LINGER, gone).await;
                None
            }
        })
    }
}

/// What may end a connection besides its client.
#[derive(Clone)]
struct Attendant<'a> {
    held: &'a Held,
    address: SocketAddr,
    stages: watch::Receiver<Stage>,
}

impl Attendant<'_> {
    /// Waits for the end of a connection, whatever brings it; none if `pause` is over before.
    async fn attend<C: GracefulConnection<Error = hyper::Error>>(
        &mut self,
        mut connection: Pin<&mut C>,
        pause: impl Future<Output = ()>,
    ) -> Option<hyper::Result<()>> {
        let Attendant { held, address, stages } = self;
        select! {
            // The connection first: mostly it is what wakes this task, and the others are asked only in
            // passing.
            biased;
            ended = connection.as_mut() => Some(ended),
            () = reached(stages, Stage::Stopping) => {
                connection.as_mut().graceful_shutdown();
                Some(connection.await)
            }
            kind = held.asked_to_go() => {
                tracing::debug!(%address, "http: closed the client with most {}", kind.name());
                connection.as_mut().graceful_shutdown();
                // A client that is sending a body gets an answer; one that reads nothing would not
                // read it.
                let time = if kind == Kind::Input { LINGER } else { Duration::ZERO };
                Some(timeout(time, connection).await.unwrap_or(Ok(())))
            }
            () = pause => None,
        }
    }
}

/// Whether an answer is about this process and not about jobs: it leaves whether or not this process
/// leads the log.
fn is_about_this_node(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics") || path.starts_with("/api/v1/cluster")
}

/// Closes a connection there is no place for, with an answer that costs nothing: it is written if the
/// socket takes it at once, and nobody waits for the client to read it. The client's bytes are read
/// first, because closing a socket with unread bytes destroys what was sent on it.
pub(crate) fn turn_away(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(NO_PLACE.as_bytes());
}

/// The answer to a client for which there is no place.
const NO_PLACE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
    Content-Length: 42\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    the server has as many clients as it may.\n";

/// How long a client that was refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);

type Stream = MaybeTls<WriteTimeout<tokio::net::TcpStream>>;

/// The answer to a client that speaks in plain bytes where TLS is required.
fn refusal() -> String {
    let body = format!("{TLS_REQUIRED} (https://)\n");
    let length = body.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}
