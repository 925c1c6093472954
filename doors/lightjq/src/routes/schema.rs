//! Bodies as the OpenAPI document describes them. The `wire` module reads and writes the bytes; a
//! test compares these descriptions with it.

#![expect(dead_code, reason = "only described, never made: the wire reads and writes the bytes")]

use serde_json::Value;
use utoipa::ToSchema;

/// A job to be done.
#[derive(ToSchema)]
pub(crate) struct NewJob {
    /// The kind of job, 1 to 512 bytes; the queue it goes to.
    #[schema(example = "resize", min_length = 1, max_length = 512)]
    name: String,
    /// What the worker needs to know: a map.
    #[schema(value_type = Object, example = json!({"width": 320}))]
    argument: Value,
    /// Smaller goes first.
    #[schema(default = 0)]
    priority: Option<i32>,
    /// How often it is tried again after the first time.
    #[schema(default = 10, minimum = 0)]
    max_retry: Option<u64>,
    /// Whether somebody will come for the result.
    #[schema(default = false)]
    keep_result: Option<bool>,
    /// How long one attempt may take, in seconds; above 0, and at most 49 days.
    #[schema(default = 30, exclusive_minimum = 0, maximum = 4294967)]
    timeout: Option<f64>,
}

/// A job that was taken.
#[derive(ToSchema)]
pub(crate) struct Submitted {
    /// The job's number, as a string.
    #[schema(example = "42")]
    job_id: String,
}

/// A job as it stands.
#[derive(ToSchema)]
pub(crate) struct Job {
    /// `queued`, `running`, `retrying`, `error` or `done`.
    #[schema(example = "done", format = "job-status")]
    status: String,
    /// Who has it, or had it last.
    worker_id: Option<String>,
    /// The result, as long as it is kept; else null.
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
    /// The error of the last failure.
    #[schema(value_type = Option<Value>)]
    error: Option<Value>,
    /// The message of the last failure.
    message: Option<String>,
    /// How often it was begun again.
    retry_count: u32,
}

/// A worker to be registered.
#[derive(ToSchema)]
pub(crate) struct NewWorker {
    /// For people, 1 to 200 bytes.
    #[schema(example = "resizer", min_length = 1, max_length = 200)]
    name: String,
    /// Most jobs it has at once.
    #[schema(minimum = 1, maximum = 10000)]
    max_jobs: u32,
    /// Where jobs are pushed to, as `POST {url}/worker-job`: the caller's own address.
    #[schema(format = "worker-url", max_length = 2048)]
    url: Option<String>,
    /// The job names it takes, at most 1,024 of 64 KiB in all; none said: all that come in through LightJQ.
    #[schema(min_items = 1, max_items = 1024, min_length = 1, max_length = 512)]
    names: Option<Vec<String>>,
}

/// A worker that was registered.
#[derive(ToSchema)]
pub(crate) struct Registered {
    /// What the worker calls itself from now on.
    worker_id: String,
}

/// A job for a worker.
#[derive(ToSchema)]
pub(crate) struct Order {
    /// The job's number, as a string.
    id: String,
    /// The same.
    job_id: String,
    /// The kind of job.
    name: String,
    /// What the pusher said; bytes where the job came in through a door that has only bytes.
    #[schema(value_type = Value)]
    argument: Value,
    /// How long it may take, in seconds.
    timeout: Option<f64>,
}

/// How an attempt went.
#[derive(ToSchema)]
pub(crate) struct Done {
    /// Which job.
    job_id: String,
    /// `success` or `failure`.
    #[schema(example = "success", format = "outcome")]
    r#type: String,
    /// When, in ISO 8601; kept as it comes.
    #[schema(max_length = 64)]
    finished_at: Option<String>,
    /// Of a success: any value.
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
    /// Of a failure: `timeout` or `other`.
    #[schema(default = "other", format = "failure-reason")]
    reason: Option<String>,
    /// Of a failure: whether it may be tried again.
    #[schema(default = true)]
    should_retry: Option<bool>,
    /// Of a failure: for people, at most 64 KiB.
    #[schema(max_length = 65_536)]
    message: Option<String>,
    /// Of a failure: any value, at most 64 KiB.
    #[schema(value_type = Option<Value>)]
    error: Option<Value>,
}
