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
//! | (watch) | [`Answer::Reported`] | WORK_STATUS, -DATA, -WARNING | none: volatile |
//! | (watch) | [`Answer::Ended`] | WORK_COMPLETE, -FAIL, -EXCEPTION | its record |
//! | (watch) | [`Answer::Gone`] | WORK_FAIL | the tail |
//! | lines | walks in steps | lines | none: numbers for people |
//!
//! No packet makes the connection wait, so a client may go on while its jobs run; only a log that
//! is behind holds further packets back. The output that waits for the peer to read is limited:
//! further packets are taken only while little is unsent, and when a client has stopped reading,
//! news of jobs are dropped, or its connection is closed.

mod abilities;
mod admin;
mod naming;
mod opening;
mod status;
mod submit;
mod watch;
mod work;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use spindle_access::{Denied, Login, Target};
use spindle_core::{JobId, Rejection};
use spindle_engine::{
    Answer, Caller, CommandLog, Engine, Flow, Gated, LeaseRef, Outbox, Refused, Session, Ticket,
};

use crate::needs::{About, needs};
use crate::shared::{Common, authorize_job, authorize_watched, is_full};
use crate::shown_command::{described, outcome};
use crate::wire::{
    AdminError, CLIENT_ID_BYTES_MAX, Decoder, ErrorReply, FUNCTION_BYTES_MAX, Incoming, JobStatus,
    Request, Response, WireError,
};
use abilities::Abilities;
use admin::{STEPS_PER_TURN, Walk, no_room};
pub(crate) use opening::Opening;
use work::GrabbedJob;

/// One connection of this door.
pub struct GearmanSession {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Who the client is.
    login: Login,
    /// Its number in the registry.
    number: u64,
    decoder: Decoder,
    /// What it calls itself.
    id: Bytes,
    /// The client wants WORK_EXCEPTION.
    wants_exceptions: bool,
    abilities: Abilities,
    /// Jobs this connection has grabbed.
    held: HashMap<JobId, GrabbedJob, foldhash::fast::RandomState>,
    /// The job among these whose timer runs: the one grabbed last, if its function has a timeout.
    timed: Option<JobId>,
    /// Jobs it ended with WORK_EXCEPTION last: workers may send WORK_FAIL as well.
    excepted: VecDeque<JobId>,
    /// It has sent PRE_SLEEP, and has neither grabbed a job nor been woken since.
    sleeps: bool,
    asleep: Option<Ticket>,
    /// The functions of the jobs this connection waits for.
    watches: HashMap<Ticket, Bytes>,
    /// The function its last submit named, which the registry knows.
    named: Bytes,
    /// The connection is held up until the log has room, or others had a turn; then this is taken.
    room: Option<(Ticket, Option<Later>)>,
    /// What is taken then was held because of the client's rate limit.
    is_held: bool,
    /// A list or a `drop function` in progress; later input waits for it.
    walk: Option<Walk>,
    /// The input begins with a byte of ours, so that the reactor continues the walk.
    marked: bool,
    log: CommandLog,
}

/// What the connection continues with when it is its turn.
enum Later {
    Take(Box<Incoming>),
    /// A malformed request, which is answered with this.
    Refuse(ErrorReply),
}

impl GearmanSession {
    pub(crate) fn new(
        engine: Engine,
        common: Arc<Common>,
        caller: Caller,
        login: Login,
        number: u64,
    ) -> GearmanSession {
        let decoder = Decoder::new(common.limits);
        let wants_exceptions = common.exceptions;
        let log = CommandLog::new("gearman", caller.connection);
        GearmanSession {
            engine,
            common,
            caller,
            login,
            number,
            decoder,
            id: Bytes::new(),
            wants_exceptions,
            abilities: Abilities::default(),
            held: HashMap::default(),
            timed: None,
            excepted: VecDeque::new(),
            sleeps: false,
            asleep: None,
            watches: HashMap::new(),
            named: Bytes::new(),
            room: None,
            is_held: false,
            walk: None,
            marked: false,
            log,
        }
    }

