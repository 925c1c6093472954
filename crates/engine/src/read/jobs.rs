//! Looking things up: jobs, queues, and the bytes they refer to.

use bytes::{Bytes, BytesMut};
use spindle_core::state::QueueListing;
use spindle_core::{BytesRef, Command, Event, Found, JobId, JobImage, Place, Status};
use spindle_log::{Position, ReadError};

use crate::answer::LeasedJob;
use crate::commit::record::{ENTRY_HEADER_BYTES, read_entry_header};
use crate::door::Gate;
use crate::engine::Engine;
use crate::inner::Inner;

/// Why bytes or an image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// They were carried to a newer record meanwhile, or the job went: look the job up again.
    #[error("the record is gone")]
    Moved,
    /// They do not match their checksum.
    #[error("the bytes in record {0} are damaged")]
    Damaged(u64),
    /// The log cannot be read.
    #[error("cannot read the log: {0}")]
    Read(ReadError),
}

impl From<ReadError> for FetchError {
    fn from(error: ReadError) -> FetchError {
        match error {
            ReadError::Trimmed { .. } => FetchError::Moved,
            ReadError::Damaged { position, .. } => FetchError::Damaged(position.0),
            other => FetchError::Read(other),
        }
    }
}

/// How a door names the job it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobRef {
    /// By its number.
    Id(JobId),
    /// By Workq's UUID.
    Uuid([u8; 16]),
    /// By its number, if it is not a job Workq has a name of its own for.
    ForeignId(JobId),
}

/// A stub does not know how long its image is: the entry's header tells.
const LENGTH_UNKNOWN: u32 = 0;

/// Looking up a job that is being carried is tried this often.
const TRIES: usize = 16;

impl Engine {
    /// The bytes a reference names.
    pub fn bytes(&self, place: &BytesRef) -> Result<Bytes, FetchError> {
        if let Some(inline) = &place.inline {
            return Ok(inline.clone());
        }
        if place.len == 0 {
            return Ok(Bytes::new());
        }
        let mut whole = BytesMut::new();
        let mut position = place.position;
        let mut left = place.len;
        let mut offset = place.offset;
        loop {
            let chunk = self.entry(Place { position, offset }, left)?;
            if chunk.len() as u32 >= left && whole.is_empty() {
                return Ok(chunk);
            }
            if whole.is_empty() {
                whole.reserve(left as usize);
            }
            left = left.checked_sub(chunk.len() as u32).ok_or(FetchError::Damaged(position))?;
            whole.extend_from_slice(&chunk);
            if left == 0 {
                return Ok(whole.freeze());
            }
            // Further chunks begin their records.
            position += 1;
            offset = (crate::commit::record::HEADER_BYTES + ENTRY_HEADER_BYTES) as u32;
        }
    }

    /// One entry's bytes, at most `wanted` long as far as the caller knows (0: not known).
    fn entry(&self, place: Place, wanted: u32) -> Result<Bytes, FetchError> {
        let start = place
            .offset
            .checked_sub(ENTRY_HEADER_BYTES as u32)
            .ok_or(FetchError::Damaged(place.position))?;
        let damaged = || FetchError::Damaged(place.position);
        {
            let inner = self.shared.inner.lock();
            if place.position == inner.open_position {
                let header = inner.batch.slice(start, ENTRY_HEADER_BYTES as u32);
                let header = header.and_then(read_entry_header).ok_or_else(damaged)?;
                let body = inner.batch.slice(place.offset, header.len).ok_or_else(damaged)?;
                return Ok(Bytes::copy_from_slice(body));
            }
            if let Some(record) = inner.recent.find(place.position) {
                let record = record.clone();
                drop(inner);
                let header = record.get(start as usize..).and_then(read_entry_header);
                let end = place.offset as usize + header.ok_or_else(damaged)?.len as usize;
                return Ok(record.slice(place.offset as usize..end.min(record.len())));
            }
        }
        let position = Position(place.position);
        let guess = ENTRY_HEADER_BYTES as u32 + wanted;
        // A chunk may be shorter than what is wanted in all: then the header alone is read first.
        let read =
            self.shared.log.read_at(position, start, guess).or_else(|error| match error {
                ReadError::OutOfRange { .. } => {
                    self.shared.log.read_at(position, start, ENTRY_HEADER_BYTES as u32)
                }
                other => Err(other),
            })?;
        let header = read_entry_header(&read).ok_or_else(damaged)?;
        let body = match read.get(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.len as usize) {
            Some(_) => read.slice(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + header.len as usize),
            None => self.shared.log.read_at(position, place.offset, header.len)?,
        };
        if crc32c::crc32c(&body) != header.crc {
            return Err(damaged());
        }
        Ok(body)
    }

