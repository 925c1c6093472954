//! The filter that selects the jobs of a list or a bulk action. `walk.rs` finds them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;
use spindle_access::Target;
use spindle_core::job::{Key, Origin};
use spindle_core::state::ScanFilter;
use spindle_core::{JobId, JobImage, Status, Type};
use spindle_engine::{FINGERPRINT_CHARS_MAX, fingerprint_of};
use spindle_http::{Answered, Problem, door_word};
use spindle_matching::{Condition, MatchPath, Matcher, Scalar, Test};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::numbers::digits;
use crate::view::status_word;
use crate::{instant, keys, naming};

pub(crate) const TEXT_CHARS_MAX: usize = 1024;
/// The most jobs that one filter may name.
pub(crate) const IDS_MAX: usize = 512;
/// The most requests that one filter may name.
const REQUESTS_MAX: usize = 64;

/// Which jobs are meant: those that match all fields that are set. Each may be left out.
#[derive(Clone, Default, PartialEq, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobFilter {
    /// Only those with these numbers, parted by commas: at most 512.
    #[schema(format = "job-numbers")]
    #[param(format = "job-numbers")]
    pub ids: Option<String>,
    /// Only those of the batch with this number.
    #[schema(pattern = "^[1-9][0-9]{0,14}$")]
    #[param(pattern = "^[1-9][0-9]{0,14}$")]
    pub batch: Option<String>,
    /// Only those of this queue.
    #[schema(min_length = 1, max_length = 512)]
    #[param(min_length = 1, max_length = 512)]
    pub queue: Option<String>,
    /// Only those of this queue, its name in base64. Both: they must be the same.
    #[schema(format = "queue-base64")]
    #[param(format = "queue-base64")]
    pub queue_base64: Option<String>,
    /// Only those of these statuses, parted by commas: `scheduled`, `ready`, `leased`, `parked`, `blocked`,
    /// `done`, `dead`.
    #[schema(format = "statuses")]
    #[param(format = "statuses")]
    pub status: Option<String>,
    /// Only those that came through this door: `api`, `workq`, `gearman`, `gearman_draft`,
    /// `lightjq`, `jobq`.
    #[schema(format = "door")]
    #[param(format = "door")]
    pub door: Option<String>,
    /// Only those submitted at this time (RFC 3339) or later.
    #[schema(format = "time-or-now")]
    #[param(format = "time-or-now")]
    pub created_from: Option<String>,
    /// Only those submitted before this time (RFC 3339).
    #[schema(format = "time-or-now")]
    #[param(format = "time-or-now")]
    pub created_before: Option<String>,
    /// Only unfinished jobs that have this unique key: one at most in a queue.
    #[schema(min_length = 1, max_length = 255)]
    #[param(min_length = 1, max_length = 255)]
    pub unique_key: Option<String>,
    /// Only the job that was submitted with this idempotency key.
    #[schema(min_length = 1, max_length = 255)]
    #[param(min_length = 1, max_length = 255)]
    pub idempotency_key: Option<String>,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only those with this text in their payload, byte for byte.
    #[schema(min_length = 1, max_length = 1024)]
    #[param(min_length = 1, max_length = 1024)]
    pub text: Option<String>,
    /// Only those with this field in their payload: a JSON Pointer (RFC 6901), and `=` with the value
    /// it has. A value is a text or what JSON calls it: `/customer=acme`, `/order/total=7`,
    /// `/paid=true`. Without `=` the field only has to be there. Payloads that are bytes are read as
    /// JSON.
    #[schema(format = "payload-field")]
    #[param(format = "payload-field")]
    pub field: Option<String>,
    /// Only unfinished and dead ones whose last attempt failed with this fingerprint, as
    /// `GET /api/v1/failures` has it.
    #[schema(min_length = 1, max_length = 160)]
    #[param(min_length = 1, max_length = 160)]
    pub fingerprint: Option<String>,
    /// Only those that were deleted by the request with this number, or by one of some parted by
    /// commas (at most 64), while that can be undone.
    #[schema(format = "request-numbers")]
    #[param(format = "request-numbers")]
    pub deleted_by: Option<String>,
}

