//! What a client says about a job it submits.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_core::command::Submit;
use spindle_core::job::{AFTER_MAX, OnDead, Origin};
use spindle_core::queue::FAIR_KEY_BYTES_MAX;
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{NewJob, Payload};
use utoipa::ToSchema;

use crate::backoff::Backoff;
use crate::typed::{self, Kind, present};
use crate::{instant, keys, naming, object};
use spindle_http::{Answered, Problem, whole, whole_or_null};

/// The limits on tags: the most of a job, and the longest.
pub(crate) const TAGS_MAX: usize = 64;
pub(crate) const TAG_CHARS_MAX: usize = 128;
/// The longest `ref`.
const REF_CHARS_MAX: usize = 64;

/// A job to submit. Everything but the queue may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJobBody {
    /// The queue, 1 to 512 bytes.
    #[schema(example = "mail", min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// The queue in base64, for a name that is no UTF-8.
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// The payload: any JSON value, kept as written.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64.
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    /// What `payload_base64` is; `bytes` by default. `json` is taken if it is JSON.
    payload_type: Option<Kind>,
    /// Higher goes first.
    #[serde(default, deserialize_with = "whole")]
    priority: i64,
    /// Not before this time (RFC 3339).
    #[schema(example = "2030-01-31T08:00:00Z", format = "time-or-now")]
    run_at: Option<String>,
    /// How long a lease lasts; by default the queue's setting, or a minute.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1, maximum = 4_294_967_294_u32)]
    ttr_ms: Option<u64>,
    /// Goes after this time, from `run_at` or now, whatever its status.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// Most leases; 0 is no limit. If not said, the queue's setting, or 25.
    #[serde(default, deserialize_with = "whole_or_null")]
    attempts_max: Option<u32>,
    /// Most failures; 0 is no limit. If not said, the queue's setting, or 5.
    #[serde(default, deserialize_with = "whole_or_null")]
    fails_max: Option<u32>,
    /// Wait between failures. If not said, the queue's setting, or 5 s, 15 s, 45 s and so on up to
    /// an hour, with a jitter of a fifth.
    #[serde(default, deserialize_with = "object::optional")]
    backoff: Option<Backoff>,
    /// How long the job is kept once done; by default the queue's setting, or an hour.
    #[serde(default, deserialize_with = "whole_or_null")]
    keep_ms: Option<u64>,
    /// Kept aside until released.
    #[serde(default)]
    parked: bool,
    /// Words to search by: at most 64, each of 1 to 128 characters.
    #[serde(default)]
    #[schema(max_items = 64, min_length = 1, max_length = 128)]
    tags: Vec<String>,
    /// Whose share of a fair queue the job takes, 1 to 256 bytes. If not said, what the queue's
    /// `fair.field` has.
    #[schema(min_length = 1, max_length = 256)]
    fair_key: Option<String>,
    /// A key that at most one unfinished job of the queue holds.
    #[serde(default, deserialize_with = "object::optional")]
    pub unique: Option<Unique>,
    /// The number of the open batch that it belongs to.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(minimum = 1)]
    batch: Option<u64>,
    /// Jobs and batches that it waits for, at most 100 different ones: it is `blocked` until all of
    /// them are done. Numbers; within one request also the `ref` of another job of the request.
    #[serde(default)]
    pub after: Vec<AfterItem>,
    /// What happens when one of them dies, or is gone without having been done. Without `after` it
    /// says nothing.
    #[serde(default)]
    on_dead: OnDeadWord,
    /// A name for this job within its request, which others of it may have in `after`: 1 to 64
    /// letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub r#ref: Option<String>,
    /// As the header `Idempotency-Key`, for this job: each job of a batch can have its own.
    #[schema(format = "idempotency-key", min_length = 1, max_length = 255)]
    pub idempotency_key: Option<String>,
}

/// A job or a batch that a job is to wait for.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "after has numbers of jobs and batches, or refs of jobs of the request"
)]
pub(crate) enum AfterItem {
    /// Its number.
    Id(#[serde(deserialize_with = "whole")] u64),
    /// Its `ref`, within one request.
    Ref(String),
}

/// What happens to a job when one that it waits for dies, or is gone without having been done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDeadWord {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It runs all the same.
    Run,
    /// It goes on waiting while the dead one can be retried.
    Wait,
}

impl From<OnDeadWord> for OnDead {
    fn from(word: OnDeadWord) -> OnDead {
        match word {
            OnDeadWord::Cancel => OnDead::Cancel,
            OnDeadWord::Run => OnDead::Run,
            OnDeadWord::Wait => OnDead::Wait,
        }
    }
}

impl From<OnDead> for OnDeadWord {
    fn from(on_dead: OnDead) -> OnDeadWord {
        match on_dead {
            OnDead::Cancel => OnDeadWord::Cancel,
            OnDead::Run => OnDeadWord::Run,
            OnDead::Wait => OnDeadWord::Wait,
        }
    }
}

