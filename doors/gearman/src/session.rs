//! One connection that speaks the published protocol: packets and lines in, engine calls, packets
//! and lines out. It holds no rule of the queue.
//!
//! What calls what, and what each answer waits for (its gate):
//!
//! | packet | engine | answer | gate |
//! |---|---|---|---|
//! | SUBMIT_JOB* | `submit_or_join` | JOB_CREATED | its record; foreground: its ids' block |
//! | GRAB_JOB* | `lease`, not waiting | JOB_ASSIGN*, NO_JOB | what it reveals; the tail |
//! | PRE_SLEEP | `sleep`, `DropTimeout` | NOOP, when called | none: it promises nothing |
//! | WORK_STATUS, -DATA, -WARNING | `report` | none, or ERROR | |
//! | WORK_COMPLETE, -FAIL, -EXCEPTION | `finish`, `finish_streamed` | none, or ERROR | |
//! | GET_STATUS* | `progress` | STATUS_RES* | the job's last event; the tail |
//! | (watch) | [`Answer::Told`] | WORK_STATUS, -DATA, -WARNING | none: volatile |
//! | (watch) | [`Answer::Ended`] | WORK_COMPLETE, -FAIL, -EXCEPTION | its record |
//! | (watch) | [`Answer::Gone`] | WORK_FAIL | the tail |
//! | lines | walks in steps | lines | none: numbers for people |
//!
//! No packet makes the connection wait, so a client may go on while its jobs run; only a log that
//! is behind holds further packets back. What waits for the peer to read is limited: packets are
//! taken on only while little is unsent, and news of jobs are dropped, or the connection, when
//! their reader has stopped reading.

mod abilities;
mod naming;
mod opening;
mod status;
mod submit;
mod watch;
mod work;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use spindle_core::JobId;
use spindle_engine::{
    Answer, Caller, Engine, Flow, Gate, LeaseRef, Outbox, Refused, Session, Ticket,
};

use crate::admin::{STEPS_PER_TURN, Walk};
use crate::door::Common;
use crate::wire::{Decoder, ErrorReply, FUNCTION_BYTES_MAX, Incoming, Request, WireError, encode};
use abilities::Abilities;
pub(crate) use naming::shown_unique;
pub(crate) use opening::Opening;
use work::Held;

/// Answers in the outbox above which further packets wait until the peer has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The same while answers wait for the log: a batch of them is to leave together.
const GATED_ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// What a connection calls itself is kept up to this length (recorded: gearmand keeps as much).
const CLIENT_ID_BYTES_MAX: usize = 127;

/// One connection of this door.
pub struct GearmanSession {
    pub(crate) engine: Engine,
    pub(crate) common: Arc<Common>,
    pub(crate) caller: Caller,
    /// Its number in the roll.
    number: u64,
    decoder: Decoder,
    /// What it calls itself.
    id: Bytes,
    /// The client wants WORK_EXCEPTION.
    wants_exceptions: bool,
    abilities: Abilities,
    /// Jobs this connection has grabbed.
    held: HashMap<JobId, Held>,
    /// The one of them whose timer runs: the one grabbed last, if its function has a timeout.
    timed: Option<JobId>,
    /// PRE_SLEEP is done but for the timer, which waits for room in the log.
    stops_timer: bool,
    /// Jobs it ended with WORK_EXCEPTION last: workers may send WORK_FAIL as well.
    excepted: VecDeque<JobId>,
    /// It has sent PRE_SLEEP and neither grabbed nor been called since.
    sleeps: bool,
    asleep: Option<Ticket>,
    /// Jobs this connection waits for.
    watches: HashMap<Ticket, JobId>,
    /// The function its last submit named, which the roll knows.
    named: Bytes,
    /// Nothing goes on until the log has room; then what was refused is tried again.
    room: Option<(Ticket, Option<Box<Incoming>>)>,
    /// A list under way, or a long deed; what came behind it waits.
    pub(crate) walk: Option<Walk>,
    /// A byte of ours stands in the input, so that the walk is gone on with.
    marked: bool,
}

