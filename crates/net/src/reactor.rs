//! One thread's worth of connections, and the task that drives them.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::BytesMut;
use spindle_engine::door::{ConnectionId, Delivery, Door, Gate, Mailbox};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tracing::{debug, warn};

use crate::accept::{Acceptor, Arrival};
use crate::config::{Limits, Patience};
use crate::connection::{Connection, Desk, OpenSession, READ_BYTES, Share};
use crate::connections::Connections;
use crate::counters::{NetCounters, Traffic};
use crate::inbox::{Command, Inbox, Work};

/// What all reactors of a server share.
pub(crate) struct Street {
    pub(crate) doors: Vec<DoorEntry>,
    pub(crate) limits: Limits,
    pub(crate) reads_per_commit: usize,
    pub(crate) counters: Arc<NetCounters>,
    /// Set before the reactors are told: from then on nothing is written.
    pub(crate) aborted: AtomicBool,
    pub(crate) inboxes: Vec<Arc<Inbox>>,
}

/// A door that is served.
pub(crate) struct DoorEntry {
    pub(crate) door: Arc<dyn Door>,
    /// Its open sessions.
    pub(crate) connections: Arc<AtomicUsize>,
}

/// A reactor: the connections of one thread.
pub(crate) struct Reactor {
    number: usize,
    street: Arc<Street>,
    inbox: Arc<Inbox>,
    mailbox: Arc<dyn Mailbox>,
    /// In the reactor that accepts.
    pub(crate) acceptor: Option<Acceptor>,
    /// The reactor that gets the next connection.
    next_reactor: usize,
    pub(crate) connections: Connections,
    desk: Desk,
    patience: Patience,
    /// How far each door's log is durable, as of this turn's flush.
    durable: Vec<Gate>,
    /// Connections to flush at the end of the turn.
    pub(crate) touched: Vec<ConnectionId>,
    /// Connections that hold something back until the durable position moves.
    gated: Vec<ConnectionId>,
    /// Connections that go on in the next turn without an event.
    again: Vec<ConnectionId>,
    /// Connections to end at the end of the turn.
    ending: Vec<ConnectionId>,
    pub(crate) leaving: bool,
    over: bool,
}

