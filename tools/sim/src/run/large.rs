//! Payloads that take several records: what a crash in the middle leaves, where compaction copies
//! them, and whether they can be read back.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::Rng;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{Found, JobId};
use spindle_engine::{NewJob, Payload};

use super::asks::pattern;
use super::server::RECORD_BYTES_MAX;
use super::{Judged, Run};

/// A payload longer than this is in several records: the rest of one is kept free for the event.
const ONE_RECORD_BYTES: usize = RECORD_BYTES_MAX as usize - 16 * 1024;
/// Nearly as long as a segment.
const CHUNKED_BYTES_MAX: usize = 60_000;
/// Over one MiB: of another size class.
const HUGE_BYTES: usize = (1 << 20) + 50_000;
/// Payloads of that length in one seed.
const HUGE_MAX: u64 = 2;

/// Jobs with a payload in several records.
#[derive(Clone, Debug, Default)]
pub(super) struct Large {
    jobs: BTreeMap<u64, Chunks>,
}

#[derive(Clone, Copy, Debug)]
struct Chunks {
    first: u64,
    /// The event that names them stands below this.
    tail: u64,
    /// Submitted since the last start.
    new: bool,
}

impl Run {
    /// A job as the engine gets it. The workload's large payloads become lengths that matter here;
    /// what is kept of the bytes is the salt that they were made from.
    pub(super) fn new_job(&mut self, submit: &Submit) -> (NewJob, u64) {
        let long = submit.payload.len > 1_000_000
            || (submit.foreground
                && submit.origin == Origin::Gearman
                && self.rng.random_ratio(1, 12));
        let len =
            if long { self.large_len(submit.foreground) } else { submit.payload.len as usize };
        let salt = self.rng.random();
        let payload = Payload::new(pattern(salt, len), submit.payload.kind());
        (NewJob { submit: submit.clone(), payload }, salt)
    }

    fn large_len(&mut self, foreground: bool) -> usize {
        let huge_fits = !foreground && self.counts.huge < HUGE_MAX && !self.server.is_limited();
        match self.rng.random_range(0..12) {
            0 | 1 if huge_fits => HUGE_BYTES,
            0..3 => self.rng.random_range(ONE_RECORD_BYTES + 1..CHUNKED_BYTES_MAX),
            3 => {
                // Close to the length that needs one record more.
                let records = self.rng.random_range(1..4);
                records * ONE_RECORD_BYTES - self.rng.random_range(0..80)
            }
            _ => self.rng.random_range(400..3_000),
        }
    }

    /// Remembers where the payload of a job is that was just logged, if it is in several records.
    pub(super) fn note_chunks(&mut self, id: JobId) {
        let first = self.payload_position(id);
        let (Some(first), tail) = (first, self.server.tail()) else { return };
        self.large.jobs.insert(id.0, Chunks { first, tail, new: true });
        self.counts.chunked += 1;
        let len = self.model.job(id).and_then(|job| job.payload.as_ref()).map_or(0, |p| p.len);
        let huge = len as usize == HUGE_BYTES;
        self.counts.huge += u64::from(huge);
        if self.rng.random_ratio(1, if huge { 3 } else { 10 }) {
            // Each segment that is begun takes several writes.
            self.end_soon(if huge { 50 } else { 6 });
        }
    }

    /// Where a payload in several records begins, of an unfinished job.
    fn payload_position(&self, id: JobId) -> Option<u64> {
        self.server.engine().inspect(|state| match state.job(id)? {
            Found::Live(job) if !job.is_foreground() => {
                let place = job.payload();
                (place.len as usize > ONE_RECORD_BYTES).then_some(place.position)
            }
            _ => None,
        })
    }

    /// After a crash that left all below `next`.
    pub(super) fn count_torn(&mut self, next: u64) {
        for chunks in self.large.jobs.values_mut().filter(|chunks| chunks.new) {
            self.counts.torn += u64::from(chunks.first < next && next < chunks.tail);
            chunks.new = false;
        }
        self.large.jobs.retain(|id, _| self.model.job(JobId(*id)).is_some());
    }

    /// Reads all of them whole: after starts and after trims.
    pub(super) fn read_large(&mut self, restarted: bool) -> Judged {
        self.happen_what_is_due()?;
        self.large.jobs.retain(|id, _| self.model.job(JobId(*id)).is_some());
        let ids: Vec<u64> = self.large.jobs.keys().copied().collect();
        for id in ids {
            self.read_job(JobId(id))?;
            if self.server.is_dead() {
                return Ok(());
            }
            self.counts.read_back += u64::from(restarted);
            let now = self.payload_position(JobId(id));
            if let (Some(now), Some(chunks)) = (now, self.large.jobs.get_mut(&id))
                && now != chunks.first
            {
                chunks.first = now;
                self.counts.compacted += 1;
            }
        }
        Ok(())
    }

    /// The power goes within so many changes of the disk, which may be under way by then.
    pub(super) fn end_soon(&mut self, changes: u64) {
        self.server.cut_power_after(self.rng.random_range(0..changes));
        if self.rng.random_ratio(2, 3) {
            self.server.engine().commit_once();
        }
    }

    /// A payload that fills a good part of a segment.
    pub(super) fn filler(&self) -> Submit {
        let payload = spindle_core::BytesRef::logged(1, 64, 15_000, spindle_core::Type::Bytes);
        let queue = Bytes::from_static(b"mail");
        let mut submit = Submit::new(JobId(1), queue, Origin::Api, payload);
        submit.ttl_ms = Some(60_000);
        submit.constraints_revision = self.model.constraints_revision;
        submit
    }
}
