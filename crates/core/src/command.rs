//! The commands of the core. They bring everything that a decision needs besides state and time:
//! ids, randomness, places of bytes.

use bytes::Bytes;

use crate::audit::AuditEntry;
use crate::consumer::Consumer;
use crate::job::{Backoff, Cause, JobId, JobImage, Key, Label, OnDead, Origin, TraceParent};
use crate::payload::BytesRef;
use crate::queue::{Constraint, LimitScope, QueueSettings};
use crate::schedule::{Due, Schedule};
use crate::seat::Seat;

/// One request. Each variant says why it exists.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// A job comes in.
    Submit(Box<Submit>),
    /// A worker asks for work.
    Lease(Lease),
    /// A holder needs more time, or a person gives it.
    Extend(Extend),
    /// A holder's own time limit no longer counts; the job's TTR still does, from the lease's
    /// start.
    DropTimeout {
        /// Which lease.
        claim: Claim,
    },
    /// An attempt ended with a result.
    Finish(Box<Finish>),
    /// A holder gives its job back untried; the attempt counts all the same. With `cause` Undone
    /// the lease never left the server, and the attempt never happened.
    Release {
        /// Which lease.
        claim: Claim,
        /// Released, Undone or HolderGone.
        cause: Cause,
    },
    /// A connection closed: the leases bound to it end, at most 256 at a time. Ask again while the
    /// decision is not empty.
    HolderGone {
        /// The connection.
        holder: u64,
    },
    /// A dead or done job is to run again. Its image was read from the log by the caller.
    Retry {
        /// The image as the log has it.
        image: Box<JobImage>,
        /// A new payload instead of the old one.
        payload: Option<BytesRef>,
    },
    /// A person changes a waiting job.
    Edit(Box<Edit>),
    /// Ends a job as dead with code `cancelled`; clients and jobs that wait for it learn of its
    /// end.
    Cancel {
        /// Which job.
        id: JobId,
    },
    /// Removes a job, whatever its status.
    Delete {
        /// Which job.
        id: JobId,
        /// Deleted, Consumed, Abandoned or Limit.
        cause: Cause,
    },
    /// A person deletes a job and may undo that for some time. A foreground job is gone at once.
    DeleteLater {
        /// Which job.
        id: JobId,
        /// The number of the request, not 0: that of its entry in the audit log.
        request: u64,
        /// For how long it can be undone: 1 to [`UNDO_MS_MAX`](crate::job::UNDO_MS_MAX).
        undo_ms: u64,
    },
    /// A person undoes a job's deletion. The job is as it was, except that its lease has ended and
    /// time has passed.
    Undelete {
        /// Which job.
        id: JobId,
    },
    /// A finished job's result was read: its retention may shorten.
    ResultRead {
        /// Which job.
        id: JobId,
        /// Its `keep_read_ms`, from its image.
        keep_read_ms: u64,
    },
    /// A background submit joined a foreground job: it is logged from now on.
    Persist {
        /// Which job.
        id: JobId,
        /// Where its payload is logged now.
        payload: BytesRef,
        /// What the background submit asked for.
        keep_ms: Option<u64>,
    },
    /// A payload failed its checksum when it was read for a worker.
    PayloadDamaged {
        /// Which job.
        id: JobId,
    },
    /// A user sets the state of a job, and an event says so.
    SetState {
        /// Which job.
        id: JobId,
        /// Only if the revision still is this.
        revision: Option<u32>,
        /// The new state, as JSON text.
        state: Bytes,
        /// What to append to the job's events, as the door writes it.
        event: Bytes,
        /// Where the job's earlier events are now: required when their page is full, see
        /// [`State::full_page`](crate::State::full_page).
        page: Option<BytesRef>,
    },
    /// A user appends an event to a job.
    AddEvent {
        /// Which job.
        id: JobId,
        /// The event, as the door writes it.
        event: Bytes,
        /// As in `SetState`.
        page: Option<BytesRef>,
    },
    /// A person sets, pauses or resumes a queue.
    SetQueue {
        /// Which queue.
        name: Bytes,
        /// All its settings.
        settings: QueueSettings,
    },
    /// A person sets a constraint, new or changed. Existing jobs are relabelled afterwards. One limit for
    /// queues that may be on several shards is refused.
    SetConstraint(Constraint, LimitScope),
    /// A person removes a constraint.
    RemoveConstraint {
        /// Its number.
        number: u32,
    },
    /// The engine matched an existing job again.
    Relabel {
        /// Which job.
        id: JobId,
        /// Only if the job's revision still is this: its queue may be another one by now.
        revision: Option<u32>,
        /// Its labels now, and the revision that they were made with.
        matched: Matched,
    },
    /// The engine has matched existing jobs against a revision of the constraints, up to a number:
    /// a restart goes on from there.
    NoteRelabelled {
        /// The revision.
        revision: u64,
        /// Jobs below this number are done; the highest number means all.
        below: JobId,
    },
    /// A server starts on this log, or takes it over.
    Start {
        /// Higher than any before.
        epoch: u64,
        /// Which log it is meant to be.
        seat: Seat,
    },
    /// After `Start`, once: ends bound leases and moves deadlines of older epochs for at most 256
    /// jobs from `from` on.
    Recover {
        /// First job to look at.
        from: JobId,
        /// Deadlines move to at least this long from now (at most the job's TTR).
        grace_ms: u64,
    },
    /// More ids are needed: a block is durable before its first id leaves.
    ReserveIds {
        /// All ids below this may be used.
        until: u64,
    },
    /// The server shuts down cleanly and gives back the rest of its reserved block, which was never
    /// used, so that the next server continues with the next id.
    ReturnIds {
        /// No id from this on was ever given to a job.
        from: u64,
    },
    /// Everything that is due by now happens, at most 256 events at a time.
    Tick {
        /// Wall clock and log disagree: nothing is deleted for its TTL.
        hold_expiry: bool,
    },
    /// A person's command and the entry in the audit log that describes it: both happen, or neither.
    Audited(Box<Audited>),
    /// A person sets a schedule, new or changed.
    SetSchedule(Box<SetSchedule>),
    /// A person removes a schedule. Its jobs stay.
    RemoveSchedule {
        /// Its name.
        name: String,
    },
    /// A schedule's time has come, or a person wants its job now.
    FireSchedule(Box<FireSchedule>),
    /// A batch is opened: jobs can be added to it.
    OpenBatch(Box<OpenBatch>),
    /// No job is added to a batch any more: it ends when all of its jobs have.
    SealBatch {
        /// Which batch.
        id: JobId,
    },
    /// A person cancels a batch: it is sealed. Its unfinished jobs are cancelled one by one
    /// ([`Command::Cancel`]), for they may be many.
    CancelBatch {
        /// Which batch.
        id: JobId,
    },
    /// A person moves a queue to another shard. For the first shard's log, which has the map: see
    /// [`places`](crate::places).
    PlaceQueue {
        /// Which queue.
        queue: Bytes,
        /// Where to.
        shard: u8,
    },
    /// The shard that a queue has moved from has nothing of it any more. For the first shard's log.
    EndDrain {
        /// Which queue.
        queue: Bytes,
        /// Which move.
        version: u64,
    },
    /// This shard learns where a queue is.
    KnowPlace {
        /// Which queue.
        queue: Bytes,
        /// Which move.
        version: u64,
        /// The shard that is to take its jobs.
        shard: u8,
        /// If that is this one: the settings that the queue had where it was.
        settings: Option<Box<QueueSettings>>,
    },
    /// This shard takes no new jobs of a queue that moves away, from now on.
    SealQueue {
        /// Which queue.
        queue: Bytes,
        /// Which move.
        version: u64,
    },
    /// This shard leaves a queue that has moved away, if it has nothing of it any more.
    LeaveQueue {
        /// Which queue.
        queue: Bytes,
        /// Which move.
        version: u64,
    },
    /// A consumer of the feed has dealt with everything up to a position.
    MoveConsumer(Consumer),
    /// Appends an item in full again, so that its record can be dropped.
    Compact(Compact),
    /// New kinds of events may be written from now on.
    RaiseFormat {
        /// The version of the format.
        version: u32,
    },
}

