//! Which jobs a list or a bulk action is about, and the walk that finds them.
//!
//! Status, door, queue, time and keys are found by indices. Tags and texts are looked for in the
//! jobs that pass the rest, outside the engine's lock and in bounded portions: a walk that has seen
//! as much as one request may says so, and goes on from its cursor.

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::Deserialize;
use spindle_core::job::{Key, Origin};
use spindle_core::state::Sought;
use spindle_core::{JobId, JobImage, Status};
use spindle_engine::{Engine, FetchError, Gate, Sighted, Which};
use spindle_http::{Answered, Code, Problem};
use tokio::task::{spawn_blocking, yield_now};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::view::{door_word, status_word};
use crate::{instant, keys, naming};

/// Stretches of one request: each looks at up to 512 jobs.
const STRETCHES_MAX: usize = 200;
/// Finished jobs read from the log for one request.
const READS_MAX: usize = 2_000;
/// Payload bytes looked through for one request.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Payloads looked through for one request.
const TEXT_READS_MAX: usize = 5_000;
const TEXT_MAX: usize = 1024;

/// Which jobs are meant: those that are all of what is said. All fields may be left out.
#[derive(Clone, Default, PartialEq, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobFilter {
    /// Only those of this queue.
    pub queue: Option<String>,
    /// Only those of this queue, its name in base64.
    pub queue_base64: Option<String>,
    /// Only those of these statuses, parted by commas: `scheduled`, `ready`, `leased`, `parked`,
    /// `done`, `dead`.
    pub status: Option<String>,
    /// Only those that came through this door: `api`, `workq`, `gearman`, `gearman_draft`,
    /// `lightjq`, `jobq`.
    pub door: Option<String>,
    /// Only those submitted at this time (RFC 3339) or later.
    pub created_from: Option<String>,
    /// Only those submitted before this time (RFC 3339).
    pub created_before: Option<String>,
    /// Only the unfinished job of `queue` that has this unique key.
    pub unique_key: Option<String>,
    /// Only the job that was submitted with this idempotency key.
    pub idempotency_key: Option<String>,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only those with this text in their payload, byte for byte.
    pub text: Option<String>,
}

/// A filter in the engine's words.
pub(crate) struct Filter {
    sought: Sought,
    tag: Option<Bytes>,
    text: Option<Finder<'static>>,
    from: JobId,
    until: JobId,
}

impl JobFilter {
    /// Reads it. Jobs submitted after this are not meant.
    pub fn read(&self, api: &Api) -> Answered<Filter> {
        let queue = match (&self.queue, &self.queue_base64) {
            (None, None) => None,
            (name, base64) => Some(naming::queue(name.as_deref(), base64.as_deref())?),
        };
        let statuses = self.status.as_deref().map(read_statuses).transpose()?.unwrap_or_default();
        let door = self.door.as_deref().map(read_door).transpose()?;
        let text = self.text.as_deref().map(read_text).transpose()?;
        let tag = self.tag.clone().map(Bytes::from);
        let (mut from, mut until) = (JobId(0), api.engine().end_of_ids());
        if let Some(time) = &self.created_from {
            from = api.engine().first_created(instant::read("created_from", time)?)?;
        }
        if let Some(time) = &self.created_before {
            until = api.engine().first_created(instant::read("created_before", time)?)?.min(until);
        }
        for key in self.keys(queue.as_deref())? {
            let found = api.engine().look(|state| state.job_by_key(&key).map(|job| job.id()));
            let id = found.unwrap_or(JobId(0));
            from = from.max(id);
            until = until.min(JobId(id.0 + 1));
        }
        Ok(Filter { sought: Sought { statuses, door, queue }, tag, text, from, until })
    }

    fn keys(&self, queue: Option<&[u8]>) -> Answered<Vec<Key>> {
        let mut wanted = Vec::new();
        if let Some(key) = &self.unique_key {
            keys::check("unique_key", key.as_bytes())?;
            let Some(queue) = queue else {
                let detail = "unique_key goes with queue: a key counts in its queue";
                return Err(Problem::new(Code::BadField, detail));
            };
            wanted.push(keys::unique(queue, key.as_bytes()));
        }
        if let Some(key) = &self.idempotency_key {
            keys::check("idempotency_key", key.as_bytes())?;
            let [key, _] = keys::once(key.as_bytes(), b"");
            wanted.push(key);
        }
        Ok(wanted)
    }
}

fn read_statuses(words: &str) -> Answered<Vec<Status>> {
    let read = |word| Status::ALL.into_iter().find(|status| status_word(*status) == word);
    words.split(',').map(read).collect::<Option<_>>().ok_or_else(|| {
        let detail = "status is scheduled, ready, leased, parked, done or dead, or some of them \
                      parted by commas";
        Problem::new(Code::OutOfRange, detail)
    })
}

fn read_door(word: &str) -> Answered<Origin> {
    const DOORS: [Origin; 6] = [
        Origin::Api,
        Origin::Workq,
        Origin::Gearman,
        Origin::GearmanDraft,
        Origin::Lightjq,
        Origin::Jobq,
    ];
    DOORS.into_iter().find(|door| door_word(*door) == word).ok_or_else(|| {
        let detail = "door is api, workq, gearman, gearman_draft, lightjq or jobq";
        Problem::new(Code::OutOfRange, detail)
    })
}

fn read_text(text: &str) -> Answered<Finder<'static>> {
    if (1..=TEXT_MAX).contains(&text.len()) {
        return Ok(Finder::new(text.as_bytes()).into_owned());
    }
    Err(Problem::new(Code::OutOfRange, "text has 1 to 1024 bytes"))
}

