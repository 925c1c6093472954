//! Looking up jobs, their payloads and their results.

use bytes::Bytes;
use spindle_core::job::{Key, Origin};
use spindle_core::{BytesRef, Command, Found, JobId, JobImage, Place, Status};

use super::bytes::FetchError;
use crate::answer::LeasedJob;
use crate::door::LeaseRef;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::{Jobs, Leases, Waits};

/// How a door names the job it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobRef {
    /// By its number.
    Id(JobId),
    /// By its UUID.
    Uuid([u8; 16]),
    /// By its number, if it is a job without a UUID of its own.
    ForeignId(JobId),
}

/// Where an unfinished job stands, as far as it is not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// The job.
    pub id: JobId,
    /// Where it stands in its life.
    pub status: Status,
    /// The numerator its holder reported last, as text; empty if none.
    pub numerator: Bytes,
    /// The denominator its holder reported last, as text; empty if none.
    pub denominator: Bytes,
    /// How long it will take by its holder's last estimate; 0 if none.
    pub remaining_s: u32,
    /// Clients that wait for its end.
    pub waiting: usize,
}

/// How often looking up a job that moves in the log is tried.
const TRIES: usize = 16;

/// Looks a job up again as long as compaction moves what is wanted of it, a few times.
pub(crate) fn retried<T>(mut look: impl FnMut() -> Result<T, FetchError>) -> Result<T, FetchError> {
    for _ in 1..TRIES {
        match look() {
            Err(FetchError::Moved) => {}
            found => return found,
        }
    }
    look()
}

impl Jobs<'_> {
    /// A job in full.
    pub fn get(&self, job: JobRef) -> Result<Gated<Option<JobImage>>, FetchError> {
        retried(|| {
            let (place, changes, gate) = {
                let inner = self.0.enter();
                let Some(found) = inner.look_up(job) else { return Ok(inner.gated(None)) };
                let gate = inner.gate_of(&found);
                match found {
                    Found::Live(job) => return Ok(Gated::new(inner.state.image(job.id()), gate)),
                    Found::Finished(stub) => (stub.image(), stub.changes(), gate),
                }
            };
            let mut image = self.0.finished_image(place)?;
            changes.put_into(&mut image);
            Ok(Gated::new(Some(image), gate))
        })
    }

    /// The number and status of a job, without reading its image.
    pub fn find(&self, job: JobRef) -> Gated<Option<(JobId, Status)>> {
        let inner = self.0.enter();
        match inner.look_up(job) {
            Some(found) => Gated::new(Some((found.id(), found.status())), inner.gate_of(&found)),
            None => inner.gated(None),
        }
    }

    /// The name of the queue that a job is in, without reading its image.
    pub fn queue_of(&self, job: JobRef) -> Gated<Option<Bytes>> {
        let inner = self.0.enter();
        match inner.look_up(job) {
            Some(found) => {
                let queue = inner.state.queue_of(&found).map(|queue| queue.name().clone());
                Gated::new(queue, inner.gate_of(&found))
            }
            None => inner.gated(None),
        }
    }

    /// The job that has a key.
    pub fn find_by_key(&self, key: &Key) -> Gated<Option<JobId>> {
        self.0.read(|inner| inner.state.job_by_key(key).map(|found| found.id()))
    }

    /// The unfinished job with the first key of a door, by name, that begins like this. Jobs of queues
    /// that `may_see` says no to are passed over.
    pub fn find_by_key_prefix(
        &self,
        namespace: Origin,
        prefix: &[u8],
        mut may_see: impl FnMut(&[u8]) -> bool,
    ) -> Gated<Option<JobId>> {
        let prefix = Bytes::copy_from_slice(prefix);
        self.0.read(|inner| {
            let found = inner.state.jobs_by_key_prefix(namespace as i32, prefix);
            found.filter_map(Found::live).find(|job| may_see(job.queue())).map(|job| job.id())
        })
    }

    /// The job, finished or not, with the first key in the namespace of this one that begins like
    /// it.
    pub fn find_by_key_beginning(&self, key: &Key) -> Gated<Option<JobId>> {
        self.0.read(|inner| {
            let mut found = inner.state.jobs_by_key_prefix(key.namespace, key.name.clone());
            found.next().map(|found| found.id())
        })
    }

    /// When unfinished jobs were submitted; none for others.
    pub fn created(&self, ids: &[u64]) -> Vec<(JobId, Option<u64>)> {
        if ids.is_empty() {
            return Vec::new();
        }
        let inner = self.0.enter();
        let created_ms = |id| inner.state.live(id).map(|job| job.created_ms());
        ids.iter().map(|id| JobId(*id)).map(|id| (id, created_ms(id))).collect()
    }

    /// A job's payload, wherever compaction has moved it meanwhile. A damaged one kills the job.
    pub fn payload(&self, id: JobId, place: &BytesRef) -> Result<Bytes, FetchError> {
        let read = self.read_payload(id, place, |place| self.bytes(place));
        if let Err(FetchError::Damaged(position)) = &read {
            tracing::error!("the payload of job {id} in record {position} is damaged");
            let mut inner = self.0.enter();
            inner.numbers.stats.payloads_damaged += 1;
            // It may have ended meanwhile.
            inner.run(&Command::PayloadDamaged { id }).ok();
        }
        read
    }

    /// The first bytes of a job's payload, at most `max`. None: they are damaged or gone.
    pub fn payload_beginning(&self, id: JobId, place: &BytesRef, max: u32) -> Option<Bytes> {
        self.read_payload(id, place, |place| self.beginning(place, max)).ok()
    }

    fn read_payload(
        &self,
        id: JobId,
        place: &BytesRef,
        read: impl Fn(&BytesRef) -> Result<Bytes, FetchError>,
    ) -> Result<Bytes, FetchError> {
        let mut place = place.clone();
        for _ in 0..TRIES {
            match read(&place) {
                Err(FetchError::Moved) => {}
                read => return read,
            }
            let image = self.get(JobRef::Id(id))?;
            match image.without_waiting("only where the payload is now is looked at") {
                Some(JobImage { payload: Some(payload), .. }) => place = payload,
                _ => return Err(FetchError::Moved),
            }
        }
        Err(FetchError::Moved)
    }

    /// The result of a finished job, wherever compaction has moved it meanwhile. Empty if it has
    /// none.
    pub fn result(&self, image: &JobImage) -> Result<Gated<Bytes>, FetchError> {
        let mut outcome = image.outcome.clone();
        let mut answer = Gated::open(());
        for _ in 0..TRIES {
            let place = outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
            match place.map_or(Ok(Bytes::new()), |place| self.bytes(place)) {
                Err(FetchError::Moved) => {}
                read => return read.map(|bytes| answer.map(|()| bytes)),
            }
            let newer = answer.absorb(self.get(JobRef::Id(JobId(image.id)))?);
            outcome = newer.ok_or(FetchError::Moved)?.outcome;
        }
        Err(FetchError::Moved)
    }
}

