//! Finding jobs: stretches of a walk over all of them, each a short hold of the lock.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_core::job::{Key, Origin, Status};
use spindle_core::state::{JobView, ScanFilter, ScanStretch, Walk};
use spindle_core::{Found, JobId, JobImage};

use super::bytes::FetchError;
use super::jobs::JobRef;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Jobs;

/// Jobs looked at in one hold of the lock.
const JOBS_PER_HOLD: usize = 512;
/// Images made in one hold of the lock.
const IMAGES_PER_HOLD: usize = 128;

/// A job that was found.
#[derive(Clone, PartialEq, Debug)]
pub enum ScannedJob {
    /// It is unfinished: this is all of it.
    Live(Box<JobImage>),
    /// It is done or dead: its image is to be read from the log.
    Finished(JobId),
}

impl ScannedJob {
    /// Its number.
    pub fn id(&self) -> JobId {
        match self {
            ScannedJob::Live(image) => JobId(image.id),
            ScannedJob::Finished(id) => *id,
        }
    }
}

/// What one stretch of a walk found. The absence of a job waits for no record: a list is as of a
/// moment ago.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanPage {
    /// In the order of their numbers; of a walk back, the highest first.
    pub found: Vec<ScannedJob>,
    /// Where the next stretch begins; none at the end of the walk.
    pub next: Option<JobId>,
}

/// An unfinished job, scheduled, ready or leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    /// Its number.
    pub id: JobId,
    /// Whether a worker has it.
    pub leased: bool,
    /// How often it was given back.
    pub retries: u32,
    /// Lives in memory only.
    pub foreground: bool,
    /// A foreground job that runs although nobody waits for it any more.
    pub abandoned: bool,
    /// The door it came through.
    pub origin: Origin,
    /// Its names besides Workq's.
    pub keys: Vec<Key>,
}

impl Jobs<'_> {
    /// Jobs from a number on that match a filter, at most `limit`, as far as one hold of the lock
    /// may see.
    pub fn scan(&self, from: JobId, filter: &ScanFilter, limit: usize) -> Gated<ScanPage> {
        self.walk(Walk::Up(from), filter, limit)
    }

    /// The same from the newest on: jobs below a number, the highest first. What is next is the
    /// number below which the next stretch looks.
    pub fn scan_back(&self, below: JobId, filter: &ScanFilter, limit: usize) -> Gated<ScanPage> {
        self.walk(Walk::Down(below), filter, limit)
    }

    fn walk(&self, walk: Walk, filter: &ScanFilter, limit: usize) -> Gated<ScanPage> {
        let mut inner = self.0.enter();
        let limit = limit.clamp(1, IMAGES_PER_HOLD);
        let stretch = inner.state.scan(walk, filter, limit, JOBS_PER_HOLD);
        inner.page_of(stretch)
    }

    /// The number from which on jobs were submitted at this time or later. Numbers rise with time,
    /// so this looks at a few dozen jobs only, one hold of the lock each.
    pub fn first_created(&self, at_ms: u64) -> Result<JobId, FetchError> {
        let (mut low, mut high) = (0, self.end_of_ids().0);
        while low < high {
            let middle = low + (high - low) / 2;
            let first = self.0.shared.inner.lock().state.first_from(JobId(middle));
            let Some(id) = first.filter(|id| id.0 < high) else {
                high = middle;
                continue;
            };
            let job = self.get(JobRef::Id(id))?;
            match job.without_waiting("a bound for a walk, whose pages have their own gates") {
                Some(image) if image.created_ms < at_ms => low = id.0 + 1,
                Some(_) => high = middle,
                // It went meanwhile: the next look shows where.
                None => {}
            }
        }
        Ok(JobId(low))
    }

    /// All jobs there are have numbers below this.
    pub fn end_of_ids(&self) -> JobId {
        self.0.shared.inner.lock().next_id()
    }

    /// Unfinished jobs by number from this one on, as far as one step sees, and where the next step
    /// begins; none at the end. A list for people: it may be a moment ahead of the disk.
    pub fn lines(&self, from: JobId) -> (Vec<JobLine>, Option<JobId>) {
        let inner = self.0.enter();
        let (jobs, next) = inner.live_jobs(from);
        let shown = jobs.into_iter().filter(|job| job.status() != Status::Parked);
        let lines = shown.map(|job| {
            let leased = job.status() == Status::Leased;
            JobLine {
                id: job.id(),
                leased,
                retries: job.attempts().saturating_sub(u32::from(leased)),
                foreground: job.is_foreground(),
                abandoned: inner.waiting.is_abandoned(job.id()),
                origin: job.origin(),
                keys: job.keys().to_vec(),
            }
        });
        (lines.collect(), next)
    }

    /// The queues of unfinished jobs of a door, in steps as [`Jobs::lines`].
    pub fn queues_of(&self, door: Origin, from: JobId) -> (BTreeSet<Bytes>, Option<JobId>) {
        let inner = self.0.enter();
        let (jobs, next) = inner.live_jobs(from);
        let of_door = jobs.iter().filter(|job| job.origin() == door);
        (of_door.map(|job| job.queue().clone()).collect(), next)
    }
}

impl Inner {
    /// Unfinished jobs from a number on, as far as one hold of the lock may see, and where to go on.
    fn live_jobs(&self, from: JobId) -> (Vec<JobView<'_>>, Option<JobId>) {
        let mut jobs = self.state.jobs_from(from);
        let live = jobs.by_ref().take(JOBS_PER_HOLD).filter_map(Found::live).collect();
        (live, jobs.next().map(|found| found.id()))
    }

    fn page_of(&self, stretch: ScanStretch) -> Gated<ScanPage> {
        let mut page = Gated::open(());
        let mut all = Vec::with_capacity(stretch.found.len());
        for id in stretch.found {
            let Some(found) = self.state.job(id) else { continue };
            let scanned = match found {
                Found::Live(_) => self.state.image(id).map(|image| ScannedJob::Live(image.into())),
                Found::Finished(_) => Some(ScannedJob::Finished(id)),
            };
            all.extend(page.absorb(Gated::new(scanned, self.gate_of(&found))));
        }
        page.map(|()| ScanPage { found: all, next: stretch.next })
    }
}
