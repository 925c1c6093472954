//! A job as answers show it.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use spindle_core::job::{Attempt, Cause, HeldLease, Origin, Outcome, Words};
use spindle_core::{JobId, JobImage, Source, Status, Type, address};
use spindle_engine::{
    BlockerNow, Engine, HeldBack, JobNow, Progress, failure_words, fingerprint_of,
};
use spindle_http::door_word;
use spindle_msgpack::AsJson;
use utoipa::ToSchema;

use crate::backoff::Backoff;
use crate::batch::BatchStatus;
use crate::deletion::Deletion;
use crate::instant;
use crate::keys;
use crate::naming;
use crate::submit::OnDeadWord;
use crate::typed::{self, Kind};

/// A job. What a job does not have is left out.
#[derive(Serialize, ToSchema)]
pub(crate) struct Job {
    /// Its number, below 2^53.
    id: u64,
    /// The UUID by which Workq's clients know it.
    uuid: String,
    /// The handle by which Gearman's clients know it.
    handle: String,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// `scheduled`, `ready`, `leased`, `parked`, `blocked`, `done` or `dead`.
    #[schema(example = "ready")]
    status: &'static str,
    /// The door it came through: `api`, `workq`, `gearman`, `gearman_draft`, `lightjq`, `jobq`.
    #[schema(example = "api")]
    origin: &'static str,
    /// Higher goes first.
    priority: i64,
    /// Counts its changes; its entity tag.
    revision: u32,
    /// When it was submitted.
    created_at: String,
    /// When it may run, while that lies ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    /// When its first attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// When it was done or dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    /// When it goes, whatever its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When it goes, now that it is done or dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_until: Option<String>,
    /// It is deleted, and gone when that can be undone no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion: Option<Deletion>,
    /// How long a lease lasts, as given.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttr_ms: Option<u64>,
    /// How long it lives, as given.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// Leases given.
    attempts: u32,
    /// Most leases, as is in force; 0 is no limit.
    attempts_max: u32,
    /// Failures that workers reported.
    fails: u32,
    /// Most failures, as is in force; 0 is no limit.
    fails_max: u32,
    /// Wait between failures, as is in force.
    backoff: Backoff,
    /// Who set these three.
    limits_from: LimitsFrom,
    /// How long it is kept once done, as given.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
    /// Words to search by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// The batch that it belongs to; it may be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    /// The jobs and batches that it waits for or waited for, as they stand now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<AfterShown>,
    /// What happens when one of them dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<OnDeadWord>,
    /// Whose share of a fair queue it takes: as given, or from its payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_key: Option<String>,
    /// The unique key it was submitted with, while it holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<String>,
    /// The trace it was submitted in (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "traceparent")]
    traceparent: Option<String>,
    /// It lives in memory only, while somebody waits for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    foreground: bool,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseShown>,
    /// How far its worker says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressShown>,
    /// Constraints that keep it from starting now, even if its turn came.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held_by: Vec<HeldBy>,
    /// What its last attempt said if it failed, without what differs from job to job:
    /// `GET /api/v1/failures` groups failures by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "connection refused to db-#")]
    fingerprint: Option<String>,
    /// What the payload is.
    payload_type: Kind,
    /// How long the payload is.
    payload_bytes: u32,
    /// The payload, if it is JSON. Lists leave payloads out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    /// The first bytes of the payload, if they are UTF-8: in a list that was asked for them, and of
    /// a job whose payload is longer than `bytes_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_preview: Option<String>,
    /// The same in base64, if they are no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_preview_base64: Option<String>,
    /// The payload failed its checksum and is lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    payload_damaged: bool,
    /// How its last attempt ended that had an outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Result>,
    /// Its first and last attempts, at most 16 of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<AttemptShown>,
}

/// Whether a job is unfinished and no worker has it.
pub(crate) fn waits(status: Status) -> bool {
    matches!(status, Status::Ready | Status::Scheduled | Status::Parked | Status::Blocked)
}

/// A job or a batch that another job waits for, or waited for.
#[derive(Serialize, ToSchema)]
pub(crate) struct AfterShown {
    /// Its number.
    pub id: u64,
    /// It is a batch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_batch: bool,
    /// Where it stands; `gone` if it is not kept any more.
    #[schema(example = "done")]
    pub status: &'static str,
}

