//! Constraints, and who waits for them.

use serde::Deserialize;
use spindle_core::glob;
use spindle_http::{ConditionBody, RateBody};

use super::queue::QueueName;

#[derive(Deserialize)]
pub(crate) struct ConstraintPage {
    pub constraints: Vec<Constraint>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Constraint {
    pub name: String,
    pub queue: Option<String>,
    pub queue_glob: Option<String>,
    #[serde(rename = "where", default)]
    pub conditions: Vec<ConditionBody>,
    pub per: Option<String>,
    pub rate: Option<RateBody>,
    pub running_max: Option<u64>,
    #[serde(default)]
    pub per_shard: bool,
    pub unreadable: Option<String>,
    pub buckets_count: u64,
    pub remaining: u64,
    #[serde(default)]
    pub notes: Vec<String>,
    pub buckets: Vec<Bucket>,
}

impl Constraint {
    /// Whether jobs of a queue may fall under it, as far as the queue's name tells.
    pub fn may_match(&self, queue: &QueueName) -> bool {
        let is_known = self.unreadable.is_none();
        match (&self.queue, &self.queue_glob) {
            (Some(name), _) => queue.queue.as_ref() == Some(name),
            (None, Some(glob)) => {
                queue.bytes().is_some_and(|name| glob::fits(glob.as_bytes(), &name))
            }
            (None, None) => is_known,
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Bucket {
    pub value_hash: Option<String>,
    pub running: u64,
    pub jobs: u64,
    pub tokens: Option<u64>,
    pub admits: bool,
    pub frees_at: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct HeldPage {
    pub queues: Vec<HeldQueue>,
    #[serde(default)]
    pub partial: bool,
}

/// A queue whose jobs wait for a constraint.
#[derive(Deserialize)]
pub(crate) struct HeldQueue {
    #[serde(flatten)]
    pub queue: QueueName,
    pub jobs: u64,
}
