//! One connection: a socket, its session, what came in and what has not left yet.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, BytesMut};
use socket2::SockRef;
use spindle_engine::Answer;
use spindle_engine::door::{ConnectionId, Flow, Gate, LeaseRef, Outbox, Session, Ticket};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::accept::Place;
use crate::config::Patience;
use crate::counters::Traffic;

/// What the connections of a reactor share during a turn.
pub(crate) struct Desk {
    /// Where reads go; a connection owns memory only for what its session left unconsumed.
    pub(crate) scratch: BytesMut,
    pub(crate) traffic: Traffic,
    /// Sweeps since the start: the clock that connections are stamped with.
    pub(crate) now: u64,
    pub(crate) outbox_bytes_max: usize,
}

/// A connection of a reactor.
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// The door's number in the reactor.
    pub(crate) door: usize,
    stream: TcpStream,
    waker: Waker,
    /// Gone once `on_closed` was called.
    session: Option<OpenSession>,
    /// What the session did not consume, and what came while it waited.
    input: BytesMut,
    out: Outbox,
    stage: Stage,
    input_ended: bool,
    /// The server stops: no further request is begun.
    leaving: bool,
    /// The socket wakes us when something comes in.
    listening: bool,
    /// The session may have left whole requests in `input` until its outbox is empty.
    held_back: bool,
    /// The socket takes no more; it wakes us when it does again.
    write_blocked: bool,
    /// Listed for the flush of this turn.
    pub(crate) touched: bool,
    /// Listed for when the durable position moves.
    pub(crate) gated: bool,
    spoke: bool,
    heard_at: u64,
    took_at: u64,
    _place: Place,
}

/// A session that has not heard `on_closed`; counted among its door's connections.
pub(crate) struct OpenSession {
    session: Box<dyn Session>,
    connections: Arc<AtomicUsize>,
}

impl OpenSession {
    pub(crate) fn new(session: Box<dyn Session>, connections: Arc<AtomicUsize>) -> OpenSession {
        OpenSession { session, connections }
    }

    fn close(mut self, unsent: &[LeaseRef]) {
        self.session.on_closed(unsent);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
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

/// Whether a connection stopped because it had its share of the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Share {
    Enough,
    UsedUp,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        door: usize,
        stream: TcpStream,
        waker: Waker,
        session: OpenSession,
        now: u64,
        place: Place,
    ) -> Connection {
        Connection {
            id,
            door,
            stream,
            waker,
            session: Some(session),
            input: BytesMut::new(),
            out: Outbox::default(),
            stage: Stage::Reading,
            input_ended: false,
            leaving: false,
            listening: false,
            held_back: false,
            write_blocked: false,
            touched: false,
            gated: false,
            spoke: false,
            heard_at: now,
            took_at: now,
            _place: place,
        }
    }

