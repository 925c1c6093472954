//! One connection: a socket, its session, what came in and what has not left yet.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use spindle_budget::Holder;
use spindle_engine::cohort::{Cohort, Guest};
use spindle_engine::door::{ConnectionId, Flow, LeaseRef, Mailbox, Outbox, Peer, Session, Ticket};
use spindle_engine::{Answer, Gate, Gated};

use crate::accept::Arrival as Arrived;
use crate::accept::Permit;
use crate::config::SweepLimits;
use crate::counters::Traffic;
use crate::feed::FEED_BYTES_MAX;
use crate::held::Held;
use crate::inbox::Inbox;
use crate::reactor::{DoorEntry, Shared};
use crate::transport::{After, Arrival, Departure, READ_BYTES, Transport};

/// What the connections of a reactor share during a turn.
pub(crate) struct TurnBuffers {
    /// Where reads go; a connection owns memory only for what its session left unconsumed.
    pub(crate) scratch: BytesMut,
    /// Where bytes are read to.
    pub(crate) raw: Box<[u8]>,
    pub(crate) traffic: Traffic,
    /// Sweeps since the start: the clock that connections are stamped with.
    pub(crate) now: u64,
    pub(crate) outbox_bytes_max: usize,
    /// The doors, which open sessions.
    pub(crate) shared: Arc<Shared>,
    /// What reaches this reactor.
    pub(crate) mailbox: Arc<dyn Mailbox>,
    /// The same, for budgets.
    pub(crate) holder: Arc<dyn Holder>,
}

impl TurnBuffers {
    pub(crate) fn new(shared: &Arc<Shared>, inbox: &Arc<Inbox>) -> TurnBuffers {
        TurnBuffers {
            scratch: BytesMut::with_capacity(READ_BYTES),
            raw: vec![0; READ_BYTES].into_boxed_slice(),
            traffic: Traffic::default(),
            now: 0,
            outbox_bytes_max: shared.limits.outbox_bytes_max,
            shared: Arc::clone(shared),
            mailbox: Arc::clone(inbox) as Arc<dyn Mailbox>,
            holder: Arc::clone(inbox) as Arc<dyn Holder>,
        }
    }
}

/// A connection of a reactor.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// The door's number in the reactor.
    pub(crate) door: usize,
    pub(crate) peer: SocketAddr,
    /// Who it is, if that was known when it came.
    pub(crate) known: Option<Peer>,
    pub(crate) transport: Transport,
    /// Some once it is known how the client speaks, none again once `on_closed` was called.
    pub(crate) session: Option<OpenSession>,
    /// What the session did not consume, and what came while it waited.
    pub(crate) input: BytesMut,
    pub(crate) out: Outbox,
    /// How much of the budgets it has.
    pub(crate) held: Held,
    pub(crate) stage: Stage,
    pub(crate) input_ended: bool,
    /// The server stops: no further request is begun.
    shutting_down: bool,
    /// The session may have left whole requests in `input` until its outbox is empty.
    pub(crate) held_back: bool,
    /// Bytes at the end of `input` that the session has not looked at since it went on.
    pub(crate) unseen: usize,
    /// Its last read brought much: it is read in turn with others like it.
    pub(crate) is_bulk: bool,
    /// Whether it is listed among those.
    pub(crate) is_queued: bool,
    /// The socket takes no more; an event comes when it does again.
    write_blocked: bool,
    /// Our side is shut.
    is_shut: bool,
    /// Listed for a step of its handshake.
    pub(crate) to_shake: bool,
    /// Listed for the flush of this turn.
    pub(crate) to_flush: bool,
    /// Listed for when the durable position moves.
    pub(crate) gated: bool,
    pub(crate) has_sent: bool,
    /// Has sent something and not been answered since.
    is_asking: bool,
    guest: Guest,
    opened_at: u64,
    pub(crate) last_read_at: u64,
    pub(crate) last_write_at: u64,
    _permit: Permit,
}

