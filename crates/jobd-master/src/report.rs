//! A worker's status, requested for viewers. However many viewers there are, a worker has one such
//! request at a time, and at most one a second.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::value::RawValue;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    link::{Link, RequestError},
    pass_on::PATIENCE,
    worker_status::WorkerStatus,
};

/// How old an answer may be for a viewer.
const FRESH: Duration = Duration::from_secs(1);
/// How long a viewer waits for an answer. The request itself waits longer: [`PATIENCE`].
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// A longer answer is not kept. One of a sound worker has some 60 bytes for each target.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What is known of one worker.
#[derive(Debug, Default)]
pub(crate) struct Report(watch::Sender<Known>);

/// When a request was sent, and after how many changes.
type Asked = (Instant, u64);

#[derive(Debug, Default)]
struct Known {
    /// How often the worker was told to change something: what it said before is old.
    changes: u64,
    /// The request under way.
    asked: Option<Asked>,
    /// The request that was answered last, or not answered at all.
    answered: Option<Asked>,
    /// The last status that it told, and when.
    status: Option<(Arc<WorkerStatus>, SystemTime)>,
    /// Why the request that was answered last brought none.
    problem: Option<String>,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        let is_recent = |(at, changes): Asked| changes == self.changes && now < at + FRESH;
        self.answered.is_some_and(is_recent)
    }

    /// Whether a request is under way whose answer will be up to date.
    fn is_asked(&self) -> bool {
        self.asked.is_some_and(|(_, changes)| changes == self.changes)
    }
}

/// The last status that a worker told.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) status: Option<(Arc<WorkerStatus>, SystemTime)>,
    /// Why there is none that is new.
    pub(crate) problem: Option<String>,
}

impl Report {
    /// The worker is told to change something.
    pub(crate) fn changes(&self) {
        self.0.send_modify(|known| known.changes += 1);
    }

    /// Asks the worker over its link, unless its last answer is fresh or a request is under way. The
    /// future waits for the answer, if there is one to wait for: a worker that did not answer the
    /// last time is asked again, but not waited for. `runtime` drives the link.
    pub(crate) fn ask(self: &Arc<Self>, link: &Link, runtime: &Handle) -> impl Future<Output = ()> {
        let now = Instant::now();
        let (mut is_new, mut waits_until) = (None, None);
        self.0.send_if_modified(|known| {
            if known.is_fresh(now) {
                return false;
            }
            if !known.is_asked() {
                let asked = (now, known.changes);
                (known.asked, is_new) = (Some(asked), Some(asked));
            }
            let asked = known.asked.filter(|_| known.problem.is_none());
            waits_until = asked.map(|(at, _)| at + LOOK_PATIENCE);
            is_new.is_some()
        });
        if let Some(asked) = is_new {
            // Sent here and not in the task, so that an order that is given next is sent after it.
            let answer = link.request_within(PATIENCE, "status", None);
            let report = Arc::clone(self);
            runtime.spawn(async move { report.answered(asked, answer.await) });
        }
        let mut known = self.0.subscribe();
        async move {
            let Some(until) = waits_until else { return };
            let answered = known.wait_for(|known| known.asked.is_none());
            // If the time runs out, what is known by then is shown.
            let _ = timeout_at(until, answered).await;
        }
    }

    fn answered(&self, asked: Asked, answer: Result<Box<RawValue>, RequestError>) {
        let read = read(answer);
        self.0.send_modify(|known| {
            if known.asked == Some(asked) {
                known.asked = None;
            }
            if known.answered.is_some_and(|last| last > asked) {
                return;
            }
            known.answered = Some(asked);
            match read {
                Ok(status) => {
                    known.status = Some((Arc::new(status), SystemTime::now()));
                    known.problem = None;
                }
                Err(problem) => known.problem = Some(problem),
            }
        });
    }

    /// What is known now.
    pub(crate) fn reported(&self) -> Reported {
        let known = self.0.borrow();
        let late = || {
            let is_late = known.asked.is_some_and(|(at, _)| at.elapsed() >= LOOK_PATIENCE);
            is_late.then(|| "no answer yet".to_owned())
        };
        Reported { status: known.status.clone(), problem: known.problem.clone().or_else(late) }
    }
}

fn read(answer: Result<Box<RawValue>, RequestError>) -> Result<WorkerStatus, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.get().len() > ANSWER_BYTES_MAX {
        return Err(format!("its status has {} bytes, too many to read", answer.get().len()));
    }
    serde_json::from_str(answer.get())
        .map_err(|error| format!("its status cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_up_to_a_mebibyte_and_one_byte_more_is_not() {
        let answer = |len: usize| {
            let status = r#"{"targets":{},"jobPromisesCount":7,"memoryUsage":{"rss":0,"heapTotal":0,
                "heapUsed":0,"external":0,"arrayBuffers":0}"#;
            let padding = " ".repeat(len - status.len() - 1);
            Ok(RawValue::from_string(format!("{status}{padding}}}")).expect("it is JSON"))
        };
        let status = read(answer(ANSWER_BYTES_MAX)).expect("it is as long as it may be");
        assert_eq!(status.job_promises_count, 7);
        let refused = read(answer(ANSWER_BYTES_MAX + 1)).expect_err("it is too long");
        assert_eq!(refused, "its status has 1048577 bytes, too many to read");
    }
}
