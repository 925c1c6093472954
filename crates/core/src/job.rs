//! A job, as events have it: the vocabulary of its parts.
//!
//! ```text
//!                run_at later                  run_at reached
//!   submit ----> scheduled -------------------> ready <-----------------------+
//!      |------------------------------------------^  |                        | tries left:
//!      +-> parked ---------- release -------------+  | lease                  | deadline passed,
//!                                                    v                        | holder gone,
//!                                                  leased --------------------+ or failed (then
//!                                      complete |        | no tries left, or  through scheduled,
//!                                               v        v not to be retried  after its backoff)
//!                                             done      dead -- retry --> ready
//!   any status -- TTL passes, deleted, result consumed, retention or a named limit --> gone
//! ```
//!
//! A job that was submitted `after` others is blocked until they have ended; then it goes on as if
//! it came at that moment: ready, or scheduled. See [`After`].
//!
//! A deletion may be one that can be undone: until its time comes, an unfinished job is parked, a
//! finished one stays, and nothing else is done to either; see [`Deletion`].

mod after;
mod attempt;
mod deletion;
mod trace;

use bytes::Bytes;

pub use self::after::{AFTER_MAX, After, OnDead};
pub use self::attempt::{
    ATTEMPTS_KEPT, Attempt, CODE_BYTES_KEPT, Cause, ERROR_BYTES_KEPT, HeldLease,
    MESSAGE_BYTES_KEPT, Words,
};
pub use self::deletion::{Deletion, UNDO_MS_MAX};
pub use self::trace::TraceParent;
use crate::payload::BytesRef;

/// The number of a job: below 2^53, never reused. Eight bits are kept for a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JobId(pub u64);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Ids stay below this, so that a JSON number carries them exactly.
pub const JOB_ID_END: u64 = 1 << 53;

/// Ids of one shard: the low 45 bits.
pub const JOB_ID_SEQUENCE_END: u64 = 1 << 45;

/// Where a job stands. See the drawing above.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Status {
    /// Its run_at lies ahead.
    Scheduled = 0,
    /// May be leased.
    Ready = 1,
    /// Held by a worker.
    Leased = 2,
    /// Not leased until somebody releases it.
    Parked = 3,
    /// Completed.
    Done = 4,
    /// Failed for good.
    Dead = 5,
    /// Waits for other jobs to end.
    Blocked = 6,
}

impl Status {
    /// All, in the order of their numbers.
    pub const ALL: [Status; 7] = [
        Status::Scheduled,
        Status::Ready,
        Status::Leased,
        Status::Parked,
        Status::Done,
        Status::Dead,
        Status::Blocked,
    ];

    /// The status of a job that no worker has: parked, else blocked while it waits for other jobs,
    /// else scheduled while its time lies ahead.
    pub fn waiting(parked: bool, is_blocked: bool, is_ahead: bool) -> Status {
        match (parked, is_blocked, is_ahead) {
            (true, _, _) => Status::Parked,
            (false, true, _) => Status::Blocked,
            (false, false, true) => Status::Scheduled,
            (false, false, false) => Status::Ready,
        }
    }

    /// Done or dead: all but a few bytes of the job is in the log only.
    pub fn is_finished(self) -> bool {
        matches!(self, Status::Done | Status::Dead)
    }
}

/// A door that a job came in through, or that a worker leases by. Records carry its number; the
/// rules of a door are its [`Policy`](crate::Policy).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Origin {
    /// The native API and the command line over it.
    Api = 0,
    /// Workq's text protocol.
    Workq = 1,
    /// Gearman's binary protocol.
    Gearman = 2,
    /// The draft Gearman began with.
    GearmanDraft = 3,
    /// LightJQ over HTTP.
    Lightjq = 4,
    /// Jobq over HTTP.
    Jobq = 5,
}

impl Origin {
    /// All, in the order of their numbers.
    pub const ALL: [Origin; 6] = [
        Origin::Api,
        Origin::Workq,
        Origin::Gearman,
        Origin::GearmanDraft,
        Origin::Lightjq,
        Origin::Jobq,
    ];
}

