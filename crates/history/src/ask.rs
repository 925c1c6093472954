//! The questions that the history answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::JobId;

use crate::book::{Book, Both, FailureRow, QueueRow};
use crate::counts::{Failed, QueueSlot, ServerSlot};
use crate::slots::{Slot, Slots};

/// How far back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Range {
    /// The last hour.
    #[default]
    Hour,
    /// The last day.
    Day,
}

/// Points of equal length, the oldest first. Points of which nothing is known are left out.
#[derive(Clone, PartialEq, Debug)]
pub struct Points<T> {
    /// How long a point is, in milliseconds.
    pub step_ms: u64,
    /// When each begins, and what it holds.
    pub points: Vec<(u64, T)>,
}

/// Failures that say the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// What they say, blanked.
    pub fingerprint: String,
    /// How many there were.
    pub count: u64,
    /// When the last one was.
    pub last_ms: u64,
    /// The job of the last one.
    pub last_job: JobId,
    /// The queues that they are in, the one with the most first.
    pub queues: Vec<Share>,
    /// How many there were from point to point.
    pub trend: Points<u64>,
}

/// What one queue has of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The queue.
    pub queue: Bytes,
    /// How many failures it has.
    pub count: u64,
}

impl<T: Slot> Both<T> {
    fn of(&self, range: Range) -> &Slots<T> {
        match range {
            Range::Hour => &self.hour,
            Range::Day => &self.day,
        }
    }

    fn points(&self, range: Range, now_ms: u64, max: usize) -> Points<T> {
        let (step_ms, points) = self.of(range).points(now_ms, max);
        Points { step_ms, points }
    }
}

impl<T> Points<T> {
    fn known(mut self, seen_ms: impl Fn(&T) -> u32) -> Points<T> {
        self.points.retain(|(_, slot)| seen_ms(slot) > 0);
        self
    }
}

impl Book {
    /// What the server did, in at most so many points.
    pub fn server(&self, range: Range, now_ms: u64, max: usize) -> Points<ServerSlot> {
        self.server.points(range, now_ms, max).known(|slot| slot.seen_ms)
    }

    /// What the server did in the last minute, as far as it is known: up to the last look at it.
    pub fn last_minute(&self, now_ms: u64) -> ServerSlot {
        let Points { step_ms, points } = self.server(Range::Hour, now_ms, usize::MAX);
        let mut sum = ServerSlot::default();
        let is_recent = |at_ms: u64| at_ms + step_ms + 60_000 > now_ms;
        for (_, slot) in points.iter().filter(|(at_ms, _)| is_recent(*at_ms)) {
            sum.add(slot);
        }
        sum
    }

    /// What went through a queue, in at most so many points; none if the queue is not followed.
    pub fn queue(&self, name: &[u8], range: Range, now_ms: u64, max: usize) -> Points<QueueSlot> {
        let row = self.queues.get(&Bytes::copy_from_slice(name));
        let points = |row: &QueueRow| row.slots.points(range, now_ms, max);
        row.map_or_else(|| points(&QueueRow::new()), points).known(|slot| slot.seen_ms)
    }

    /// The followed queues through which something went, or in which something waited; those with the
    /// most first.
    pub fn busiest(
        &self,
        range: Range,
        now_ms: u64,
        max: usize,
        limit: usize,
    ) -> Vec<(Bytes, Points<QueueSlot>)> {
        let points = self.queues.iter().map(|(name, row)| {
            let points = row.slots.points(range, now_ms, max).known(|slot| slot.seen_ms);
            (name.clone(), points)
        });
        let rank = |slots: &Points<QueueSlot>| -> u64 {
            let one = |slot: &QueueSlot| {
                [slot.submitted, slot.done, slot.failed, slot.dead, slot.ready]
                    .map(u64::from)
                    .iter()
                    .sum::<u64>()
            };
            slots.points.iter().map(|(_, slot)| one(slot)).sum()
        };
        let mut found: Vec<_> = points.filter(|(_, points)| rank(points) > 0).collect();
        found.sort_by_cached_key(|(_, points)| std::cmp::Reverse(rank(points)));
        found.truncate(limit);
        found
    }

    /// Failures of a queue, or of all, by fingerprint, those with the most first; each with a trend of
    /// at most so many points.
    pub fn failures(
        &self,
        queue: Option<&[u8]>,
        range: Range,
        now_ms: u64,
        max: usize,
        limit: usize,
    ) -> Vec<Group> {
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        for ((fingerprint, of), row) in self.failures.iter() {
            if queue.is_some_and(|queue| of != queue) {
                continue;
            }
            let trend = row.slots.points(range, now_ms, max);
            let count = trend.points.iter().map(|(_, failed)| u64::from(failed.0)).sum();
            if count > 0 {
                let group = groups.entry(fingerprint).or_insert_with(|| new_group(fingerprint));
                group.add(of, row, count, trend);
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.last_ms)));
        groups.truncate(limit);
        for group in &mut groups {
            group.queues.sort_by_key(|share| std::cmp::Reverse(share.count));
            group.trend.points.sort_by_key(|(at, _)| *at);
        }
        groups
    }
}

fn new_group(fingerprint: &str) -> Group {
    Group {
        fingerprint: fingerprint.to_owned(),
        count: 0,
        last_ms: 0,
        last_job: JobId(0),
        queues: Vec::new(),
        trend: Points { step_ms: 0, points: Vec::new() },
    }
}

impl Group {
    fn add(&mut self, queue: &Bytes, row: &FailureRow, count: u64, trend: Points<Failed>) {
        self.count += count;
        if (row.last_ms, row.last_job) > (self.last_ms, self.last_job) {
            (self.last_ms, self.last_job) = (row.last_ms, row.last_job);
        }
        self.queues.push(Share { queue: queue.clone(), count });
        self.trend.step_ms = trend.step_ms;
        for (at_ms, Failed(count)) in trend.points {
            match self.trend.points.iter_mut().find(|(at, _)| *at == at_ms) {
                Some((_, sum)) => *sum += u64::from(count),
                None => self.trend.points.push((at_ms, u64::from(count))),
            }
        }
    }
}
