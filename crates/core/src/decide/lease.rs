//! Handing out jobs.

use std::ops::Range;

use bytes::Bytes;

use crate::command::{Claim, Extend, Lease, Select};
use crate::decide::finish::lose;
use crate::decide::{Blocked, Decision, Hold, claimed, is_logged};
use crate::event::{Event, Extended, Leased};
use crate::job::{self, Cause, Label, Status};
use crate::rejection::Rejection;
use crate::reservations::Reservations;
use crate::state::{Group, LARGE_PAYLOAD_BYTES, Queue, State};

/// Queues a lease may name.
pub const LEASE_QUEUES_MAX: usize = 1024;
/// Groups a lease looks at in one queue for the sake of what is reserved. With more that are
/// reserved, it waits until one of those who are to come has come.
const RESERVED_GROUPS_MAX: usize = 64;

/// A lease that leaves what is reserved.
#[derive(Clone, Copy)]
struct LeaseQuery<'a> {
    lease: &'a Lease,
    reserved: &'a Reservations,
}

/// The best job of one queue that the holder can carry.
#[derive(Clone, Copy)]
struct Candidate {
    /// Smaller is better: priority, then age.
    key: u128,
    slot: u32,
    /// Its queue's place in the request.
    at: usize,
}

impl Candidate {
    fn urgency(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

pub(super) fn lease(
    state: &State,
    request: &Lease,
    reserved: &Reservations,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    if request.queues.len() > LEASE_QUEUES_MAX {
        return Err(Rejection::OutOfRange("queues"));
    }
    let chosen = select(state, LeaseQuery { lease: request, reserved }, now_ms, out)
        .ok_or(Rejection::NothingReady)?;
    let slot = state.slot(chosen.slot);
    let tries = state.tries(chosen.slot);
    if tries.is_last_attempt(slot.attempts) {
        // Its maximum was lowered while it waited.
        lose(state, chosen.slot, Cause::Limit, now_ms, out);
        return Ok(());
    }
    let length_ms = match (ttr_ms(state, chosen.slot, request.bound), request.timeout_ms) {
        (Some(ttr), Some(timeout)) => Some(ttr.min(timeout)),
        (ttr, timeout) => ttr.or(timeout),
    };
    let buckets = slot
        .labels()
        .iter()
        .filter_map(|label| {
            let rule = state.constraint(label.constraint)?;
            Some(state.bucket(*label)?.level.image_after_start(rule, *label, now_ms))
        })
        .collect::<Vec<_>>();
    let logged = is_logged(slot);
    out.waits_for_own_record =
        (logged && tries.attempts_max.value > 0) || !slot.labels().is_empty();
    if !logged {
        // A foreground job leaves no trace of its own, but what it took from a bucket must last.
        for image in &buckets {
            out.emit(Event::BucketSet(*image), true);
        }
    }
    let lease = job::Lease {
        epoch: state.server().epoch,
        holder: request.holder,
        bound: request.bound,
        deadline_ms: length_ms.map(|length| now_ms.saturating_add(length)),
        started_ms: now_ms,
        door: request.door as i32,
        worker: request.worker.clone(),
    };
    let attempts = slot.attempts.saturating_add(1);
    out.emit(Event::Leased(Leased { id: slot.id.get(), attempts, lease, buckets }), logged);
    Ok(())
}

/// How long a job may be held. Bound holders may hold one without TTR as long as they are there.
fn ttr_ms(state: &State, number: u32, bound: bool) -> Option<u64> {
    state.view(number).ttr_ms().or_else(|| {
        let queue = state.queue_at(state.slot(number).queue);
        let default = queue.and_then(|queue| queue.settings().ttr_default_ms);
        (!bound).then(|| default.unwrap_or(state.defaults().ttr_ms))
    })
}

fn select(
    state: &State,
    request: LeaseQuery<'_>,
    now_ms: u64,
    out: &mut Decision,
) -> Option<Candidate> {
    if let [only] = &request.lease.queues[..] {
        return best_of(state, only, 0, request, now_ms, out);
    }
    match &request.lease.select {
        Select::ByPriority => candidates(state, request, now_ms, out).min_by_key(|best| best.key),
        Select::RandomQueue { draw } => {
            let all: Vec<Candidate> = candidates(state, request, now_ms, out).collect();
            let at = (u128::from(*draw) * all.len() as u128) >> 64;
            all.get(at as usize).copied()
        }
        Select::RoundRobin { after } => {
            let cursor = after
                .as_ref()
                .and_then(|name| request.lease.queues.iter().position(|queue| queue == name))
                .map_or(0, |at| at + 1);
            let count = request.lease.queues.len();
            candidates(state, request, now_ms, out)
                .min_by_key(|best| (best.urgency(), (best.at + count - cursor) % count))
        }
    }
}

fn candidates<'a>(
    state: &'a State,
    request: LeaseQuery<'a>,
    now_ms: u64,
    out: &'a mut Decision,
) -> impl Iterator<Item = Candidate> + 'a {
    request
        .lease
        .queues
        .iter()
        .enumerate()
        .filter_map(move |(at, name)| best_of(state, name, at, request, now_ms, out))
}

