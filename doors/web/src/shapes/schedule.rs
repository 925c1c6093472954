//! Schedules.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::queue::QueueName;

#[derive(Deserialize)]
pub(crate) struct SchedulePage {
    pub schedules: Vec<Schedule>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Schedule {
    pub name: String,
    pub expression: String,
    pub zone: String,
    /// A [`ScheduledJob`] with its [`JobBytes`].
    pub job: Box<RawValue>,
    pub overlap: String,
    pub missed: String,
    pub missed_max: Option<u32>,
    pub jitter_ms: u64,
    pub start_at: Option<String>,
    pub end_at: Option<String>,
    pub paused: bool,
    pub next_times: Vec<String>,
    pub fires_at: Option<String>,
    pub last: Option<Occurrence>,
    pub last_job: Option<u64>,
    pub is_running: bool,
    pub pending_due_at: Option<String>,
    pub submitted: u64,
}

/// A time of a schedule, and what came of it.
#[derive(Deserialize)]
pub(crate) struct Occurrence {
    pub due_at: String,
    pub at: String,
    pub outcome: String,
    #[serde(default)]
    pub reason: String,
}

#[derive(Deserialize)]
pub(crate) struct ScheduledJob {
    #[serde(flatten)]
    pub queue: QueueName,
    pub priority: i64,
    pub payload_type: Option<String>,
    pub ttr_ms: Option<u64>,
    pub ttl_ms: Option<u64>,
    pub keep_ms: Option<u64>,
    pub attempts_max: Option<u32>,
    pub fails_max: Option<u32>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub fair_key: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ScheduleRun {
    pub job: u64,
}
