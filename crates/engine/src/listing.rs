//! Lists for people who watch a server: queues with their numbers, unfinished jobs, and what is
//! done to whole queues. A list is a walk in steps, each a short hold of the lock: what changes
//! meanwhile may be missed or seen twice, so none of it waits for the log.

use bytes::Bytes;
use spindle_core::job::{Cause, Key, Origin, Status};
use spindle_core::queue::QueueSettings;
use spindle_core::state::QueueListing;
use spindle_core::{Command, Found, JobId, State};

use crate::door::Gate;
use crate::engine::{Engine, Refused};

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
    pub fn queue_lines(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        by_priority: bool,
    ) -> Vec<QueueLine> {
        let inner = self.enter();
        let listed = inner.state.queues_from(after.unwrap_or_default(), after.is_some());
        listed.take(limit).map(|queue| line_of(&inner.state, queue, by_priority)).collect()
    }

    /// One queue's numbers; none if there is no such queue.
    pub fn queue_line(&self, name: &[u8]) -> Option<QueueLine> {
        let inner = self.enter();
        let queue = inner.state.queues_from(name, false).next()?;
        (queue.name == name).then(|| line_of(&inner.state, queue, false))
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

    /// The first unfinished job with one of these keys, made of the names of the queues behind
    /// `after`: for names that count in one queue and are asked for in all. Returns the job with
    /// what an answer must wait for, or where the next step begins; neither at the end.
    pub fn find_in_queues(
        &self,
        after: Option<&[u8]>,
        key_of: impl Fn(&Bytes) -> Key,
    ) -> FoundInQueues {
        let inner = self.enter();
        let listed = inner.state.queues_from(after.unwrap_or_default(), after.is_some());
        let mut last = None;
        for (looked_at, queue) in listed.enumerate() {
            if looked_at == JOBS_PER_STEP {
                return FoundInQueues::Further(last.unwrap_or_default());
            }
            if let Some(Found::Live(job)) = inner.state.job_by_key(&key_of(&queue.name)) {
                return FoundInQueues::Job(job.id());
            }
            last = Some(queue.name);
        }
        FoundInQueues::Nothing(inner.tail())
    }

    /// Changes a queue's settings, whatever else is set for it.
    pub fn change_queue(
        &self,
        name: &Bytes,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<Gate, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        let mut settings =
            inner.state.queue(name).map(|queue| queue.settings().clone()).unwrap_or_default();
        let before = settings.clone();
        change(&mut settings);
        if settings == before {
            return Ok(inner.tail());
        }
        // A copy: the name may be a small part of a large read.
        let name = Bytes::copy_from_slice(name);
        match inner.run(&Command::SetQueue { name, settings }) {
            Ok(()) => Ok(inner.own_gate()),
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

/// What [`Engine::find_in_queues`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundInQueues {
    /// This job.
    Job(JobId),
    /// None so far: go on behind this queue.
    Further(Bytes),
    /// None; an answer must wait for the gate.
    Nothing(Gate),
}

fn line_of(state: &State, queue: QueueListing, by_priority: bool) -> QueueLine {
    let count = |status: Status| queue.counts[status as usize];
    let leased = count(Status::Leased);
    let waiting = if by_priority {
        waiting_by_priority(state, &queue.name, count(Status::Ready))
    } else {
        [0; 3]
    };
    let total = count(Status::Scheduled) + count(Status::Ready) + leased;
    QueueLine { name: queue.name, total, leased, waiting }
}

/// Ready and scheduled jobs above, at and below priority 0. The ready ones are in the order of
/// their priority, so only the two borders are looked for.
fn waiting_by_priority(state: &State, queue: &[u8], ready: usize) -> [usize; 3] {
    let border = |is_before: &dyn Fn(i64) -> bool| {
        let (mut low, mut high) = (0, ready);
        while low < high {
            let middle = low + (high - low) / 2;
            let before =
                state.ready_jobs(queue, middle).next().is_some_and(|job| is_before(job.priority()));
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    let above = border(&|priority| priority > 0);
    let not_below = border(&|priority| priority >= 0);
    let mut waiting = [above, not_below - above, ready - not_below];
    for job in state.scheduled_jobs(queue) {
        waiting[match job.priority() {
            1.. => 0,
            0 => 1,
            _ => 2,
        }] += 1;
    }
    waiting
}
