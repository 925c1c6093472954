//! The worker: leases the jobs of tasks, and does them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::attempt::{Attempt, Ending, Leased, Shared};
use crate::client::{Client, How};
use crate::error::CallError;
use crate::line::Line;
use crate::new_job::millis;
use crate::pause::Pauses;
use crate::reporter::Reporter;
use crate::task::{Failure, JobContext, Task};
use crate::transport::Request;

/// The longest wait for a job of one request.
const WAIT: Duration = Duration::from_secs(30);
/// How many jobs the server gives at once.
const COUNT_MAX: usize = 100;
/// How long an answer that was on its way when a wait was ended may take.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// How long the reports of jobs that are given back may take: a server that is away must not keep
/// the program from ending.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// What a worker reports.
#[derive(Debug)]
pub enum WorkerEvent<'a> {
    /// An attempt has ended, and the server knows.
    Ended(&'a JobContext, &'a Ending),
    /// The server cannot be reached, or is busy: the worker goes on trying.
    Away(&'a CallError),
}

/// Why a worker does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It has no task.
    #[error("a worker needs a task")]
    NoTask,
    /// The server refuses the worker, for instance its token.
    #[error("the server refuses to give jobs: {0}")]
    Refused(#[source] CallError),
    /// Signals cannot be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(#[source] io::Error),
}

