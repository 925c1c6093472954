//! Finding jobs by status, door and queue, in the order of their numbers.
//!
//! The list of all jobs by number lies in chunks of up to 128. Each chunk is marked with what may
//! be in it: a bit for each pair of status and door, and one for the queue, by its number. A scan
//! for few jobs among many skips the chunks that cannot have them: that costs no memory per job
//! and, in a list of a million, a few microseconds. Marks are set when jobs come and change; a scan
//! that reads a whole chunk clears the marks that are no longer true.

use bytes::Bytes;

use super::*;
use crate::job::{JobId, Status};

const DOORS: usize = Origin::ALL.len();
const CLASSES: usize = Status::ALL.len() * DOORS;
/// Queues share bits when there are more of them than this.
const QUEUE_BITS: usize = 128 - CLASSES;
/// How many chunks can be skipped at the cost of reading one job.
const PASSED_PER_JOB: usize = 4;

/// The marks a job leaves at its chunk.
pub(crate) fn marks_of(status: Status, door: Origin, queue: u32) -> u128 {
    (1 << class_bit(status, door)) | queue_mark(queue)
}

fn class_bit(status: Status, door: Origin) -> usize {
    status as usize * DOORS + door as usize
}

fn queue_mark(queue: u32) -> u128 {
    1 << (CLASSES + queue as usize % QUEUE_BITS)
}

/// All doors' marks of a status.
fn status_marks(status: Status) -> u128 {
    ((1 << DOORS) - 1) << (status as usize * DOORS)
}

/// Which jobs a scan finds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanFilter {
    /// One of these statuses; none means any.
    pub statuses: Vec<Status>,
    /// The door it came through. For a finished job only its image says that: the scan finds those
    /// that may have come through the door, and the caller checks.
    pub door: Option<Origin>,
    /// Its queue.
    pub queue: Option<Bytes>,
    /// Those only that one of these requests deleted; empty means all.
    pub deleted_by: Vec<u64>,
}

/// Jobs found on a stretch of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScanStretch {
    /// In the order of the walk.
    pub found: Vec<JobId>,
    /// Where the next stretch begins: on the way down, below this one. None at the end of the list.
    pub next: Option<JobId>,
}

/// A [`ScanFilter`] as marks.
struct Sieve {
    statuses: [bool; Status::ALL.len()],
    door: Option<Origin>,
    queue: Option<u32>,
    deleted_by: Vec<u64>,
    classes: u128,
}

impl Sieve {
    fn is_idle(&self, marks: u128) -> bool {
        marks & self.classes == 0 || self.queue.is_some_and(|queue| marks & queue_mark(queue) == 0)
    }
}

/// Which way a scan goes, and from where.
#[derive(Clone, Copy, Debug)]
pub enum Walk {
    /// To higher numbers, from this one on.
    Up(JobId),
    /// To lower numbers, from below this one.
    Down(JobId),
}

impl Walk {
    fn is_passed_by(self, id: JobId) -> bool {
        match self {
            Walk::Up(from) => id < from,
            Walk::Down(below) => id >= below,
        }
    }

    /// Where the next stretch has to start so that it begins at this job.
    fn again_at(self, id: JobId) -> JobId {
        match self {
            Walk::Up(_) => id,
            Walk::Down(_) => JobId(id.0 + 1),
        }
    }

    fn next_of<T>(self, mut entries: impl DoubleEndedIterator<Item = T>) -> Option<T> {
        match self {
            Walk::Up(_) => entries.next(),
            Walk::Down(_) => entries.next_back(),
        }
    }
}

