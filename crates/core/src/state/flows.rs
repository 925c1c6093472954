//! Which jobs wait for which, and which ended jobs have dependents that are not settled yet.
//!
//! All of it follows from the images of jobs. A fold may meet a job that waits before those that it
//! waits for, because compaction appends them in any order: so these entries are looked at again
//! whenever one of the jobs comes, ends or goes. Only a tick acts on it, when the fold is complete.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::batch::{Batch, Counted};
use crate::event::{BatchSet, BatchesGone, BlockerEnded, Event, Gone};
use crate::job::{JobId, OnDead, Status};

/// Which jobs wait for which.
#[derive(Debug, Clone, Default)]
pub(super) struct Flows {
    /// The job that is waited for, whether that is still waited for once it is dead, and the job
    /// that waits.
    waiting: BTreeSet<(u64, bool, u64)>,
    /// Jobs that have ended while dependents still wait for them, and whether they were done: a job
    /// may be gone before its dependents are settled. The first job here has a dependent to settle.
    ended: BTreeMap<u64, bool>,
}

impl Flows {
    /// The jobs that wait for a job: all, or only those that do not go on waiting for a dead one.
    fn dependents(&self, id: u64, all: bool) -> impl Iterator<Item = u64> + '_ {
        let dependents = self.waiting.range((id, false, 0)..=(id, all, u64::MAX));
        dependents.map(|(_, _, dependent)| *dependent)
    }
}

/// How a job that another one waits for stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// It may still be done.
    Open,
    /// It is done, or was done.
    Done,
    /// It failed for good, or was cancelled.
    Dead,
    /// It is not there any more, and was not known to be done.
    Gone,
}

impl State {
    pub(super) fn enter_blockers(&mut self, number: u32) {
        let State { jobs, flows, .. } = self;
        let job = &jobs.live[number];
        let Some(after) = job.after() else { return };
        let waits = after.on_dead() == OnDead::Wait;
        flows.waiting.extend(after.open.iter().map(|id| (*id, waits, job.id())));
    }

    pub(super) fn leave_blockers(&mut self, number: u32) {
        let State { jobs, flows, .. } = self;
        let job = &jobs.live[number];
        let Some(after) = job.after() else { return };
        let waits = after.on_dead() == OnDead::Wait;
        for id in &after.open {
            flows.waiting.remove(&(*id, waits, job.id()));
        }
    }

    pub(super) fn on_blocker_ended(&mut self, event: &BlockerEnded, at: Place) {
        let id = JobId(event.id);
        let Some(number) = self.find_live(id) else { return };
        self.leave_blockers(number);
        self.change(id, at, |job| {
            if let Some(after) = &mut job.options_mut().after {
                after.open.retain(|open| !event.ended.contains(open));
                after.cancelled_by = event.cancelled_by;
            }
            job.set_status(event.status());
            job.set_run_at(event.run_at_ms);
            job.set_rank(job.priority(), event.order);
        });
        self.enter_blockers(number);
    }

    /// A job that others wait for may have come, ended or gone, and so may one that waits.
    pub(super) fn note_blockers(&mut self, event: &Event) {
        if self.flows.waiting.is_empty() && self.flows.ended.is_empty() {
            return;
        }
        if self.is_kept_quiet(event) {
            // Its dependents go on waiting.
        } else if let Event::Gone(Gone { ids, .. }) | Event::BatchesGone(BatchesGone { ids }) =
            event
        {
            ids.iter().for_each(|id| self.note_blocker(*id));
        } else if let Event::BatchSet(BatchSet { batch: Some(batch) }) = event {
            self.note_blocker(batch.id);
        } else if let Event::BatchesCounted(counted) = event {
            counted.counts.iter().for_each(|count| self.note_blocker(count.id));
        } else if let Some(image) = event.image() {
            self.note_blocker(image.id);
            let mut at = 0;
            while let Some(id) = self.open_at(image.id, at) {
                self.note_blocker(id);
                at += 1;
            }
        }
        self.forget_settled();
    }

