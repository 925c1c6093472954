//! What commands ask, as requests to the native API.

use std::time::{Duration, Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use spindle_client::{
    BaseUrl, Line, Request as ApiRequest, encoded,
    http::{HeaderValue, Method},
};

use super::http::Http;
use crate::{
    cli::{IfTaken, JobName, OnDead, PayloadType, RetryWait},
    client::{
        session::{AskError, Finished, JobQuery, Leased, Listed, More, NewJob, Report, Session},
        view::{Job, Queue, bytes_of, present},
        when::rfc3339,
    },
    queue_name::QueueName,
};

/// Jobs and queues of one page of a list.
const PAGE: u32 = 500;
/// The longest that one request waits, so that a server that has gone is noticed.
const WAIT_MS_MAX: u64 = 20_000;
/// How long the result of a job that `run` added is kept for the client that waits for it.
const KEEP_RUN_MS: u64 = 60_000;

/// A server's native API, one request after the other.
pub struct WebSession {
    http: Http,
    line: Line,
    worker: String,
}

/// A payload as the fields of a request.
#[derive(Debug, Default, Serialize)]
pub struct PayloadFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_type: Option<&'static str>,
}

/// A job as the body of a request.
#[derive(Debug, Serialize)]
struct Submit<'a> {
    /// `queue` or `queue_base64`.
    #[serde(flatten)]
    queue: Map<String, Value>,
    #[serde(flatten)]
    payload: PayloadFields,
    priority: i64,
    ttr_ms: u32,
    ttl_ms: u64,
    keep_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fails_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<Value>,
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    after: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
}

#[derive(Deserialize)]
struct Submitted {
    id: u64,
}

#[derive(Deserialize)]
struct Batch {
    answers: Vec<BatchAnswer>,
}

/// Either an id or a problem.
#[derive(Deserialize)]
struct BatchAnswer {
    id: Option<u64>,
    problem: Option<BatchProblem>,
}

#[derive(Deserialize)]
struct BatchProblem {
    code: String,
    detail: String,
}

#[derive(Deserialize)]
struct LeaseAnswer {
    id: u64,
    queue: Option<String>,
    queue_base64: Option<String>,
    attempt: Option<u32>,
    lease_token: String,
    lease_ms: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    traceparent: Option<String>,
}

#[derive(Deserialize)]
struct JobPage {
    jobs: Vec<Job>,
    next_cursor: Option<String>,
    total: Option<u64>,
    #[serde(default)]
    total_is_at_least: bool,
}

#[derive(Deserialize)]
struct QueuePage {
    #[serde(rename = "queues")]
    _queues: Vec<Queue>,
}

impl WebSession {
    /// A session with the server at this URL. Connects with the first request.
    pub fn new(base: &BaseUrl, line: &Line) -> Self {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let worker = format!("{}:{}", host.unwrap_or_default(), std::process::id());
        Self { http: Http::new(base, line), line: line.clone(), worker }
    }

    /// With another name than the machine's and the process's, for its leases.
    pub fn named(mut self, worker: &str) -> Self {
        worker.clone_into(&mut self.worker);
        self
    }

    /// How many jobs a filter matches beyond those that were seen.
    fn more_than(&self, seen: u64, filter: &str) -> More {
        let path = format!("/api/v1/jobs?limit=1&count=true{filter}");
        match self.http.ask::<JobPage>(ApiRequest::get(&path)) {
            Ok(JobPage { total: Some(total), total_is_at_least, .. }) => {
                More { count: total.saturating_sub(seen), is_at_least: total_is_at_least }
            }
            // The server does not count. The list itself is complete all the same.
            Ok(_) | Err(_) => More::UNKNOWN,
        }
    }

    /// The job as soon as it is done or dead, or as it is after that long.
    fn await_end(&self, job: &str, until: Instant) -> Result<Job, AskError> {
        loop {
            let left_ms = until.saturating_duration_since(Instant::now()).as_millis();
            // Rounded up: the server counts whole seconds.
            let wait_s = left_ms.min(u128::from(WAIT_MS_MAX)).div_ceil(1000) as u64;
            let path = format!("/api/v1/jobs/{job}/wait?wait_s={wait_s}");
            let asking = ApiRequest::get(&path).waiting(Duration::from_secs(wait_s));
            let job: Job = self.http.ask(asking)?;
            if is_finished(&job) || Instant::now() >= until {
                return Ok(job);
            }
        }
    }

