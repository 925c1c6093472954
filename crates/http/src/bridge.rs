//! The engine as HTTP handlers see it: calls that wait their turn, answers that wait for the disk.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use spindle_core::JobImage;
use spindle_engine::{
    Answer, Caller, ConnectionId, Delivery, Engine, FetchError, Gate, JobRef, LeaseRef, Mailbox,
    Refused, Ticket,
};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::mailbox::TicketMailbox;

/// How long a request waits for room in the log before it is refused as busy.
const ROOM_WAIT: Duration = Duration::from_secs(20);

/// How often a job is looked up whose bytes move while they are read.
const LOOKS_MAX: u32 = 8;

/// The connection of the next HTTP request that waits, far from those of the line doors. One count
/// for the process: every door has a bridge of its own, and doors share the engine.
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1 << 63);

/// Connects async handlers to the engine: calls that wait for room, answers that wait for the disk.
/// Clones share one mailbox.
#[derive(Clone)]
pub struct EngineBridge {
    engine: Engine,
    mailbox: Arc<TicketMailbox>,
}

impl EngineBridge {
    /// A bridge to an engine. One serves all requests of a door.
    pub fn new(engine: Engine) -> EngineBridge {
        let mailbox = Arc::<TicketMailbox>::default();
        engine.attach(&(mailbox.clone() as Arc<dyn Mailbox>));
        EngineBridge { engine, mailbox }
    }

    /// The engine itself, for calls that never wait.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A job with what `read` reads of its bytes. Bytes may be carried to newer records meanwhile:
    /// then the job is looked up again.
    pub fn job_with<T>(
        &self,
        which: JobRef,
        read: impl Fn(&JobImage) -> Result<T, FetchError>,
    ) -> Result<(Option<(JobImage, T)>, Gate), FetchError> {
        let mut looks_left = LOOKS_MAX;
        loop {
            looks_left -= 1;
            let (image, gate) = self.engine.job(which)?;
            let Some(image) = image else { return Ok((None, gate)) };
            match read(&image) {
                Ok(bytes) => return Ok((Some((image, bytes)), gate)),
                Err(FetchError::Moved) if looks_left > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a call and ends its turn. While the log has no room, waits and makes it again. What is
    /// refused is refused for good: the refusal is durable when this returns.
    ///
    /// Dropping this may drop what the call gave: for leases and tickets there is
    /// [`EngineBridge::take`].
    pub async fn call<T>(
        &self,
        mut call: impl FnMut(&Engine) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let called = call(&self.engine);
            self.end_turn().await;
            if let Some(answer) = self.tried(called, deadline).await {
                return answer;
            }
        }
    }

    /// As [`EngineBridge::call`], for calls that give something to hold on to, a lease or a ticket.
    /// Nothing is awaited between the call and the return: whoever drops this has been given
    /// nothing.
    pub async fn take<T>(
        &self,
        mut call: impl FnMut(&Engine) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let called = call(&self.engine);
            self.engine.end_turn();
            if let Some(answer) = self.tried(called, deadline).await {
                return answer;
            }
        }
    }

    /// The result of a call. None: there was no room, and now there is.
    async fn tried<T>(
        &self,
        called: Result<T, Refused>,
        deadline: Instant,
    ) -> Option<Result<T, Refused>> {
        match called {
            Err(Refused::Busy) => {
                let caller = self.caller();
                let ticket = self.engine.wait_for_room(&caller);
                let wait = self.wait(caller, ticket);
                let in_time = timeout_at(deadline, wait.answered()).await.is_ok();
                (!in_time).then_some(Err(Refused::Busy))
            }
            Err(Refused::Rejected(rejection, gate)) => {
                self.durable(gate).await;
                Some(Err(Refused::Rejected(rejection, gate)))
            }
            other => Some(other),
        }
    }

    /// Ends a turn after a call: first all other requests that are here already make theirs, so
    /// that what they decide goes to the log together, in one hand-over and one sync.
    async fn end_turn(&self) {
        let ending = EndOfTurn(&self.engine);
        yield_now().await;
        drop(ending);
    }

    /// As [`EngineBridge::call`], for calls that change something: what they did is durable when
    /// this returns.
    pub async fn change(
        &self,
        call: impl FnMut(&Engine) -> Result<Gate, Refused>,
    ) -> Result<(), Refused> {
        let gate = self.call(call).await?;
        self.durable(gate).await;
        Ok(())
    }

    /// Waits until all records below a gate are durable. Never returns if the log fails: the
    /// connection is closed unanswered, and the process ends.
    pub async fn durable(&self, gate: Gate) {
        if self.engine.durable() >= gate {
            return;
        }
        let mut moves = self.mailbox.moves();
        if self.engine.durable() < gate {
            // What was looked at may have been due, and be in the open batch.
            self.engine.end_turn();
        }
        while self.engine.durable() < gate {
            if self.engine.failure().is_some() {
                return pending().await;
            }
            // The sender lives as long as the bridge.
            let _ = moves.changed().await;
        }
    }

    /// Changes whenever the durable position does, from now on: for requests that watch something
    /// that only events change.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.mailbox.moves()
    }

