//! A client of one server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::sleep;
use uuid::Uuid;

use crate::error::{BODY_BYTES_MAX, CallError, Problem, Refusal};
use crate::job::{Job, JobInfo, JobRef};
use crate::line::Line;
use crate::new_job::NewJob;
use crate::options::{ConfigError, Options, TokenSource};
use crate::pause::Pauses;
use crate::transport::{Answer, Request, Transport};

/// The server takes so many jobs in one request, and 16 MiB.
const BATCH_JOBS_MAX: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
const PAGE: usize = 500;
/// The longest wait of one request.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A client of one server. Clones share its connections: make one for a program.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    transport: Transport,
    token: TokenSource,
    retry_for: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0.transport.base().to_string()).finish()
    }
}

/// How a call is made.
pub(crate) struct How<'a> {
    /// Whether the request may be sent again when the server may have received it.
    pub is_repeatable: bool,
    /// How long it is repeated, if not as long as the client's option says.
    pub retry_for: Option<Duration>,
    /// What ends its wait.
    pub line: Option<&'a Line>,
}

impl How<'_> {
    /// Sent again while there is no answer.
    pub const REPEATABLE: Self = Self { is_repeatable: true, retry_for: None, line: None };
    /// Sent again only if the server has certainly not received it.
    pub const UNLESS_RECEIVED: Self = Self { is_repeatable: false, ..Self::REPEATABLE };
}

/// Which jobs to list. All that is given must match.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Those of this queue.
    pub queue: Option<String>,
    /// Those that have one of these statuses.
    pub statuses: Vec<String>,
    /// Those with this tag.
    pub tag: Option<String>,
    /// Those of the batch with this number.
    pub batch: Option<u64>,
    /// The newest first.
    pub newest_first: bool,
}

/// A queue as the server describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct QueueInfo {
    /// Its name; none if it is no UTF-8.
    pub name: Option<String>,
    /// Whether its jobs are not leased.
    pub paused: bool,
    /// How many jobs it has, by status.
    pub jobs: std::collections::BTreeMap<String, u64>,
    /// How many leases wait for a job.
    #[serde(default)]
    pub waiting_leases: u64,
    /// Everything else, under the names of the API.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Submitted {
    id: u64,
    #[serde(default)]
    existing: bool,
}

#[derive(Deserialize)]
struct Answers {
    answers: Vec<BatchAnswer>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BatchAnswer {
    Refused { problem: Problem },
    Submitted(Submitted),
}

impl Client {
    /// A client with these options. Connects with the first call, in whose tokio runtime its
    /// connections live.
    ///
    /// # Errors
    /// The URL, a token or a file cannot be used.
    pub fn new(options: &Options) -> Result<Self, ConfigError> {
        let transport = Transport::new(options.base()?).answering_within(options.request_timeout);
        let token = options.token_source()?;
        Ok(Self(Arc::new(Inner { transport, token, retry_for: options.retry_for })))
    }

    /// The client that the environment describes: see [`Options::from_env`].
    ///
    /// # Errors
    /// The URL, a token or a file cannot be used.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::new(&Options::from_env())
    }

    /// Submits a job. It is on disk when this returns.
    ///
    /// # Errors
    /// The job was not accepted, or [perhaps](CallError::maybe_received).
    pub async fn submit(&self, job: &NewJob) -> Result<Job, CallError> {
        let mut request = Request::post("/api/v1/jobs").with(job);
        if !job.has_key() {
            request = request.header("idempotency-key", Uuid::new_v4().to_string());
        }
        if let Some(trace) = job.trace() {
            request = request.header("traceparent", trace);
        }
        let submitted: Submitted = self.ask(request, How::REPEATABLE).await?;
        Ok(self.submitted(&submitted, job))
    }

    /// Submits many jobs in few requests. Each is accepted or refused for itself; the outcomes are in the
    /// order of the jobs. If one of the jobs is [named](NewJob::named), all go in one request, of up to
    /// 1,000.
    pub async fn submit_many(&self, jobs: &[NewJob]) -> Vec<Result<Job, Arc<CallError>>> {
        let mut outcomes = Vec::with_capacity(jobs.len());
        let texts = jobs
            .iter()
            .map(|job| serde_json::to_string(job).expect("a job is text, numbers and JSON"));
        let texts: Vec<String> = texts.collect();
        let are_together = jobs.iter().any(NewJob::is_named);
        let mut begin = 0;
        while begin < jobs.len() {
            let left = texts.get(begin..).unwrap_or_default();
            let end = begin + if are_together { left.len() } else { batch_length(left) };
            let range = begin..end;
            let batch = jobs.get(range.clone()).unwrap_or_default();
            let body = texts.get(range).unwrap_or_default().join(",");
            outcomes.extend(self.submit_batch(batch, &body).await);
            begin = end;
        }
        outcomes
    }

