//! Why a command was refused. A refusal changes nothing.

use crate::job::JobId;
use crate::seat::Seat;

/// Why a command was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// No such job, or it is gone.
    #[error("no such job")]
    NotFound,
    /// A key is taken by this job.
    #[error("the key is taken by job {0}")]
    KeyTaken(JobId),
    /// The job is done or dead already.
    #[error("the job is finished")]
    Finished,
    /// The job is not finished, and must be for this.
    #[error("the job is not finished")]
    NotFinished,
    /// The token is not the live lease's.
    #[error("the lease is not live")]
    NotHeld,
    /// Nothing to lease.
    #[error("no job is ready")]
    NothingReady,
    /// The job is deleted, and nothing is done to it unless that is undone first.
    #[error("the job is deleted")]
    Deleted,
    /// The job is not deleted: there is nothing to undo.
    #[error("the job is not deleted")]
    NotDeleted,
    /// The job is leased, and must not be for this.
    #[error("the job is leased")]
    Leased,
    /// The revision is another one by now.
    #[error("the job changed meanwhile")]
    Stale,
    /// The labels were made for another set of constraints.
    #[error("the constraints changed meanwhile")]
    StaleConstraints,
    /// A constraint has buckets for as many values as it may, and this job would bring one more.
    #[error("the constraint has too many values")]
    TooManyValues,
    /// The payload failed its checksum: without another one the job cannot run.
    #[error("the payload is damaged")]
    PayloadDamaged,
    /// The queue holds as many unfinished jobs as it may, or as many bytes of their payloads.
    #[error("the queue is full")]
    QueueFull,
    /// The server holds as many unfinished jobs as it may.
    #[error("the server holds as many unfinished jobs as it may")]
    ServerFull,
    /// The id is outside the reserved block, or in use.
    #[error("the id is not reserved")]
    IdNotReserved,
    /// A name or a list is outside its limits.
    #[error("{0} is outside its limits")]
    OutOfRange(&'static str),
    /// Ids are given back that are in use.
    #[error("an id is in use")]
    IdInUse,
    /// The job is kept in memory only.
    #[error("the job is not logged")]
    Foreground,
    /// Starts must raise the epoch.
    #[error("the epoch is not newer")]
    OldEpoch,
    /// The queue is on another shard.
    #[error("the queue is on shard {0}")]
    OtherShard(u8),
    /// The queue always stays on the first shard.
    #[error("the queue stays on the first shard")]
    StaysPut,
    /// The queue stays with all others of its hash tag, see [`hash_tag`](crate::seat::hash_tag).
    #[error("queues with the same text between {{ and }} in their names stay on one shard")]
    StaysTogether,
    /// The constraint is one limit for queues that may be on several shards.
    #[error("the constraint takes queues of several shards")]
    SpansShards,
    /// The queue is on its way between shards: its settings can be changed in a moment, and it can be moved
    /// when nothing is left of it where it was.
    #[error("the queue is moving between shards")]
    Moves,
    /// The queue still has a job, a schedule or a batch here.
    #[error("the queue is in use")]
    InUse,
    /// The command is meant for another log of the cluster, or for a cluster with another number of
    /// shards.
    #[error("it is {0}")]
    OtherSeat(Seat),
    /// No such constraint.
    #[error("no such constraint")]
    NoConstraint,
    /// No such schedule.
    #[error("no such schedule")]
    NoSchedule,
    /// The schedule is paused, or its time has not come.
    #[error("the schedule is not due")]
    NotDue,
    /// The job that is to be waited for does not exist, is gone, or is deleted.
    #[error("there is no job {0} to wait for")]
    NoBlocker(JobId),
    /// No such batch, or it is gone.
    #[error("there is no batch {0}")]
    NoBatch(JobId),
    /// The batch is sealed: nothing is added to it any more.
    #[error("batch {0} is sealed")]
    BatchSealed(JobId),
    /// The batch has as many jobs as it may.
    #[error("batch {0} has as many jobs as it may")]
    BatchFull(JobId),
    /// A job of a batch would wait for something that waits for the batch.
    #[error("the job would wait for itself")]
    Circle,
    /// Too much waits for the batch to tell at once whether a job would wait for itself.
    #[error("too many jobs wait for the batch")]
    FlowTooLarge,
    /// Not all buckets of the constraint follow its last change yet: ask again.
    #[error("the last change of the constraint is still under way")]
    Rebasing,
}

/// Whether a text is that of [`Rejection::OtherShard`], with which a door answers a router that asked
/// the wrong shard.
#[must_use]
pub fn says_other_shard(text: &str) -> bool {
    let shard = text.strip_prefix("the queue is on shard ");
    shard.is_some_and(|shard| shard.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_queue_is_on_another_shard_is_told_from_all_else() {
        assert!(says_other_shard(&Rejection::OtherShard(0).to_string()));
        assert!(says_other_shard(&Rejection::OtherShard(255).to_string()));
        for text in [Rejection::StaysPut.to_string(), "the queue is on shard".to_owned()] {
            assert!(!says_other_shard(&text), "{text}");
        }
    }
}
