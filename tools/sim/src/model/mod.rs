//! The rules, written a second time, apart from the core and as plainly as possible: every question
//! scans all jobs. It is slow on purpose; where it and the core differ, one of them is wrong.
//!
//! [`Model::refusals`] says why a command may be refused, [`Model::lease_choices`] which jobs a
//! lease may get, [`Model::apply`] what a command changes, [`Model::tick`] what time changes, and
//! [`Model::compare`] compares all of it with a state of the core.

mod access;
mod apply;
mod audit;
mod batches;
mod choose;
mod compare;
mod consumers;
mod deletion;
mod fair;
mod finish;
mod flows;
mod fold;
mod limits;
mod matching;
mod places;
mod refuse;
mod schedules;
mod tick;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use spindle_core::audit::AuditEntry;
use spindle_core::command::Submit;
use spindle_core::job::{Backoff, Key, Label, Origin, Scope};
use spindle_core::queue::{Constraint, QueueSettings};
use spindle_core::{Defaults, JobId, JobImage, Status};

pub use access::{About, Person, Presented};
pub(crate) use audit::action_of;
pub use batches::Batched;
pub use fold::fold_difference;
pub use limits::Tokens;
pub use refuse::Refusals;
pub use schedules::{EXPRESSIONS, Scheduled, time_after};

/// The state of the server, as far as clients can see it. Cloning is cheap: jobs are shared until
/// they change.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) jobs: BTreeMap<u64, Rc<JobImage>>,
    pub(crate) queues: BTreeMap<Bytes, QueueSettings>,
    pub(crate) rules: BTreeMap<u32, Constraint>,
    pub(crate) tokens: BTreeMap<Label, Tokens>,
    /// Buckets that a changed rule filled: the core forgets them within a second, or later while
    /// jobs need them, and until then they count.
    pub(crate) filled: BTreeSet<Label>,
    /// The epoch of the server that runs.
    pub(crate) epoch: u64,
    /// None when the engine gives the ids.
    pub(crate) ids_until: Option<u64>,
    pub(crate) next_constraint: u32,
    /// The revision of the constraints that labels have to be made with.
    pub(crate) constraints_revision: u64,
    /// Up to which revision, and below which number, jobs were labelled anew.
    pub(crate) relabelled: (u64, u64),
    /// Constraints that were set to let none start: jobs below this number existed, and the
    /// revision they were set with. Such jobs may not start until they are labelled.
    pub(crate) stops: BTreeMap<u32, (u64, u64)>,
    pub(crate) format: u32,
    /// Entries of the audit log, the newest last. Those that are too old are still among them.
    pub(crate) audit: Vec<AuditEntry>,
    pub(crate) last_audit: u64,
    pub(crate) schedules: BTreeMap<String, Scheduled>,
    pub(crate) schedules_revision: u64,
    pub(crate) batches: BTreeMap<u64, Batched>,
    /// Jobs that were done, and may be gone before their dependents are settled.
    pub(crate) were_done: BTreeSet<u64>,
    /// The latest time that the log knows: it never goes back.
    pub(crate) latest_ms: u64,
    /// The clock is not trusted: nothing is removed because its time is over.
    pub(crate) holds_expiry: bool,
    pub(crate) defaults: Defaults,
    /// The consumers of the feed, and the newest move of each: its number, and where to.
    consumers: BTreeMap<Bytes, consumers::Moved>,
    /// Which shard the log is, and where queues are that were moved.
    pub(crate) moved: places::Moved,
    next_order: u64,
    /// Of fair queues.
    turns: BTreeMap<Bytes, fair::Turns>,
    turns_given: u64,
    tied: Option<u64>,
}

/// How many tries a job has: its own limits, else its queue's, else those of its door's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tries {
    /// Most leases; 0 means no limit.
    pub attempts_max: u32,
    /// Most failures; 0 means no limit.
    pub fails_max: u32,
    /// Wait between failures.
    pub backoff: Backoff,
}

impl Tries {
    /// Whether a job that used up this many may not be tried again.
    pub fn are_used_up(&self, attempts: u32, fails: u32) -> bool {
        (self.attempts_max > 0 && attempts >= self.attempts_max)
            || (self.fails_max > 0 && fails >= self.fails_max)
    }
}

impl Model {
    /// A server that never ran.
    pub fn new(defaults: Defaults) -> Model {
        Model {
            ids_until: Some(1),
            next_constraint: 1,
            next_order: 1,
            defaults,
            ..Model::default()
        }
    }

