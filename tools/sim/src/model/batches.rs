//! Batches: the model knows each job that was ever added, and counts them all anew each time.

use std::collections::BTreeMap;

use spindle_core::batch::BatchCounts;
use spindle_core::command::{OpenBatch, Submit};
use spindle_core::{JobId, Rejection, State, Status};

use super::flows::Stands;
use super::{Model, Refusals};

/// A batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batched {
    /// What was asked for.
    pub opened: OpenBatch,
    /// No more jobs.
    pub is_sealed: bool,
    is_cancelled: bool,
    ended_ms: Option<u64>,
    /// Each job that was added, and each batch in it, and how it stood when it was seen last.
    members: BTreeMap<u64, Stands>,
}

impl Batched {
    /// When the last of its jobs ended, if none is unfinished.
    pub fn ended_ms(&self) -> Option<u64> {
        self.ended_ms
    }

    /// When it goes.
    pub fn gone_ms(&self) -> Option<u64> {
        Some(self.ended_ms?.saturating_add(self.opened.keep_ms))
    }

    fn count(&self, stands: Stands) -> u32 {
        self.members.values().filter(|member| **member == stands).count() as u32
    }

    pub(super) fn counts(&self) -> BatchCounts {
        BatchCounts {
            unfinished: self.count(Stands::Open),
            done: self.count(Stands::Done),
            dead: self.count(Stands::Dead),
            gone: self.count(Stands::Gone),
        }
    }

    pub(super) fn stands(&self) -> Stands {
        let has = |stands| self.count(stands) > 0;
        if !self.is_sealed || has(Stands::Open) {
            Stands::Open
        } else if has(Stands::Gone) {
            Stands::Gone
        } else if has(Stands::Dead) {
            Stands::Dead
        } else {
            Stands::Done
        }
    }
}

impl Model {
    /// The batches, by number.
    pub fn batches(&self) -> impl Iterator<Item = &Batched> {
        self.batches.values()
    }

    /// A batch, if it is there.
    pub fn batch(&self, id: JobId) -> Option<&Batched> {
        self.batches.get(&id.0)
    }

    pub(super) fn refuse_opening(&self, open: &OpenBatch) -> Refusals {
        let id = open.id.0;
        let is_fresh = id > 0 && id < self.ids_until() && !self.has_number(id);
        let holder = self.batches().find(|it| !open.key.is_empty() && it.opened.key == open.key);
        let queue = open.queue.len();
        let refusals = Refusals::when(!is_fresh, Rejection::IdNotReserved)
            .or(queue == 0 || queue > 512, Rejection::OutOfRange("queue name"));
        let refusals = holder.into_iter().fold(refusals, |refusals, holder| {
            refusals.or(true, Rejection::KeyTaken(holder.opened.id))
        });
        let mut depth = 1;
        let mut above = open.parent;
        while let Some(id) = above {
            depth += 1;
            above = self.batches.get(&id.0).and_then(|it| it.opened.parent);
        }
        let refusals = refusals.or(depth > 10, Rejection::OutOfRange("depth"));
        let refusals = self.refuse_place(&open.queue, open.parent.is_some(), refusals);
        self.refuse_adding(open.parent, refusals)
    }

    pub(super) fn has_number(&self, id: u64) -> bool {
        self.jobs.contains_key(&id) || self.batches.contains_key(&id)
    }

    fn refuse_adding(&self, batch: Option<JobId>, refusals: Refusals) -> Refusals {
        let Some(id) = batch else { return refusals };
        let known = self.batches.get(&id.0);
        refusals
            .or(known.is_none(), Rejection::NoBatch(id))
            .or(known.is_some_and(|it| it.is_sealed), Rejection::BatchSealed(id))
    }

    pub(super) fn refuse_batch_of(&self, submit: &Submit, refusals: Refusals) -> Refusals {
        let Some(batch) = submit.batch else { return refusals };
        let refusals = self
            .refuse_adding(Some(batch), refusals)
            .or(submit.foreground, Rejection::OutOfRange("batch"));
        let open: Vec<u64> = self.after(submit).map_or_else(Vec::new, |after| after.open);
        let waits_for_itself = open.iter().any(|id| self.leads_to(*id, submit.id.0, batch.0));
        refusals.or(waits_for_itself, Rejection::Circle)
    }

