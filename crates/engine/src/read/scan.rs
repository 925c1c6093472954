//! Finding jobs: stretches of a walk over all of them, each a short hold of the lock.

use spindle_core::state::{ScanFilter, ScanStretch, Walk};
use spindle_core::{Found, JobId, JobImage};

use super::jobs::{FetchError, JobRef};
use crate::door::Gate;
use crate::engine::Engine;
use crate::inner::Inner;

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

/// What one stretch of a walk found.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanPage {
    /// In the order of their numbers; of a walk back, the highest first.
    pub found: Vec<ScannedJob>,
    /// Where the next stretch begins; none at the end of the walk.
    pub next: Option<JobId>,
    /// What must be durable before anybody is told of them. That a job is *not* among them waits
    /// for nothing: a list is as of a moment ago.
    pub gate: Gate,
}

impl ScanPage {
    fn of(inner: &Inner, stretch: ScanStretch) -> ScanPage {
        let mut sightings = ScanPage { found: Vec::new(), next: stretch.next, gate: Gate::OPEN };
        for id in stretch.found {
            let Some(found) = inner.state.job(id) else { continue };
            let is_logged = !matches!(found, Found::Live(job) if job.is_foreground());
            if is_logged {
                sightings.gate = sightings.gate.max(inner.gate_of(&found));
            }
            match found {
                Found::Live(_) => {
                    let image =
                        inner.state.image(id).map(|image| ScannedJob::Live(Box::new(image)));
                    sightings.found.extend(image);
                }
                Found::Finished(_) => sightings.found.push(ScannedJob::Finished(id)),
            }
        }
        sightings
    }
}

impl Engine {
    /// Jobs from a number on that are what is filter, at most `limit`, as far as one hold of the
    /// lock may see.
    pub fn scan(&self, from: JobId, filter: &ScanFilter, limit: usize) -> ScanPage {
        let mut inner = self.enter();
        let limit = limit.clamp(1, IMAGES_PER_HOLD);
        let stretch = inner.state.scan(Walk::Up(from), filter, limit, JOBS_PER_HOLD);
        ScanPage::of(&inner, stretch)
    }

    /// The same from the newest on: jobs below a number, the highest first. What is next is the
    /// number below which the next stretch looks.
    pub fn scan_back(&self, below: JobId, filter: &ScanFilter, limit: usize) -> ScanPage {
        let mut inner = self.enter();
        let limit = limit.clamp(1, IMAGES_PER_HOLD);
        let stretch = inner.state.scan(Walk::Down(below), filter, limit, JOBS_PER_HOLD);
        ScanPage::of(&inner, stretch)
    }

    /// The number from which on jobs were submitted at this time or later. Numbers rise with time,
    /// so this looks at a few dozen jobs only, one hold of the lock each.
    pub fn first_created(&self, at_ms: u64) -> Result<JobId, FetchError> {
        let (mut low, mut high) = (0, self.end_of_ids().0);
        while low < high {
            let middle = low + (high - low) / 2;
            let first = self.look(|state| state.first_from(JobId(middle)));
            let Some(id) = first.filter(|id| id.0 < high) else {
                high = middle;
                continue;
            };
            match self.job(JobRef::Id(id))?.0 {
                Some(image) if image.created_ms < at_ms => low = id.0 + 1,
                Some(_) => high = middle,
                // It went meanwhile: the next one tells.
                None => {}
            }
        }
        Ok(JobId(low))
    }

    /// All jobs there are have numbers below this.
    pub fn end_of_ids(&self) -> JobId {
        JobId(self.shared.inner.lock().next_id)
    }
}
