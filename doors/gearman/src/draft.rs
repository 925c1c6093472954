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
//! | (sync job) | [`Answer::Told`] | 0x0A | none: volatile |
//! | (sync job) | [`Answer::Ended`], [`Answer::Gone`] | 0x0D | the record of the end |
//!
//! A connection holds one job at a time and waits for one sync job at a time, because the packets
//! that tell of them carry no handle.

mod application;
mod worker;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_engine::{
    Answer, Caller, Engine, Flow, Gate, LeaseRef, Outbox, Refused, Session, Ticket,
};

use crate::door::Common;
use crate::wire::draft::{Decoder, ErrorCode, Limits, Reply, Request};
use application::SyncJob;
use worker::Held;

/// Answers in the outbox above which further packets wait until the peer has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The same while answers wait for the log: a batch of them is to leave together.
const GATED_ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// One connection of this door that speaks the draft.
pub(crate) struct DraftSession {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Its number in the roll.
    number: u64,
    limits: Limits,
    decoder: Decoder,
    /// What it can do, in the order it said.
    names: Vec<Bytes>,
    /// Where its last job came from: round-robin goes on behind it.
    last: Option<Bytes>,
    held: Option<Held>,
    /// It has sent worker_sleep and neither asked nor been called since.
    sleeps: bool,
    asleep: Option<Ticket>,
    sync_job: Option<SyncJob>,
    /// Nothing goes on until the log has room; then this is tried again.
    room: Option<(Ticket, Request)>,
}

/// What became of a request.
enum Done {
    /// It is answered, or needs no answer.
    Yes,
    /// The log is behind: it must be tried again.
    Again(Request),
    /// The peer said goodbye.
    Goodbye,
}

impl DraftSession {
    pub fn new(engine: Engine, common: Arc<Common>, caller: Caller, number: u64) -> DraftSession {
        let packet_bytes_max = common.limits.packet_bytes_max;
        let limits = Limits { packet_bytes_max, ..Limits::default() };
        DraftSession {
            engine,
            common,
            caller,
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
        }
    }

    /// Works through what came until the log is behind, the outbox is full, or no more is there.
    fn work(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        loop {
            if self.room.is_some() {
                return Flow::Wait;
            }
            let most = if out.is_gated() { GATED_ANSWER_BYTES_MAX } else { ANSWER_BYTES_MAX };
            if out.pending_bytes() > most {
                return Flow::Continue;
            }
            match self.decoder.decode(input) {
                Ok(Some(request)) => {
                    if let Flow::Close = self.take(request, out) {
                        return Flow::Close;
                    }
                }
                Ok(None) => return Flow::Continue,
                Err(refusal) => {
                    tracing::debug!("closes a connection of the draft: {refusal}");
                    if let Some(code) = refusal.reply() {
                        error(out, Gate::OPEN, code);
                    }
                    return Flow::Close;
                }
            }
        }
    }

    /// Does what is asked, or keeps it until the log has room.
    fn take(&mut self, request: Request, out: &mut Outbox) -> Flow {
        match self.answer(request, out) {
            Done::Yes => Flow::Continue,
            Done::Again(request) => {
                self.room = Some((self.engine.wait_for_room(&self.caller), request));
                Flow::Wait
            }
            Done::Goodbye => Flow::Close,
        }
    }

    fn answer(&mut self, request: Request, out: &mut Outbox) -> Done {
        match request {
            Request::Noop => Done::Yes,
            Request::WorkerConnect { names } => self.connect(names, out),
            Request::WorkerDisconnect => Done::Goodbye,
            Request::WorkerSleep => self.sleep(out),
            Request::JobCreate(job) => self.create(job, out),
            Request::JobAssign => self.assign(out),
            Request::JobStatusAnnounce(progress) => self.announce_status(progress, out),
            Request::JobStatus { handle } => self.status(&handle, out),
            Request::JobCompleteAnnounce { code, result } => {
                self.announce_completion(code, result, out)
            }
            Request::JobComplete { handle } => self.completion(&handle, out),
        }
    }
}

impl Session for DraftSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        self.work(input, out)
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Answer, gate: Gate, out: &mut Outbox) -> Flow {
        if let Some((_, request)) = self.room.take_if(|(expected, _)| *expected == ticket) {
            if let Flow::Close = self.take(request, out) {
                return Flow::Close;
            }
        } else if self.asleep == Some(ticket) {
            self.asleep = None;
            self.sleeps = false;
            reply(out, Gate::OPEN, &Reply::Noop);
        } else if self.sync_job.as_ref().is_some_and(|job| job.ticket == ticket) {
            self.watched(answer, gate, out);
        }
        if self.room.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        // What came in whole is still done and answered; who is gone waits for no job and holds
        // none.
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
        self.limits.input_bytes_max()
    }
}

fn reply(out: &mut Outbox, gate: Gate, reply: &Reply) {
    out.put(gate, |out| reply.encode(out));
}

fn error(out: &mut Outbox, gate: Gate, code: ErrorCode) {
    reply(out, gate, &Reply::error(code));
}

/// A refusal of a packet that asks for something. `Busy` is not refused: it is tried again.
fn refuse(out: &mut Outbox, refused: &Refused) {
    tracing::debug!("refused a packet of the draft: {refused}");
    let gate = match refused {
        Refused::Rejected(_, gate) => *gate,
        _ => Gate::OPEN,
    };
    error(out, gate, ErrorCode::Refused);
}
