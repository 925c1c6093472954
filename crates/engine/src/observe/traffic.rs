//! How much goes through each queue: counts since the start, and of the last minute. Volatile, for
//! people and dashboards.

use std::collections::{HashMap, VecDeque};
use std::mem;

use bytes::Bytes;
use spindle_core::job::Status;
use spindle_core::{Event, JobId, State};

/// Queues with counts of their own; all others are counted together.
const QUEUES_MAX: usize = 10_000;
/// When there are more, this many old ones are looked at for each new one.
const SWEPT: usize = 8;
/// Queues that are listed as active until a caller asks which were. Traffic of any others is
/// reported when they are active again.
const ACTIVE_MAX: usize = 1_024;
/// Active queues given out in one hold of the lock.
const ACTIVE_PER_HOLD: usize = 256;
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
    /// Attempts that failed, timed out or lost their worker.
    pub failed: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: Tally) {
        self.submitted += other.submitted;
        self.leased += other.leased;
        self.completed += other.completed;
        self.requeued += other.requeued;
        self.died += other.died;
        self.failed += other.failed;
    }

    /// The counts since an earlier reading.
    fn since(self, before: Tally) -> Tally {
        Tally {
            submitted: self.submitted - before.submitted,
            leased: self.leased - before.leased,
            completed: self.completed - before.completed,
            requeued: self.requeued - before.requeued,
            died: self.died - before.died,
            failed: self.failed - before.failed,
        }
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
    /// It is among the active ones.
    is_active: bool,
    /// The total when its news were last taken.
    reported: Tally,
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
    /// Those through which something went since somebody asked.
    active: Vec<Bytes>,
}

impl Traffic {
    /// Counts an event that was folded. `has_failed`: it ends an attempt that failed.
    pub fn after_fold(&mut self, event: &Event, has_failed: bool, state: &State, now_ms: u64) {
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
            self.goes_through(queue, state, now_ms, |tally| {
                count(tally);
                tally.failed += u64::from(has_failed);
            });
        }
    }

    /// Counts what goes through a queue, which is active then.
    fn goes_through(
        &mut self,
        queue: &Bytes,
        state: &State,
        now_ms: u64,
        count: impl Fn(&mut Tally),
    ) {
        let has_room = self.active.len() < ACTIVE_MAX;
        let mut becomes_active = false;
        self.with(queue, state, |counted| {
            counted.count(now_ms, count);
            becomes_active = has_room && !mem::replace(&mut counted.is_active, true);
        });
        if becomes_active {
            self.active.push(Bytes::copy_from_slice(queue));
        }
    }

    /// Some of the queues through which something went since they were last taken, and what did; none
    /// when there are no more.
    pub fn take_active(&mut self) -> Vec<(Bytes, Tally)> {
        let begin = self.active.len().saturating_sub(ACTIVE_PER_HOLD);
        let active = self.active.drain(begin..).collect::<Vec<_>>().into_iter();
        let news = active.filter_map(|name| {
            let counted = self.queues.get_mut(&name)?;
            counted.is_active = false;
            let news = counted.total.since(counted.reported);
            counted.reported = counted.total;
            Some((name, news))
        });
        news.collect()
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
            // They have no name to be listed by.
            self.others.is_active = true;
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

    /// A job is submitted to a queue.
    fn goes_through(traffic: &mut Traffic, name: &str) {
        let (name, state) =
            (Bytes::copy_from_slice(name.as_bytes()), State::new(1, <_>::default()));
        traffic.goes_through(&name, &state, 1, |tally| tally.submitted += 1);
    }

    #[test]
    fn active_queues_are_given_out_once_with_what_is_new() {
        let mut traffic = Traffic::default();
        for name in ["a", "b", "a"] {
            goes_through(&mut traffic, name);
        }
        let taken = |traffic: &mut Traffic| -> Vec<(Bytes, u64)> {
            let active = traffic.take_active();
            active.into_iter().map(|(name, news)| (name, news.submitted)).collect()
        };
        assert_eq!(taken(&mut traffic), [("a".into(), 2), ("b".into(), 1)]);
        assert_eq!(taken(&mut traffic), []);
        goes_through(&mut traffic, "a");
        assert_eq!(taken(&mut traffic), [("a".into(), 1)]);
    }

    #[test]
    fn active_queues_are_bounded_and_what_is_not_listed_is_not_lost() {
        let mut traffic = Traffic::default();
        for n in 0..=ACTIVE_MAX {
            goes_through(&mut traffic, &format!("queue {n}"));
        }
        assert_eq!(traffic.active.len(), ACTIVE_MAX);
        assert_eq!(traffic.take_active().len(), ACTIVE_PER_HOLD);
        let last = format!("queue {ACTIVE_MAX}");
        goes_through(&mut traffic, &last);
        let found = traffic.take_active().into_iter().find(|(name, _)| *name == last);
        assert_eq!(found.expect("it was active").1.submitted, 2);
        while !traffic.take_active().is_empty() {}
        assert!(traffic.queues.values().all(|counted| !counted.is_active));
    }

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
