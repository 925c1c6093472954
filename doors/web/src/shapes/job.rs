//! Jobs, their attempts, flows and bytes.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::done::Deletion;
use super::queue::QueueName;

#[derive(Deserialize)]
pub(crate) struct JobPage {
    pub jobs: Vec<Job>,
    pub next_cursor: Option<String>,
    #[serde(default)]
    pub partial: bool,
    pub total: Option<u64>,
    #[serde(default)]
    pub total_is_at_least: bool,
}

#[derive(Deserialize)]
pub(crate) struct Job {
    pub id: u64,
    pub uuid: String,
    pub handle: String,
    #[serde(flatten)]
    pub queue: QueueName,
    pub status: String,
    pub origin: String,
    pub priority: i64,
    pub created_at: String,
    pub run_at: Option<String>,
    pub finished_at: Option<String>,
    pub expires_at: Option<String>,
    pub kept_until: Option<String>,
    pub deletion: Option<Deletion>,
    pub ttr_ms: Option<u64>,
    pub ttl_ms: Option<u64>,
    pub keep_ms: Option<u64>,
    pub attempts: u32,
    pub attempts_max: u32,
    pub fails: u32,
    pub fails_max: u32,
    #[serde(default)]
    pub tags: Vec<String>,
    /// The jobs and batches that it waits for or waited for.
    #[serde(default)]
    pub after: Vec<Before>,
    /// What happens to it when one of them dies.
    pub on_dead: Option<String>,
    /// The batch that it belongs to.
    pub batch: Option<u64>,
    pub fair_key: Option<String>,
    pub unique_key: Option<String>,
    pub traceparent: Option<String>,
    #[serde(default)]
    pub foreground: bool,
    pub lease: Option<Lease>,
    pub progress: Option<Progress>,
    pub fingerprint: Option<String>,
    pub payload_type: String,
    pub payload_bytes: u64,
    #[serde(default)]
    pub payload_damaged: bool,
    pub result: Option<JobResult>,
    #[serde(default)]
    pub history: Vec<Attempt>,
}

/// A job or a batch that a job waits for or waited for, as it is now; it may be `gone`.
#[derive(Deserialize)]
pub(crate) struct Before {
    pub id: u64,
    #[serde(default)]
    pub is_batch: bool,
    pub status: String,
}

/// Jobs and batches that are connected because they wait for each other.
#[derive(Deserialize)]
pub(crate) struct JobFlow {
    pub nodes: Vec<FlowNode>,
    pub edges: Vec<FlowEdge>,
    /// There are more, or some that the visitor may not see.
    pub is_partial: bool,
}

/// A job or a batch of a flow; one that is `gone` has no queue, and is not known to be a batch.
#[derive(Deserialize)]
pub(crate) struct FlowNode {
    pub id: u64,
    #[serde(default)]
    pub is_batch: bool,
    pub status: String,
    #[serde(flatten)]
    pub queue: QueueName,
}

/// An edge of a flow: `to` waits for `from`.
#[derive(Deserialize)]
pub(crate) struct FlowEdge {
    pub from: u64,
    pub to: u64,
}

/// The bytes of a job, read apart from it: raw JSON cannot be read out of a flattened object.
#[derive(Deserialize, Default)]
pub(crate) struct JobBytes {
    pub payload: Option<Box<RawValue>>,
    pub payload_base64: Option<String>,
    pub payload_preview: Option<String>,
    pub payload_preview_base64: Option<String>,
    pub result: Option<ResultBytes>,
}

/// What a job's workers wrote, or some of it.
#[derive(Deserialize, Default)]
pub(crate) struct Output {
    pub pieces: Vec<OutputPiece>,
    /// How many bytes there are up to here.
    pub next: u64,
}

#[derive(Deserialize)]
pub(crate) struct OutputPiece {
    pub offset: u64,
    pub attempt: u32,
    pub text: String,
}

#[derive(Deserialize)]
pub(crate) struct ResultBytes {
    pub value: Option<Box<RawValue>>,
    pub base64: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Lease {
    pub attempt: u32,
    pub door: String,
    #[serde(default)]
    pub worker: String,
    pub started_at: String,
    pub deadline_at: Option<String>,
}

/// How far a worker says it is.
#[derive(Deserialize)]
pub(crate) struct Progress {
    pub numerator: String,
    pub denominator: String,
    pub remaining_s: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct JobResult {
    pub success: bool,
    #[serde(rename = "type")]
    pub kind: String,
    pub bytes: u64,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub code: String,
}

#[derive(Deserialize)]
pub(crate) struct Attempt {
    pub attempt: u32,
    pub started_at: String,
    pub ended_at: String,
    pub outcome: String,
    pub door: String,
    #[serde(default)]
    pub worker: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub code: String,
}

#[derive(Deserialize)]
pub(crate) struct Why {
    pub runnable: bool,
    pub reasons: Vec<Reason>,
}

#[derive(Deserialize)]
pub(crate) struct Reason {
    pub code: String,
    pub text: String,
    pub next: Option<String>,
    pub until: Option<String>,
    pub constraint: Option<String>,
}