    /// Handles the input until the log is behind, the outbox is full, or the input is used up.
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
            if is_full(out) {
                self.mark(input);
                return Flow::Continue;
            }
            if self.walk.is_some() {
                if steps == STEPS_PER_TURN {
                    self.mark(input);
                    self.let_others_go_first();
                    continue;
                }
                steps += 1;
                self.walk_on(out);
                continue;
            }
            match self.decoder.decode(input) {
                Ok(Some(incoming)) => {
                    self.log.begin(|| described(&incoming));
                    self.receive(incoming, out);
                }
                Ok(None) => return Flow::Continue,
                Err(wrong) if wrong.closes() => {
                    if let Some(reply) = wrong.reply() {
                        refuse_with(out, reply);
                    }
                    return close_after(wrong);
                }
                Err(wrong) => {
                    if let Some(reply) = wrong.reply() {
                        self.refuse_malformed(reply, out);
                    }
                }
            }
        }
    }

    /// Leaves a byte in the input while a walk is in progress: the reactor calls a session again
    /// only when it has left input.
    fn mark(&mut self, input: &mut BytesMut) {
        if self.walk.is_some() && input.is_empty() {
            input.extend_from_slice(b"\n");
            self.marked = true;
        }
    }

    /// Takes a request that has come in. It is answered as soon as the client's rate limit allows
    /// it.
    fn receive(&mut self, incoming: Incoming, out: &mut Outbox) {
        match self.hold() {
            None => self.take(incoming, out),
            Some(ticket) => self.room = Some((ticket, Some(Later::Take(Box::new(incoming))))),
        }
    }

    /// Answers what is malformed, which counts as any request.
    fn refuse_malformed(&mut self, reply: ErrorReply, out: &mut Outbox) {
        match self.hold() {
            None => refuse_with(out, reply),
            Some(ticket) => self.room = Some((ticket, Some(Later::Refuse(reply)))),
        }
    }

    /// Counts a request against the client's rate limit. If the client has to wait, returns the
    /// ticket that is called when the wait is over.
    fn hold(&mut self) -> Option<Ticket> {
        let delay = self.login.delay()?;
        self.is_held = true;
        Some(self.engine.waits().after(&self.caller, delay))
    }

    /// Answers a request if the client may make it, once the log has room for what it may change.
    fn take(&mut self, incoming: Incoming, out: &mut Outbox) {
        let before = out.pending_bytes();
        self.take_unlogged(incoming, out);
        if self.room.is_none() {
            // The rest of a list that is walked comes later.
            self.log.end(|| outcome(out.put_since(before)));
        }
    }

    fn take_unlogged(&mut self, incoming: Incoming, out: &mut Outbox) {
        if let Err(denied) = self.authorize(&incoming, out) {
            return deny(incoming, denied, out);
        }
        if incoming.is_change() {
            match (self.engine.wait_for_room(&self.caller, incoming.brought_bytes()), &incoming) {
                (Ok(None), _) => {}
                (Ok(Some(ticket)), _) => {
                    self.room = Some((ticket, Some(Later::Take(Box::new(incoming)))));
                    return;
                }
                (Err(refused), Incoming::Admin(_)) => {
                    return out.put(|out| no_room(&refused).encode(out));
                }
                (Err(refused), Incoming::Request(_)) => return refuse(out, &refused),
            }
        }
        match incoming {
            Incoming::Request(request) => self.answer(request, out),
            Incoming::Admin(Ok(command)) => self.administer(command, out),
            Incoming::Admin(Err(error)) => out.put(|out| error.encode(out)),
        }
    }

    /// Whether the client may do what it asks for.
    fn authorize(&mut self, incoming: &Incoming, out: &mut Outbox) -> Result<(), Denied> {
        let Some((role, about)) = needs(incoming) else { return Ok(()) };
        let login = &mut self.login;
        match about {
            About::Queue(name) => login.authorize(role, Target::Queue(name)),
            About::Queues(names) => {
                login.authorize(role, Target::Queues(&mut names.iter().map(AsRef::as_ref)))
            }
            About::Abilities => {
                let mut names = self.abilities.each_name();
                login.authorize(role, Target::Queues(&mut names))
            }
            About::Job(handle) => authorize_job(&self.engine, login, role, handle, out),
            About::AllQueues => login.authorize(role, Target::AllQueues),
            // Of a unique, the answer passes over jobs that the client may not see.
            About::Server | About::HeldJob | About::Unique => login.authorize(role, Target::Server),
        }
    }

    /// Continues a walk as soon as others had a turn.
    fn let_others_go_first(&mut self) {
        self.room = Some((self.engine.waits().after_others(&self.caller), None));
    }

    fn answer(&mut self, request: Request, out: &mut Outbox) {
        match request {
            Request::Submit(submit) => self.submit(submit, out),
            Request::Grab(kind) => self.grab(kind, out),
            Request::CanDo { function } => self.can_do(function, None, out),
            Request::CanDoTimeout { function, timeout_ms } => {
                self.can_do(function, Some(timeout_ms), out);
            }
            Request::CantDo { function } => self.cant_do(&function),
            Request::ResetAbilities => self.reset_abilities(),
            Request::PreSleep => self.pre_sleep(out),
            Request::AllYours => {}
            Request::WorkStatus { .. } | Request::WorkData { .. } | Request::WorkWarning { .. } => {
                self.report(request, out);
            }
            Request::WorkComplete { .. }
            | Request::WorkFail { .. }
            | Request::WorkException { .. } => self.finish(request, out),
            Request::GetStatus { handle } => self.status(&handle, out),
            Request::GetStatusUnique { unique } => self.status_unique(&unique, out),
            Request::Echo { data } => reply(out, Response::Echo { data: &data[..] }),
            Request::SetClientId { id } => {
                let kept = id.get(..CLIENT_ID_BYTES_MAX).unwrap_or(&id);
                self.id = Bytes::copy_from_slice(kept);
                self.common.registry.lock().set_id(self.number, self.id.clone());
            }
            Request::Option { name } if Request::is_exceptions_option(&name) => {
                self.wants_exceptions = true;
                reply(out, Response::Option { name: &name[..] });
            }
            Request::Option { .. } => refuse_with(out, ErrorReply::UnknownOption),
        }
    }
}

