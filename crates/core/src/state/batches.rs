//! Batches, the jobs that belong to each, and when those that have ended go.

use super::*;
use crate::batch::Batch;
use crate::event::{BatchSet, BatchesCounted, BatchesGone, Event};
use crate::job::JobId;

/// A batch, and the record that has it.
#[derive(Debug, Clone)]
struct Kept {
    batch: Box<Batch>,
    record: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Batches {
    by_id: BTreeMap<u64, Kept>,
    by_key: BTreeMap<Bytes, u64>,
    /// When the batches that have ended go.
    ends: BTreeSet<(u64, u64)>,
    /// The batch of each existing job that belongs to one, whether that batch still exists or not,
    /// and the outer batch of each batch in another one.
    belongs: BTreeMap<u64, u64>,
    /// The same, by batch.
    members: BTreeSet<(u64, u64)>,
}

impl Batches {
    fn belong(&mut self, member: u64, batch: u64) {
        if batch > 0 {
            self.belongs.insert(member, batch);
            self.members.insert((batch, member));
        }
    }

    fn forget_member(&mut self, member: u64) {
        if let Some(batch) = self.belongs.remove(&member) {
            self.members.remove(&(batch, member));
        }
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Batch)) {
        let Some(kept) = self.by_id.get_mut(&id) else { return };
        if let Some(gone_ms) = kept.batch.gone_ms() {
            self.ends.remove(&(gone_ms, id));
        }
        change(&mut kept.batch);
        if let Some(gone_ms) = kept.batch.gone_ms() {
            self.ends.insert((gone_ms, id));
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(kept) = self.by_id.remove(&id) else { return };
        if let Some(gone_ms) = kept.batch.gone_ms() {
            self.ends.remove(&(gone_ms, id));
        }
        self.by_key.remove(&kept.batch.key);
        self.forget_member(id);
    }
}

impl State {
    pub(super) fn on_batch_set(&mut self, set: &BatchSet, at: Place) {
        let Some(batch) = &set.batch else { return };
        let batches = &mut self.batches;
        batches.remove(batch.id);
        let key = Bytes::copy_from_slice(&batch.key);
        if !key.is_empty() {
            batches.by_key.insert(key.clone(), batch.id);
        }
        batches.belong(batch.id, batch.parent);
        let queue = Bytes::copy_from_slice(&batch.queue);
        let kept = Box::new(Batch { queue, key, ended_ms: None, ..(**batch).clone() });
        batches.by_id.insert(batch.id, Kept { batch: kept, record: at.position });
        batches.change(batch.id, |kept| kept.ended_ms = batch.ended_ms);
        self.note_batch_end();
    }

    pub(super) fn on_batches_counted(&mut self, counted: &BatchesCounted) {
        for count in &counted.counts {
            self.batches.change(count.id, |batch| {
                batch.counts = count.counts;
                batch.ended_ms = count.ended_ms;
            });
        }
        self.note_batch_end();
    }

    pub(super) fn on_batches_gone(&mut self, gone: &BatchesGone) {
        gone.ids.iter().for_each(|id| self.batches.remove(*id));
    }

    fn note_batch_end(&mut self) {
        if let Some(due_ms) = self.next_batch_end() {
            self.note_due(due_ms);
        }
    }

    /// A job of a batch may have come or gone.
    pub(super) fn note_job_of_batch(&mut self, event: &Event) {
        if let Some(image) = event.image() {
            self.batches.belong(image.id, image.options().batch);
        } else if let Event::Gone(gone) = event
            && !self.batches.belongs.is_empty()
        {
            gone.ids.iter().for_each(|id| self.batches.forget_member(*id));
        }
    }

    /// A batch.
    pub fn batch(&self, id: JobId) -> Option<&Batch> {
        self.batches.by_id.get(&id.0).map(|kept| &*kept.batch)
    }

    /// The batch of this key; no batch has the empty key.
    pub fn batch_by_key(&self, key: &[u8]) -> Option<JobId> {
        self.batches.by_key.get(key).copied().map(JobId)
    }

    /// Batches by number, from this one on.
    pub fn batches_from(&self, id: JobId) -> impl DoubleEndedIterator<Item = &Batch> {
        self.batches.by_id.range(id.0..).map(|(_, kept)| &*kept.batch)
    }

    /// Batches below a number, or all, the newest first.
    pub fn batches_below(&self, below: Option<JobId>) -> impl Iterator<Item = &Batch> {
        let below = below.map_or(u64::MAX, |below| below.0);
        self.batches.by_id.range(..below).rev().map(|(_, kept)| &*kept.batch)
    }

    /// How many batches are kept.
    pub fn batches_count(&self) -> usize {
        self.batches.by_id.len()
    }

    /// The batch that a job, or another batch, belongs to. It may be gone.
    pub fn batch_of(&self, id: JobId) -> Option<JobId> {
        self.batches.belongs.get(&id.0).copied().map(JobId)
    }

    /// A batch, the one that it belongs to, and so on.
    pub(crate) fn batch_and_above(&self, id: JobId) -> impl Iterator<Item = JobId> + '_ {
        std::iter::successors(Some(id), |id| self.batch_of(*id))
    }

    /// Jobs of a batch that are there, and batches in it, by number, from this one on.
    pub fn members(&self, batch: JobId, from: JobId) -> impl DoubleEndedIterator<Item = JobId> {
        let members = self.batches.members.range((batch.0, from.0)..=(batch.0, u64::MAX));
        members.map(|(_, member)| JobId(*member))
    }

    /// When the next batch goes.
    pub(super) fn next_batch_end(&self) -> Option<u64> {
        self.batches.ends.first().map(|(gone_ms, _)| *gone_ms)
    }

    /// Batches that go by now, the earliest first.
    pub(crate) fn due_batches(&self, now_ms: u64) -> impl Iterator<Item = u64> + '_ {
        let due = self.batches.ends.iter().take_while(move |(gone_ms, _)| *gone_ms <= now_ms);
        due.map(|(_, id)| *id)
    }

    /// Batches that need a record below this position.
    pub(super) fn batches_needing(&self, below: u64) -> impl Iterator<Item = JobId> + '_ {
        let old = self.batches.by_id.iter().filter(move |(_, kept)| kept.record < below);
        old.map(|(id, _)| JobId(*id))
    }
}