    /// A new caller that waits. Every wait has a connection of its own, so that giving one up
    /// touches no other.
    pub fn caller(&self) -> Caller {
        let connection = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
        let mailbox = self.mailbox.clone() as Arc<dyn Mailbox>;
        Caller { connection: ConnectionId(connection), mailbox }
    }

    /// The wait a ticket stands for. To be called right after the engine gave the ticket.
    pub fn wait(&self, caller: Caller, ticket: Ticket) -> Wait<'_> {
        let answer = self.mailbox.expect(ticket);
        Wait { bridge: self, caller, ticket: Some(ticket), answer }
    }

    /// A lease that is undone unless its bytes are handed to the socket.
    pub fn lease_guard(&self, lease: LeaseRef) -> LeaseGuard {
        LeaseGuard { engine: self.engine.clone(), lease: Some(lease) }
    }
}

/// Ends a turn when it is dropped: also when the request was given up meanwhile.
struct EndOfTurn<'a>(&'a Engine);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}

/// A request that waits for the engine. Dropping it gives the wait up: a lease that was on its way
/// goes back.
pub struct Wait<'a> {
    bridge: &'a EngineBridge,
    caller: Caller,
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Delivery>,
}

impl Wait<'_> {
    /// The answer, and what must be durable before it may be sent.
    pub async fn answered(mut self) -> (Answer, Gate) {
        let answered = (&mut self.answer).await;
        self.ticket = None;
        match answered {
            Ok(delivery) => (delivery.answer, delivery.gate),
            // The mailbox keeps its end until it has delivered.
            Err(_) => (Answer::TimedOut, Gate::OPEN),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // First the engine: once it has let go of the wait, nothing is delivered any more.
        self.bridge.engine.connection_gone(self.caller.connection, self.ticket);
        if let Some(ticket) = self.ticket {
            self.bridge.mailbox.forget(ticket);
        }
        self.bridge.engine.end_turn();
    }
}

/// Undoes a lease unless its bytes are handed to the socket.
pub struct LeaseGuard {
    engine: Engine,
    lease: Option<LeaseRef>,
}

impl LeaseGuard {
    /// The socket has the bytes: the lease stays.
    pub fn done(mut self) {
        self.lease = None;
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.engine.undo_lease(lease);
            self.engine.end_turn();
        }
    }
}

/// The body of an answer with a lease in it. If the socket never takes it, the lease is undone.
pub struct GuardedBody {
    bytes: Option<Bytes>,
    lease_guard: Option<LeaseGuard>,
}

impl GuardedBody {
    /// An answer whose bytes hand out the lease.
    pub fn new(bytes: Bytes, lease_guard: LeaseGuard) -> GuardedBody {
        GuardedBody { bytes: Some(bytes), lease_guard: Some(lease_guard) }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(lease_guard) = self.lease_guard.take() {
            lease_guard.done();
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