impl GearmanSession {
    pub(crate) fn new(
        engine: Engine,
        common: Arc<Common>,
        caller: Caller,
        number: u64,
    ) -> GearmanSession {
        let decoder = Decoder::new(common.limits);
        let wants_exceptions = common.exceptions;
        GearmanSession {
            engine,
            common,
            caller,
            number,
            decoder,
            id: Bytes::new(),
            wants_exceptions,
            abilities: Abilities::default(),
            held: HashMap::new(),
            timed: None,
            stops_timer: false,
            excepted: VecDeque::new(),
            sleeps: false,
            asleep: None,
            watches: HashMap::new(),
            named: Bytes::new(),
            room: None,
            walk: None,
            marked: false,
        }
    }

    /// Works through what came until the log is behind, the outbox is full, or no more is there.
    fn work(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        if self.room.is_some() {
            return Flow::Wait;
        }
        if std::mem::take(&mut self.marked) {
            input.advance(1);
        }
        let mut steps = 0;
        loop {
            if self.room.is_some() {
                return Flow::Wait;
            }
            let most = if out.is_gated() { GATED_ANSWER_BYTES_MAX } else { ANSWER_BYTES_MAX };
            if out.pending_bytes() > most {
                self.mark(input);
                return Flow::Continue;
            }
            if self.walk.is_some() {
                if steps == STEPS_PER_TURN {
                    self.mark(input);
                    self.wait_for_room(None);
                    continue;
                }
                steps += 1;
                self.walk_on(out);
                continue;
            }
            match self.decoder.decode(input) {
                Ok(Some(incoming)) => self.take(incoming, out),
                Ok(None) => return Flow::Continue,
                Err(error) => {
                    if let Some(reply) = error.reply() {
                        out.put(Gate::OPEN, |out| encode::error(out, reply));
                    }
                    if error.closes() {
                        return close_after(error);
                    }
                }
            }
        }
    }

    /// The reactor comes back only for a session that has left input: a walk under way leaves
    /// a byte.
    fn mark(&mut self, input: &mut BytesMut) {
        if self.walk.is_some() && input.is_empty() {
            input.extend_from_slice(b"\n");
            self.marked = true;
        }
    }

    fn take(&mut self, incoming: Incoming, out: &mut Outbox) {
        let again = match incoming {
            Incoming::Request(request) => self.answer(request, out).map(Incoming::Request),
            Incoming::Admin(Ok(command)) => {
                self.administer(command, out).map(|command| Incoming::Admin(Ok(command)))
            }
            Incoming::Admin(Err(error)) => {
                out.put(Gate::OPEN, |out| error.encode(out));
                None
            }
        };
        if let Some(incoming) = again {
            self.wait_for_room(Some(incoming));
        }
    }

    /// Goes on when the log has room; with nothing to try again, as soon as others had a turn.
    pub(crate) fn wait_for_room(&mut self, again: Option<Incoming>) {
        let ticket = self.engine.wait_for_room(&self.caller);
        self.room = Some((ticket, again.map(Box::new)));
    }