/// A session that has not got `on_closed`; counted among its door's connections.
pub(crate) struct OpenSession {
    pub(crate) session: Box<dyn Session>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl OpenSession {
    fn close(mut self, unsent: &[LeaseRef]) {
        self.session.on_closed(unsent);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It is not known yet how the client speaks; or its handshake is under way.
    Opening,
    /// Requests are read and given to the session.
    Reading,
    /// The session waits for a ticket; what comes in is kept.
    Waiting,
    /// What the outbox holds still goes out, then the connection ends.
    Closing,
    /// The session is over and our side is shut; the client reads the last answer.
    Draining,
    /// To be removed.
    Dead,
}

/// What a read has brought, and how many bytes of it are for the session.
struct NewBytes {
    arrival: Arrival,
    count: usize,
}

/// Whether a connection stopped because it had its share of the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Share {
    Enough,
    UsedUp,
}

impl Connection {
    /// A connection whose client may speak as the door lets it.
    pub(crate) fn open(id: ConnectionId, arrival: Arrived, buffers: &TurnBuffers) -> Connection {
        let Arrived { door, stream, peer, known, permit } = arrival;
        let is_plain = known.is_some() || buffers.shared.doors[door].tls.is_off();
        let mut connection = Connection {
            id,
            door,
            peer,
            known,
            transport: Transport::new(stream, is_plain),
            session: None,
            input: BytesMut::new(),
            out: Outbox::default(),
            held: Held::new(id, buffers),
            stage: Stage::Opening,
            input_ended: false,
            shutting_down: false,
            held_back: false,
            unseen: 0,
            is_bulk: false,
            is_queued: false,
            write_blocked: false,
            is_shut: false,
            to_shake: false,
            to_flush: false,
            gated: false,
            has_sent: false,
            is_asking: false,
            guest: Guest::default(),
            opened_at: buffers.now,
            last_read_at: buffers.now,
            last_write_at: buffers.now,
            _permit: permit,
        };
        if is_plain {
            connection.open_session(buffers);
        }
        connection
    }

    /// Lets the session work on the input it has left, or else reads once and lets it work on that.
    /// Returns an upper bound of the bytes worked on.
    pub(crate) fn read(&mut self, cohort: &mut Cohort, buffers: &mut TurnBuffers) -> usize {
        if self.has_rest() {
            self.go_on(buffers);
            return FEED_BYTES_MAX;
        }
        if self.held_back && self.out.pending_bytes() == 0 {
            self.go_on(buffers);
        }
        let Some(room) = self.room(buffers).filter(|_| self.transport.is_readable()) else {
            return 0;
        };
        let most = if self.is_bulk { READ_BYTES } else { FIRST_READ_BYTES };
        match self.read_once(room.min(most), buffers) {
            Ok(new) => {
                let raw = new.arrival.raw;
                self.is_bulk = raw > LIGHT_READ_BYTES_MAX;
                self.take(new, cohort, buffers);
                return raw;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.transport.is_drained(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.stage = Stage::Dead,
        }
        0
    }

    /// How much may be read now; `None` when nothing should be.
    fn room(&self, buffers: &TurnBuffers) -> Option<usize> {
        if self.input_ended {
            return None;
        }
        match self.stage {
            Stage::Draining | Stage::Opening => Some(READ_BYTES),
            Stage::Closing | Stage::Dead => None,
            _ if self.out.pending_bytes() > buffers.outbox_bytes_max => None,
            Stage::Reading if !self.held_back && !self.has_rest() => Some(READ_BYTES),
            Stage::Reading | Stage::Waiting => {
                let wanted = self.session.as_ref().map_or(0, |open| open.session.input_bytes_max());
                let room = wanted.saturating_sub(self.input.len());
                Some(room.min(READ_BYTES)).filter(|room| *room > 0)
            }
        }
    }

    /// One read: into the scratch buffer, or straight behind a large partial request, so that
    /// a large payload is not copied twice and a small one owns no large buffer.
    fn read_once(&mut self, room: usize, buffers: &mut TurnBuffers) -> io::Result<NewBytes> {
        buffers.scratch.clear();
        if self.stage == Stage::Draining {
            let arrival = self.transport.discard(&mut buffers.raw)?;
            return Ok(NewBytes { arrival, count: 0 });
        }
        let behind = self.input.len() >= DIRECT_READ_BYTES_MIN;
        let target = if behind { &mut self.input } else { &mut buffers.scratch };
        let kept = target.len();
        let arrival = self.transport.read(room, target, &mut buffers.raw)?;
        Ok(NewBytes { arrival, count: target.len() - kept })
    }

    /// Works on what was just read.
    fn take(&mut self, new: NewBytes, cohort: &mut Cohort, buffers: &mut TurnBuffers) {
        let NewBytes { arrival: Arrival { raw, after }, count } = new;
        if raw > 0 {
            buffers.traffic.note_read(raw);
        }
        self.end_handshake(buffers);
        if raw > 0 && !matches!(self.stage, Stage::Opening | Stage::Draining) {
            self.last_read_at = buffers.now;
            self.has_sent = true;
        }
        if count > 0 {
            if !std::mem::replace(&mut self.is_asking, true) {
                cohort.asks(&mut self.guest);
            }
            self.give(count, buffers);
        }
        match after {
            After::More => {}
            After::End => self.end_input(buffers),
            After::Failed(error) => self.fail(&error, buffers),
        }
    }

    /// Hands the session a deferred answer and lets it go on with what it had kept.
    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Gated<Answer>, buffers: &TurnBuffers) {
        let Some(OpenSession { session, .. }) = &mut self.session else { return };
        let flow = session.on_answer(ticket, answer, &mut self.out);
        self.held.in_hand = 0;
        match self.stage {
            Stage::Closing if flow == Flow::Abort => self.stage = Stage::Dead,
            Stage::Opening | Stage::Closing | Stage::Draining | Stage::Dead => {}
            Stage::Reading | Stage::Waiting => {
                if flow == Flow::Continue && self.is_at_end() && !self.shutting_down {
                    self.end_input(buffers);
                    return;
                }
                self.apply(flow);
                if self.stage == Stage::Reading && !self.input.is_empty() {
                    self.feed_or_hold(buffers);
                }
            }
        }
    }

    /// The server stops. `last`: whatever is still under way ends now.
    pub(crate) fn shut_down(&mut self, last: bool) {
        self.shutting_down = true;
        if self.stage == Stage::Opening {
            self.stage = Stage::Closing;
        }
        let Some(OpenSession { session, .. }) = &mut self.session else { return };
        let flow = session.on_shutdown(last, &mut self.out);
        match self.stage {
            Stage::Reading | Stage::Waiting => self.apply(flow),
            Stage::Closing if flow == Flow::Abort => self.stage = Stage::Dead,
            Stage::Opening | Stage::Closing | Stage::Draining | Stage::Dead => {}
        }
    }

    pub(crate) fn apply(&mut self, flow: Flow) {
        self.stage = match flow {
            Flow::Abort => Stage::Dead,
            Flow::Close => Stage::Closing,
            Flow::Wait => Stage::Waiting,
            Flow::Continue if self.shutting_down => Stage::Closing,
            Flow::Continue => Stage::Reading,
        };
        self.held_back =
            self.stage == Stage::Reading && !self.input.is_empty() && self.is_holding_back();
        if self.input.is_empty() && self.input.capacity() > IDLE_INPUT_BYTES_MAX {
            self.input = BytesMut::new();
        }
    }

    /// Whether so much is unsent that a session may leave whole requests for later.
    pub(crate) fn is_holding_back(&self) -> bool {
        self.out.pending_bytes() > HOLD_BACK_BYTES_MIN
    }

    /// Writes what the outbox releases.
    pub(crate) fn flush(&mut self, released: Option<Gate>, buffers: &mut TurnBuffers) -> Share {
        match self.stage {
            Stage::Dead => Share::Enough,
            Stage::Draining => {
                self.shut();
                Share::Enough
            }
            Stage::Opening | Stage::Reading | Stage::Waiting | Stage::Closing => {
                self.write(released, buffers)
            }
        }
    }

    fn write(&mut self, released: Option<Gate>, buffers: &mut TurnBuffers) -> Share {
        for _ in 0..WRITES_PER_TURN {
            let bytes = released.map_or(&[][..], |gate| self.out.released(gate));
            match self.transport.write(&bytes[..bytes.len().min(WRITE_BYTES_MAX)]) {
                Ok(None) => {
                    self.write_blocked = false;
                    return Share::Enough;
                }
                Ok(Some(Departure { raw, plain })) => {
                    self.out.advance(plain);
                    self.last_write_at = buffers.now;
                    buffers.traffic.note_write(raw);
                }
                // The socket says when it takes more.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.write_blocked {
                        self.last_write_at = buffers.now;
                    }
                    self.write_blocked = true;
                    return Share::Enough;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.stage = Stage::Dead;
                    return Share::Enough;
                }
            }
        }
        Share::UsedUp
    }

