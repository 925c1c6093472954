//! What the engine, the doors and the reactors agree on.
//!
//! A door's connection is a plain state machine, a [`Session`]: bytes in, replies out into an
//! [`Outbox`], each reply with the [`Gate`] it must not pass before the log is durable up to it.
//! A wait is a [`Ticket`] that the engine answers later through the reactor's [`Mailbox`]. The
//! owner of the sockets (`spindle-net` today) drives sessions and writes what their outboxes
//! release; nothing here knows of tokio, so another reactor can take its place without changes to a
//! door.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use spindle_core::JobId;

use crate::gate::{Gate, Gated};

/// One connection, unique in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Who is at the other end of a connection, known before its session is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address, as the socket names it.
    pub address: SocketAddr,
    /// The connection is encrypted (TLS).
    pub encrypted: bool,
    /// The subject's common name of the certificate that the client has shown and that was verified
    /// against the client CA. None without one.
    pub certificate: Option<Arc<str>>,
    /// Set when another node of the cluster asks, for pages that this client looks at there: the digest of the token
    /// that the client has logged in with, in hexadecimal, or empty if it has none.
    pub page_of: Option<Arc<str>>,
}

impl Peer {
    /// A peer over plain TCP.
    pub fn plain(address: SocketAddr) -> Peer {
        Peer { address, encrypted: false, certificate: None, page_of: None }
    }
}

/// One wait of one connection (a lease, a result, room in the log), unique in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Names a lease that was put into an outbox, so that it can be undone if its bytes never left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRef {
    /// The leased job.
    pub job: JobId,
    /// The attempt this lease is, which together with the epoch is its token.
    pub attempt: u32,
}

/// A deferred answer of the engine to a waiting session.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The connection that waits.
    pub connection: ConnectionId,
    /// The wait it answers.
    pub ticket: Ticket,
    /// What happened.
    pub answer: Gated<crate::Answer>,
}

/// Where the engine leaves deferred answers for the reactor that owns the connections.
///
/// Both calls come from inside the engine's lock or from the thread that commits: they MUST return
/// at once and MUST NOT call back into the engine.
pub trait Mailbox: Send + Sync {
    /// Queues one deferred answer and wakes the reactor.
    fn deliver(&self, delivery: Delivery);
    /// The durable position moved (or the log failed): outboxes may have something to release.
    fn durable_moved(&self);
}

/// What the reactor is to do with a connection after a session has spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Everything complete in the input was consumed: call again when more bytes came.
    Continue,
    /// The session waits for a ticket: keep further input, call `on_bytes` again after the answer.
    Wait,
    /// Send what the outbox holds (as its gates open), then close.
    Close,
    /// Close at once; what was not sent is dropped.
    Abort,
}

/// One connection of a door, without its socket.
///
/// The reactor calls the methods of one session from one thread at a time.
pub trait Session: Send {
    /// Consumes complete requests from `input`; a partial one stays there.
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow;
    /// The engine answers a wait. Answers to tickets the session no longer knows are ignored.
    fn on_answer(&mut self, ticket: Ticket, answer: Gated<crate::Answer>, out: &mut Outbox)
    -> Flow;
    /// The peer sends no more; `input` holds what was not consumed. Also ends a wait under way.
    /// `Continue` closes the connection when what is there has been sent, unless whole requests
    /// were left for a full outbox: those are given again first.
    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow;
    /// The server stops: answer what can be answered now. `last` is true when the shutdown timeout
    /// has passed and the connection closes whatever is still under way.
    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow;
    /// The connection is gone. `unsent` names the leases whose bytes were never handed to the
    /// socket: their attempts are given back.
    fn on_closed(&mut self, unsent: &[LeaseRef]);
    /// How many bytes of input the session can make use of beyond what it has; the reactor stops
    /// reading above it.
    fn input_bytes_max(&self) -> usize;
    /// Whether the client holds or expects something (a job that it works on, news that are sent to it), so that its
    /// silence does not count as idleness.
    fn is_engaged(&self) -> bool {
        false
    }
    /// Whether the client has to say who it is before it is served, and has never done so. The
    /// reactor asks when the time for that is over, and closes the connection then.
    fn lacks_identity(&mut self) -> bool {
        false
    }
}