/// How long a key keeps others from taking the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Scope {
    /// As long as anything of the job is kept (UUIDs, idempotency keys).
    WhileKept = 0,
    /// Until the job is done or dead (unique keys).
    WhileUnfinished = 1,
}

/// A name a door gave a job. In its namespace it names at most one job in scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Key {
    /// The door whose namespace it is.
    #[prost(enumeration = "Origin", tag = "1")]
    pub namespace: i32,
    /// The name, as its door writes it.
    #[prost(bytes = "bytes", tag = "2")]
    pub name: Bytes,
    /// How long it holds.
    #[prost(enumeration = "Scope", tag = "3")]
    pub scope: i32,
}

/// The namespace of a job's UUID: an image has it in `uuid_high` and `uuid_low`, and a key of this
/// namespace that holds while the job is kept and is 16 bytes long is the same name.
pub const UUID_NAMESPACE: Origin = Origin::Workq;

/// How long a failed job waits before it is ready again: base x factor^(fails - 1), capped.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Backoff {
    /// Wait after the first failure.
    #[prost(uint64, tag = "1")]
    pub base_ms: u64,
    /// Growth per failure, in thousandths: 2000 doubles.
    #[prost(uint32, tag = "2")]
    pub factor_thousandths: u32,
    /// Never longer than this.
    #[prost(uint64, tag = "3")]
    pub cap_ms: u64,
    /// Up to this share of the wait, in thousandths, is taken off by a hash of id and attempt.
    #[prost(uint32, tag = "4")]
    pub jitter_thousandths: u32,
}

impl Backoff {
    /// Ready again at once.
    pub const NONE: Backoff =
        Backoff { base_ms: 0, factor_thousandths: 1000, cap_ms: 0, jitter_thousandths: 0 };

    /// The wait after failure number `fails` (from 1) of job `id`. Saturates, never panics.
    pub fn wait_ms(&self, id: JobId, fails: u32) -> u64 {
        let mut wait = u128::from(self.base_ms);
        let cap = u128::from(self.cap_ms);
        for _ in 1..fails {
            if wait >= cap || self.factor_thousandths <= 1000 {
                break;
            }
            wait = wait * u128::from(self.factor_thousandths) / 1000;
        }
        let wait = u64::try_from(wait.min(cap)).unwrap_or(u64::MAX);
        let share = u128::from(self.jitter_thousandths.min(1000)) * u128::from(wait) / 1000;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        let draw = mix(id.0 ^ (u64::from(fails) << 53));
        wait - if share == 0 { 0 } else { draw % (share + 1) }
    }
}

/// A fixed mixing function (splitmix64), so that jitter is the same on every machine and version.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a worker reported at the end of an attempt, or the server for it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outcome {
    /// Completed or failed.
    #[prost(bool, tag = "1")]
    pub success: bool,
    /// The result's bytes.
    #[prost(message, optional, tag = "2")]
    pub bytes: Option<BytesRef>,
    /// A message for people.
    #[prost(bytes = "bytes", tag = "3")]
    pub message: Bytes,
    /// The error, as the worker's door received it.
    #[prost(bytes = "bytes", tag = "4")]
    pub error: Bytes,
    /// A code from the worker, or from the server (`cancelled`, `timeout`, `worker_lost`, ...).
    #[prost(bytes = "bytes", tag = "5")]
    pub code: Bytes,
    /// When the worker says that it finished, as its door received it.
    #[prost(bytes = "bytes", tag = "6")]
    pub worker_finished_at: Bytes,
    /// What the bytes of `error` are. Older events do not say it; see [`JobImage::error_type`].
    #[prost(enumeration = "crate::payload::Type", tag = "7")]
    pub error_kind: i32,
}

/// A constraint's value that a job falls under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Label {
    /// Number of the constraint.
    #[prost(uint32, tag = "1")]
    pub constraint: u32,
    /// Hash of the payload field's value, 0 for a constraint without `per`.
    #[prost(uint64, tag = "2")]
    pub value: u64,
}

