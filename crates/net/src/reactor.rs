//! A reactor: the connections of one thread, and the loop that serves them.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry, Token};
use nix::poll::{PollFd, PollFlags, ppoll};
use spindle_budget::{Budgets, Kind};
use spindle_engine::cohort::{Cohort, LOOKING_MAX, Next, PATIENCE_MAX};
use spindle_engine::door::{Committer, ConnectionId, Delivery, Door};
use spindle_tls::ListenerTls;
use tracing::{debug, warn};

use crate::accept::{Accepted, Acceptor, Arrival};
use crate::config::{Limits, SweepLimits};
use crate::connection::{Connection, Share, TurnBuffers};
use crate::connections::{Connections, connection_of, token_of};
use crate::counters::NetCounters;
use crate::inbox::{Command, Inbox, Notes, WAKER};

/// What all reactors of a server share.
pub(crate) struct Shared {
    pub(crate) committer: Arc<dyn Committer>,
    pub(crate) doors: Vec<DoorEntry>,
    pub(crate) limits: Limits,
    pub(crate) budgets: Budgets,
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
    /// How its clients may speak.
    pub(crate) tls: ListenerTls,
}

/// What a step of a reactor came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It has served what came.
    Served,
    /// It is time to commit.
    Commit,
    /// Everything is shut down.
    Over,
}

/// A reactor: connections, and their turns. Its two threads take turns at it, see
/// [`Shift`](crate::stand_in::Shift).
pub(crate) struct Reactor {
    number: usize,
    shared: Arc<Shared>,
    poll: Poll,
    inbox: Arc<Inbox>,
    /// In the reactor that accepts.
    pub(crate) acceptor: Option<Acceptor>,
    /// The reactor that gets the next connection.
    next_reactor: usize,
    pub(crate) connections: Connections,
    pub(crate) cohort: Cohort,
    buffers: TurnBuffers,
    sweep_limits: SweepLimits,
    next_sweep: Instant,
    /// A listener may have a connection.
    accepts: bool,
    /// Connections to go on with in this turn: their sockets have said something, or they had used
    /// up their share of the turn before.
    ready: Vec<ConnectionId>,
    /// Connections that send much, in turn.
    bulk: VecDeque<ConnectionId>,
    /// Connections whose handshake has a step to be done, in turn.
    handshakes: VecDeque<ConnectionId>,
    /// Connections to flush at the end of the turn.
    pub(crate) to_flush: Vec<ConnectionId>,
    /// Connections that hold something back until the durable position moves.
    gated: Vec<ConnectionId>,
    /// Connections that go on in the next turn without an event.
    again: Vec<ConnectionId>,
    /// Connections to end at the end of the turn.
    ending: Vec<ConnectionId>,
    /// What the sockets said, and what others have noted: empty between turns.
    events: Events,
    notes: Notes,
    /// A session was called in this turn.
    pub(crate) has_called: bool,
    /// Something was decided that is not on its way to the log.
    has_work: bool,
    pub(crate) shutting_down: bool,
    over: bool,
}

impl Reactor {
    pub(crate) fn new(
        number: usize,
        shared: &Arc<Shared>,
        poll: Poll,
        acceptor: Option<Acceptor>,
    ) -> Reactor {
        let inbox = Arc::clone(&shared.inboxes[number]);
        Reactor {
            number,
            shared: Arc::clone(shared),
            poll,
            buffers: TurnBuffers::new(shared, &inbox),
            inbox,
            acceptor,
            next_reactor: 0,
            connections: Connections::new(number),
            cohort: Cohort::new(PATIENCE_MAX),
            sweep_limits: SweepLimits::of(&shared.limits),
            next_sweep: Instant::now(),
            accepts: true,
            ready: Vec::new(),
            bulk: VecDeque::new(),
            handshakes: VecDeque::new(),
            to_flush: Vec::new(),
            gated: Vec::new(),
            again: Vec::new(),
            ending: Vec::new(),
            events: Events::with_capacity(EVENTS_PER_POLL),
            notes: Notes::default(),
            has_called: false,
            has_work: false,
            shutting_down: false,
            over: false,
        }
    }

