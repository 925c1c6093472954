//! Jobs and queues of the engine, as Workq's clients see them.

use bytes::Bytes;
use spindle_core::address::foreign_job;
use spindle_core::job::{JobImage, Status};
use spindle_core::state::QueueListing;
use spindle_core::{JobId, address};
use spindle_engine::JobRef;

use crate::wire::{JobInfo, JobState, QueueInfo, Uuid};

/// The job that a UUID names; `None` if it lies in the range of other doors' jobs and cannot name
/// one.
pub(crate) fn job_ref(id: Uuid) -> Option<JobRef> {
    if address::is_foreign(id.as_bytes()) {
        return foreign_job(id.as_bytes()).map(JobRef::ForeignId);
    }
    Some(JobRef::Uuid(*id.as_bytes()))
}

/// The UUID under which a job is shown.
pub(crate) fn uuid_of(uuid: Option<[u8; 16]>, id: JobId) -> Uuid {
    Uuid::from_bytes(uuid.unwrap_or_else(|| address::foreign_uuid(id)))
}

/// What `inspect` shows of a job.
pub(crate) fn job_info(image: &JobImage, payload: Bytes) -> JobInfo {
    // A `run` has one attempt by its nature; its client gave no limits.
    let limit = |given: Option<u32>| if image.foreground { 0 } else { given.unwrap_or(0) };
    JobInfo {
        id: uuid_of(image.uuid(), JobId(image.id)),
        name: image.queue.clone(),
        ttr_ms: image.ttr_ms.unwrap_or(0),
        ttl_ms: image.ttl_ms.unwrap_or(0),
        payload,
        attempts_max: limit(image.options().attempts_max),
        attempts: u64::from(image.attempts),
        fails_max: limit(image.options().fails_max),
        fails: u64::from(image.fails),
        priority: image.priority,
        state: state_of(image),
        created_ms: image.created_ms,
        time_ms: image.options().scheduled_ms,
    }
}

fn state_of(image: &JobImage) -> JobState {
    match image.status() {
        Status::Done => JobState::Completed,
        Status::Dead => JobState::Failed,
        Status::Leased => JobState::Leased,
        Status::Parked | Status::Blocked => JobState::New,
        Status::Scheduled | Status::Ready => {
            if image.attempts == 0 && image.fails == 0 {
                JobState::New
            } else {
                JobState::Pending
            }
        }
    }
}

/// What `inspect` shows of a queue.
pub(crate) fn queue_info(queue: &QueueListing) -> QueueInfo {
    QueueInfo {
        name: queue.name.clone(),
        ready: queue.counts[Status::Ready as usize] as u64,
        scheduled: queue.counts[Status::Scheduled as usize] as u64,
    }
}
