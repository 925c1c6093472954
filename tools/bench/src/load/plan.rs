//! What is asked of the engine, and what it answers.

use crate::jobs::Jobs;
use crate::stats::Latencies;
use crate::wire::{Wire, WireError};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// One run against one server. It ends when `adds` jobs were acknowledged and `finishes` jobs
/// were finished.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    /// What it speaks.
    pub(crate) wire: Wire,
    /// The jobs to submit or to expect.
    pub(crate) jobs: &'a Jobs,
    /// The number of the first job to submit; those before it are waiting already.
    pub(crate) first: u64,
    /// Connections that submit.
    pub(crate) producers: usize,
    /// Requests that each of them keeps outstanding.
    pub(crate) depth: usize,
    /// Connections that lease and finish, one request at a time.
    pub(crate) workers: usize,
    /// Jobs to submit.
    pub(crate) adds: u64,
    /// Jobs for the workers to finish.
    pub(crate) finishes: u64,
    /// When given, producers finish, after every job they submit, the job that was acknowledged
    /// this many jobs earlier, without a lease: the log of the server churns.
    pub(crate) churn_lag: Option<u64>,
    /// When given, jobs arrive at this rate whatever the server does (open loop), and their latency
    /// counts from when they should have been sent.
    pub(crate) rate_per_s: Option<f64>,
    /// A run that takes longer has failed.
    pub(crate) deadline: Duration,
}

impl<'a> Plan<'a> {
    /// A plan that does nothing yet.
    pub(crate) fn new(address: SocketAddr, wire: Wire, jobs: &'a Jobs, deadline: Duration) -> Self {
        Self {
            address,
            wire,
            jobs,
            first: 0,
            producers: 0,
            depth: 1,
            workers: 0,
            adds: 0,
            finishes: 0,
            churn_lag: None,
            rate_per_s: None,
            deadline,
        }
    }

    /// `adds` jobs over `producers` connections, `depth` outstanding on each.
    pub(crate) fn submitting(self, adds: u64, producers: usize, depth: usize) -> Self {
        Self { adds, producers, depth, ..self }
    }

    /// `workers` connections finish `finishes` jobs.
    pub(crate) fn working(self, finishes: u64, workers: usize) -> Self {
        Self { finishes, workers, ..self }
    }
}

/// How a run went.
pub(crate) struct Outcome {
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// Submit to its acknowledgement.
    pub(crate) add: Latencies,
    /// Asking for a job to having it, waiting included.
    pub(crate) lease: Latencies,
    /// Having a job to its finish being acknowledged.
    pub(crate) finish: Latencies,
}

/// Why a run is no measurement.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// The server.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A connection broke.
    #[error("a connection broke")]
    Io(#[from] io::Error),
    /// The server hung up.
    #[error("the server closed a connection with {outstanding} requests unanswered")]
    Closed {
        /// Requests it owed an answer.
        outstanding: usize,
    },
    /// The server said something else than its protocol allows.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server refused what every server must take.
    #[error("the server answered {request} with {answer:?}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// What it said.
        answer: String,
    },
    /// Too slow.
    #[error(
        "not done after {limit:?}: {added} of {adds} jobs submitted, {finished} of {finishes} \
         finished (a longer limit: --deadline SECONDS)"
    )]
    Deadline {
        /// The limit.
        limit: Duration,
        /// Jobs acknowledged.
        added: u64,
        /// Jobs asked for.
        adds: u64,
        /// Jobs finished.
        finished: u64,
        /// Jobs to finish.
        finishes: u64,
    },
}