    /// The jobs, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &JobImage> {
        self.jobs.values().map(Rc::as_ref)
    }

    /// One job.
    pub fn job(&self, id: JobId) -> Option<&JobImage> {
        self.jobs.get(&id.0).map(Rc::as_ref)
    }

    /// The constraints.
    pub fn rules(&self) -> impl Iterator<Item = &Constraint> {
        self.rules.values()
    }

    /// A queue's settings; those of a queue nobody set are all absent.
    pub fn settings(&self, queue: &[u8]) -> QueueSettings {
        self.queues.get(queue).cloned().unwrap_or_default()
    }

    /// All ids below this may be in use.
    pub fn ids_until(&self) -> u64 {
        self.ids_until.unwrap_or(u64::MAX)
    }

    /// The engine chooses the ids from now on: any that is not in use is correct.
    pub fn leave_ids(&mut self) {
        self.ids_until = None;
    }

    /// The tries of a job.
    pub fn tries(&self, job: &JobImage) -> Tries {
        let queue = self.settings(&job.queue);
        let policy = *self.defaults.policies.of(job.origin());
        Tries {
            attempts_max: job
                .options()
                .attempts_max
                .or(queue.attempts_max)
                .unwrap_or(policy.attempts_max),
            fails_max: job.options().fails_max.or(queue.fails_max).unwrap_or(policy.fails_max),
            backoff: job.options().backoff.or(queue.backoff).unwrap_or(policy.backoff),
        }
    }

    /// The job that holds a key, if it is taken. The keys of deleted jobs are free.
    pub fn key_holder(&self, key: &Key) -> Option<JobId> {
        let holds = |job: &&JobImage| {
            !deletion::is_deleted(job)
                && job.options().keys.iter().any(|other| {
                    let in_scope = other.scope() == Scope::WhileKept || !job.status().is_finished();
                    other.namespace == key.namespace && other.name == key.name && in_scope
                })
        };
        self.jobs().find(holds).map(|job| JobId(job.id))
    }

    /// Unfinished jobs of a queue that a filter lets through.
    pub fn unfinished(&self, queue: &[u8], filter: impl Fn(&JobImage) -> bool) -> u64 {
        let counts =
            |job: &&JobImage| job.queue == queue && !job.status().is_finished() && filter(job);
        self.jobs().filter(counts).count() as u64
    }

    /// Ready jobs of a queue, in the order they are leased; of a fair one those of each key are.
    pub fn ready(&self, queue: &[u8]) -> Vec<&JobImage> {
        let mut ready: Vec<&JobImage> =
            self.jobs().filter(|job| job.queue == queue && job.status() == Status::Ready).collect();
        ready.sort_by_key(|job| self.rank(job));
        ready
    }

    pub(crate) fn change(&mut self, id: u64) -> &mut JobImage {
        self.settle_turns();
        Rc::make_mut(self.jobs.get_mut(&id).expect("the caller looked it up"))
    }

    /// A job to be changed, with its next revision.
    pub(crate) fn revise(&mut self, id: u64) -> &mut JobImage {
        let job = self.change(id);
        job.revision = job.revision.wrapping_add(1);
        job
    }

    pub(crate) fn take_order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }

    /// A job is gone.
    pub fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id.0);
        self.settle_turns();
    }

    /// A crash: jobs that are only in memory are gone.
    pub fn lose_memory(&mut self) {
        self.jobs.retain(|_, job| !job.foreground);
        self.settle_turns();
    }
}

/// Where a job stands that no worker has.
pub(crate) fn waiting(parked: bool, blocked: bool, later: bool) -> Status {
    match (parked, blocked, later) {
        (true, ..) => Status::Parked,
        (_, true, _) => Status::Blocked,
        (_, _, true) => Status::Scheduled,
        _ => Status::Ready,
    }
}

/// A job's UUID, as a key among the others.
pub(crate) fn uuid_key(uuid: [u8; 16]) -> Key {
    Key {
        namespace: Origin::Workq as i32,
        name: Bytes::copy_from_slice(&uuid),
        scope: Scope::WhileKept as i32,
    }
}

/// All names of a job that comes in.
pub(crate) fn names(submit: &Submit) -> Vec<Key> {
    submit.uuid.map(uuid_key).into_iter().chain(submit.keys.iter().cloned()).collect()
}

/// Whether a job that a worker of this door has lost goes to the tail: one that kills its workers
/// must not block the queue.
pub(crate) fn goes_to_the_tail(door: Origin) -> bool {
    matches!(door, Origin::Gearman | Origin::GearmanDraft)
}