    async fn submit_batch(&self, jobs: &[NewJob], body: &str) -> Vec<Result<Job, Arc<CallError>>> {
        let request = Request::post("/api/v1/jobs/batch")
            .with_json(format!("{{\"jobs\":[{body}]}}"))
            .header("idempotency-key", Uuid::new_v4().to_string());
        match self.ask::<Answers>(request, How::REPEATABLE).await {
            Ok(Answers { answers }) => {
                let pairs = answers.into_iter().zip(jobs);
                let outcomes = pairs.map(|(answer, job)| match answer {
                    BatchAnswer::Submitted(submitted) => Ok(self.submitted(&submitted, job)),
                    BatchAnswer::Refused { problem } => {
                        Err(Arc::new(Refusal::of_entry(problem).into()))
                    }
                });
                outcomes.collect()
            }
            Err(error) => {
                let error = Arc::new(error);
                jobs.iter().map(|_| Err(Arc::clone(&error))).collect()
            }
        }
    }

    fn submitted(&self, answer: &Submitted, job: &NewJob) -> Job {
        // The server knows a random key only if this very submit was sent twice.
        Job::new(self.clone(), JobRef::Number(answer.id), answer.existing && job.may_exist())
    }

    /// A job by its number, its UUID or its Gearman handle. Nothing is sent.
    pub fn job(&self, id: impl Into<JobRef>) -> Job {
        Job::new(self.clone(), id.into(), true)
    }

