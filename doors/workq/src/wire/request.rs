//! What a client can ask for.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Uuid,
    number::{write_signed, write_unsigned},
    time::write_time_exactly,
};

/// One command of a client. From [`super::Decoder`] its values are within the protocol's limits.
///
/// A list passes over the first `cursor_offset` items and shows at most `limit`, which is 1 to 100.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields have the protocol's own names")]
pub enum Request {
    /// Enqueue a job now.
    Add(NewJob),
    /// Enqueue a job at a time, in milliseconds since 1970; its TTL counts from there. The time may
    /// have passed: whether the TTL has passed too (then `Invalid Time`) is checked by the caller,
    /// who has the clock.
    Schedule { job: NewJob, time_ms: u64 },
    /// Enqueue a job and wait for its result.
    Run(Run),
    /// Wait for a job's result.
    Result { id: Uuid, wait_timeout_ms: u32 },
    /// Wait for a job of these queues: 1 to 1,024 names, possibly with repetitions.
    Lease { names: Vec<Bytes>, wait_timeout_ms: u32 },
    /// A job is done.
    Complete { id: Uuid, result: Bytes },
    /// A job failed, and why.
    Fail { id: Uuid, result: Bytes },
    /// Forget a job, whatever its state.
    Delete { id: Uuid },
    /// Let a leased job run for `ttr_ms` from now. An extension of ours.
    Extend { id: Uuid, ttr_ms: u32 },
    /// Show a job. Any UUID, as in the original; even the nil one is only not found.
    InspectJob { id: Uuid },
    /// List the ready jobs of a queue.
    InspectJobs { name: Bytes, cursor_offset: u32, limit: u32 },
    /// List the scheduled jobs of a queue.
    InspectScheduledJobs { name: Bytes, cursor_offset: u32, limit: u32 },
    /// Show a queue.
    InspectQueue { name: Bytes },
    /// List all queues in alphabetical order.
    InspectQueues { cursor_offset: u32, limit: u32 },
    /// Show the server.
    InspectServer,
    /// Present a token for the requests that follow. An extension of ours.
    Auth { token: Presented },
    /// Wait for a job of these queues as `lease` does, without being sure to work on it: it goes
    /// back, untried, unless the next request takes it. An extension of ours, for clients that ask
    /// several servers at once.
    Offer { names: Vec<Bytes>, wait_timeout_ms: u32 },
    /// Work on the job that was offered last.
    Take { id: Uuid },
    /// Stop waiting for an offer, and give back what was offered.
    Pass,
}

/// What a client presents as its token. Its `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Presented(pub Bytes);

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presented(..)")
    }
}

impl Request {
    /// Whether answering it may change something. Such a request waits while the log has no room.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Request::Add(_)
                | Request::Schedule { .. }
                | Request::Run(_)
                | Request::Lease { .. }
                | Request::Offer { .. }
                | Request::Complete { .. }
                | Request::Fail { .. }
                | Request::Delete { .. }
                | Request::Extend { .. }
        )
    }

    /// The bytes of the payload or result that it brings.
    pub fn brought_bytes(&self) -> usize {
        match self {
            Request::Add(job) | Request::Schedule { job, .. } => job.payload.len(),
            Request::Run(run) => run.payload.len(),
            Request::Complete { result, .. } | Request::Fail { result, .. } => result.len(),
            _ => 0,
        }
    }
}

/// A job to enqueue with `add` or `schedule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Chosen by the client; never nil and never one that stands for another door's job.
    pub id: Uuid,
    /// The queue: 1 to 255 letters, digits, `_`, `-`, `.`.
    pub name: Bytes,
    /// How long a lease lasts: 1 to 86,400,000.
    pub ttr_ms: u32,
    /// How long the job and its result are kept: from 1.
    pub ttl_ms: u64,
    /// Higher first: i32 for `add`, -2^31 to 2^32-1 for `schedule`.
    pub priority: i64,
    /// How often it may be leased; 0 means as often as it takes.
    pub attempts_max: u8,
    /// With how many `fail`s it is dead; 0 was not asked for and counts as 1.
    pub fails_max: u8,
    /// What the worker gets, at most 1 MiB.
    pub payload: Bytes,
}

/// A job to enqueue with `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Chosen by the client; never nil and never one that stands for another door's job.
    pub id: Uuid,
    /// The queue: 1 to 255 letters, digits, `_`, `-`, `.`.
    pub name: Bytes,
    /// How long a lease lasts: 1 to 86,400,000.
    pub ttr_ms: u32,
    /// How long to wait for a worker.
    pub wait_timeout_ms: u32,
    /// Higher first: -2^31 to 2^32-1.
    pub priority: i64,
    /// What the worker gets, at most 1 MiB.
    pub payload: Bytes,
}

impl NewJob {
    /// A job of priority 0 without a limit of attempts, final at its first `fail`.
    #[must_use]
    pub fn new(id: Uuid, name: Bytes, ttr_ms: u32, ttl_ms: u64, payload: Bytes) -> Self {
        Self { id, name, ttr_ms, ttl_ms, priority: 0, attempts_max: 0, fails_max: 0, payload }
    }

    /// Writes what comes before the payload's size, and for `schedule` before the time.
    fn write_head(&self, out: &mut BytesMut) {
        self.id.write(out);
        write_word(out, &self.name);
        write_number(out, self.ttr_ms.into());
        write_number(out, self.ttl_ms);
    }

    fn write_tail(&self, out: &mut BytesMut) {
        write_number(out, self.payload.len() as u64);
        write_flag(out, b"priority", self.priority);
        write_flag(out, b"max-attempts", self.attempts_max.into());
        write_flag(out, b"max-fails", self.fails_max.into());
        write_block(out, &self.payload);
    }
}

