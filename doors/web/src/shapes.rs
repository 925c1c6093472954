//! What pages read of the API's answers: of each only the fields that are shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use spindle_core::glob;
use spindle_http::{ConditionBody, RateBody};

use crate::past::Point;

/// A queue's name, as text or in base64.
#[derive(Deserialize, Default, Clone, PartialEq, Debug)]
pub(crate) struct QueueName {
    #[serde(default, alias = "name")]
    pub queue: Option<String>,
    #[serde(default, alias = "name_base64")]
    pub queue_base64: Option<String>,
}

impl QueueName {
    pub fn text(text: &str) -> QueueName {
        QueueName { queue: Some(text.to_owned()), queue_base64: None }
    }

    /// Its bytes. None: base64 that is none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.queue, &self.queue_base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(text)) => STANDARD.decode(text).ok(),
            (None, None) => Some(Vec::new()),
        }
    }

    /// For people.
    pub fn shown(&self) -> String {
        match &self.queue {
            Some(text) => text.clone(),
            None => String::from_utf8_lossy(&self.bytes().unwrap_or_default()).into_owned(),
        }
    }

    /// The field of a query or a form that says it, and what it says. Forms change the ends of lines
    /// and lose other control characters, so a name with such goes in base64.
    pub fn field(&self) -> (&'static str, String) {
        match (&self.queue, &self.queue_base64) {
            (None, Some(base64)) => ("queue_base64", base64.clone()),
            (Some(text), _) if text.contains(char::is_control) => {
                ("queue_base64", STANDARD.encode(text))
            }
            (text, _) => ("queue", text.clone().unwrap_or_default()),
        }
    }
}

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

/// Jobs and batches that are joined by what waits for what.
#[derive(Deserialize)]
pub(crate) struct JobFlow {
    pub nodes: Vec<FlowNode>,
    pub edges: Vec<FlowEdge>,
    /// There are more, or some that who asks may not see.
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

/// One of a flow is waited for by another.
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

#[derive(Deserialize)]
pub(crate) struct QueuePage {
    pub queues: Vec<Queue>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Queue {
    #[serde(flatten)]
    pub name: QueueName,
    pub paused: bool,
    pub jobs: Counts,
    #[serde(default)]
    pub deleted: u64,
    pub payload_bytes: u64,
    pub next_ready_age_ms: Option<u64>,
    pub oldest_ready_age_ms: Option<u64>,
    pub last_minute: Flow,
    pub waiting_leases: u64,
    pub last_asked_at: Option<String>,
    pub since_start: Option<Flow>,
    pub settings: Option<serde_json::Map<String, serde_json::Value>>,
    /// Its last hour, where a page has asked for it.
    #[serde(skip)]
    pub trend: Option<crate::pages::history::Trend>,
}

#[derive(Deserialize, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub scheduled: u64,
    pub ready: u64,
    pub leased: u64,
    pub parked: u64,
    pub blocked: u64,
    pub done: u64,
    pub dead: u64,
}

impl Counts {
    /// All statuses, in the order of a job's life.
    pub const STATUSES: [&'static str; 7] =
        ["scheduled", "ready", "leased", "parked", "blocked", "done", "dead"];

    /// Each status with its count.
    pub fn all(&self) -> [(&'static str, u64); 7] {
        let Counts { scheduled, ready, leased, parked, blocked, done, dead } = *self;
        let counts = [scheduled, ready, leased, parked, blocked, done, dead];
        std::array::from_fn(|at| (Counts::STATUSES[at], counts[at]))
    }
}

#[derive(Deserialize, Default, Clone, Copy)]
pub(crate) struct Flow {
    pub submitted: u64,
    pub leased: u64,
    pub completed: u64,
    pub requeued: u64,
    pub died: u64,
}

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
    pub unreadable: Option<String>,
    pub buckets_count: u64,
    pub remaining: u64,
    #[serde(default)]
    pub notes: Vec<String>,
    pub buckets: Vec<Bucket>,
}

impl Constraint {
    /// Whether jobs of a queue may fall under it, as far as the queue's name says.
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

#[derive(Deserialize)]
pub(crate) struct BulkAnswer {
    pub matched: u64,
    pub changed: u64,
    #[serde(default)]
    pub refused: std::collections::BTreeMap<String, u64>,
    pub deletion: Option<Deletion>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Purged {
    pub deleted: u64,
    pub deletion: Option<Deletion>,
}

/// How something deleted is brought back.
#[derive(Deserialize)]
pub(crate) struct Deletion {
    pub request: u64,
    pub until: String,
}

#[derive(Deserialize)]
pub(crate) struct Submitted {
    pub id: u64,
}