    /// Planted faults.
    fn is_kept_quiet(&self, event: &Event) -> bool {
        match event {
            Event::Gone(_) => self.faults.gone_goes_unnoticed,
            Event::Finished(image) => {
                self.faults.cascade_forgotten && image.options().after.is_some()
            }
            _ => false,
        }
    }

    fn open_at(&self, id: u64, at: usize) -> Option<u64> {
        self.find_live(JobId(id)).and_then(|number| self.jobs.live[number].open().get(at).copied())
    }

    fn note_blocker(&mut self, id: u64) {
        let has_any = self.flows.dependents(id, true).next().is_some();
        let stands = if has_any { self.blocker(JobId(id)) } else { Blocker::Open };
        if stands != Blocker::Open && self.is_awaited(id, stands) {
            self.flows.ended.insert(id, stands == Blocker::Done);
            self.note_due(0);
        } else {
            self.flows.ended.remove(&id);
        }
    }

    /// Whether a job with this standing has dependents to settle.
    fn is_awaited(&self, id: u64, stands: Blocker) -> bool {
        self.flows.dependents(id, stands != Blocker::Dead).next().is_some()
    }

    /// Forgets ended jobs up to the first one that has dependents to settle.
    fn forget_settled(&mut self) {
        while let Some((id, _)) = self.flows.ended.first_key_value() {
            let id = *id;
            if self.is_awaited(id, self.blocker(JobId(id))) {
                return;
            }
            self.flows.ended.remove(&id);
        }
    }

    /// How a job or a batch stands for those that wait for it.
    pub fn blocker(&self, id: JobId) -> Blocker {
        match self.status(id) {
            Some(Status::Done) => Blocker::Done,
            Some(Status::Dead) => Blocker::Dead,
            Some(_) => Blocker::Open,
            None if self.batch(id).is_some() => self.batch_stands(id),
            None if self.flows.ended.get(&id.0) == Some(&true) => Blocker::Done,
            None => Blocker::Gone,
        }
    }

    fn batch_stands(&self, id: JobId) -> Blocker {
        match self.batch(id).map(Batch::counted) {
            Some(Counted::Unfinished) => Blocker::Open,
            Some(Counted::Done) => Blocker::Done,
            Some(Counted::Dead) => Blocker::Dead,
            Some(Counted::Gone) | None => Blocker::Gone,
        }
    }

    /// Whether a job has ended and has dependents that are not settled yet.
    pub fn has_ended_blockers(&self) -> bool {
        !self.flows.ended.is_empty()
    }

    /// Jobs that wait for one that has ended, by the number of the ended one. One that waits for
    /// several of them comes as often.
    pub(crate) fn dependents_to_settle(&self) -> impl Iterator<Item = JobId> + '_ {
        self.flows.ended.keys().flat_map(|id| {
            let all = self.blocker(JobId(*id)) != Blocker::Dead;
            self.flows.dependents(*id, all).map(JobId)
        })
    }

    /// Jobs that wait for this one, by number, those after `after`.
    pub fn waiting_for(&self, id: JobId, after: JobId) -> impl Iterator<Item = JobId> + '_ {
        let some = |waits: bool| {
            let from = (id.0, waits, after.0.saturating_add(1));
            self.flows.waiting.range(from..=(id.0, waits, u64::MAX)).map(|it| it.2).peekable()
        };
        let (mut one, mut other) = (some(false), some(true));
        std::iter::from_fn(move || match (one.peek(), other.peek()) {
            (Some(a), Some(b)) if b < a => other.next(),
            (None, Some(_)) => other.next(),
            _ => one.next(),
        })
        .map(JobId)
    }

    /// A planted fault: which job waits for which is forgotten.
    #[doc(hidden)]
    pub fn forget_flows(&mut self) {
        self.flows = Flows::default();
    }
}
