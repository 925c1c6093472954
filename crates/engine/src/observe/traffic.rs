//! How much goes through each queue: counts since the start, and of the last minute. Volatile, for
//! people and dashboards.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use spindle_core::job::Status;
use spindle_core::{Event, JobId, State};

/// Queues counted apart; what goes through others is counted together.
const QUEUES_MAX: usize = 10_000;
/// When there are more, so many old ones are looked at for each new one.
const SWEPT: usize = 8;
/// The minute is counted in parts, so that it moves on in steps of ten seconds.
const PART_MS: u64 = 10_000;
const PARTS_PER_MINUTE: u64 = 6;
const PARTS: usize = PARTS_PER_MINUTE as usize + 1;

/// Counts of what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Jobs submitted.
    pub submitted: u64,
    /// Leases given.
    pub leased: u64,
    /// Jobs done.
    pub completed: u64,
    /// Attempts that ended and left their job to be tried again.
    pub requeued: u64,
    /// Jobs that died.
    pub died: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: Tally) {
        self.submitted += other.submitted;
        self.leased += other.leased;
        self.completed += other.completed;
        self.requeued += other.requeued;
        self.died += other.died;
    }
}

/// What went through a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTraffic {
    /// Since the start, or since the queue was last forgotten.
    pub total: Tally,
    /// In the last 50 to 60 seconds.
    pub last_minute: Tally,
    /// When a worker last asked for its jobs.
    pub asked_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Counted {
    total: Tally,
    parts: [Tally; PARTS],
    /// Which part of time each of them counts.
    stamps: [u64; PARTS],
    asked_ms: Option<u64>,
}

impl Counted {
    fn count(&mut self, now_ms: u64, count: impl Fn(&mut Tally)) {
        let part = now_ms / PART_MS;
        let at = (part % PARTS as u64) as usize;
        if self.stamps[at] != part {
            self.stamps[at] = part;
            self.parts[at] = Tally::default();
        }
        count(&mut self.parts[at]);
        count(&mut self.total);
    }

    fn read(&self, now_ms: u64) -> QueueTraffic {
        let part = now_ms / PART_MS;
        let mut last_minute = Tally::default();
        for (tally, stamp) in self.parts.iter().zip(self.stamps) {
            if part.saturating_sub(stamp) < PARTS_PER_MINUTE {
                last_minute.add(*tally);
            }
        }
        QueueTraffic { total: self.total, last_minute, asked_ms: self.asked_ms }
    }
}

/// What went through all queues.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    queues: HashMap<Bytes, Box<Counted>, foldhash::quality::RandomState>,
    /// Their names, those looked at longest ago first.
    order: VecDeque<Bytes>,
    others: Counted,
}

impl Traffic {
    /// Counts an event that was folded.
    pub fn after_fold(&mut self, event: &Event, state: &State, now_ms: u64) {
        let queue_of = |id: u64| state.live(JobId(id)).map(|job| job.queue());
        let (queue, count): (_, fn(&mut Tally)) = match event {
            Event::Submitted(image) => (Some(&image.queue), |tally| tally.submitted += 1),
            Event::Leased(leased) => (queue_of(leased.id), |tally| tally.leased += 1),
            Event::Requeued(requeued) => (queue_of(requeued.id), |tally| tally.requeued += 1),
            Event::Finished(image) if image.status() == Status::Done => {
                (Some(&image.queue), |tally| tally.completed += 1)
            }
            Event::Finished(image) => (Some(&image.queue), |tally| tally.died += 1),
            _ => return,
        };
        if let Some(queue) = queue {
            self.with(queue, state, |counted| counted.count(now_ms, count));
        }
    }

    /// A worker asks for jobs of queues.
    pub fn asked(&mut self, queues: &[Bytes], state: &State, now_ms: u64) {
        for queue in queues {
            if let Some(counted) = self.queues.get_mut(queue) {
                counted.asked_ms = Some(now_ms);
            } else if state.queue(queue).is_some() {
                // Names that are no queue's would only fill the table.
                self.with(queue, state, |counted| counted.asked_ms = Some(now_ms));
            }
        }
    }

    /// What went through a queue. Nothing, for one that is not counted apart.
    pub fn of(&self, queue: &[u8], now_ms: u64) -> QueueTraffic {
        self.queues.get(queue).map(|counted| counted.read(now_ms)).unwrap_or_default()
    }

    /// What went through all queues together that are not counted apart.
    pub fn of_others(&self, now_ms: u64) -> QueueTraffic {
        self.others.read(now_ms)
    }

    /// Counts something of a queue, by itself if there is room for one more.
    fn with(&mut self, queue: &Bytes, state: &State, count: impl FnOnce(&mut Counted)) {
        if let Some(counted) = self.queues.get_mut(queue) {
            return count(counted);
        }
        if !self.has_room(state) {
            return count(&mut self.others);
        }
        // A copy: the name may be a small part of a large read.
        let name = Bytes::copy_from_slice(queue);
        self.order.push_back(name.clone());
        count(self.queues.entry(name).or_default());
    }

    /// Makes room by forgetting queues that are gone.
    fn has_room(&mut self, state: &State) -> bool {
        if self.queues.len() < QUEUES_MAX {
            return true;
        }
        for _ in 0..SWEPT {
            let Some(name) = self.order.pop_front() else { break };
            if state.queue(&name).is_some() {
                self.order.push_back(name);
            } else {
                self.queues.remove(&name);
            }
        }
        self.queues.len() < QUEUES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minute_moves_on_and_the_total_stays() {
        let mut counted = Counted::default();
        let start_ms = 1_767_323_045_678;
        for second in 0..180 {
            counted.count(start_ms + second * 1000, |tally| tally.submitted += 1);
        }
        let end_ms = start_ms + 179_000;
        let read = counted.read(end_ms);
        assert_eq!(read.total.submitted, 180);
        assert!((50..=60).contains(&read.last_minute.submitted), "{:?}", read.last_minute);
        assert_eq!(counted.read(end_ms + 60_000).last_minute, Tally::default());
        assert_eq!(counted.read(end_ms + 60_000).total.submitted, 180);
    }
}
