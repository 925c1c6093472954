//! Which jobs a lease may get.

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::command::{Lease, Select};
use spindle_core::state::LARGE_PAYLOAD_BYTES;
use spindle_core::{JobId, JobImage, Status};

use super::Model;
use super::fair::{key_of, plain_rank};

/// A job that a lease may get.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    job: &'a JobImage,
    /// Nothing is in its way. If false, a job that became ready at the same instant may come first.
    certain: bool,
}

impl Model {
    /// The jobs a lease may get: none, one, those due at one instant, or with a random draw the
    /// best of each queue. And whether it certainly gets one.
    pub fn lease_choices(&self, lease: &Lease, now_ms: u64) -> (Vec<JobId>, bool) {
        let mut heads: Vec<Vec<Candidate<'_>>> = Vec::new();
        for (at, queue) in lease.queues.iter().enumerate() {
            if self.settings(queue).paused || lease.queues[..at].contains(queue) {
                continue;
            }
            let fits = |candidate: &Candidate<'_>| {
                let bytes = candidate.job.payload.as_ref().map_or(0, |payload| payload.len);
                bytes <= lease.payload_bytes_max && self.is_admitted(candidate.job, now_ms)
            };
            let ready = self.not_behind_unmatched(queue).into_iter().filter(fits).collect();
            heads.push(self.best_of_queue(queue, ready));
        }
        let chosen = match &lease.select {
            Select::RandomQueue { .. } => heads.concat(),
            Select::ByPriority => best_of_queues(&heads, plain_rank),
            Select::RoundRobin { after } => {
                let names = &lease.queues;
                let place = |name: &[u8]| names.iter().position(|other| other == name);
                let last = after.as_ref().and_then(|name| place(name));
                let first = last.map_or(0, |last| last + 1);
                best_of_queues(&heads, |job| {
                    let at = place(&job.queue).expect("it came from one of them");
                    (-i128::from(job.priority), (at + names.len() - first) % names.len())
                })
            }
        };
        let certain = chosen.iter().any(|candidate| candidate.certain);
        (chosen.into_iter().map(|candidate| JobId(candidate.job.id)).collect(), certain)
    }

    /// Which of these jobs come first: in a fair queue the first ones of the key whose turn it is.
    fn best_of_queue<'a>(
        &'a self,
        queue: &[u8],
        candidates: Vec<Candidate<'a>>,
    ) -> Vec<Candidate<'a>> {
        if !self.is_fair(queue) {
            return best_by(candidates, |job| self.rank(job));
        }
        let mut keys: BTreeMap<Bytes, Vec<Candidate<'a>>> = BTreeMap::new();
        for candidate in candidates {
            keys.entry(key_of(candidate.job)).or_default().push(candidate);
        }
        let firsts = keys.into_values().flat_map(|jobs| best_by(jobs, |job| self.rank(job)));
        best_by(firsts.collect(), |job| self.turn(job))
    }

    /// Matched ready jobs of a queue that no unmatched job comes before: jobs of equal labels and
    /// size class keep their order.
    fn not_behind_unmatched(&self, queue: &[u8]) -> Vec<Candidate<'_>> {
        let ready = |job: &&JobImage| job.queue == queue && job.status() == Status::Ready;
        let ready: Vec<&JobImage> = self.jobs().filter(ready).collect();
        let stuck: Vec<&JobImage> =
            ready.iter().copied().filter(|job| self.is_unmatched(job)).collect();
        let alike = |one: &JobImage, other: &JobImage| {
            one.options().labels == other.options().labels
                && is_large(one) == is_large(other)
                && (!self.is_fair(queue) || key_of(one) == key_of(other))
        };
        let rank = |job: &JobImage| self.rank(job);
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

/// Each queue offers one of its candidates, which may be any of them, and the best of these is
/// leased. So any candidate is possible that no other queue certainly beats.
fn best_of_queues<'a, R: Ord>(
    queues: &[Vec<Candidate<'a>>],
    rank: impl Fn(&JobImage) -> R,
) -> Vec<Candidate<'a>> {
    let worst = |queue: &[Candidate<'_>]| {
        let certain = queue.iter().any(|candidate| candidate.certain);
        queue.iter().map(|it| rank(it.job)).max().filter(|_| certain)
    };
    let worst: Vec<Option<R>> = queues.iter().map(|queue| worst(queue)).collect();
    let may_win = |at: usize, job: &JobImage| {
        let mut others = worst.iter().enumerate().filter(|(other, _)| *other != at);
        others.all(|(_, worst)| worst.as_ref().is_none_or(|worst| rank(job) <= *worst))
    };
    let of_queue = |(at, queue): (usize, &Vec<Candidate<'a>>)| {
        queue.iter().copied().filter(|it| may_win(at, it.job)).collect::<Vec<_>>()
    };
    queues.iter().enumerate().flat_map(of_queue).collect()
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