    fn leased(&self, answer: LeaseAnswer) -> Result<Leased, AskError> {
        let odd = |error: anyhow::Error| AskError::Strange(error.to_string());
        let payload = bytes_of(answer.payload.as_deref(), answer.payload_base64.as_deref());
        let queue = match (answer.queue, answer.queue_base64) {
            (Some(name), _) => Bytes::from(name),
            (None, coded) => bytes_of(None, coded.as_deref()).map_err(odd)?.unwrap_or_default(),
        };
        Ok(Leased {
            id: answer.id.to_string(),
            queue,
            attempt: answer.attempt,
            ttr_ms: answer.lease_ms.unwrap_or(u64::MAX),
            payload: payload.map_err(odd)?.unwrap_or_default(),
            traceparent: answer.traceparent,
            claim: answer.lease_token,
        })
    }
}

/// A submit in the trace that this program's environment names, if it names one, as that of the commands
/// of `spindle work` does. A malformed one is sent too: the server ignores it.
fn submitting(path: &str) -> ApiRequest<'_> {
    let trace =
        std::env::var("TRACEPARENT").ok().filter(|trace| HeaderValue::from_str(trace).is_ok());
    let mut asking = ApiRequest::post(path);
    asking.headers.extend(trace.map(|trace| ("traceparent", trace)));
    asking
}