impl Reactor {
    pub(crate) fn new(number: usize, street: &Arc<Street>, acceptor: Option<Acceptor>) -> Reactor {
        let inbox = Arc::clone(&street.inboxes[number]);
        Reactor {
            number,
            street: Arc::clone(street),
            mailbox: Arc::clone(&inbox) as Arc<dyn Mailbox>,
            inbox,
            acceptor,
            next_reactor: 0,
            connections: Connections::new(number),
            desk: Desk {
                scratch: BytesMut::with_capacity(READ_BYTES),
                traffic: Traffic::default(),
                now: 0,
                outbox_bytes_max: street.limits.outbox_bytes_max,
            },
            patience: Patience::of(&street.limits),
            durable: vec![Gate::OPEN; street.doors.len()],
            touched: Vec::new(),
            gated: Vec::new(),
            again: Vec::new(),
            ending: Vec::new(),
            leaving: false,
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

    /// Does all that was noted: reads first, then answers, then one flush, so that everything
    /// a connection has to say in this turn leaves in one write.
    fn turn(&mut self, work: &mut Work) {
        for command in work.commands.drain(..) {
            self.obey(command);
        }
        if mem::take(&mut work.sweep) {
            work.accept |= self.sweep();
        }
        if mem::take(&mut work.accept) {
            work.accept = self.accept();
        }
        for (number, id) in work.ready.drain(..).enumerate() {
            self.read(id);
            if number % self.street.reads_per_commit == self.street.reads_per_commit - 1 {
                self.end_door_turns();
            }
        }
        for delivery in work.deliveries.drain(..) {
            self.answer(delivery);
        }
        if mem::take(&mut work.durable_moved) {
            self.touch_gated();
        }
        self.end_door_turns();
        self.flush();
        if !self.ending.is_empty() {
            self.bury();
            self.end_door_turns();
        }
        self.desk.traffic.publish(&self.street.counters);
        self.over |= self.leaving && self.connections.is_empty();
    }

    fn end_door_turns(&self) {
        for entry in &self.street.doors {
            entry.door.end_turn();
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Adopt { door, stream, peer, place } => match TcpStream::from_std(stream) {
                Ok(stream) => self.open(Arrival { door, stream, peer, place }),
                Err(error) => warn!(%peer, %error, "cannot serve a connection"),
            },
            Command::StopAccepting => self.stop_accepting(),
            Command::Shutdown { last } => self.shut_down(last),
            Command::Abort => self.abort(),
        }
    }

    /// Takes up the connections that wait; whether more may wait.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(arrival) = self.acceptor.as_mut().and_then(Acceptor::next) else {
                return false;
            };
            let reactor = self.next_reactor;
            self.next_reactor = (reactor + 1) % self.street.inboxes.len();
            if reactor == self.number {
                self.open(arrival);
                continue;
            }
            let Arrival { door, stream, peer, place } = arrival;
            match stream.into_std() {
                Ok(stream) => self.street.inboxes[reactor].command(Command::Adopt {
                    door,
                    stream,
                    peer,
                    place,
                }),
                Err(error) => warn!(%peer, %error, "cannot hand a connection over"),
            }
        }
        true
    }

    fn open(&mut self, arrival: Arrival) {
        if self.leaving {
            return;
        }
        let Arrival { door, stream, peer, place } = arrival;
        let entry = &self.street.doors[door];
        entry.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.connections.insert(|id| {
            let session = entry.door.open(id, peer, &self.mailbox);
            let waker = self.inbox.waker(id);
            let sessions = Arc::clone(&entry.connections);
            let session = OpenSession::new(session, sessions);
            Connection::new(id, door, stream, waker, session, self.desk.now, place)
        });
        self.read(id);
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id) else { return };
        if connection.read(&mut self.desk) == Share::UsedUp {
            self.again.push(id);
        }
        touch(&mut self.touched, connection);
    }

    fn answer(&mut self, delivery: Delivery) {
        let Some(connection) = self.connections.find(delivery.connection) else { return };
        connection.answer(delivery.ticket, delivery.answer, delivery.gate, &self.desk);
        touch(&mut self.touched, connection);
    }

    fn touch_gated(&mut self) {
        for id in self.gated.drain(..) {
            if let Some(connection) = self.connections.find(id) {
                connection.gated = false;
                touch(&mut self.touched, connection);
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        // Asked after the sessions have spoken: a gate that opens later is noted by
        // `durable_moved`, because the position is published before that call.
        for (durable, entry) in self.durable.iter_mut().zip(&self.street.doors) {
            *durable = entry.door.durable();
        }
        for id in self.touched.drain(..) {
            let Some(connection) = self.connections.find(id) else { continue };
            connection.touched = false;
            if self.street.aborted.load(Ordering::Relaxed) {
                connection.kill();
            }
            let share = connection.flush(self.durable[connection.door], &mut self.desk);
            if connection.is_ending() {
                self.ending.push(id);
                continue;
            }
            if share == Share::UsedUp || connection.wants_read(&self.desk) {
                self.again.push(id);
            }
            if !connection.gated && connection.awaits_gate() {
                connection.gated = true;
                self.gated.push(id);
            }
        }
    }

    /// Ends what is dead or has sent its last byte, after the sessions have seen what the engine
    /// had answered them.
    pub(crate) fn bury(&mut self) {
        for delivery in self.inbox.take_deliveries(|id| self.ending.contains(&id)) {
            if let Some(connection) = self.connections.find(delivery.connection) {
                connection.answer(delivery.ticket, delivery.answer, delivery.gate, &self.desk);
            }
        }
        for id in self.ending.drain(..) {
            let Some(connection) = self.connections.find(id) else { continue };
            if !connection.is_ending() {
                // A late answer is still to be sent.
                self.again.push(id);
                continue;
            }
            connection.end(&mut self.desk);
            if connection.is_dead() {
                self.connections.remove(id);
            }
        }
    }

    /// Lets time pass; whether accepting is to be tried again.
    fn sweep(&mut self) -> bool {
        self.desk.now += 1;
        for connection in self.connections.iter_mut() {
            if let Some(reason) = connection.overdue(self.desk.now, &self.patience) {
                let door = self.street.doors[connection.door].door.name();
                debug!(door, connection = connection.id.0, "closed a client that {reason}");
                connection.kill();
                touch(&mut self.touched, connection);
            }
        }
        self.acceptor.as_mut().is_some_and(Acceptor::sweep)
    }
}

pub(crate) fn touch(touched: &mut Vec<ConnectionId>, connection: &mut Connection) {
    if !connection.touched {
        connection.touched = true;
        touched.push(connection.id);
    }
}

/// So many turns may follow each other on notes alone before sockets are looked at again.
const TURNS_PER_POLL: u32 = 2;
const ACCEPTS_PER_TURN: usize = 64;
