//! A job as it travels from one server to another: a line of `spindle export`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_core::command::Submit;
use spindle_core::job::{Key, Origin, Scope, TraceParent};
use spindle_core::{BytesRef, JobId, JobImage, Status, Type};
use spindle_engine::{NewJob, Payload};
use spindle_http::{Answered, Code, Problem, door_word};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::linking::Linked;
use crate::submit::OnDeadWord;
use crate::submit::fair_key;
use crate::taking::Wanted;
use crate::typed::{self, Kind, present};
use crate::view::{self, Bodies};
use crate::{instant, keys, naming, object};

/// A job with all that another server needs to take it over: its payload, the settings it was given
/// itself, and the names by which clients of every door know it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PortableJob)]
pub(crate) struct Portable {
    /// Says what the line is.
    #[serde(default)]
    r#type: Word,
    /// Its number at the server it comes from.
    pub id: u64,
    /// When it was submitted there.
    created_at: String,
    /// The door it came through: its defaults are those of that door.
    door: String,
    /// Its status there. A leased job is ready again where it is imported; done and dead ones are
    /// not imported.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    #[serde(default)]
    priority: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_at: Option<String>,
    /// When it goes, whatever its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttr_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fails_max: Option<u32>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional"
    )]
    backoff: Option<Backoff>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_read_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drop_result: bool,
    /// Words to search by, in base64: those of other doors may be any bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags_base64: Vec<String>,
    /// The jobs that it still waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    after: Vec<PortableAfter>,
    /// What happens when one of them dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_dead: Option<OnDeadWord>,
    /// Whose share of a fair queue it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fair_key: Option<String>,
    /// The UUID it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// Its other names: unique keys, idempotency keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<PortableKey>,
    /// The state that users set, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    state_base64: Option<String>,
    /// Its place in a distributed trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "traceparent")]
    traceparent: Option<String>,
    payload_type: Kind,
    /// The payload, if it is JSON on one line.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64, if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "base64")]
    payload_base64: Option<String>,
    /// The payload failed its checksum and is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    payload_damaged: bool,
    /// Leases it had. They are not counted where it is imported.
    #[serde(default)]
    attempts: u32,
    /// Failures it had. They are not counted where it is imported.
    #[serde(default)]
    fails: u32,
    /// When it was done or dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    /// How its last attempt ended, as the job itself shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// What a line of an export is.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Word {
    #[default]
    Job,
}

/// A job that another one waits for, as an export names it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortableAfter {
    /// Its number at the server it comes from.
    id: u64,
    /// When it was submitted there. Not there if it is dead, or a batch.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    created_at: String,
}

impl PortableAfter {
    fn of((id, created_ms): (JobId, Option<u64>)) -> PortableAfter {
        let created_at = created_ms.map(instant::shown).unwrap_or_default();
        PortableAfter { id: id.0, created_at }
    }

    fn name(&self) -> String {
        keys::reference_name(self.id, &self.created_at)
    }
}

/// A name of a job.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortableKey {
    /// Whose name it is.
    door: String,
    /// The name as that door keeps it.
    #[schema(format = "base64")]
    name_base64: String,
    /// It holds until the job is done or dead, not as long as the job is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    while_unfinished: bool,
}

/// What a line comes to where it is imported.
pub(crate) enum Import {
    /// A job to be taken.
    Job(Box<Wanted>),
    /// One that needs nothing done, and why.
    Skipped(&'static str),
}

impl Portable {
    /// A job with its bytes. `after`: the jobs that it still waits for, and when each came.
    pub fn new(image: &JobImage, bodies: &Bodies, after: Vec<(JobId, Option<u64>)>) -> Portable {
        let options = image.options();
        let (queue, queue_base64) = naming::text_or_base64(&image.queue);
        let time = |ms: Option<u64>| ms.map(instant::shown);
        let payload_type = Kind::of(image.payload.as_ref().map_or(0, |payload| payload.kind));
        let bytes = bodies.payload.clone().unwrap_or_default();
        // A line of an export must not contain line breaks.
        let is_one_line = memchr::memchr2(b'\n', b'\r', &bytes).is_none();
        let (payload, payload_base64) = match typed::shown(&bytes, payload_type) {
            // JSON between spaces would lose them.
            (Some(json), _) if is_one_line && json.get().len() == bytes.len() => (Some(json), None),
            _ if bodies.payload_damaged => (None, None),
            _ => (None, Some(naming::to_base64(&bytes))),
        };
        let result = image.outcome.as_ref().map(|outcome| {
            let shown = view::result(image, outcome, bodies.result.as_ref());
            to_raw_value(&shown.in_base64(bodies.result.as_ref()))
                .expect("texts and numbers are JSON")
        });
        Portable {
            r#type: Word::Job,
            id: image.id,
            created_at: instant::shown(image.created_ms),
            door: door_word(image.origin()).to_owned(),
            status: view::status_word(image.status()).to_owned(),
            queue,
            queue_base64,
            priority: image.priority,
            run_at: time(options.run_at_ms),
            expires_at: time(image.expires_ms()),
            ttr_ms: image.ttr_ms,
            attempts_max: options.attempts_max,
            fails_max: options.fails_max,
            backoff: options.backoff.map(Backoff::from),
            keep_ms: options.keep_ms,
            keep_read_ms: options.keep_read_ms,
            drop_result: options.drop_result,
            tags_base64: options.tags.iter().map(|tag| naming::to_base64(tag)).collect(),
            after: after.into_iter().map(PortableAfter::of).collect(),
            on_dead: options
                .after
                .as_deref()
                .filter(|after| !after.open.is_empty())
                .map(|after| after.on_dead().into()),
            fair_key: options.fair_key.as_ref().map(|key| view::text(key)),
            uuid: image.uuid().map(|uuid| Uuid::from_bytes(uuid).to_string()),
            keys: options.keys.iter().map(PortableKey::of).collect(),
            state_base64: options.state.as_ref().map(|state| naming::to_base64(state)),
            traceparent: options.trace.as_deref().map(ToString::to_string),
            payload_type,
            payload,
            payload_base64,
            payload_damaged: bodies.payload_damaged,
            attempts: image.attempts,
            fails: image.fails,
            finished_at: time(image.finished_ms),
            result,
        }
    }

