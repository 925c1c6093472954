//! One connection of either side: messages in, messages out, and the answers to our own requests.
//!
//! [`Link::open`] splits a socket into a [`Link`], a handle to send with that can be cloned, and a
//! [`Connection`], which reads until the end. If a peer asks much and reads little, nothing more is
//! read from it until it has taken its answers.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use spindle_budget::{Account, Budget, Budgets, Holder, Kind};
use spindle_limits::RequestRates;
use spindle_tls::stream::MaybeTls;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::TcpStream,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::{sleep, timeout},
};
use tracing::{debug, trace};

use crate::logged::{Logged, kind_of};
use crate::wire::{
    Frames, Malformed, Message, Request, Response, decode, encode_ping, encode_pong,
    encode_request, encode_response, raw,
};

/// Above this many bytes that the peer has not taken, nothing more is read from it.
pub(crate) const UNSENT_BYTES_MAX: usize = 1024 * 1024;
/// Requests of one peer that may be unanswered at the same time.
pub(crate) const REQUESTS_MAX: u32 = 1024;
/// How long a peer may be silent in the middle of a message, and how long it may refuse to take
/// bytes.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// How long answers may take after the peer has ended its side.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why a request of ours has no answer.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The peer refused it, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The connection went before the answer came.
    #[error("the connection was closed")]
    Closed,
    /// The same, with the reason that the peer or TLS gave.
    #[error("the connection was closed: {0}")]
    ClosedBecause(String),
    /// No answer in the time given.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
}

enum Outgoing {
    Bytes(Bytes),
    Close,
}

#[derive(Default)]
struct Pending {
    next_no: i64,
    waiting: HashMap<i64, oneshot::Sender<Result<Box<RawValue>, String>>>,
    is_closed: bool,
}

struct Shared {
    /// Its number among the connections of this process, for the log.
    number: u64,
    remote: SocketAddr,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    unsent_bytes: AtomicUsize,
    sent: Notify,
    pending: Mutex<Pending>,
    requests: Arc<Semaphore>,
    message_bytes_max: usize,
    answer_bytes_max: AtomicUsize,
    reads: AtomicUsize,
    closed: watch::Sender<bool>,
    held: Held,
    /// Why it is or will be closed, from TLS or from an error of the peer that answers no request.
    reason: OnceLock<String>,
}

/// How much of the budgets a connection has.
struct Held {
    /// The part that has come of a message that is not complete.
    message: Account,
    /// Requests that have no answer yet.
    requests: Account,
    /// Bytes that the peer has not taken.
    unsent: Account,
    asked: Arc<Asked>,
}

impl Held {
    fn new(budgets: &Budgets) -> Self {
        let asked = Arc::<Asked>::default();
        let open = |budget: &Budget| budget.open(Arc::clone(&asked) as Arc<dyn Holder>, 0);
        let (message, requests) = (open(&budgets.input), open(&budgets.input));
        Self { message, requests, unsent: open(&budgets.output), asked }
    }
}

/// Is notified when a connection holds too much.
#[derive(Default)]
struct Asked {
    input: Notify,
    output: Notify,
}

impl Holder for Asked {
    fn let_go(&self, _: u64, kind: Kind) {
        match kind {
            Kind::Input => self.input.notify_one(),
            Kind::Output => self.output.notify_one(),
        }
    }
}

/// What a connection runs over.
pub type Stream = MaybeTls<TcpStream>;

