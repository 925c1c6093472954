//! The walk that finds the jobs a filter means.
//!
//! Status, door, queue, time and keys are found by indices. Tags, texts and fields are looked for in
//! the jobs that pass the rest, outside the engine's lock and in bounded portions: a walk that has
//! seen as much as one request may says so, and goes on from its cursor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use spindle_core::batch::BATCH_JOBS_MAX;
use spindle_core::{JobId, JobImage};
use spindle_engine::{Engine, FetchError, Gated, JobRef, ScannedJob};
use spindle_http::{Answered, Code, Problem, slice_turn};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use crate::api::Api;
use crate::filter::{Filter, Wanted};

/// Stretches of one request: each looks at up to 512 jobs.
const STRETCHES_MAX: usize = 200;
/// A stretch reads no more finished jobs from the log after this time.
const SLICE_TIME_MAX: Duration = Duration::from_micros(500);
/// Finished jobs read from the log for one request.
const READS_MAX: usize = 2_000;
/// Payload bytes looked through for one request.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Payloads looked through for one request.
const TEXT_READS_MAX: usize = 5_000;

/// Which way a list goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The oldest first.
    #[default]
    Asc,
    /// The newest first.
    Desc,
}

/// A walk over the jobs a filter means, in the order of their numbers or against it.
pub(crate) struct Walk {
    filter: Filter,
    order: Order,
    /// The job number to go on from, or, in descending order, to go on below. `None` at the end.
    at: Option<JobId>,
    /// What an answer with the jobs found so far has to wait for.
    read: Gated<()>,
    stretches: usize,
    reads: usize,
    text_reads: usize,
    text_bytes: usize,
}

impl Walk {
    /// From the beginning, or from where a cursor says.
    pub fn new(filter: Filter, order: Order, cursor: Option<JobId>) -> Walk {
        let begin = match order {
            Order::Asc => cursor.map_or(filter.from, |cursor| cursor.max(filter.from)),
            Order::Desc => cursor.map_or(filter.until, |cursor| cursor.min(filter.until)),
        };
        let mut walk = Walk {
            filter,
            order,
            at: None,
            read: Gated::open(()),
            stretches: 0,
            reads: 0,
            text_reads: 0,
            text_bytes: 0,
        };
        walk.go_on(Some(begin));
        walk
    }

    fn go_on(&mut self, at: Option<JobId>) {
        let Filter { from, until, .. } = &self.filter;
        self.at = at.filter(|at| match self.order {
            Order::Asc => at < until,
            Order::Desc => at > from,
        });
    }

    /// The next request begins with this job.
    pub fn leave(&mut self, first: JobId) {
        self.at = Some(match self.order {
            Order::Asc => first,
            Order::Desc => JobId(first.0 + 1),
        });
    }

    /// Where the next request goes on; none at the end.
    pub fn next(&self) -> Option<JobId> {
        self.at
    }

    /// An answer made of what was found.
    pub fn answer<T>(&self, value: T) -> Gated<T> {
        self.read.map(|()| value)
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
        let Some(at) = self.at else { return Ok(Vec::new()) };
        let turn = slice_turn().await;
        self.stretches += 1;
        let engine = api.engine();
        if let Some(ids) = self.named_ids(engine) {
            let images = self.named(engine, &ids, at, limit)?;
            drop(turn);
            return match self.filter.payload.clone() {
                Some(wanted) => self.with_payload(engine, wanted, images).await,
                None => Ok(images),
            };
        }
        // Further conditions drop many of the jobs found, so more are asked for.
        let wanted = if self.filter.is_by_index() { limit } else { usize::MAX };
        let page = match self.order {
            Order::Asc => engine.jobs().scan(at, &self.filter.scan, wanted),
            Order::Desc => engine.jobs().scan_back(at, &self.filter.scan, wanted),
        };
        let page = self.read.absorb(page);
        self.go_on(page.next);
        let mut images = Vec::new();
        let begun = Instant::now();
        for scanned in page.found {
            let id = scanned.id();
            if !(self.filter.from..self.filter.until).contains(&id) {
                break;
            }
            if self.reads >= READS_MAX {
                self.leave(id);
                break;
            }
            let image = match scanned {
                ScannedJob::Live(image) => Some(*image),
                // Its image comes from the log, maybe from the disk.
                ScannedJob::Finished(id) => {
                    if self.reads > 0 && begun.elapsed() > SLICE_TIME_MAX {
                        self.leave(id);
                        break;
                    }
                    self.reads += 1;
                    finished(engine, id)?
                }
            };
            images.extend(image.filter(|image| self.filter.takes(image)));
        }
        drop(turn);
        if let Some(wanted) = self.filter.payload.clone() {
            images = self.with_payload(engine, wanted, images).await?;
        }
        if let Some(first_left) = images.get(limit) {
            self.leave(JobId(first_left.id));
            images.truncate(limit);
        }
        Ok(images)
    }

