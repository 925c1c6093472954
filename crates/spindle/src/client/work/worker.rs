//! One worker: takes a job, has the command run on it, delivers the result.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    heartbeat::{Heartbeat, Noticed},
    link::Link,
    orders::Orders,
    outage::Outage,
    process::{self, Ended},
    report::{NOT_STARTED, Outcome, failure_of},
};
use crate::{
    client::{
        backoff::Backoff,
        progress::Progress,
        server::Server,
        session::{AskError, Leased, Lost, Report},
    },
    output::{id_json, write_line},
    quantity::Written,
    queue_name::QueueName,
};

/// How long one `lease` waits: short enough that a dead server is noticed.
const LEASE_WAIT_MS: u32 = 20_000;

/// What all workers do.
pub struct Work<'a> {
    /// The queues to take jobs from.
    pub queues: &'a [QueueName],
    /// What to run.
    pub command: &'a [OsString],
    /// Whether to stop when the queues are empty.
    pub drain: bool,
    /// How long a command may take to end when its job is lost.
    pub kill_after: Duration,
    /// Whether it runs on instead.
    pub keep_running: bool,
    /// Whether to print what became of each job.
    pub json: bool,
    /// Where the jobs are.
    pub server: &'a Server,
    /// What the workers share.
    pub orders: &'a Orders,
    /// What is shown meanwhile.
    pub progress: &'a Progress,
    /// Whether the server is away.
    pub outage: &'a Outage<'a>,
}

impl Work<'_> {
    /// Works until there is nothing more to do.
    pub fn go(&self, worker: usize) {
        let mut link = Link::new(worker, self.server, self.orders);
        let mut backoff = Backoff::new();
        while self.orders.reserve_job() {
            let wait_timeout_ms = if self.drain { 0 } else { LEASE_WAIT_MS };
            let answer = link.lease(self.queues, wait_timeout_ms);
            if answer.is_ok() {
                backoff = Backoff::new();
                self.outage.is_over();
            }
            match answer {
                Ok(Some(job)) => {
                    self.do_job(&mut link, &job);
                    continue;
                }
                Ok(None) if self.drain => {
                    self.orders.give_back_job();
                    return;
                }
                Ok(None) => {}
                Err(error @ (AskError::Refused { .. } | AskError::Unable(_))) => {
                    self.orders.fail(anyhow!("the server refused to give a job: {error}"));
                }
                Err(error) => {
                    self.outage.goes_on(&error);
                    self.orders.pause(backoff.next());
                }
            }
            self.orders.give_back_job();
        }
    }

    fn do_job(&self, link: &mut Link<'_>, job: &Leased) {
        let started = Instant::now();
        let mut heartbeat = Heartbeat::of(job, self.keep_running);
        let interval = heartbeat.interval();
        let beat = || heartbeat.beat(link, job, |noticed| self.print_noticed(job, noticed));
        let ended = process::run(self.command, job, self.orders, self.kill_after, interval, beat);
        let ended_by_itself = ended.as_ref().is_ok_and(|ended| ended.status.code().is_some());
        if self.orders.is_killed() && !ended_by_itself {
            // The command was killed with this worker, so the job has no outcome: another worker
            // gets it when its lease ends.
            return;
        }
        if let Err(error) = &ended {
            let message = format!("cannot run the command: {error}; job {} failed for it", job.id);
            self.orders.fail(anyhow!(message));
        }
        let report = report_of(&ended);
        let outcome = match heartbeat.lost() {
            Some(lost) if !self.keep_running => Outcome::Lost(lost),
            noticed => self.deliver(link, job, &report, noticed),
        };
        self.orders.count(&outcome);
        self.progress.advance(1);
        if self.json {
            self.print(&line(job, &outcome, ended.as_ref().ok(), &report.result, started));
            return;
        }
        let was_killed = ended.is_ok_and(|ended| ended.was_killed);
        self.print_end(job, &outcome, &report, heartbeat.lost(), was_killed);
    }

    fn print(&self, line: &Value) {
        let printed = self.progress.aside(|| write_line(&mut io::stdout().lock(), line));
        if let Err(error) = printed {
            self.orders.fail(error.into());
        }
    }

    /// Delivers a result to the server, with as many tries as that takes. `noticed` is why the job
    /// was lost already while the command ran.
    fn deliver(
        &self,
        link: &mut Link<'_>,
        job: &Leased,
        report: &Report,
        noticed: Option<Lost>,
    ) -> Outcome {
        let mut backoff = Backoff::new();
        let mut may_have_arrived = false;
        let outcome = if report.success { Outcome::Completed } else { Outcome::Failed };
        let outcome = loop {
            match link.finish(job, report) {
                Ok(()) => break outcome,
                // The answer to an earlier try was lost on its way.
                Err(AskError::LeaseLost(Lost::Finished | Lost::Over)) if may_have_arrived => {
                    break outcome;
                }
                Err(AskError::NotFound) => break Outcome::Lost(Lost::Deleted),
                Err(AskError::LeaseLost(Lost::Unknown)) => {
                    break Outcome::Lost(noticed.unwrap_or(Lost::Unknown));
                }
                Err(AskError::LeaseLost(lost)) => break Outcome::Lost(lost),
                Err(AskError::Refused { text, .. } | AskError::Unable(text)) => {
                    break Outcome::Refused(text);
                }
                Err(error) => {
                    may_have_arrived |= !matches!(error, AskError::Failed(_));
                    self.outage.goes_on(&error);
                    thread::sleep(backoff.next());
                }
            }
        };
        self.outage.is_over();
        outcome
    }

    fn print_noticed(&self, job: &Leased, noticed: &Noticed) {
        let name = name(job);
        match noticed {
            Noticed::CannotExtend(text) => {
                self.progress.print(format_args!("the lease of {name} cannot be extended: {text}"));
            }
            Noticed::Lost(_) if self.json => {}
            Noticed::Lost(lost) => {
                let then = if self.keep_running { "runs on" } else { "is ended" };
                self.progress
                    .print(format_args!("{name} {}; its command {then}", lost.description()));
            }
        }
    }

    /// Tells what did not go well.
    fn print_end(
        &self,
        job: &Leased,
        outcome: &Outcome,
        report: &Report,
        noticed: Option<Lost>,
        was_killed: bool,
    ) {
        let name = name(job);
        match outcome {
            Outcome::Completed => {}
            Outcome::Failed => {
                self.progress.print(format_args!("{name} failed: {}", report.message));
            }
            Outcome::Lost(_) if was_killed && !self.kill_after.is_zero() => {
                let within =
                    Written(u64::try_from(self.kill_after.as_millis()).unwrap_or(u64::MAX));
                let message =
                    format_args!("{name}: its command did not end in {within} and was killed");
                self.progress.print(message);
            }
            // That was printed when it was noticed.
            Outcome::Lost(_) if noticed.is_some() && !self.keep_running => {}
            Outcome::Lost(lost) => {
                self.progress
                    .print(format_args!("{name} {}; its result is dropped", lost.description()));
            }
            Outcome::Refused(why) => {
                self.progress.print(format_args!("{name}: its result is dropped: {why}"));
            }
        }
    }
}