fn best_of(
    state: &State,
    name: &Bytes,
    at: usize,
    request: LeaseQuery<'_>,
    now_ms: u64,
    out: &mut Decision,
) -> Option<Candidate> {
    let number = state.queue_number(name)?;
    let queue = state.queue_at(number)?;
    if queue.settings().paused && !state.faults().paused_queue_leased {
        return None;
    }
    let line = Line { number, queue, unmatched: state.unmatched_in(name) };
    let reserved = request.reserved.of_queue(name);
    if reserved > 0 && !has_more(state, &line, reserved, now_ms, out) {
        out.left.push(queue.name().clone());
        return None;
    }
    let small = best_in_lane(state, &line, 0, request, now_ms, out);
    let large = (request.lease.payload_bytes_max > LARGE_PAYLOAD_BYTES)
        .then(|| best_in_lane(state, &line, 1, request, now_ms, out))
        .flatten();
    let (key, slot) = small.into_iter().chain(large).min()?;
    Some(Candidate { key, slot, at })
}

/// A queue that a lease looks into.
struct Line<'a> {
    number: u32,
    queue: &'a Queue,
    /// Numbers of jobs that are still to be matched against a constraint that lets none start.
    unmatched: Vec<Range<u64>>,
}

impl Line<'_> {
    /// What holds a group back, if something does.
    fn hold_on(&self, state: &State, group: &Group, now_ms: u64) -> Option<Hold> {
        let exhausted = |label: &Label| headroom(state, *label, now_ms) == 0;
        if let Some(label) = group.labels.iter().copied().find(exhausted) {
            return Some(Hold::Bucket(label));
        }
        let id = state.slot(group.ready.first()?).id.get();
        let is_unmatched = self.unmatched.iter().any(|range| range.contains(&id));
        (is_unmatched && !state.faults().unmatched_leased).then_some(Hold::Unmatched)
    }
}

/// How many more jobs may start under a label.
fn headroom(state: &State, label: Label, now_ms: u64) -> u64 {
    let limit = state.constraint(label.constraint).zip(state.bucket(label));
    limit.map_or(u64::MAX, |(rule, bucket)| bucket.headroom(rule, now_ms))
}

/// Whether more jobs of a queue can be leased than are reserved, as far as it looks. Groups found
/// blocked are noted, so that they are met once.
fn has_more(
    state: &State,
    line: &Line<'_>,
    reserved: u64,
    now_ms: u64,
    out: &mut Decision,
) -> bool {
    let mut jobs: u64 = 0;
    let mut looked_at = 0;
    for (_, group_number) in line.queue.heads.iter().flatten() {
        let Some(group) = line.queue.group(*group_number) else { continue };
        if let Some(by) = line.hold_on(state, group, now_ms) {
            out.blocked.push(Blocked { queue: line.number, group: *group_number, by });
            continue;
        }
        let room = group.labels.iter().map(|label| headroom(state, *label, now_ms)).min();
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

/// The best admitted head of one size class. Blocked ones are noted, so that they are met once.
fn best_in_lane(
    state: &State,
    line: &Line<'_>,
    lane: usize,
    request: LeaseQuery<'_>,
    now_ms: u64,
    out: &mut Decision,
) -> Option<(u128, u32)> {
    let mut passed_over = 0;
    for (key, group_number) in &line.queue.heads[lane] {
        let Some(group) = line.queue.group(*group_number) else { continue };
        if let Some(by) = line.hold_on(state, group, now_ms) {
            out.blocked.push(Blocked { queue: line.number, group: *group_number, by });
            continue;
        }
        let is_reserved = |label: &Label| match request.reserved.of_label(*label) {
            0 => false,
            reserved => headroom(state, *label, now_ms) <= reserved,
        };
        if group.labels.iter().any(is_reserved) {
            if passed_over == 0 {
                out.left.push(line.queue.name().clone());
            }
            passed_over += 1;
            if passed_over > RESERVED_GROUPS_MAX {
                return None;
            }
            continue;
        }
        let slot = group.ready.first()?;
        if state.slot(slot).payload_len <= request.lease.payload_bytes_max {
            return Some((*key, slot));
        }
    }
    None
}

pub(super) fn extend(
    state: &State,
    extend: &Extend,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = claimed(state, extend.claim)?;
    let slot = state.slot(number);
    let lease = slot.lease().filter(|_| slot.status() == Status::Leased);
    let lease = lease.ok_or(Rejection::NotHeld)?;
    let deadline_ms = Some(now_ms.saturating_add(extend.ttr_ms));
    let event = Extended { id: slot.id.get(), deadline_ms, epoch: lease.epoch };
    out.emit(Event::Extended(event), is_logged(slot));
    Ok(())
}

pub(super) fn drop_timeout(
    state: &State,
    claim: Claim,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = claimed(state, claim)?;
    let slot = state.slot(number);
    let lease = slot.lease().filter(|_| slot.status() == Status::Leased);
    let lease = lease.ok_or(Rejection::NotHeld)?;
    let full_ms =
        ttr_ms(state, number, lease.bound).map(|ttr| lease.started_ms.saturating_add(ttr));
    // It may have been extended meanwhile: nobody has less time than before.
    let deadline_ms = lease.deadline_ms.zip(full_ms).map(|(deadline, full)| deadline.max(full));
    let event = Extended { id: slot.id.get(), deadline_ms, epoch: lease.epoch };
    out.emit(Event::Extended(event), is_logged(slot));
    Ok(())
}
