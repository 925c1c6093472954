//! One connection that speaks the draft: packets in, engine calls, packets out. It holds no rule
//! of the queue. What the draft leaves open is decided in `docs/gearman.md`.
//!
//! What calls what, and what each answer waits for (its gate):
//!
//! | packet | engine | answer | gate |
//! |---|---|---|---|
//! | 0x01 connect, 0x02 disconnect | none | none | |
//! | 0x03 sleep | `sleep` | noop, when called | none: it promises nothing |
//! | 0x04 create | `submit_or_join` | 0x05 | the job's record; sync: its ids |
//! | 0x06 assign | `lease`, never waiting | 0x07 or noop | what the lease reveals; the tail |
//! | 0x08 status announce | `report` | none, or error | |
//! | 0x09 status | `progress` | 0x0A or error | the job's last event; the tail |
//! | 0x0B complete announce | `finish` | none, or error | |
//! | 0x0C complete | `job` | 0x0D or error | the job's last event; the tail |
//! | (sync job) | [`Answer::Reported`] | 0x0A | none: volatile |
//! | (sync job) | [`Answer::Ended`], [`Answer::Gone`] | 0x0D | the record of the end |
//!
//! A connection holds one job at a time and waits for one sync job at a time, because the packets
//! that tell of them carry no handle.

mod application;
mod worker;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_access::{Denied, Login, Target};
use spindle_engine::{
    Answer, Caller, CommandLog, Engine, Flow, Gated, LeaseRef, Outbox, Refused, Session, Ticket,
};

use crate::needs::{About, draft_needs};
use crate::shared::{Common, authorize_job, authorize_watched, is_full};
use crate::shown_command::{draft_described, draft_outcome};
use crate::wire::draft::{Decoder, ErrorCode, Limits, Reply, Request};
use application::SyncJob;
use worker::AssignedJob;

/// One connection of this door that speaks the draft.
pub(crate) struct DraftSession {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Who the client is.
    login: Login,
    /// Its number in the registry.
    number: u64,
    limits: Limits,
    decoder: Decoder,
    /// What it can do, in the order it said.
    names: Vec<Bytes>,
    /// Where its last job came from: round-robin goes on behind it.
    last: Option<Bytes>,
    held: Option<AssignedJob>,
    /// It has sent worker_sleep, and has neither asked for a job nor been woken since.
    sleeps: bool,
    asleep: Option<Ticket>,
    sync_job: Option<SyncJob>,
    /// The connection is held up until the log has room; then this request is taken.
    room: Option<(Ticket, Request)>,
    /// That request came too early.
    is_held: bool,
    log: CommandLog,
}

impl DraftSession {
    pub fn new(
        engine: Engine,
        common: Arc<Common>,
        caller: Caller,
        login: Login,
        number: u64,
    ) -> DraftSession {
        let packet_bytes_max = common.limits.packet_bytes_max;
        let limits = Limits { packet_bytes_max, ..Limits::default() };
        let log = CommandLog::new("gearman_draft", caller.connection);
        DraftSession {
            engine,
            common,
            caller,
            login,
            number,
            limits,
            decoder: Decoder::new(limits),
            names: Vec::new(),
            last: None,
            held: None,
            sleeps: false,
            asleep: None,
            sync_job: None,
            room: None,
            is_held: false,
            log,
        }
    }

    /// Handles the input until the log is behind, the outbox is full, or the input is used up.
    fn work(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        loop {
            if self.room.is_some() {
                return Flow::Wait;
            }
            if is_full(out) {
                return Flow::Continue;
            }
            match self.decoder.decode(input) {
                Ok(Some(request)) => {
                    self.log.begin(|| draft_described(&request));
                    if let Flow::Close = self.receive(request, out) {
                        return Flow::Close;
                    }
                }
                Ok(None) => return Flow::Continue,
                Err(refusal) => {
                    tracing::debug!("closes a connection of the draft: {refusal}");
                    if let Some(code) = refusal.reply() {
                        error(out, code);
                    }
                    return Flow::Close;
                }
            }
        }
    }

