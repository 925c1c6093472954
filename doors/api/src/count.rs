//! Counts the jobs that a filter selects, in bounded steps.

use spindle_core::Status;
use spindle_core::state::QueueListing;
use spindle_http::Answered;
use tokio::task::yield_now;

use crate::api::Api;
use crate::filter::Filter;
use crate::walk::{Order, Walk};

/// Queues whose counts are added up in one hold of the lock.
const STEP_QUEUES: usize = 512;
/// The most such steps in one request.
const STEPS_MAX: usize = 200;
/// Jobs of one stretch of a walk.
const STRETCH_JOBS: usize = 512;

/// How many jobs there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Total {
    /// The number of jobs found.
    pub jobs: usize,
    /// Whether these are all of them.
    pub is_all: bool,
}

impl Filter {
    /// Counts the jobs that are meant. A filter by queue and status only is answered from the
    /// counts that queues keep; any other takes a walk, which looks at no more jobs than one
    /// request may.
    pub async fn count(self, api: &Api) -> Answered<Total> {
        if self.is_of_queue_and_status() {
            return Ok(self.by_queues(api).await);
        }
        let mut walk = Walk::new(self, Order::Asc, None);
        let mut jobs = 0;
        while walk.next().is_some() && !walk.is_spent() {
            jobs += walk.stretch(api, STRETCH_JOBS).await?.len();
        }
        Ok(Total { jobs, is_all: walk.next().is_none() })
    }

    async fn by_queues(&self, api: &Api) -> Total {
        let of = |queue: &QueueListing| -> usize {
            let statuses = &self.scan.statuses;
            let is_meant = |status: &Status| statuses.is_empty() || statuses.contains(status);
            let meant = Status::ALL.into_iter().filter(is_meant);
            meant.map(|status| queue.counts[status as usize]).sum()
        };
        if let Some(name) = &self.scan.queue {
            let listing = api.engine().queues().get(name);
            let listing = listing.without_waiting("a count for people, as of a moment ago");
            return Total { jobs: listing.as_ref().map_or(0, of), is_all: true };
        }
        let (mut jobs, mut after) = (0, None::<bytes::Bytes>);
        for _ in 0..STEPS_MAX {
            let step = api.engine().queues().page(after.as_deref(), STEP_QUEUES);
            jobs += step.iter().map(of).sum::<usize>();
            if step.len() < STEP_QUEUES {
                return Total { jobs, is_all: true };
            }
            after = step.into_iter().next_back().map(|queue| queue.name);
            yield_now().await;
        }
        Total { jobs, is_all: false }
    }
}
