//! A job at the server.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::client::{Client, How, encoded};
use crate::content::{Content, ContentType};
use crate::error::CallError;
use crate::transport::Request;

/// What names a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRef {
    /// Its number.
    Number(u64),
    /// Its UUID or its Gearman handle.
    Text(String),
}

impl From<u64> for JobRef {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for JobRef {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl std::fmt::Display for JobRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// A job as the server describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct JobInfo {
    /// Its number.
    pub id: u64,
    /// Its queue; none if the name is no UTF-8.
    pub queue: Option<String>,
    /// `scheduled`, `ready`, `leased`, `parked`, `blocked`, `done` or `dead`.
    pub status: String,
    /// How often it was leased.
    #[serde(default)]
    pub attempts: u32,
    /// How often it failed.
    #[serde(default)]
    pub fails: u32,
    /// How it ended, if it has.
    pub result: Option<ResultInfo>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl JobInfo {
    /// Whether it is done or dead.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.status == "done" || self.status == "dead"
    }

    /// The result of a job that is done.
    pub(crate) fn into_result<T: DeserializeOwned>(self) -> Result<T, ResultError> {
        if !self.is_finished() {
            return Err(ResultError::Unfinished(Box::new(self)));
        }
        let Some(result) = self.result.as_ref().filter(|_| self.status == "done") else {
            return Err(ResultError::Dead(Box::new(self)));
        };
        let content =
            Content::received(result.kind, result.value.clone(), result.base64.as_deref());
        content.read().map_err(|cause| ResultError::Unreadable { job: self.id, cause })
    }
}

/// How the last attempt ended that had an outcome.
#[derive(Debug, Clone, Deserialize)]
pub struct ResultInfo {
    /// Whether the job is done.
    pub success: bool,
    /// What the result is.
    #[serde(rename = "type", default)]
    pub kind: ContentType,
    /// The result, if it is JSON.
    #[serde(default, deserialize_with = "present")]
    pub value: Option<Box<RawValue>>,
    /// The result, if it is bytes.
    pub base64: Option<String>,
    /// Why it failed, for people.
    #[serde(default)]
    pub message: String,
    /// How it failed, for programs.
    #[serde(default)]
    pub code: String,
}

/// A value that is there, and be it `null`.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Why somebody who waits for a job has no result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The job is dead.
    #[error("job {} is dead: {}", .0.id, why(.0))]
    Dead(Box<JobInfo>),
    /// It was neither done nor dead in time.
    #[error("job {} is still {}", .0.id, .0.status)]
    Unfinished(Box<JobInfo>),
    /// The result is not of the type that was asked for.
    #[error("the result of job {job}: {cause}")]
    Unreadable {
        /// The job's number.
        job: u64,
        /// What is wrong with it.
        #[source]
        cause: serde_json::Error,
    },
    /// There is no answer, or a refusal.
    #[error(transparent)]
    Call(#[from] CallError),
}

fn why(job: &JobInfo) -> &str {
    let Some(result) = &job.result else { return "it failed" };
    [result.message.as_str(), &result.code]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or("it failed")
}

/// A job that was submitted, or asked for by its name.
#[derive(Debug, Clone)]
pub struct Job {
    client: Client,
    id: JobRef,
    is_existing: bool,
}

impl Job {
    pub(crate) fn new(client: Client, id: JobRef, is_existing: bool) -> Self {
        Self { client, id, is_existing }
    }

    /// Its number, or the name it was asked for by.
    #[must_use]
    pub fn id(&self) -> &JobRef {
        &self.id
    }

    /// Whether it was there before: another job had the unique key, or the idempotency key was used
    /// before.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        self.is_existing
    }

    /// The job as it is now.
    ///
    /// # Errors
    /// There is no such job, or no answer.
    pub async fn info(&self) -> Result<JobInfo, CallError> {
        self.client.ask(Request::get(&self.path("")), How::REPEATABLE).await
    }

    /// Waits until it is done or dead, at most so long: the job as it is then.
    ///
    /// # Errors
    /// There is no such job, or no answer.
    pub async fn ended(&self, within: Duration) -> Result<JobInfo, CallError> {
        self.client.ended(&self.path("/wait"), within, JobInfo::is_finished).await
    }

    /// Waits for its result, at most so long.
    ///
    /// # Errors
    /// The job is dead, or not finished in time, or its result is of another type.
    pub async fn result<T: DeserializeOwned>(&self, within: Duration) -> Result<T, ResultError> {
        self.ended(within).await?.into_result()
    }

    /// Ends it as dead. Its worker hears of it at its next heartbeat.
    ///
    /// # Errors
    /// It is finished already, or there is no answer.
    pub async fn cancel(&self) -> Result<JobInfo, CallError> {
        match self.act("/cancel", How::REPEATABLE).await {
            // The first of several requests was received, and its answer was lost.
            Err(CallError::Refused(refusal)) if refusal.status == 409 && refusal.is_repeated => {
                self.info().await
            }
            other => other,
        }
    }

    /// Lets a done or dead job run again, with all its tries. It is not repeated when its answer is
    /// lost: the job may have run in between.
    ///
    /// # Errors
    /// It is not finished, or there is no answer.
    pub async fn retry(&self) -> Result<JobInfo, CallError> {
        self.act("/retry", How::UNLESS_RECEIVED).await
    }

    /// Keeps a waiting job from being leased.
    ///
    /// # Errors
    /// It does not wait, or there is no answer.
    pub async fn park(&self) -> Result<JobInfo, CallError> {
        self.act("/park", How::REPEATABLE).await
    }

    /// Lets a parked job run when its time has come.
    ///
    /// # Errors
    /// It is not parked, or there is no answer.
    pub async fn release(&self) -> Result<JobInfo, CallError> {
        self.act("/release", How::REPEATABLE).await
    }

    /// Deletes it, whatever its status. False if there is no such job.
    ///
    /// # Errors
    /// There is no answer, or the token is not for this.
    pub async fn delete(&self) -> Result<bool, CallError> {
        let path = self.path("");
        let request = Request::of(hyper::Method::DELETE, &path);
        match self.client.call(request, How::REPEATABLE).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused(refusal)) if refusal.code() == "job_not_found" => {
                Ok(refusal.is_repeated)
            }
            Err(error) => Err(error),
        }
    }

    async fn act(&self, action: &str, how: How<'_>) -> Result<JobInfo, CallError> {
        self.client.ask(Request::post(&self.path(action)), how).await
    }

    fn path(&self, action: &str) -> String {
        format!("/api/v1/jobs/{}{action}", encoded(&self.id.to_string()))
    }
}
