//! One thread's worth of connections, and the task that drives them.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::BytesMut;
use spindle_engine::Gate;
use spindle_engine::door::{ConnectionId, Delivery, Door, Mailbox};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tracing::{debug, warn};

use crate::accept::{Acceptor, Arrival};
use crate::config::{Limits, SweepLimits};
use crate::connection::{Connection, OpenSession, READ_BYTES, Share, TurnBuffers};
use crate::connections::Connections;
use crate::counters::{NetCounters, Traffic};
use crate::inbox::{Command, Inbox, Work};

/// What all reactors of a server share.
pub(crate) struct Shared {
    pub(crate) doors: Vec<DoorEntry>,
    pub(crate) limits: Limits,
    pub(crate) reads_per_commit: usize,
    pub(crate) counters: Arc<NetCounters>,
    /// Set before the reactors get the command: from then on nothing is written.
    pub(crate) aborted: AtomicBool,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
}

/// A door that is served.
pub(crate) struct DoorEntry {
    pub(crate) door: Arc<dyn Door>,
    /// Its open sessions.
    pub(crate) connections: Arc<AtomicUsize>,
}

/// A turn of all doors: when it is dropped, what their sessions decided goes to the log as one batch.
struct DoorTurns<'a>(&'a [DoorEntry]);

impl DoorTurns<'_> {
    /// What was decided so far goes to the log; more may come.
    fn end_and_begin(&self) {
        for entry in self.0 {
            entry.door.end_turn();
        }
    }
}

impl Drop for DoorTurns<'_> {
    fn drop(&mut self) {
        self.end_and_begin();
    }
}

/// A reactor: the connections of one thread.
pub(crate) struct Reactor {
    number: usize,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    mailbox: Arc<dyn Mailbox>,
    /// In the reactor that accepts.
    pub(crate) acceptor: Option<Acceptor>,
    /// The reactor that gets the next connection.
    next_reactor: usize,
    pub(crate) connections: Connections,
    buffers: TurnBuffers,
    sweep_limits: SweepLimits,
    /// How far each door's log is durable, as of this turn's flush.
    durable: Vec<Gate>,
    /// Connections to flush at the end of the turn.
    pub(crate) to_flush: Vec<ConnectionId>,
    /// Connections that hold something back until the durable position moves.
    gated: Vec<ConnectionId>,
    /// Connections that go on in the next turn without an event.
    again: Vec<ConnectionId>,
    /// Connections to end at the end of the turn.
    ending: Vec<ConnectionId>,
    pub(crate) shutting_down: bool,
    over: bool,
}

impl Reactor {
    pub(crate) fn new(number: usize, shared: &Arc<Shared>, acceptor: Option<Acceptor>) -> Reactor {
        let inbox = Arc::clone(&shared.inboxes[number]);
        Reactor {
            number,
            shared: Arc::clone(shared),
            mailbox: Arc::clone(&inbox) as Arc<dyn Mailbox>,
            inbox,
            acceptor,
            next_reactor: 0,
            connections: Connections::new(number),
            buffers: TurnBuffers {
                scratch: BytesMut::with_capacity(READ_BYTES),
                traffic: Traffic::default(),
                now: 0,
                outbox_bytes_max: shared.limits.outbox_bytes_max,
            },
            sweep_limits: SweepLimits::of(&shared.limits),
            durable: vec![Gate::OPEN; shared.doors.len()],
            to_flush: Vec::new(),
            gated: Vec::new(),
            again: Vec::new(),
            ending: Vec::new(),
            shutting_down: false,
            over: false,
        }
    }

    /// Serves until everything is shut down.
    pub(crate) async fn run(mut self) {
        let mut work = Work { accept: true, ..Work::default() };
        let mut turns = 0;
        loop {
            self.turn(&mut work);
            if self.over {
                break;
            }
            turns += 1;
            if !self.again.is_empty() || work.accept || turns == TURNS_PER_POLL {
                // Goes through the poll for events before it goes on.
                turns = 0;
                yield_now().await;
                work.ready.append(&mut self.again);
            }
            poll_fn(|cx| {
                let taken = self.inbox.poll_take(cx, &mut work);
                if taken.is_pending() {
                    turns = 0;
                }
                taken
            })
            .await;
        }
        self.inbox.close();
    }