    /// Whether a job or batch waits for this job or batch, by whatever way.
    pub(super) fn leads_to(&self, from: u64, job: u64, batch: u64) -> bool {
        let (mut seen, mut left) = (Vec::new(), vec![from]);
        while let Some(id) = left.pop() {
            if id == job || id == batch {
                return true;
            }
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            left.extend(self.job(JobId(id)).into_iter().flat_map(|job| job.options().open()));
            let members = self.batches.get(&id).map(|it| it.members.keys());
            left.extend(members.into_iter().flatten().filter(|member| {
                let job = self.job(JobId(**member));
                job.is_none_or(|job| !job.status().is_finished())
            }));
        }
        false
    }

    pub(super) fn refuse_sealing(&self, id: JobId) -> Refusals {
        let is_sealed = self.batches.get(&id.0).is_some_and(|it| it.is_sealed);
        self.refuse_unknown_batch(id).or(is_sealed, Rejection::BatchSealed(id))
    }

    pub(super) fn refuse_unknown_batch(&self, id: JobId) -> Refusals {
        Refusals::when(!self.batches.contains_key(&id.0), Rejection::NoBatch(id))
    }

    pub(super) fn apply_opening(&mut self, open: &OpenBatch) {
        self.join_batch(open.id, open.parent);
        let batch = Batched {
            opened: open.clone(),
            is_sealed: false,
            is_cancelled: false,
            ended_ms: None,
            members: BTreeMap::new(),
        };
        self.batches.insert(open.id.0, batch);
    }

    pub(super) fn join_batch(&mut self, member: JobId, batch: Option<JobId>) {
        let batch = batch.and_then(|batch| self.batches.get_mut(&batch.0));
        if let Some(batch) = batch {
            batch.members.insert(member.0, Stands::Open);
        }
    }

    pub(super) fn apply_seal(&mut self, id: JobId, cancels: bool) {
        let batch = self.batches.get_mut(&id.0).expect("the caller looked it up");
        batch.is_sealed = true;
        batch.is_cancelled |= cancels;
    }

    /// Looks at all jobs of all batches. A batch in another one is newer than that one.
    pub(crate) fn count_batches(&mut self, now_ms: u64) {
        for id in self.batches.keys().rev().copied().collect::<Vec<_>>() {
            let mut batch = self.batches[&id].clone();
            for (member, stood) in &mut batch.members {
                *stood = self.member_stands(*member, *stood);
            }
            batch.ended_ms = match batch.stands() {
                Stands::Open => None,
                _ => batch.ended_ms.or(Some(now_ms)),
            };
            self.batches.insert(id, batch);
        }
    }

    fn member_stands(&self, id: u64, stood: Stands) -> Stands {
        if let Some(batch) = self.batches.get(&id) {
            return batch.stands();
        }
        match self.job(JobId(id)).map(|job| job.status()) {
            Some(Status::Done) => Stands::Done,
            Some(Status::Dead) => Stands::Dead,
            Some(_) => Stands::Open,
            None if stood == Stands::Done => Stands::Done,
            None => Stands::Gone,
        }
    }

    /// Batches go some time after they have ended. Whether any went.
    pub(super) fn forget_batches(&mut self, now_ms: u64) -> bool {
        let before = self.batches.len();
        self.batches.retain(|_, batch| batch.gone_ms().is_none_or(|at| at > now_ms));
        self.batches.len() < before
    }

    pub(super) fn compare_batches(&self, state: &State) -> Result<(), String> {
        let shown = |id: u64, batch: &Batched| {
            let Batched { opened, is_sealed, is_cancelled, ended_ms, .. } = batch;
            let parent = opened.parent.map_or(0, |parent| parent.0);
            (id, parent, *is_sealed, *is_cancelled, *ended_ms, batch.counts())
        };
        let expected: Vec<_> = self.batches.iter().map(|(id, batch)| shown(*id, batch)).collect();
        let batches = state.batches_from(JobId(0));
        let found: Vec<_> = batches
            .map(|it| {
                let is_sealed = it.sealed_ms.is_some();
                (it.id, it.parent, is_sealed, it.is_cancelled, it.ended_ms, it.counts)
            })
            .collect();
        if expected == found {
            return Ok(());
        }
        let pairs = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        Err(format!(
            "{} batches should be {}, first {pairs:?} (number, parent, sealed, cancelled, ended, counts)",
            found.len(),
            expected.len()
        ))
    }
}