    /// Serves what came, then looks or sleeps until more comes, or returns that it is time to commit.
    pub(crate) fn step(&mut self) -> Step {
        self.inbox.take(&mut self.notes);
        self.turn(Some(Instant::now()));
        if self.over {
            return Step::Over;
        }
        match self.cohort.next(self.has_work, self.shared.committer.sync_time()) {
            Next::Commit => return Step::Commit,
            // A whole turn's work is not kept waiting for more.
            Next::Look(_) if self.has_work && !self.bulk.is_empty() => return Step::Commit,
            Next::Look(at_most) => self.look(at_most),
            Next::Sleep => self.sleep(),
        }
        Step::Served
    }

    /// The calling thread is about to commit what was decided so far. Until it has, the other thread may
    /// serve what comes: see [`Reactor::serve_what_came`].
    pub(crate) fn leave_for_commit(&mut self) -> Arc<dyn Committer> {
        self.has_work = false;
        // If there is a note already, it is seen after the commit at the latest.
        self.inbox.may_sleep(false);
        Arc::clone(&self.shared.committer)
    }

    /// Serves what came during a commit. False when there was nothing: then the poll says when there
    /// is.
    pub(crate) fn serve_what_came(&mut self) -> bool {
        let (came, _) = self.poll_sockets(Duration::ZERO);
        if !came && !self.has_more() && self.inbox.may_sleep(false) {
            return false;
        }
        self.inbox.take(&mut self.notes);
        self.turn(None);
        true
    }