/// A person's command, and the entry in the audit log that describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Audited {
    /// The command; none if the request does not change the state. A command that changes nothing
    /// leaves no entry.
    pub command: Option<Command>,
    /// The entry. With a `seq` it exists already, and only its count is updated.
    pub entry: AuditEntry,
}

/// A job to be submitted. Absent settings are resolved when they are needed: the job's own, then
/// the queue's, then the protocol's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Submit {
    /// From the reserved block.
    pub id: JobId,
    /// 1 to 512 bytes.
    pub queue: Bytes,
    /// The door.
    pub origin: Origin,
    /// Higher goes first.
    pub priority: i64,
    /// Not before this time.
    pub run_at_ms: Option<u64>,
    /// Time to live, counted from `run_at_ms` or now: then the job goes, whatever its state.
    pub ttl_ms: Option<u64>,
    /// How long a lease lasts.
    pub ttr_ms: Option<u64>,
    /// Most leases; 0 means no limit.
    pub attempts_max: Option<u32>,
    /// Most failures.
    pub fails_max: Option<u32>,
    /// Wait between failures.
    pub backoff: Option<Backoff>,
    /// Where the payload is.
    pub payload: BytesRef,
    /// A UUID from outside. If it is taken, the submit is refused, and the refusal names the job
    /// that has it.
    pub uuid: Option<[u8; 16]>,
    /// Other names from outside, by the same rule.
    pub keys: Vec<Key>,
    /// A waiting job that holds one of `keys` while it is unfinished is deleted in the same step:
    /// the newest submit counts. If that job is leased, the submit is refused all the same.
    pub replaces: bool,
    /// Which constraint values it falls under, sorted.
    pub labels: Vec<Label>,
    /// The revision of the constraint set the labels were made with, or [`Submit::UNMATCHED`].
    pub constraints_revision: u64,
    /// Words to search by.
    pub tags: Vec<Bytes>,
    /// Not leased until somebody releases it.
    pub parked: bool,
    /// Never logged; exists while a client waits for it.
    pub foreground: bool,
    /// Retention once done; absent means the queue's or the protocol's.
    pub keep_ms: Option<u64>,
    /// Retention after the first read.
    pub keep_read_ms: Option<u64>,
    /// The result is dropped when it finishes.
    pub drop_result: bool,
    /// The state that users set, as JSON text.
    pub state: Option<Bytes>,
    /// The first of the job's own events, as the door writes it.
    pub event: Option<Bytes>,
    /// The trace it belongs to.
    pub trace: Option<Box<TraceParent>>,
    /// The jobs and batches that it waits for, at most [`AFTER_MAX`](crate::job::AFTER_MAX)
    /// different ones.
    pub after: Vec<JobId>,
    /// What becomes of it when one of them ends without being done.
    pub on_dead: OnDead,
    /// Whose share of a fair queue it takes; 1 to 256 bytes.
    pub fair_key: Option<Bytes>,
    /// The open batch that it belongs to.
    pub batch: Option<JobId>,
}