    /// Reads what the socket has and lets the session work on it.
    pub(crate) fn read(&mut self, desk: &mut Desk) -> Share {
        self.listening = false;
        if self.held_back && self.out.pending_bytes() == 0 {
            self.resume();
        }
        for _ in 0..READS_PER_TURN {
            let Some(room) = self.room(desk) else { return Share::Enough };
            match self.poll_read(room, desk) {
                Poll::Pending => {
                    self.listening = true;
                    return Share::Enough;
                }
                Poll::Ready(Ok(0)) => self.end_input(),
                Poll::Ready(Ok(count)) => {
                    desk.traffic.note_read(count);
                    self.take(desk);
                }
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(_)) => self.stage = Stage::Dead,
            }
        }
        Share::UsedUp
    }

    /// How much may be read now; `None` when nothing should be.
    fn room(&self, desk: &Desk) -> Option<usize> {
        if self.input_ended {
            return None;
        }
        match self.stage {
            Stage::Draining => Some(READ_BYTES),
            Stage::Closing | Stage::Dead => None,
            _ if self.out.pending_bytes() > desk.outbox_bytes_max => None,
            Stage::Reading if !self.held_back => Some(READ_BYTES),
            Stage::Reading | Stage::Waiting => {
                let wanted = self.session.as_ref().map_or(0, |open| open.session.input_bytes_max());
                let room = wanted.saturating_sub(self.input.len());
                Some(room.min(READ_BYTES)).filter(|room| *room > 0)
            }
        }
    }

    /// One read: into the scratch buffer, or straight behind a large partial request, so that
    /// a large payload is not copied twice and a small one owns no large buffer.
    fn poll_read(&mut self, room: usize, desk: &mut Desk) -> Poll<io::Result<usize>> {
        desk.scratch.clear();
        let target = if self.reads_behind_input() { &mut self.input } else { &mut desk.scratch };
        target.reserve(READ_BYTES);
        let mut limited = target.limit(room);
        let mut cx = Context::from_waker(&self.waker);
        pin!(self.stream.read_buf(&mut limited)).poll(&mut cx)
    }

    fn reads_behind_input(&self) -> bool {
        self.input.len() >= DIRECT_READ_BYTES_MIN && self.stage != Stage::Draining
    }

    /// Gives the session what was just read, or keeps it while the session waits.
    fn take(&mut self, desk: &mut Desk) {
        if self.stage == Stage::Draining {
            return;
        }
        self.heard_at = desk.now;
        self.spoke = true;
        if self.stage == Stage::Waiting || self.held_back || !self.input.is_empty() {
            self.input.extend_from_slice(&desk.scratch);
            if self.stage == Stage::Reading && !self.held_back {
                self.feed_kept();
            }
        } else if let Some(OpenSession { session, .. }) = &mut self.session {
            let flow = session.on_bytes(&mut desk.scratch, &mut self.out);
            self.input.extend_from_slice(&desk.scratch);
            self.obey(flow);
        }
    }

    /// The client has read enough of its answers for the requests that were left.
    fn resume(&mut self) {
        self.feed_kept();
        if self.input_ended && self.stage == Stage::Reading && !self.held_back {
            self.end_input();
        }
    }

    fn feed_kept(&mut self) {
        if let Some(OpenSession { session, .. }) = &mut self.session {
            let flow = session.on_bytes(&mut self.input, &mut self.out);
            self.obey(flow);
        }
    }

    fn feed_or_hold(&mut self, desk: &Desk) {
        self.held_back = self.out.pending_bytes() > desk.outbox_bytes_max;
        if !self.held_back {
            self.feed_kept();
        }
    }

    fn end_input(&mut self) {
        self.input_ended = true;
        match (self.stage, &mut self.session) {
            // What is left are whole requests: they come first.
            (Stage::Reading, _) if self.held_back => {}
            (Stage::Reading | Stage::Waiting, Some(OpenSession { session, .. })) => {
                let flow = session.on_end_of_input(&mut self.input, &mut self.out);
                // Whole requests may be left because the outbox was full: they are given again when
                // it is empty.
                let is_over = self.input.is_empty() || !self.is_holding_back();
                self.obey(if flow == Flow::Continue && is_over { Flow::Close } else { flow });
            }
            _ => self.stage = Stage::Dead,
        }
    }

    /// Hands the session a deferred answer and lets it go on with what it had kept.
    pub(crate) fn answer(&mut self, ticket: Ticket, answer: Answer, gate: Gate, desk: &Desk) {
        let Some(OpenSession { session, .. }) = &mut self.session else { return };
        let flow = session.on_answer(ticket, answer, gate, &mut self.out);
        match self.stage {
            Stage::Closing if flow == Flow::Abort => self.stage = Stage::Dead,
            Stage::Closing | Stage::Draining | Stage::Dead => {}
            Stage::Reading | Stage::Waiting => {
                if flow == Flow::Continue && self.input_ended && !self.leaving {
                    self.end_input();
                    return;
                }
                self.obey(flow);
                if self.stage == Stage::Reading && !self.input.is_empty() {
                    self.feed_or_hold(desk);
                }
            }
        }
    }

    /// The server stops. `last`: whatever is still under way ends now.
    pub(crate) fn shut_down(&mut self, last: bool) {
        self.leaving = true;
        let Some(OpenSession { session, .. }) = &mut self.session else { return };
        let flow = session.on_shutdown(last, &mut self.out);
        match self.stage {
            Stage::Reading | Stage::Waiting => self.obey(flow),
            Stage::Closing if flow == Flow::Abort => self.stage = Stage::Dead,
            Stage::Closing | Stage::Draining | Stage::Dead => {}
        }
    }

    fn obey(&mut self, flow: Flow) {
        self.stage = match flow {
            Flow::Abort => Stage::Dead,
            Flow::Close => Stage::Closing,
            Flow::Wait => Stage::Waiting,
            Flow::Continue if self.leaving => Stage::Closing,
            Flow::Continue => Stage::Reading,
        };
        self.held_back =
            self.stage == Stage::Reading && !self.input.is_empty() && self.is_holding_back();
        if self.input.is_empty() && self.input.capacity() > IDLE_INPUT_BYTES_MAX {
            self.input = BytesMut::new();
        }
    }

    /// Whether so much is unsent that a session may leave whole requests for later.
    fn is_holding_back(&self) -> bool {
        self.out.pending_bytes() > HOLD_BACK_BYTES_MIN
    }

    /// Writes what the outbox releases.
    pub(crate) fn flush(&mut self, durable: Gate, desk: &mut Desk) -> Share {
        match self.stage {
            Stage::Draining | Stage::Dead => Share::Enough,
            Stage::Reading | Stage::Waiting | Stage::Closing => self.write(durable, desk),
        }
    }

    fn write(&mut self, durable: Gate, desk: &mut Desk) -> Share {
        for _ in 0..WRITES_PER_TURN {
            let released = self.out.released(durable);
            if released.is_empty() {
                self.write_blocked = false;
                return Share::Enough;
            }
            match self.stream.try_write(released) {
                Ok(count) if count > 0 => {
                    self.out.advance(count);
                    self.took_at = desk.now;
                    desk.traffic.note_write(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut cx = Context::from_waker(&self.waker);
                    if self.stream.poll_write_ready(&mut cx).is_pending() {
                        if !self.write_blocked {
                            self.took_at = desk.now;
                        }
                        self.write_blocked = true;
                        return Share::Enough;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.stage = Stage::Dead;
                    return Share::Enough;
                }
            }
        }
        Share::UsedUp
    }

    /// Ends the session. What has sent everything then shuts our side and waits for the client to
    /// do the same; what is dead stays dead.
    pub(crate) fn end(&mut self, desk: &mut Desk) {
        if let Some(session) = self.session.take() {
            session.close(&self.out.unsent_leases());
        }
        if self.stage != Stage::Closing {
            return;
        }
        let shut = SockRef::from(&self.stream).shutdown(Shutdown::Write);
        if self.input_ended || shut.is_err() {
            self.stage = Stage::Dead;
            return;
        }
        self.stage = Stage::Draining;
        self.heard_at = desk.now;
        self.input = BytesMut::new();
        // Whatever is left to read is read by the next wake, or closes with the linger timeout.
        let _ = self.read(desk);
    }

    /// Ends the connection without sending anything further.
    pub(crate) fn kill(&mut self) {
        self.stage = Stage::Dead;
    }

    /// Whether nothing is left to do but [`end`](Connection::end).
    pub(crate) fn is_ending(&self) -> bool {
        self.is_dead() || (self.stage == Stage::Closing && self.out.pending_bytes() == 0)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.stage == Stage::Dead
    }

    /// Whether the outbox holds back something until the log is durable further on.
    pub(crate) fn awaits_gate(&self) -> bool {
        self.session.is_some() && !self.is_dead() && self.out.is_gated()
    }

    /// Whether there is something to read for that no socket event will come.
    pub(crate) fn wants_read(&self, desk: &Desk) -> bool {
        (self.held_back && self.out.pending_bytes() == 0)
            || (!self.listening && self.room(desk).is_some())
    }

    /// Why the connection has to go at this sweep, if it has to.
    pub(crate) fn overdue(&self, now: u64, patience: &Patience) -> Option<&'static str> {
        let heard = now.saturating_sub(self.heard_at);
        let took = now.saturating_sub(self.took_at);
        let over = |limit: Option<u64>, waited: u64| limit.is_some_and(|limit| waited > limit);
        if self.write_blocked && took > patience.write_stall {
            return Some("does not read its answers");
        }
        match self.stage {
            Stage::Draining => (heard > patience.linger).then_some("was sent its last answer"),
            Stage::Reading if self.held_back || !self.listening => None,
            Stage::Reading if !self.spoke => {
                over(patience.first_bytes, heard).then_some("never said a word")
            }
            Stage::Reading if !self.input.is_empty() => {
                (heard > patience.partial_request).then_some("stopped in the middle of a request")
            }
            Stage::Reading if self.out.pending_bytes() == 0 => {
                over(patience.idle, heard.min(took)).then_some("was idle")
            }
            _ => None,
        }
    }
}

/// One read takes at most this much.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// From so many unconsumed bytes on, reads go behind them.
const DIRECT_READ_BYTES_MIN: usize = 16 * 1024;
/// A session may leave whole requests in its input when its outbox holds more than this. Part of
/// the contract in the crate's documentation.
const HOLD_BACK_BYTES_MIN: usize = 64 * 1024;
/// An emptied input buffer keeps at most this much memory.
const IDLE_INPUT_BYTES_MAX: usize = 4 * 1024;
/// Shares of one connection in a turn, so that one that sends or takes at the speed of memory does
/// not keep the others waiting.
const READS_PER_TURN: usize = 4;
const WRITES_PER_TURN: usize = 4;
