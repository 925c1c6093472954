//! Everything that is so by now: the fold of the log, in memory.

mod buckets;
mod change;
mod evolve;
mod finished;
mod image;
mod keys;
mod limits;
mod list;
mod prefix;
mod read;
mod ready;
mod rebase;
mod scan;
mod slab;
mod slot;
mod unmatched;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub use finished::FinishedCap;
use limits::Bucket;
pub use limits::BucketView;
pub use read::{Found, JobView, QueueListing};
pub use ready::{Group, Queue};
pub use scan::{ScanFilter, ScanStretch};
pub(crate) use slot::{NO_TTL, NO_TTR, Slot, Stub, as_uuid};

use crate::job::{Backoff, JobOptions, Key, Label, Origin};
use crate::queue::Constraint;
use keys::KeyIndex;
use list::SlotList;
use slab::Slab;
use unmatched::Unmatched;

/// Payloads above this cannot be carried by every door, so their jobs are grouped apart.
pub const LARGE_PAYLOAD_BYTES: u32 = 1024 * 1024;

/// Where in the log something was told: a record, and the byte offset of the entry in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The record.
    pub position: u64,
    /// Where the entry's bytes begin in it.
    pub offset: u32,
}

/// What a protocol gives a job that says nothing itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Most leases; 0 means no limit.
    pub attempts_max: u32,
    /// Most failures; 0 means no limit.
    pub fails_max: u32,
    /// Wait between failures.
    pub backoff: Backoff,
    /// Retention of done jobs; absent means until the TTL, or until deleted.
    pub keep_ms: Option<u64>,
}

/// The policies of all protocols, and the server's caps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// By the number of the [`Origin`].
    pub policies: [Policy; 6],
    /// Retention of dead jobs.
    pub keep_dead_ms: u64,
    /// Lease length an unbound holder gets for a job without TTR.
    pub ttr_ms: u64,
    /// Most finished jobs kept by the server; the oldest go first.
    pub finished_max: usize,
    /// Most bytes of finished jobs kept on disk.
    pub finished_bytes_max: u64,
    /// Most values of a constraint's field that have a bucket; a submit that brings one more is
    /// refused.
    pub values_max: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        const HOUR_MS: u64 = 3_600_000;
        let once = Policy {
            attempts_max: 0,
            fails_max: 1,
            backoff: Backoff::NONE,
            keep_ms: Some(HOUR_MS),
        };
        let exponential = Backoff {
            base_ms: 1000,
            factor_thousandths: 2000,
            cap_ms: HOUR_MS,
            jitter_thousandths: 200,
        };
        let lightjq = Policy {
            attempts_max: 11,
            fails_max: 11,
            backoff: exponential,
            keep_ms: Some(24 * HOUR_MS),
        };
        // A job that kills its worker each time must come to an end as well.
        let api = Policy {
            attempts_max: 25,
            fails_max: 5,
            backoff: Backoff {
                base_ms: 5000,
                factor_thousandths: 3000,
                cap_ms: HOUR_MS,
                jitter_thousandths: 200,
            },
            keep_ms: Some(HOUR_MS),
        };
        let kept = Policy { keep_ms: None, ..once };
        Defaults {
            policies: [api, kept, once, once, lightjq, kept],
            keep_dead_ms: 30 * 24 * HOUR_MS,
            ttr_ms: 60_000,
            finished_max: 5_000_000,
            finished_bytes_max: 8 << 30,
            values_max: 65_536,
        }
    }
}

impl Defaults {
    /// The policy of a protocol.
    pub fn policy(&self, origin: Origin) -> &Policy {
        &self.policies[origin as usize]
    }
}

/// The server item.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Server {
    /// All ids below this may be in use.
    pub ids_until: u64,
    /// The epoch of the server that wrote last.
    pub epoch: u64,
    /// The format's version.
    pub format: u32,
    /// The next order number.
    pub next_order: u64,
    /// The next constraint's number.
    pub next_constraint: u32,
    /// Counts changes of what jobs are labelled by.
    pub constraints_revision: u64,
    /// Jobs that were there before were labelled anew for this revision ...
    pub relabelled_revision: u64,
    /// ... as far as their number is below this; the highest number means all.
    pub relabelled_below: u64,
    /// The oldest record it needs.
    pub oldest_record: u64,
}