/// A filter in the engine's words.
#[derive(Clone)]
pub(crate) struct Filter {
    pub scan: ScanFilter,
    tag: Option<Bytes>,
    unique: Option<String>,
    pub payload: Option<Arc<Wanted>>,
    /// Only those of this batch.
    pub batch: Option<JobId>,
    /// Only these, if some are named.
    pub ids: Option<BTreeSet<JobId>>,
    fingerprint: Option<String>,
    pub from: JobId,
    pub until: JobId,
    /// The jobs are not limited by their numbers: all that existed when the filter was read are
    /// meant.
    is_of_any_time: bool,
}

/// The text or field that is searched for in payloads.
pub(crate) struct Wanted {
    text: Option<Finder<'static>>,
    field: Option<MatchPath>,
}

impl Wanted {
    /// Whether a payload has it.
    pub fn is_in(&self, payload: &[u8], kind: i32) -> bool {
        // The doors of old protocols store JSON as bytes.
        let kind = Type::try_from(kind).ok().filter(|kind| *kind != Type::Bytes);
        let kind = kind.unwrap_or(Type::Json);
        self.text.as_ref().is_none_or(|text| text.find(payload).is_some())
            && self.field.as_ref().is_none_or(|field| !field.labels(b"", payload, kind).is_empty())
    }
}

impl JobFilter {
    /// Reads it. Jobs submitted after this are not meant.
    pub fn read(&self, api: &Api) -> Answered<Filter> {
        let queue = self.queue.as_deref().map(|name| naming::queue(Some(name), None));
        let queue = queue.transpose()?;
        let coded = self.queue_base64.as_deref().map(|name| naming::queue(None, Some(name)));
        let coded = coded.transpose()?;
        let mut statuses =
            self.status.as_deref().map(read_statuses).transpose()?.unwrap_or_default();
        if self.fingerprint.as_deref().map(check_fingerprint).transpose()?.is_some()
            && statuses.is_empty()
        {
            // The last attempt of a job that is done did not fail, so done jobs need not be read.
            statuses.extend(Status::ALL.into_iter().filter(|status| *status != Status::Done));
        }
        let door = self.door.as_deref().map(read_door).transpose()?;
        let text = self.text.as_deref().map(read_text).transpose()?;
        let field = self.field.as_deref().map(read_field).transpose()?;
        let looks = text.is_some() || field.is_some();
        let payload = looks.then(|| Arc::new(Wanted { text, field }));
        let tag = self.tag.clone().map(Bytes::from);
        let end = api.engine().jobs().end_of_ids();
        let (mut from, mut until) = (JobId(0), end);
        if let Some(time) = &self.created_from {
            from = api.engine().jobs().first_created(instant::read("created_from", time)?)?;
        }
        if let Some(time) = &self.created_before {
            until = api
                .engine()
                .jobs()
                .first_created(instant::read("created_before", time)?)?
                .min(until);
        }
        if coded.is_some() && queue.is_some() && coded != queue {
            // No job is in two queues.
            until = from;
        }
        let queue = queue.or(coded);
        for key in self.keys(queue.as_deref())? {
            let found = api.engine().jobs().find_by_key(&key);
            let found =
                found.without_waiting("a bound for a walk, whose pages have their own gates");
            let id = found.unwrap_or(JobId(0));
            from = from.max(id);
            until = until.min(JobId(id.0 + 1));
        }
        let ids = self.ids.as_deref().map(read_ids).transpose()?;
        let is_of_any_time = from == JobId(0) && until == end;
        // Where the queue is given too, the job was found by its key already.
        let unique = self.unique_key.clone().filter(|_| queue.is_none());
        let deleted_by = self.deleted_by.as_deref().map(read_requests).transpose()?;
        let deleted_by = deleted_by.unwrap_or_default();
        let scan = ScanFilter { statuses, door, queue, deleted_by };
        let fingerprint = self.fingerprint.clone();
        let batch = self.batch.as_deref().map(read_batch).transpose()?;
        let filter = Filter {
            scan,
            batch,
            tag,
            unique,
            payload,
            ids,
            fingerprint,
            from,
            until,
            is_of_any_time,
        };
        Ok(filter)
    }