/// What a reactor needs of the engine behind its doors: the reactor commits what its sessions
/// decide, see [`Cohort`](crate::cohort::Cohort).
pub trait Committer: Send + Sync + 'static {
    /// A reactor introduces itself, once, before it opens connections: from now on its mailbox
    /// hears when the durable position moves.
    fn attach(&self, mailbox: &Arc<dyn Mailbox>);
    /// How far the log is durable now.
    fn durable(&self) -> Gate;
    /// How far answers may leave now: as far as the log is durable, and none at all while it is not
    /// certain that this process leads a log that others share. When that changes, the mailboxes are told, as for a
    /// move of the durable position. Ask after an answer was made, and before it is handed to a socket.
    fn released(&self) -> Option<Gate> {
        Some(self.durable())
    }
    /// A reactor has let its sessions work on all that came in. Returns whether something was
    /// decided that is not on its way to the log.
    fn end_turn(&self) -> bool;
    /// Commits what was decided, here and now: it writes and syncs. Over a log that takes several
    /// records at a time it only hands over, and returns at once. The mailboxes hear of it.
    fn commit(&self);
    /// As [`Committer::commit`] if that is quick: if syncs take no millisecond, there are not many
    /// bytes, and nobody else commits. If not, the log thread commits. For threads that serve no
    /// requests meanwhile.
    fn commit_if_quick(&self);
    /// How long a commit takes nowadays. Over a log that takes several records at a time, how long
    /// it takes until one of them leaves its place to the next: to wait longer than that for other
    /// requests costs more than it gains.
    fn sync_time(&self) -> Duration;
}

/// Opens sessions for accepted connections.
pub trait Door: Send + Sync + 'static {
    /// The door's name as users write it: `workq`, `gearman`.
    fn name(&self) -> &'static str;
    /// Whether its clients have to say who they are before they are served. Sessions tell which of
    /// them have ([`Session::lacks_identity`]); this is for connections that have no session yet.
    fn requires_identity(&self) -> bool {
        false
    }
    /// There is a new connection, and it is known whether its client speaks in plain bytes or has
    /// completed a TLS handshake. `mailbox` reaches the reactor that owns it.
    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session>;
    /// Appends the error for a client whose request is not read: an error of its protocol, as far
    /// as `first`, the first bytes of that request, show which protocol that is. The connection
    /// closes after it. Clients that speak HTTP get no answer (see [`is_stranger`]).
    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut);
}

/// Why a request is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It came in plain bytes where TLS is required.
    Plain,
    /// The unfinished requests of all clients take too much memory, and this one takes the most.
    TooMuch,
}

impl Unread {
    /// The reason as people read it.
    pub fn text(self) -> &'static str {
        match self {
            Unread::Plain => TLS_REQUIRED,
            Unread::TooMuch => {
                "the server holds too many unfinished requests, and this was the largest: try again"
            }
        }
    }
}

/// The text for people who connect in plain bytes where TLS is required.
pub const TLS_REQUIRED: &str = "this port takes encrypted connections only: connect with TLS";

/// First bytes of a browser's or a TLS client's connection.
const STRANGERS: [&[u8]; 11] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"OPTIONS ",
    b"DELETE ",
    b"CONNECT ",
    b"PATCH ",
    b"TRACE ",
    b"PRI ",
    b"\x16\x03",
];

/// Whether a connection that begins with `input` speaks HTTP or TLS; `None` when more bytes are
/// needed to tell. A TCP door closes such a connection at once, so that no web page can talk to it.
pub fn is_stranger(input: &[u8]) -> Option<bool> {
    if STRANGERS.iter().any(|start| input.starts_with(start)) {
        return Some(true);
    }
    let may_become_one = STRANGERS.iter().any(|start| start.starts_with(input));
    (!may_become_one).then_some(false)
}

/// Replies of one connection in order, each held back until its gate opens.
///
/// One contiguous buffer: everything whose gate is open leaves in one write. A reply never
/// overtakes another, so a byte needs the largest gate of all values opened before it was put.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: BytesMut,
    /// Bytes ever handed to the socket; offsets below count from the connection's first byte.
    sent: u64,
    /// What the next reply waits for, at least.
    needed: Gate,
    /// (offset, gate): from this offset on, bytes need this gate. Both rise.
    marks: VecDeque<(u64, Gate)>,
    /// (end offset, lease) of leases whose bytes are not yet handed to the socket.
    leases: VecDeque<(u64, LeaseRef)>,
    /// What `bytes` had reserved before some of it was sent.
    reserved: usize,
}

impl Outbox {
    /// Opens an answer of the engine: every reply put from now on waits for its gate.
    pub fn open<T>(&mut self, gated: Gated<T>) -> T {
        let mut needed = Gated::new((), self.needed);
        let value = needed.absorb(gated);
        self.needed = needed.gate();
        value
    }

    /// Appends one reply by letting `write` append its bytes.
    pub fn put(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let marked = self.marks.back().map_or(Gate::OPEN, |(_, gate)| *gate);
        if self.needed > marked {
            self.marks.push_back((self.end(), self.needed));
        }
        write(&mut self.bytes);
    }