    /// The jobs that are named, by their numbers or by their batch; none: all are meant.
    fn named_ids(&mut self, engine: &Engine) -> Option<BTreeSet<JobId>> {
        if let Some(batch) = self.filter.batch
            && self.filter.ids.is_none()
        {
            let max = BATCH_JOBS_MAX as usize;
            let members = self.read.absorb(engine.batches().members(batch, JobId(0), max));
            self.filter.ids = Some(members.into_iter().collect());
        }
        self.filter.ids.clone()
    }

    /// The next of the jobs that are named, at most `limit`.
    fn named(
        &mut self,
        engine: &Engine,
        ids: &BTreeSet<JobId>,
        at: JobId,
        limit: usize,
    ) -> Answered<Vec<JobImage>> {
        let (from, until) = (self.filter.from, self.filter.until);
        let mut left: Vec<JobId> = match self.order {
            Order::Asc => ids.range(at..until.max(at)).copied().collect(),
            Order::Desc => ids.range(from..at.max(from)).rev().copied().collect(),
        };
        let next = left.get(limit).copied();
        left.truncate(limit);
        match next {
            Some(next) => self.leave(next),
            None => self.go_on(None),
        }
        let mut images = Vec::new();
        for id in left {
            let image = match engine.jobs().get(JobRef::Id(id)) {
                Ok(image) => self.read.absorb(image),
                Err(FetchError::Moved) => None,
                Err(error) => return Err(error.into()),
            };
            images.extend(image.filter(|image| self.filter.takes(image)));
        }
        Ok(images)
    }

    /// The jobs whose payload has what is wanted. Payloads are read on a separate thread: the log
    /// may have to come from the disk, and no other request must wait for that.
    async fn with_payload(
        &mut self,
        engine: &Engine,
        wanted: Arc<Wanted>,
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
                // At least one payload is always searched; otherwise a large one would stop every
                // walk.
                if reads == left || (len > bytes_left && reads > 0) {
                    cut = Some(JobId(image.id));
                    break;
                }
                reads += 1;
                bytes_left = bytes_left.saturating_sub(len);
                if has(&engine, &image, &wanted) {
                    with.push(image);
                }
            }
            drop(engine.turn());
            (with, reads, before - bytes_left, cut)
        });
        let (with, reads, bytes, cut) = task.await.map_err(|_| {
            Problem::new(Code::Unreadable, "looking through payloads failed; see the server's log")
        })?;
        self.text_reads += reads;
        self.text_bytes += bytes;
        if let Some(first_left) = cut {
            self.leave(first_left);
            // What is left of the budget is too little for the next one.
            self.text_bytes = TEXT_BYTES_MAX;
        }
        Ok(with)
    }
}

/// Whether a payload matches; one that is damaged, or was deleted meanwhile, does not.
fn has(engine: &Engine, image: &JobImage, wanted: &Wanted) -> bool {
    let Some(place) = &image.payload else { return false };
    let payload = engine.jobs().payload(JobId(image.id), place);
    payload.is_ok_and(|bytes| wanted.is_in(&bytes, place.kind))
}

fn finished(engine: &Engine, id: JobId) -> Answered<Option<JobImage>> {
    match engine.jobs().get(JobRef::Id(id)) {
        Ok(image) => Ok(image.without_waiting("the page it is on waits for it")),
        Err(FetchError::Moved) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