    /// The conditions besides the queue, for people. What is searched for in payloads is left out.
    pub fn described(&self) -> String {
        let JobFilter { status, door, created_from, created_before, .. } = self;
        let said = [
            ("ids", &self.ids),
            ("batch", &self.batch),
            ("status", status),
            ("door", door),
            ("created_from", created_from),
            ("created_before", created_before),
            ("unique_key", &self.unique_key),
            ("idempotency_key", &self.idempotency_key),
            ("tag", &self.tag),
            ("fingerprint", &self.fingerprint),
            ("deleted_by", &self.deleted_by),
        ];
        let said = said.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let text = self.text.as_ref().map(|_| "some text".to_owned());
        let field = self.field.as_ref().map(|_| "some field".to_owned());
        let said = said.map(|(name, value)| format!("{name} {value}")).chain(text).chain(field);
        said.collect::<Vec<_>>().join(", ")
    }

    fn keys(&self, queue: Option<&[u8]>) -> Answered<Vec<Key>> {
        let mut wanted = Vec::new();
        if let Some(key) = &self.unique_key {
            keys::check("unique_key", key.chars().count())?;
            // A unique key is unique within its queue only: without a queue, the jobs are searched
            // for it.
            wanted.extend(queue.map(|queue| keys::unique(queue, key.as_bytes())));
        }
        if let Some(key) = &self.idempotency_key {
            keys::check("idempotency_key", key.chars().count())?;
            let [key, _] = keys::once(key.as_bytes(), b"");
            wanted.push(key);
        }
        Ok(wanted)
    }
}

fn read_statuses(words: &str) -> Answered<Vec<Status>> {
    let read = |word| Status::ALL.into_iter().find(|status| status_word(*status) == word);
    words.split(',').map(read).collect::<Option<_>>().ok_or_else(|| {
        let detail = "status is scheduled, ready, leased, parked, blocked, done or dead, or some of \
                      them parted by commas";
        Problem::out_of_range(detail)
    })
}

fn read_ids(text: &str) -> Answered<BTreeSet<JobId>> {
    let is_few = text.split(',').count() <= IDS_MAX;
    let ids = text.split(',').take(IDS_MAX).map(|id| digits(id).map(JobId));
    ids.collect::<Option<_>>().filter(|_| is_few).ok_or_else(|| {
        Problem::out_of_range(format!("ids is at most {IDS_MAX} numbers of jobs, parted by commas"))
    })
}

fn read_batch(text: &str) -> Answered<JobId> {
    let id = digits(text).filter(|id| *id > 0).map(JobId);
    id.ok_or_else(|| Problem::out_of_range("batch is the number of a batch"))
}

fn read_requests(text: &str) -> Answered<Vec<u64>> {
    let is_few = text.split(',').count() <= REQUESTS_MAX;
    let numbers = text.split(',').take(REQUESTS_MAX).map(digits);
    numbers.collect::<Option<Vec<u64>>>().filter(|_| is_few).ok_or_else(|| {
        let detail =
            format!("deleted_by is at most {REQUESTS_MAX} numbers of requests, parted by commas");
        Problem::out_of_range(detail)
    })
}

fn read_door(word: &str) -> Answered<Origin> {
    Origin::ALL.into_iter().find(|door| door_word(*door) == word).ok_or_else(|| {
        let detail = "door is api, workq, gearman, gearman_draft, lightjq or jobq";
        Problem::out_of_range(detail)
    })
}

fn read_text(text: &str) -> Answered<Finder<'static>> {
    if (1..=TEXT_CHARS_MAX).contains(&text.chars().count()) {
        return Ok(Finder::new(text.as_bytes()).into_owned());
    }
    Err(Problem::out_of_range("text has 1 to 1024 characters"))
}

