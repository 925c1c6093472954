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
use spindle_core::JobId;
use spindle_core::batch::Batch;
use spindle_core::command::Lease;
use spindle_engine::{
    Answer, Caller, ConnectionId, Delivery, Engine, Gated, LeaseRef, LeaseReply, LeasedJob,
    Mailbox, Refused, Ticket,
};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::commit_loop::CommitLoop;
use crate::mailbox::TicketMailbox;

/// How long a request waits for room in the log before it is refused as busy.
const ROOM_WAIT: Duration = Duration::from_secs(20);

/// The connection number of the next HTTP request that waits, far from those of the line doors. There is
/// one count per process: every door has a bridge of its own, and doors share the engine.
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

    /// Begins a turn of calls.
    pub fn turn(&self) -> Turn<'_> {
        Turn(&self.engine)
    }

    /// Waits while the log has no room, then makes a call in a turn of its own.
    ///
    /// Nothing is awaited between the call and the return: a caller that drops this future has been given
    /// nothing, no lease and no ticket.
    pub async fn call<T>(
        &self,
        call: impl FnOnce(&Engine) -> Gated<Result<T, Refused>>,
    ) -> Gated<Result<T, Refused>> {
        self.call_with(0, call).await
    }

    /// As [`EngineBridge::call`], for a call that brings so many bytes.
    async fn call_with<T>(
        &self,
        bytes: usize,
        call: impl FnOnce(&Engine) -> Gated<Result<T, Refused>>,
    ) -> Gated<Result<T, Refused>> {
        match self.room(bytes).await {
            Ok(()) => {
                let _turn = self.turn();
                call(&self.engine)
            }
            Err(refused) => Gated::open(Err(refused)),
        }
    }

    /// Tries once to lease a job, and waits for one up to `wait_ms`. The job comes with a guard that takes
    /// it back if it never reaches the worker. Dropping the future gives up the wait, and a lease that is
    /// on its way.
    pub async fn lease(
        &self,
        request: Lease,
        wait_ms: u64,
    ) -> Gated<Result<Option<(LeasedJob, LeaseGuard)>, Refused>> {
        let caller = self.caller();
        let reply = self.call(|engine| engine.leases().take(&caller, request, wait_ms)).await;
        let mut answer = Gated::open(());
        let job = match answer.absorb(reply) {
            Ok(LeaseReply::Leased(job)) => Some(job),
            Ok(LeaseReply::Nothing) => None,
            Ok(LeaseReply::Waiting(ticket)) => {
                match answer.absorb(self.wait(caller, ticket).answered().await) {
                    Answer::Leased(job) => Some(job),
                    _ => None,
                }
            }
            Err(refused) => return answer.map(|()| Err(refused)),
        };
        let guarded = job.map(|job| {
            let lease = LeaseRef { job: job.id, attempt: job.attempt };
            (*job, self.lease_guard(lease))
        });
        answer.map(|()| Ok(guarded))
    }

    /// As [`EngineBridge::lease`], and then more jobs as far as they are ready: up to `count` in all,
    /// and none after their payloads have `bytes_max` bytes together. All are in one answer, so that
    /// there is one wait for the disk.
    pub async fn lease_many(
        &self,
        request: &Lease,
        wait_ms: u64,
        count: usize,
        bytes_max: usize,
    ) -> Gated<Result<Vec<(LeasedJob, LeaseGuard)>, Refused>> {
        let mut answer = Gated::open(());
        let mut leased = match answer.absorb(self.lease(request.clone(), wait_ms).await) {
            Ok(first) => Vec::from_iter(first),
            Err(refused) => return answer.map(|()| Err(refused)),
        };
        while !leased.is_empty() && leased.len() < count && payload_bytes(&leased) < bytes_max {
            match answer.absorb(self.lease(request.clone(), 0).await) {
                Ok(Some(next)) => leased.push(next),
                // A worker that gets some jobs can ask again for more, and learns then of a refusal.
                Ok(None) | Err(_) => break,
            }
        }
        answer.map(|()| Ok(leased))
    }

    /// Waits up to `wait_ms` for a job's end. None: it has ended already, or is not there; look it
    /// up.
    pub async fn result(&self, job: JobId, wait_ms: u64) -> Result<Option<Answer>, Refused> {
        let caller = self.caller();
        let ticket = {
            let _turn = self.turn();
            self.engine.waits().for_result(&caller, job, wait_ms, false)?
        };
        let Some(ticket) = ticket else { return Ok(None) };
        let answer = self.wait(caller, ticket).answered().await;
        Ok(Some(self.durable(answer).await))
    }

    /// Waits up to `wait_ms` for a batch's end: the batch as it is then. None: it has ended already,
    /// or is not there, or the time is over; look it up.
    pub async fn batch_end(&self, batch: JobId, wait_ms: u64) -> Result<Option<Batch>, Refused> {
        let caller = self.caller();
        let ticket = {
            let _turn = self.turn();
            self.engine.waits().for_batch_end(&caller, batch, wait_ms)?
        };
        let Some(ticket) = ticket else { return Ok(None) };
        let answer = self.wait(caller, ticket).answered().await;
        match self.durable(answer).await {
            Answer::BatchEnded(batch) => Ok(Some(Arc::unwrap_or_clone(batch))),
            _ => Ok(None),
        }
    }

    /// Begins to wait for the next change of a job's [`Activity`](spindle_engine::Activity). To be
    /// begun before the activity is looked at, so that no change is missed between the two.
    ///
    /// # Errors
    ///
    /// Too many wait already.
    pub fn next_change(&self, job: JobId) -> Result<Wait<'_>, Refused> {
        let caller = self.caller();
        let ticket = self.engine.waits().for_change(&caller, job)?;
        Ok(self.wait(caller, ticket))
    }

    /// As [`EngineBridge::call`], for calls that change something: what they did, or why they were
    /// refused, is durable when this returns.
    pub async fn change<T>(
        &self,
        call: impl FnOnce(&Engine) -> Gated<Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let called = self.call(call).await;
        self.durable(called).await
    }

    /// As [`EngineBridge::change`], for changes that bring bytes: a payload or a result.
    pub async fn change_with<T>(
        &self,
        bytes: usize,
        call: impl FnOnce(&Engine) -> Gated<Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let called = self.call_with(bytes, call).await;
        self.durable(called).await
    }

    /// Waits for room in the log, for a change that brings so many bytes. Refused as busy when this
    /// takes too long, or when the disk is full and there will be no room.
    pub async fn room(&self, bytes: usize) -> Result<(), Refused> {
        let deadline = Instant::now() + ROOM_WAIT;
        let caller = self.caller();
        while let Some(ticket) = self.engine.wait_for_room(&caller, bytes)? {
            let wait = self.wait(caller.clone(), ticket);
            if timeout_at(deadline, wait.answered()).await.is_err() {
                return Err(Refused::Busy);
            }
        }
        Ok(())
    }

    /// The value, once the log is durable up to its gate and, for a shared log, it is certain that this
    /// process leads it. Never returns if the log fails: the connection is closed unanswered, and the
    /// process ends.
    pub async fn durable<T>(&self, gated: Gated<T>) -> T {
        let mut gated = match self.release(gated) {
            Ok(value) => return value,
            Err(gated) => gated,
        };
        let Some(commit_loop) = CommitLoop::current() else {
            return self.durable_elsewhere(gated).await;
        };
        // Looking may have made changes that were due, which are in the open batch then.
        drop(self.turn());
        loop {
            let moved = commit_loop.moved_to(gated.gate());
            gated = match self.release(gated) {
                Ok(value) => return value,
                Err(gated) => gated,
            };
            moved.await;
        }
    }

    /// The value, if it may leave now.
    fn release<T>(&self, gated: Gated<T>) -> Result<T, Gated<T>> {
        match self.engine.released() {
            Some(durable) => gated.release(durable),
            None => Err(gated),
        }
    }

    /// As [`EngineBridge::durable`], on a thread that serves no connections.
    async fn durable_elsewhere<T>(&self, mut gated: Gated<T>) -> T {
        let mut moves = self.mailbox.moves();
        drop(self.turn());
        loop {
            gated = match self.release(gated) {
                Ok(value) => return value,
                Err(gated) => gated,
            };
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
        LeaseGuard { bridge: self.clone(), lease: Some(lease) }
    }
}