impl From<BlockerNow> for AfterShown {
    fn from(blocker: BlockerNow) -> AfterShown {
        let status = match &blocker.batch {
            Some(batch) => BatchStatus::of(batch).word(),
            None => blocker.status.map_or("gone", status_word),
        };
        AfterShown { id: blocker.id.0, is_batch: blocker.batch.is_some(), status }
    }
}

/// A constraint that keeps a job from starting now.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldBy {
    /// Its name.
    pub constraint: String,
    /// So many of its jobs run, and no more may: it frees when one of them ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u64>,
    /// It lets none of its jobs start, and whether this one is among them is still to be found out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmatched: bool,
    /// When it lets one start by time alone, as far as its rate goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees_at: Option<String>,
}

impl HeldBy {
    fn of(held: HeldBack) -> HeldBy {
        let HeldBack { constraint, running_max, frees_ms, unmatched } = held;
        HeldBy { constraint, running_max, unmatched, frees_at: frees_ms.map(instant::shown) }
    }

    /// The constraints that hold back a job that might start.
    pub fn all(image: &JobImage, held_back: Vec<HeldBack>) -> Vec<HeldBy> {
        if waits(image.status()) {
            held_back.into_iter().map(HeldBy::of).collect()
        } else {
            Vec::new()
        }
    }
}

/// Who set each limit of a job's tries.
#[derive(Serialize, ToSchema)]
pub(crate) struct LimitsFrom {
    attempts_max: SetBy,
    fails_max: SetBy,
    backoff: SetBy,
}

/// Who set a limit.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetBy {
    /// The submit that brought the job.
    Job,
    /// The settings of its queue, as they are now.
    Queue,
    /// Nobody: the default of the door it came through.
    Default,
}

impl From<Source> for SetBy {
    fn from(source: Source) -> SetBy {
        match source {
            Source::Job => SetBy::Job,
            Source::Queue => SetBy::Queue,
            Source::Door => SetBy::Default,
        }
    }
}

/// A live lease, without the token.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseShown {
    /// Which attempt it is.
    attempt: u32,
    /// The holder's door.
    door: &'static str,
    /// The worker's name, where it gave one.
    #[serde(skip_serializing_if = "String::is_empty")]
    worker: String,
    /// When it was given.
    started_at: String,
    /// When it runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
    /// It ends with its connection.
    bound: bool,
}

/// The end of an attempt, as its worker reported it.
#[derive(Serialize, ToSchema)]
#[schema(as = JobResult)]
pub(crate) struct Result {
    /// Completed, or failed.
    success: bool,
    /// What `value` is.
    #[serde(rename = "type")]
    kind: Kind,
    /// How long the result is.
    bytes: u32,
    /// The result, if it is JSON. Lists leave results out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<Box<RawValue>>,
    /// The result in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    base64: Option<String>,
    /// What a result says that is MessagePack, as JSON. `base64` has it exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    as_json: Option<AsJson<Bytes>>,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The error, as the worker gave it. One that is MessagePack and no text is shown as JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    /// A code, as the worker gave it, or of the server: `timeout`, `worker_lost`,
    /// `cancelled`, `after_dead`, `after_gone`.
    #[serde(skip_serializing_if = "String::is_empty")]
    code: String,
}

/// How far a worker says it is: two texts, as it wrote them, which usually are numbers.
#[derive(Serialize, ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressShown {
    /// How much is done.
    numerator: String,
    /// Of how much.
    denominator: String,
    /// How many seconds it will take, if the worker said that.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_s: Option<u32>,
}

impl From<Progress> for ProgressShown {
    fn from(Progress { numerator, denominator, remaining_s }: Progress) -> ProgressShown {
        ProgressShown {
            numerator: text(&numerator),
            denominator: text(&denominator),
            remaining_s: Some(remaining_s).filter(|seconds| *seconds > 0),
        }
    }
}