impl Label {
    /// The value of jobs that are older than their constraint, and whose own value would be one
    /// more than the constraint may have: they share a bucket.
    pub const OVERFLOW: u64 = u64::MAX;
}

/// A job has at most this many labels.
pub const LABELS_MAX: usize = 8;

/// Everything about a job, as events have it. What few jobs have is behind pointers, since images
/// are moved with every submit and every end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JobImage {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The queue it is in.
    #[prost(bytes = "bytes", tag = "2")]
    pub queue: Bytes,
    /// Where it stands.
    #[prost(enumeration = "Status", tag = "3")]
    pub status: i32,
    /// The door it came through.
    #[prost(enumeration = "Origin", tag = "4")]
    pub origin: i32,
    /// Higher goes first.
    #[prost(sint64, tag = "5")]
    pub priority: i64,
    /// Age among equals, given when the job became ready the first time; 0 before.
    #[prost(uint64, tag = "6")]
    pub order: u64,
    /// When it was submitted.
    #[prost(fixed64, tag = "7")]
    pub created_ms: u64,
    /// Time to live, as given.
    #[prost(uint64, optional, tag = "8")]
    pub ttl_ms: Option<u64>,
    /// Time to run, as given.
    #[prost(uint64, optional, tag = "9")]
    pub ttr_ms: Option<u64>,
    /// Leases given.
    #[prost(uint32, tag = "10")]
    pub attempts: u32,
    /// Failures that workers reported.
    #[prost(uint32, tag = "11")]
    pub fails: u32,
    /// Counts its events; edits and polls compare it.
    #[prost(uint32, tag = "12")]
    pub revision: u32,
    /// The payload.
    #[prost(message, optional, tag = "13")]
    pub payload: Option<BytesRef>,
    /// High half of the UUID; both halves are zero for a job that has none.
    #[prost(fixed64, tag = "14")]
    pub uuid_high: u64,
    /// Low half of the UUID.
    #[prost(fixed64, tag = "15")]
    pub uuid_low: u64,
    /// Exists only while a client waits; never logged.
    #[prost(bool, tag = "16")]
    pub foreground: bool,
    /// What few jobs have; see [`JobImage::options`].
    #[prost(message, optional, boxed, tag = "17")]
    pub options: Option<Box<JobOptions>>,
    /// When its first attempt began.
    #[prost(fixed64, optional, tag = "18")]
    pub started_ms: Option<u64>,
    /// When it finished.
    #[prost(fixed64, optional, tag = "19")]
    pub finished_ms: Option<u64>,
    /// When the finished job goes; absent means by hand only.
    #[prost(fixed64, optional, tag = "20")]
    pub kept_until_ms: Option<u64>,
    /// Its live lease.
    #[prost(message, optional, boxed, tag = "21")]
    pub lease: Option<Box<HeldLease>>,
    /// The last outcome.
    #[prost(message, optional, boxed, tag = "22")]
    pub outcome: Option<Box<Outcome>>,
    /// First and last attempts.
    #[prost(message, repeated, tag = "23")]
    pub history: Vec<Attempt>,
}

