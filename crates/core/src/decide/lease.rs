//! Handing out jobs.

use bytes::Bytes;

use crate::command::{Extend, Lease, Select};
use crate::decide::finish::lose;
use crate::decide::{Blocked, Decision, claimed, is_logged};
use crate::event::{Event, Extended, Leased};
use crate::job::{self, Cause, Status};
use crate::rejection::Rejection;
use crate::state::{LARGE_PAYLOAD_BYTES, Queue, State};

/// Queues a lease may name.
pub const LEASE_QUEUES_MAX: usize = 1024;

/// The best job of one queue that the holder can carry.
#[derive(Clone, Copy)]
struct Candidate {
    /// Smaller is better: priority, then age.
    key: u128,
    slot: u32,
    /// Its queue's place in the wish.
    at: usize,
}

impl Candidate {
    fn urgency(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

pub(super) fn lease(
    state: &State,
    wish: &Lease,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    if wish.queues.len() > LEASE_QUEUES_MAX {
        return Err(Rejection::OutOfRange("queues"));
    }
    let chosen = select(state, wish, now_ms, out).ok_or(Rejection::NothingReady)?;
    let slot = state.slot(chosen.slot);
    let tries = state.tries(chosen.slot);
    if tries.is_last_attempt(slot.attempts) {
        // Its maximum was lowered while it waited.
        lose(state, chosen.slot, Cause::Limit, now_ms, out);
        return Ok(());
    }
    let queue = state.queue_at(slot.queue);
    let ttr_ms = state.view(chosen.slot).ttr_ms().or_else(|| {
        let default = queue.and_then(|queue| queue.settings().ttr_default_ms);
        (!wish.bound).then(|| default.unwrap_or(state.defaults().ttr_ms))
    });
    let length_ms = match (ttr_ms, wish.timeout_ms) {
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
            out.tell(Event::BucketSet(*image), true);
        }
    }
    let lease = job::Lease {
        epoch: state.server().epoch,
        holder: wish.holder,
        bound: wish.bound,
        deadline_ms: length_ms.map(|length| now_ms.saturating_add(length)),
        started_ms: now_ms,
        door: wish.door as i32,
        worker: wish.worker.clone(),
    };
    let attempts = slot.attempts.saturating_add(1);
    out.tell(Event::Leased(Leased { id: slot.id.get(), attempts, lease, buckets }), logged);
    Ok(())
}

fn select(state: &State, wish: &Lease, now_ms: u64, out: &mut Decision) -> Option<Candidate> {
    if let [only] = &wish.queues[..] {
        return best_of(state, only, 0, wish, now_ms, out);
    }
    match &wish.select {
        Select::ByPriority => candidates(state, wish, now_ms, out).min_by_key(|best| best.key),
        Select::RandomQueue { draw } => {
            let all: Vec<Candidate> = candidates(state, wish, now_ms, out).collect();
            let at = (u128::from(*draw) * all.len() as u128) >> 64;
            all.get(at as usize).copied()
        }
        Select::RoundRobin { after } => {
            let cursor = after
                .as_ref()
                .and_then(|name| wish.queues.iter().position(|queue| queue == name))
                .map_or(0, |at| at + 1);
            let count = wish.queues.len();
            candidates(state, wish, now_ms, out)
                .min_by_key(|best| (best.urgency(), (best.at + count - cursor) % count))
        }
    }
}

fn candidates<'a>(
    state: &'a State,
    wish: &'a Lease,
    now_ms: u64,
    out: &'a mut Decision,
) -> impl Iterator<Item = Candidate> + 'a {
    wish.queues
        .iter()
        .enumerate()
        .filter_map(move |(at, name)| best_of(state, name, at, wish, now_ms, out))
}

fn best_of(
    state: &State,
    name: &Bytes,
    at: usize,
    wish: &Lease,
    now_ms: u64,
    out: &mut Decision,
) -> Option<Candidate> {
    let number = state.queue_number(name)?;
    let queue = state.queue_at(number)?;
    if queue.settings().paused && !state.faults().paused_queue_leased {
        return None;
    }
    let small = best_in_lane(state, number, queue, 0, wish, now_ms, out);
    let large = (wish.payload_bytes_max > LARGE_PAYLOAD_BYTES)
        .then(|| best_in_lane(state, number, queue, 1, wish, now_ms, out))
        .flatten();
    let (key, slot) = small.into_iter().chain(large).min()?;
    Some(Candidate { key, slot, at })
}

/// The best admitted head of one size class. Blocked ones are noted, so that they are met once.
fn best_in_lane(
    state: &State,
    number: u32,
    queue: &Queue,
    lane: usize,
    wish: &Lease,
    now_ms: u64,
    out: &mut Decision,
) -> Option<(u128, u32)> {
    for (key, group_number) in &queue.heads[lane] {
        let Some(group) = queue.group(*group_number) else { continue };
        let closed = group.labels.iter().find(|label| {
            let rule = state.constraint(label.constraint);
            let bucket = state.bucket(**label);
            rule.zip(bucket).is_some_and(|(rule, bucket)| !bucket.admits(rule, now_ms))
        });
        if let Some(label) = closed {
            out.blocked.push(Blocked { queue: number, group: *group_number, label: *label });
            continue;
        }
        let slot = group.ready.first()?;
        if state.slot(slot).payload_len <= wish.payload_bytes_max {
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
    out.tell(Event::Extended(event), is_logged(slot));
    Ok(())
}