    /// The image of a finished job.
    pub(crate) fn finished_image(&self, place: Place) -> Result<JobImage, FetchError> {
        let body = self.entry(place, LENGTH_UNKNOWN)?;
        match Event::decode(body).map_err(|_| FetchError::Damaged(place.position))? {
            Some(Event::Finished(image) | Event::Compacted(image)) => Ok(image),
            _ => Err(FetchError::Damaged(place.position)),
        }
    }

    pub(crate) fn finished_place(&self, id: JobId) -> Option<Place> {
        self.shared.inner.lock().finished_place(id)
    }

    /// A job in full, and what an answer about it must wait for.
    pub fn job(&self, which: JobRef) -> Result<(Option<JobImage>, Gate), FetchError> {
        for _ in 0..TRIES {
            let (place, kept_until_ms, gate) = {
                let inner = self.enter();
                match inner.look_up(which) {
                    None => return Ok((None, inner.tail())),
                    Some(Found::Live(job)) => {
                        let gate = inner.gate_of(&Found::Live(job));
                        let gate = if job.is_foreground() { Gate::OPEN } else { gate };
                        return Ok((inner.state.image(job.id()), gate));
                    }
                    Some(Found::Finished(stub)) => {
                        (stub.image(), stub.kept_until_ms(), inner.gate_of(&Found::Finished(stub)))
                    }
                }
            };
            match self.finished_image(place) {
                Ok(mut image) => {
                    image.kept_until_ms = kept_until_ms;
                    return Ok((Some(image), gate));
                }
                Err(FetchError::Moved) => {}
                Err(error) => return Err(error),
            }
        }
        Err(FetchError::Moved)
    }

    /// The number of a job named otherwise, without reading its image.
    pub fn find(&self, which: JobRef) -> (Option<(JobId, Status)>, Gate) {
        let inner = self.enter();
        match inner.look_up(which) {
            Some(found) => (Some((found.id(), found.status())), inner.gate_of(&found)),
            None => (None, inner.tail()),
        }
    }

    /// A job's payload, wherever it was carried meanwhile. A damaged one kills the job.
    pub fn payload(&self, id: JobId, place: &BytesRef) -> Result<Bytes, FetchError> {
        let mut place = place.clone();
        for _ in 0..TRIES {
            match self.bytes(&place) {
                Err(FetchError::Moved) => {}
                Err(FetchError::Damaged(position)) => {
                    tracing::error!("the payload of job {id} in record {position} is damaged");
                    self.shared.inner.lock().stats.payloads_damaged += 1;
                    self.execute(&Command::PayloadDamaged { id }).ok();
                    return Err(FetchError::Damaged(position));
                }
                read => return read,
            }
            match self.job(JobRef::Id(id))? {
                (Some(JobImage { payload: Some(payload), .. }), _) => place = payload,
                _ => return Err(FetchError::Moved),
            }
        }
        Err(FetchError::Moved)
    }

    /// The payload of a job just leased.
    pub fn leased_payload(&self, job: &LeasedJob) -> Result<Bytes, FetchError> {
        self.payload(job.id, &job.payload)
    }

    /// A queue's counts. A queue that only has waiting clients counts as empty.
    pub fn queue(&self, name: &[u8]) -> (Option<QueueListing>, Gate) {
        let inner = self.enter();
        (inner.listing(name), inner.tail())
    }

