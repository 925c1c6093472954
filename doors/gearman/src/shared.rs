//! What all sessions of the door share.

use parking_lot::Mutex;
use spindle_access::{Access, Denied, Login, Role, Target};
use spindle_core::address::from_gearman_handle;
use spindle_engine::{Answer, Engine, JobRef, Outbox};

use crate::registry::Registry;
use crate::wire::{HandlePrefix, Limits};

/// What all sessions of the door share.
#[derive(Debug)]
pub(crate) struct Common {
    pub limits: Limits,
    pub handles: HandlePrefix,
    /// Which clients are let in.
    pub access: Access,
    pub verbose: &'static str,
    pub exceptions: bool,
    /// The connections, and the functions that are known.
    pub registry: Mutex<Registry>,
}

impl Common {
    /// The largest payload that fits into an assignment, in bytes. This door's leases pass over
    /// larger ones.
    pub fn payload_bytes_max(&self) -> u32 {
        let room = self.limits.packet_bytes_max.saturating_sub(ASSIGNMENT_BYTES_MAX);
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

/// An upper bound of handle, function, unique and reducer of an assignment with the NULs between
/// them.
const ASSIGNMENT_BYTES_MAX: usize = 1024;

/// Answers in the outbox above which further packets wait until the peer has read some.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The same while answers wait for the log: a batch of them is to leave together.
const GATED_ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Whether further packets wait until the peer has read some of its answers.
pub(crate) fn is_full(out: &Outbox) -> bool {
    let max = if out.is_gated() { GATED_ANSWER_BYTES_MAX } else { ANSWER_BYTES_MAX };
    out.pending_bytes() > max
}

/// Whether somebody may do something with a job of this handle.
pub(crate) fn authorize_job(
    engine: &Engine,
    login: &mut Login,
    role: Role,
    handle: &[u8],
    out: &mut Outbox,
) -> Result<(), Denied> {
    let jobs = engine.jobs();
    let mut queue = || {
        let id = from_gearman_handle(handle)?;
        out.open(jobs.queue_of(JobRef::Id(id)))
    };
    login.authorize(role, Target::Job(&mut queue))
}

/// Whether somebody may hear this of a job that it waits for, which it submitted to `function`. The
/// job's own queue counts, as it may have been moved; one that is gone has none any more.
pub(crate) fn authorize_watched(
    login: &mut Login,
    function: &[u8],
    answer: &Answer,
) -> Result<(), Denied> {
    let queue = match answer {
        Answer::Reported { queue, .. } => queue,
        Answer::Ended { image, .. } => &image.queue,
        _ => function,
    };
    login.authorize(Role::Submit, Target::Queue(queue))
}
