//! One lease of one job: the task runs, the lease is extended, the end is reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::client::{Client, How};
use crate::content::{Content, ContentType};
use crate::error::CallError;
use crate::job::present;
use crate::lease::{Lease, end_of};
use crate::new_job::millis;
use crate::reporter::{LeaseReport, Reporter};
use crate::task::{Before, Failure, JobContext, Task};

/// A cancelled job is noticed within this time, however long its lease lasts.
const BEAT_MAX: Duration = Duration::from_secs(5);
const BEAT_MIN: Duration = Duration::from_millis(20);
/// A lease is extended by at most this: the most that servers take.
const EXTEND_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// How long a report is repeated at least, even if the lease seems to be over.
const REPORT_MIN: Duration = Duration::from_secs(10);
/// The most characters that the server takes of a failure's texts.
const TEXT_CHARS_MAX: usize = 4096;
const CODE_CHARS_MAX: usize = 64;

/// A job for a worker, with the token that ends its lease.
#[derive(Deserialize)]
pub(crate) struct Leased {
    pub id: u64,
    pub queue: Option<String>,
    attempt: u32,
    lease_token: String,
    lease_ms: Option<u64>,
    #[serde(default)]
    payload_type: ContentType,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    #[serde(default)]
    after: Vec<Before>,
    traceparent: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// The job is done.
    Completed,
    /// The attempt failed; the job may be tried again.
    Failed(Failure),
    /// The lease ended before the job: it was cancelled or deleted, another worker has it, or the
    /// server could not be told in time.
    Lost(String),
    /// The job was given back, because the worker stops.
    Released,
}

/// What the attempts of a worker share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub client: Client,
    pub reporter: Reporter,
    /// True once unfinished jobs are to be given back.
    pub abandon: watch::Receiver<bool>,
}

/// One lease of one job.
pub(crate) struct Attempt {
    shared: Shared,
    pub job: JobContext,
    running: JoinHandle<Result<Content, Failure>>,
    lease: Arc<Lease>,
    /// How long the lease lasts without being extended; none: for ever.
    ttr: Option<Duration>,
    /// By our own clock; the server may know better.
    deadline: Instant,
}

/// How a task's run ended.
pub(crate) enum Ran {
    Returned(Result<Content, Failure>),
    Lost(String),
    Abandoned,
}

impl Attempt {
    /// Begins the task of a job.
    pub fn begin(shared: Shared, task: &Task, leased: Leased) -> Self {
        let lease = Arc::new(Lease::new(shared.client.clone(), leased.lease_token));
        let job = JobContext {
            id: leased.id,
            queue: task.queue.clone(),
            attempt: leased.attempt,
            after: leased.after,
            traceparent: leased.traceparent,
            client: shared.client.clone(),
            lease: Arc::clone(&lease),
        };
        let ttr = leased.lease_ms.map(Duration::from_millis);
        let deadline = Instant::now() + ttr.unwrap_or(EXTEND_MAX).min(EXTEND_MAX);
        let payload = Content::received(
            leased.payload_type,
            leased.payload,
            leased.payload_base64.as_deref(),
        );
        // In a task of its own: heartbeats go on while it keeps its thread busy.
        let running = tokio::spawn((task.run)(payload, job.clone()));
        Self { shared, job, running, lease, ttr, deadline }
    }

    /// Waits for the task's end, and extends the lease meanwhile. A task whose job is lost, or is
    /// to be given back, is dropped where it waits.
    pub async fn watch(&mut self) -> Ran {
        let mut abandon = self.shared.abandon.clone();
        let Self { running, lease, ttr, deadline, .. } = self;
        let ran = tokio::select! {
            returned = &mut *running => return Ran::Returned(returned.unwrap_or_else(panicked)),
            reason = lease.ended() => Ran::Lost(reason),
            () = keep_lease(lease, *ttr, deadline) => Ran::Lost("timeout".to_owned()),
            _ = abandon.wait_for(|is_so| *is_so) => Ran::Abandoned,
        };
        running.abort();
        ran
    }