impl State {
    /// Finds jobs. Ends with the list, with `limit` jobs found, or when it has read `jobs_max`
    /// jobs, so that others need not wait long.
    pub fn scan(
        &mut self,
        walk: Walk,
        filter: &ScanFilter,
        limit: usize,
        jobs_max: usize,
    ) -> ScanStretch {
        let mut stretch = ScanStretch::default();
        let Some(sieve) = self.sieve(filter) else { return stretch };
        let mut at = Some(self.by_id.walk_from(match walk {
            Walk::Up(from) => from.0,
            Walk::Down(below) => below.0.saturating_sub(1),
        }));
        let (mut looked_at, mut passed) = (0, 0);
        while let Some((here, (marks, live))) = at.and_then(|at| Some((at, self.by_id.chunk(at)?)))
        {
            if looked_at + passed / PASSED_PER_JOB >= jobs_max {
                // Read only now: a job's number is far away in memory, while its chunk's marks are
                // near.
                let first = walk.next_of(live.iter());
                stretch.next = first.map(|handle| walk.again_at(JobId(self.id_of(*handle))));
                return stretch;
            }
            if sieve.is_idle(marks) {
                passed += 1;
            } else {
                let (mut exact, mut slots_left) = (0, live.iter());
                while let Some(handle) = walk.next_of(slots_left.by_ref()) {
                    let id = JobId(self.id_of(*handle));
                    let (own, fits) = self.sift(&sieve, *handle, marks);
                    exact |= own;
                    if !fits || walk.is_passed_by(id) {
                        continue;
                    }
                    if stretch.found.len() == limit {
                        stretch.next = Some(walk.again_at(id));
                        return stretch;
                    }
                    stretch.found.push(id);
                }
                looked_at += live.len();
                self.by_id.set_marks(here, exact);
            }
            at = match walk {
                Walk::Up(_) => Some(self.by_id.after(here)),
                Walk::Down(_) => self.by_id.before(here),
            };
        }
        stretch
    }

    /// None: nothing can be found.
    fn sieve(&self, filter: &ScanFilter) -> Option<Sieve> {
        let queue = match &filter.queue {
            Some(name) => Some(self.queue_number(name)?),
            None => None,
        };
        let by_request = !filter.deleted_by.is_empty();
        let asked = |status: &Status| {
            (filter.statuses.is_empty() || filter.statuses.contains(status))
                && (!by_request || *status == Status::Parked || status.is_finished())
        };
        let mut classes = 0;
        for status in Status::ALL.iter().filter(|status| asked(status)) {
            classes |= match filter.door {
                Some(door) => 1 << class_bit(*status, door),
                None => status_marks(*status),
            };
        }
        let statuses = Status::ALL.map(|status| asked(&status));
        let deleted_by = filter.deleted_by.clone();
        Some(Sieve { statuses, door: filter.door, queue, deleted_by, classes })
    }

    /// The marks of a job, given those of its chunk, and whether it passes.
    fn sift(&self, sieve: &Sieve, handle: u32, marks: u128) -> (u128, bool) {
        let (status, door, queue) = if handle & FINISHED == 0 {
            let job = &self.jobs.live[handle];
            (job.status(), Some(job.origin()), job.queue())
        } else {
            let finished = self.jobs.finished.job(handle & !FINISHED);
            (finished.status(), None, finished.queue())
        };
        let own = match door {
            Some(door) => marks_of(status, door, queue),
            // Memory does not have a finished job's door: it may be any that the chunk is marked
            // with.
            None => (marks & status_marks(status)) | queue_mark(queue),
        };
        let fits = sieve.statuses[status as usize]
            && sieve.queue.is_none_or(|wanted| wanted == queue)
            && own & sieve.classes != 0
            && sieve.door.is_none_or(|wanted| door.is_none_or(|door| door == wanted))
            && (sieve.deleted_by.is_empty() || self.is_deleted_by(handle, &sieve.deleted_by));
        (own, fits)
    }

    /// Jobs from a number on, in the order of their numbers, without those in chunks that have none of this status.
    pub fn jobs_that_may_be(&self, status: Status, from: JobId) -> impl Iterator<Item = Found<'_>> {
        let mut at = self.by_id.walk_from(from.0);
        let chunks = std::iter::from_fn(move || {
            let chunk = self.by_id.chunk(at)?;
            at = self.by_id.after(at);
            Some(chunk)
        });
        chunks
            .filter(move |(marks, _)| marks & status_marks(status) != 0)
            .flat_map(|(_, handles)| handles.iter())
            .map(|handle| self.found(*handle))
            .filter(move |found| found.id() >= from)
    }

    /// The first job from a number on.
    pub fn first_from(&self, id: JobId) -> Option<JobId> {
        self.jobs_from(id).next().map(|found| found.id())
    }
}