/// A past attempt.
#[derive(Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptShown {
    /// Its number, from 1.
    attempt: u32,
    /// When it began.
    started_at: String,
    /// When it ended.
    ended_at: String,
    /// How it ended: `completed`, `failed`, `timeout`, `holder_gone`, `released`, and so on.
    outcome: &'static str,
    /// The holder's door.
    door: &'static str,
    /// The worker's name, where it gave one.
    #[serde(skip_serializing_if = "String::is_empty")]
    worker: String,
    /// What the worker of a failed attempt said, at most 256 bytes of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The error of a failed attempt, at most 256 bytes of it. A longer one that is MessagePack is
    /// not there.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    /// The code of a failed attempt, at most 64 bytes of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    code: String,
}

/// The bytes of a job that were read for an answer.
#[derive(Default)]
pub(crate) struct Bodies {
    pub payload: Option<Bytes>,
    /// The beginning of a payload that is too long.
    pub beginning: Option<Bytes>,
    pub result: Option<Bytes>,
    pub payload_damaged: bool,
}

impl Job {
    pub fn new(engine: &Engine, image: &JobImage, bodies: Bodies, host: &str) -> Job {
        let JobNow { tries, held_back, progress, .. } = engine.jobs().now(image);
        let held_by = HeldBy::all(image, held_back);
        let id = JobId(image.id);
        let options = image.options();
        let (queue, queue_base64) = naming::text_or_base64(&image.queue);
        let time = |ms: Option<u64>| ms.map(instant::shown);
        let payload_kind = Kind::of(image.payload.as_ref().map_or(0, |payload| payload.kind));
        let shown = bodies.payload.as_ref().map(|bytes| typed::shown(bytes, payload_kind));
        let (payload, payload_base64) = shown.unwrap_or_default();
        let job = Job {
            id: id.0,
            uuid: naming::uuid_of(id, image.uuid()),
            handle: address::gearman_handle(host, id),
            queue,
            queue_base64,
            status: status_word(image.status()),
            origin: door_word(image.origin()),
            priority: image.priority,
            revision: image.revision,
            created_at: instant::shown(image.created_ms),
            run_at: time(options.run_at_ms),
            started_at: time(image.started_ms),
            finished_at: time(image.finished_ms),
            expires_at: time(image.expires_ms()),
            kept_until: time(image.kept_until_ms),
            deletion: options.deletion.as_deref().map(|deletion| Deletion::from(*deletion)),
            ttr_ms: image.ttr_ms,
            ttl_ms: image.ttl_ms,
            attempts: image.attempts,
            attempts_max: tries.attempts_max.value,
            fails: image.fails,
            fails_max: tries.fails_max.value,
            backoff: tries.backoff.value.into(),
            limits_from: LimitsFrom {
                attempts_max: tries.attempts_max.from.into(),
                fails_max: tries.fails_max.from.into(),
                backoff: tries.backoff.from.into(),
            },
            keep_ms: options.keep_ms,
            tags: options.tags.iter().map(|tag| text(tag)).collect(),
            batch: Some(options.batch).filter(|batch| *batch > 0),
            after: engine.jobs().before(image).into_iter().map(AfterShown::from).collect(),
            on_dead: options.after.as_deref().map(|after| after.on_dead().into()),
            fair_key: options.fair_key.as_ref().map(|key| text(key)),
            unique_key: keys::unique_of(image),
            traceparent: options.trace.as_deref().map(ToString::to_string),
            foreground: image.foreground,
            lease: image.lease.as_ref().map(|lease| lease_shown(lease, image.attempts)),
            progress: progress.map(ProgressShown::from),
            held_by,
            fingerprint: fingerprint_of(image),
            payload_type: payload_kind,
            payload_bytes: image.payload.as_ref().map_or(0, |payload| payload.len),
            payload,
            payload_base64,
            payload_preview: None,
            payload_preview_base64: None,
            payload_damaged: bodies.payload_damaged,
            result: image
                .outcome
                .as_ref()
                .map(|outcome| result(image, outcome, bodies.result.as_ref())),
            history: image.history.iter().map(attempt_shown).collect(),
        };
        match bodies.beginning {
            Some(bytes) => job.beginning(&bytes),
            None => job,
        }
    }
}

