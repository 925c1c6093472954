//! Handing out jobs.

use std::ops::Range;

use bytes::Bytes;

use crate::command::{Claim, Extend, Lease, Select};
use crate::decide::finish::lose;
use crate::decide::{Blocked, Context, Decided, Hold, refuse_if};
use crate::event::{Event, Extended, Leased};
use crate::job::{self, Cause, Label};
use crate::rejection::Rejection;
use crate::reservations::Reservations;
use crate::state::{Group, Heads, LARGE_PAYLOAD_BYTES, LiveJob, Queue, State};

/// Queues a lease may name.
pub const LEASE_QUEUES_MAX: usize = 1024;
/// A lease passes over at most this many groups in one queue because their jobs are reserved. If
/// there are more, the lease waits until a called sleeper has leased its job.
const RESERVED_GROUPS_MAX: usize = 64;

/// A lease that leaves reserved jobs to others.
#[derive(Clone, Copy)]
struct LeaseQuery<'a> {
    lease: &'a Lease,
    reserved: &'a Reservations,
}

/// The best job of one queue whose payload the holder's door can send.
#[derive(Clone, Copy)]
struct Candidate {
    /// Smaller is better: priority, then age.
    key: u128,
    job: u32,
    /// Its queue's place in the request.
    at: usize,
}

impl Candidate {
    fn urgency(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

pub(super) fn lease(cx: &mut Context<'_>, request: &Lease, reserved: &Reservations) -> Decided {
    refuse_if(request.queues.len() > LEASE_QUEUES_MAX, Rejection::OutOfRange("queues"))?;
    let chosen =
        select(cx, LeaseQuery { lease: request, reserved }).ok_or(Rejection::NothingReady)?;
    let job = cx.state.live_job(chosen.job);
    let tries = cx.state.tries(chosen.job);
    if tries.is_last_attempt(job.attempts()) {
        // Its maximum was lowered while it waited.
        lose(cx, chosen.job, Cause::Limit);
        return Ok(());
    }
    let length_ms = match (ttr_ms(cx.state, chosen.job, request.bound), request.timeout_ms) {
        (Some(ttr), Some(timeout)) => Some(ttr.min(timeout)),
        (ttr, timeout) => ttr.or(timeout),
    };
    let buckets = job
        .labels()
        .iter()
        .filter_map(|label| {
            let rule = cx.state.constraint(label.constraint)?;
            Some(cx.state.bucket(*label)?.level.image_after_start(rule, *label, cx.now_ms))
        })
        .collect::<Vec<_>>();
    let logged = job.is_logged();
    cx.out.waits_for_own_record =
        (logged && tries.attempts_max.value > 0) || !job.labels().is_empty();
    if !logged {
        // A foreground job itself is not logged, but what it took from a bucket has to be.
        for image in &buckets {
            cx.emit(Event::BucketSet(*image), true);
        }
    }
    let lease = job::HeldLease {
        epoch: cx.state.server().epoch,
        holder: request.holder,
        bound: request.bound,
        deadline_ms: length_ms.map(|length| cx.now_ms.saturating_add(length)),
        started_ms: cx.now_ms,
        door: request.door as i32,
        worker: request.worker.clone(),
    };
    let attempts = job.attempts().saturating_add(1);
    cx.emit(Event::Leased(Leased { id: job.id(), attempts, lease, buckets }), logged);
    Ok(())
}

/// How long a lease of a job lasts. A bound holder has a job without TTR as long as it is
/// connected.
fn ttr_ms(state: &State, number: u32, bound: bool) -> Option<u64> {
    state.view(number).ttr_ms().or_else(|| {
        let queue = state.queue_at(state.live_job(number).queue());
        let default = queue.and_then(|queue| queue.settings().ttr_default_ms);
        (!bound).then(|| default.unwrap_or(state.defaults().ttr_ms))
    })
}

fn select(cx: &mut Context<'_>, request: LeaseQuery<'_>) -> Option<Candidate> {
    if let [only] = &request.lease.queues[..] {
        return best_of(cx, only, 0, request);
    }
    match &request.lease.select {
        Select::ByPriority => candidates(cx, request).min_by_key(|best| best.key),
        Select::RandomQueue { draw } => {
            let all: Vec<Candidate> = candidates(cx, request).collect();
            let at = (u128::from(*draw) * all.len() as u128) >> 64;
            all.get(at as usize).copied()
        }
        Select::RoundRobin { after } => {
            let cursor = after
                .as_ref()
                .and_then(|name| request.lease.queues.iter().position(|queue| queue == name))
                .map_or(0, |at| at + 1);
            let count = request.lease.queues.len();
            candidates(cx, request)
                .min_by_key(|best| (best.urgency(), (best.at + count - cursor) % count))
        }
    }
}

fn candidates<'a>(
    cx: &'a mut Context<'_>,
    request: LeaseQuery<'a>,
) -> impl Iterator<Item = Candidate> + 'a {
    let names = request.lease.queues.iter().enumerate();
    names.filter_map(move |(at, name)| best_of(cx, name, at, request))
}

