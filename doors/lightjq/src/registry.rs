//! Which workers are registered, and the jobs each has. It uses no sockets, no clock and no engine:
//! times are arguments (of the engine's steady clock), and the leases that have to end are returned
//! as lists of jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use spindle_access::{Login, Role, Target as About};
use spindle_core::JobId;
use tokio::sync::watch;

use crate::target::Target;
use crate::worker_id::WorkerId;

/// The most workers at once. Each may keep a connection open, and the server has no more
/// connections than this anyway.
const WORKERS_MAX: usize = 10_000;

/// What a worker registers with.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub name: String,
    pub max_jobs: u32,
    /// Where jobs are pushed to.
    pub target: Option<Target>,
    /// The job names it takes; `None` for all that LightJQ's pushers use.
    pub names: Option<Vec<Bytes>>,
    /// The client that registered it: jobs are pushed as long as that client may have them.
    pub login: Login,
}

#[derive(Debug)]
struct Worker {
    profile: Profile,
    registered_ms: u64,
    /// When it last sent a request or had something to do.
    seen_ms: u64,
    /// Slots that wait for a job.
    asking: u32,
    held: BTreeMap<JobId, Bytes>,
    /// Names it has answered 404 for.
    refused: BTreeSet<Bytes>,
    failing: Option<Failing>,
    /// A task pushes jobs to it.
    is_served: bool,
    /// Changes when the set of jobs it may be given does: a request that waits for a job has to ask
    /// again.
    changed: watch::Sender<()>,
    /// Changes when a slot becomes free. Only requests without a slot listen; otherwise requests
    /// that wait side by side would wake each other without end.
    freed: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    since_ms: u64,
    times: u32,
}

impl Worker {
    fn is_full(&self) -> bool {
        u64::from(self.asking) + self.held.len() as u64 >= u64::from(self.profile.max_jobs)
    }

    /// Makes a change that may free a slot, and wakes those that wait for one.
    fn free(&mut self, now_ms: u64, change: impl FnOnce(&mut Worker)) {
        let was_full = self.is_full();
        change(self);
        self.seen_ms = now_ms;
        if was_full {
            self.freed.send_replace(());
        }
    }
}

/// A worker as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerLine {
    /// Its worker-id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Most jobs it has at once.
    pub max_jobs: u32,
    /// Where jobs are pushed to; none for one that asks.
    pub url: Option<String>,
    /// The job names it takes; none for all.
    pub names: Option<Vec<Bytes>>,
    /// Job names it has answered 404 for.
    pub refused: Vec<Bytes>,
    /// The jobs it has, with their names.
    pub jobs: Vec<(JobId, Bytes)>,
    /// When it came, by the engine's steady clock, as the other times.
    pub registered_ms: u64,
    /// When it was last heard from.
    pub seen_ms: u64,
    /// Since when pushes fail.
    pub failing_since_ms: Option<u64>,
}

/// A worker that is gone, and the jobs it leaves behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemovedWorker {
    pub id: WorkerId,
    pub name: String,
    pub jobs: Vec<JobId>,
}

/// What became of a registration.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Nobody pushes to it yet: the caller has to.
    pub to_serve: bool,
    /// A worker of the same client with the same address: the program that listens there now knows
    /// nothing of its jobs.
    pub replaced: Option<RemovedWorker>,
}

/// A free slot, and what may go into it.
#[derive(Clone, Debug)]
pub(crate) struct FreeSlot {
    pub signature: Bytes,
    pub names: Option<Vec<Bytes>>,
    pub refused: BTreeSet<Bytes>,
}

/// All workers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workers: HashMap<WorkerId, Worker>,
}

