//! What can be measured from outside: numbers for dashboards and for people who ask why.

use spindle_log::Space;

use crate::door::Gate;
use crate::engine::Engine;

/// Counting stops here: an answer for people need not walk a long line.
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
    /// The disk is full: what frees space goes on, new jobs do not.
    pub is_disk_full: bool,
    /// No more jobs are taken or given out.
    pub is_stopping: bool,
}

impl Engine {
    /// How things stand.
    pub fn gauges(&self) -> Gauges {
        let log = &self.shared.log;
        let (log_first, log_bytes) = (log.first().0, log.bytes_on_disk());
        let is_disk_full = log.space() == Space::ReserveOnly;
        let inner = self.shared.inner.lock();
        Gauges {
            log_first,
            durable: self.durable(),
            log_bytes,
            undurable_bytes: inner.undurable_bytes,
            waits: inner.waits.len(),
            jobs: inner.state.jobs_count(),
            finished: inner.state.finished_count(),
            finished_bytes: inner.state.finished_bytes(),
            queues: inner.state.queues_count(),
            is_clock_held: inner.hold_expiry,
            is_disk_full,
            is_stopping: inner.stopping,
        }
    }

    /// How many clients wait for a job of a queue, up to 1,000. Sleepers, who would have to be
    /// called first, are not among them.
    pub fn waiting_leases(&self, queue: &[u8]) -> usize {
        let inner = self.shared.inner.lock();
        let mut last = None;
        let line = std::iter::from_fn(|| {
            last = inner.waits.for_queue(queue, last);
            last
        });
        line.take(WAITING_MAX).count()
    }

    /// Whether some worker sleeps until there is a job of a queue.
    pub fn has_sleepers(&self, queue: &[u8]) -> bool {
        self.shared.inner.lock().waits.has_asleep(queue)
    }
}