impl Filter {
    /// Only jobs with numbers below this.
    pub fn end_at(&mut self, until: JobId) {
        self.until = self.until.min(until);
    }

    /// The walk itself finds nothing that is not meant, as far as unfinished jobs go.
    fn is_by_index(&self) -> bool {
        self.tag.is_none() && self.text.is_none()
    }

    /// As far as only the image of a finished job can say.
    fn takes(&self, image: &JobImage) -> bool {
        let Sought { statuses, door, queue } = &self.sought;
        let tag = self.tag.as_ref().is_none_or(|tag| image.rare().tags.contains(tag));
        tag && queue.as_ref().is_none_or(|queue| image.queue == queue)
            && door.is_none_or(|door| image.origin() == door)
            && (statuses.is_empty() || statuses.contains(&image.status()))
    }
}

/// A walk over the jobs a filter means, in the order of their numbers.
pub(crate) struct Walk {
    filter: Filter,
    from: Option<JobId>,
    gate: Gate,
    stretches: usize,
    reads: usize,
    text_reads: usize,
    text_bytes: usize,
}

impl Walk {
    /// From the beginning, or from where a cursor says.
    pub fn new(filter: Filter, cursor: Option<JobId>) -> Walk {
        let from = Some(cursor.map_or(filter.from, |cursor| cursor.max(filter.from)));
        let from = from.filter(|from| *from < filter.until);
        Walk {
            filter,
            from,
            gate: Gate::OPEN,
            stretches: 0,
            reads: 0,
            text_reads: 0,
            text_bytes: 0,
        }
    }

    /// Where the next request goes on; none at the end.
    pub fn next(&self) -> Option<JobId> {
        self.from
    }

    /// What must be durable before what was found is told.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// All jobs it finds have numbers below this.
    pub fn until(&self) -> JobId {
        self.filter.until
    }

    /// It has seen as much as one request may.
    pub fn is_spent(&self) -> bool {
        self.stretches >= STRETCHES_MAX
            || self.reads >= READS_MAX
            || self.text_reads >= TEXT_READS_MAX
            || self.text_bytes >= TEXT_BYTES_MAX
    }

    /// The jobs of the next stretch, at most `limit`; there may be none on it.
    pub async fn stretch(&mut self, api: &Api, limit: usize) -> Answered<Vec<JobImage>> {
        let Some(from) = self.from else { return Ok(Vec::new()) };
        if self.stretches > 0 {
            yield_now().await;
        }
        self.stretches += 1;
        let engine = api.engine();
        // What is looked for among them makes fewer of many.
        let wanted = if self.filter.is_by_index() { limit } else { usize::MAX };
        let sightings = engine.seek(from, &self.filter.sought, wanted);
        self.gate = self.gate.max(sightings.gate);
        self.from = sightings.next.filter(|next| *next < self.filter.until);
        let mut images = Vec::new();
        for sighted in sightings.found {
            let id = sighted.id();
            if id >= self.filter.until {
                break;
            }
            if self.reads >= READS_MAX {
                self.from = Some(id);
                break;
            }
            let image = match sighted {
                Sighted::Live(image) => Some(*image),
                Sighted::Finished(id) => {
                    self.reads += 1;
                    finished(engine, id)?
                }
            };
            images.extend(image.filter(|image| self.filter.takes(image)));
        }
        if let Some(text) = self.filter.text.clone() {
            images = self.with_text(engine, text, images).await?;
        }
        if let Some(first_left) = images.get(limit) {
            self.from = Some(JobId(first_left.id));
            images.truncate(limit);
        }
        Ok(images)
    }

    /// Those with a text in their payload. Payloads are read on a thread of their own: the log may
    /// have to come from the disk, and nobody else shall wait for that.
    async fn with_text(
        &mut self,
        engine: &Engine,
        text: Finder<'static>,
        images: Vec<JobImage>,
    ) -> Answered<Vec<JobImage>> {
        let left = TEXT_READS_MAX - self.text_reads;
        let (engine, mut bytes_left) = (engine.clone(), TEXT_BYTES_MAX - self.text_bytes);
        let task = spawn_blocking(move || {
            let before = bytes_left;
            let (mut reads, mut cut) = (0, None);
            let mut with = Vec::new();
            for image in images {
                let len = image.payload.as_ref().map_or(0, |payload| payload.len as usize);
                // One payload is always looked through: else a large one would end every walk.
                if reads == left || (len > bytes_left && reads > 0) {
                    cut = Some(JobId(image.id));
                    break;
                }
                reads += 1;
                bytes_left = bytes_left.saturating_sub(len);
                if has_text(&engine, &image, &text) {
                    with.push(image);
                }
            }
            engine.nudge();
            (with, reads, before - bytes_left, cut)
        });
        let (with, reads, bytes, cut) = task.await.map_err(|_| {
            Problem::new(Code::Unreadable, "looking through payloads failed; see the server's log")
        })?;
        self.text_reads += reads;
        self.text_bytes += bytes;
        if cut.is_some() {
            self.from = cut;
            // What is left of the budget is too little for the next one.
            self.text_bytes = TEXT_BYTES_MAX;
        }
        Ok(with)
    }
}

/// A payload that is damaged, or went meanwhile, has no text.
fn has_text(engine: &Engine, image: &JobImage, text: &Finder<'_>) -> bool {
    let payload =
        image.payload.as_ref().and_then(|place| engine.payload(JobId(image.id), place).ok());
    payload.is_some_and(|bytes| text.find(&bytes).is_some())
}

fn finished(engine: &Engine, id: JobId) -> Answered<Option<JobImage>> {
    match engine.job(Which::Id(id)) {
        Ok((image, _)) => Ok(image),
        Err(FetchError::Moved) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
