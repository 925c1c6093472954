//! Whether there is room for one more unfinished job: the limits of the server and of its queue.
//!
//! A job is counted from its submit until it is done or dead, whether it waits, runs or is parked.
//! What would bring one more into the count is refused: a submit, a retry of a job that ended, and an
//! edit that moves a job into another queue. What is counted already stays, whatever becomes of it: an
//! attempt that failed or was lost, a job that is kept in the log from now on. So a queue holds more than
//! its limit only when the limit was lowered, or came when a server began with another default.

use crate::decide::{Decided, refuse_if};
use crate::job::JobId;
use crate::rejection::Rejection;
use crate::state::{Found, JobView, Queue, State, priority_class};

/// A job that is to be counted in a queue.
pub(super) struct Newcomer<'a> {
    pub queue: &'a [u8],
    pub priority: i64,
    pub payload_bytes: u32,
    /// Jobs that go when it comes.
    pub replaces: &'a [u64],
}

/// A job that the server did not count before.
pub(super) fn check(state: &State, job: &Newcomer<'_>) -> Decided {
    let unfinished = state.unfinished_count() - job.replaces.len();
    refuse_if(unfinished as u64 >= state.defaults().unfinished_max, Rejection::ServerFull)?;
    check_queue(state, job)
}

/// A job that the queue did not count before.
pub(super) fn check_queue(state: &State, job: &Newcomer<'_>) -> Decided {
    let default_max = state.defaults().queue_unfinished_max;
    let Some(queue) = state.queue(job.queue) else {
        return refuse_if(default_max == 0, Rejection::QueueFull);
    };
    let going = || {
        let found = job.replaces.iter().filter_map(|id| state.job(JobId(*id)));
        found.filter_map(Found::live).filter(|job| job.queue() == queue.name())
    };
    let jobs = (queue.unfinished() - going().count()) as u64;
    refuse_if(jobs >= jobs_max(queue, job.priority, default_max), Rejection::QueueFull)?;
    let Some(bytes_max) = queue.settings().bytes_max else { return Ok(()) };
    let payload_len = |job: JobView<'_>| u64::from(job.payload_len());
    let bytes = queue.payload_bytes() - going().map(payload_len).sum::<u64>();
    let is_over = bytes.saturating_add(job.payload_bytes.into()) > bytes_max;
    refuse_if(is_over, Rejection::QueueFull)
}

/// How many unfinished jobs a queue may have for one of this priority to come. The limit may be that of
/// the priority's class, but it is compared with all unfinished jobs of the queue.
fn jobs_max(queue: &Queue, priority: i64, default_max: u64) -> u64 {
    let settings = queue.settings();
    let jobs_max = settings.jobs_max.unwrap_or(default_max);
    match settings.jobs_max_by_class.get(priority_class(priority)) {
        None | Some(0) => jobs_max,
        Some(class_max) => jobs_max.min(*class_max),
    }
}