fn best_of(
    cx: &mut Context<'_>,
    name: &Bytes,
    at: usize,
    request: LeaseQuery<'_>,
) -> Option<Candidate> {
    let number = cx.state.queue_number(name)?;
    let queue = cx.state.queue_at(number)?;
    if queue.settings().paused && !cx.state.faults().paused_queue_leased {
        return None;
    }
    let line = Line { number, queue, unmatched: cx.state.unmatched_in(name) };
    let reserved = request.reserved.of_queue(name);
    if reserved > 0 && !has_more(cx, &line, reserved) {
        cx.out.left.push(queue.name().clone());
        return None;
    }
    let job = best_of_queue(cx, &line, request)?;
    // Across queues, priority and age decide, however a queue orders its own jobs.
    let key = cx.state.live_job(job).ready_key(0);
    Some(Candidate { key, job, at })
}

/// The job whose turn it is in a queue. Jobs that already follow the queue's new settings go before
/// those that do not yet.
fn best_of_queue(cx: &mut Context<'_>, line: &Line<'_>, request: LeaseQuery<'_>) -> Option<u32> {
    let with_large = request.lease.payload_bytes_max > LARGE_PAYLOAD_BYTES;
    let mut passed_over = [0; 2];
    for discipline in line.queue.disciplines() {
        for share in discipline.in_order(with_large) {
            let Some(share) = line.queue.share(share) else { continue };
            let [small, large] = &mut passed_over;
            let small = best_in_lane(cx, line, &share.heads[0], small, request);
            let large = with_large
                .then(|| best_in_lane(cx, line, &share.heads[1], large, request))
                .flatten();
            if let Some((_, job)) = small.into_iter().chain(large).min() {
                return Some(job);
            }
            if passed_over.iter().any(|groups| *groups > RESERVED_GROUPS_MAX) {
                return None;
            }
        }
    }
    None
}

/// A queue that a lease looks into.
struct Line<'a> {
    number: u32,
    queue: &'a Queue,
    /// Numbers of jobs that are still to be matched against a constraint that lets none start.
    unmatched: Vec<Range<u64>>,
}

impl Line<'_> {
    /// Whether something holds a group back. It is noted, so that the group is met only once.
    fn is_held(&self, cx: &mut Context<'_>, group: &Group, number: u32) -> bool {
        let hold = self.hold_on(cx.state, group, cx.now_ms);
        cx.out.blocked.extend(hold.map(|by| Blocked { queue: self.number, group: number, by }));
        hold.is_some()
    }

    fn hold_on(&self, state: &State, group: &Group, now_ms: u64) -> Option<Hold> {
        let exhausted = |label: &Label| headroom(state, *label, now_ms) == 0;
        if let Some(label) = group.labels.iter().copied().find(exhausted) {
            return Some(Hold::Bucket(label));
        }
        let id = state.live_job(group.ready.first()?).id();
        let is_unmatched = self.unmatched.iter().any(|range| range.contains(&id));
        (is_unmatched && !state.faults().unmatched_leased).then_some(Hold::Unmatched)
    }
}