    /// Appends a reply that hands out a lease.
    pub fn put_lease(&mut self, lease: LeaseRef, write: impl FnOnce(&mut BytesMut)) {
        self.put(write);
        self.leases.push_back((self.end(), lease));
    }

    /// The bytes that may leave now that all records below `durable` are durable.
    pub fn released(&mut self, durable: Gate) -> &[u8] {
        if self.needed <= durable {
            self.needed = Gate::OPEN;
        }
        while self.marks.front().is_some_and(|(_, gate)| *gate <= durable) {
            self.marks.pop_front();
        }
        let limit = self.marks.front().map_or(self.end(), |(start, _)| *start);
        self.bytes.get(..(limit - self.sent) as usize).unwrap_or_default()
    }

    /// Takes note that the first `count` released bytes were handed to the socket.
    pub fn advance(&mut self, count: usize) {
        let reserved = self.reserved_bytes();
        bytes::Buf::advance(&mut self.bytes, count);
        self.sent += count as u64;
        while self.leases.front().is_some_and(|(end, _)| *end <= self.sent) {
            self.leases.pop_front();
        }
        if reserved > IDLE_BYTES_MAX && self.bytes.len() < reserved / 8 {
            self.shrink();
        }
    }

    /// Lets go of memory that it does not use.
    pub fn shrink(&mut self) {
        // Of no bytes, this takes no memory.
        self.bytes = BytesMut::from(&*self.bytes);
        self.reserved = self.bytes.capacity();
    }

    /// The memory it takes: what was sent stays reserved in front of what was not.
    pub fn reserved_bytes(&mut self) -> usize {
        // Only `shrink` makes the buffer smaller; after a send its capacity merely reads as less.
        self.reserved = self.reserved.max(self.bytes.capacity());
        self.reserved
    }

    /// Bytes not yet handed to the socket, held back or not.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The pending bytes behind the first `before`, for the caller that put them.
    pub fn put_since(&self, before: usize) -> &[u8] {
        self.bytes.get(before..).unwrap_or_default()
    }

    /// Whether something is held back by a gate.
    pub fn is_gated(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The leases whose bytes were never handed to the socket.
    pub fn unsent_leases(&self) -> Vec<LeaseRef> {
        self.leases.iter().map(|(_, lease)| *lease).collect()
    }

    fn end(&self) -> u64 {
        self.sent + self.bytes.len() as u64
    }
}

/// An outbox that is nearly empty keeps at most this much memory, so that one large reply does not
/// stay allocated for the life of its connection.
const IDLE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(out: &mut Outbox, gate: u64, text: &[u8]) {
        let text = out.open(Gated::new(text, Gate(gate)));
        out.put(|bytes| bytes.extend_from_slice(text));
    }

    #[test]
    fn a_reply_never_overtakes_one_that_waits_for_the_log() {
        let mut out = Outbox::default();
        put(&mut out, 0, b"a");
        put(&mut out, 5, b"b");
        put(&mut out, 0, b"c");
        put(&mut out, 3, b"d");
        put(&mut out, 7, b"e");
        assert_eq!(out.released(Gate(4)), b"a");
        out.advance(1);
        assert_eq!(out.released(Gate(4)), b"");
        assert_eq!(out.released(Gate(6)), b"bcd");
        out.advance(2);
        assert_eq!(out.released(Gate(6)), b"d");
        assert_eq!(out.released(Gate(7)), b"de");
        out.advance(2);
        assert_eq!((out.pending_bytes(), out.is_gated()), (0, false));
    }

    #[test]
    fn a_large_reply_takes_memory_until_most_of_it_has_left() {
        let mut out = Outbox::default();
        let large = vec![7; 1 << 20];
        put(&mut out, 0, &large);
        out.advance(500_000);
        assert!(out.reserved_bytes() >= 1 << 20, "what was sent is still reserved");
        out.advance(500_000);
        assert!(out.reserved_bytes() <= 2 * out.pending_bytes(), "{}", out.reserved_bytes());
        assert_eq!(out.released(Gate(0)), &large[..48_576]);
        out.advance(48_576);
        out.shrink();
        assert_eq!(out.reserved_bytes(), 0);
    }

    #[test]
    fn only_leases_whose_last_byte_left_count_as_sent() {
        let mut out = Outbox::default();
        let lease = |job| LeaseRef { job: JobId(job), attempt: 1 };
        for (job, text) in [(1, b"one"), (2, b"two")] {
            let lease = out.open(Gated::new(lease(job), Gate(1)));
            out.put_lease(lease, |bytes| bytes.extend_from_slice(text));
        }
        assert_eq!(out.released(Gate(1)), b"onetwo");
        out.advance(5);
        assert_eq!(out.unsent_leases(), [lease(2)]);
    }
}