impl Session for WebSession {
    fn greet(&mut self) -> Result<(), AskError> {
        match self.http.ask::<QueuePage>(ApiRequest::get("/api/v1/queues?limit=1")) {
            // The server is there and knows the token: a worker's token need not allow reading.
            Err(AskError::Refused { code: Some(code), .. }) if code == "forbidden" => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn add(&mut self, job: &NewJob) -> Result<String, AskError> {
        let asking = submitting("/api/v1/jobs").with(&submit(job)?);
        let submitted: Submitted = self.http.ask(asking)?;
        Ok(submitted.id.to_string())
    }

    fn add_all(&mut self, jobs: &[NewJob]) -> Vec<Result<String, AskError>> {
        let spelled: Result<Vec<Submit<'_>>, AskError> = jobs.iter().map(submit).collect();
        let asked = spelled.and_then(|jobs| {
            let body = json!({ "jobs": jobs });
            self.http.ask::<Batch>(submitting("/api/v1/jobs/batch").with(&body))
        });
        match asked {
            Ok(batch) => batch.answers.into_iter().map(batch_answer).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn run(&mut self, job: &NewJob, wait_ms: u32) -> Result<Finished, AskError> {
        let mut spelled = submit(job)?;
        // The job must not outlive this program: if that is killed, the job's time to live ends it.
        spelled.ttl_ms = u64::from(wait_ms) + u64::from(job.ttr_ms) + KEEP_RUN_MS;
        (spelled.keep_ms, spelled.attempts_max) = (KEEP_RUN_MS, Some(1));
        let submitted: Submitted = self.http.ask(submitting("/api/v1/jobs").with(&spelled))?;
        let id = submitted.id.to_string();
        let begun = Instant::now();
        let taken_by = begun + Duration::from_millis(wait_ms.into());
        let mut job_now = self.await_end(&id, taken_by)?;
        if job_now.status == "leased" {
            let done_by = taken_by + Duration::from_millis(job.ttr_ms.into());
            job_now = self.await_end(&id, done_by)?;
        }
        let is_over = is_finished(&job_now);
        let path = format!("/api/v1/jobs/{id}");
        match self.http.answer(ApiRequest::of(Method::DELETE, &path)) {
            Ok(_) | Err(AskError::NotFound) => {}
            Err(error) => return Err(error),
        }
        if is_over { finished(&job_now) } else { Err(AskError::TimedOut) }
    }

    fn result(&mut self, job: JobName, wait_ms: u32) -> Result<Finished, AskError> {
        let until = Instant::now() + Duration::from_millis(wait_ms.into());
        let job = self.await_end(&job.to_string(), until)?;
        if is_finished(&job) { finished(&job) } else { Err(AskError::TimedOut) }
    }

    fn id_of(&mut self, job: JobName) -> Value {
        match job {
            JobName::Number(id) => json!(id.0),
            JobName::Uuid(_) => self.job(job).map_or_else(|_| json!(job.to_string()), |job| job.id),
        }
    }

    fn job(&mut self, job: JobName) -> Result<Job, AskError> {
        self.http.ask(ApiRequest::get(&format!("/api/v1/jobs/{job}")))
    }

    fn jobs(&mut self, wanted: &JobQuery) -> Result<Listed, AskError> {
        let filter = filter_of(wanted);
        let mut query = filter.clone();
        if wanted.newest_first {
            query += "&order=desc";
        }
        if let Some(bytes) = wanted.preview_bytes {
            query += &format!("&payload_preview={bytes}");
        }
        let most = wanted.offset.saturating_add(wanted.limit);
        let mut jobs = Vec::new();
        let mut cursor = String::new();
        let goes_on = loop {
            let left = most - jobs.len() as u32;
            let path = format!("/api/v1/jobs?limit={}{query}{cursor}", left.min(PAGE));
            let page: JobPage = self.http.ask(ApiRequest::get(&path))?;
            jobs.extend(page.jobs);
            match page.next_cursor {
                Some(next) if jobs.len() < most as usize => {
                    cursor = format!("&cursor={}", encoded(&next));
                }
                next => break next.is_some(),
            }
        };
        let seen = jobs.len() as u64;
        let more = goes_on.then(|| self.more_than(seen, &filter));
        jobs.drain(..jobs.len().min(wanted.offset as usize));
        Ok(Listed { jobs, more })
    }

    fn queues(&mut self) -> Result<Vec<Queue>, AskError> {
        let mut queues = Vec::new();
        let path = format!("/api/v1/queues?limit={PAGE}");
        self.http.for_each(&path, "queues", |queue| queues.push(queue))?;
        Ok(queues)
    }

    fn queue(&mut self, name: &QueueName) -> Result<Queue, AskError> {
        self.http.ask(ApiRequest::get(&name.path()))
    }

    fn delete(&mut self, job: JobName) -> Result<(), AskError> {
        self.http.answer(ApiRequest::of(Method::DELETE, &format!("/api/v1/jobs/{job}")))?;
        Ok(())
    }

    fn lease(&mut self, queues: &[QueueName], wait_ms: u32) -> Result<Option<Leased>, AskError> {
        let wait_s = wait_ms.div_ceil(1000);
        let [mut texts, mut coded] = [Vec::new(), Vec::new()];
        for (name, value) in queues.iter().map(QueueName::field) {
            if name == "queue" { texts.push(value) } else { coded.push(value) }
        }
        let (wait, worker) = (wait_s, &self.worker);
        let body = json!({
            "queues": texts, "queues_base64": coded, "wait_s": wait, "worker": worker,
        });
        let asking = ApiRequest::post("/api/v1/lease").with(&body);
        let asking = asking.waiting(Duration::from_secs(wait_s.into()));
        let answer: Option<LeaseAnswer> = self.http.ask_for_any(asking)?;
        answer.map(|answer| self.leased(answer)).transpose()
    }

    fn extend(&mut self, job: &Leased, ttr_ms: u32) -> Result<(), AskError> {
        let path = format!("/api/v1/leases/{}/extend", job.claim);
        self.http.answer(ApiRequest::post(&path).with(&json!({ "ttr_ms": ttr_ms })))?;
        Ok(())
    }

    fn attempt(&mut self, job: &Leased) -> Result<Option<u32>, AskError> {
        Ok(job.attempt)
    }

    fn finish(&mut self, job: &Leased, report: &Report) -> Result<(), AskError> {
        let Report { success, result, code, message, error } = report;
        let mut body = json!({ "result_base64": BASE64_STANDARD.encode(result) });
        let end = if *success {
            "complete"
        } else {
            body["code"] = json!(code);
            body["message"] = json!(message);
            body["error"] = json!(error);
            "fail"
        };
        let path = format!("/api/v1/leases/{}/{end}", job.claim);
        self.http.answer(ApiRequest::post(&path).with(&body))?;
        Ok(())
    }
}

impl Drop for WebSession {
    fn drop(&mut self) {
        // Another session may use the line from now on.
        self.line.forget();
    }
}

/// The wanted jobs, as the query part of the URL.
fn filter_of(wanted: &JobQuery) -> String {
    let queue = wanted.queue.as_ref().map(QueueName::field);
    let statuses: Vec<&str> = wanted.statuses.iter().map(|status| status.word()).collect();
    let status = (!statuses.is_empty()).then(|| ("status", statuses.join(",")));
    let fields = queue.into_iter().chain(status).chain(wanted.filters.iter().cloned());
    fields.map(|(name, value)| format!("&{name}={}", encoded(&value))).collect()
}

fn submit(job: &NewJob) -> Result<Submit<'_>, AskError> {
    if job.id.is_some() {
        let text = "the native API numbers jobs itself: use --unique KEY, or --id with --workq";
        return Err(AskError::Unable(text.to_owned()));
    }
    let mut queue = Map::new();
    job.queue.put(&mut queue, "queue");
    let run_at = job.run_at_ms.map(rfc3339);
    let unique = job.unique.as_ref().map(|(key, if_taken)| {
        let mode = match if_taken {
            IfTaken::Reject => "reject",
            IfTaken::Existing => "existing",
            IfTaken::Replace => "replace",
        };
        json!({ "key": key, "mode": mode })
    });
    Ok(Submit {
        queue,
        payload: payload_fields(&job.payload, job.payload_type)?,
        priority: job.priority,
        ttr_ms: job.ttr_ms,
        ttl_ms: job.ttl_ms,
        // As long as it would be kept unfinished, because a client that adds a job wants its result.
        keep_ms: job.ttl_ms,
        attempts_max: job.attempts_max,
        fails_max: job.fails_max,
        backoff: job.backoff.map(RetryWait::to_json),
        run_at,
        tags: &job.tags,
        fair_key: job.fair_key.as_deref(),
        unique,
        after: &job.after,
        on_dead: job.on_dead.map(OnDead::word),
        batch: job.batch,
    })
}

/// A payload as a body's fields.
pub fn payload_fields(payload: &Bytes, kind: PayloadType) -> Result<PayloadFields, AskError> {
    let coded = || Some(BASE64_STANDARD.encode(payload));
    Ok(match kind {
        PayloadType::Bytes => {
            PayloadFields { payload: None, payload_base64: coded(), payload_type: None }
        }
        PayloadType::Msgpack => {
            PayloadFields { payload: None, payload_base64: coded(), payload_type: Some("msgpack") }
        }
        PayloadType::Json => {
            let text = str::from_utf8(payload).map_err(|error| not_json(&error))?;
            let json = RawValue::from_string(text.trim().to_owned());
            let payload = Some(json.map_err(|error| not_json(&error))?);
            PayloadFields { payload, payload_base64: None, payload_type: None }
        }
    })
}

fn not_json(error: &dyn std::error::Error) -> AskError {
    AskError::Unable(format!("the payload is not JSON: {error}"))
}

fn batch_answer(answer: BatchAnswer) -> Result<String, AskError> {
    match (answer.id, answer.problem) {
        (Some(id), _) => Ok(id.to_string()),
        // As `trouble` has it for a single job.
        (None, Some(BatchProblem { code, .. })) if code == "batch_not_found" => {
            Err(AskError::NotFound)
        }
        (None, Some(BatchProblem { code, detail })) => {
            Err(AskError::Refused { text: detail, code: Some(code) })
        }
        (None, None) => Err(AskError::refused("the server told neither an id nor why not")),
    }
}

fn is_finished(job: &Job) -> bool {
    matches!(job.status.as_str(), "done" | "dead")
}

fn finished(job: &Job) -> Result<Finished, AskError> {
    let id = job.id_text();
    let Some(outcome) = &job.result else {
        let success = job.status == "done";
        return Ok(Finished { id, success, result: Bytes::new(), remarks: Vec::new() });
    };
    let result = outcome.result_bytes().map_err(|error| AskError::Strange(error.to_string()))?;
    let remarks =
        [("message", &outcome.message), ("error", &outcome.error), ("code", &outcome.code)];
    let remarks = remarks.into_iter().filter(|(_, text)| !text.is_empty());
    let remarks = remarks.map(|(name, text)| (name, text.clone())).collect();
    Ok(Finished { id, success: job.status == "done", result, remarks })
}
