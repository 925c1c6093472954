//! The fold of the log, in memory.

mod audit;
mod batches;
mod buckets;
mod change;
mod deletion;
mod evolve;
mod finished;
mod flows;
mod heads;
mod image;
mod jobs;
mod keys;
mod limits;
mod live;
mod numbered;
mod ordered_list;
mod read;
mod ready;
mod ready_list;
mod ready_read;
mod rebase;
mod scan;
mod schedules;
mod shares;
mod slab;
mod unmatched;
mod update;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use audit::AuditLog;
use batches::Batches;
pub use finished::FinishedCap;
pub(crate) use finished::{FinishedJob, FinishedJobs, Slot};
pub use flows::Blocker;
use flows::Flows;
pub(crate) use heads::Heads;
use limits::Bucket;
pub use limits::BucketView;
pub(crate) use live::{LiveJob, NO_TTL, NO_TTR, Wide, as_uuid};
pub use read::{HeldBackSlice, QueueListing};
pub(crate) use ready::priority_class;
pub use ready::{Group, Queue};
pub use ready_read::{FairPlace, ReadyBefore};
pub use scan::{ScanFilter, ScanStretch, Walk};
pub use schedules::ScheduleView;
pub(crate) use update::{PAGES_MAX, event_fits, is_full, state_fits};
pub use view::{Found, JobView};

pub use crate::event::Server;
use crate::job::{JobOptions, Key, Label, Origin};
use crate::policy::Defaults;
use crate::queue::Constraint;
use jobs::{FINISHED, Jobs};
pub use keys::Work;
use keys::{KeyIndex, Named};
use numbered::Numbered;
use ordered_list::OrderedList;
use schedules::Schedules;
use slab::Slab;
use unmatched::Unmatched;

/// Not every door can send payloads above this, so their jobs are grouped apart.
pub const LARGE_PAYLOAD_BYTES: u32 = 1024 * 1024;

/// Where in the log an event stands: a record, and the byte offset of the entry in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The record.
    pub position: u64,
    /// Where the entry's bytes begin in it.
    pub offset: u32,
}

/// A constraint, and the record that has it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeptConstraint {
    pub rule: Constraint,
    pub oldest_record: u64,
    /// The revision it was set with, as it is now.
    pub revision: u64,
    /// While its buckets are being rebased: what it was before, and when that ended.
    pub before: Option<(Box<Constraint>, u64)>,
}

/// All items. [`crate::decide`] reads it, [`State::evolve`] changes it.
#[derive(Debug, Clone)]
pub struct State {
    jobs: Jobs,
    by_id: OrderedList<u64>,
    keys: KeyIndex,
    /// Keys that are not a UUID.
    named: BTreeMap<Named, u32>,
    queues: Numbered<Queue>,
    queue_names: BTreeMap<Bytes, u32>,
    /// The queue that a name was looked up for last; it may be gone.
    last_queue: u32,
    /// Scheduled and leased jobs, by when they become ready or run out.
    timers: OrderedList,
    /// When unfinished jobs' TTLs end.
    expiry: OrderedList,
    /// Queues that keep more finished jobs than they may.
    surplus: BTreeSet<u32>,
    /// What finished jobs take on disk.
    finished_bytes: u64,
    /// Leases bound to a connection: the connection and the job.
    bound: BTreeSet<(u64, u64)>,
    constraints: BTreeMap<u32, KeptConstraint>,
    buckets: BTreeMap<Label, Bucket>,
    /// How many buckets each constraint has.
    values: BTreeMap<u32, usize>,
    /// When time alone frees a bucket that groups wait at.
    bucket_wakes: BTreeSet<(u64, Label)>,
    /// When buckets that no job needs are full again, and can be forgotten.
    bucket_ends: BTreeSet<(u64, Label)>,
    /// Constraints that were changed or removed and whose buckets do not all follow yet: the value
    /// and the queue to go on from.
    rebasing: BTreeMap<u32, (u64, u32)>,
    /// What may not start because it is still to be matched.
    unmatched: Unmatched,
    /// Queues in which keys take turns.
    fair_queues: BTreeSet<u32>,
    /// Queues with ready jobs that are still ordered as their settings said before.
    reordering: BTreeSet<u32>,
    /// Queues in which a group competes again since the engine last asked.
    promoted: BTreeSet<u32>,
    /// Nothing is due before this: a lower bound of all deadlines.
    due_hint_ms: u64,
    /// The highest number of a change of a job's state or events.
    last_update: u64,
    server: Server,
    /// The oldest record the server item needs.
    server_record: u64,
    audit: AuditLog,
    schedules: Schedules,
    /// Which jobs wait for which.
    flows: Flows,
    batches: Batches,
    defaults: Defaults,
    faults: Faults,
}