    /// Does all that was noted: reads first, then answers, then one flush, so that everything a
    /// connection has to send in this turn leaves in one write.
    fn turn(&mut self, work: &mut Work) {
        let shared = Arc::clone(&self.shared);
        let turn = DoorTurns(&shared.doors);
        for command in work.commands.drain(..) {
            self.execute(command);
        }
        if mem::take(&mut work.sweep) {
            work.accept |= self.sweep();
        }
        if mem::take(&mut work.accept) {
            work.accept = self.accept();
        }
        for (number, id) in work.ready.drain(..).enumerate() {
            self.read(id);
            if number % shared.reads_per_commit == shared.reads_per_commit - 1 {
                turn.end_and_begin();
            }
        }
        for delivery in work.deliveries.drain(..) {
            self.answer(delivery);
        }
        if mem::take(&mut work.durable_moved) {
            self.list_gated();
        }
        drop(turn);
        self.flush();
        if !self.ending.is_empty() {
            let _turn = DoorTurns(&shared.doors);
            self.reap();
        }
        self.buffers.traffic.publish(&self.shared.counters);
        self.over |= self.shutting_down && self.connections.is_empty();
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Adopt { door, stream, peer, permit } => match TcpStream::from_std(stream) {
                Ok(stream) => self.open(Arrival { door, stream, peer, permit }),
                Err(error) => warn!(%peer, %error, "cannot serve a connection"),
            },
            Command::StopAccepting => self.stop_accepting(),
            Command::Shutdown { last } => self.shut_down(last),
            Command::Abort => self.abort(),
        }
    }

    /// Accepts the connections that wait. Returns whether more may wait.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(arrival) = self.acceptor.as_mut().and_then(Acceptor::next) else {
                return false;
            };
            let reactor = self.next_reactor;
            self.next_reactor = (reactor + 1) % self.shared.inboxes.len();
            if reactor == self.number {
                self.open(arrival);
                continue;
            }
            let Arrival { door, stream, peer, permit } = arrival;
            match stream.into_std() {
                Ok(stream) => self.shared.inboxes[reactor].command(Command::Adopt {
                    door,
                    stream,
                    peer,
                    permit,
                }),
                Err(error) => warn!(%peer, %error, "cannot hand a connection over"),
            }
        }
        true
    }

    fn open(&mut self, arrival: Arrival) {
        if self.shutting_down {
            return;
        }
        let Arrival { door, stream, peer, permit } = arrival;
        let entry = &self.shared.doors[door];
        entry.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.connections.insert(|id| {
            let session = entry.door.open(id, peer, &self.mailbox);
            let waker = self.inbox.waker(id);
            let sessions = Arc::clone(&entry.connections);
            let session = OpenSession::new(session, sessions);
            Connection::new(id, door, stream, waker, session, self.buffers.now, permit)
        });
        self.read(id);
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id) else { return };
        if connection.read(&mut self.buffers) == Share::UsedUp {
            self.again.push(id);
        }
        list_for_flush(&mut self.to_flush, connection);
    }

    fn answer(&mut self, delivery: Delivery) {
        let Some(connection) = self.connections.find(delivery.connection) else { return };
        connection.answer(delivery.ticket, delivery.answer, &self.buffers);
        list_for_flush(&mut self.to_flush, connection);
    }

    fn list_gated(&mut self) {
        for id in self.gated.drain(..) {
            if let Some(connection) = self.connections.find(id) {
                connection.gated = false;
                list_for_flush(&mut self.to_flush, connection);
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        if self.to_flush.is_empty() {
            return;
        }
        // Asked after the sessions have spoken: a gate that opens later is noted by
        // `durable_moved`, because the position is published before that call.
        for (durable, entry) in self.durable.iter_mut().zip(&self.shared.doors) {
            *durable = entry.door.durable();
        }
        for id in self.to_flush.drain(..) {
            let Some(connection) = self.connections.find(id) else { continue };
            connection.to_flush = false;
            if self.shared.aborted.load(Ordering::Relaxed) {
                connection.kill();
            }
            let share = connection.flush(self.durable[connection.door], &mut self.buffers);
            if connection.is_ending() {
                self.ending.push(id);
                continue;
            }
            if share == Share::UsedUp || connection.wants_read(&self.buffers) {
                self.again.push(id);
            }
            if !connection.gated && connection.awaits_gate() {
                connection.gated = true;
                self.gated.push(id);
            }
        }
    }

    /// Ends the connections that are dead or have sent their last byte, after their sessions have
    /// seen the engine's answers.
    pub(crate) fn reap(&mut self) {
        for delivery in self.inbox.take_deliveries(|id| self.ending.contains(&id)) {
            if let Some(connection) = self.connections.find(delivery.connection) {
                connection.answer(delivery.ticket, delivery.answer, &self.buffers);
            }
        }
        for id in self.ending.drain(..) {
            let Some(connection) = self.connections.find(id) else { continue };
            if !connection.is_ending() {
                // A late answer is still to be sent.
                self.again.push(id);
                continue;
            }
            connection.end(&mut self.buffers);
            if connection.is_dead() {
                self.connections.remove(id);
            }
        }
    }

    /// Advances the sweep clock and closes what is overdue. Returns whether to try to accept again.
    fn sweep(&mut self) -> bool {
        self.buffers.now += 1;
        for connection in self.connections.iter_mut() {
            if let Some(reason) = connection.overdue(self.buffers.now, &self.sweep_limits) {
                let door = self.shared.doors[connection.door].door.name();
                debug!(door, connection = connection.id.0, "closed a client that {reason}");
                connection.kill();
                list_for_flush(&mut self.to_flush, connection);
            }
        }
        self.acceptor.as_mut().is_some_and(Acceptor::sweep)
    }
}

pub(crate) fn list_for_flush(to_flush: &mut Vec<ConnectionId>, connection: &mut Connection) {
    if !connection.to_flush {
        connection.to_flush = true;
        to_flush.push(connection.id);
    }
}

/// This many turns may follow each other on notes alone before sockets are polled again.
const TURNS_PER_POLL: u32 = 2;
const ACCEPTS_PER_TURN: usize = 64;
