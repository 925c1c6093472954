//! The order in which a queue gives out its ready jobs: priority and age, waiting, and turns of
//! keys. `docs/fairness.md` describes it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spindle_core::{JobId, JobImage, Status};

use super::Model;

/// A turn of weight 1: a multiple of all weights that the workload gives.
const TURN: u64 = 720_720;

/// When the turn of a key comes. Two that came to the same time at the same moment may go in any
/// order.
pub(super) type Turn = (u64, u64);

/// The turns in a fair queue.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    now: u64,
    /// Of the keys that have ready jobs.
    of: BTreeMap<Bytes, Turn>,
}

/// The key of a job; empty if it has none.
pub(super) fn key_of(job: &JobImage) -> Bytes {
    job.options().fair_key.clone().unwrap_or_default()
}

/// Priority, then age: smaller goes first.
pub(super) fn plain_rank(job: &JobImage) -> (i128, u64) {
    (-i128::from(job.priority), job.order)
}

impl Model {
    /// The order of the jobs of a queue, or in a fair queue of those of a key: smaller goes first.
    pub(super) fn rank(&self, job: &JobImage) -> (i128, u64) {
        let Some(step_ms) = self.queues.get(&job.queue).and_then(|queue| queue.aging_ms) else {
            return plain_rank(job);
        };
        let options = job.options();
        let asked_ms = options.waits_since_ms.or(options.scheduled_ms).unwrap_or(0);
        let since_ms = i128::from(asked_ms.max(job.created_ms));
        (since_ms - i128::from(job.priority) * i128::from(step_ms), job.order)
    }

    /// Whether keys take turns in a queue.
    pub(super) fn is_fair(&self, queue: &[u8]) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.fair.is_some())
    }

    /// Whether several keys have ready jobs now that a job is leased, and whether another job would
    /// have come first without turns. `None` if its queue is not fair.
    pub fn turn_taken(&self, id: JobId) -> Option<(bool, bool)> {
        let job = self.job(id)?;
        let keys = self.turns.get(&job.queue).filter(|_| self.is_fair(&job.queue))?.of.len();
        let labels = &job.options().labels;
        let first = |other: &&JobImage| other.options().labels == *labels;
        let first = self.ready(&job.queue).into_iter().find(first);
        Some((keys > 1, first.is_some_and(|first| self.rank(first) < self.rank(job))))
    }

    /// Whether the jobs of a queue age.
    pub(super) fn ages(&self, queue: &[u8]) -> bool {
        self.queues.get(queue).is_some_and(|queue| queue.aging_ms.is_some())
    }

    /// When the turn of a ready job's key comes.
    pub(super) fn turn(&self, job: &JobImage) -> Turn {
        let turns = &self.turns.get(&job.queue).expect("its queue is fair").of;
        turns[&key_of(job)]
    }

    fn take_nth(&mut self) -> u64 {
        self.turns_given += 1;
        self.tied.unwrap_or(self.turns_given)
    }

    fn next_turn(&mut self, queue: &Bytes, key: &Bytes) -> Turn {
        let weights = self.queues[queue].fair.iter().flat_map(|fair| &fair.weights);
        let weight = weights.into_iter().find(|entry| entry.key == key).map_or(1, |it| it.weight);
        let nth = self.take_nth();
        (self.turns[queue].now + TURN / u64::from(weight), nth)
    }

    /// Changes until [`Model::untie`] may happen in any order.
    pub(super) fn tie(&mut self) {
        self.settle_turns();
        self.tied = None;
        self.tied = Some(self.take_nth());
    }

    pub(super) fn untie(&mut self) {
        self.settle_turns();
        self.tied = None;
    }

    /// Keys come with their first ready job, and go with their last. Call it between any two changes.
    pub fn settle_turns(&mut self) {
        let fair: Vec<Bytes> = self.queues.keys().filter(|it| self.is_fair(it)).cloned().collect();
        self.turns.retain(|queue, _| fair.contains(queue));
        for queue in fair {
            let ready = |job: &&JobImage| job.queue == queue && job.status() == Status::Ready;
            let keys: BTreeSet<Bytes> = self.jobs().filter(ready).map(key_of).collect();
            self.turns.entry(queue.clone()).or_default().of.retain(|key, _| keys.contains(key));
            for key in keys {
                if !self.turns[&queue].of.contains_key(&key) {
                    self.place(&queue, key);
                }
            }
        }
    }

    fn place(&mut self, queue: &Bytes, key: Bytes) {
        let turn = self.next_turn(queue, &key);
        self.turns.get_mut(queue).expect("it is fair").of.insert(key, turn);
    }

    /// A job of a key was leased.
    pub(super) fn end_turn(&mut self, queue: &Bytes, key: Bytes) {
        let Some(turns) = self.turns.get_mut(queue) else { return };
        turns.now = turns.now.max(turns.of[&key].0);
        self.place(queue, key);
    }

    /// A queue orders its jobs differently from now on, and its keys start again.
    pub(super) fn reorder(&mut self, queue: &Bytes) {
        self.settle_turns();
        self.turns.remove(queue);
        self.tied = Some(self.take_nth());
        self.untie();
    }

    /// A server starts: all keys start again, in the order of their first jobs.
    pub(super) fn begin_rounds(&mut self) {
        self.settle_turns();
        for queue in self.turns.keys().cloned().collect::<Vec<_>>() {
            let mut first: BTreeMap<(i128, u64), Vec<Bytes>> = BTreeMap::new();
            for key in self.turns[&queue].of.keys() {
                let own = |job: &&&JobImage| key_of(job) == *key;
                let rank = self.ready(&queue).iter().find(own).map(|job| self.rank(job));
                first.entry(rank.expect("it has a job")).or_default().push(key.clone());
            }
            for keys in first.into_values() {
                self.tie();
                keys.into_iter().for_each(|key| self.place(&queue, key));
                self.untie();
            }
        }
    }
}
