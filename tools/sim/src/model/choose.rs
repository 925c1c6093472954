//! Which jobs a lease may get.

use spindle_core::command::{Lease, Select};
use spindle_core::state::LARGE_PAYLOAD_BYTES;
use spindle_core::{JobId, JobImage, Status};

use super::Model;

/// A job that a lease may get.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    job: &'a JobImage,
    /// Nothing is in its way. Else a job may be that became ready at the same instant.
    certain: bool,
}

impl Model {
    /// The jobs a lease may get: none, one, those due at one instant, or with a random draw the
    /// best of each queue. And whether it certainly gets one.
    pub fn lease_choices(&self, lease: &Lease, now_ms: u64) -> (Vec<JobId>, bool) {
        let mut heads: Vec<Candidate<'_>> = Vec::new();
        for (at, queue) in lease.queues.iter().enumerate() {
            if self.settings(queue).paused || lease.queues[..at].contains(queue) {
                continue;
            }
            let fits = |candidate: &Candidate<'_>| {
                let bytes = candidate.job.payload.as_ref().map_or(0, |payload| payload.len);
                bytes <= lease.payload_bytes_max && self.is_admitted(candidate.job, now_ms)
            };
            let ready = self.not_behind_unmatched(queue).into_iter().filter(fits).collect();
            heads.extend(best_by(ready, rank));
        }
        let chosen = match &lease.select {
            Select::RandomQueue { .. } => heads,
            Select::ByPriority => best_by(heads, rank),
            Select::RoundRobin { after } => {
                let names = &lease.queues;
                let place = |name: &[u8]| names.iter().position(|other| other == name);
                let last = after.as_ref().and_then(|name| place(name));
                let first = last.map_or(0, |last| last + 1);
                best_by(heads, |job| {
                    let at = place(&job.queue).expect("it came from one of them");
                    (-i128::from(job.priority), (at + names.len() - first) % names.len())
                })
            }
        };
        let certain = chosen.iter().any(|candidate| candidate.certain);
        (chosen.into_iter().map(|candidate| JobId(candidate.job.id)).collect(), certain)
    }

    /// Ready jobs of a queue that are matched, as far as no job that is not comes before them:
    /// those of equal labels and size class keep their order.
    fn not_behind_unmatched(&self, queue: &[u8]) -> Vec<Candidate<'_>> {
        let ready = |job: &&JobImage| job.queue == queue && job.status() == Status::Ready;
        let ready: Vec<&JobImage> = self.jobs().filter(ready).collect();
        let stuck: Vec<&JobImage> =
            ready.iter().copied().filter(|job| self.is_unmatched(job)).collect();
        let alike = |one: &JobImage, other: &JobImage| {
            one.options().labels == other.options().labels && is_large(one) == is_large(other)
        };
        let candidate = |job| {
            let before = || stuck.iter().filter(|other| alike(other, job));
            let free = before().all(|other| rank(other) >= rank(job)) && !self.is_unmatched(job);
            let certain = before().all(|other| rank(other) > rank(job));
            free.then_some(Candidate { job, certain })
        };
        ready.into_iter().filter_map(candidate).collect()
    }
}

fn is_large(job: &JobImage) -> bool {
    job.payload.as_ref().is_some_and(|payload| payload.len > LARGE_PAYLOAD_BYTES)
}

/// Priority, then age: smaller goes first.
fn rank(job: &JobImage) -> (i128, u64) {
    (-i128::from(job.priority), job.order)
}

/// All that share the smallest rank of those that are certain, and the others up to there.
fn best_by<'a, R: Ord>(
    candidates: Vec<Candidate<'a>>,
    rank: impl Fn(&JobImage) -> R,
) -> Vec<Candidate<'a>> {
    let certain = candidates.iter().filter(|candidate| candidate.certain);
    let best = certain.map(|candidate| rank(candidate.job)).min();
    let is_best = |job: &JobImage| best.as_ref().is_none_or(|best| rank(job) <= *best);
    candidates.into_iter().filter(|candidate| is_best(candidate.job)).collect()
}
