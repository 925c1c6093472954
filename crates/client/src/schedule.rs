//! Schedules: jobs that are submitted by the clock.

use std::time::Duration;

use futures_util::TryStreamExt;
use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::{Client, How, encoded};
use crate::error::CallError;
use crate::job::Job;
use crate::new_job::{NewJob, millis};
use crate::transport::Request;

/// A schedule to put. The server's page about schedules says what expressions there are.
#[derive(Debug, Clone, Serialize)]
pub struct NewSchedule {
    expression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    job: NewJob,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_ms: Option<u64>,
    paused: bool,
}

impl NewSchedule {
    /// Submits such a job at each time of an expression: `0 9 * * MON-FRI`, `@daily`, `every 90s`.
    pub fn new(expression: impl Into<String>, job: NewJob) -> Self {
        Self {
            expression: expression.into(),
            zone: None,
            job,
            overlap: None,
            missed: None,
            missed_max: None,
            start_at: None,
            end_at: None,
            jitter_ms: None,
            paused: false,
        }
    }

    /// The time zone that the expression speaks of: `Europe/Berlin`. Default UTC.
    #[must_use]
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// What happens while its last job is unfinished: `allow`, `skip` (the default), `queue_one` or
    /// `replace`.
    #[must_use]
    pub fn overlap(self, overlap: impl Into<String>) -> Self {
        Self { overlap: Some(overlap.into()), ..self }
    }

    /// What happens to missed times: `skip` (the default), `once` or `all`.
    #[must_use]
    pub fn missed(self, missed: impl Into<String>) -> Self {
        Self { missed: Some(missed.into()), ..self }
    }

    /// With `all`: how many missed times in a row are made up, 1 to 1,000. Default 100.
    #[must_use]
    pub fn missed_max(self, times: u32) -> Self {
        Self { missed_max: Some(times), ..self }
    }

    /// No time before this.
    #[must_use]
    pub fn start_at(self, time: Timestamp) -> Self {
        Self { start_at: Some(format!("{time:.3}")), ..self }
    }

    /// No time after this.
    #[must_use]
    pub fn end_at(self, time: Timestamp) -> Self {
        Self { end_at: Some(format!("{time:.3}")), ..self }
    }

    /// It fires up to this much later than its times, up to an hour.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter_ms: Some(millis(jitter)), ..self }
    }

    /// It does not fire until it is resumed.
    #[must_use]
    pub fn paused(self) -> Self {
        Self { paused: true, ..self }
    }
}

/// A schedule as the server describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// When it fires.
    pub expression: String,
    /// Whether it does not.
    pub paused: bool,
    /// The times that it fires for next, without jitter (RFC 3339).
    pub next_times: Vec<String>,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Run {
    job: u64,
}

impl Client {
    /// All schedules, by name.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub async fn schedules(&self) -> Result<Vec<Schedule>, CallError> {
        self.list("/api/v1/schedules?limit=512".to_owned(), "schedules").try_collect().await
    }

    /// A schedule.
    ///
    /// # Errors
    /// There is no such schedule, or no answer.
    pub async fn schedule(&self, name: &str) -> Result<Schedule, CallError> {
        self.ask(Request::get(&path(name, "")), How::REPEATABLE).await
    }

    /// Makes a schedule, or changes it.
    ///
    /// # Errors
    /// The server refuses it, or there is no answer.
    pub async fn put_schedule(
        &self,
        name: &str,
        schedule: &NewSchedule,
    ) -> Result<Schedule, CallError> {
        let path = path(name, "");
        self.ask(Request::of(Method::PUT, &path).with(schedule), How::REPEATABLE).await
    }

    /// The schedule that a put would make, with its next times. Nothing changes.
    ///
    /// # Errors
    /// The server would refuse it, or there is no answer.
    pub async fn preview_schedule(
        &self,
        name: &str,
        schedule: &NewSchedule,
    ) -> Result<Schedule, CallError> {
        let path = path(name, "?dry_run=true");
        self.ask(Request::of(Method::PUT, &path).with(schedule), How::REPEATABLE).await
    }

    /// Removes a schedule. False if there is no such schedule.
    ///
    /// # Errors
    /// There is no answer, or the token is not for this.
    pub async fn delete_schedule(&self, name: &str) -> Result<bool, CallError> {
        let path = path(name, "");
        match self.call(Request::of(Method::DELETE, &path), How::REPEATABLE).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused(refusal)) if refusal.is_not_found() => Ok(refusal.is_repeated),
            Err(error) => Err(error),
        }
    }

    /// Pauses a schedule: its times are skipped until it is resumed.
    ///
    /// # Errors
    /// There is no such schedule, or no answer.
    pub async fn pause_schedule(&self, name: &str) -> Result<Schedule, CallError> {
        self.ask(Request::post(&path(name, "/pause")), How::REPEATABLE).await
    }

    /// Lets a schedule fire again.
    ///
    /// # Errors
    /// There is no such schedule, or no answer.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, CallError> {
        self.ask(Request::post(&path(name, "/resume")), How::REPEATABLE).await
    }

    /// Submits a schedule's job now, beside its times. It is not repeated when its answer is lost.
    ///
    /// # Errors
    /// There is no such schedule, or the job is refused.
    pub async fn run_schedule(&self, name: &str) -> Result<Job, CallError> {
        let run: Run = self.ask(Request::post(&path(name, "/run")), How::UNLESS_RECEIVED).await?;
        Ok(self.job(run.job))
    }
}

fn path(name: &str, action: &str) -> String {
    format!("/api/v1/schedules/{}{action}", encoded(name))
}
