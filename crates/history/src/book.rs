//! All that is kept, and how it grows.

use std::collections::HashMap;

use bytes::Bytes;
use spindle_core::JobId;

use crate::busiest::Busiest;
use crate::counts::{Failed, QueueSlot, ServerSlot};
use crate::latency::BUCKETS;
use crate::slots::{Slot, Slots, Tier};

/// The server's hour in slots of ten seconds, which is how often it is looked at: a burst or a stall
/// of half a minute can be seen. Its day in slots of five minutes: as many points as a chart has room
/// for.
const SERVER: [Tier; 2] =
    [Tier { step_ms: 10_000, slots: 360 }, Tier { step_ms: 300_000, slots: 288 }];
/// Queues and failures, of which there are many, in slots of a minute and of a quarter of an hour.
const OTHERS: [Tier; 2] =
    [Tier { step_ms: 60_000, slots: 60 }, Tier { step_ms: 900_000, slots: 96 }];
/// Queues followed.
pub(crate) const QUEUES_MAX: usize = 128;
/// Failures followed: fingerprints, each by queue.
pub(crate) const FAILURES_MAX: usize = 512;
/// When more time lies between two looks, nothing is known of most of it.
const BETWEEN_MAX_MS: u64 = 60_000;
/// In that case the counts belong to this much time before the second look.
const LOOK_MS: u64 = 10_000;
/// Rows that were not active for so long are forgotten.
const DAY_MS: u64 = 24 * 3_600_000;

/// The same counts in fine and in coarse slots: the last hour, and the last day.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Both<T> {
    pub hour: Slots<T>,
    pub day: Slots<T>,
}

impl<T: Slot> Both<T> {
    fn new([hour, day]: [Tier; 2]) -> Both<T> {
        Both { hour: Slots::new(hour), day: Slots::new(day) }
    }

    fn record(&mut self, from_ms: u64, until_ms: u64, what: &T) {
        self.hour.record(from_ms, until_ms, what);
        self.day.record(from_ms, until_ms, what);
    }

    fn forget_after(&mut self, now_ms: u64) {
        self.hour.forget_after(now_ms);
        self.day.forget_after(now_ms);
    }
}

/// A queue that is followed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct QueueRow {
    /// When something went through it last.
    pub active_ms: u64,
    pub slots: Both<QueueSlot>,
}

impl QueueRow {
    pub fn new() -> QueueRow {
        QueueRow { active_ms: 0, slots: Both::new(OTHERS) }
    }
}

/// Failures of a queue that say the same.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FailureRow {
    pub last_job: JobId,
    pub last_ms: u64,
    pub slots: Both<Failed>,
}

impl FailureRow {
    pub fn new() -> FailureRow {
        FailureRow { last_job: JobId(0), last_ms: 0, slots: Both::new(OTHERS) }
    }
}

/// A fingerprint and a queue.
pub(crate) type FailureKey = (String, Bytes);

/// What went through a queue since the last look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueNews {
    /// Its name.
    pub name: Bytes,
    /// Jobs submitted.
    pub submitted: u64,
    /// Jobs done.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Jobs that died.
    pub dead: u64,
}

/// Failed attempts since the last look, as the engine counts them.
pub(crate) use spindle_engine::FailedAttempts;

/// The result of one look at the engine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Look {
    /// When.
    pub at_ms: u64,
    /// Jobs submitted, done, attempts failed, jobs dead: since the engine's start.
    pub totals: [u64; 4],
    /// Commits by how long they took, since the engine's start.
    pub commits: [u64; BUCKETS],
    /// What went through queues since the last look.
    pub queues: Vec<QueueNews>,
    /// Attempts that failed since the last look.
    pub failures: Vec<FailedAttempts>,
}

/// What a server did in the last hour and day.
#[derive(Clone, PartialEq, Debug)]
pub struct Book {
    pub(crate) server: Both<ServerSlot>,
    pub(crate) queues: Busiest<Bytes, QueueRow>,
    pub(crate) failures: Busiest<FailureKey, FailureRow>,
    /// The last look: when it was, and the counts since the engine's start.
    last: Option<(u64, [u64; 4], [u64; BUCKETS])>,
}