fn read_field(text: &str) -> Answered<MatchPath> {
    let (pointer, value) = match text.split_once('=') {
        Some((pointer, value)) => (pointer, Some(value)),
        None => (text, None),
    };
    if pointer.is_empty() {
        return Err(Problem::out_of_range("field begins with a JSON Pointer, such as /customer"));
    }
    let test = value.map_or(Test::Exists, |value| Test::In(scalars(value)));
    let condition = Condition { pointer: pointer.to_owned(), test };
    let matcher = Matcher { conditions: vec![condition], ..Matcher::default() };
    MatchPath::new(&[matcher]).map_err(|error| Problem::out_of_range(format!("field: {error}")))
}

/// The JSON values that this text can stand for.
fn scalars(value: &str) -> Vec<Scalar> {
    let read = match serde_json::from_str(value) {
        Ok(Value::Null) => Some(Scalar::Null),
        Ok(Value::Bool(is_so)) => Some(Scalar::Bool(is_so)),
        Ok(Value::Number(number)) => number
            .as_i64()
            .map(Scalar::Int)
            .or_else(|| number.as_u64().map(Scalar::Uint))
            .or_else(|| number.as_f64().map(Scalar::Float)),
        Ok(Value::String(text)) => Some(Scalar::Text(text)),
        Ok(Value::Array(_) | Value::Object(_)) | Err(_) => None,
    };
    [Scalar::Text(value.to_owned())].into_iter().chain(read).collect()
}

fn check_fingerprint(text: &str) -> Answered<()> {
    if (1..=FINGERPRINT_CHARS_MAX).contains(&text.chars().count()) {
        return Ok(());
    }
    Err(Problem::out_of_range("fingerprint has 1 to 160 characters"))
}

impl Filter {
    /// Only jobs with numbers below this.
    pub fn end_at(&mut self, until: JobId) {
        self.until = self.until.min(until);
    }

    /// Whose jobs these are, for the check of access.
    pub fn target(&self) -> Target<'_, '_> {
        self.scan.queue.as_deref().map_or(Target::AllQueues, Target::Queue)
    }

    /// Whether the result would reveal something about payloads.
    pub fn looks_into_payloads(&self) -> bool {
        self.payload.is_some()
    }

    /// Whether the filter is by queue and status only, so that the counts of queues answer it.
    pub fn is_of_queue_and_status(&self) -> bool {
        self.is_by_index()
            && self.scan.deleted_by.is_empty()
            && self.ids.is_none()
            && self.batch.is_none()
            && self.scan.door.is_none()
            && self.is_of_any_time
    }

    /// Whether all unfinished jobs that the walk finds are meant, without a further check.
    pub fn is_by_index(&self) -> bool {
        self.tag.is_none()
            && self.unique.is_none()
            && self.payload.is_none()
            && self.fingerprint.is_none()
    }

    /// Whether a finished job matches, as far as only its image can tell.
    pub fn takes(&self, image: &JobImage) -> bool {
        let ScanFilter { statuses, door, queue, deleted_by } = &self.scan;
        let deletion = image.options().deletion.as_deref();
        let deleted = deleted_by.is_empty()
            || deletion.is_some_and(|deletion| deleted_by.contains(&deletion.request));
        let tag = self.tag.as_ref().is_none_or(|tag| image.options().tags.contains(tag));
        let holds_it = || keys::unique_of(image) == self.unique && !image.status().is_finished();
        let unique = self.unique.is_none() || holds_it();
        let fingerprint = self.fingerprint.as_ref();
        let says_it = || fingerprint_of(image).as_ref() == fingerprint;
        let fingerprint = fingerprint.is_none() || says_it();
        let batch = self.batch.is_none_or(|batch| image.options().batch == batch.0);
        tag && unique
            && batch
            && fingerprint
            && deleted
            && queue.as_ref().is_none_or(|queue| image.queue == queue)
            && door.is_none_or(|door| image.origin() == door)
            && (statuses.is_empty() || statuses.contains(&image.status()))
    }
}
