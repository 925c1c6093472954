//! The server itself, and what people did with it.

use serde::Deserialize;

use super::queue::QueueName;
use crate::past::Point;

#[derive(Deserialize)]
pub(crate) struct AuditPage {
    pub entries: Vec<AuditEntry>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct AuditEntry {
    pub at: String,
    pub who: Who,
    pub action: String,
    pub job: Option<u64>,
    #[serde(flatten)]
    pub queue: QueueName,
    pub constraint: Option<String>,
    pub schedule: Option<String>,
    #[serde(default)]
    pub detail: String,
    pub count: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct Who {
    pub kind: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub address: String,
    pub door: String,
}

#[derive(Deserialize, Clone)]
pub(crate) struct Server {
    pub version: String,
    pub started_at: String,
    pub status: String,
    pub disk_full: bool,
    pub log_cannot_grow: bool,
    pub clock_held: bool,
    pub doors: Vec<Door>,
    pub jobs: u64,
    pub jobs_finished: u64,
    pub queues: u64,
    pub waits: u64,
    pub log_bytes: u64,
    pub budgets: Vec<Budget>,
    pub limits: Vec<Limit>,
    pub last_minute: Point,
}

/// A limit, and how much of it is used.
#[derive(Deserialize, Clone)]
pub(crate) struct Limit {
    pub name: String,
    pub used: u64,
    pub max: u64,
}

#[derive(Deserialize, Clone)]
pub(crate) struct Budget {
    pub name: String,
    pub bytes: u64,
    pub bytes_max: u64,
    pub closed: u64,
}

#[derive(Deserialize, Clone)]
pub(crate) struct Door {
    pub name: String,
    pub address: String,
    pub connections: Option<u64>,
    pub refused: u64,
}
