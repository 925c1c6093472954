//! What workers and applications send.

use bytes::Bytes;

/// The draft's three job types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobKind {
    /// 0: the application waits; status and result are streamed to it.
    Sync,
    /// 1: the application gets a handle to ask with.
    Handle,
    /// 2: the application wants the job done and nothing more.
    ThrowAway,
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// Done so far.
    pub numerator: u32,
    /// All there is to do.
    pub denominator: u32,
    /// How long it will take, by the worker's estimate; 0 if it has none.
    pub remaining_s: u32,
}

/// A new job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// What to do, 1 to 512 bytes.
    pub name: Bytes,
    /// While a job of this name with this key is unfinished, no other is made. Empty is no key.
    pub duplicate_key: Bytes,
    /// Reserved by the draft.
    pub flags: u8,
    /// Which of the three types.
    pub kind: JobKind,
    /// What the worker gets.
    pub payload: Bytes,
}

/// One packet of a worker or an application.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the draft's own names")]
pub enum Request {
    /// 0x00: nothing. In the draft only the server sends it; from a client it is taken as a sign of
    /// life.
    Noop,
    /// 0x01: the names of jobs that the worker can do, 1 to 512 bytes each. A later one replaces
    /// it.
    WorkerConnect { names: Vec<Bytes> },
    /// 0x02: goodbye.
    WorkerDisconnect,
    /// 0x03: the worker wants a noop when there is work.
    WorkerSleep,
    /// 0x04: a new job.
    JobCreate(NewJob),
    /// 0x06: got a job for me?
    JobAssign,
    /// 0x08: how far the worker is with its job.
    JobStatusAnnounce(Progress),
    /// 0x09: how far is this job?
    JobStatus { handle: Bytes },
    /// 0x0B: the worker has finished its job. Code 0 is success, 1 to 255 is the worker's own code
    /// of a failure.
    JobCompleteAnnounce { code: u8, result: Bytes },
    /// 0x0C: is this job finished?
    JobComplete { handle: Bytes },
}

impl Request {
    /// Whether answering it may change something. Such a request waits while the log has no room.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Request::JobCreate(_) | Request::JobAssign | Request::JobCompleteAnnounce { .. }
        )
    }

    /// The bytes of the payload or result that it brings.
    pub fn brought_bytes(&self) -> usize {
        match self {
            Request::JobCreate(job) => job.payload.len(),
            Request::JobCompleteAnnounce { result, .. } => result.len(),
            _ => 0,
        }
    }
}

impl JobKind {
    /// The type of this byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<JobKind> {
        [JobKind::Sync, JobKind::Handle, JobKind::ThrowAway].get(usize::from(byte)).copied()
    }
}

impl Progress {
    pub(super) fn parse(data: &[u8]) -> Option<Progress> {
        let (numbers, rest) = data.as_chunks::<4>();
        let &[numerator, denominator, remaining] = numbers else { return None };
        rest.is_empty().then(|| Progress {
            numerator: u32::from_be_bytes(numerator),
            denominator: u32::from_be_bytes(denominator),
            remaining_s: u32::from_be_bytes(remaining),
        })
    }
}
