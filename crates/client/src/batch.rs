//! Batches: jobs that belong together.

use std::time::Duration;

use futures_util::stream::BoxStream;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::client::{Client, How};
use crate::error::CallError;
use crate::new_job::millis;
use crate::transport::Request;

/// A batch to open.
#[derive(Debug, Clone, Serialize)]
pub struct NewBatch {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
}

impl NewBatch {
    /// A batch that clients may see and change if they may do so with this queue. Its jobs may be of any
    /// queue.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), name: None, key: None, parent: None, keep_ms: None }
    }

    /// A name for people.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// All openings with this key give the same batch, as long as it is kept. Each opening has a random
    /// key if none is given, so that it can be repeated while the server is away.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The open batch that it belongs to, where it counts as one job.
    #[must_use]
    pub fn parent(self, parent: &Batch) -> Self {
        Self { parent: Some(parent.id), ..self }
    }

    /// How long it is kept once it has ended. Default a day.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        Self { keep_ms: Some(millis(keep)), ..self }
    }
}

/// A batch as the server describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchInfo {
    /// Its number, from the same sequence as those of jobs.
    pub id: u64,
    /// `open`, `sealed` while jobs of it are unfinished, and then `done`, or `ended` if not all of
    /// them are done.
    pub status: String,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// How its jobs stand.
    pub jobs: BatchJobs,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl BatchInfo {
    /// Whether it is sealed and all of its jobs have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status == "done" || self.status == "ended"
    }
}

/// How many jobs of a batch have which state. A batch in it counts as one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct BatchJobs {
    /// All that were added.
    pub total: u64,
    /// Neither done nor dead.
    pub unfinished: u64,
    /// Done, whether they are kept or not.
    pub done: u64,
    /// Dead, and kept.
    pub dead: u64,
    /// Gone without having been done.
    pub gone: u64,
}

/// A batch that was opened, or asked for by its number. Jobs are added by
/// [`NewJob::batch`](crate::NewJob::batch), and wait for it by [`NewJob::after`](crate::NewJob::after).
#[derive(Debug, Clone)]
pub struct Batch {
    client: Client,
    id: u64,
    is_existing: bool,
}

/// What the cancelling of a batch did.
#[derive(Deserialize)]
struct Cancelled {
    is_partial: bool,
}

impl Client {
    /// Opens a batch.
    ///
    /// # Errors
    /// The server refuses it, or there is no answer.
    pub async fn open_batch(&self, batch: &NewBatch) -> Result<Batch, CallError> {
        let key = batch.key.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        let keyed = NewBatch { key: Some(key), ..batch.clone() };
        let request = Request::post("/api/v1/batches").with(&keyed);
        let answer = self.call(request, How::REPEATABLE).await?;
        let info: BatchInfo = serde_json::from_slice(&answer.bytes).map_err(CallError::Strange)?;
        // The server knows a random key only if this very opening was sent twice.
        let is_existing = answer.status == StatusCode::OK && batch.key.is_some();
        Ok(Batch { client: self.clone(), id: info.id, is_existing })
    }

    /// A batch by its number. Nothing is sent.
    #[must_use]
    pub fn batch(&self, id: u64) -> Batch {
        Batch { client: self.clone(), id, is_existing: true }
    }

    /// Lists batches, the newest first, page by page.
    #[must_use]
    pub fn batches(&self) -> BoxStream<'static, Result<BatchInfo, CallError>> {
        self.list("/api/v1/batches?limit=512".to_owned(), "batches")
    }
}

impl Batch {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it was there before: its key was used before.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        self.is_existing
    }

    /// The batch as it is now.
    ///
    /// # Errors
    /// There is no such batch (any more), or no answer.
    pub async fn info(&self) -> Result<BatchInfo, CallError> {
        self.client.ask(Request::get(&self.path("")), How::REPEATABLE).await
    }

    /// Lets no more jobs in: it ends when all that are in it have ended.
    ///
    /// # Errors
    /// It is sealed already (`batch_sealed`), or there is no answer.
    pub async fn seal(&self) -> Result<BatchInfo, CallError> {
        let sealed = self.client.ask(Request::post(&self.path("/seal")), How::REPEATABLE).await;
        match sealed {
            // The first of several requests was received, and its answer was lost.
            Err(CallError::Refused(refusal))
                if refusal.code() == "batch_sealed" && refusal.is_repeated =>
            {
                self.info().await
            }
            other => other,
        }
    }

    /// Seals it and ends its unfinished jobs as dead, those of batches in it too.
    ///
    /// # Errors
    /// There is no such batch, or no answer: then some of the jobs may be cancelled, and the same
    /// call goes on.
    pub async fn cancel(&self) -> Result<(), CallError> {
        loop {
            let path = self.path("/cancel");
            let done: Cancelled = self.client.ask(Request::post(&path), How::REPEATABLE).await?;
            if !done.is_partial {
                return Ok(());
            }
        }
    }

    /// Waits until it has ended, at most so long: the batch as it is then.
    ///
    /// # Errors
    /// There is no such batch (any more), or no answer.
    pub async fn ended(&self, within: Duration) -> Result<BatchInfo, CallError> {
        self.client.ended(&self.path("/wait"), within, BatchInfo::has_ended).await
    }

    fn path(&self, action: &str) -> String {
        format!("/api/v1/batches/{}{action}", self.id)
    }
}