    /// Ends the reactor: nothing is noted for it any more, and waits on its poll return at once from now
    /// on.
    pub(crate) fn close(&mut self) {
        self.inbox.close();
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Looks whether something has come, and sleeps until then if it may be more than a moment.
    fn look(&mut self, at_most: Duration) {
        if at_most > LOOKING_MAX && self.may_sleep() {
            let began = Instant::now();
            // The poll itself counts in milliseconds. Why this ends shows below.
            let mut watched = [PollFd::new(self.poll.registry().as_fd(), PollFlags::POLLIN)];
            let _ = ppoll(&mut watched, Some(at_most.into()), None);
            self.cohort.looked(began.elapsed());
        }
        let (came, time) = self.poll_sockets(Duration::ZERO);
        if !came {
            self.cohort.looked(time);
        }
    }

    /// Sleeps until a socket or a note wakes it, or a sweep is due.
    fn sleep(&mut self) {
        let timeout = if self.may_sleep() {
            self.next_sweep.saturating_duration_since(Instant::now())
        } else {
            Duration::ZERO
        };
        let (_, time) = self.poll_sockets(timeout);
        self.cohort.slept(time);
    }

    /// Whether a socket or a note will wake it for all that is to come.
    fn may_sleep(&self) -> bool {
        let goes_on = self.accepts || self.has_more();
        !goes_on && self.inbox.may_sleep(!self.gated.is_empty())
    }

    /// Whether the next turn has work for which no event comes.
    fn has_more(&self) -> bool {
        !self.again.is_empty() || !self.handshakes.is_empty() || !self.bulk.is_empty()
    }

    /// Takes what the sockets say. Returns whether something came, and how long that took.
    fn poll_sockets(&mut self, timeout: Duration) -> (bool, Duration) {
        let began = Instant::now();
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout))
            && error.kind() != io::ErrorKind::Interrupted
        {
            warn!(%error, "cannot ask which connections have something to say");
        }
        for event in &self.events {
            match event.token() {
                WAKER => {}
                LISTENERS => self.accepts = true,
                token => {
                    let id = connection_of(token);
                    if let Some(connection) = self.connections.find(id) {
                        connection.transport.note(event);
                        self.ready.push(id);
                    }
                }
            }
        }
        let now = Instant::now();
        if now >= self.next_sweep {
            self.next_sweep = now + self.shared.limits.sweep_interval();
            self.sweep();
        }
        (!self.events.is_empty(), now - began)
    }

    /// Does all that was noted. What has become durable leaves first, since it waits for nothing
    /// else; then come reads, then answers, then one flush, so that everything else that a connection
    /// has to send in this turn leaves in one write. `begun` is when the turn began, unless a commit is
    /// under way meanwhile.
    fn turn(&mut self, begun: Option<Instant>) {
        let mut notes = mem::take(&mut self.notes);
        if mem::take(&mut notes.durable_moved) {
            self.list_gated();
            if !self.bulk.is_empty() {
                self.flush();
            }
        }
        for command in notes.commands.drain(..) {
            self.execute(command);
        }
        if mem::take(&mut self.accepts) {
            self.accepts = self.accept();
        }
        self.ready.append(&mut self.again);
        let mut ready = mem::take(&mut self.ready);
        for id in ready.drain(..) {
            self.read(id);
        }
        self.ready = ready;
        self.read_bulk();
        self.shake_hands();
        for delivery in notes.deliveries.drain(..) {
            self.answer(delivery);
        }
        if let Some(begun) = begun {
            self.cohort.served(begun.elapsed());
        }
        self.flush();
        self.reap();
        self.buffers.traffic.publish(&self.shared.counters);
        self.notes = notes;
        if mem::take(&mut self.has_called) {
            self.has_work = self.shared.committer.end_turn();
        }
        self.over |= self.shutting_down && self.connections.is_empty();
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Adopt(arrival) => self.open(arrival),
            Command::LetGo { connection, kind } => self.let_go(connection, kind),
            Command::StopAccepting => self.stop_accepting(),
            Command::Shutdown { last } => self.shut_down(last),
            Command::Abort => self.abort(),
        }
    }

    /// Accepts the connections that wait, or refuses them. Returns whether more may wait.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            let arrival = match self.acceptor.as_mut().map(Acceptor::next) {
                Some(Accepted::One(arrival)) => arrival,
                Some(Accepted::Nobody) => continue,
                Some(Accepted::Nothing) | None => return false,
            };
            let reactor = self.next_reactor;
            self.next_reactor = (reactor + 1) % self.shared.inboxes.len();
            if reactor == self.number {
                self.open(arrival);
                continue;
            }
            self.shared.inboxes[reactor].command(Command::Adopt(arrival));
        }
        true
    }

    fn open(&mut self, arrival: Arrival) {
        if self.shutting_down {
            return;
        }
        let peer = arrival.peer;
        let id = self.connections.insert(|id| Connection::open(id, arrival, &self.buffers));
        let Some(connection) = self.connections.find(id) else { return };
        if let Err(error) = connection.transport.register(self.poll.registry(), token_of(id)) {
            warn!(%peer, %error, "cannot serve a connection");
            connection.kill();
            list_for_flush(&mut self.to_flush, connection);
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id) else { return };
        connection.decide(&self.buffers);
        if connection.is_shaking() {
            if !mem::replace(&mut connection.to_shake, true) {
                self.handshakes.push_back(id);
            }
            return;
        }
        if connection.is_bulk || connection.has_rest() {
            queue_bulk(&mut self.bulk, connection);
            list_for_flush(&mut self.to_flush, connection);
        } else {
            self.read_now(id);
        }
    }

    /// One read of a connection. Returns how many bytes it was.
    fn read_now(&mut self, id: ConnectionId) -> usize {
        let Some(connection) = self.connections.find(id) else { return 0 };
        self.has_called = true;
        let count = connection.read(&mut self.cohort, &mut self.buffers);
        if connection.is_bulk && connection.wants_read(&self.buffers) {
            queue_bulk(&mut self.bulk, connection);
        }
        list_for_flush(&mut self.to_flush, connection);
        count
    }

    /// Reads the connections that send much, one after the other, up to the limit of a turn: so those
    /// that send little wait for one such share only, however much the others send.
    fn read_bulk(&mut self) {
        let mut left = BULK_BYTES_PER_TURN;
        while left > 0 {
            let Some(id) = self.bulk.pop_front() else { return };
            let Some(connection) = self.connections.find(id) else { continue };
            connection.is_queued = false;
            // A look costs something even if there is nothing to read.
            left = left.saturating_sub(self.read_now(id).max(BULK_BYTES_PER_TURN / 128));
        }
    }

    /// Does a few steps of handshakes. Each takes about as long as a hundred requests: clients that come
    /// together wait for one another, and nobody else waits for all of them.
    fn shake_hands(&mut self) {
        for _ in 0..HANDSHAKE_STEPS_PER_TURN {
            let Some(id) = self.handshakes.pop_front() else { return };
            let Some(connection) = self.connections.find(id) else { continue };
            connection.to_shake = false;
            self.read_now(id);
        }
    }

    fn answer(&mut self, delivery: Delivery) {
        let Some(connection) = self.connections.find(delivery.connection) else { return };
        self.has_called = true;
        connection.answer(delivery.ticket, delivery.answer, &self.buffers);
        list_for_flush(&mut self.to_flush, connection);
    }

    fn let_go(&mut self, id: ConnectionId, kind: Kind) {
        let Some(connection) = self.connections.find(id) else { return };
        self.has_called = true;
        connection.let_go(kind, &self.buffers);
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
        let released = self.shared.committer.released();
        for id in self.to_flush.drain(..) {
            let Some(connection) = self.connections.find(id) else { continue };
            connection.to_flush = false;
            if self.shared.aborted.load(Ordering::Relaxed) {
                connection.kill();
            }
            let share = connection.flush(released, &mut self.buffers);
            connection.count_held();
            if connection.is_ending() {
                self.ending.push(id);
                continue;
            }
            connection.note_answered(&mut self.cohort);
            let wants_read = !connection.is_queued && connection.wants_read(&self.buffers);
            if share == Share::UsedUp || wants_read {
                self.again.push(id);
            }
            if !connection.gated && connection.awaits_gate(released) {
                connection.gated = true;
                self.gated.push(id);
            }
        }
    }

    /// Ends the connections that are dead or have sent their last byte, after their sessions have
    /// seen the engine's answers.
    pub(crate) fn reap(&mut self) {
        if self.ending.is_empty() {
            return;
        }
        self.has_called = true;
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
            connection.end(&mut self.cohort, &mut self.buffers);
            if connection.is_dead() {
                self.connections.remove(id);
            }
        }
    }

    /// Advances the sweep clock and closes what is overdue.
    fn sweep(&mut self) {
        self.buffers.now += 1;
        for connection in self.connections.iter_mut() {
            connection.shrink_if_idle(self.buffers.now);
            let entry = &self.shared.doors[connection.door];
            if let Some(reason) = connection.overdue(self.buffers.now, &self.sweep_limits, entry) {
                let door = entry.door.name();
                debug!(door, connection = connection.id.0, "closed a client that {reason}");
                connection.note_failed_handshake(&self.buffers);
                connection.kill();
                list_for_flush(&mut self.to_flush, connection);
            }
        }
        self.accepts |= self.acceptor.as_mut().is_some_and(Acceptor::sweep);
    }
}

pub(crate) fn list_for_flush(to_flush: &mut Vec<ConnectionId>, connection: &mut Connection) {
    if !connection.to_flush {
        connection.to_flush = true;
        to_flush.push(connection.id);
    }
}

fn queue_bulk(bulk: &mut VecDeque<ConnectionId>, connection: &mut Connection) {
    if !mem::replace(&mut connection.is_queued, true) {
        bulk.push_back(connection.id);
    }
}

/// Stands for all listeners among the tokens of the connections.
pub(crate) const LISTENERS: Token = Token(usize::MAX - 1);
const EVENTS_PER_POLL: usize = 1024;
const ACCEPTS_PER_TURN: usize = 64;
/// The bytes that are read in a turn of all connections that send much: about a millisecond of small
/// requests.
const BULK_BYTES_PER_TURN: usize = 64 * 1024;
const HANDSHAKE_STEPS_PER_TURN: usize = 2;