    /// Whether the client may do what it asks for.
    fn authorize(&mut self, request: &Request, out: &mut Outbox) -> Result<(), Denied> {
        let Some((role, about)) = draft_needs(request) else { return Ok(()) };
        let login = &mut self.login;
        let all = |names: &[Bytes], login: &mut Login| {
            login.authorize(role, Target::Queues(&mut names.iter().map(AsRef::as_ref)))
        };
        match about {
            About::Queue(name) => login.authorize(role, Target::Queue(name)),
            About::Queues(names) => all(names, login),
            About::Abilities => all(&self.names, login),
            About::Job(handle) => authorize_job(&self.engine, login, role, handle, out),
            // The job was handed out to this connection; a connection without one gets an error
            // from the draft itself.
            About::HeldJob | About::Server => login.authorize(role, Target::Server),
            About::AllQueues | About::Unique => login.authorize(role, Target::AllQueues),
        }
    }

    /// Takes a request that has come in. It is handled as soon as the client's rate limit allows
    /// it.
    fn receive(&mut self, request: Request, out: &mut Outbox) -> Flow {
        let Some(delay) = self.login.delay() else { return self.take(request, out) };
        self.room = Some((self.engine.waits().after(&self.caller, delay), request));
        self.is_held = true;
        Flow::Wait
    }

    /// Handles a request that the client may make, or keeps it until the log has room.
    fn take(&mut self, request: Request, out: &mut Outbox) -> Flow {
        let before = out.pending_bytes();
        let flow = self.take_unlogged(request, out);
        if self.room.is_none() {
            self.log.end(|| draft_outcome(out.put_since(before)));
        }
        flow
    }

    fn take_unlogged(&mut self, request: Request, out: &mut Outbox) -> Flow {
        match self.authorize(&request, out) {
            Ok(()) => {}
            Err(Denied::Job) => {
                error(out, ErrorCode::UnknownJob);
                return Flow::Continue;
            }
            Err(_) => {
                error(out, ErrorCode::Denied);
                return Flow::Continue;
            }
        }
        if request.is_change() {
            match self.engine.wait_for_room(&self.caller, request.brought_bytes()) {
                Ok(None) => {}
                Ok(Some(ticket)) => {
                    self.room = Some((ticket, request));
                    return Flow::Wait;
                }
                Err(refused) => {
                    refuse(out, &refused);
                    return Flow::Continue;
                }
            }
        }
        match request {
            Request::Noop => {}
            Request::WorkerConnect { names } => self.connect(names, out),
            Request::WorkerDisconnect => return Flow::Close,
            Request::WorkerSleep => self.sleep(out),
            Request::JobCreate(job) => self.create(&job, out),
            Request::JobAssign => self.assign(out),
            Request::JobStatusAnnounce(progress) => self.announce_status(progress, out),
            Request::JobStatus { handle } => self.status(&handle, out),
            Request::JobCompleteAnnounce { code, result } => {
                self.announce_completion(code, result, out);
            }
            Request::JobComplete { handle } => self.completion(&handle, out),
        }
        Flow::Continue
    }
}

impl Session for DraftSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        if let Some((_, request)) = self.room.take_if(|(expected, _)| *expected == ticket) {
            self.is_held = false;
            if let Flow::Close = self.take(request, out) {
                return Flow::Close;
            }
        } else if self.asleep == Some(ticket) {
            self.asleep = None;
            self.sleeps = false;
            reply(out, &Reply::Noop);
        } else if let Some(job) = self.sync_job.as_ref().filter(|job| job.ticket == ticket) {
            let answer = out.open(answer);
            if authorize_watched(&mut self.login, &job.name, &answer).is_err() {
                return Flow::Abort;
            }
            self.watched(answer, out);
        }
        if self.room.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // Complete packets are still handled and answered.
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
        if self.is_held { 0 } else { self.limits.input_bytes_max() }
    }

    fn is_engaged(&self) -> bool {
        self.sleeps || self.sync_job.is_some() || self.held.is_some()
    }

    fn lacks_identity(&mut self) -> bool {
        self.login.lacks_identity()
    }
}

fn reply(out: &mut Outbox, reply: &Reply) {
    out.put(|out| reply.encode(out));
}

fn error(out: &mut Outbox, code: ErrorCode) {
    reply(out, &Reply::error(code));
}

/// A refusal of a packet that asks for something.
fn refuse(out: &mut Outbox, refused: &Refused) {
    tracing::debug!("refused a packet of the draft: {refused}");
    error(out, ErrorCode::Refused);
}