/// How many more jobs may start under a label.
fn headroom(state: &State, label: Label, now_ms: u64) -> u64 {
    let limit = state.constraint(label.constraint).zip(state.bucket(label));
    limit.map_or(u64::MAX, |(rule, bucket)| bucket.headroom(rule, now_ms))
}

/// Whether more jobs of a queue can be leased than are reserved. Looks at a bounded number of
/// groups.
fn has_more(cx: &mut Context<'_>, line: &Line<'_>, reserved: u64) -> bool {
    let mut jobs: u64 = 0;
    let mut looked_at = 0;
    let shares = line.queue.disciplines().flat_map(|discipline| discipline.in_order(true));
    let shares = shares.filter_map(|share| line.queue.share(share));
    for (_, group_number) in shares.flat_map(|share| share.heads.iter().flatten()) {
        let Some(group) = line.queue.group(*group_number) else { continue };
        if line.is_held(cx, group, *group_number) {
            continue;
        }
        let room = group.labels.iter().map(|label| headroom(cx.state, *label, cx.now_ms)).min();
        jobs = jobs.saturating_add(room.unwrap_or(u64::MAX).min(group.ready.len() as u64));
        if jobs > reserved {
            return true;
        }
        looked_at += 1;
        if looked_at > RESERVED_GROUPS_MAX {
            break;
        }
    }
    false
}

/// The best admitted head of one size class of a share. Counts groups that are passed over because
/// their jobs are reserved.
fn best_in_lane(
    cx: &mut Context<'_>,
    line: &Line<'_>,
    heads: &Heads,
    passed_over: &mut usize,
    request: LeaseQuery<'_>,
) -> Option<(u128, u32)> {
    for (key, group_number) in heads {
        let Some(group) = line.queue.group(*group_number) else { continue };
        if line.is_held(cx, group, *group_number) {
            continue;
        }
        let is_reserved = |label: &Label| match request.reserved.of_label(*label) {
            0 => false,
            reserved => headroom(cx.state, *label, cx.now_ms) <= reserved,
        };
        if group.labels.iter().any(is_reserved) {
            if *passed_over == 0 {
                cx.out.left.push(line.queue.name().clone());
            }
            *passed_over += 1;
            if *passed_over > RESERVED_GROUPS_MAX {
                return None;
            }
            continue;
        }
        let job = group.ready.first()?;
        if cx.state.live_job(job).payload_len <= request.lease.payload_bytes_max {
            return Some((*key, job));
        }
    }
    None
}

pub(super) fn extend(cx: &mut Context<'_>, extend: &Extend) -> Decided {
    let job = cx.state.live_job(cx.claimed(extend.claim)?);
    let lease = job.live_lease().ok_or(Rejection::NotHeld)?;
    let deadline_ms = Some(cx.now_ms.saturating_add(extend.ttr_ms));
    emit_extended(cx, job, lease, deadline_ms)
}

pub(super) fn drop_timeout(cx: &mut Context<'_>, claim: Claim) -> Decided {
    let number = cx.claimed(claim)?;
    let job = cx.state.live_job(number);
    let lease = job.live_lease().ok_or(Rejection::NotHeld)?;
    let full_ms =
        ttr_ms(cx.state, number, lease.bound).map(|ttr| lease.started_ms.saturating_add(ttr));
    // It may have been extended meanwhile: the deadline never moves back.
    let deadline_ms = lease.deadline_ms.zip(full_ms).map(|(deadline, full)| deadline.max(full));
    emit_extended(cx, job, lease, deadline_ms)
}

fn emit_extended(
    cx: &mut Context<'_>,
    job: &LiveJob,
    lease: &job::HeldLease,
    deadline_ms: Option<u64>,
) -> Decided {
    let event = Extended { id: job.id(), deadline_ms, epoch: lease.epoch };
    cx.emit(Event::Extended(event), job.is_logged());
    Ok(())
}
