//! A session through the Workq door.

use std::{io::ErrorKind, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::BytesMut;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use spindle_core::address;
use spindle_workq::{
    client::{Client, ClientError},
    wire::{self, JobInfo, JobState, QueueInfo, ReplyKind, Request, Run, Uuid},
};

use super::{
    Line,
    server::{WorkqAddress, untrusted},
    session::{AskError, Finished, JobQuery, Leased, Listed, Lost, More, NewJob, Report, Session},
    view::{Counts, Job, Queue},
    when::now_ms,
};
use crate::{
    cli::{JobName, JobStatus, PayloadType},
    queue_name::QueueName,
};

/// How long an answer may take beyond what a command itself waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The most that one request lists.
const PAGE: u32 = 100;
/// What the server says to a result of a finished job.
const DUPLICATE: &str = "Duplicate result";
/// The limits of a job that has none of its own, as through the native API.
const FAILS_MAX: u8 = 5;
const ATTEMPTS_MAX: u8 = 25;
/// The longest time to run that the protocol takes: a day.
const TTR_MS_MAX: u32 = 86_400_000;
/// The server's answer if the lease to be extended is of a job that no worker has.
const NOT_LEASED: &str = "Not leased";

/// A connection to a Workq door.
pub struct WorkqSession(Client);

impl WorkqSession {
    /// Connects, and authenticates with the token.
    pub fn open(at: &WorkqAddress, line: &Line) -> Result<Self, AskError> {
        let address = at.address.as_str();
        let mut client = Client::connect(address, ANSWER_WITHIN)?;
        if let Some(config) = &at.tls {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
            let name = name.map_err(|error| AskError::Unusable(format!("{host}: {error}")))?;
            client = client.encrypted(name, config.clone()).map_err(|error| no_tls(error, at))?;
        }
        line.carries(client.stream().try_clone()?);
        if let Some(token) = &at.token {
            client.auth(token.reveal())?;
        }
        Ok(Self(client))
    }

    fn jobs_page(&mut self, wanted: &JobQuery, listed: u32) -> Result<Vec<JobInfo>, AskError> {
        let queue = wanted.queue.as_ref().ok_or_else(|| unable("lists jobs of one queue only"))?;
        check_name(queue)?;
        let offset = wanted.offset.saturating_add(listed);
        let limit = (wanted.limit - listed).min(PAGE);
        Ok(match wanted.statuses[..] {
            [] | [JobStatus::Ready] => self.0.inspect_jobs(queue, offset, limit)?,
            [JobStatus::Scheduled] => self.0.inspect_scheduled_jobs(queue, offset, limit)?,
            _ => return Err(unable("lists ready and scheduled jobs only")),
        })
    }
}

/// Why there is no encrypted connection.
fn no_tls(error: ClientError, at: &WorkqAddress) -> AskError {
    let ClientError::Io(io) = &error else { return error.into() };
    let cause = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    AskError::Unusable(match cause {
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{at} does not speak TLS: leave --tls out")
        }
        Some(rustls::Error::InvalidCertificate(error)) => untrusted(at, error),
        Some(_) => format!("cannot speak TLS with {at}: {io}"),
        None if io.kind() == ErrorKind::UnexpectedEof => {
            format!("{at} closed the connection; does it speak TLS? if not, leave --tls out")
        }
        None => return error.into(),
    })
}

impl WorkqSession {
    /// How many jobs there are behind a full list, as far as the queue's numbers tell.
    fn more(&mut self, wanted: &JobQuery) -> More {
        let numbers = wanted.queue.as_ref().map(|queue| self.0.inspect_queue(queue));
        // The list itself is complete all the same.
        let Some(Ok(numbers)) = numbers else { return More::UNKNOWN };
        let total = match wanted.statuses[..] {
            [JobStatus::Scheduled] => numbers.scheduled,
            _ => numbers.ready,
        };
        let seen = u64::from(wanted.offset) + u64::from(wanted.limit);
        More { count: total.saturating_sub(seen), is_at_least: false }
    }
}

impl Session for WorkqSession {
    fn greet(&mut self) -> Result<(), AskError> {
        // The connection is open; whether the other side speaks Workq shows with the first command.
        Ok(())
    }

    fn add(&mut self, job: &NewJob) -> Result<String, AskError> {
        let spelled = spell(job)?;
        match job.run_at_ms {
            None => self.0.add(&spelled)?,
            Some(time_ms) => self.0.schedule(&spelled, time_ms)?,
        }
        Ok(spelled.id.to_string())
    }

