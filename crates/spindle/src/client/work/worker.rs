//! One worker: takes a job, has the command run on it, delivers the result.

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    link::Link,
    orders::Orders,
    process::{self, Ended},
};
use crate::{
    client::{
        backoff::Backoff,
        progress::Progress,
        server::Server,
        session::{AskError, Leased},
    },
    output::write_line,
    queue_name::QueueName,
};

/// How long one `lease` waits: short enough that a dead server is noticed.
const LEASE_WAIT_MS: u32 = 20_000;
/// A heartbeat that failed is tried again after at most this.
const BEAT_AGAIN: Duration = Duration::from_secs(1);
/// Faster hearts help nobody.
const BEAT_MIN: Duration = Duration::from_millis(20);

/// What all workers do.
pub struct Work<'a> {
    /// The queues to take jobs from.
    pub queues: &'a [QueueName],
    /// What to run.
    pub command: &'a [OsString],
    /// Whether to stop when the queues are empty.
    pub drain: bool,
    /// Whether to print what became of each job.
    pub json: bool,
    /// Where the jobs are.
    pub server: &'a Server,
    /// What the workers share.
    pub orders: &'a Orders,
    /// What is shown meanwhile.
    pub progress: &'a Progress,
}

impl Work<'_> {
    /// Works until there is nothing more to do.
    pub fn go(&self, worker: usize) {
        let mut link = Link::new(worker, self.server, self.orders);
        let mut backoff = Backoff::new();
        while self.orders.take_leave() {
            let wait_timeout_ms = if self.drain { 0 } else { LEASE_WAIT_MS };
            match link.lease(self.queues, wait_timeout_ms) {
                Ok(Some(job)) => {
                    backoff = Backoff::new();
                    self.do_job(&mut link, &job);
                    continue;
                }
                Ok(None) if self.drain => {
                    self.orders.give_leave_back();
                    return;
                }
                Ok(None) => {}
                Err(error @ (AskError::Refused { .. } | AskError::Unable(_))) => {
                    self.orders.fail(anyhow!("the server refused to give a job: {error}"));
                }
                Err(error) => {
                    let pause = backoff.next();
                    if worker == 0 {
                        self.tell_trouble("waiting for a job", &error, pause);
                    }
                    self.orders.pause(pause);
                }
            }
            self.orders.give_leave_back();
        }
    }

    fn do_job(&self, link: &mut Link<'_>, job: &Leased) {
        let started = Instant::now();
        let mut heart = Heart::of(job);
        let ended = process::run(self.command, job, self.orders, heart.interval, || {
            heart.beat(link, job, self.progress)
        });
        let ended_by_itself = ended.as_ref().is_ok_and(|ended| ended.status.code().is_some());
        if self.orders.is_killed() && !ended_by_itself {
            // Whoever stopped this worker did not judge the job: it goes to another one when its
            // lease ends.
            return;
        }
        let (success, result, exit) = match &ended {
            Ok(ended) => (ended.status.success(), ended.output.clone(), exit_of(ended)),
            Err(error) => {
                let text = format!("cannot run the command: {error}");
                self.orders.fail(anyhow!("{text}; job {} failed for it", job.id));
                (false, Bytes::from(text), "not started".to_owned())
            }
        };
        self.orders.count(success);
        if !success && !self.json {
            let queue = QueueName::of(job.queue.clone());
            self.progress.tell(format_args!("job {} of {queue} failed: {exit}", job.id));
        }
        let is_delivered = self.deliver(link, job, success, &result);
        self.progress.advance(1);
        if self.json {
            let line = json!({
                "id": job.id,
                "queue": String::from_utf8_lossy(&job.queue),
                "success": success,
                "exit_code": ended.as_ref().ok().and_then(|ended| ended.status.code()),
                "signal": ended.as_ref().ok().and_then(|ended| ended.status.signal()),
                "result_bytes": result.len(),
                "result_cut": ended.is_ok_and(|ended| ended.is_cut),
                "delivered": is_delivered,
                "duration_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            });
            self.print(&line);
        }
    }

    fn print(&self, line: &Value) {
        let printed = self.progress.aside(|| write_line(&mut std::io::stdout().lock(), line));
        if let Err(error) = printed {
            self.orders.fail(error.into());
        }
    }

    /// Brings a result to the server, however often that has to be tried. False when nobody wants
    /// it any more.
    fn deliver(&self, link: &mut Link<'_>, job: &Leased, success: bool, result: &Bytes) -> bool {
        let mut backoff = Backoff::new();
        let mut is_first = true;
        loop {
            match link.finish(job, success, result.clone()) {
                Ok(()) => return true,
                // The answer to an earlier try was lost on its way.
                Err(AskError::Finished) if !is_first => return true,
                Err(AskError::NotFound) => {
                    self.tell_dropped(job, "it was deleted, or its time to live is over");
                    return false;
                }
                Err(AskError::Finished) => {
                    let why = "another worker finished it first: it took longer than its TTR";
                    self.tell_dropped(job, why);
                    return false;
                }
                Err(AskError::LeaseEnded) => {
                    let why = "its lease has ended, and the job is given out again: it took \
                               longer than its TTR, or the server lost its power meanwhile";
                    self.tell_dropped(job, why);
                    return false;
                }
                Err(AskError::Refused { text, .. } | AskError::Unable(text)) => {
                    self.tell_dropped(job, &text);
                    return false;
                }
                Err(error) => {
                    is_first = false;
                    let pause = backoff.next();
                    let doing = format!("delivering the result of job {}", job.id);
                    self.tell_trouble(&doing, &error, pause);
                    thread::sleep(pause);
                }
            }
        }
    }

    fn tell_dropped(&self, job: &Leased, why: &str) {
        self.progress.tell(format_args!("the result of job {} is dropped: {why}", job.id));
    }

    fn tell_trouble(&self, doing: &str, error: &AskError, pause: Duration) {
        self.progress.tell(format_args!("{doing}: {error}; trying again in {pause:?}"));
    }
}

fn exit_of(ended: &Ended) -> String {
    match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// Keeps a lease while its command runs.
struct Heart {
    interval: Duration,
    ttr_ms: u32,
    /// The job is gone, or the server does not know how: there is nothing to keep.
    is_still: bool,
}

impl Heart {
    fn of(job: &Leased) -> Self {
        let ttr_ms = u32::try_from(job.ttr_ms).unwrap_or(u32::MAX);
        let interval = Duration::from_millis(job.ttr_ms / 3).max(BEAT_MIN);
        Self { interval, ttr_ms, is_still: false }
    }

    /// Extends the lease; says when to do it again.
    fn beat(&mut self, link: &mut Link<'_>, job: &Leased, progress: &Progress) -> Duration {
        if self.is_still {
            return self.interval;
        }
        match link.extend(job, self.ttr_ms) {
            Ok(()) => self.interval,
            Err(AskError::Refused { text, .. } | AskError::Unable(text)) => {
                self.is_still = true;
                let what = format!("the lease of job {} cannot be extended: {text}", job.id);
                progress.tell(what);
                self.interval
            }
            Err(AskError::NotFound | AskError::LeaseEnded | AskError::Finished) => {
                self.is_still = true;
                let why = "was deleted, or its lease is lost";
                progress.tell(format_args!("job {} {why}; its command runs on", job.id));
                self.interval
            }
            Err(_) => self.interval.min(BEAT_AGAIN),
        }
    }
}