/// A job's name for people.
fn name(job: &Leased) -> String {
    format!("job {} of {}", job.id, QueueName::of(job.queue.clone()))
}

/// The report of a command's end, for the server.
fn report_of(ended: &io::Result<Ended>) -> Report {
    match ended {
        Ok(ended) => {
            let (success, result) = (ended.status.success(), ended.printed.output.clone());
            if success {
                return Report { success, result, ..Report::default() };
            }
            let (code, message) = failure_of(ended.status);
            Report { success, result, code, message, error: ended.printed.error.clone() }
        }
        Err(error) => {
            let message = format!("cannot run the command: {error}");
            let result = Bytes::from(message.clone());
            Report { result, code: NOT_STARTED.to_owned(), message, ..Report::default() }
        }
    }
}

/// What became of a job, as JSON for programs.
fn line(
    job: &Leased,
    outcome: &Outcome,
    ended: Option<&Ended>,
    result: &Bytes,
    started: Instant,
) -> Value {
    let mut line = json!({
        "id": id_json(&job.id),
        "attempt": job.attempt,
        "outcome": outcome.word(),
        "reason": outcome.reason(),
        "success": *outcome == Outcome::Completed,
        "exit_code": ended.and_then(|ended| ended.status.code()),
        "signal": ended.and_then(|ended| ended.status.signal()),
        "result_bytes": result.len(),
        "result_cut": ended.is_some_and(|ended| ended.printed.is_cut),
        "delivered": outcome.is_delivered(),
        "duration_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(object) = line.as_object_mut() {
        QueueName::of(job.queue.clone()).put(object, "queue");
    }
    line
}