/// What only few jobs have.
#[derive(Clone, PartialEq, prost::Message)]
pub struct JobOptions {
    /// When it may run, if that was asked for or a backoff says so.
    #[prost(fixed64, optional, tag = "1")]
    pub run_at_ms: Option<u64>,
    /// The time that the submit asked for, if it named one: the TTL counts from then.
    #[prost(fixed64, optional, tag = "2")]
    pub scheduled_ms: Option<u64>,
    /// Most leases, as given; absent means the queue's or the protocol's, 0 means no limit.
    #[prost(uint32, optional, tag = "3")]
    pub attempts_max: Option<u32>,
    /// Most failures, as given; absent means the queue's or the protocol's.
    #[prost(uint32, optional, tag = "4")]
    pub fails_max: Option<u32>,
    /// Wait between failures, as given.
    #[prost(message, optional, tag = "5")]
    pub backoff: Option<Backoff>,
    /// Names from outside, besides the UUID.
    #[prost(message, repeated, tag = "6")]
    pub keys: Vec<Key>,
    /// Which constraint values it falls under.
    #[prost(message, repeated, tag = "7")]
    pub labels: Vec<Label>,
    /// Words to search by.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub tags: Vec<Bytes>,
    /// The state that users set, as JSON text.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub state: Option<Bytes>,
    /// The job's own newest events, each as its door wrote it, oldest first. Older ones are in
    /// `pages`.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub events: Vec<Bytes>,
    /// Retention once finished; absent means until the TTL.
    #[prost(uint64, optional, tag = "11")]
    pub keep_ms: Option<u64>,
    /// Retention after the result was first read; absent means reading changes nothing.
    #[prost(uint64, optional, tag = "12")]
    pub keep_read_ms: Option<u64>,
    /// The result's bytes are dropped when it finishes.
    #[prost(bool, tag = "13")]
    pub drop_result: bool,
    /// When `state` or `events` last changed; 0: not since the job was submitted.
    #[prost(fixed64, tag = "30")]
    pub updated_ms: u64,
    /// Counts all such changes of the server: of two jobs, the one with the smaller number has been
    /// left alone for longer. 0 for a job that has neither state nor events.
    #[prost(uint64, tag = "31")]
    pub update_seq: u64,
    /// Where older events are, a page of them each, oldest first.
    #[prost(message, repeated, tag = "32")]
    pub pages: Vec<BytesRef>,
    /// The trace it belongs to, if its submit came with one.
    #[prost(message, optional, boxed, tag = "33")]
    pub trace: Option<Box<TraceParent>>,
    /// It is deleted, and that can still be undone.
    #[prost(message, optional, boxed, tag = "34")]
    pub deletion: Option<Box<Deletion>>,
    /// The jobs that it waits for, or waited for.
    #[prost(message, optional, boxed, tag = "40")]
    pub after: Option<Box<After>>,
    /// Whose share of a fair queue it takes; never empty. Absent means that of all jobs without key.
    #[prost(bytes = "bytes", optional, tag = "41")]
    pub fair_key: Option<Bytes>,
    /// Since when it waits, if that is not since it came: it went to the tail of a queue whose jobs
    /// age.
    #[prost(fixed64, optional, tag = "42")]
    pub waits_since_ms: Option<u64>,
    /// The batch that it belongs to; 0 if it belongs to none.
    #[prost(uint64, tag = "43")]
    pub batch: u64,
}

/// What most jobs have, to be borrowed.
pub(crate) static NO_OPTIONS: JobOptions = JobOptions::NONE;

impl JobOptions {
    /// What most jobs have.
    pub const NONE: JobOptions = JobOptions {
        run_at_ms: None,
        scheduled_ms: None,
        attempts_max: None,
        fails_max: None,
        backoff: None,
        keys: Vec::new(),
        labels: Vec::new(),
        tags: Vec::new(),
        state: None,
        events: Vec::new(),
        keep_ms: None,
        keep_read_ms: None,
        drop_result: false,
        updated_ms: 0,
        update_seq: 0,
        pages: Vec::new(),
        trace: None,
        deletion: None,
        after: None,
        fair_key: None,
        waits_since_ms: None,
        batch: 0,
    };

    /// Whether there is nothing in it.
    pub fn is_none(&self) -> bool {
        // All fields by name: one that is added does not compile before it is looked at here.
        let JobOptions {
            run_at_ms: None,
            scheduled_ms: None,
            attempts_max: None,
            fails_max: None,
            backoff: None,
            keys,
            labels,
            tags,
            state: None,
            events,
            keep_ms: None,
            keep_read_ms: None,
            drop_result: false,
            updated_ms: 0,
            update_seq: 0,
            pages,
            trace: None,
            deletion: None,
            after: None,
            fair_key: None,
            waits_since_ms: None,
            batch: 0,
        } = self
        else {
            return false;
        };
        keys.is_empty()
            && labels.is_empty()
            && tags.is_empty()
            && events.is_empty()
            && pages.is_empty()
    }

