//! Batches: opened, sealed, counted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{
    BATCH_DEPTH_MAX, BATCH_JOBS_MAX, BATCH_NAME_BYTES_MAX, BATCHES_MAX, Batch, Counted,
};
use crate::command::OpenBatch;
use crate::decide::{Context, Decided, check_place_of, check_queue_of_any_shard, refuse_if};
use crate::event::{BatchCount, BatchSet, BatchesCounted, Event};
use crate::job::{JobId, Status};
use crate::rejection::Rejection;
use crate::state::State;

/// How many jobs and batches that wait for a job or its batch are looked at to find out whether the
/// job would wait for itself.
const CIRCLE_LOOKS_MAX: usize = 10_000;

pub(super) fn open(cx: &mut Context<'_>, open: &OpenBatch) -> Decided {
    check_queue_of_any_shard(cx.state, &open.queue)?;
    let check = |what, holds: bool| refuse_if(!holds, Rejection::OutOfRange(what));
    check("batch name", open.name.len() <= BATCH_NAME_BYTES_MAX)?;
    check("batch key", open.key.len() <= BATCH_NAME_BYTES_MAX)?;
    if let Some(id) = cx.state.batch_by_key(&open.key) {
        return Err(Rejection::KeyTaken(id));
    }
    check_place_of(cx.state, &open.queue, open.parent.is_some())?;
    check("the number of batches", cx.state.batches_count() < BATCHES_MAX)?;
    cx.check_new_id(open.id)?;
    if let Some(parent) = open.parent {
        check_takes(cx.state, parent)?;
        let depth = cx.state.batch_and_above(parent).count() + 1;
        check("the depth of the batch", depth <= BATCH_DEPTH_MAX)?;
    }
    let batch = Batch {
        id: open.id.0,
        queue: open.queue.clone(),
        name: open.name.clone(),
        key: open.key.clone(),
        parent: open.parent.map_or(0, |parent| parent.0),
        opened_ms: cx.now_ms,
        keep_ms: open.keep_ms,
        ..Batch::default()
    };
    emit_set(cx, batch, true);
    Ok(())
}

fn emit_set(cx: &mut Context<'_>, batch: Batch, logged: bool) {
    cx.emit(Event::BatchSet(BatchSet { batch: Some(Box::new(batch)) }), logged);
}

pub(super) fn seal(cx: &mut Context<'_>, id: JobId) -> Decided {
    let batch = cx.state.batch(id).ok_or(Rejection::NoBatch(id))?;
    refuse_if(batch.is_sealed(), Rejection::BatchSealed(id))?;
    set_sealed(cx, batch, false);
    Ok(())
}

/// Seals the batch as cancelled. The caller cancels its jobs, one by one: they may be many.
pub(super) fn cancel(cx: &mut Context<'_>, id: JobId) -> Decided {
    let batch = cx.state.batch(id).ok_or(Rejection::NoBatch(id))?;
    if !batch.is_cancelled {
        set_sealed(cx, batch, true);
    }
    Ok(())
}

fn set_sealed(cx: &mut Context<'_>, batch: &Batch, is_cancelled: bool) {
    let mut sealed =
        Batch { sealed_ms: batch.sealed_ms.or(Some(cx.now_ms)), is_cancelled, ..batch.clone() };
    sealed.note_end(cx.now_ms);
    emit_set(cx, sealed, true);
}

/// Appends a batch again.
pub(super) fn compact(cx: &mut Context<'_>, id: JobId) -> Decided {
    let batch = cx.state.batch(id).ok_or(Rejection::NoBatch(id))?;
    emit_set(cx, batch.clone(), !cx.state.faults().batch_not_compacted);
    Ok(())
}

/// Whether one more can be added.
pub(super) fn check_takes(state: &State, id: JobId) -> Decided {
    let batch = state.batch(id).ok_or(Rejection::NoBatch(id))?;
    let is_sealed = batch.is_sealed() && !state.faults().added_to_sealed_batch;
    refuse_if(is_sealed, Rejection::BatchSealed(id))?;
    refuse_if(batch.counts.total() >= BATCH_JOBS_MAX, Rejection::BatchFull(id))
}

/// Which of these jobs and batches cannot end before this job and this batch have: if the job waited
/// for one of them, it would wait for itself.
pub(super) fn behind(
    state: &State,
    job: JobId,
    batch: Option<JobId>,
    among: &[u64],
) -> Result<BTreeSet<u64>, Rejection> {
    let mut behind = BTreeSet::new();
    if among.is_empty() || state.batches_count() == 0 {
        // A job waits for older ones only: without batches there is no circle.
        return Ok(behind);
    }
    let mut seen: BTreeSet<u64> = batch.iter().map(|batch| batch.0).chain([job.0]).collect();
    let own = seen.len();
    let mut to_look_at: Vec<u64> = seen.iter().copied().collect();
    while let Some(id) = to_look_at.pop() {
        if among.contains(&id) {
            behind.insert(id);
        }
        let waiting = state.waiting_for(JobId(id), JobId(0));
        for next in waiting.chain(state.batch_of(JobId(id))) {
            if seen.insert(next.0) {
                to_look_at.push(next.0);
            }
            refuse_if(seen.len() - own > CIRCLE_LOOKS_MAX, Rejection::FlowTooLarge)?;
        }
    }
    Ok(behind)
}

