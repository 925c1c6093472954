//! What a job gets where neither its submit nor its queue says anything.
//!
//! Each door declares a [`Policy`] beside its protocol, and the code that starts a server hands all
//! of them to the state. The core reads a policy by the number that records carry for the door and
//! knows no protocol: a rule that only one protocol has is a field of [`Policy`].

use crate::job::{Backoff, Origin};
use crate::payload::Type;

const HOUR_MS: u64 = 3_600_000;

/// Where a job goes when its lease was lost: it timed out, its holder's connection closed, or the
/// server restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Requeue {
    /// Back to its place among the jobs of its priority.
    #[default]
    InPlace,
    /// Behind all jobs of its priority, so that a job that kills its workers blocks no queue.
    ToTail,
}

/// The rules that a door declares for the jobs it takes in and for the workers it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Most leases of a job; 0 means no limit.
    pub attempts_max: u32,
    /// Most failures of a job; 0 means no limit.
    pub fails_max: u32,
    /// Wait between failures of a job.
    pub backoff: Backoff,
    /// How long a done job is kept; absent means until its TTL ends or it is deleted.
    pub keep_ms: Option<u64>,
    /// Where a job goes when a worker of this door has lost it, whichever door the job came
    /// through.
    pub on_lost_lease: Requeue,
    /// The type of the errors that workers of this door report.
    pub error_type: Type,
}

impl Policy {
    /// A job may be leased any number of times, and its first failure is final. A done job is kept
    /// for an hour.
    pub const ONCE: Policy = Policy {
        attempts_max: 0,
        fails_max: 1,
        backoff: Backoff::NONE,
        keep_ms: Some(HOUR_MS),
        on_lost_lease: Requeue::InPlace,
        error_type: Type::Bytes,
    };

    /// A failed job is tried again: at most 5 failures, seconds to an hour apart, and at most 25
    /// leases, so that a job that kills its worker each time comes to an end as well.
    pub const RETRIED: Policy = Policy {
        attempts_max: 25,
        fails_max: 5,
        backoff: Backoff {
            base_ms: 5000,
            factor_thousandths: 3000,
            cap_ms: HOUR_MS,
            jitter_thousandths: 200,
        },
        ..Policy::ONCE
    };
}

/// The policies of all doors. A door that declares none has [`Policy::RETRIED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policies([Policy; Origin::ALL.len()]);

impl Policies {
    /// The policy of a door.
    pub fn of(&self, door: Origin) -> &Policy {
        &self.0[door as usize]
    }
}

impl FromIterator<(Origin, Policy)> for Policies {
    fn from_iter<I: IntoIterator<Item = (Origin, Policy)>>(declared: I) -> Policies {
        let mut policies = [Policy::RETRIED; Origin::ALL.len()];
        for (door, policy) in declared {
            policies[door as usize] = policy;
        }
        Policies(policies)
    }
}

/// What jobs get that set nothing themselves, and how much the server keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// What each door declared.
    pub policies: Policies,
    /// Retention of dead jobs.
    pub keep_dead_ms: u64,
    /// Lease length an unbound holder gets for a job without TTR.
    pub ttr_ms: u64,
    /// Most unfinished jobs of the server; one more is refused.
    pub unfinished_max: u64,
    /// Most unfinished jobs of a queue that sets no limit itself; one more is refused.
    pub queue_unfinished_max: u64,
    /// Most finished jobs kept by the server; the oldest go first.
    pub finished_max: usize,
    /// Most bytes of finished jobs kept on disk.
    pub finished_bytes_max: u64,
    /// Most values of a constraint's field that have a bucket; a submit that brings one more is
    /// refused.
    pub values_max: usize,
    /// Most entries of the audit log; the oldest go first.
    pub audit_entries_max: usize,
    /// How long an entry of the audit log is kept.
    pub audit_ms: u64,
    /// Most queues at once; a job or setting that makes one more is refused. At most
    /// [`QUEUES_MAX`].
    pub queues_max: usize,
    /// Most keys of a fair queue that take turns at once. Jobs of further keys stand among those
    /// without key.
    pub fair_keys_max: usize,
}

/// Queues have numbers of 24 bits where there are many of them.
pub const QUEUES_MAX: usize = 1 << 24;

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            policies: Policies::from_iter([]),
            keep_dead_ms: 30 * 24 * HOUR_MS,
            ttr_ms: 60_000,
            unfinished_max: u64::MAX,
            queue_unfinished_max: u64::MAX,
            finished_max: 5_000_000,
            finished_bytes_max: 8 << 30,
            values_max: 65_536,
            audit_entries_max: 10_000,
            audit_ms: 90 * 24 * HOUR_MS,
            queues_max: QUEUES_MAX,
            fair_keys_max: 1_000_000,
        }
    }
}