    /// The jobs that it still waits for.
    pub fn open(&self) -> &[u64] {
        self.after.as_deref().map_or(&[], |after| &after.open)
    }

    /// How many bytes `state` and `events` take, in memory and in pages.
    pub fn update_bytes(&self) -> u64 {
        let state = self.state.as_ref().map_or(0, Bytes::len);
        let events = self.events.iter().map(Bytes::len).sum::<usize>();
        let pages = self.pages.iter().map(|page| u64::from(page.len)).sum::<u64>();
        (state + events) as u64 + pages
    }

    /// The oldest record the pages of events need.
    pub fn pages_need(&self) -> Option<u64> {
        self.pages.iter().filter_map(BytesRef::needs).min()
    }

    /// In a box, unless there is nothing in it.
    pub fn boxed(self) -> Option<Box<JobOptions>> {
        (!self.is_none()).then(|| Box::new(self))
    }
}

impl JobImage {
    /// The job's UUID, if a client gave it one.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        let value = (u128::from(self.uuid_high) << 64) | u128::from(self.uuid_low);
        (value != 0).then(|| value.to_be_bytes())
    }

    /// A UUID as images have it: `uuid_high` and `uuid_low`.
    pub fn uuid_halves(uuid: Option<[u8; 16]>) -> (u64, u64) {
        let value = uuid.map_or(0, u128::from_be_bytes);
        ((value >> 64) as u64, value as u64)
    }

    /// What few jobs have, whether this one has any of it or not.
    pub fn options(&self) -> &JobOptions {
        self.options.as_deref().unwrap_or(&NO_OPTIONS)
    }

    /// What few jobs have, to be changed.
    pub fn options_mut(&mut self) -> &mut JobOptions {
        self.options.get_or_insert_default()
    }

    /// When the TTL ends.
    pub fn expires_ms(&self) -> Option<u64> {
        let start_ms = self.options().scheduled_ms.unwrap_or(self.created_ms);
        ttl_end_ms(start_ms, self.ttl_ms)
    }

    /// The oldest record this image's bytes need, besides the one it stands in itself.
    pub fn needs(&self) -> Option<u64> {
        let payload = self.payload.as_ref().and_then(BytesRef::needs);
        let result = self.outcome.as_ref().and_then(|o| o.bytes.as_ref()).and_then(BytesRef::needs);
        older(older(payload, result), self.options().pages_need())
    }
}

fn older(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// When a TTL that counts from `start_ms` ends. One that passes the end of time never does.
pub(crate) fn ttl_end_ms(start_ms: u64, ttl_ms: Option<u64>) -> Option<u64> {
    ttl_ms.and_then(|ttl| start_ms.checked_add(ttl)).filter(|end| *end != u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap_and_survives_any_count() {
        let backoff = Backoff {
            base_ms: 1000,
            factor_thousandths: 2000,
            cap_ms: 3_600_000,
            jitter_thousandths: 0,
        };
        let waits: Vec<u64> = [1, 2, 3, 12, 13, u32::MAX]
            .iter()
            .map(|fails| backoff.wait_ms(JobId(7), *fails))
            .collect();
        assert_eq!(waits, [1000, 2000, 4000, 2_048_000, 3_600_000, 3_600_000]);
        assert_eq!(Backoff::NONE.wait_ms(JobId(7), 3), 0);
    }

    #[test]
    fn jitter_takes_off_at_most_its_share_and_is_the_same_each_time() {
        let backoff = Backoff {
            base_ms: 1000,
            factor_thousandths: 1000,
            cap_ms: 1000,
            jitter_thousandths: 250,
        };
        let waits: Vec<u64> = (0..200).map(|id| backoff.wait_ms(JobId(id), 1)).collect();
        assert!(waits.iter().all(|wait| (750..=1000).contains(wait)));
        assert!(waits.iter().min() != waits.iter().max());
        assert_eq!(waits[3], backoff.wait_ms(JobId(3), 1));
    }
}