/// Batches as they are after the events of a decision so far.
struct Counting<'a> {
    state: &'a State,
    now_ms: u64,
    batches: BTreeMap<u64, Batch>,
}

/// Adds to a decision what its events change in batches: each event that changes any is followed by
/// their new counts. The two are in one record, which is complete however a decision is split among
/// records.
pub(super) fn count(cx: &mut Context<'_>) {
    if cx.state.batches_count() == 0 {
        return;
    }
    let (state, now_ms) = (cx.state, cx.now_ms);
    let mut counting = Counting { state, now_ms, batches: BTreeMap::new() };
    let mut counted = Vec::new();
    for (at, (event, _)) in cx.out.events.iter().enumerate() {
        let counts = counting.after(event);
        if !counts.is_empty() {
            counted.push((at + 1, Event::BatchesCounted(BatchesCounted { counts })));
        }
    }
    for (at, event) in counted.into_iter().rev() {
        cx.out.events.insert(at, (event, true));
    }
}

impl Counting<'_> {
    /// The new counts of batches after one more event.
    fn after(&mut self, event: &Event) -> Vec<BatchCount> {
        // How each batch that changes counted before.
        let mut changed = BTreeMap::new();
        self.count_event(event, &mut changed);
        let goes = |id: u64| matches!(event, Event::BatchesGone(gone) if gone.ids.contains(&id));
        let mut counts = Vec::new();
        // Batches belong to older ones: from the newest on, each is complete when its turn comes.
        while let Some((id, was)) = changed.pop_last() {
            let Some(batch) = self.batches.get_mut(&id) else { continue };
            let is = match was {
                // What was done counts as done when it goes.
                Counted::Done if goes(id) => Counted::Done,
                _ if goes(id) => Counted::Gone,
                _ => {
                    batch.note_end(self.now_ms);
                    counts.push(BatchCount { id, counts: batch.counts, ended_ms: batch.ended_ms });
                    batch.counted()
                }
            };
            let parent = batch.parent;
            self.count_one(parent, Some(was), is, &mut changed);
        }
        counts
    }

    fn count_event(&mut self, event: &Event, changed: &mut BTreeMap<u64, Counted>) {
        match event {
            Event::Submitted(image) => {
                self.count_one(image.options().batch, None, Counted::Unfinished, changed);
            }
            Event::Finished(image) => {
                let is_done = image.status() == Status::Done;
                let is = if is_done { Counted::Done } else { Counted::Dead };
                let batch = image.options().batch;
                self.count_one(batch, Some(Counted::Unfinished), is, changed);
            }
            Event::Retried(image) => {
                let was = self.job(image.id);
                self.count_one(image.options().batch, was, Counted::Unfinished, changed);
            }
            Event::Gone(gone) if !self.state.faults().gone_member_uncounted => {
                for id in &gone.ids {
                    // What was done counts as done when it goes.
                    let was = self.job(*id).filter(|was| *was != Counted::Done);
                    if let Some(batch) = self.state.batch_of(JobId(*id)).filter(|_| was.is_some()) {
                        self.count_one(batch.0, was, Counted::Gone, changed);
                    }
                }
            }
            Event::BatchSet(BatchSet { batch: Some(batch) }) => {
                let was = self.batch(batch.id).map(|known| known.counted());
                self.count_one(batch.parent, was, batch.counted(), changed);
            }
            Event::BatchesGone(gone) => {
                for id in &gone.ids {
                    if let Some(batch) = self.batch(*id) {
                        changed.insert(*id, batch.counted());
                    }
                }
            }
            _ => {}
        }
    }

    /// How a job counted before this decision; no job ends twice in one decision.
    fn job(&self, id: u64) -> Option<Counted> {
        Some(match self.state.status(JobId(id))? {
            Status::Done => Counted::Done,
            Status::Dead => Counted::Dead,
            _ => Counted::Unfinished,
        })
    }

    /// A batch as it is now.
    fn batch(&mut self, id: u64) -> Option<&mut Batch> {
        match self.batches.entry(id) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(free) => Some(free.insert(self.state.batch(JobId(id))?.clone())),
        }
    }

    fn count_one(
        &mut self,
        batch: u64,
        was: Option<Counted>,
        is: Counted,
        changed: &mut BTreeMap<u64, Counted>,
    ) {
        if was == Some(is) {
            return;
        }
        if let Some(known) = self.batch(batch) {
            changed.entry(batch).or_insert(known.counted());
            known.counts.count(was, is);
        }
    }
}
