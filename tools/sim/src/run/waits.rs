//! The callers that wait and what they wait for, to be compared with the engine's answers.

use std::collections::{BTreeMap, BTreeSet};

use spindle_core::command::Lease;
use spindle_core::{JobId, Status};
use spindle_engine::Ticket;

use crate::model::Model;

/// What a ticket is for.
#[derive(Clone, Debug)]
pub enum WaitFor {
    /// A job.
    Lease(Box<Lease>),
    /// A job's end.
    Result { job: JobId, until_leased: bool },
    /// A batch's end.
    BatchEnd { batch: JobId },
    /// Reports of a job, and its end.
    Watch { job: JobId },
}

/// One wait.
#[derive(Clone, Debug)]
pub struct Wait {
    pub connection: u64,
    pub request: WaitFor,
    pub deadline_ms: u64,
}

impl Wait {
    /// Whether its time has passed. A wait that lasts until the job is leased has no limit while
    /// the job is leased.
    pub fn is_over(&self, model: &Model, now_ms: u64) -> bool {
        let counts = match self.request {
            WaitFor::Result { job, until_leased: true } => {
                model.job(job).is_none_or(|job| job.status() != Status::Leased)
            }
            _ => true,
        };
        counts && self.deadline_ms <= now_ms
    }
}

/// All waits, longest first, and foreground jobs that have none left.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    waits: BTreeMap<Ticket, Wait>,
    abandoned: BTreeSet<JobId>,
}

impl Waits {
    pub fn add(&mut self, ticket: Ticket, wait: Wait) {
        if let WaitFor::Result { job, .. } | WaitFor::Watch { job } = wait.request {
            self.keep(job);
        }
        self.waits.insert(ticket, wait);
    }

    /// A caller waits again for a job that was to go with its lease.
    pub fn keep(&mut self, id: JobId) {
        self.abandoned.remove(&id);
    }

    pub fn find(&self, ticket: Ticket) -> Option<&Wait> {
        self.waits.get(&ticket)
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Wait> {
        self.waits.remove(&ticket)
    }

    pub fn count(&self) -> usize {
        self.waits.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Wait)> {
        self.waits.iter().map(|(ticket, wait)| (*ticket, wait))
    }

    pub fn of_connection(&self, connection: u64) -> Vec<Ticket> {
        self.iter().filter(|(_, wait)| wait.connection == connection).map(|(at, _)| at).collect()
    }

    pub fn overdue(&self, model: &Model, now_ms: u64) -> Option<Ticket> {
        self.iter().find(|(_, wait)| wait.is_over(model, now_ms)).map(|(ticket, _)| ticket)
    }

    fn waits_for(&self, id: JobId) -> bool {
        self.waits.values().any(|wait| match wait.request {
            WaitFor::Result { job, .. } | WaitFor::Watch { job } => job == id,
            WaitFor::Lease(_) | WaitFor::BatchEnd { .. } => false,
        })
    }

    /// A caller stopped waiting: an unstarted foreground job goes with the last one. Returns
    /// whether the job is to go.
    pub fn stopped(&mut self, wait: &Wait, model: &Model) -> Option<JobId> {
        let (WaitFor::Result { job: id, .. } | WaitFor::Watch { job: id }) = wait.request else {
            return None;
        };
        let job = model.job(id).filter(|job| job.foreground)?;
        if self.waits_for(id) {
            return None;
        }
        if job.status() == Status::Leased {
            self.abandoned.insert(id);
            return None;
        }
        Some(id)
    }

    /// Abandoned jobs that no worker holds any more.
    pub fn abandoned_and_free(&mut self, model: &Model) -> Vec<JobId> {
        self.abandoned.retain(|id| model.job(*id).is_some());
        let free = |id: &&JobId| model.job(**id).is_some_and(|job| job.lease.is_none());
        let free: Vec<JobId> = self.abandoned.iter().filter(free).copied().collect();
        for id in &free {
            self.abandoned.remove(id);
        }
        free
    }
}