impl Default for Book {
    fn default() -> Book {
        Book {
            server: Both::new(SERVER),
            queues: Busiest::new(QUEUES_MAX),
            failures: Busiest::new(FAILURES_MAX),
            last: None,
        }
    }
}

impl Book {
    /// Records a look. `ready` says how many jobs of each of some queues are ready.
    pub fn record(&mut self, look: &Look, ready: impl FnOnce(&[Bytes]) -> Vec<usize>) {
        let begun = (look.at_ms.saturating_sub(LOOK_MS), [0; 4], [0; BUCKETS]);
        let (last_ms, totals, commits) = self.last.unwrap_or(begun);
        // Counts of less than a millisecond wait for the next look. Time never goes back.
        let until_ms = look.at_ms.max(last_ms + 1);
        let passed_ms = until_ms - last_ms;
        let is_known = passed_ms <= BETWEEN_MAX_MS;
        let from_ms = if is_known { last_ms } else { until_ms.saturating_sub(LOOK_MS) };
        let seen_ms = small(until_ms - from_ms);
        let [submitted, done, failed, dead] = since(look.totals, totals);
        let commits = since(look.commits, commits);
        let slot = ServerSlot { seen_ms, submitted, done, failed, dead, commits };
        self.server.record(from_ms, until_ms, &slot);
        self.queues.pass(passed_ms);
        self.failures.pass(passed_ms);
        self.record_queues(from_ms, until_ms, &look.queues, ready);
        self.record_failures(from_ms, until_ms, &look.failures);
        self.last = Some((until_ms, look.totals, look.commits));
    }

    fn record_queues(
        &mut self,
        from_ms: u64,
        until_ms: u64,
        news: &[QueueNews],
        ready: impl FnOnce(&[Bytes]) -> Vec<usize>,
    ) {
        for queue in news {
            let events = queue.submitted + queue.done + queue.failed + queue.dead;
            self.queues.count(&queue.name, events, QueueRow::new).active_ms = until_ms;
        }
        let news: HashMap<&Bytes, &QueueNews> = news.iter().map(|it| (&it.name, it)).collect();
        let names: Vec<Bytes> = self.queues.iter().map(|(name, _)| name.clone()).collect();
        let ready = ready(&names);
        for ((name, row), ready) in self.queues.iter_mut().zip(ready) {
            let news = news.get(name);
            let count = |of: fn(&QueueNews) -> u64| small(news.map_or(0, |news| of(news)));
            let slot = QueueSlot {
                seen_ms: small(until_ms - from_ms),
                submitted: count(|queue| queue.submitted),
                done: count(|queue| queue.done),
                failed: count(|queue| queue.failed),
                dead: count(|queue| queue.dead),
                ready: small(ready as u64),
            };
            row.slots.record(from_ms, until_ms, &slot);
            if ready > 0 {
                row.active_ms = until_ms;
            }
        }
        self.queues.retain(|row| row.active_ms + DAY_MS > until_ms);
    }

    fn record_failures(&mut self, from_ms: u64, until_ms: u64, news: &[FailedAttempts]) {
        for failed in news {
            let key = (failed.fingerprint.clone(), failed.queue.clone());
            let row = self.failures.count(&key, failed.count, FailureRow::new);
            (row.last_job, row.last_ms) = (failed.last_job, failed.last_ms);
            row.slots.record(from_ms, until_ms, &Failed(small(failed.count)));
        }
        self.failures.retain(|row| row.last_ms + DAY_MS > until_ms);
    }

    /// Forgets entries that lie ahead of this time: the log, or the file this was read from, was
    /// replaced by another.
    pub fn forget_after(&mut self, now_ms: u64) {
        self.server.forget_after(now_ms);
        for (_, row) in self.queues.iter_mut() {
            row.slots.forget_after(now_ms);
            row.active_ms = row.active_ms.min(now_ms);
        }
        for (_, row) in self.failures.iter_mut() {
            row.slots.forget_after(now_ms);
        }
        self.failures.retain(|row| row.last_ms <= now_ms);
    }
}

fn since<const N: usize>(now: [u64; N], before: [u64; N]) -> [u32; N] {
    let mut counts = [0; N];
    for (at, count) in counts.iter_mut().enumerate() {
        *count = small(now[at].saturating_sub(before[at]));
    }
    counts
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
