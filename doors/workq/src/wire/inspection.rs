//! What `inspect` shows.

use bytes::Bytes;

use super::Uuid;

/// Where a job stands, in the order in which this protocol numbers it from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Scheduled or ready, and never tried.
    New,
    /// Done.
    Completed,
    /// Dead.
    Failed,
    /// Ready again after an attempt.
    Pending,
    /// Held by a worker.
    Leased,
}

impl JobState {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let all = [Self::New, Self::Completed, Self::Failed, Self::Pending, Self::Leased];
        all.into_iter().find(|state| u64::from(state.number()) == number)
    }
}

/// A job in an answer to `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// Its id.
    pub id: Uuid,
    /// Its queue.
    pub name: Bytes,
    /// How long a lease lasts.
    pub ttr_ms: u64,
    /// How long it is kept; 0 for a job of `run`.
    pub ttl_ms: u64,
    /// What the worker gets.
    pub payload: Bytes,
    /// How often it may be leased; 0 is without limit.
    pub attempts_max: u32,
    /// How often it was leased.
    pub attempts: u64,
    /// With how many fails it is dead; 0 was not asked for.
    pub fails_max: u32,
    /// How often it failed.
    pub fails: u64,
    /// Higher first; written clamped to 32 bits.
    pub priority: i64,
    /// Where it stands.
    pub state: JobState,
    /// When it came, in milliseconds since 1970; whole seconds on the wire.
    pub created_ms: u64,
    /// For a job of `schedule`: when it is or was due.
    pub time_ms: Option<u64>,
}

/// A queue in an answer to `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its name.
    pub name: Bytes,
    /// How many jobs are ready.
    pub ready: u64,
    /// How many jobs wait for their time.
    pub scheduled: u64,
}

/// The answer to `inspect server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Connections to this door.
    pub active_clients: u64,
    /// Unfinished jobs whose TTL passed since the start.
    pub evicted_jobs: u64,
    /// When the server started, in milliseconds since 1970; whole seconds on the wire.
    pub started_ms: u64,
}