    /// Tells the cohort, if everything the client asked for was answered in this flush.
    pub(crate) fn note_answered(&mut self, cohort: &mut Cohort) {
        let owes =
            self.stage != Stage::Reading || !self.input.is_empty() || self.out.pending_bytes() > 0;
        if self.is_asking && !owes {
            self.is_asking = false;
            cohort.answered(&mut self.guest);
        }
    }

    /// Ends the session. A connection that has sent everything then shuts our side and waits for the
    /// client to do the same; a dead connection stays dead.
    pub(crate) fn end(&mut self, cohort: &mut Cohort, buffers: &mut TurnBuffers) {
        cohort.leaves(&mut self.guest);
        if let Some(session) = self.session.take() {
            session.close(&self.out.unsent_leases());
        }
        if self.stage != Stage::Closing {
            return;
        }
        self.transport.seal_end();
        self.stage = Stage::Draining;
        self.last_read_at = buffers.now;
        self.input = BytesMut::new();
        self.out.shrink();
        self.count_held();
        self.shut();
        // The rest is read at the next wake, or the linger timeout closes the connection.
        let _ = self.read(cohort, buffers);
    }

    /// Shuts our side as soon as the socket has taken everything, the end of the encryption included.
    fn shut(&mut self) {
        while !self.is_shut && !self.is_dead() {
            match self.transport.write(&[]) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.is_shut = true;
                    if self.transport.shut().is_err() || self.input_ended {
                        self.stage = Stage::Dead;
                    }
                }
                // An event comes when the socket takes more, or the linger timeout ends it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.stage = Stage::Dead,
            }
        }
    }

    /// Ends the connection without sending anything further.
    pub(crate) fn kill(&mut self) {
        self.stage = Stage::Dead;
    }

    /// Whether nothing is left to do but [`end`](Connection::end).
    pub(crate) fn is_ending(&self) -> bool {
        let is_sent = || self.out.pending_bytes() == 0 || self.transport.has_failed();
        self.is_dead()
            || (self.stage == Stage::Closing && is_sent() && !self.transport.has_unsent())
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.stage == Stage::Dead
    }

    /// Whether the outbox holds back something until the log is durable further on, or all of it
    /// because nothing is released.
    pub(crate) fn awaits_gate(&self, released: Option<Gate>) -> bool {
        let holds_back = match released {
            Some(_) => self.out.is_gated(),
            None => self.out.pending_bytes() > 0,
        };
        self.session.is_some() && !self.is_dead() && holds_back
    }

    /// Whether there is something to read for that no socket event will come.
    pub(crate) fn wants_read(&self, buffers: &TurnBuffers) -> bool {
        (self.held_back && self.out.pending_bytes() == 0)
            || self.has_rest()
            || (self.transport.is_readable() && self.room(buffers).is_some())
    }

    fn is_engaged(&self) -> bool {
        self.session.as_ref().is_some_and(|open| open.session.is_engaged())
    }

    /// Whether the client has yet to get through what the door asks for before it serves: TLS, and who
    /// it is.
    fn is_to_log_in(&mut self, entry: &DoorEntry) -> bool {
        match (self.stage, &mut self.session) {
            (Stage::Opening, _) => entry.tls.is_required() || entry.door.requires_identity(),
            (Stage::Reading | Stage::Waiting, Some(open)) => open.session.lacks_identity(),
            _ => false,
        }
    }

    /// Why the connection has to go at this sweep, if it has to. `entry` is its door.
    pub(crate) fn overdue(
        &mut self,
        now: u64,
        sweep_limits: &SweepLimits,
        entry: &DoorEntry,
    ) -> Option<&'static str> {
        if now.saturating_sub(self.opened_at) > sweep_limits.login && self.is_to_log_in(entry) {
            return Some("did not log in in time");
        }
        let since_read = now.saturating_sub(self.last_read_at);
        let since_write = now.saturating_sub(self.last_write_at);
        let over = |limit: Option<u64>, waited: u64| limit.is_some_and(|limit| waited > limit);
        if self.write_blocked && since_write > sweep_limits.write_stall {
            return Some("does not read its answers");
        }
        match self.stage {
            Stage::Draining => {
                (since_read > sweep_limits.linger).then_some("was sent its last answer")
            }
            Stage::Opening if self.has_sent => {
                (since_read > sweep_limits.handshake).then_some("has not finished its handshake")
            }
            Stage::Reading if self.held_back || self.has_rest() || self.transport.is_readable() => {
                None
            }
            Stage::Opening | Stage::Reading if !self.has_sent => {
                over(sweep_limits.first_bytes, since_read).then_some("never said a word")
            }
            Stage::Reading if !self.input.is_empty() || self.transport.is_mid_record() => {
                (since_read > sweep_limits.partial_request)
                    .then_some("stopped in the middle of a request")
            }
            Stage::Reading if self.out.pending_bytes() == 0 && !self.is_engaged() => {
                over(sweep_limits.idle, since_read.min(since_write)).then_some("was idle")
            }
            _ => None,
        }
    }
}

/// With so many unconsumed bytes or more, reads go straight behind them.
const DIRECT_READ_BYTES_MIN: usize = 16 * 1024;
/// A session may leave whole requests in its input when its outbox holds more than this. Part of
/// the contract in the crate's documentation.
const HOLD_BACK_BYTES_MIN: usize = 64 * 1024;
/// An emptied input buffer keeps at most this much memory.
const IDLE_INPUT_BYTES_MAX: usize = 4 * 1024;
/// A read takes at most this much of a connection that has not sent much before.
const FIRST_READ_BYTES: usize = 16 * 1024;
/// A client that sends no more than this at a time is read at once, not in turn: a request or two.
const LIGHT_READ_BYTES_MAX: usize = 1024;
/// The share of one connection in a turn, so that a client that reads at the speed of memory does not
/// keep the others waiting.
const WRITES_PER_TURN: usize = 4;
const WRITE_BYTES_MAX: usize = 128 * 1024;