impl Submit {
    /// It is not matched against constraints yet: the engine does that before the core sees it.
    pub const UNMATCHED: u64 = u64::MAX;

    /// A submit that asks for nothing special.
    pub fn new(id: JobId, queue: Bytes, origin: Origin, payload: BytesRef) -> Submit {
        Submit {
            id,
            queue,
            origin,
            payload,
            constraints_revision: Submit::UNMATCHED,
            ..Submit::default()
        }
    }
}

/// How a lease selects among the queues it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Select {
    /// Highest priority, then age, over all of them.
    ByPriority,
    /// Highest priority first; among queues of equal priority the next one after this name, in the
    /// order the lease names them.
    RoundRobin {
        /// The queue the holder's last job came from.
        after: Option<Bytes>,
    },
    /// A queue drawn among those with work, by this random number.
    RandomQueue {
        /// Uniform random bits.
        draw: u64,
    },
}

/// A worker's request for one job.
#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    /// The queues to lease from; at most 1,024.
    pub queues: Vec<Bytes>,
    /// How one of them is selected.
    pub select: Select,
    /// The connection or registered worker.
    pub holder: u64,
    /// Whether the lease ends with the connection.
    pub bound: bool,
    /// The worker's own time limit.
    pub timeout_ms: Option<u64>,
    /// The holder's door.
    pub door: Origin,
    /// The worker's name.
    pub worker: Bytes,
    /// Jobs with longer payloads are passed over: the door cannot send them.
    pub payload_bytes_max: u32,
}

/// Which job a command means, and by what right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The live lease with this token only.
    Token {
        /// Which job.
        id: JobId,
        /// The epoch the lease was given in.
        epoch: u64,
        /// The attempt it is.
        attempt: u32,
    },
    /// Any unfinished job, leased or not, for protocols without tokens.
    Unfinished {
        /// Which job.
        id: JobId,
    },
}

impl Claim {
    /// The job it names.
    pub fn id(self) -> JobId {
        match self {
            Claim::Token { id, .. } | Claim::Unfinished { id } => id,
        }
    }
}