    fn add_all(&mut self, jobs: &[NewJob]) -> Vec<Result<String, AskError>> {
        let mut batch = BytesMut::new();
        let mut spelled = Vec::with_capacity(jobs.len());
        for job in jobs {
            match spell(job) {
                Ok(job) => {
                    spelled.push(job.id);
                    Request::Add(job).encode(&mut batch);
                }
                Err(error) => return vec![Err(error)],
            }
        }
        if let Err(error) = self.0.send_raw(&batch) {
            return vec![Err(error.into())];
        }
        let mut answers = Vec::with_capacity(jobs.len());
        for id in spelled {
            let answer = self.0.read_reply(ReplyKind::Ok, Duration::ZERO);
            let is_last = answer.as_ref().is_err_and(|error| !error.is_answer());
            answers.push(answer.map(|_| id.to_string()).map_err(AskError::from));
            if is_last {
                break;
            }
        }
        answers
    }

    fn run(&mut self, job: &NewJob, wait_ms: u32) -> Result<Finished, AskError> {
        let wire::NewJob { id, name, ttr_ms, priority, payload, .. } = spell(job)?;
        let run = Run { id, name, ttr_ms, wait_timeout_ms: wait_ms, priority, payload };
        Ok(finished(self.0.run(&run)?))
    }

    fn result(&mut self, job: JobName, wait_ms: u32) -> Result<Finished, AskError> {
        Ok(finished(self.0.result(uuid(job), wait_ms)?))
    }

    fn id_of(&mut self, job: JobName) -> Value {
        json!(uuid(job).to_string())
    }

    fn job(&mut self, job: JobName) -> Result<Job, AskError> {
        Ok(shown(&self.0.inspect_job(uuid(job))?))
    }

    fn jobs(&mut self, wanted: &JobQuery) -> Result<Listed, AskError> {
        if wanted.newest_first {
            return Err(unable("lists jobs in the order in which they are given out only"));
        }
        if let Some((name, _)) = wanted.filters.first() {
            return Err(unable(&format!("lists jobs by no {}", name.replace('_', " "))));
        }
        let mut jobs = Vec::new();
        while jobs.len() < wanted.limit as usize {
            let listed = jobs.len() as u32;
            let page = self.jobs_page(wanted, listed)?;
            let is_last = page.len() < (wanted.limit - listed).min(PAGE) as usize;
            jobs.extend(page.iter().map(shown));
            if is_last {
                break;
            }
        }
        let is_full = jobs.len() == wanted.limit as usize;
        let more = is_full.then(|| self.more(wanted));
        Ok(Listed { jobs, more })
    }

    fn queues(&mut self) -> Result<Vec<Queue>, AskError> {
        let mut queues = Vec::new();
        loop {
            let offset = u32::try_from(queues.len()).unwrap_or(u32::MAX);
            let page = self.0.inspect_queues(offset, PAGE)?;
            let is_last = page.len() < PAGE as usize;
            queues.extend(page.into_iter().map(queue_shown));
            if is_last {
                return Ok(queues);
            }
        }
    }

    fn queue(&mut self, name: &QueueName) -> Result<Queue, AskError> {
        check_name(name)?;
        Ok(queue_shown(self.0.inspect_queue(name)?))
    }

    fn delete(&mut self, job: JobName) -> Result<(), AskError> {
        Ok(self.0.delete(uuid(job))?)
    }

    fn lease(&mut self, queues: &[QueueName], wait_ms: u32) -> Result<Option<Leased>, AskError> {
        queues.iter().try_for_each(check_name)?;
        match self.0.lease(queues, wait_ms) {
            Ok(job) => Ok(Some(Leased {
                id: job.id.to_string(),
                queue: job.name,
                attempt: None,
                ttr_ms: job.ttr_ms,
                payload: job.payload,
                traceparent: None,
                claim: job.id.to_string(),
            })),
            Err(ClientError::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn extend(&mut self, job: &Leased, ttr_ms: u32) -> Result<(), AskError> {
        Ok(self.0.extend(claimed(job)?, ttr_ms.min(TTR_MS_MAX))?)
    }

    fn attempt(&mut self, job: &Leased) -> Result<Option<u32>, AskError> {
        let attempts = self.0.inspect_job(claimed(job)?)?.attempts;
        Ok(u32::try_from(attempts).ok().filter(|attempt| *attempt > 0))
    }

    fn finish(&mut self, job: &Leased, report: &Report) -> Result<(), AskError> {
        let (id, result) = (claimed(job)?, report.result.clone());
        // The protocol has no words for how it failed.
        let finished =
            if report.success { self.0.complete(id, result) } else { self.0.fail(id, result) };
        Ok(finished?)
    }
}

impl From<ClientError> for AskError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Io(error) => Self::Io(error),
            ClientError::Timeout => Self::TimedOut,
            ClientError::NotFound => Self::NotFound,
            ClientError::Client(text) if text == DUPLICATE => Self::LeaseLost(Lost::Over),
            ClientError::Client(text) if text == NOT_LEASED => Self::LeaseLost(Lost::Unknown),
            ClientError::Client(text) => Self::refused(text),
            ClientError::Server(text) => Self::Failed(text),
            ClientError::Protocol(text) => Self::Strange(text.to_owned()),
        }
    }
}

