//! The messages in bodies of requests and answers.

use bytes::Bytes;
use spindle_core::{JobId, address};
use spindle_limits::{WORKER_NAMES_MAX, WorkerNames};
use spindle_msgpack::{Fields, Pack, WireError};

/// The longest job name: names of jobs are names of queues, and have the server's limit on those.
pub const NAME_BYTES_MAX: usize = 512;
/// Messages and errors of failures, and names of workers, are kept with the job while it waits.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The longest name of a worker, which is stored with every attempt of a job.
pub(crate) const WORKER_BYTES_MAX: usize = 200;
/// The longest address of a worker, which is kept while the worker is registered.
pub(crate) const URL_BYTES_MAX: usize = 2048;
/// Jobs a worker may have at once.
pub(crate) const JOBS_MAX: i128 = 10_000;
/// The longest `finished_at`; an ISO 8601 time is never this long.
pub(crate) const TIME_CHARS_MAX: usize = 64;
/// The longest a lease lasts, in whole seconds: about 49 days.
const TIMEOUT_MS_MAX: u64 = 4_294_967_000;

const DEFAULT_TIMEOUT_MS: u64 = 30_000;

/// `POST /job`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// The kind of job, which is the queue it goes to.
    pub name: Bytes,
    /// A MessagePack map.
    pub argument: Bytes,
    /// Smaller goes first.
    pub priority: i32,
    /// How often it is tried again after the first time; `None` for the setting of its queue, else
    /// 10.
    pub max_retry: Option<u32>,
    /// Whether somebody will come for the result.
    pub keep_result: bool,
    /// How long one attempt may take.
    pub timeout_ms: u64,
}

impl NewJob {
    /// Reads the body, which is MessagePack.
    pub fn decode(body: &Bytes) -> Result<NewJob, WireError> {
        let fields = Fields::read(
            body,
            &["name", "argument", "priority", "max_retry", "keep_result", "timeout"],
        )?;
        let argument = fields.map("argument")?.ok_or(WireError::Missing("argument"))?;
        let priority = fields.int("priority")?.unwrap_or(0);
        let priority = i32::try_from(priority)
            .map_err(|_| WireError::out_of_range("priority", "an integer of 32 bits, signed"))?;
        let max_retry = match fields.int("max_retry")? {
            None => None,
            // More tries than can ever happen.
            Some(count @ 0..) => Some(u32::try_from(count).unwrap_or(u32::MAX)),
            Some(_) => return Err(WireError::out_of_range("max_retry", "0 or more")),
        };
        Ok(NewJob {
            name: job_name(fields.text("name")?.ok_or(WireError::Missing("name"))?, "name")?,
            argument: body.slice_ref(argument),
            priority,
            max_retry,
            keep_result: fields.bool("keep_result")?.unwrap_or(false),
            timeout_ms: fields.seconds_ms("timeout", TIMEOUT_MS_MAX)?.unwrap_or(DEFAULT_TIMEOUT_MS),
        })
    }
}

fn job_name(name: &str, field: &'static str) -> Result<Bytes, WireError> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(WireError::out_of_range(field, "names of 1 to 512 bytes"));
    }
    Ok(Bytes::copy_from_slice(name.as_bytes()))
}

/// `POST /worker`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// For people.
    pub name: String,
    /// Most jobs it has at once.
    pub max_jobs: u32,
    /// Where jobs are pushed to; a worker without one asks for them.
    pub url: Option<String>,
    /// The job names it takes; `None` for all that LightJQ's pushers use.
    pub names: Option<Vec<Bytes>>,
}

impl Registration {
    /// Reads the body, which is MessagePack.
    pub fn decode(body: &Bytes) -> Result<Registration, WireError> {
        let fields = Fields::read(body, &["name", "max_jobs", "url", "names"])?;
        let name = fields.text("name")?.ok_or(WireError::Missing("name"))?;
        if !(1..=WORKER_BYTES_MAX).contains(&name.len()) {
            return Err(WireError::out_of_range("name", "a name of 1 to 200 bytes"));
        }
        let max_jobs = fields.int("max_jobs")?.ok_or(WireError::Missing("max_jobs"))?;
        let max_jobs = u32::try_from(max_jobs)
            .ok()
            .filter(|count| (1..=JOBS_MAX).contains(&i128::from(*count)))
            .ok_or(WireError::out_of_range("max_jobs", "1 to 10000"))?;
        let url = fields.text("url")?;
        if url.is_some_and(|url| url.len() > URL_BYTES_MAX) {
            return Err(WireError::out_of_range("url", "at most 2048 bytes long"));
        }
        let names = fields.texts("names")?;
        if names.as_ref().is_some_and(|names| !(1..=WORKER_NAMES_MAX).contains(&names.len())) {
            return Err(WireError::out_of_range("names", "a list of 1 to 1024 names"));
        }
        if names.as_ref().is_some_and(|names| !WorkerNames::allow(names)) {
            return Err(WireError::out_of_range("names", "names of at most 64 KiB in all"));
        }
        let names = names.map(|names| names.iter().map(|name| job_name(name, "names")).collect());
        Ok(Registration {
            name: name.to_owned(),
            max_jobs,
            url: url.map(str::to_owned),
            names: names.transpose()?,
        })
    }
}

