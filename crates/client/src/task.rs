//! Tasks: functions that do jobs, and what they know of them.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::{Client, How};
use crate::content::Content;
use crate::error::CallError;
use crate::job::{JobInfo, ResultError};
use crate::lease::Lease;

/// How much output the server takes at once.
const OUTPUT_BYTES_MAX: usize = 65_536;

/// Why an attempt failed. Any error becomes a failure with `?`; the job is tried again as long as it has
/// tries left.
#[derive(Debug, Clone)]
pub struct Failure {
    /// For people, up to 4,096 characters.
    pub message: String,
    /// For people who look for the cause, up to 4,096 characters: an error's chain of causes.
    pub detail: String,
    /// For programs, up to 64 characters.
    pub code: String,
    /// Whether the job may be tried again.
    pub may_retry: bool,
}

impl Failure {
    /// A failure with these words.
    pub fn new(message: impl Display) -> Self {
        let (detail, code) = (String::new(), "failed".to_owned());
        Self { message: message.to_string(), detail, code, may_retry: true }
    }

    /// With a code for programs.
    #[must_use]
    pub fn code(self, code: impl Into<String>) -> Self {
        Self { code: code.into(), ..self }
    }

    /// The job must not be tried again: it is dead at once.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { may_retry: false, ..self }
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut detail = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            detail = format!("{detail}\ncaused by: {inner}");
            cause = inner.source();
        }
        Self { detail, ..Self::new(error) }
    }
}

/// A job or a batch that the job of a task waited for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Before {
    /// Its number.
    pub id: u64,
    /// Whether it is a batch.
    #[serde(default)]
    pub is_batch: bool,
    /// Where it stood when the task began; `gone` if it was not kept any more.
    pub status: String,
}

/// What a task knows of the job that it does.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// The job's number.
    pub id: u64,
    /// Its queue.
    pub queue: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The jobs and batches that it waited for, by their numbers.
    pub after: Vec<Before>,
    /// The trace that the job was submitted in (W3C Trace Context), if it was.
    pub traceparent: Option<String>,
    /// The worker's client, to submit further jobs.
    pub client: Client,
    pub(crate) lease: Arc<Lease>,
}

impl JobContext {
    /// The result of a job that this one waited for, whatever its queue is.
    ///
    /// # Errors
    /// That job is dead, or not kept any more, or its result is of another type; or there is no
    /// answer, or this one did not wait for it.
    pub async fn result_of<T: DeserializeOwned>(&self, job: u64) -> Result<T, ResultError> {
        let job: JobInfo = self.lease.get(&format!("after/{job}")).await?;
        job.into_result()
    }

    /// The results of all jobs that this one waited for, by their numbers: in the order in which they
    /// were submitted. Batches have none.
    ///
    /// # Errors
    /// One of them has no result to give: see [`result_of`](Self::result_of).
    pub async fn results_before<T: DeserializeOwned>(&self) -> Result<Vec<T>, ResultError> {
        let mut results = Vec::with_capacity(self.after.len());
        for job in self.after.iter().filter(|before| !before.is_batch) {
            results.push(self.result_of(job.id).await?);
        }
        Ok(results)
    }

    /// Says how far the task is: `numerator` of `denominator`. People see it until the attempt ends.
    /// It is sent once, and the server keeps it in memory only.
    ///
    /// # Errors
    /// There is no answer, or a refusal. If the server says that the job is no longer this worker's,
    /// the task is dropped as well.
    pub async fn report_progress(&self, numerator: u64, denominator: u64) -> Result<(), CallError> {
        let body = json!({ "numerator": numerator, "denominator": denominator });
        let how = How { retry_for: Some(Duration::ZERO), ..How::REPEATABLE };
        self.lease.post("progress", &body, how).await
    }

    /// Appends a text to the job's output, which people follow with `spindle logs`. Lines end with a
    /// line feed, which is not added. The server keeps the newest 256 KiB of a job, in memory only.
    ///
    /// A long text goes in several requests. Each is repeated while the server is away or busy,
    /// unless it may have been received.
    ///
    /// # Errors
    /// There is no answer, or a refusal. If the server says that the job is no longer this worker's,
    /// the task is dropped as well.
    pub async fn write_output(&self, text: &str) -> Result<(), CallError> {
        for piece in pieces(text, OUTPUT_BYTES_MAX) {
            self.lease.post("output", &json!({ "text": piece }), How::UNLESS_RECEIVED).await?;
        }
        Ok(())
    }
}

/// Cuts a text between characters.
fn pieces(text: &str, bytes_max: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, left) = rest.split_at(rest.floor_char_boundary(bytes_max));
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

type Run =
    dyn Fn(Content, JobContext) -> BoxFuture<'static, Result<Content, Failure>> + Send + Sync;

/// A queue, and the function that does its jobs.
#[derive(Clone)]
pub(crate) struct Task {
    pub queue: String,
    pub run: Arc<Run>,
}

impl Task {
    pub fn new<P, R, F, Fut>(queue: String, function: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        F: Fn(P, JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        let run = move |content: Content, job: JobContext| -> BoxFuture<'static, _> {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let payload =
                    content.read().map_err(|error| unusable("unreadable_payload", error))?;
                let result = function(payload, job).await?;
                Content::json(&result).map_err(|error| unusable("unwritable_result", error))
            })
        };
        Self { queue, run: Arc::new(run) }
    }
}

/// Another try would give the same.
fn unusable(code: &str, error: serde_json::Error) -> Failure {
    Failure::from(error).code(code).for_good()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let cut = |text| pieces(text, 4).collect::<Vec<_>>();
        assert_eq!(cut("abcdefgh"), ["abcd", "efgh"]);
        assert_eq!(cut("aäöü"), ["aä", "öü"]);
        assert_eq!(cut(""), Vec::<&str>::new());
    }
}
