//! Queues and constraints, as events have them.

use bytes::Bytes;
use prost::Message as _;

use crate::glob;
use crate::job::{Backoff, Label};

/// Names of queues are 1 to this many bytes, not necessarily UTF-8.
pub const QUEUE_NAME_BYTES_MAX: usize = 512;

/// What a person set for a queue. Absent means: the protocol's default.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QueueSettings {
    /// Nothing is leased while set.
    #[prost(bool, tag = "1")]
    pub paused: bool,
    /// Most leases of a job that says nothing itself; 0 means no limit.
    #[prost(uint32, optional, tag = "2")]
    pub attempts_max: Option<u32>,
    /// Most failures of a job that says nothing itself.
    #[prost(uint32, optional, tag = "3")]
    pub fails_max: Option<u32>,
    /// Wait between failures of a job that says nothing itself.
    #[prost(message, optional, tag = "4")]
    pub backoff: Option<Backoff>,
    /// Lease length an unbound holder gets for a job without TTR.
    #[prost(uint64, optional, tag = "5")]
    pub ttr_default_ms: Option<u64>,
    /// Retention of done jobs that say nothing themselves.
    #[prost(uint64, optional, tag = "6")]
    pub keep_ms: Option<u64>,
    /// Retention of dead jobs.
    #[prost(uint64, optional, tag = "7")]
    pub keep_dead_ms: Option<u64>,
    /// Most unfinished jobs; a submit above it is refused.
    #[prost(uint64, optional, tag = "8")]
    pub jobs_max: Option<u64>,
    /// Most finished jobs kept; the oldest go first.
    #[prost(uint64, optional, tag = "9")]
    pub finished_max: Option<u64>,
    /// What the queue's `bytes` payloads are, for matchers.
    #[prost(enumeration = "crate::payload::Type", optional, tag = "10")]
    pub bytes_type: Option<i32>,
    /// Most unfinished jobs by priority: high (above 0), normal, low; absent or 0 means no limit. A
    /// submit of the class is refused while the queue has that many unfinished jobs, whatever
    /// their class (as gearmand's `maxqueue`).
    #[prost(uint64, repeated, tag = "11")]
    pub jobs_max_by_class: Vec<u64>,
    /// Most bytes of the payloads of unfinished jobs together; a submit that would pass it is refused.
    #[prost(uint64, optional, tag = "12")]
    pub bytes_max: Option<u64>,
    /// A waiting job gains one step of priority each time this long has passed. Absent means that
    /// priority counts first, however long others wait.
    #[prost(uint64, optional, tag = "20")]
    pub aging_ms: Option<u64>,
    /// Ready jobs of different keys take turns.
    #[prost(message, optional, tag = "21")]
    pub fair: Option<Fair>,
}

/// The longest waiting time that may count as one step of priority: a year.
pub const AGING_MS_MAX: u64 = 365 * 24 * 3_600_000;

/// A job's key for fair shares is at most this many bytes.
pub const FAIR_KEY_BYTES_MAX: usize = 256;

/// Most keys of a queue that have a weight of their own.
pub const FAIR_WEIGHTS_MAX: usize = 1_000;

/// The highest weight. The lowest is 1, which is also that of keys without a weight of their own.
pub const FAIR_WEIGHT_MAX: u32 = 1_000;

/// The longest JSON Pointer to a key.
pub const FAIR_FIELD_BYTES_MAX: usize = 256;

/// How the ready jobs of a queue share its workers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fair {
    /// The payload field that has the key of a job whose submit gives none, as a JSON Pointer;
    /// empty if there is no such field.
    #[prost(string, tag = "1")]
    pub field: String,
    /// Keys whose weight is not 1, in the order of the keys.
    #[prost(message, repeated, tag = "2")]
    pub weights: Vec<FairWeight>,
}

/// How many jobs of a key start in its turn.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FairWeight {
    /// The key; empty for the jobs without one.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// 1 to [`FAIR_WEIGHT_MAX`].
    #[prost(uint32, tag = "2")]
    pub weight: u32,
}

impl Fair {
    /// The weight of a key.
    pub fn weight_of(&self, key: &[u8]) -> u32 {
        let found = self.weights.binary_search_by(|entry| entry.key[..].cmp(key));
        found.ok().and_then(|at| self.weights.get(at)).map_or(1, |entry| entry.weight)
    }
}

impl QueueSettings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == QueueSettings::default()
    }
}