/// A turn of calls. After it is dropped, their decisions are committed: by the serving thread, together
/// with those of its other requests; on other threads, by the engine's log thread.
#[must_use = "calls are made within a turn: what they decide goes to the log when it ends"]
pub struct Turn<'a>(&'a Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        match CommitLoop::current() {
            Some(commit_loop) => commit_loop.called(),
            None => drop(self.0.turn()),
        }
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
    /// The answer.
    pub async fn answered(mut self) -> Gated<Answer> {
        let answered = (&mut self.answer).await;
        self.ticket = None;
        match answered {
            Ok(delivery) => delivery.answer,
            // The mailbox keeps the sender until it has delivered.
            Err(_) => Gated::open(Answer::TimedOut),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // First the engine: once it has let go of the wait, nothing is delivered any more.
        self.bridge.engine.waits().connection_gone(self.caller.connection, self.ticket);
        if let Some(ticket) = self.ticket {
            self.bridge.mailbox.forget(ticket);
        }
        drop(self.bridge.turn());
    }
}

/// Undoes a lease unless its bytes are handed to the socket.
pub struct LeaseGuard {
    bridge: EngineBridge,
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
            let _turn = self.bridge.turn();
            self.bridge.engine.leases().undo(lease);
        }
    }
}

fn payload_bytes(leased: &[(LeasedJob, LeaseGuard)]) -> usize {
    leased.iter().map(|(job, _)| job.payload.len as usize).sum()
}

/// The body of an answer with leases in it. If the socket never takes it, they are undone.
pub struct GuardedBody {
    bytes: Option<Bytes>,
    lease_guards: Vec<LeaseGuard>,
}

impl GuardedBody {
    /// An answer whose bytes hand out the leases.
    pub fn new(bytes: Bytes, lease_guards: Vec<LeaseGuard>) -> GuardedBody {
        GuardedBody { bytes: Some(bytes), lease_guards }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        for lease_guard in self.lease_guards.drain(..) {
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