/// More time for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extend {
    /// Which lease; `Unfinished` means the job's live lease, whoever holds it.
    pub claim: Claim,
    /// From now.
    pub ttr_ms: u64,
}

/// The end of an attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct Finish {
    /// Which job and by what right.
    pub claim: Claim,
    /// Completed, or failed.
    pub success: bool,
    /// On failure: false ends the job as dead, even if it has tries left.
    pub retry: bool,
    /// The result's bytes, logged already or in this record.
    pub result: Option<BytesRef>,
    /// For people.
    pub message: Bytes,
    /// As it came.
    pub error: Bytes,
    /// As it came.
    pub code: Bytes,
    /// As it came.
    pub worker_finished_at: Bytes,
}

/// Which constraint values a job falls under.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matched {
    /// The labels, sorted.
    pub labels: Vec<Label>,
    /// The revision of the constraint set they were made with.
    pub constraints_revision: u64,
}

/// Changes to a waiting job; absent fields stay.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Edit {
    /// Which job.
    pub id: JobId,
    /// Only if the revision still is this.
    pub revision: Option<u32>,
    /// Another queue.
    pub queue: Option<Bytes>,
    /// Its labels there; absent means as before.
    pub matched: Option<Matched>,
    /// Another priority.
    pub priority: Option<i64>,
    /// Another time to run; `Some(0)` means now.
    pub run_at_ms: Option<u64>,
    /// Park (true) or release (false).
    pub parked: Option<bool>,
}

/// An item to append again.
#[derive(Clone, PartialEq, Debug)]
pub enum Compact {
    /// A live job, its bytes copied to these places.
    Job {
        /// Which.
        id: JobId,
        /// It must not have changed since its bytes were read.
        revision: u32,
        /// Where its payload is now.
        payload: Option<BytesRef>,
        /// Where its last result is now.
        result: Option<BytesRef>,
    },
    /// A page of a live job's events, its bytes copied to this place.
    Page {
        /// Which job.
        id: JobId,
        /// Where the page was.
        old: BytesRef,
        /// Where it is now.
        new: BytesRef,
    },
    /// A finished job: its image as read from the log, with its bytes' new places.
    Finished(Box<JobImage>),
    /// A queue's settings.
    Queue(Bytes),
    /// A constraint and its buckets, at most 256 of them from `from` on.
    Constraint {
        /// Its number.
        number: u32,
        /// First bucket value.
        from: u64,
    },
    /// Entries of the audit log, at most 256 of them.
    Audit {
        /// First entry.
        from: u64,
        /// Those that need a record below this.
        below: u64,
    },
    /// A schedule.
    Schedule(String),
    /// A batch.
    Batch(JobId),
    /// The server item.
    Server,
}

/// A batch to be opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenBatch {
    /// From the reserved block.
    pub id: JobId,
    /// The queue by which access to it is decided.
    pub queue: Bytes,
    /// For people, at most [`BATCH_NAME_BYTES_MAX`](crate::batch::BATCH_NAME_BYTES_MAX) bytes.
    pub name: String,
    /// A name from outside, of at most the same length; empty if there is none. If a batch has it
    /// already, the command is refused, and the refusal names that batch.
    pub key: Bytes,
    /// The open batch that it belongs to.
    pub parent: Option<JobId>,
    /// How long it is kept once it has ended.
    pub keep_ms: u64,
}

/// A schedule to be set.
#[derive(Clone, PartialEq, Debug)]
pub struct SetSchedule {
    /// The schedule.
    pub schedule: Schedule,
    /// Its next time; none if none follows.
    pub next: Option<Due>,
}

/// Why a schedule is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// Its next time is due.
    Due {
        /// The time after this one.
        following: Option<Due>,
        /// The first time that is not missed yet, see
        /// [`MISSED_AFTER_MS`](crate::schedule::MISSED_AFTER_MS).
        resumed: Option<Due>,
    },
    /// The job that a pending one waits for has ended.
    Pending,
    /// A person wants its job now, regardless of its times and of the last job.
    Now,
}

/// A time of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct FireSchedule {
    /// Which schedule.
    pub name: String,
    /// Its revision; with [`Occasion::Now`] any.
    pub revision: u64,
    /// The time. Unless it is the schedule's next time, or the pending one, no job comes of it.
    pub due_ms: u64,
    /// Why.
    pub occasion: Occasion,
    /// The job, if one comes: see [`State::fires`](crate::State::fires).
    pub job: Submit,
}