    /// Tells the server how the attempt ended. A result that it refuses makes the attempt fail.
    pub async fn end(&self, ran: Ran) -> Ending {
        let result = match ran {
            Ran::Lost(reason) => return Ending::Lost(reason),
            Ran::Abandoned => {
                return self.report("release", "{}".to_owned(), Ending::Released).await;
            }
            Ran::Returned(result) => result,
        };
        match result {
            Err(failure) => self.fail(failure).await,
            Ok(content) => match self.send("complete", completion(&content)).await {
                Ok(()) => Ending::Completed,
                Err(error) if is_about_the_result(&error) => {
                    let failure = Failure::new(&error).code("unwritable_result").for_good();
                    self.fail(failure).await
                }
                Err(error) => lost(&error),
            },
        }
    }

    async fn fail(&self, failure: Failure) -> Ending {
        let mut body = json!({
            "message": cut(&failure.message, TEXT_CHARS_MAX),
            "error": cut(&failure.detail, TEXT_CHARS_MAX),
            "code": cut(&failure.code, CODE_CHARS_MAX),
        });
        if !failure.may_retry {
            body["retry"] = json!(false);
        }
        self.report("fail", body.to_string(), Ending::Failed(failure)).await
    }

    async fn report(&self, action: &'static str, body: String, ending: Ending) -> Ending {
        self.send(action, body).await.map_or_else(|error| lost(&error), |()| ending)
    }

    async fn send(&self, action: &'static str, body: String) -> Result<(), Arc<CallError>> {
        let left = self.deadline.saturating_duration_since(Instant::now()).max(REPORT_MIN);
        let report = LeaseReport { lease_token: self.lease.token.clone(), action, body };
        let Err(error) = self.shared.reporter.report(report, left).await else { return Ok(()) };
        // The first of several reports was received, but its answer was lost.
        let was_received = error.refusal().is_some_and(|refusal| refusal.is_repeated)
            && end_of(&error).is_some_and(|end| end != "cancelled" && end != "gone");
        if was_received { Ok(()) } else { Err(error) }
    }
}

/// Extends a lease, until that has not been possible in time.
async fn keep_lease(lease: &Lease, ttr: Option<Duration>, deadline: &mut Instant) {
    let Some(ttr) = ttr else { return std::future::pending().await };
    let extension = ttr.min(EXTEND_MAX);
    let body = json!({ "ttr_ms": millis(extension) });
    let beat = (ttr / 3).clamp(BEAT_MIN, BEAT_MAX);
    loop {
        sleep(beat.min(deadline.saturating_duration_since(Instant::now()))).await;
        let sent = Instant::now();
        let left = deadline.saturating_duration_since(sent);
        let how = How { retry_for: Some(left), ..How::REPEATABLE };
        match timeout(left, lease.post("extend", &body, how)).await {
            // Counted from the first time that it was sent: a repetition was received later.
            Ok(Ok(())) => *deadline = sent + extension,
            // The code that watches the lease learns of its end.
            Ok(Err(_)) => {}
            Err(_) => return,
        }
    }
}

fn completion(result: &Content) -> String {
    let fields = result.fields();
    if let Some(value) = fields.value {
        return format!("{{\"result\":{}}}", value.get());
    }
    let mut body = json!({});
    if let Some(base64) = fields.base64 {
        body = json!({ "result_base64": base64, "result_type": fields.kind });
    }
    body.to_string()
}

/// Whether the server refuses a result because of its content, so that another try would give the same.
/// A full disk of the server, or a refused token of the worker, is no such reason.
fn is_about_the_result(error: &CallError) -> bool {
    match error {
        CallError::TooLarge(_) => true,
        CallError::Refused(refusal) => matches!(refusal.status, 400 | 413 | 422),
        CallError::NoAnswer { .. } | CallError::Strange(_) => false,
    }
}

fn panicked(error: JoinError) -> Result<Content, Failure> {
    let what = error.try_into_panic().ok();
    let text = what.as_ref().and_then(|what| {
        let text = what.downcast_ref::<&str>().copied();
        text.or_else(|| what.downcast_ref::<String>().map(String::as_str))
    });
    Err(Failure::new(text.unwrap_or("the task panicked")).code("panic"))
}

fn lost(error: &CallError) -> Ending {
    Ending::Lost(end_of(error).unwrap_or_else(|| error.to_string()))
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}
