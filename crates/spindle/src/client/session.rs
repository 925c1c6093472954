//! What commands ask of a server, whichever of its doors they go through.

use std::io;

use bytes::Bytes;
use serde_json::Value;
use spindle_workq::wire::Uuid;

pub use super::lost::Lost;
use super::view::{Job, Queue};
use crate::{
    cli::{IfTaken, JobName, JobStatus, OnDead, PayloadType, RetryWait},
    queue_name::QueueName,
};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The connection failed, was closed, or gave no answer in time.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is no such thing.
    #[error("not found")]
    NotFound,
    /// It did not happen in time.
    #[error("timed out")]
    TimedOut,
    /// The worker has its job no more.
    #[error("the job {}", .0.description())]
    LeaseLost(Lost),
    /// The server will not do it, now or later.
    #[error("{text}")]
    Refused {
        /// What it says.
        text: String,
        /// Its stable code, through the native API.
        code: Option<String>,
    },
    /// The server cannot do it now.
    #[error("{0}")]
    Failed(String),
    /// Something in front of the server says that it is not there now.
    #[error("{0}")]
    Away(String),
    /// What is there cannot be used as the command line says. The text tells people what to do.
    #[error("{0}")]
    Unusable(String),
    /// What came back is no answer of that protocol.
    #[error("{0}")]
    Strange(String),
    /// This door's protocol cannot express it.
    #[error("{0}")]
    Unable(String),
}

/// A job to add.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its queue.
    pub queue: QueueName,
    /// What it carries.
    pub payload: Bytes,
    /// What that is.
    pub payload_type: PayloadType,
    /// How long a lease lasts.
    pub ttr_ms: u32,
    /// How long it lives, from `run_at_ms` or now.
    pub ttl_ms: u64,
    /// Higher goes first.
    pub priority: i64,
    /// Most leases; 0 is no limit.
    pub attempts_max: Option<u32>,
    /// Most failures; 0 is no limit.
    pub fails_max: Option<u32>,
    /// How long it waits after a failure.
    pub backoff: Option<RetryWait>,
    /// Not before this time.
    pub run_at_ms: Option<u64>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whose share of a fair queue it takes.
    pub fair_key: Option<String>,
    /// A key that at most one unfinished job of the queue has, and what happens when it is taken.
    pub unique: Option<(String, IfTaken)>,
    /// Jobs that it waits for.
    pub after: Vec<u64>,
    /// What happens when one of them dies.
    pub on_dead: Option<OnDead>,
    /// The batch that it belongs to.
    pub batch: Option<u64>,
    /// Its id in Workq.
    pub id: Option<Uuid>,
}

/// How a job ended.
#[derive(Debug)]
pub struct Finished {
    /// The job's id, as this door tells it.
    pub id: String,
    /// Completed, not failed.
    pub success: bool,
    /// The result's bytes.
    pub result: Bytes,
    /// What is said about it: message, error and code, as far as there are any.
    pub remarks: Vec<(&'static str, String)>,
}

/// A job to work on.
#[derive(Debug, Clone)]
pub struct Leased {
    /// The job's id, as this door tells it.
    pub id: String,
    /// Its queue.
    pub queue: Bytes,
    /// Which attempt it is, from 1, where the lease says so.
    pub attempt: Option<u32>,
    /// How long the lease lasts.
    pub ttr_ms: u64,
    /// What to work on.
    pub payload: Bytes,
    /// The trace it was submitted in, as a `traceparent`.
    pub traceparent: Option<String>,
    /// What names the lease when it is extended and ended.
    pub claim: String,
}

/// How an attempt went.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Completed, not failed.
    pub success: bool,
    /// The result's bytes.
    pub result: Bytes,
    /// How it failed, for programs: at most 64 characters.
    pub code: String,
    /// How it failed, for people: at most 4096 characters.
    pub message: String,
    /// What the command said of it: at most 4096 characters.
    pub error: String,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobQuery {
    /// Only those of this queue.
    pub queue: Option<QueueName>,
    /// Only those of these statuses; none is all.
    pub statuses: Vec<JobStatus>,
    /// Other filters of the native API, by their names there.
    pub filters: Vec<(&'static str, String)>,
    /// How many of the first ones are skipped.
    pub offset: u32,
    /// How many to list at most.
    pub limit: u32,
    /// The newest first, in the order of their numbers.
    pub newest_first: bool,
    /// How many bytes of each payload to include, from its beginning.
    pub preview_bytes: Option<u32>,
}

/// Jobs of a list.
#[derive(Debug)]
pub struct Listed {
    /// Those that were asked for.
    pub jobs: Vec<Job>,
    /// How many there are behind them; none if that is not known.
    pub more: Option<More>,
}

/// How many jobs there are behind those that were listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct More {
    /// Their number.
    pub count: u64,
    /// There may be more than that.
    pub is_at_least: bool,
}

impl More {
    /// There may be more.
    pub const UNKNOWN: Self = Self { count: 0, is_at_least: true };
}

/// A conversation with a server.
pub trait Session: Send {
    /// Makes sure that the server is there and speaks this protocol.
    fn greet(&mut self) -> Result<(), AskError>;