/// A handle to one connection.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Link").field(&self.0.remote).finish()
    }
}

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Link {
    /// Takes a socket over. Messages of the peer may have up to so many bytes.
    ///
    /// # Errors
    /// The socket is gone already.
    pub fn open(stream: Stream, message_bytes_max: usize) -> io::Result<(Self, Connection)> {
        Self::open_within(&Budgets::new(usize::MAX, usize::MAX), stream, message_bytes_max)
    }

    /// [`Link::open`] for one of many peers, who share budgets.
    ///
    /// # Errors
    /// The socket is gone already.
    pub fn open_within(
        budgets: &Budgets,
        stream: Stream,
        message_bytes_max: usize,
    ) -> io::Result<(Self, Connection)> {
        let remote = stream.io().peer_addr()?;
        Self::open_from(budgets, stream, remote, message_bytes_max)
    }

    /// As [`Link::open_within`], of a client that came to another server, and whose connection that one
    /// hands on.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn open_from(
        budgets: &Budgets,
        stream: Stream,
        remote: SocketAddr,
        message_bytes_max: usize,
    ) -> io::Result<(Self, Connection)> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        stream.io().set_nodelay(true)?;
        let (reader, writer) = split(stream);
        let (outgoing, to_write) = mpsc::unbounded_channel();
        let link = Self(Arc::new(Shared {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            remote,
            outgoing,
            unsent_bytes: AtomicUsize::new(0),
            sent: Notify::new(),
            // Zero is reserved. Each side starts at a number of its own.
            pending: Mutex::new(Pending {
                next_no: rand::random_range(1..1_000_000),
                ..Pending::default()
            }),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX as usize)),
            message_bytes_max,
            answer_bytes_max: AtomicUsize::new(message_bytes_max),
            reads: AtomicUsize::new(0),
            closed: watch::Sender::new(false),
            held: Held::new(budgets),
            reason: OnceLock::new(),
        }));
        tokio::spawn(write_all(link.clone(), writer, to_write));
        let (peer, peer_limits) = (remote.ip(), PeerLimits::default());
        Ok((link.clone(), Connection { link, reader, peer, peer_limits }))
    }

    /// Its number, unique in this process.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        *self.0.closed.borrow()
    }

    /// Ready when the connection has ended.
    pub async fn closed(&self) {
        // The sender lives in the link itself, so waiting cannot fail.
        let _ = self.0.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Ready when every request of the peer has its answer.
    pub async fn answered(&self) {
        let _ = self.0.requests.acquire_many(REQUESTS_MAX).await;
    }

    /// Whether a request of the peer has no answer yet.
    fn owes_answers(&self) -> bool {
        self.0.requests.available_permits() < REQUESTS_MAX as usize
    }

    /// How many reads have brought bytes: it grows as long as the peer is alive, also in the middle
    /// of a long message.
    pub fn reads(&self) -> usize {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Lets the peer's answers be longer than its other messages.
    pub fn raise_answer_bytes_max(&self, answer_bytes_max: usize) {
        self.0.answer_bytes_max.fetch_max(answer_bytes_max, Ordering::Relaxed);
    }

    /// Sends what is queued, then closes.
    pub fn close(&self) {
        let _ = self.0.outgoing.send(Outgoing::Close);
    }

    /// Asks the peer whether it is there.
    pub fn ping(&self) {
        self.send(encode_ping());
    }

    fn send(&self, bytes: Bytes) {
        self.0.unsent_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        self.0.held.unsent.add(bytes.len());
        // Fails on a closed connection, where no peer would read it.
        let _ = self.0.outgoing.send(Outgoing::Bytes(bytes));
    }

    /// Sends a request, now; the future is ready with its answer, however long that takes.
    ///
    /// # Errors
    /// [`RequestError::Refused`], [`RequestError::Closed`] or
    /// [`RequestError::ClosedBecause`].
    pub fn request(
        &self,
        kind: &str,
        data: Option<&RawValue>,
        password: Option<&str>,
    ) -> impl Future<Output = Result<Box<RawValue>, RequestError>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let no = {
            let mut pending = self.0.pending.lock();
            let no = pending.next_no;
            pending.next_no += 1;
            // On a closed connection the sender is dropped, and the answer is `Closed`.
            if !pending.is_closed {
                pending.waiting.insert(no, sender);
            }
            no
        };
        let forget = Forget { link: self.clone(), no };
        self.send(encode_request(no, kind, data, password));
        async move {
            let outcome = answer.await.map_err(|_| match forget.link.0.reason.get() {
                Some(why) => RequestError::ClosedBecause(why.clone()),
                None => RequestError::Closed,
            })?;
            drop(forget);
            outcome.map_err(RequestError::Refused)
        }
    }

    /// [`Link::request`] with an end to the waiting.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn request_within(
        &self,
        patience: Duration,
        kind: &str,
        data: Option<&RawValue>,
    ) -> impl Future<Output = Result<Box<RawValue>, RequestError>> + Send + use<> {
        let answer = self.request(kind, data, None);
        async move { timeout(patience, answer).await.unwrap_or(Err(RequestError::Silent(patience))) }
    }

    fn answer_came(&self, response: Response) {
        if let (0, Err(text)) = (response.no, &response.outcome) {
            let _ = self.0.reason.set(text.clone());
        }
        let waiting = self.0.pending.lock().waiting.remove(&response.no);
        match waiting {
            // The requester may have stopped waiting.
            Some(sender) => drop(sender.send(response.outcome)),
            None => debug!(peer = %self.0.remote, no = response.no, "an answer to no request"),
        }
    }

    /// Closes now, whatever is queued.
    pub(crate) fn end(&self) {
        let waiting = {
            let mut pending = self.0.pending.lock();
            pending.is_closed = true;
            std::mem::take(&mut pending.waiting)
        };
        drop(waiting);
        self.0.closed.send_replace(true);
        self.0.sent.notify_one();
    }
}

