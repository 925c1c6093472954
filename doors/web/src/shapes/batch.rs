//! Batches.

use serde::Deserialize;

use super::queue::QueueName;

#[derive(Deserialize)]
pub(crate) struct BatchPage {
    pub batches: Vec<Batch>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Batch {
    pub id: u64,
    pub status: String,
    #[serde(flatten)]
    pub queue: QueueName,
    #[serde(default)]
    pub name: String,
    pub key: Option<String>,
    pub parent: Option<u64>,
    pub jobs: BatchJobs,
    pub cancelled: bool,
    pub opened_at: String,
    pub sealed_at: Option<String>,
    pub ended_at: Option<String>,
    pub kept_until: Option<String>,
}

impl Batch {
    /// All statuses, in the order of a batch's life.
    pub const STATUSES: [&'static str; 4] = ["open", "sealed", "done", "ended"];
}

/// How many jobs of a batch stand how. A batch in it counts as one job.
#[derive(Deserialize)]
pub(crate) struct BatchJobs {
    pub total: u64,
    pub unfinished: u64,
    pub done: u64,
    pub dead: u64,
    pub gone: u64,
}

impl BatchJobs {
    /// How many stand how, and the word for it.
    pub fn all(&self) -> [(&'static str, u64); 4] {
        let BatchJobs { unfinished, done, dead, gone, .. } = *self;
        [("unfinished", unfinished), ("done", done), ("dead", dead), ("gone", gone)]
    }
}

/// What a request that cancels a batch has done.
#[derive(Deserialize)]
pub(crate) struct BatchCancelled {
    pub cancelled: u64,
    pub is_partial: bool,
}