    /// Adds a job; its id.
    fn add(&mut self, job: &NewJob) -> Result<String, AskError>;

    /// Adds jobs, as many as possible in one go. Returns an answer for each, in order. If there are
    /// fewer answers than jobs, the connection broke, and the last answer says how.
    fn add_all(&mut self, jobs: &[NewJob]) -> Vec<Result<String, AskError>>;

    /// Adds a job, waits up to `wait_ms` for a worker and then for the result. After that the job
    /// is gone.
    fn run(&mut self, job: &NewJob, wait_ms: u32) -> Result<Finished, AskError>;

    /// The result of a job; waits for it up to `wait_ms`.
    fn result(&mut self, job: JobName, wait_ms: u32) -> Result<Finished, AskError>;

    /// A job's id as this door tells it: a number through the native API, a UUID through Workq. A
    /// job that is not there keeps the name it was given.
    fn id_of(&mut self, job: JobName) -> Value;

    /// A job with its payload.
    fn job(&mut self, job: JobName) -> Result<Job, AskError>;

    /// Some jobs.
    fn jobs(&mut self, wanted: &JobQuery) -> Result<Listed, AskError>;

    /// All queues.
    fn queues(&mut self) -> Result<Vec<Queue>, AskError>;

    /// A queue.
    fn queue(&mut self, name: &QueueName) -> Result<Queue, AskError>;

    /// Deletes a job.
    fn delete(&mut self, job: JobName) -> Result<(), AskError>;

    /// Waits up to `wait_ms` for a job of these queues.
    fn lease(&mut self, queues: &[QueueName], wait_ms: u32) -> Result<Option<Leased>, AskError>;

    /// Lets a lease last `ttr_ms` from now.
    fn extend(&mut self, job: &Leased, ttr_ms: u32) -> Result<(), AskError>;

    /// Which attempt a lease is, where the lease itself did not say it.
    fn attempt(&mut self, job: &Leased) -> Result<Option<u32>, AskError>;

    /// Ends a lease with a result.
    fn finish(&mut self, job: &Leased, report: &Report) -> Result<(), AskError>;
}

impl AskError {
    /// Whether the error is an answer of the server, so that the connection can still be used.
    pub fn is_answer(&self) -> bool {
        !matches!(self, Self::Io(_) | Self::Unusable(_) | Self::Strange(_))
    }

    /// Whether a later try may succeed, because the server is only away or busy for now.
    pub fn may_pass(&self) -> bool {
        match self {
            // An invalid address stays invalid.
            Self::Io(error) => error.kind() != io::ErrorKind::InvalidInput,
            Self::Failed(_) | Self::Away(_) => true,
            _ => false,
        }
    }

    /// A refusal without a code.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused { text: text.into(), code: None }
    }
}