impl Request {
    /// Appends the request as a client sends it. Values outside the protocol's limits are written
    /// as they are; only [`super::is_name`] names are safe to write.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Add(job) => {
                out.put_slice(b"add ");
                job.write_head(out);
                job.write_tail(out);
            }
            Self::Schedule { job, time_ms } => {
                out.put_slice(b"schedule ");
                job.write_head(out);
                out.put_u8(b' ');
                write_time_exactly(out, *time_ms);
                job.write_tail(out);
            }
            Self::Run(run) => {
                out.put_slice(b"run ");
                run.id.write(out);
                write_word(out, &run.name);
                write_number(out, run.ttr_ms.into());
                write_number(out, run.wait_timeout_ms.into());
                write_number(out, run.payload.len() as u64);
                write_flag(out, b"priority", run.priority);
                write_block(out, &run.payload);
            }
            Self::Result { id, wait_timeout_ms } => {
                write_id_and_number(out, b"result ", *id, *wait_timeout_ms);
            }
            Self::Lease { names, wait_timeout_ms } => {
                write_lease(out, b"lease", names, *wait_timeout_ms);
            }
            Self::Offer { names, wait_timeout_ms } => {
                write_lease(out, b"offer", names, *wait_timeout_ms);
            }
            Self::Complete { id, result } => write_finish(out, b"complete ", *id, result),
            Self::Fail { id, result } => write_finish(out, b"fail ", *id, result),
            Self::Delete { id } => write_id(out, b"delete ", *id),
            Self::Take { id } => write_id(out, b"take ", *id),
            Self::Pass => out.put_slice(b"pass\r\n"),
            Self::Extend { id, ttr_ms } => write_id_and_number(out, b"extend ", *id, *ttr_ms),
            Self::Auth { token } => {
                out.put_slice(b"auth");
                write_word(out, &token.0);
                out.put_slice(b"\r\n");
            }
            _ => self.encode_inspect(out),
        }
    }

    fn encode_inspect(&self, out: &mut BytesMut) {
        out.put_slice(b"inspect ");
        match self {
            Self::InspectJob { id } => {
                out.put_slice(b"job ");
                id.write(out);
            }
            Self::InspectJobs { name, cursor_offset, limit } => {
                out.put_slice(b"jobs");
                write_word(out, name);
                write_page(out, *cursor_offset, *limit);
            }
            Self::InspectScheduledJobs { name, cursor_offset, limit } => {
                out.put_slice(b"scheduled-jobs");
                write_word(out, name);
                write_page(out, *cursor_offset, *limit);
            }
            Self::InspectQueue { name } => {
                out.put_slice(b"queue");
                write_word(out, name);
            }
            Self::InspectQueues { cursor_offset, limit } => {
                out.put_slice(b"queues");
                write_page(out, *cursor_offset, *limit);
            }
            _ => out.put_slice(b"server"),
        }
        out.put_slice(b"\r\n");
    }

    /// Where the decoder puts the one name (or the token) of the line; `lease` has its own way.
    pub(super) fn name_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Add(job) | Self::Schedule { job, .. } => Some(&mut job.name),
            Self::Run(run) => Some(&mut run.name),
            Self::InspectJobs { name, .. }
            | Self::InspectScheduledJobs { name, .. }
            | Self::InspectQueue { name } => Some(name),
            Self::Auth { token } => Some(&mut token.0),
            _ => None,
        }
    }

    /// Where the decoder puts the block that follows the line.
    pub(super) fn payload_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Add(job) | Self::Schedule { job, .. } => Some(&mut job.payload),
            Self::Run(run) => Some(&mut run.payload),
            Self::Complete { result, .. } | Self::Fail { result, .. } => Some(result),
            _ => None,
        }
    }
}

fn write_word(out: &mut BytesMut, word: &[u8]) {
    out.put_u8(b' ');
    out.put_slice(word);
}

fn write_number(out: &mut BytesMut, number: u64) {
    out.put_u8(b' ');
    write_unsigned(out, number);
}

fn write_page(out: &mut BytesMut, cursor_offset: u32, limit: u32) {
    write_number(out, cursor_offset.into());
    write_number(out, limit.into());
}

/// Zero is every flag's default, so it need not be sent.
fn write_flag(out: &mut BytesMut, name: &[u8], value: i64) {
    if value != 0 {
        out.put_slice(b" -");
        out.put_slice(name);
        out.put_u8(b'=');
        write_signed(out, value);
    }
}

fn write_block(out: &mut BytesMut, block: &[u8]) {
    out.put_slice(b"\r\n");
    out.put_slice(block);
    out.put_slice(b"\r\n");
}

fn write_lease(out: &mut BytesMut, command: &[u8], names: &[Bytes], wait_timeout_ms: u32) {
    out.put_slice(command);
    for name in names {
        write_word(out, name);
    }
    write_number(out, wait_timeout_ms.into());
    out.put_slice(b"\r\n");
}

fn write_id(out: &mut BytesMut, command: &[u8], id: Uuid) {
    out.put_slice(command);
    id.write(out);
    out.put_slice(b"\r\n");
}

fn write_id_and_number(out: &mut BytesMut, command: &[u8], id: Uuid, number: u32) {
    out.put_slice(command);
    id.write(out);
    write_number(out, number.into());
    out.put_slice(b"\r\n");
}

fn write_finish(out: &mut BytesMut, command: &[u8], id: Uuid, result: &[u8]) {
    out.put_slice(command);
    id.write(out);
    write_number(out, result.len() as u64);
    write_block(out, result);
}
