//! Schedules: jobs that are submitted at times that an expression names.
//!
//! The core keeps the expression and the zone as texts and never reads them. The caller that fires
//! a schedule computes the times that follow, and passes them with the command; the core decides
//! whether the time is the one that is due, and what happens then. The job and the event that moves
//! the schedule on are in one record, so a time fires once, whatever crashes.
//!
//! ```text
//!             next is due
//!   waits ------------------+--> on time, or missed and to be made up --> overlap? --> job
//!     ^                     |                                               |
//!     |                     +--> missed, and not to be made up              +--> passed over, or
//!     +---------------------------------------------------------------------+    kept as pending
//! ```
//!
//! A time is *missed* when it has been due for more than [`MISSED_AFTER_MS`] before it is looked
//! at. [`Missed`] says which times are made up, [`Overlap`] what happens while the last job is
//! unfinished.

use bytes::Bytes;

use crate::command::Submit;
use crate::job::{Backoff, JobId, Origin};
use crate::payload::{BytesRef, Type};

/// Longest name of a schedule.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 100;
/// Most schedules at once.
pub const SCHEDULES_MAX: usize = 20_000;
/// Longest payload of a schedule's jobs: it is kept in memory.
pub const SCHEDULE_PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Longest expression, and longest name of a zone.
pub const SCHEDULE_TEXT_BYTES_MAX: usize = 255;
/// Most bytes that all schedules take together, in memory and on disk.
pub const SCHEDULES_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A time that has been due for longer than this is missed.
pub const MISSED_AFTER_MS: u64 = 60_000;
/// Most missed times that are made up one by one.
pub const MADE_UP_MAX: u32 = 1_000;
/// Longest jitter: an hour.
pub const JITTER_MS_MAX: u64 = 3600 * 1000;

/// What happens to a time that comes while the last job of the schedule is unfinished.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Overlap {
    /// A job comes all the same.
    Allow = 0,
    /// The time is passed over.
    Skip = 1,
    /// One job comes when the last one has ended, however many times come until then.
    QueueOne = 2,
    /// The last job is cancelled, and the new one comes.
    Replace = 3,
}

/// What happens to times that were missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Missed {
    /// Nothing.
    Skip = 0,
    /// One job comes for all of them.
    Once = 1,
    /// A job comes for each of the first ones, see `missed_max` of [`Schedule`].
    All = 2,
}

/// What became of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Outcome {
    /// A job was submitted.
    Submitted = 0,
    /// It was missed, and is not made up.
    Missed = 1,
    /// The last job was unfinished.
    Overlapped = 2,
    /// The last job was unfinished: a job comes when it ends.
    Pending = 3,
    /// The job was refused, as a submit by a client is.
    Refused = 4,
}

/// A time that a schedule names.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Due {
    /// The time that the expression names.
    #[prost(uint64, tag = "1")]
    pub due_ms: u64,
    /// When the schedule fires for it: not before `due_ms`, and later by the jitter.
    #[prost(uint64, tag = "2")]
    pub fire_ms: u64,
}

/// The job that a schedule submits.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct JobTemplate {
    /// Its queue.
    #[prost(bytes = "vec", tag = "1")]
    pub queue: Vec<u8>,
    /// Higher goes first.
    #[prost(sint64, tag = "2")]
    pub priority: i64,
    /// As in [`Submit`], and so on.
    #[prost(uint64, optional, tag = "3")]
    pub ttl_ms: Option<u64>,
    /// How long a lease lasts.
    #[prost(uint64, optional, tag = "4")]
    pub ttr_ms: Option<u64>,
    /// Most leases.
    #[prost(uint32, optional, tag = "5")]
    pub attempts_max: Option<u32>,
    /// Most failures.
    #[prost(uint32, optional, tag = "6")]
    pub fails_max: Option<u32>,
    /// Wait between failures.
    #[prost(message, optional, tag = "7")]
    pub backoff: Option<Backoff>,
    /// Retention once done.
    #[prost(uint64, optional, tag = "8")]
    pub keep_ms: Option<u64>,
    /// Whose share of a fair queue its jobs take.
    #[prost(bytes = "vec", optional, tag = "40")]
    pub fair_key: Option<Vec<u8>>,
    /// Words to search by; the word `schedule:` with the schedule's name is added to them.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub tags: Vec<Vec<u8>>,
    /// Its payload.
    #[prost(bytes = "vec", tag = "10")]
    pub payload: Vec<u8>,
    /// What the payload is.
    #[prost(enumeration = "Type", tag = "11")]
    pub payload_type: i32,
}