/// A constraint with the record that told it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeptConstraint {
    pub rule: Constraint,
    pub oldest_record: u64,
    /// The revision it was put with, as it is now.
    pub revision: u64,
    /// While its buckets are being settled: what it was before, and when that ended.
    pub before: Option<(Box<Constraint>, u64)>,
}

/// The handle of a job: a slot number, or with this bit a stub number.
const STUB: u32 = 1 << 31;

/// All items. [`crate::decide`] reads it, [`State::evolve`] changes it.
#[derive(Debug, Clone)]
pub struct State {
    slots: Slab<Slot>,
    stubs: Slab<Stub>,
    /// Keys of finished jobs that do not fit into their stub.
    stub_keys: BTreeMap<u32, Vec<Key>>,
    by_id: SlotList<u64>,
    keys: KeyIndex,
    /// Keys beyond each job's first, and first ones that are not a UUID.
    named: BTreeMap<(i32, Bytes), u32>,
    queues: Vec<Option<Queue>>,
    free_queues: Vec<u32>,
    queue_names: BTreeMap<Bytes, u32>,
    /// Scheduled and leased jobs, by when they become ready or run out.
    timers: SlotList,
    /// When unfinished jobs' TTLs end.
    expiry: SlotList,
    /// When finished jobs go.
    stub_expiry: SlotList,
    /// The finished job of each queue that ended first.
    oldest: BTreeSet<(u128, u32)>,
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
    /// When buckets that no job has to do with are full again, and can be forgotten.
    bucket_ends: BTreeSet<(u64, Label)>,
    /// Constraints that were changed or removed and whose buckets have not all heard of it: the
    /// value and the queue to go on from.
    settling: BTreeMap<u32, (u64, u32)>,
    /// What is kept from starting because it is still to be matched.
    unmatched: Unmatched,
    /// Queues in which a group competes again since the engine last asked.
    promoted: BTreeSet<u32>,
    /// Nothing is due before this: a lower bound of all deadlines.
    due_hint_ms: u64,
    /// The highest number of a change of a Jobq job.
    last_update: u64,
    server: Server,
    defaults: Defaults,
    faults: Faults,
}

/// Planted faults: switches that only the simulator turns on, to prove that it finds them.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A job at its last attempt is given out once more.
    pub attempts_off_by_one: bool,
    /// A paused queue gives out jobs.
    pub paused_queue_leased: bool,
    /// A lease token of another epoch is taken for the live one.
    pub stale_epoch_token: bool,
    /// Jobs that are not matched yet start in spite of a constraint that lets none start.
    pub unmatched_leased: bool,
}

impl State {
    /// An empty state. `seed` keys the hashes of names from outside.
    pub fn new(seed: u64, defaults: Defaults) -> State {
        State {
            slots: Slab::default(),
            stubs: Slab::default(),
            stub_keys: BTreeMap::new(),
            by_id: SlotList::default(),
            keys: KeyIndex::new(seed),
            named: BTreeMap::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            queue_names: BTreeMap::new(),
            timers: SlotList::default(),
            expiry: SlotList::default(),
            stub_expiry: SlotList::default(),
            oldest: BTreeSet::new(),
            surplus: BTreeSet::new(),
            finished_bytes: 0,
            bound: BTreeSet::new(),
            constraints: BTreeMap::new(),
            buckets: BTreeMap::new(),
            values: BTreeMap::new(),
            bucket_wakes: BTreeSet::new(),
            bucket_ends: BTreeSet::new(),
            settling: BTreeMap::new(),
            unmatched: Unmatched::default(),
            promoted: BTreeSet::new(),
            due_hint_ms: u64::MAX,
            last_update: 0,
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