/// `POST /done`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// Which job; none if the text cannot be a job's.
    pub job: Option<JobId>,
    /// When the worker was finished, as it says.
    pub finished_at: Bytes,
    /// How it went.
    pub outcome: Outcome,
}

/// How an attempt went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The job is done.
    Success {
        /// Any MessagePack value.
        result: Bytes,
    },
    /// It is not.
    Failure {
        /// Why, roughly.
        reason: Reason,
        /// Whether it may be tried again.
        should_retry: bool,
        /// For people.
        message: Bytes,
        /// Any MessagePack value; no bytes if there is none.
        error: Bytes,
    },
}

/// Why an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It took too long.
    Timeout,
    /// Anything else.
    Other,
}

impl Reason {
    /// As the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Other => "other",
        }
    }
}

const NIL: &[u8] = &[0xc0];

impl Done {
    /// Reads the body, which is MessagePack.
    pub fn decode(body: &Bytes) -> Result<Done, WireError> {
        let of_all = ["job_id", "type", "finished_at", "result"];
        let of_failures = ["reason", "should_retry", "message", "error"];
        let fields = Fields::read(body, &[of_all, of_failures].concat())?;
        let job = fields.text("job_id")?.ok_or(WireError::Missing("job_id"))?;
        let finished_at = fields.text("finished_at")?.unwrap_or_default();
        if finished_at.chars().count() > TIME_CHARS_MAX {
            return Err(WireError::out_of_range("finished_at", "a time in ISO 8601"));
        }
        let outcome = match fields.text("type")?.ok_or(WireError::Missing("type"))? {
            "success" => {
                let result = fields.raw("result").map(|result| body.slice_ref(result));
                Outcome::Success { result: result.unwrap_or(Bytes::from_static(NIL)) }
            }
            "failure" => failure(body, &fields)?,
            _ => return Err(WireError::out_of_range("type", "`success` or `failure`")),
        };
        Ok(Done {
            job: address::from_decimal(job.as_bytes()),
            finished_at: Bytes::copy_from_slice(finished_at.as_bytes()),
            outcome,
        })
    }
}

fn failure(body: &Bytes, fields: &Fields<'_>) -> Result<Outcome, WireError> {
    let reason = match fields.text("reason")? {
        None | Some("other") => Reason::Other,
        Some("timeout") => Reason::Timeout,
        Some(_) => return Err(WireError::out_of_range("reason", "`timeout` or `other`")),
    };
    let message = fields.text("message")?.unwrap_or_default();
    let error = fields.raw("error").filter(|error| *error != NIL).unwrap_or_default();
    for (field, len) in [("message", message.len()), ("error", error.len())] {
        if len > TEXT_BYTES_MAX {
            return Err(WireError::out_of_range(field, "at most 64 KiB long"));
        }
    }
    Ok(Outcome::Failure {
        reason,
        should_retry: fields.bool("should_retry")?.unwrap_or(true),
        message: Bytes::copy_from_slice(message.as_bytes()),
        error: if error.is_empty() { Bytes::new() } else { body.slice_ref(error) },
    })
}

/// A job as `GET /job/{id}` shows it. What is MessagePack already is passed through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobShown {
    /// `queued`, `running`, `retrying`, `error` or `done`.
    pub status: &'static str,
    /// Who has it, or had it last.
    pub worker_id: Option<String>,
    /// MessagePack; `None` if there is no result, or not any more.
    pub result: Option<Vec<u8>>,
    /// MessagePack: what the last failure said.
    pub error: Option<Vec<u8>>,
    /// What the last failure said to people.
    pub message: Option<String>,
    /// How often it was begun again.
    pub retry_count: u32,
}

impl JobShown {
    /// The answer's body.
    pub fn encode(&self) -> Vec<u8> {
        let mut pack = Pack::new();
        pack.map(6).text("status").text(self.status);
        put_text(pack.text("worker_id"), self.worker_id.as_deref());
        pack.text("result").raw(self.result.as_deref().unwrap_or(NIL));
        pack.text("error").raw(self.error.as_deref().unwrap_or(NIL));
        put_text(pack.text("message"), self.message.as_deref());
        pack.text("retry_count").uint(u64::from(self.retry_count));
        pack.into_bytes()
    }
}

fn put_text(pack: &mut Pack, text: Option<&str>) {
    match text {
        Some(text) => pack.text(text),
        None => pack.nil(),
    };
}

/// A job for a worker: the body of `POST {url}/worker-job`, and of what `GET /worker/job` gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order<'a> {
    /// Which job.
    pub job: JobId,
    /// Its name.
    pub name: &'a [u8],
    /// MessagePack.
    pub argument: &'a [u8],
    /// How long the lease lasts.
    pub timeout_ms: Option<u64>,
}

impl Order<'_> {
    /// The body. It has the job's number under both names that the protocol has for it.
    pub fn encode(&self) -> Vec<u8> {
        let id = self.job.to_string();
        let mut pack = Pack::new();
        pack.map(5).text("id").text(&id).text("job_id").text(&id);
        pack.text("name").text(&String::from_utf8_lossy(self.name));
        pack.text("argument").raw(self.argument);
        pack.text("timeout");
        match self.timeout_ms {
            None => pack.nil(),
            Some(ms) if ms % 1000 == 0 => pack.uint(ms / 1000),
            Some(ms) => pack.float(ms as f64 / 1000.0),
        };
        pack.into_bytes()
    }
}