/// A schedule as a person put it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Schedule {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// When it fires: for `spindle-schedule` to read.
    #[prost(string, tag = "2")]
    pub expression: String,
    /// The time zone that the expression speaks of.
    #[prost(string, tag = "3")]
    pub zone: String,
    /// What it submits.
    #[prost(message, required, tag = "4")]
    pub job: JobTemplate,
    /// While the last job is unfinished.
    #[prost(enumeration = "Overlap", tag = "5")]
    pub overlap: i32,
    /// Times that were missed.
    #[prost(enumeration = "Missed", tag = "6")]
    pub missed: i32,
    /// With [`Missed::All`]: how many missed times in a row are made up.
    #[prost(uint32, tag = "7")]
    pub missed_max: u32,
    /// It fires up to this much later than its times, by a hash of name and time.
    #[prost(uint64, tag = "8")]
    pub jitter_ms: u64,
    /// No time before this.
    #[prost(uint64, optional, tag = "9")]
    pub start_ms: Option<u64>,
    /// No time after this.
    #[prost(uint64, optional, tag = "10")]
    pub end_ms: Option<u64>,
    /// It does not fire.
    #[prost(bool, tag = "11")]
    pub paused: bool,
}

/// What became of the newest time that a schedule looked at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Occurrence {
    /// The time.
    #[prost(uint64, tag = "1")]
    pub due_ms: u64,
    /// When it was looked at.
    #[prost(uint64, tag = "2")]
    pub at_ms: u64,
    /// What came of it.
    #[prost(enumeration = "Outcome", tag = "3")]
    pub outcome: i32,
    /// Why the job was refused; else empty.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// How far a schedule has come.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Progress {
    /// Changes with every put, and is never the same for two schedules.
    #[prost(uint64, tag = "1")]
    pub revision: u64,
    /// The time that it fires for next; none when no time follows.
    #[prost(message, optional, tag = "2")]
    pub next: Option<Due>,
    /// A job for this time comes when the last one has ended.
    #[prost(uint64, optional, tag = "3")]
    pub pending_ms: Option<u64>,
    /// The job submitted last.
    #[prost(uint64, optional, tag = "4")]
    pub last_job: Option<u64>,
    /// The newest time looked at.
    #[prost(message, optional, tag = "5")]
    pub last: Option<Occurrence>,
    /// Jobs submitted.
    #[prost(uint64, tag = "6")]
    pub submitted: u64,
    /// Missed times in a row that were made up.
    #[prost(uint32, tag = "7")]
    pub made_up: u32,
}

impl JobTemplate {
    /// The job, with an id and a place of its payload.
    pub fn submit(&self, schedule: &str, id: JobId, payload: BytesRef) -> Submit {
        let tags = self.tags.iter().map(|tag| Bytes::copy_from_slice(tag));
        let queue = Bytes::copy_from_slice(&self.queue);
        Submit {
            priority: self.priority,
            ttl_ms: self.ttl_ms,
            ttr_ms: self.ttr_ms,
            attempts_max: self.attempts_max,
            fails_max: self.fails_max,
            backoff: self.backoff,
            keep_ms: self.keep_ms,
            fair_key: self.fair_key.as_ref().map(|key| Bytes::copy_from_slice(key)),
            tags: tags.chain([Bytes::from(tag_of(schedule))]).collect(),
            ..Submit::new(id, queue, Origin::Api, payload)
        }
    }
}

/// The tag that all jobs of a schedule have.
pub fn tag_of(schedule: &str) -> String {
    format!("schedule:{schedule}")
}

impl Schedule {
    /// Whether another schedule names the same times.
    pub fn has_times_of(&self, other: &Schedule) -> bool {
        let times = |it: &Schedule| {
            (it.expression.clone(), it.zone.clone(), it.jitter_ms, it.start_ms, it.end_ms)
        };
        times(self) == times(other)
    }
}
