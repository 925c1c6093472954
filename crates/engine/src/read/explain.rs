//! Why a job is where it is: everything that the engine knows of it, at one moment.

use spindle_core::{FairPlace, Found, JobId, JobImage, Place, ReadyBefore};

use super::bytes::FetchError;
use super::flow::BlockerNow;
use super::jobs::{JobRef, retried};
use crate::constraints::JobNow;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Jobs;

/// What explains where a job is. All of it is of the same moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The job.
    pub image: JobImage,
    /// Its limits, whether its queue is paused, and what else would keep it from starting.
    pub now: JobNow,
    /// How many ready jobs of its queue come before it, if it is ready itself.
    pub before: Option<ReadyBefore>,
    /// The first of the jobs that it waits for, at most [`BLOCKERS_SHOWN`] of them.
    pub waits_for: Vec<BlockerNow>,
    /// Where it stands among the jobs of its key, if it is ready and its queue is fair.
    pub fair: Option<FairPlace>,
    /// Clients that wait for a job of its queue, up to 1,000.
    pub waiting_leases: usize,
    /// Whether some worker sleeps until there is a job of its queue.
    pub has_sleepers: bool,
}

/// How many of the jobs that a job waits for are looked at.
const BLOCKERS_SHOWN: usize = 10;

impl Jobs<'_> {
    /// Why a job is where it is.
    ///
    /// It reveals more than the job's own events, such as a pause of its queue. So it waits for all
    /// that was decided before.
    ///
    /// # Errors
    ///
    /// The image of a finished job cannot be read.
    pub fn explain(&self, job: JobRef) -> Result<Gated<Option<Explanation>>, FetchError> {
        let mut read = None;
        retried(|| match self.look(job, read.take()) {
            Ok(answer) => Ok(answer),
            Err(Unread(place)) => {
                read = Some((place, self.0.finished_image(place)?));
                Err(FetchError::Moved)
            }
        })
    }

    /// One look under the lock. `read` is the image of a finished job, and where it was read: the job
    /// may have been retried, deleted or moved since.
    fn look(
        &self,
        job: JobRef,
        read: Option<(Place, JobImage)>,
    ) -> Result<Gated<Option<Explanation>>, Unread> {
        let has_constraints = self.0.constraints().exist();
        let inner = self.0.enter();
        let image = match inner.look_up(job) {
            None => None,
            Some(Found::Live(job)) => inner.state.image(job.id()),
            Some(Found::Finished(stub)) => match read {
                Some((place, image)) if place == stub.image() => {
                    Some(JobImage { kept_until_ms: stub.kept_until_ms(), ..image })
                }
                _ => return Err(Unread(stub.image())),
            },
        };
        let now_ms = self.0.now_ms();
        let explained = image.map(|image| inner.explanation(image, has_constraints, now_ms));
        Ok(inner.gated(explained))
    }
}

fn first_of(ids: &[u64]) -> &[u64] {
    &ids[..ids.len().min(BLOCKERS_SHOWN)]
}

/// The image of a finished job is to be read first, from here.
struct Unread(Place);

impl Inner {
    fn explanation(&self, image: JobImage, has_constraints: bool, now_ms: u64) -> Explanation {
        Explanation {
            now: self.job_now(&image, has_constraints, now_ms),
            waits_for: self.before(first_of(image.options().open())),
            before: self.state.ready_before(JobId(image.id)),
            fair: self.state.fair_place(JobId(image.id)),
            waiting_leases: self.waiting_leases(&image.queue),
            has_sleepers: self.waiting.list.has_asleep(&image.queue),
            image,
        }
    }
}
