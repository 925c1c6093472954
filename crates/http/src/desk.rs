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
use spindle_engine::{
    Answer, Caller, ConnectionId, Delivery, Engine, Gate, LeaseRef, Mailbox, Refused, Ticket,
};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::mailbox::Post;

/// How long a request waits for room in the log before it is told to come again.
const ROOM_WAIT: Duration = Duration::from_secs(20);

/// The connection of the next HTTP request that waits, far from those of the line doors. One count
/// for the process: every door has a desk of its own, and doors share the engine.
static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1 << 63);

/// The engine, for requests that may wait. Clones are the same desk.
#[derive(Clone)]
pub struct Desk {
    engine: Engine,
    post: Arc<Post>,
}

impl Desk {
    /// A desk at an engine. One serves all requests of a door.
    pub fn new(engine: Engine) -> Desk {
        let post = Arc::<Post>::default();
        engine.attach(&(post.clone() as Arc<dyn Mailbox>));
        Desk { engine, post }
    }

    /// The engine itself, for calls that never wait.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Makes a call and ends its turn. While the log has no room, waits and makes it again. What is
    /// refused is refused for good: the refusal is durable when this returns.
    ///
    /// Dropping this may drop what the call gave: for leases and tickets there is [`Desk::take`].
    pub async fn call<T>(
        &self,
        mut call: impl FnMut(&Engine) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let called = call(&self.engine);
            self.end_turn().await;
            if let Some(told) = self.tried(called, deadline).await {
                return told;
            }
        }
    }

    /// As [`Desk::call`], for calls that give something to hold on to, a lease or a ticket. Nothing
    /// is awaited between the call and the return: whoever drops this has been given nothing.
    pub async fn take<T>(
        &self,
        mut call: impl FnMut(&Engine) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let deadline = Instant::now() + ROOM_WAIT;
        loop {
            let called = call(&self.engine);
            self.engine.end_turn();
            if let Some(told) = self.tried(called, deadline).await {
                return told;
            }
        }
    }

    /// What came of a call. None: there was no room, and now there is.
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

    /// As [`Desk::call`], for calls that change something: what they did is durable when this
    /// returns.
    pub async fn change(
        &self,
        call: impl FnMut(&Engine) -> Result<Gate, Refused>,
    ) -> Result<(), Refused> {
        let gate = self.call(call).await?;
        self.durable(gate).await;
        Ok(())
    }

    /// Waits until all records below a gate are durable. If the log fails that never comes: the
    /// connection is closed unanswered, and the process ends.
    pub async fn durable(&self, gate: Gate) {
        if self.engine.durable() >= gate {
            return;
        }
        let mut moves = self.post.moves();
        if self.engine.durable() < gate {
            // What was looked at may have been due, and be in the open batch.
            self.engine.end_turn();
        }
        while self.engine.durable() < gate {
            if self.engine.failure().is_some() {
                return pending().await;
            }
            // The sender lives as long as the desk.
            let _ = moves.changed().await;
        }
    }

    /// Changes whenever the durable position does, from now on: for those who watch something that
    /// only events change.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.post.moves()
    }

    /// Somebody new who waits. Every wait has a connection of its own, so that giving one up
    /// touches no other.
    pub fn caller(&self) -> Caller {
        let connection = NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed);
        let mailbox = self.post.clone() as Arc<dyn Mailbox>;
        Caller { connection: ConnectionId(connection), mailbox }
    }

    /// The wait a ticket stands for. To be called right after the engine gave the ticket.
    pub fn wait(&self, caller: Caller, ticket: Ticket) -> Wait<'_> {
        let answer = self.post.expect(ticket);
        Wait { desk: self, caller, ticket: Some(ticket), answer }
    }

    /// A lease that is undone unless its bytes are handed to the socket.
    pub fn hand_out(&self, lease: LeaseRef) -> HandOut {
        HandOut { engine: self.engine.clone(), lease: Some(lease) }
    }
}

/// Ends a turn when it is dropped: also when nobody waits for the answer any more.
struct EndOfTurn<'a>(&'a Engine);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}

/// A request that waits for the engine. Dropping it gives the wait up: a lease that was on its way
/// goes back.
pub struct Wait<'a> {
    desk: &'a Desk,
    caller: Caller,
    ticket: Option<Ticket>,
    answer: oneshot::Receiver<Delivery>,
}

impl Wait<'_> {
    /// The answer, and what must be durable before it may be told.
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
        self.desk.engine.connection_gone(self.caller.connection, self.ticket);
        if let Some(ticket) = self.ticket {
            self.desk.post.forget(ticket);
        }
        self.desk.engine.end_turn();
    }
}

/// A lease on its way out.
pub struct HandOut {
    engine: Engine,
    lease: Option<LeaseRef>,
}

impl HandOut {
    /// The socket has it.
    pub fn done(mut self) {
        self.lease = None;
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.engine.undo_lease(lease);
            self.engine.end_turn();
        }
    }
}

/// The body of an answer with a lease in it. If the socket never takes it, the lease is undone.
pub struct HandedOut {
    bytes: Option<Bytes>,
    hand_out: Option<HandOut>,
}

impl HandedOut {
    /// An answer whose bytes hand out the lease.
    pub fn new(bytes: Bytes, hand_out: HandOut) -> HandedOut {
        HandedOut { bytes: Some(bytes), hand_out: Some(hand_out) }
    }
}

impl http_body::Body for HandedOut {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(hand_out) = self.hand_out.take() {
            hand_out.done();
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