    /// Returns the request if it must be tried again.
    fn answer(&mut self, request: Request, out: &mut Outbox) -> Option<Request> {
        match request {
            Request::Submit(submit) => return self.submit(submit, out).map(Request::Submit),
            Request::Grab(kind) => return self.grab(kind, out).map(Request::Grab),
            Request::CanDo { function } => self.can_do(function, None, out),
            Request::CanDoTimeout { function, timeout_ms } => {
                self.can_do(function, Some(timeout_ms), out);
            }
            Request::CantDo { function } => self.cant_do(&function),
            Request::ResetAbilities => self.reset_abilities(),
            Request::PreSleep => return self.pre_sleep(out),
            Request::AllYours => {}
            Request::WorkStatus { .. } | Request::WorkData { .. } | Request::WorkWarning { .. } => {
                self.report(request, out);
            }
            Request::WorkComplete { .. }
            | Request::WorkFail { .. }
            | Request::WorkException { .. } => return self.finish(request, out),
            Request::GetStatus { handle } => self.status(&handle, out),
            Request::GetStatusUnique { unique } => self.status_unique(&unique, out),
            Request::Echo { data } => out.put(Gate::OPEN, |out| encode::echo(out, &data)),
            Request::SetClientId { id } => {
                let kept = id.get(..CLIENT_ID_BYTES_MAX).unwrap_or(&id);
                self.id = Bytes::copy_from_slice(kept);
                self.common.roll.lock().set_id(self.number, self.id.clone());
            }
            Request::Option { name } if Request::is_exceptions_option(&name) => {
                self.wants_exceptions = true;
                out.put(Gate::OPEN, |out| encode::option(out, &name));
            }
            Request::Option { .. } => error(out, Gate::OPEN, ErrorReply::UnknownOption),
        }
        None
    }
}

/// What came before is still answered; a peer that speaks something else is not.
fn close_after(error: WireError) -> Flow {
    match error {
        WireError::WrongMagic => Flow::Abort,
        _ => Flow::Close,
    }
}

fn error(out: &mut Outbox, gate: Gate, reply: ErrorReply) {
    out.put(gate, |out| encode::error(out, reply));
}

impl Session for GearmanSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Answer, gate: Gate, out: &mut Outbox) -> Flow {
        if let Some((_, again)) = self.room.take_if(|(expected, _)| *expected == ticket) {
            match again {
                Some(incoming) => self.take(*incoming, out),
                // A list goes on with what it left in the input.
                None if self.marked => {}
                None => self.walk_on(out),
            }
        } else if self.asleep == Some(ticket) {
            self.asleep = None;
            self.sleeps = false;
            out.put(Gate::OPEN, encode::noop);
        } else if self.watches.contains_key(&ticket)
            && let Flow::Abort = self.watched(ticket, answer, gate, out)
        {
            return Flow::Abort;
        }
        if self.room.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // What came in whole is still done and answered, for clients that close their sending
        // side only; who is gone waits for no job and holds none. A busy log or a full outbox only
        // delays what is left.
        self.work(input, out)
    }

    fn on_shutdown(&mut self, last: bool, _out: &mut Outbox) -> Flow {
        // Nothing more comes in, so no job that is waited for can end.
        if self.room.is_some() && !last { Flow::Wait } else { Flow::Close }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        for lease in unsent {
            self.engine.undo_lease(*lease);
        }
        self.engine.connection_gone(self.caller.connection, None);
    }

    fn input_bytes_max(&self) -> usize {
        self.common.limits.input_bytes_max()
    }
}

/// A refusal of a packet that asks for something, in Gearman's words. `Busy` is not refused: it is
/// tried again.
fn refuse(out: &mut Outbox, refused: &Refused) {
    use spindle_core::Rejection;
    match refused {
        Refused::Rejected(Rejection::QueueFull, gate) => error(out, *gate, ErrorReply::QueueFull),
        Refused::Rejected(rejection, gate) => {
            tracing::debug!("refused a packet: {rejection}");
            error(out, *gate, ErrorReply::Refused);
        }
        Refused::TooLarge { .. } => error(out, Gate::OPEN, ErrorReply::PayloadTooLarge),
        Refused::DiskFull => error(out, Gate::OPEN, ErrorReply::DiskFull),
        Refused::TooMany(_) => error(out, Gate::OPEN, ErrorReply::TooMany),
        Refused::Stopping | Refused::Busy => error(out, Gate::OPEN, ErrorReply::Stopping),
    }
}

/// Names are copied out of the input, which may be large.
fn own(name: &Bytes) -> Bytes {
    debug_assert!(name.len() <= FUNCTION_BYTES_MAX);
    Bytes::copy_from_slice(name)
}
