//! A job on its way to the server.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::batch::Batch;
use crate::content::{Content, ContentType};
use crate::job::{Job, JobRef};

/// What the server's defaults allow: 5 failures and 25 attempts.
const ATTEMPTS_DEFAULT: u32 = 25;
const ATTEMPTS_PER_FAILURE: u32 = 5;

/// What happens when another unfinished job of the queue has the unique key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IfTaken {
    /// The submit is refused with the code `key_taken`.
    #[default]
    Reject,
    /// The submit gives that job.
    Existing,
    /// The new job takes its place.
    Replace,
}

/// What happens to a job when one that it waits for dies, or goes without having been done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDead {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It runs all the same.
    Run,
    /// It goes on waiting while the dead one can be retried.
    Wait,
}

/// A job or a batch that a job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum After {
    /// Its number.
    Number(u64),
    /// The [name](NewJob::named) of a job that is submitted with the same
    /// [`submit_many`](crate::Client::submit_many).
    Name(String),
}

impl From<u64> for After {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for After {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// The job must be known by its number: the server refuses its UUID or its handle here.
impl From<&Job> for After {
    fn from(job: &Job) -> Self {
        match job.id() {
            JobRef::Number(number) => Self::Number(*number),
            JobRef::Text(text) => Self::Name(text.clone()),
        }
    }
}

impl From<&Batch> for After {
    fn from(batch: &Batch) -> Self {
        Self::Number(batch.id())
    }
}

/// The wait after failure number n: `base` x `factor`^(n-1), at most `cap`, less a random share of
/// up to `jitter`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// 1 to 1000.
    pub factor: f64,
    /// The longest wait.
    pub cap: Duration,
    /// 0 to 1.
    pub jitter: f64,
}

impl Backoff {
    /// Always the same wait.
    #[must_use]
    pub fn every(wait: Duration) -> Self {
        Self { base: wait, factor: 1.0, cap: Duration::from_secs(3600), jitter: 0.0 }
    }

    /// Waits that begin with `base` and grow by `factor`, up to an hour.
    #[must_use]
    pub fn growing(base: Duration, factor: f64) -> Self {
        Self { factor, ..Self::every(base) }
    }
}

impl Serialize for Backoff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            base_ms: u64,
            factor: f64,
            cap_ms: u64,
            jitter: f64,
        }
        let (base_ms, cap_ms) = (millis(self.base), millis(self.cap));
        Fields { base_ms, factor: self.factor, cap_ms, jitter: self.jitter }.serialize(serializer)
    }
}

/// A job to submit. Fields left out take the queue's settings, or else the server's.
#[derive(Debug, Clone)]
pub struct NewJob {
    queue: String,
    payload: Content,
    priority: Option<i64>,
    run_at: Option<Timestamp>,
    fails_max: Option<u32>,
    attempts_max: Option<u32>,
    backoff: Option<Backoff>,
    ttr: Option<Duration>,
    ttl: Option<Duration>,
    keep: Option<Duration>,
    is_parked: bool,
    tags: Vec<String>,
    after: Vec<After>,
    on_dead: Option<OnDead>,
    batch: Option<u64>,
    fair_key: Option<String>,
    name: Option<String>,
    unique: Option<(String, IfTaken)>,
    traceparent: Option<String>,
    idempotency_key: Option<String>,
}

