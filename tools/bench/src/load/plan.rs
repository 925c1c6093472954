//! What is asked of the engine, and what it answers.

use crate::stats::Latencies;
use crate::wire::WireError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// The longest that a run may take, and the extra time for every job.
const TIME_MAX: Duration = Duration::from_secs(120);
const TIME_MAX_PER_JOB: Duration = Duration::from_micros(100);

/// One run against one server. It ends when `submits` jobs were acknowledged and `finishes` jobs
/// were finished.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// The number of the first job to submit; those before it have been submitted already.
    pub(crate) first: u64,
    /// Jobs to submit.
    pub(crate) submits: u64,
    /// Connections that submit.
    pub(crate) producers: usize,
    /// Requests that each of them keeps outstanding.
    pub(crate) depth: usize,
    /// Jobs for the workers to finish.
    pub(crate) finishes: u64,
    /// Connections that lease and finish, one request at a time.
    pub(crate) workers: usize,
    /// When given, jobs arrive at this rate whatever the server does (open loop), and their latency
    /// counts from when they should have been sent.
    pub(crate) rate_per_s: Option<f64>,
}

impl Plan {
    /// `jobs` over `connections`, `depth` outstanding on each.
    pub(crate) fn submits(jobs: u64, connections: usize, depth: usize) -> Self {
        Self { submits: jobs, producers: connections, depth, ..Self::default() }
    }

    /// Jobs that wait already are finished over `connections`.
    pub(crate) fn drains(jobs: u64, connections: usize) -> Self {
        Self { finishes: jobs, workers: connections, ..Self::default() }
    }

    /// `jobs` are submitted over `connections`, and as many finished over as many others.
    pub(crate) fn life_cycles(jobs: u64, connections: usize) -> Self {
        Self { finishes: jobs, workers: connections, ..Self::submits(jobs, connections, 1) }
    }

    /// A run that takes longer has failed.
    pub(super) fn time_max(&self) -> Duration {
        TIME_MAX + TIME_MAX_PER_JOB.mul_f64(self.submits.max(self.finishes) as f64)
    }
}

/// How a run went.
pub(crate) struct Outcome {
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// Submit to its acknowledgement.
    pub(crate) submit: Latencies,
    /// Asking for a job to having it, waiting included.
    pub(crate) lease: Latencies,
    /// Having a job to its finish being acknowledged.
    pub(crate) finish: Latencies,
}

/// Why a run is no measurement.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("a connection broke")]
    Io(#[from] io::Error),
    #[error("the server closed a connection with {outstanding} requests unanswered")]
    Closed { outstanding: usize },
    /// The server sent something that its protocol does not allow.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server refused a request that every server must accept.
    #[error("the server answered {request} with {answer:?}")]
    Refused { request: &'static str, answer: String },
    #[error(
        "not done after {limit:?}: {acknowledged} of {} jobs submitted, {finished} of {} finished",
        plan.submits,
        plan.finishes
    )]
    Deadline { limit: Duration, acknowledged: u64, finished: u64, plan: Plan },
}
