//! Jobs that wait for others: the status of those others, and the graph of them all.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use spindle_core::batch::Batch;
use spindle_core::command::Claim;
use spindle_core::job::OnDead;
use spindle_core::{Found, JobId, JobImage, Rejection, Status};

use super::bytes::FetchError;
use super::jobs::JobRef;
use crate::answer::Refused;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::{Jobs, Leases};

/// A job or a batch that another job waits for, or waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockerNow {
    /// Its number.
    pub id: JobId,
    /// The batch, if it is one.
    pub batch: Option<Batch>,
    /// Where the job stands; none if it is not there any more.
    pub status: Option<Status>,
    /// The worker that has it; empty if none has it or it gave no name.
    pub worker: Bytes,
    /// It is deleted, and that can be undone.
    pub is_deleted: bool,
}

/// A job or a batch of a flow.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowNode {
    /// Its number.
    pub id: JobId,
    /// The batch, if it is one.
    pub batch: Option<Batch>,
    /// Where the job stands; none if it is not there any more, and nothing else is known of it.
    pub status: Option<Status>,
    /// Its queue.
    pub queue: Bytes,
    /// The jobs and batches that it waits for or waited for, ascending. Of a batch, those in it that
    /// are there.
    pub after: Vec<JobId>,
    /// What happens to it when one of them dies.
    pub on_dead: OnDead,
}

/// Jobs and batches that are connected by waiting for one another.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct JobFlow {
    /// By number.
    pub nodes: Vec<FlowNode>,
    /// There are more than were asked for.
    pub is_partial: bool,
}

impl Jobs<'_> {
    /// How the jobs stand that a job waits for or waited for. For people and workers: it may be a
    /// moment ahead of the disk.
    pub fn before(&self, image: &JobImage) -> Vec<BlockerNow> {
        match &image.options().after {
            None => Vec::new(),
            Some(after) => self.0.enter().before(&after.jobs),
        }
    }

    /// The flow that a job or a batch is in, at most so many nodes of it: those that it waits for and
    /// waited for, and theirs, all that wait for one of these, and the batches that they are in. A job that waits no
    /// more is found only from those that wait or waited for it. None if there is no such job.
    ///
    /// # Errors
    ///
    /// The image of a finished job cannot be read.
    pub fn flow(
        &self,
        job: JobRef,
        nodes_max: usize,
    ) -> Result<Gated<Option<JobFlow>>, FetchError> {
        let mut answer = Gated::open(());
        let start = match (job, answer.absorb(self.find(job))) {
            (_, Some((start, _))) => start,
            (JobRef::Id(id), None) if answer.absorb(self.around(id, 0)).0.is_some() => id,
            _ => return Ok(answer.map(|()| None)),
        };
        let mut found: BTreeMap<JobId, Option<FlowNode>> = BTreeMap::from([(start, None)]);
        let mut to_read = VecDeque::from([start]);
        let mut is_partial = false;
        while let Some(id) = to_read.pop_front() {
            // One more than there is room for shows that there are more.
            let (batch, waiting) = answer.absorb(self.around(id, nodes_max + 1));
            let node = match batch {
                Some(node) => node,
                None => FlowNode::of(id, answer.absorb(self.get(JobRef::Id(id))?).as_ref()),
            };
            for next in node.after.iter().copied().chain(waiting) {
                if found.contains_key(&next) {
                    continue;
                }
                if found.len() >= nodes_max {
                    is_partial = true;
                    continue;
                }
                found.insert(next, None);
                to_read.push_back(next);
            }
            found.insert(id, Some(node));
        }
        let nodes = found.into_values().flatten().collect();
        Ok(answer.map(|()| Some(JobFlow { nodes, is_partial })))
    }

    /// The batch of this number, if there is one, and those that wait for this job or batch, with the
    /// batch that it is in.
    fn around(&self, id: JobId, max: usize) -> Gated<(Option<FlowNode>, Vec<JobId>)> {
        self.0.read(|inner| {
            let state = &inner.state;
            let batch = state.batch(id).map(|batch| FlowNode {
                id,
                status: None,
                queue: batch.queue.clone(),
                after: state.members(id, JobId(0)).take(max).collect(),
                on_dead: OnDead::Run,
                batch: Some(batch.clone()),
            });
            let around = state.batch_of(id).filter(|id| state.batch(*id).is_some());
            let waiting = state.waiting_for(id, JobId(0)).take(max);
            (batch, waiting.chain(around).collect())
        })
    }
}

impl Leases<'_> {
    /// The jobs that the job of a live lease waited for, ascending.
    pub fn after(&self, claim: Claim) -> Gated<Result<Vec<JobId>, Refused>> {
        let inner = self.0.enter();
        if !inner.is_held(claim) {
            return inner.refused(Rejection::NotHeld);
        }
        let job = inner.state.live(claim.id());
        let after = job.and_then(|job| job.options().after.as_deref());
        let ids = after.iter().flat_map(|after| &after.jobs).copied().map(JobId).collect();
        inner.gated(Ok(ids))
    }
}

impl FlowNode {
    fn of(id: JobId, image: Option<&JobImage>) -> FlowNode {
        let after = image.and_then(|image| image.options().after.as_deref());
        FlowNode {
            id,
            batch: None,
            status: image.map(JobImage::status),
            queue: image.map(|image| image.queue.clone()).unwrap_or_default(),
            after: after.iter().flat_map(|after| &after.jobs).copied().map(JobId).collect(),
            on_dead: after.map_or(OnDead::Cancel, |after| after.on_dead()),
        }
    }
}

impl Inner {
    /// How some jobs stand.
    pub(crate) fn before(&self, ids: &[u64]) -> Vec<BlockerNow> {
        ids.iter().map(|id| self.before_one(JobId(*id))).collect()
    }

    fn before_one(&self, id: JobId) -> BlockerNow {
        let found = self.state.job(id);
        let lease = found.and_then(Found::live).and_then(|job| job.lease());
        BlockerNow {
            id,
            batch: self.state.batch(id).cloned(),
            status: found.map(|found| found.status()),
            worker: lease.map(|lease| lease.worker.clone()).unwrap_or_default(),
            is_deleted: self.state.deletion(id).is_some(),
        }
    }
}