impl Waits<'_> {
    /// Where an unfinished job stands; none if there is no such job, or it has finished.
    pub fn progress(&self, job: JobRef) -> Gated<Option<JobProgress>> {
        let inner = self.0.enter();
        let Some(found) = inner.look_up(job) else { return inner.gated(None) };
        let progress = found.live().map(|job| {
            let report = inner.waiting.reports.of(job.id());
            JobProgress {
                id: job.id(),
                status: job.status(),
                numerator: report.map(|report| report.numerator.clone()).unwrap_or_default(),
                denominator: report.map(|report| report.denominator.clone()).unwrap_or_default(),
                remaining_s: report.map_or(0, |report| report.remaining_s),
                waiting: inner.waiting.list.count_for_job(job.id()),
            }
        });
        Gated::new(progress, inner.gate_of(&found))
    }
}

impl Leases<'_> {
    /// The payload of a job just leased. None: there is none to give out, and the worker gets the
    /// next job; a job whose payload is damaged is dead, and if the job has changed meanwhile its
    /// lease is undone. An error: the log cannot be read now; the lease is undone, and the worker
    /// gets no job.
    pub fn payload(&self, job: &LeasedJob) -> Result<Option<Bytes>, FetchError> {
        if let Some(bytes) = &job.bytes {
            return Ok(Some(bytes.clone()));
        }
        let error = match self.0.jobs().payload(job.id, &job.payload) {
            Ok(payload) => return Ok(Some(payload)),
            Err(FetchError::Damaged(_)) => return Ok(None),
            Err(error) => error,
        };
        self.undo(LeaseRef { job: job.id, attempt: job.attempt });
        match error {
            FetchError::Moved => Ok(None),
            error => {
                tracing::error!("the payload of job {} cannot be read: {error}", job.id);
                Err(error)
            }
        }
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

    /// The job a door means.
    pub(crate) fn look_up(&self, job: JobRef) -> Option<Found<'_>> {
        match job {
            JobRef::Id(id) => self.state.job(id),
            JobRef::Uuid(uuid) => self.state.job_by_uuid(&uuid),
            JobRef::ForeignId(id) => self.state.job(id).filter(|found| match found {
                Found::Live(job) => job.uuid().is_none(),
                Found::Finished(stub) => stub.uuid().is_none(),
            }),
        }
    }
}