    /// What to do with it at a server where it is now.
    pub fn read(self, now_ms: u64) -> Answered<Import> {
        if self.payload_damaged {
            let detail = "its payload was lost at the server it comes from";
            return Err(Problem::new(Code::Unreadable, detail));
        }
        let status = Status::ALL.into_iter().find(|it| view::status_word(*it) == self.status);
        let status = status.ok_or_else(|| Problem::bad_field("status is that of a job"))?;
        if status.is_finished() {
            return Ok(Import::Skipped("finished"));
        }
        let run_at_ms = self.run_at.as_deref().map(|text| instant::read("run_at", text));
        let run_at_ms = run_at_ms.transpose()?.filter(|ms| *ms > now_ms);
        let expires_ms = self.expires_at.as_deref().map(|text| instant::read("expires_at", text));
        let lives_ms =
            expires_ms.transpose()?.map(|ms| ms.saturating_sub(run_at_ms.unwrap_or(now_ms)));
        if lives_ms == Some(0) {
            return Ok(Import::Skipped("expired"));
        }
        // Neither has a name by which it could be found.
        if let Some(other) = self.after.iter().find(|other| other.created_at.is_empty()) {
            let detail =
                format!("it waits for {}, a batch or a dead job, which no import makes", other.id);
            return Err(Problem::new(Code::NoBlocker, detail));
        }
        let queue = naming::queue(self.queue.as_deref(), self.queue_base64.as_deref())?;
        let typed = self.payload.is_none().then_some(self.payload_type);
        let base64 = self.payload_base64.as_deref();
        let (payload, kind) = typed::read("payload", self.payload, base64, typed)?;
        let once = keys::reference(self.id, &self.created_at, &payload);
        let origin = door(&self.door)?;
        let mut submit = Submit::new(JobId(0), queue, origin, BytesRef::empty(Type::Bytes));
        submit.priority = self.priority;
        submit.run_at_ms = run_at_ms;
        submit.ttl_ms = lives_ms;
        submit.ttr_ms = self.ttr_ms;
        submit.attempts_max = self.attempts_max;
        submit.fails_max = self.fails_max;
        submit.backoff = self.backoff.map(Backoff::read).transpose()?;
        submit.keep_ms = self.keep_ms;
        submit.keep_read_ms = self.keep_read_ms;
        submit.drop_result = self.drop_result;
        submit.parked = status == Status::Parked;
        let bytes = |name: &str, texts: &[String]| -> Answered<Vec<Bytes>> {
            texts.iter().map(|text| naming::from_base64(name, text)).collect()
        };
        submit.tags = bytes("tags_base64", &self.tags_base64)?;
        submit.fair_key = self.fair_key.map(fair_key).transpose()?;
        submit.state =
            self.state_base64.map(|text| naming::from_base64("state_base64", &text)).transpose()?;
        submit.uuid = self
            .uuid
            .map(|text| Uuid::try_parse(&text).map(Uuid::into_bytes))
            .transpose()
            .map_err(|error| Problem::bad_field(format!("uuid: {error}")))?;
        submit.trace =
            self.traceparent.and_then(|text| TraceParent::parse(text.as_bytes())).map(Box::new);
        submit.keys = self.keys.iter().map(PortableKey::read).collect::<Answered<_>>()?;
        // A job that was itself imported at that server still has the reference from then.
        submit.keys.retain(|key| !keys::is_reference(key));
        submit.on_dead = self.on_dead.unwrap_or_default().into();
        let after = self.after.iter().map(PortableAfter::name).collect();
        let name = Some(keys::reference_name(self.id, &self.created_at));
        let linked = Linked { name, after };
        let job = NewJob { submit, payload: Payload::new(payload, kind) };
        Ok(Import::Job(Box::new(Wanted::imported(job, once, linked))))
    }
}

impl PortableKey {
    fn of(key: &Key) -> PortableKey {
        PortableKey {
            door: door_word(key.namespace()).to_owned(),
            name_base64: naming::to_base64(&key.name),
            while_unfinished: key.scope() == Scope::WhileUnfinished,
        }
    }

    fn read(&self) -> Answered<Key> {
        let scope = if self.while_unfinished { Scope::WhileUnfinished } else { Scope::WhileKept };
        Ok(Key {
            namespace: door(&self.door)? as i32,
            name: naming::from_base64("name_base64", &self.name_base64)?,
            scope: scope as i32,
        })
    }
}

fn door(word: &str) -> Answered<Origin> {
    let found = Origin::ALL.into_iter().find(|door| door_word(*door) == word);
    found.ok_or_else(|| Problem::bad_field(format!("`{word}` is no door")))
}