fn unable(what: &str) -> AskError {
    AskError::Unable(format!(
        "Workq {what}; leave --workq and SPINDLE_WORKQ out for the native API"
    ))
}

/// Refuses a queue that the protocol cannot spell.
fn check_name(queue: &QueueName) -> Result<(), AskError> {
    if wire::is_name(queue.bytes()) {
        return Ok(());
    }
    let takes = "takes names of 1 to 255 letters, digits, `_`, `-` and `.`";
    Err(unable(&format!("cannot name the queue {queue}: it {takes}")))
}

/// The job in Workq's words.
fn spell(job: &NewJob) -> Result<wire::NewJob, AskError> {
    if job.payload_type != PayloadType::Bytes || !job.tags.is_empty() || job.unique.is_some() {
        return Err(unable("knows no --type, --tag and --unique"));
    }
    if !job.after.is_empty() {
        return Err(unable("knows no --after"));
    }
    if job.batch.is_some() {
        return Err(unable("knows no --batch"));
    }
    if job.fair_key.is_some() {
        return Err(unable("knows no --fair-key"));
    }
    if job.backoff.is_some() {
        return Err(unable("knows no --backoff"));
    }
    let fails_max = match job.fails_max {
        // The protocol's 0 is one try.
        Some(0) => return Err(unable("knows 1 to 255 --tries, and no 0 for no limit")),
        Some(fails) => u8::try_from(fails).map_err(|_| unable("knows 1 to 255 --tries"))?,
        None => FAILS_MAX,
    };
    let attempts_max = job.attempts_max.map_or(Ok(ATTEMPTS_MAX), u8::try_from);
    let attempts_max = attempts_max.map_err(|_| unable("knows up to 255 --max-attempts"))?;
    check_name(&job.queue)?;
    Ok(wire::NewJob {
        id: job.id.unwrap_or_else(|| Uuid::from_bytes(uuid::Uuid::new_v4().into_bytes())),
        name: job.queue.bytes().clone(),
        ttr_ms: job.ttr_ms,
        ttl_ms: job.ttl_ms,
        priority: job.priority,
        attempts_max,
        fails_max,
        payload: job.payload.clone(),
    })
}

/// Workq knows jobs of other doors by a UUID made from their number.
fn uuid(job: JobName) -> Uuid {
    match job {
        JobName::Uuid(uuid) => uuid,
        JobName::Number(id) => Uuid::from_bytes(address::foreign_uuid(id)),
    }
}

fn claimed(job: &Leased) -> Result<Uuid, AskError> {
    Uuid::parse(job.claim.as_bytes()).ok_or(AskError::LeaseLost(Lost::Unknown))
}

fn finished(result: wire::JobResult) -> Finished {
    let wire::JobResult { id, success, result } = result;
    Finished { id: id.to_string(), success, result, remarks: Vec::new() }
}

fn queue_shown(queue: QueueInfo) -> Queue {
    Queue {
        name: Some(String::from_utf8_lossy(&queue.name).into_owned()),
        jobs: Counts { ready: queue.ready, scheduled: queue.scheduled, ..Counts::default() },
        ..Queue::default()
    }
}

fn shown(job: &JobInfo) -> Job {
    Job {
        id: json!(job.id.to_string()),
        queue: Some(String::from_utf8_lossy(&job.name).into_owned()),
        status: status(job).to_owned(),
        priority: job.priority,
        created_at: time(job.created_ms),
        run_at: job.time_ms.map(time),
        ttr_ms: Some(job.ttr_ms),
        ttl_ms: Some(job.ttl_ms),
        attempts: job.attempts,
        attempts_max: Some(job.attempts_max),
        fails: job.fails,
        fails_max: Some(job.fails_max.max(1)),
        payload_type: "bytes".to_owned(),
        payload_bytes: job.payload.len() as u64,
        payload_base64: Some(BASE64_STANDARD.encode(&job.payload)),
        ..Job::default()
    }
}

/// The protocol has one number for new jobs, whether they wait for their time or for a worker.
fn status(job: &JobInfo) -> &'static str {
    match job.state {
        JobState::New if job.time_ms.is_some_and(|time_ms| time_ms > now_ms()) => "scheduled",
        JobState::New | JobState::Pending => "ready",
        JobState::Leased => "leased",
        JobState::Completed => "done",
        JobState::Failed => "dead",
    }
}

fn time(time_ms: u64) -> String {
    let second = i64::try_from(time_ms / 1000).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string()
}
