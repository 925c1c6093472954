//! Workers, and jobd's master with its own.

use serde::Deserialize;

use super::queue::QueueName;

#[derive(Deserialize)]
pub(crate) struct WorkerPage {
    pub workers: Vec<Worker>,
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub partial: bool,
}

#[derive(Deserialize)]
pub(crate) struct Worker {
    pub name: String,
    pub door: String,
    pub connection: Option<u64>,
    pub seen_at: Option<String>,
    pub queues: Vec<String>,
    #[serde(default)]
    pub queues_base64: Vec<String>,
    pub queues_count: usize,
    pub waiting: u32,
    pub jobs: Vec<Held>,
}

#[derive(Deserialize)]
pub(crate) struct Held {
    pub id: u64,
    #[serde(flatten)]
    pub queue: QueueName,
    pub started_at: String,
    pub deadline_at: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Jobd {
    pub address: String,
    pub workers: Vec<JobdWorker>,
    pub unserved: Vec<String>,
    pub unserved_count: u64,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct JobdWorker {
    pub id: u64,
    pub name: String,
    pub address: String,
    pub registered_at: String,
    pub answers: bool,
    pub problem: Option<String>,
    pub reported_at: Option<String>,
    pub targets: Vec<JobdTarget>,
    pub targets_count: usize,
    pub undecided: Option<u64>,
    pub table_trouble: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct JobdTarget {
    pub name: String,
    pub paused: Option<bool>,
    pub concurrency: Option<u64>,
    pub jobs: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct JobdChanged {
    pub asked: u64,
    pub done: u64,
    pub failed: Vec<JobdFailed>,
}

#[derive(Deserialize)]
pub(crate) struct JobdFailed {
    pub name: String,
    pub detail: String,
}
