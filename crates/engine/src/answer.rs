//! What the engine answers: at once, or later to callers that wait.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::batch::Batch;
use spindle_core::job::TraceParent;
use spindle_core::{BytesRef, JobId, JobImage, Rejection};
use spindle_log::LogError;

use crate::door::Ticket;
use crate::read::BlockerNow;

/// Why the engine cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The log is poisoned.
    #[error("{0}")]
    Log(LogError),
    /// Another server wrote to the log.
    #[error("another server has written to this log")]
    Conflict,
    /// This process has given the log up: see [`Engine::abandon`](crate::Engine::abandon).
    #[error("this process has given up to lead the log")]
    Abandoned,
    /// The log refused a record.
    #[error("the log refused a record: {0}")]
    Refused(String),
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The core refuses it.
    #[error("{0}")]
    Rejected(#[from] Rejection),
    /// The caller waited too long for room in the log. The engine never answers this: the HTTP
    /// bridge does when its wait runs out.
    #[error("too much is waiting for the disk")]
    Busy,
    /// The disk is full: calls that free space are still taken, new jobs are not.
    #[error("disk full")]
    DiskFull,
    /// The log cannot be made longer, for a reason other than room: the same holds as on a full disk.
    #[error("the log cannot grow")]
    LogCannotGrow,
    /// The log is as long as it may be: jobs can be worked and deleted, new ones are refused.
    #[error("the log is as large as it may be")]
    LogFull,
    /// A payload or result above the limit.
    #[error("{bytes} bytes are over the limit of {max}")]
    TooLarge {
        /// What came.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Foreground payloads fill their share of memory, or too many wait.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// The server stops: a job that lives in memory only would be lost. Logged jobs are still
    /// taken.
    #[error("the server is stopping")]
    Stopping,
}

/// What a lease call comes to.
#[derive(Debug)]
pub enum LeaseReply {
    /// A job, at once.
    Leased(Box<LeasedJob>),
    /// Nothing there, and no wait was asked for.
    Nothing,
    /// The answer comes later, as this ticket's.
    Waiting(Ticket),
}

/// A deferred answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A job was leased to the caller that waited.
    Leased(Box<LeasedJob>),
    /// The job is done or dead; its outcome is in the image.
    Finished(Arc<JobImage>),
    /// The job went away without a result: deleted, or its TTL passed.
    Gone(JobId),
    /// The batch has ended. It is as it was then: it may be gone by now, or unfinished again.
    BatchEnded(Arc<Batch>),
    /// News of a watched job; the watch goes on.
    Reported {
        /// The job.
        job: JobId,
        /// The queue it was in at that moment.
        queue: Bytes,
        /// What the holder of its lease reported.
        news: News,
    },
    /// A watched job is done or dead, which ends the watch.
    Ended {
        /// Its outcome is in here.
        image: Arc<JobImage>,
        /// How many bytes at the start of the result were already reported as [`News::Data`].
        streamed_bytes: u32,
    },
    /// A sleeper is called: there may be something to lease.
    Called,
    /// The wait ran out.
    TimedOut,
    /// A request that waited for room in the log may go on.
    Room,
    /// The feed has something newer.
    FeedMoved,
    /// A job that the caller follows has changed: look at it again.
    Changed(JobId),
}

/// What the holder of a lease reports while it works. Never logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// How far the work is, as text the way the worker wrote it.
    Progress {
        /// What is done of the denominator.
        numerator: Bytes,
        /// All there is to do.
        denominator: Bytes,
        /// How long it will take by the worker's own estimate; 0 if it has none (the draft Gearman
        /// began with).
        remaining_s: u32,
    },
    /// A piece of the result. It goes in front of the result that the end of the job brings.
    Data(Bytes),
    /// Something people should see; it is in the job's output, too.
    Warning(Bytes),
}

/// A lease that was given.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// The job.
    pub id: JobId,
    /// Workq's name for it.
    pub uuid: Option<[u8; 16]>,
    /// Its queue.
    pub queue: Bytes,
    /// Where its payload is; [`Leases::payload`](crate::Leases::payload) fetches it.
    pub payload: BytesRef,
    /// The payload itself, if it was in memory.
    pub(crate) bytes: Option<Bytes>,
    /// How long the lease lasts, if it ends by itself.
    pub length_ms: Option<u64>,
    /// The epoch, first half of the token.
    pub epoch: u64,
    /// The attempt, second half of the token.
    pub attempt: u32,
    /// Its names besides Workq's.
    pub keys: Vec<spindle_core::job::Key>,
    /// The trace it belongs to, for whoever works on it.
    pub trace: Option<TraceParent>,
    /// The jobs that it waited for, as they stand now.
    pub after: Vec<BlockerNow>,
}