impl NewJob {
    /// A job whose payload is this value as JSON.
    ///
    /// # Errors
    /// The payload has no JSON.
    pub fn new(
        queue: impl Into<String>,
        payload: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::with_content(queue, Content::json(payload)?))
    }

    /// A job whose payload is bytes.
    pub fn with_bytes(queue: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self::with_content(queue, Content::Bytes(payload.into(), ContentType::Bytes))
    }

    /// A job with any payload.
    pub fn with_content(queue: impl Into<String>, payload: Content) -> Self {
        Self {
            queue: queue.into(),
            payload,
            priority: None,
            run_at: None,
            fails_max: None,
            attempts_max: None,
            backoff: None,
            ttr: None,
            ttl: None,
            keep: None,
            is_parked: false,
            tags: Vec::new(),
            after: Vec::new(),
            on_dead: None,
            batch: None,
            fair_key: None,
            name: None,
            unique: None,
            traceparent: None,
            idempotency_key: None,
        }
    }

    /// Higher goes first. Default 0.
    #[must_use]
    pub fn priority(self, priority: i64) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// Not before so long from now, by this machine's clock.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.run_at(crate::now().checked_add(delay).unwrap_or(Timestamp::MAX))
    }

    /// Not before this time.
    #[must_use]
    pub fn run_at(self, time: Timestamp) -> Self {
        Self { run_at: Some(time), ..self }
    }

    /// Failures after which the job is tried again. Default 4.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { fails_max: Some(retries.saturating_add(1)), ..self }
    }

    /// Most attempts, those of lost workers counted; 0 is no limit. Default 25, or five for each
    /// failure that [`retries`](Self::retries) allows.
    #[must_use]
    pub fn attempts_max(self, attempts: u32) -> Self {
        Self { attempts_max: Some(attempts), ..self }
    }

    /// The wait after a failure. Default 5 s, 15 s, 45 s and so on, up to an hour.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// How long a worker has the job before it must extend its lease, which workers do by
    /// themselves. Default 60 s.
    #[must_use]
    pub fn ttr(self, ttr: Duration) -> Self {
        Self { ttr: Some(ttr), ..self }
    }

    /// The job is deleted after this, whatever its status.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// How long the job is kept once it is done. Default an hour.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        Self { keep: Some(keep), ..self }
    }

    /// The job waits until it is released.
    #[must_use]
    pub fn parked(self) -> Self {
        Self { is_parked: true, ..self }
    }

    /// A word to find it by.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// It waits for these jobs and batches, besides those that were said before: up to 100. Their
    /// results are in the [context](crate::JobContext::result_of) of its task.
    #[must_use]
    pub fn after(mut self, before: impl IntoIterator<Item = impl Into<After>>) -> Self {
        self.after.extend(before.into_iter().map(Into::into));
        self
    }

    /// What happens when one of those that it waits for dies. Default: it is cancelled.
    #[must_use]
    pub fn on_dead(self, on_dead: OnDead) -> Self {
        Self { on_dead: Some(on_dead), ..self }
    }

    /// The open batch that it belongs to.
    #[must_use]
    pub fn batch(self, batch: &Batch) -> Self {
        Self { batch: Some(batch.id()), ..self }
    }

    /// Whose share of a fair queue it takes.
    #[must_use]
    pub fn fair_key(self, key: impl Into<String>) -> Self {
        Self { fair_key: Some(key.into()), ..self }
    }

    /// A name (`ref` in the API) by which other jobs of the same
    /// [`submit_many`](crate::Client::submit_many) may wait for it: 1 to 64 letters, digits, `-`, `_`
    /// and `.`.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// At most one unfinished job of the queue has this key.
    #[must_use]
    pub fn unique(self, key: impl Into<String>, if_taken: IfTaken) -> Self {
        Self { unique: Some((key.into(), if_taken)), ..self }
    }

    /// The trace that it is submitted in (W3C Trace Context).
    #[must_use]
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }

    /// However often a submit with this key is sent, it adds one job. Each submit has a random key if none
    /// is given, so that it can be repeated while the server is away.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }

    /// Whether the job may have been there before, if it is submitted once.
    pub(crate) fn may_exist(&self) -> bool {
        self.unique.is_some() || self.idempotency_key.is_some()
    }

    pub(crate) fn has_key(&self) -> bool {
        self.idempotency_key.is_some()
    }

    pub(crate) fn is_named(&self) -> bool {
        self.name.is_some()
    }

    pub(crate) fn trace(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// Without the default number of attempts, which would end a job before its retries are over.
    fn attempts(&self) -> Option<u32> {
        let needed = self.fails_max.unwrap_or_default().saturating_mul(ATTEMPTS_PER_FAILURE);
        self.attempts_max.or((needed > ATTEMPTS_DEFAULT).then_some(needed))
    }
}

impl Serialize for NewJob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let content = self.payload.fields();
        Fields {
            queue: &self.queue,
            payload: content.value,
            payload_base64: content.base64,
            payload_type: content.kind,
            priority: self.priority,
            run_at: self.run_at.map(|time| format!("{time:.3}")),
            fails_max: self.fails_max,
            attempts_max: self.attempts(),
            backoff: self.backoff,
            ttr_ms: self.ttr.map(millis),
            ttl_ms: self.ttl.map(millis),
            keep_ms: self.keep.map(millis),
            parked: self.is_parked,
            tags: &self.tags,
            after: &self.after,
            on_dead: self.on_dead,
            batch: self.batch,
            fair_key: self.fair_key.as_deref(),
            name: self.name.as_deref(),
            unique: self.unique.as_ref().map(|(key, mode)| Unique { key, mode: *mode }),
            idempotency_key: self.idempotency_key.as_deref(),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Unique<'a> {
    key: &'a str,
    mode: IfTaken,
}

/// A job as the server reads it.
#[derive(Serialize)]
struct Fields<'a> {
    queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_type: Option<ContentType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fails_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttr_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    parked: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[After]>::is_empty")]
    after: &'a [After],
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<OnDead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_key: Option<&'a str>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<Unique<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

/// Whole milliseconds, as the API counts.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