/// Removes a request from the list when its future is dropped.
struct Forget {
    link: Link,
    no: i64,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.link.0.pending.lock().waiting.remove(&self.no);
    }
}

/// The right and the duty to answer one request.
#[derive(Debug)]
pub struct Responder {
    link: Link,
    no: i64,
    request_bytes: usize,
    logged: Option<Logged>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.link.0.held.requests.remove(self.request_bytes);
    }
}

impl Responder {
    /// The connection the request came over.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Answers `"ok"`.
    pub fn ok(self) {
        self.data(&"ok");
    }

    /// Answers with a value.
    pub fn data(mut self, value: &impl Serialize) {
        self.ends("ok");
        self.link.send(encode_response(self.no, Ok(&raw(value))));
    }

    /// Answers with an error.
    pub fn error(mut self, text: &str) {
        self.ends("error");
        self.link.send(encode_response(self.no, Err(text)));
    }

    fn ends(&mut self, outcome: &'static str) {
        if let Some(logged) = &mut self.logged {
            logged.ends(outcome);
        }
    }

    /// Answers `"ok"` or the error.
    pub fn outcome(self, outcome: Result<(), String>) {
        self.checked(outcome, |(), responder| responder.ok());
    }

    /// Passes on what was read from the request, or answers what is wrong with it.
    pub fn checked<T>(self, read: Result<T, String>, answer: impl FnOnce(T, Self)) {
        match read {
            Ok(value) => answer(value, self),
            Err(text) => self.error(&text),
        }
    }
}

/// What a peer may not exceed.
#[derive(Clone, Debug, Default)]
pub struct PeerLimits {
    /// How often its address may send a message other than an answer to a request of ours. A message
    /// that comes too early waits, and nothing more is read meanwhile.
    pub rates: Option<Arc<RequestRates>>,
    /// How long it may send nothing while it is owed no answer.
    pub idle_time: Option<Duration>,
}

/// The reading half of a [`Link`].
#[derive(Debug)]
pub struct Connection {
    link: Link,
    reader: ReadHalf<Stream>,
    /// The address whose requests are counted.
    peer: IpAddr,
    peer_limits: PeerLimits,
}

impl Connection {
    /// The handle to send with.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The same with limits on its peer.
    #[must_use]
    pub fn with(self, peer_limits: PeerLimits) -> Self {
        Self { peer_limits, ..self }
    }

    /// Reads until the end and hands every request to `serve`. Afterwards the link is closed.
    pub async fn run(mut self, mut serve: impl FnMut(Request, Responder)) {
        let link = self.link.clone();
        let mut closed = link.0.closed.subscribe();
        let why = tokio::select! {
            why = self.read(&mut serve) => why,
            () = link.0.held.asked.input.notified() => {
                let text = "the server holds too many unfinished requests, and this was the \
                            largest: try again";
                link.send(encode_response(0, Err(text)));
                "held the most unfinished requests".to_owned()
            }
            _ = closed.wait_for(|closed| *closed) => "closed here".to_owned(),
        };
        debug!(peer = %self.link.remote(), why, "connection ends");
        let last = async {
            self.link.answered().await;
            self.link.close();
            self.link.closed().await;
        };
        if timeout(LAST_ANSWERS, last).await.is_err() {
            self.link.close();
        }
        self.link.end();
    }