    /// Lists jobs without their payloads and results, page by page.
    #[must_use]
    pub fn jobs(&self, filter: &JobFilter) -> BoxStream<'static, Result<JobInfo, CallError>> {
        let mut path = format!("/api/v1/jobs?limit={PAGE}");
        let fields = [
            ("queue", filter.queue.clone()),
            ("status", (!filter.statuses.is_empty()).then(|| filter.statuses.join(","))),
            ("tag", filter.tag.clone()),
            ("batch", filter.batch.map(|id| id.to_string())),
            ("order", filter.newest_first.then(|| "desc".to_owned())),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                path += &format!("&{name}={}", encoded(&value));
            }
        }
        self.list(path, "jobs")
    }

    /// The queues with jobs or settings.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, CallError> {
        self.list(format!("/api/v1/queues?limit={PAGE}"), "queues").try_collect().await
    }

    /// A queue as it is now.
    ///
    /// # Errors
    /// There is no such queue, or no answer.
    pub async fn queue(&self, name: &str) -> Result<QueueInfo, CallError> {
        self.ask(Request::get(&queue_path(name)), How::REPEATABLE).await
    }

    /// Stops leasing a queue's jobs; those that workers have go on.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub async fn pause(&self, queue: &str) -> Result<(), CallError> {
        let path = format!("{}/pause", queue_path(queue));
        self.call(Request::post(&path), How::REPEATABLE).await.map(drop)
    }

    /// Leases a queue's jobs again.
    ///
    /// # Errors
    /// There is no answer, or a refusal.
    pub async fn resume(&self, queue: &str) -> Result<(), CallError> {
        let path = format!("{}/resume", queue_path(queue));
        self.call(Request::post(&path), How::REPEATABLE).await.map(drop)
    }

    /// Any other request of the API. GET, PUT and DELETE are repeated while the server is away,
    /// POST and PATCH only if they were not received. No content is `null`.
    ///
    /// # Errors
    /// There is no answer, or a refusal, or the answer is not of this type.
    pub async fn request<T: DeserializeOwned>(&self, request: Request<'_>) -> Result<T, CallError> {
        let is_repeatable = ["GET", "PUT", "DELETE"].contains(&request.method.as_str());
        self.ask(request, How { is_repeatable, ..How::REPEATABLE }).await
    }

    /// Calls, and reads the answer's JSON.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
        how: How<'_>,
    ) -> Result<T, CallError> {
        let answer = self.call(request, how).await?;
        let text: &[u8] = if answer.bytes.is_empty() { b"null" } else { &answer.bytes };
        serde_json::from_slice(text).map_err(CallError::Strange)
    }

    /// Waits for an end, at most so long. Returns what is at the path of the wait then.
    pub(crate) async fn ended<T: DeserializeOwned>(
        &self,
        path: &str,
        within: Duration,
        has_ended: impl Fn(&T) -> bool,
    ) -> Result<T, CallError> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(WAIT_MAX);
            // Rounded up: the server counts whole seconds.
            let wait = Duration::from_secs(left.as_millis().div_ceil(1000) as u64);
            let path = format!("{path}?wait_s={}", wait.as_secs());
            let found: T = self.ask(Request::get(&path).waiting(wait), How::REPEATABLE).await?;
            if has_ended(&found) || Instant::now() >= until {
                return Ok(found);
            }
        }
    }

    /// Sends a request until it is answered, refused for good, or the time for it is over.
    pub(crate) async fn call(
        &self,
        request: Request<'_>,
        how: How<'_>,
    ) -> Result<Answer, CallError> {
        self.call_and_tell(request, how).await.map(|(answer, _)| answer)
    }

    /// The same, and whether the request may have been received more than once.
    pub(crate) async fn call_and_tell(
        &self,
        request: Request<'_>,
        how: How<'_>,
    ) -> Result<(Answer, bool), CallError> {
        if let Some(bytes) = request.body.as_ref().map(bytes::Bytes::len)
            && bytes > BODY_BYTES_MAX
        {
            return Err(CallError::TooLarge(bytes));
        }
        let give_up = Instant::now() + how.retry_for.unwrap_or(self.0.retry_for);
        let mut pauses = Pauses::new();
        let mut is_repeated = false;
        let mut is_renewed = false;
        loop {
            let token = self.0.token.authorization();
            let error = match self.once(request.clone(), token.clone(), how.line).await {
                Ok(answer) => return Ok((answer, is_repeated)),
                Err(CallError::Refused(mut refusal)) => {
                    refusal.is_repeated = is_repeated;
                    if refusal.status == 401 && !is_renewed && self.0.token.reload(token.as_ref()) {
                        is_renewed = true;
                        continue;
                    }
                    CallError::Refused(refusal)
                }
                Err(error) => error,
            };
            let was_received = error.maybe_received();
            let asked = error.refusal().and_then(|refusal| refusal.retry_after);
            let pause = pauses.next().max(asked.unwrap_or_default());
            let may_repeat = error.may_pass() && (how.is_repeatable || !was_received);
            if !may_repeat || Instant::now() + pause >= give_up {
                return Err(error);
            }
            is_repeated |= was_received;
            sleep(pause).await;
        }
    }

    async fn once(
        &self,
        request: Request<'_>,
        token: Option<hyper::header::HeaderValue>,
        line: Option<&Line>,
    ) -> Result<Answer, CallError> {
        let answer = self.0.transport.send_as(request, token, line).await;
        let answer = answer.map_err(|cause| self.no_answer(cause))?;
        if answer.status.is_success() { Ok(answer) } else { Err(Refusal::of(&answer).into()) }
    }

    pub(crate) fn no_answer(&self, cause: crate::SendError) -> CallError {
        CallError::NoAnswer { place: self.0.transport.base().to_string(), cause }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    pub(crate) fn authorization(&self) -> Option<hyper::header::HeaderValue> {
        self.0.token.authorization()
    }

    pub(crate) fn retry_for(&self) -> Duration {
        self.0.retry_for
    }

    /// Reads a list page by page. `name` is the field of a page that holds its items.
    pub(crate) fn list<T>(
        &self,
        path: String,
        name: &'static str,
    ) -> BoxStream<'static, Result<T, CallError>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let mark = if path.contains('?') { '&' } else { '?' };
        let client = self.clone();
        let pages = stream::try_unfold(Some(String::new()), move |cursor| {
            let (client, path) = (client.clone(), path.clone());
            async move {
                let Some(cursor) = cursor else { return Ok(None) };
                let path = format!("{path}{cursor}");
                let mut page: Map<String, Value> =
                    client.ask(Request::get(&path), How::REPEATABLE).await?;
                let items = page.remove(name).unwrap_or_default();
                let items: Vec<T> = serde_json::from_value(items).map_err(CallError::Strange)?;
                let next = page.get("next_cursor").and_then(Value::as_str);
                let next = next.map(|next| format!("{mark}cursor={}", encoded(next)));
                Ok::<_, CallError>(Some((stream::iter(items.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten().boxed()
    }
}

/// How many of these jobs go in one request. A job that is too large goes alone, and is refused.
fn batch_length(texts: &[String]) -> usize {
    let mut bytes = 0;
    let fit = texts.iter().take(BATCH_JOBS_MAX).take_while(|text| {
        bytes += text.len();
        bytes <= BATCH_BYTES
    });
    fit.count().max(1)
}

fn queue_path(name: &str) -> String {
    format!("/api/v1/queues/{}", encoded(name))
}

/// A text as it stands within the path or the query of a [`Request`].
#[must_use]
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_in_requests_that_the_server_takes() {
        let texts =
            |sizes: &[usize]| sizes.iter().map(|size| "x".repeat(*size)).collect::<Vec<_>>();
        assert_eq!(batch_length(&texts(&[1; 1500])), 1000);
        assert_eq!(batch_length(&texts(&[3 << 20, 3 << 20])), 1);
        assert_eq!(batch_length(&texts(&[5 << 20, 1])), 1);
        assert_eq!(batch_length(&texts(&[1 << 20, 1 << 20, 1])), 3);
    }
}