/// What a unique key does.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unique {
    /// 1 to 255 characters.
    #[schema(min_length = 1, max_length = 255)]
    pub key: String,
    /// What happens when another job has the key.
    #[serde(default)]
    pub mode: UniqueMode,
}

/// What happens when another job has the unique key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UniqueMode {
    /// The submit is refused, and the answer names the other job.
    #[default]
    Reject,
    /// The other job is the answer.
    Existing,
    /// The other job is deleted, and this one takes its place in one step: the newest wish counts.
    /// Refused while a worker has the other one.
    Replace,
}

impl NewJobBody {
    /// Refuses what makes no sense for a job that comes again and again.
    pub fn check_repeatable(&self) -> Answered<()> {
        let is_alone = self.after.is_empty() && self.r#ref.is_none() && self.batch.is_none();
        if self.run_at.is_none() && !self.parked && self.unique.is_none() && is_alone {
            return Ok(());
        }
        let detail = "the job of a schedule takes no run_at, parked, batch, after, ref or unique: see overlap";
        Err(Problem::bad_field(detail))
    }

    /// The engine's words for it.
    pub fn into_new_job(self, now_ms: u64) -> Answered<NewJob> {
        let queue = naming::queue(self.queue.as_deref(), self.queue_base64.as_deref())?;
        self.check_after()?;
        let base64 = self.payload_base64.as_deref();
        let (payload, kind) = typed::read("payload", self.payload, base64, self.payload_type)?;
        check_tags(&self.tags)?;
        let empty = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), queue, Origin::Api, empty);
        submit.priority = self.priority;
        submit.run_at_ms = self
            .run_at
            .map(|text| instant::read("run_at", &text))
            .transpose()?
            // A time that has passed counts as now, because a TTL starts when the job may run.
            .filter(|ms| *ms > now_ms);
        submit.ttr_ms = self.ttr_ms;
        submit.ttl_ms = self.ttl_ms;
        submit.attempts_max = self.attempts_max;
        submit.fails_max = self.fails_max;
        submit.backoff = self.backoff.map(Backoff::read).transpose()?;
        submit.keep_ms = self.keep_ms;
        submit.parked = self.parked;
        let after: BTreeSet<JobId> = self.after.iter().filter_map(AfterItem::id).collect();
        submit.after = after.into_iter().collect();
        submit.on_dead = self.on_dead.into();
        submit.batch = self.batch.map(JobId);
        submit.tags = self.tags.into_iter().map(Bytes::from).collect();
        submit.fair_key = self.fair_key.map(fair_key).transpose()?;
        if let Some(unique) = &self.unique {
            keys::check("unique.key", unique.key.chars().count())?;
            submit.keys.push(keys::unique(&submit.queue, unique.key.as_bytes()));
        }
        Ok(NewJob { submit, payload: Payload::new(payload, kind) })
    }
}

impl NewJobBody {
    fn check_after(&self) -> Answered<()> {
        let ids: BTreeSet<JobId> = self.after.iter().filter_map(AfterItem::id).collect();
        let refs: BTreeSet<&str> = self.after.iter().filter_map(AfterItem::name).collect();
        if ids.len() + refs.len() > AFTER_MAX {
            let detail = format!("after names at most {AFTER_MAX} different jobs");
            return Err(Problem::out_of_range(detail));
        }
        let names = self.after.iter().filter_map(AfterItem::name).chain(self.r#ref.as_deref());
        for name in names {
            check_ref(name)?;
        }
        Ok(())
    }
}

fn check_ref(name: &str) -> Answered<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=REF_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let detail = format!("a ref is 1 to {REF_CHARS_MAX} letters, digits, `-`, `_` and `.`");
    Err(Problem::out_of_range(detail))
}

impl AfterItem {
    fn id(&self) -> Option<JobId> {
        match self {
            AfterItem::Id(id) => Some(JobId(*id)),
            AfterItem::Ref(_) => None,
        }
    }

    /// The `ref` it names.
    pub fn name(&self) -> Option<&str> {
        match self {
            AfterItem::Id(_) => None,
            AfterItem::Ref(name) => Some(name),
        }
    }
}

/// A key for fair shares.
pub(crate) fn fair_key(key: String) -> Answered<Bytes> {
    if (1..=FAIR_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(Bytes::from(key));
    }
    Err(Problem::out_of_range(format!("fair_key has 1 to {FAIR_KEY_BYTES_MAX} bytes")))
}

fn check_tags(tags: &[String]) -> Answered<()> {
    let fits = |tag: &String| (1..=TAG_CHARS_MAX).contains(&tag.chars().count());
    if tags.len() <= TAGS_MAX && tags.iter().all(fits) {
        return Ok(());
    }
    let detail =
        format!("a job has at most {TAGS_MAX} tags, each of 1 to {TAG_CHARS_MAX} characters");
    Err(Problem::out_of_range(detail))
}