impl Registry {
    /// Registers a worker, or registers it anew: then it keeps its jobs. None: there are too many.
    pub fn enter(&mut self, id: WorkerId, profile: Profile, now_ms: u64) -> Option<Entered> {
        let replaced =
            self.at(profile.target.as_ref(), &profile.login).filter(|other| *other != id);
        if self.workers.len() >= WORKERS_MAX && replaced.is_none() && !self.has(id) {
            return None;
        }
        let replaced = replaced.and_then(|other| self.remove(other));
        let worker = self.workers.entry(id).or_insert_with(|| Worker {
            profile: profile.clone(),
            registered_ms: now_ms,
            seen_ms: now_ms,
            asking: 0,
            held: BTreeMap::new(),
            refused: BTreeSet::new(),
            failing: None,
            is_served: false,
            changed: watch::Sender::new(()),
            freed: watch::Sender::new(()),
        });
        worker.profile = profile;
        worker.seen_ms = now_ms;
        worker.refused.clear();
        worker.failing = None;
        let to_serve = worker.profile.target.is_some() && !worker.is_served;
        worker.is_served |= to_serve;
        worker.changed.send_replace(());
        worker.freed.send_replace(());
        Some(Entered { to_serve, replaced })
    }

    /// The worker with this address that a client may act for. Another client's stays: an address
    /// is no secret, and programs behind one proxy have the same.
    fn at(&mut self, target: Option<&Target>, login: &Login) -> Option<WorkerId> {
        let target = target?;
        let there = |worker: &Worker| worker.profile.target.as_ref() == Some(target);
        let there: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| there(worker)).map(|(id, _)| *id).collect();
        there.into_iter().find(|id| self.may_speak_for(*id, login))
    }

    /// Whether a worker is registered.
    pub fn has(&self, id: WorkerId) -> bool {
        self.workers.contains_key(&id)
    }

    /// Who registered a worker.
    pub fn login(&self, id: WorkerId) -> Option<Login> {
        self.workers.get(&id).map(|worker| worker.profile.login.clone())
    }

    /// Whether a client may act for a worker: the client that registered it may, and others may
    /// once that client is no longer let in. The ids of workers are shown with jobs, so an id
    /// proves nothing.
    pub fn may_speak_for(&mut self, id: WorkerId, login: &Login) -> bool {
        self.workers.get_mut(&id).is_none_or(|worker| {
            let registered = &mut worker.profile.login;
            registered.name() == login.name()
                || registered.authorize(Role::Work, About::Server).is_err()
        })
    }

    /// Notes that a worker was heard of.
    pub fn seen(&mut self, id: WorkerId, now_ms: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.seen_ms = now_ms;
        }
    }

    /// Removes a worker. Those that wait for a slot of it are woken.
    pub fn remove(&mut self, id: WorkerId) -> Option<RemovedWorker> {
        let worker = self.workers.remove(&id)?;
        let jobs = worker.held.into_keys().collect();
        Some(RemovedWorker { id, name: worker.profile.name, jobs })
    }

    /// Channels that report changes of a worker and free slots; both end when the worker is gone.
    pub fn watch(&self, id: WorkerId) -> Option<[watch::Receiver<()>; 2]> {
        let worker = self.workers.get(&id)?;
        Some([worker.changed.subscribe(), worker.freed.subscribe()])
    }

    /// Takes a slot, if one is free. It ends with [`Registry::hold`] or [`Registry::give_back`].
    pub fn reserve(&mut self, id: WorkerId) -> Option<FreeSlot> {
        let worker = self.workers.get_mut(&id).filter(|worker| !worker.is_full())?;
        worker.asking += 1;
        let names = worker.profile.names.clone();
        let signature = id.signature(&worker.profile.name);
        Some(FreeSlot { signature, names, refused: worker.refused.clone() })
    }

    /// Nothing came for a slot.
    pub fn give_back(&mut self, id: WorkerId, now_ms: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.free(now_ms, |worker| worker.asking = worker.asking.saturating_sub(1));
        }
    }

    /// A job came for a slot. False: the worker has gone, or has refused such jobs meanwhile; the
    /// slot is still to be given back.
    pub fn hold(&mut self, id: WorkerId, job: JobId, name: &Bytes) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return false };
        if worker.refused.contains(name) {
            return false;
        }
        worker.asking = worker.asking.saturating_sub(1);
        worker.held.insert(job, Bytes::copy_from_slice(name));
        true
    }

    /// Removes a job that a worker has no more.
    pub fn let_go(&mut self, id: WorkerId, job: JobId, now_ms: u64) {
        if let Some(worker) = self.workers.get_mut(&id)
            && worker.held.contains_key(&job)
        {
            worker.free(now_ms, |worker| drop(worker.held.remove(&job)));
        }
    }

    /// A worker takes no jobs of this name.
    pub fn refuse(&mut self, id: WorkerId, name: &Bytes) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.refused.insert(Bytes::copy_from_slice(name));
            worker.failing = None;
            worker.changed.send_replace(());
        }
    }

    /// Notes that a push was answered.
    pub fn reached(&mut self, id: WorkerId, now_ms: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.failing = None;
            worker.seen_ms = now_ms;
        }
    }

    /// A push failed. True when they have failed for so long that the worker is to be given up.
    pub fn missed(&mut self, id: WorkerId, now_ms: u64, drop_after_ms: u64) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return false };
        let failing = worker.failing.get_or_insert(Failing { since_ms: now_ms, times: 0 });
        failing.times = failing.times.saturating_add(1);
        now_ms.saturating_sub(failing.since_ms) >= drop_after_ms
    }

    /// How many pushes have failed one after the other.
    pub fn misses(&self, id: WorkerId) -> u32 {
        let failing = self.workers.get(&id).and_then(|worker| worker.failing);
        failing.map_or(0, |failing| failing.times)
    }

    /// Where jobs are pushed to. `None` if jobs are not pushed to it any more: the pushing task
    /// must end.
    pub fn target(&mut self, id: WorkerId) -> Option<Target> {
        let worker = self.workers.get_mut(&id)?;
        worker.is_served = worker.profile.target.is_some();
        worker.profile.target.clone()
    }

    /// Workers that poll for jobs, have none, and have not polled for this long.
    pub fn silent(&self, now_ms: u64, lost_after_ms: u64) -> Vec<WorkerId> {
        let silent = |worker: &Worker| {
            worker.profile.target.is_none()
                && worker.asking == 0
                && worker.held.is_empty()
                && now_ms.saturating_sub(worker.seen_ms) >= lost_after_ms
        };
        let silent = self.workers.iter().filter(|(_, worker)| silent(worker));
        silent.map(|(id, _)| *id).collect()
    }

    /// The workers that have jobs, each with its jobs.
    pub fn holders(&self) -> Vec<(WorkerId, Vec<JobId>)> {
        let holders = self.workers.iter().filter(|(_, worker)| !worker.held.is_empty());
        holders.map(|(id, worker)| (*id, worker.held.keys().copied().collect())).collect()
    }

    /// All workers, in the order they came.
    pub fn lines(&self) -> Vec<WorkerLine> {
        let line = |(id, worker): (&WorkerId, &Worker)| WorkerLine {
            id: id.to_string(),
            name: worker.profile.name.clone(),
            max_jobs: worker.profile.max_jobs,
            url: worker.profile.target.as_ref().map(|target| target.url().to_owned()),
            names: worker.profile.names.clone(),
            refused: worker.refused.iter().cloned().collect(),
            jobs: worker.held.iter().map(|(job, name)| (*job, name.clone())).collect(),
            registered_ms: worker.registered_ms,
            seen_ms: worker.seen_ms,
            failing_since_ms: worker.failing.map(|failing| failing.since_ms),
        };
        let mut lines: Vec<WorkerLine> = self.workers.iter().map(line).collect();
        lines.sort_by(|a, b| (a.registered_ms, &a.id).cmp(&(b.registered_ms, &b.id)));
        lines
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