    async fn read(&mut self, serve: &mut impl FnMut(Request, Responder)) -> String {
        let mut frames = Frames::new(self.link.0.message_bytes_max);
        loop {
            frames.set_answer_bytes_max(self.link.0.answer_bytes_max.load(Ordering::Relaxed));
            let next = frames.next_message();
            self.link.0.held.message.set(frames.input().capacity());
            match next {
                Ok(Some(message)) => self.take(&message, serve).await,
                Ok(None) => {
                    let is_mid_message = frames.is_mid_message();
                    let patience =
                        if is_mid_message { Some(STALL) } else { self.peer_limits.idle_time };
                    let read = self.reader.read_buf(frames.input());
                    let outcome = match patience {
                        None => read.await,
                        Some(patience) => match timeout(patience, read).await {
                            Ok(outcome) => outcome,
                            Err(_) if is_mid_message => {
                                return "silence in the middle of a message".to_owned();
                            }
                            Err(_) if self.link.owes_answers() => continue,
                            Err(_) => return "it was idle".to_owned(),
                        },
                    };
                    match outcome {
                        Ok(0) => return "end of input".to_owned(),
                        Ok(_) => drop(self.link.0.reads.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => {
                            // Errors of TLS have this kind. A client's handshake is over before the
                            // server has looked at its certificate, so a refusal comes only here.
                            if error.kind() == io::ErrorKind::InvalidData {
                                let _ = self.link.0.reason.set(error.to_string());
                            }
                            return error.to_string();
                        }
                    }
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Whether it is the answer to a request of ours. Answers do not count against the peer's rate.
    fn was_asked_for(&self, decoded: &Result<Message, Malformed>) -> bool {
        let Ok(Message::Response(response)) = decoded else { return false };
        self.link.0.pending.lock().waiting.contains_key(&response.no)
    }

    async fn take(&self, bytes: &[u8], serve: &mut impl FnMut(Request, Responder)) {
        let decoded = decode(bytes);
        // The contents must not be logged: they may be a password, or a job's output.
        let (peer, kind) = (self.link.remote(), kind_of(&decoded));
        trace!(%peer, kind, bytes = bytes.len(), "a message came");
        if let Some(rates) = &self.peer_limits.rates
            && !self.was_asked_for(&decoded)
        {
            sleep(rates.delay(None, self.peer)).await;
        }
        match decoded {
            Ok(Message::Request(request)) => {
                let permit = Arc::clone(&self.link.0.requests).acquire_owned().await;
                let permit = permit.expect("the semaphore is never closed");
                let link = self.link.clone();
                let request_bytes = bytes.len();
                link.0.held.requests.add(request_bytes);
                let (no, logged) = (request.no, Logged::begin(link.number(), &request));
                let responder = Responder { link, no, request_bytes, logged, _permit: permit };
                serve(request, responder);
            }
            Ok(Message::Response(response)) => self.link.answer_came(response),
            Ok(Message::Ping) => self.link.send(encode_pong()),
            Ok(Message::Pong) => {}
            Err(Malformed::Junk) => debug!(peer = %self.link.remote(), "a message is not JSON"),
            Err(Malformed::Answer(text)) => self.link.send(encode_response(0, Err(&text))),
        }
        while self.link.0.unsent_bytes.load(Ordering::Relaxed) > UNSENT_BYTES_MAX {
            self.link.0.sent.notified().await;
        }
    }
}

async fn write_all(
    link: Link,
    mut writer: WriteHalf<Stream>,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
) {
    let mut closed = link.0.closed.subscribe();
    loop {
        let next = tokio::select! {
            next = outgoing.recv() => next,
            _ = closed.wait_for(|closed| *closed) => None,
        };
        let Some(Outgoing::Bytes(bytes)) = next else { break };
        let written = tokio::select! {
            written = write_message(&mut writer, &bytes) => written,
            () = link.0.held.asked.output.notified() => {
                debug!(peer = %link.remote(), "held the most unread answers");
                break;
            }
        };
        link.0.unsent_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        link.0.held.unsent.remove(bytes.len());
        link.0.sent.notify_one();
        if let Err(error) = written {
            debug!(peer = %link.remote(), %error, "cannot write");
            break;
        }
    }
    end(&mut writer).await;
    link.end();
}

/// Ends our side. The peer may have gone first, or take nothing any more: then TLS cannot say goodbye.
async fn end(writer: &mut (impl AsyncWrite + Unpin)) {
    let _ = timeout(STALL, writer.shutdown()).await;
}

/// Writes all of it, as long as the peer keeps taking some.
async fn write_message(writer: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let Ok(written) = timeout(STALL, writer.write(bytes)).await else {
            let text = "the peer does not take its answers";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        };
        match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    writer.flush().await
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