type OnEvent = dyn Fn(&WorkerEvent<'_>) + Send + Sync;

/// Leases the jobs of tasks, and does them.
///
/// Leases are extended while a task runs. A task whose job was cancelled, deleted or lost is dropped
/// where it waits, as is one that does not end in time when the worker stops: put the necessary cleanup
/// in a `Drop`.
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    client: Client,
    tasks: BTreeMap<String, Task>,
    name: String,
    concurrency: usize,
    lease: Option<Duration>,
    stop_timeout: Duration,
    on_event: Option<Arc<OnEvent>>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct LeaseAnswer {
    jobs: Vec<Leased>,
}

impl Worker {
    /// A worker without tasks.
    pub fn new(client: &Client) -> Self {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let name = format!("{}:{}", host.unwrap_or_default(), std::process::id());
        Self {
            client: client.clone(),
            tasks: BTreeMap::new(),
            concurrency: 1,
            lease: None,
            stop_timeout: Duration::from_secs(25),
            on_event: None,
            name,
        }
    }

    /// Does the jobs of this queue with this function. A payload that is not of its type makes the
    /// job dead with the code `unreadable_payload`. What a panic says is the failure's message.
    pub fn task<P, R, F, Fut>(mut self, queue: impl Into<String>, function: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        F: Fn(P, JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let task = Task::new(queue.into(), function);
        self.tasks.insert(task.queue.clone(), task);
        self
    }

    /// Most jobs at a time. Default 1.
    pub fn concurrency(self, jobs: usize) -> Self {
        Self { concurrency: jobs.max(1), ..self }
    }

    /// Its name in lists of workers. Default: the host's name and the process id.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// A lease lasts at most this: how soon the jobs of a worker that was killed run again.
    /// Default: as the job says.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// How long jobs have to end when the worker stops. Default 25 s.
    pub fn stop_timeout(self, time: Duration) -> Self {
        Self { stop_timeout: time, ..self }
    }

    /// Called with everything that happens, before [`run`](Self::run) returns. Without it, outages
    /// of the server are printed on standard error.
    pub fn on_event(self, call: impl Fn(&WorkerEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { on_event: Some(Arc::new(call)), ..self }
    }

    /// Works until SIGTERM or SIGINT, and until its jobs have ended then. While the server is away
    /// it goes on trying.
    ///
    /// # Errors
    /// The server refuses the worker.
    pub async fn run(self) -> Result<(), WorkerError> {
        let (mut term, mut int) = stop_signals().map_err(WorkerError::Signals)?;
        self.run_until(async {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
        })
        .await
    }

    /// Works until `stop` is ready: then it leases no further jobs and lets those that run end.
    /// Jobs that have not ended after the stop timeout are given back.
    ///
    /// # Errors
    /// The server refuses the worker.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), WorkerError> {
        if self.tasks.is_empty() {
            return Err(WorkerError::NoTask);
        }
        let (abandon, abandoned) = watch::channel(false);
        let shared = Shared {
            client: self.client.clone(),
            reporter: Reporter::start(self.client.clone()),
            abandon: abandoned,
        };
        let print = || Arc::new(print_outages(self.name.clone())) as Arc<OnEvent>;
        let crew = Crew {
            shared,
            on_event: self.on_event.clone().unwrap_or_else(print),
            counts: Arc::new(Counts::default()),
        };
        let line = Line::default();
        let leased = {
            let leasing = self.lease_all(&crew, &line);
            tokio::pin!(leasing);
            tokio::select! {
                leased = &mut leasing => leased,
                () = stop => {
                    crew.counts.is_stopping.store(true, Ordering::SeqCst);
                    // Jobs that the server hands out at this very moment would have to wait for the end
                    // of their leases, so the answer is still read.
                    line.hang_up();
                    crew.counts.changed.notify_one();
                    timeout(LAST_ANSWER, leasing).await.unwrap_or(Ok(()))
                }
            }
        };
        if timeout(self.stop_timeout, crew.counts.idle()).await.is_err() {
            // The attempts listen as long as they live.
            let _ = abandon.send(true);
            let _ = timeout(GIVE_BACK, crew.counts.idle()).await;
        }
        leased.map_err(WorkerError::Refused)
    }

    /// Leases jobs until the worker stops, or is refused.
    async fn lease_all(&self, crew: &Crew, line: &Line) -> Result<(), CallError> {
        let counts = &crew.counts;
        let mut pauses = Pauses::new();
        let mut is_away = false;
        while !counts.is_stopping.load(Ordering::SeqCst) {
            let room = counts.room(self.concurrency);
            if room == 0 {
                counts.changed.notified().await;
                continue;
            }
            match self.ask_for_jobs(room, line).await {
                Ok(jobs) => {
                    (is_away, pauses) = (false, Pauses::new());
                    jobs.into_iter().for_each(|leased| self.begin(crew, leased));
                }
                // The wait was ended by hanging up.
                Err(_) if counts.is_stopping.load(Ordering::SeqCst) => return Ok(()),
                Err(error) if error.may_pass() => {
                    if !std::mem::replace(&mut is_away, true) {
                        (crew.on_event)(&WorkerEvent::Away(&error));
                    }
                    sleep(pauses.next()).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn ask_for_jobs(&self, count: usize, line: &Line) -> Result<Vec<Leased>, CallError> {
        let mut body = json!({
            "queues": self.tasks.keys().collect::<Vec<_>>(),
            "wait_s": WAIT.as_secs(),
            "worker": self.name,
            "count": count.min(COUNT_MAX),
        });
        if let Some(lease) = self.lease {
            body["timeout_ms"] = json!(millis(lease));
        }
        let request = Request::post("/api/v1/lease").with(&body).waiting(WAIT);
        // Sent once: the next request asks for what there is room for then.
        let how = How { is_repeatable: false, retry_for: Some(Duration::ZERO), line: Some(line) };
        let answer: Option<LeaseAnswer> = self.client.ask(request, how).await?;
        Ok(answer.map(|answer| answer.jobs).unwrap_or_default())
    }

    fn begin(&self, crew: &Crew, leased: Leased) {
        let Some(task) = leased.queue.as_ref().and_then(|queue| self.tasks.get(queue)) else {
            // The server gives no jobs of queues that it was not asked for.
            return;
        };
        let running = Counted::new(&crew.counts, |counts| &counts.running);
        let mut attempt = Attempt::begin(crew.shared.clone(), task, leased);
        let (counts, on_event) = (Arc::clone(&crew.counts), Arc::clone(&crew.on_event));
        tokio::spawn(async move {
            let ran = attempt.watch().await;
            // In this order, so that the worker does not look idle in between.
            let reporting = Counted::new(&counts, |counts| &counts.reporting);
            drop(running);
            let ending = attempt.end(ran).await;
            on_event(&WorkerEvent::Ended(&attempt.job, &ending));
            drop(reporting);
        });
    }
}

/// What a run of a worker shares with its attempts.
struct Crew {
    shared: Shared,
    on_event: Arc<OnEvent>,
    counts: Arc<Counts>,
}

/// How much work a worker has.
#[derive(Default)]
struct Counts {
    /// Attempts whose tasks run.
    running: AtomicUsize,
    /// Attempts whose tasks have ended, and that are not reported.
    reporting: AtomicUsize,
    is_stopping: AtomicBool,
    /// Notified whenever one of these changes that a task may wait for.
    changed: Notify,
}

impl Counts {
    /// How many jobs to lease now.
    fn room(&self, concurrency: usize) -> usize {
        let free = concurrency.saturating_sub(self.running.load(Ordering::SeqCst));
        // The next jobs begin while the ends of the last ones are on their way to the disk; but
        // when the server takes no reports, it gives no jobs.
        let reported = (concurrency + free).saturating_sub(self.reporting.load(Ordering::SeqCst));
        free.min(reported)
    }

    /// Waits until nothing runs and all is reported.
    async fn idle(&self) {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        while count(&self.running) + count(&self.reporting) > 0 {
            self.changed.notified().await;
        }
    }
}

/// Counts an attempt while it lives.
struct Counted {
    counts: Arc<Counts>,
    which: fn(&Counts) -> &AtomicUsize,
}

impl Counted {
    fn new(counts: &Arc<Counts>, which: fn(&Counts) -> &AtomicUsize) -> Self {
        which(counts).fetch_add(1, Ordering::SeqCst);
        Self { counts: Arc::clone(counts), which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.counts).fetch_sub(1, Ordering::SeqCst);
        self.counts.changed.notify_one();
    }
}

fn stop_signals() -> io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}

fn print_outages(name: String) -> impl Fn(&WorkerEvent<'_>) + Send + Sync {
    move |event| {
        if let WorkerEvent::Away(error) = event {
            eprintln!("spindle worker {name}: {error}; it goes on trying");
        }
    }
}