    /// Queues in order of their names, after passing over some: those with jobs or settings, and
    /// those somebody waits for. `shows` says which names count.
    pub fn queues(
        &self,
        skip: usize,
        limit: usize,
        shows: impl Fn(&[u8]) -> bool,
    ) -> (Vec<QueueListing>, Gate) {
        let inner = self.enter();
        let mut waited = inner.waits.queues().cloned().peekable();
        let mut kept = inner.state.queues_from(b"", false).peekable();
        let mut listed = Vec::new();
        let mut passed = 0;
        while listed.len() < limit {
            let next = match (kept.peek(), waited.peek()) {
                (Some(queue), Some(name)) if *name < queue.name => waited.next().map(empty),
                (Some(queue), Some(name)) if *name == queue.name => {
                    waited.next();
                    kept.next()
                }
                (Some(_), _) => kept.next(),
                (None, _) => waited.next().map(empty),
            };
            let Some(queue) = next else { break };
            if !shows(&queue.name) {
                continue;
            }
            if passed < skip {
                passed += 1;
                continue;
            }
            listed.push(queue);
        }
        (listed, inner.tail())
    }

    /// Ready jobs of a queue in the order they would be leased; none if there is no such queue.
    pub fn ready_jobs(
        &self,
        queue: &[u8],
        skip: usize,
        limit: usize,
    ) -> (Option<Vec<JobImage>>, Gate) {
        let inner = self.enter();
        let images = inner.listing(queue).map(|_| {
            let ids: Vec<JobId> =
                inner.state.ready_jobs(queue, skip).take(limit).map(|job| job.id()).collect();
            ids.into_iter().filter_map(|id| inner.state.image(id)).collect()
        });
        (images, inner.tail())
    }

    /// Scheduled jobs of a queue, next one first; none if there is no such queue.
    pub fn scheduled_jobs(
        &self,
        queue: &[u8],
        skip: usize,
        limit: usize,
    ) -> (Option<Vec<JobImage>>, Gate) {
        let inner = self.enter();
        let images = inner.listing(queue).map(|_| {
            let jobs = inner.state.scheduled_jobs(queue).skip(skip).take(limit);
            let ids: Vec<JobId> = jobs.map(|job| job.id()).collect();
            ids.into_iter().filter_map(|id| inner.state.image(id)).collect()
        });
        (images, inner.tail())
    }

    /// Runs a look at the state under the lock; for tests, lists and the simulator.
    pub fn look<T>(&self, look: impl FnOnce(&spindle_core::State) -> T) -> T {
        look(&self.shared.inner.lock().state)
    }
}

impl Inner {
    /// Where a finished job's image is.
    pub(crate) fn finished_place(&self, id: JobId) -> Option<Place> {
        match self.state.job(id)? {
            Found::Finished(stub) => Some(stub.image()),
            Found::Live(_) => None,
        }
    }

    /// The number of the job a door means.
    pub(crate) fn resolve(&self, which: JobRef) -> Option<JobId> {
        self.look_up(which).map(|found| found.id())
    }

    fn look_up(&self, which: JobRef) -> Option<Found<'_>> {
        match which {
            JobRef::Id(id) => self.state.job(id),
            JobRef::Uuid(uuid) => self.state.job_by_uuid(&uuid),
            JobRef::ForeignId(id) => self.state.job(id).filter(|found| match found {
                Found::Live(job) => job.uuid().is_none(),
                Found::Finished(stub) => stub.uuid().is_none(),
            }),
        }
    }

    pub(crate) fn listing(&self, name: &[u8]) -> Option<QueueListing> {
        match self.state.queue(name) {
            Some(queue) => Some(QueueListing {
                name: queue.name().clone(),
                counts: Status::ALL.map(|status| queue.count(status)),
                paused: queue.settings().paused,
            }),
            None if self.waits.has_queue(name) => Some(empty(Bytes::copy_from_slice(name))),
            None => None,
        }
    }
}

fn empty(name: Bytes) -> QueueListing {
    QueueListing { name, counts: [0; Status::ALL.len()], paused: false }
}