/// Planted faults: switches that only the simulator turns on, to prove that it finds them.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A job at its last attempt is leased once more.
    pub attempts_off_by_one: bool,
    /// Jobs are leased from a paused queue.
    pub paused_queue_leased: bool,
    /// A lease token of another epoch is taken for the live one.
    pub stale_epoch_token: bool,
    /// Jobs that are not matched yet start in spite of a constraint that lets none start.
    pub unmatched_leased: bool,
    /// Any lease token is taken for the live one.
    pub token_unchecked: bool,
    /// A job that failed as often as it may is tried once more.
    pub fails_off_by_one: bool,
    /// A try that failed is followed by the next one at once.
    pub backoff_ignored: bool,
    /// An attempt that never left the server counts.
    pub given_back_counts: bool,
    /// A parked job whose lease ends is no longer parked.
    pub parked_requeued: bool,
    /// A job with a time to run at is ready at once.
    pub scheduled_at_once: bool,
    /// A lease that timed out still counts among its buckets' running jobs.
    pub running_kept_on_timeout: bool,
    /// Compaction loses parked jobs.
    pub parked_not_compacted: bool,
    /// Compaction loses the settings of queues.
    pub settings_not_compacted: bool,
    /// Compaction folds entries of the audit log and does not log them.
    pub audit_not_compacted: bool,
    /// The undo of a deletion is folded and not logged.
    pub undo_not_logged: bool,
    /// Compaction loses how full the buckets of constraints are.
    pub fill_not_compacted: bool,
    /// A schedule fires, and the log has the job only.
    pub firing_not_logged: bool,
    /// Compaction loses schedules.
    pub schedule_not_compacted: bool,
    /// A job that waits for others goes on when the first of them ends.
    pub unblocked_early: bool,
    /// A dead job counts as done for those that wait for it.
    pub dead_counts_as_done: bool,
    /// The dependents of a job that was cancelled because of another do not learn of it.
    pub cascade_forgotten: bool,
    /// A job that waits for a dead one goes on waiting when that one is gone.
    pub gone_goes_unnoticed: bool,
    /// A job of a batch that goes without having been done is not counted.
    pub gone_member_uncounted: bool,
    /// Compaction loses batches.
    pub batch_not_compacted: bool,
    /// A job is added to a sealed batch.
    pub added_to_sealed_batch: bool,
    /// The turn of a key does not move on when one of its jobs is leased.
    pub turn_not_taken: bool,
    /// A key that comes back takes the turns that it missed.
    pub idle_key_saves_turns: bool,
    /// All keys have the same weight.
    pub weight_ignored: bool,
    /// A start orders the jobs of a queue as if waiting did not count.
    pub aging_forgotten: bool,
    /// A shard that a queue is leaving takes new jobs of it.
    pub sealed_takes_jobs: bool,
    /// A shard leaves a queue that it has jobs of.
    pub left_with_jobs: bool,
    /// Compaction loses where queues have moved to.
    pub places_not_compacted: bool,
    /// Compaction loses the consumers of the feed.
    pub consumers_not_compacted: bool,
}

impl State {
    /// An empty state. `seed` keys the hashes of names from outside.
    pub fn new(seed: u64, defaults: Defaults) -> State {
        State {
            jobs: Jobs::default(),
            by_id: OrderedList::default(),
            keys: KeyIndex::new(seed),
            named: BTreeMap::new(),
            queues: Numbered::default(),
            queue_names: BTreeMap::new(),
            last_queue: 0,
            timers: OrderedList::default(),
            expiry: OrderedList::default(),
            surplus: BTreeSet::new(),
            finished_bytes: 0,
            bound: BTreeSet::new(),
            constraints: BTreeMap::new(),
            buckets: BTreeMap::new(),
            values: BTreeMap::new(),
            bucket_wakes: BTreeSet::new(),
            bucket_ends: BTreeSet::new(),
            rebasing: BTreeMap::new(),
            unmatched: Unmatched::default(),
            fair_queues: BTreeSet::new(),
            reordering: BTreeSet::new(),
            promoted: BTreeSet::new(),
            due_hint_ms: u64::MAX,
            last_update: 0,
            server_record: 0,
            audit: AuditLog::default(),
            schedules: Schedules::default(),
            flows: Flows::default(),
            batches: Batches::default(),
            server: Server { next_order: 1, next_constraint: 1, ids_until: 1, ..Server::default() },
            defaults,
            faults: Faults::default(),
        }
    }

    /// Plants faults.
    #[doc(hidden)]
    pub fn plant(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }
}
