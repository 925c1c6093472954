//! Numbers that can be read from outside, for dashboards and for people who ask why.

use bytes::Bytes;
use spindle_core::Status;
use spindle_log::Space;

use super::failures::FailedAttempts;
use super::meters::MeterReadings;
use super::stats::Stats;
use super::traffic::{QueueTraffic, Tally};
use super::workers::WorkerView;
use crate::gate::Gate;
use crate::inner::Inner;
use crate::views::Observe;

/// No more clients than this are reported as waiting for a queue: doors show the number to people.
const WAITING_MAX: usize = 1_000;

/// Numbers of one moment. They wait for no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gauges {
    /// The oldest record that is kept.
    pub log_first: u64,
    /// All records below this are durable.
    pub durable: Gate,
    /// What the kept records take.
    pub log_bytes: u64,
    /// The most that they may take; `u64::MAX` is no limit.
    pub log_bytes_max: u64,
    /// The most unfinished jobs; `u64::MAX` is no limit.
    pub unfinished_max: u64,
    /// Bytes decided and not durable yet.
    pub undurable_bytes: usize,
    /// Clients that wait: for jobs, results, room, events.
    pub waits: usize,
    /// Jobs, finished ones included.
    pub jobs: usize,
    /// Done and dead jobs that are kept.
    pub finished: usize,
    /// What those take on disk, within an eighth.
    pub finished_bytes: u64,
    /// Queues with jobs or settings.
    pub queues: usize,
    /// TTL deletions are held because the clock and the log disagree.
    pub is_clock_held: bool,
    /// Timed changes wait for room on a full disk: deletions by TTL, leases that are over,
    /// schedules.
    pub are_timers_held: bool,
    /// The disk is full: changes that free space go on, new jobs are refused.
    pub is_disk_full: bool,
    /// The log can prepare no segment, for a reason other than room: as on a full disk, new jobs are refused.
    pub log_cannot_grow: bool,
    /// The log is as large as it may be: new jobs are refused.
    pub is_log_full: bool,
    /// There are as many unfinished jobs as there may be: one more is refused.
    pub is_server_full: bool,
    /// No more jobs are taken or given out.
    pub is_stopping: bool,
}

impl Observe<'_> {
    /// How things stand.
    pub fn gauges(&self) -> Gauges {
        let log = &self.0.shared.log;
        let (log_first, log_bytes) = (log.first().0, log.bytes_on_disk());
        let space = log.space();
        let is_log_full = self.0.is_log_full();
        let inner = self.0.shared.inner.lock();
        let unfinished = inner.state.unfinished_count() as u64;
        let unfinished_max = inner.state.defaults().unfinished_max;
        Gauges {
            log_first,
            durable: self.0.durable(),
            log_bytes,
            log_bytes_max: self.0.shared.log_bytes_max,
            unfinished_max,
            undurable_bytes: inner.batch.undurable_bytes(),
            waits: inner.waiting.list.len(),
            jobs: inner.state.jobs_count(),
            finished: inner.state.finished_count(),
            finished_bytes: inner.state.finished_bytes(),
            queues: inner.state.queues_count(),
            is_clock_held: inner.hold_expiry,
            are_timers_held: inner.holds_timers,
            is_disk_full: space == Space::ReserveOnly,
            log_cannot_grow: space == Space::CannotGrow,
            is_log_full,
            is_server_full: unfinished >= unfinished_max,
            is_stopping: inner.stopping,
        }
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.0.shared.inner.lock().numbers.stats
    }

    /// How long commits take and how large they are, and how late scheduled jobs are.
    pub fn meters(&self) -> MeterReadings {
        self.0.shared.meters.read()
    }

    /// What went through a queue. Nothing, for one that is not counted apart.
    pub fn traffic(&self, queue: &[u8]) -> QueueTraffic {
        self.0.shared.inner.lock().numbers.traffic.of(queue, self.0.now_ms())
    }

    /// What went through all queues together that have no counts of their own.
    pub fn traffic_of_others(&self) -> QueueTraffic {
        self.0.shared.inner.lock().numbers.traffic.of_others(self.0.now_ms())
    }

    /// Some of the queues through which something went since they were last taken, and what did; none
    /// when there are no more. There may be only one caller that takes them: what one takes, no other gets.
    pub fn take_active_queues(&self) -> Vec<(Bytes, Tally)> {
        self.0.shared.inner.lock().numbers.traffic.take_active()
    }

    /// Attempts that failed since they were last taken, by what they say and by queue, and how many
    /// more there were than are kept apart. There may be one taker only.
    pub fn take_failures(&self) -> (Vec<FailedAttempts>, u64) {
        let failures = std::mem::take(&mut self.0.shared.inner.lock().numbers.failures);
        failures.into_rows()
    }

    /// How many jobs of each of these queues are ready. For lists of bounded length.
    pub fn ready_counts(&self, queues: &[Bytes]) -> Vec<usize> {
        let inner = self.0.shared.inner.lock();
        let ready = |name: &Bytes| inner.state.queue(name).map_or(0, |it| it.count(Status::Ready));
        queues.iter().map(ready).collect()
    }

    /// Workers from a place of the list on, as far as one hold of the lock may see, and the place
    /// where the next step begins; none at the end. Some may be gone: see [`WorkerView::is_gone`].
    pub fn workers(&self, from: usize) -> (Vec<WorkerView>, Option<usize>) {
        self.0.shared.inner.lock().numbers.workers.list(from, self.0.now_ms())
    }

    /// How many clients wait for a job of a queue, up to 1,000. Sleepers, which would have to be
    /// called first, are not among them.
    pub fn waiting_leases(&self, queue: &[u8]) -> usize {
        self.0.shared.inner.lock().waiting_leases(queue)
    }

    /// Whether some worker sleeps until there is a job of a queue.
    pub fn has_sleepers(&self, queue: &[u8]) -> bool {
        self.0.shared.inner.lock().waiting.list.has_asleep(queue)
    }
}

impl Inner {
    /// As [`Observe::waiting_leases`], within a look at more.
    pub(crate) fn waiting_leases(&self, queue: &[u8]) -> usize {
        self.waiting.list.count_for_queue(queue).min(WAITING_MAX)
    }
}