/// Earlier packets are still answered, unless the peer speaks another protocol.
fn close_after(error: WireError) -> Flow {
    match error {
        WireError::WrongMagic => Flow::Abort,
        _ => Flow::Close,
    }
}

fn reply(out: &mut Outbox, response: Response<&[u8]>) {
    out.put(|out| response.encode(out));
}

/// Refuses something that this client may not do. A job that it may not know of is answered as if
/// it did not exist.
fn deny(incoming: Incoming, denied: Denied, out: &mut Outbox) {
    match (incoming, denied) {
        (Incoming::Request(Request::GetStatus { handle }), Denied::Job) => {
            let status = JobStatus::default();
            reply(out, Response::Status { handle: &handle[..], status });
        }
        (Incoming::Request(request), Denied::Job) => {
            refuse_with(out, ErrorReply::of_job_not_held(&request));
        }
        (Incoming::Request(_), denied) => refuse_with(out, ErrorReply::of_denied(denied)),
        (Incoming::Admin(_), Denied::Job) => out.put(|out| AdminError::UnknownJob.encode(out)),
        (Incoming::Admin(_), denied) => out.put(|out| AdminError::Denied(denied).encode(out)),
    }
}

fn refuse_with(out: &mut Outbox, reply: ErrorReply) {
    out.put(|out| reply.encode(out));
}

impl Session for GearmanSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        if let Some((_, again)) = self.room.take_if(|(expected, _)| *expected == ticket) {
            self.is_held = false;
            match again {
                Some(Later::Take(incoming)) => self.take(*incoming, out),
                Some(Later::Refuse(reply)) => refuse_with(out, reply),
                // A list goes on with what it left in the input.
                None if self.marked => {}
                None => self.walk_on(out),
            }
        } else if self.asleep == Some(ticket) {
            self.asleep = None;
            self.sleeps = false;
            reply(out, Response::Noop);
        } else if let Some(function) = self.watches.get(&ticket) {
            let answer = out.open(answer);
            let allowed = authorize_watched(&mut self.login, function, &answer);
            // A client that may not submit there any more gets no news of jobs. News answer no
            // packet, so there is nothing to refuse.
            if allowed.is_err() || self.watched(ticket, answer, out) == Flow::Abort {
                return Flow::Abort;
            }
        }
        if self.room.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // Complete packets are still handled and answered, for clients that close only their
        // sending side. A busy log or a full outbox only delays them.
        self.work(input, out)
    }

    fn on_shutdown(&mut self, last: bool, _out: &mut Outbox) -> Flow {
        // No worker can finish a job any more, so nobody waits for one.
        if self.room.is_some() && !self.is_held && !last { Flow::Wait } else { Flow::Close }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        for lease in unsent {
            self.engine.leases().undo(*lease);
        }
        self.engine.waits().connection_gone(self.caller.connection, None);
    }

    fn input_bytes_max(&self) -> usize {
        // A client that asks too fast is not read further: what it sends waits on its side.
        if self.is_held { 0 } else { self.common.limits.input_bytes_max() }
    }

    fn is_engaged(&self) -> bool {
        self.sleeps || !self.watches.is_empty() || !self.held.is_empty()
    }

    fn lacks_identity(&mut self) -> bool {
        self.login.lacks_identity()
    }
}

/// A refusal of a packet that asks for something, in Gearman's words.
fn refuse(out: &mut Outbox, refused: &Refused) {
    let reply = match refused {
        Refused::Rejected(Rejection::QueueFull | Rejection::ServerFull) => ErrorReply::QueueFull,
        Refused::Rejected(Rejection::OtherShard(_)) => ErrorReply::OtherShard,
        Refused::Rejected(rejection) => {
            tracing::debug!("refused a packet: {rejection}");
            ErrorReply::Refused
        }
        Refused::TooLarge { .. } => ErrorReply::PayloadTooLarge,
        Refused::DiskFull => ErrorReply::DiskFull,
        Refused::LogCannotGrow => ErrorReply::LogCannotGrow,
        Refused::LogFull => ErrorReply::LogFull,
        Refused::TooMany(_) => ErrorReply::TooMany,
        Refused::Stopping | Refused::Busy => ErrorReply::Stopping,
    };
    refuse_with(out, reply);
}

/// Names are copied out of the input, which may be large.
fn copy_name(name: &Bytes) -> Bytes {
    debug_assert!(name.len() <= FUNCTION_BYTES_MAX);
    Bytes::copy_from_slice(name)
}