/// An integer token bucket: `count` starts per `per_ms`, at most `burst` at once.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Rate {
    /// Tokens that come in every period; at least 1.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// The period; at least 1.
    #[prost(uint64, tag = "2")]
    pub per_ms: u64,
    /// Most tokens held; at least 1.
    #[prost(uint64, tag = "3")]
    pub burst: u64,
}

/// A limit on the jobs its matcher matches, whichever door they came through. The core keeps the
/// matcher as bytes and reads its [`QueuePattern`] only.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Constraint {
    /// Its number, which labels name; never reused.
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Its name, which people use.
    #[prost(bytes = "bytes", tag = "2")]
    pub name: Bytes,
    /// The matcher, as `spindle-matching` encodes it.
    #[prost(bytes = "bytes", tag = "3")]
    pub matcher: Bytes,
    /// Most starts in time.
    #[prost(message, optional, tag = "4")]
    pub rate: Option<Rate>,
    /// Most leased at once.
    #[prost(uint64, optional, tag = "5")]
    pub running_max: Option<u64>,
}

/// What a constraint limits if queues are on several shards. Each shard counts its own jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitScope {
    /// All jobs that it matches, together: so their queues have to be on one shard.
    Whole,
    /// The jobs of each shard separately.
    PerShard,
}

/// Which queues a constraint's matcher takes: the one part of a matcher that the core reads. The
/// tests of payloads come after it in the same message, and only `spindle-matching` reads them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum QueuePattern {
    /// All of them.
    #[default]
    Any,
    /// The one of this name.
    Exact(Bytes),
    /// Those whose names fit this pattern, see [`crate::glob`].
    Glob(Bytes),
}

/// Why a matcher that a constraint keeps cannot be followed. Its constraint then matches no new
/// job, and jobs that have its label keep it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableMatcher {
    /// A later version wrote it.
    #[error("the matcher needs version {0} of the format")]
    Newer(u32),
    /// It is not a matcher.
    #[error("the matcher is damaged")]
    Damaged,
}

/// The first fields of a matcher. Tags from 4 on belong to `spindle-matching`.
#[derive(Clone, PartialEq, prost::Message)]
struct MatcherHead {
    /// Readers of older formats must not follow it.
    #[prost(uint32, tag = "1")]
    min_reader: u32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    queue: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    queue_glob: Option<Bytes>,
}

/// The format of matchers that this version writes, and the newest that it reads.
const MATCHER_VERSION: u32 = 1;

impl QueuePattern {
    /// Appends the first fields of a matcher.
    pub fn encode(&self, matcher: &mut Vec<u8>) {
        let (queue, queue_glob) = match self {
            QueuePattern::Any => (None, None),
            QueuePattern::Exact(name) => (Some(name.clone()), None),
            QueuePattern::Glob(pattern) => (None, Some(pattern.clone())),
        };
        MatcherHead { min_reader: MATCHER_VERSION, queue, queue_glob }.encode_raw(matcher);
    }

    /// Reads the first fields of a matcher.
    pub fn decode(matcher: &Bytes) -> Result<QueuePattern, UnreadableMatcher> {
        let head = MatcherHead::decode(matcher.clone()).map_err(|_| UnreadableMatcher::Damaged)?;
        match (head.min_reader, head.queue, head.queue_glob) {
            (version, ..) if version > MATCHER_VERSION => Err(UnreadableMatcher::Newer(version)),
            (0, ..) | (_, Some(_), Some(_)) => Err(UnreadableMatcher::Damaged),
            (_, None, None) => Ok(QueuePattern::Any),
            (_, Some(name), None) => Ok(QueuePattern::Exact(name)),
            (_, None, Some(pattern)) => Ok(QueuePattern::Glob(pattern)),
        }
    }

    /// Whether it takes jobs of this queue.
    pub fn takes(&self, queue: &[u8]) -> bool {
        match self {
            QueuePattern::Any => true,
            QueuePattern::Exact(name) => name == queue,
            QueuePattern::Glob(pattern) => glob::fits(pattern, queue),
        }
    }
}

/// The state of one bucket: one constraint and one value of its `per` field.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BucketImage {
    /// Whose bucket it is.
    #[prost(message, required, tag = "1")]
    pub label: Label,
    /// Tokens at `at_ms`, in fractions: one token is `per_ms` fractions, by the constraint's rate.
    #[prost(uint64, tag = "2")]
    pub level: u64,
    /// The time of the level.
    #[prost(uint64, tag = "3")]
    pub at_ms: u64,
}
