//! How often a job is tried: its own limits, else its queue's, else those of its door's policy.

use crate::job::{Backoff, JobImage, JobOptions, Origin};
use crate::policy::Policy;
use crate::queue::QueueSettings;
use crate::state::State;

/// Who set a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The submit that brought the job.
    Job,
    /// The settings of the job's queue.
    Queue,
    /// The policy of the door the job came through.
    Door,
}

/// A limit that is in force, and who set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit<T> {
    /// The limit.
    pub value: T,
    /// Who set it.
    pub from: Source,
}

impl<T> Limit<T> {
    fn resolve(own: Option<T>, queue: Option<T>, door: T) -> Limit<T> {
        match (own, queue) {
            (Some(value), _) => Limit { value, from: Source::Job },
            (None, Some(value)) => Limit { value, from: Source::Queue },
            (None, None) => Limit { value: door, from: Source::Door },
        }
    }
}

/// The limits of a job that are in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tries {
    /// Most leases; 0 means no limit.
    pub attempts_max: Limit<u32>,
    /// Most failures; 0 means no limit.
    pub fails_max: Limit<u32>,
    /// Wait between failures.
    pub backoff: Limit<Backoff>,
}

impl Tries {
    #[inline]
    fn resolve(own: &JobOptions, queue: Option<&QueueSettings>, policy: &Policy) -> Tries {
        let (attempts_max, fails_max, backoff) = queue
            .map(|queue| (queue.attempts_max, queue.fails_max, queue.backoff))
            .unwrap_or_default();
        Tries {
            attempts_max: Limit::resolve(own.attempts_max, attempts_max, policy.attempts_max),
            fails_max: Limit::resolve(own.fails_max, fails_max, policy.fails_max),
            backoff: Limit::resolve(own.backoff, backoff, policy.backoff),
        }
    }

    /// Whether a job that was leased this often may not be leased again.
    pub fn is_last_attempt(&self, attempts: u32) -> bool {
        let max = self.attempts_max.value;
        max > 0 && attempts >= max
    }

    /// Whether a job that failed this often may not be tried again.
    pub fn is_last_failure(&self, fails: u32) -> bool {
        let max = self.fails_max.value;
        max > 0 && fails >= max
    }
}

impl State {
    /// The limits of a live job.
    #[inline]
    pub(crate) fn tries(&self, number: u32) -> Tries {
        let job = self.live_job(number);
        let queue = self.queue_at(job.queue()).map(|queue| queue.settings());
        Tries::resolve(job.options(), queue, self.policy(job.origin()))
    }

    /// The limits that are in force now for a job, finished or not, by its image.
    pub fn tries_of(&self, image: &JobImage) -> Tries {
        let queue = self.queue(&image.queue).map(|queue| queue.settings());
        Tries::resolve(image.options(), queue, self.policy(image.origin()))
    }

    /// The policy of a door.
    pub(crate) fn policy(&self, door: Origin) -> &Policy {
        self.defaults().policies.of(door)
    }
}