impl Job {
    /// The same with how its payload begins. Of a longer one, the last character may be cut off.
    pub fn beginning(mut self, bytes: &[u8]) -> Job {
        let is_cut = bytes.len() < self.payload_bytes as usize;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        match text {
            Some(text) => self.payload_preview = Some(text.to_owned()),
            None => self.payload_preview_base64 = Some(naming::to_base64(bytes)),
        }
        self
    }
}

impl Result {
    /// The same on one line: JSON that contains line breaks is put in base64.
    pub fn in_base64(mut self, bytes: Option<&Bytes>) -> Result {
        let is_one_line =
            |json: &RawValue| memchr::memchr2(b'\n', b'\r', json.get().as_bytes()).is_none();
        if let (Some(value), Some(bytes)) = (&self.value, bytes)
            && !is_one_line(value)
        {
            (self.value, self.base64) = (None, Some(naming::to_base64(bytes)));
        }
        self
    }
}

fn lease_shown(lease: &HeldLease, attempt: u32) -> LeaseShown {
    LeaseShown {
        attempt,
        door: door_word(lease.door()),
        worker: text(&lease.worker),
        started_at: instant::shown(lease.started_ms),
        deadline_at: lease.deadline_ms.map(instant::shown),
        bound: lease.bound,
    }
}

pub(crate) fn result(image: &JobImage, outcome: &Outcome, bytes: Option<&Bytes>) -> Result {
    let kind = Kind::of(outcome.bytes.as_ref().map_or(0, |bytes| bytes.kind));
    let shown = bytes.filter(|_| outcome.bytes.as_ref().is_some_and(|place| place.len > 0));
    let as_json =
        shown.filter(|_| kind == Kind::Msgpack).and_then(|bytes| AsJson::of(bytes.clone()).ok());
    let (value, base64) = shown.map(|bytes| typed::shown(bytes, kind)).unwrap_or_default();
    Result {
        success: outcome.success,
        kind,
        bytes: outcome.bytes.as_ref().map_or(0, |bytes| bytes.len),
        value,
        base64,
        as_json,
        message: text(&outcome.message),
        error: error_text(&outcome.error, image.error_type()),
        code: text(&outcome.code),
    }
}

/// An error for people: a text as it is, a MessagePack value as what it says.
pub(crate) fn error_text(error: &[u8], kind: Type) -> String {
    failure_words(error, kind).into_owned()
}

fn attempt_shown(attempt: &Attempt) -> AttemptShown {
    static NONE: Words = Words { message: Bytes::new(), error: Bytes::new(), code: Bytes::new() };
    let words = attempt.words.as_deref().unwrap_or(&NONE);
    let by_lightjq = attempt.door() == Origin::Lightjq;
    let error_kind = if by_lightjq { Type::Msgpack } else { Type::Bytes };
    AttemptShown {
        attempt: attempt.attempt,
        started_at: instant::shown(attempt.started_ms),
        ended_at: instant::shown(attempt.ended_ms),
        outcome: cause_word(attempt.cause()),
        door: door_word(attempt.door()),
        worker: text(&attempt.worker),
        message: text(&words.message),
        error: error_text(&words.error, error_kind),
        code: text(&words.code),
    }
}

/// Bytes as text for people: other doors accept any bytes where text is expected.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A status as the API writes it.
pub(crate) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Scheduled => "scheduled",
        Status::Ready => "ready",
        Status::Leased => "leased",
        Status::Parked => "parked",
        Status::Done => "done",
        Status::Dead => "dead",
        Status::Blocked => "blocked",
    }
}

/// How an attempt or a job ended, as the API writes it.
pub(crate) fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Completed => "completed",
        Cause::Failed => "failed",
        Cause::Timeout => "timeout",
        Cause::HolderGone => "holder_gone",
        Cause::Released => "released",
        Cause::Undone => "undone",
        Cause::Restarted => "restarted",
        Cause::Cancelled => "cancelled",
        Cause::Deleted => "deleted",
        Cause::Expired => "expired",
        Cause::Consumed => "consumed",
        Cause::Limit => "limit",
        Cause::Abandoned => "abandoned",
        Cause::Damaged => "damaged",
    }
}
