//! Lists for people who watch a server: queues with their numbers, unfinished jobs, and what is
//! done to whole queues. A list is a walk in steps, each a short hold of the lock: what changes
//! meanwhile may be missed or seen twice, so none of it waits for the log.

use bytes::Bytes;
use parking_lot::MutexGuard;
use spindle_core::job::{Cause, Key, Origin, Status};
use spindle_core::queue::QueueSettings;
use spindle_core::state::{Queue, QueueListing};
use spindle_core::{Command, Found, JobId, Rejection, State};

use crate::door::Gate;
use crate::engine::{Engine, Refused};
use crate::inner::Inner;

/// Jobs looked at in one hold of the lock.
const JOBS_PER_STEP: usize = 512;
/// Jobs deleted in one hold of the lock.
const DELETES_PER_STEP: usize = 256;

/// A queue's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLine {
    /// Its name.
    pub name: Bytes,
    /// Jobs scheduled, ready and leased.
    pub total: usize,
    /// Jobs leased.
    pub leased: usize,
    /// Jobs scheduled and ready with a priority above 0, of 0, and below 0.
    pub waiting: [usize; 3],
}

/// An unfinished job, scheduled, ready or leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// Its number.
    pub id: JobId,
    /// Whether a worker has it.
    pub leased: bool,
    /// How often it was given back.
    pub retries: u32,
    /// Lives in memory only.
    pub foreground: bool,
    /// A foreground job that runs although nobody waits for it any more.
    pub abandoned: bool,
    /// The door it came through.
    pub origin: Origin,
    /// Its names besides Workq's.
    pub keys: Vec<Key>,
}

impl Engine {
    /// Queues in order of their names, those behind `after`.
    pub fn queue_lines(&self, after: Option<&[u8]>, limit: usize) -> Vec<QueueLine> {
        let inner = self.enter();
        let listed = inner.state.queues_from(after.unwrap_or_default(), after.is_some());
        listed.take(limit).map(|queue| line_of(&inner.state, queue)).collect()
    }

    /// One queue's numbers; none if there is no such queue.
    pub fn queue_line(&self, name: &[u8]) -> Option<QueueLine> {
        let inner = self.enter();
        let queue = inner.state.queues_from(name, false).next()?;
        (queue.name == name).then(|| line_of(&inner.state, queue))
    }

    /// Unfinished jobs by number from this one on, as far as one step sees, and where the next step
    /// begins; none at the end.
    pub fn job_lines(&self, from: JobId) -> (Vec<JobLine>, Option<JobId>) {
        let inner = self.enter();
        let mut lines = Vec::new();
        let mut next = None;
        for (looked_at, found) in inner.state.jobs_from(from).enumerate() {
            if looked_at == JOBS_PER_STEP {
                next = Some(found.id());
                break;
            }
            let Found::Live(job) = found else { continue };
            if job.status() == Status::Parked {
                continue;
            }
            let leased = job.status() == Status::Leased;
            lines.push(JobLine {
                id: job.id(),
                leased,
                retries: job.attempts().saturating_sub(u32::from(leased)),
                foreground: job.is_foreground(),
                abandoned: inner.abandoned.contains(&job.id()),
                origin: job.origin(),
                keys: job.keys().to_vec(),
            });
        }
        (lines, next)
    }

    /// The unfinished job with the first key of a door that begins like this, and what an answer
    /// must wait for that names none.
    pub fn find_by_key_prefix(&self, namespace: Origin, prefix: &[u8]) -> (Option<JobId>, Gate) {
        let inner = self.enter();
        let found = inner.state.job_by_key_prefix(namespace, prefix);
        (found.map(|found| found.id()), inner.tail())
    }

    /// Changes a queue's settings, whatever else is set for it. A queue that is not there comes to
    /// be by it.
    pub fn change_queue(
        &self,
        name: &Bytes,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<Gate, Refused> {
        self.change_queue_seen(name, |_, settings| change(settings))
    }

    /// As [`Engine::change_queue`], but a queue that is not there is refused as not found. One that
    /// only has waiting workers is there.
    pub fn change_queue_there(
        &self,
        name: &Bytes,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<Gate, Refused> {
        let inner = self.enter();
        if inner.listing(name).is_none() {
            return Err(Refused::Rejected(Rejection::NotFound, inner.tail()));
        }
        self.change_queue_locked(inner, name, |_, settings| change(settings))
    }

    /// As [`Engine::change_queue`]; `change` hears first whether the queue is there: whether it has
    /// jobs, settings, or clients that wait for it.
    pub fn change_queue_seen(
        &self,
        name: &Bytes,
        change: impl FnOnce(bool, &mut QueueSettings),
    ) -> Result<Gate, Refused> {
        let inner = self.enter();
        self.change_queue_locked(inner, name, change)
    }

    fn change_queue_locked(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        name: &Bytes,
        change: impl FnOnce(bool, &mut QueueSettings),
    ) -> Result<Gate, Refused> {
        self.check_room(&inner)?;
        let is_there = inner.listing(name).is_some();
        let mut settings =
            inner.state.queue(name).map(|queue| queue.settings().clone()).unwrap_or_default();
        let before = settings.clone();
        change(is_there, &mut settings);
        if settings == before {
            return Ok(inner.tail());
        }
        // A copy: the name may be a small part of a large read.
        let name = Bytes::copy_from_slice(name);
        match inner.run(&Command::SetQueue { name, settings }) {
            Ok(()) => {
                self.wake_relabelling(&inner);
                Ok(inner.own_gate())
            }
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// Deletes some of a queue's ready and scheduled jobs. Returns how many: ask again until it is
    /// none.
    pub fn empty_queue(&self, name: &[u8]) -> Result<(usize, Gate), Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        let ready = inner.state.ready_jobs(name, 0);
        let ids: Vec<JobId> = ready
            .chain(inner.state.scheduled_jobs(name))
            .take(DELETES_PER_STEP)
            .map(|job| job.id())
            .collect();
        for id in &ids {
            inner.run(&Command::Delete { id: *id, cause: Cause::Deleted }).ok();
        }
        Ok((ids.len(), inner.own_gate()))
    }
}

fn line_of(state: &State, queue: QueueListing) -> QueueLine {
    let count = |status: Status| queue.counts[status as usize];
    let leased = count(Status::Leased);
    let total = count(Status::Scheduled) + count(Status::Ready) + leased;
    let waiting = state.queue(&queue.name).map_or([0; 3], Queue::waiting);
    QueueLine { name: queue.name, total, leased, waiting }
}
