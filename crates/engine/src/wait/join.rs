//! Submitting a job or joining the unfinished one that has its name: what Gearman calls coalescing.
//!
//! Who calls: a door whose clients may ask for the same work twice. The job's first key says what
//! is the same. Joining changes neither the priority nor the payload of the job that is there. What
//! a background submit is told must last, so when it joins a job that lives in memory only, that
//! job is logged first and the answer's gate is its record.

use spindle_core::{BytesRef, Command, Found, JobId, Type};
use spindle_log::Space;

use super::waits::Caller;
use crate::door::{Gate, Ticket};
use crate::engine::{Engine, NewJob, Refused};
use crate::inner::Inner;

/// What became of a submit that may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The job, new or joined.
    pub job: JobId,
    /// Whether it is new.
    pub new: bool,
    /// What the answer must wait for.
    pub gate: Gate,
    /// The watch, if one was asked for.
    pub watch: Option<Ticket>,
}

impl Engine {
    /// Submits a job, or joins the unfinished one that has its first key; `watcher` watches it
    /// from then on. A foreground job needs one.
    pub fn submit_or_join(
        &self,
        watcher: Option<&Caller>,
        mut job: NewJob,
    ) -> Result<Joined, Refused> {
        let crc = if job.submit.foreground { 0 } else { crc32c::crc32c(&job.payload) };
        let asked = job.submit.constraints_revision;
        loop {
            job.submit.constraints_revision = asked;
            let mut inner = self.enter_matched(&mut job);
            if watcher.is_some() && inner.waits.len() >= inner.options.waits_max {
                return Err(Refused::TooMany("waiting clients"));
            }
            let Some(found) = inner.same_job(&job) else {
                let (id, gate) = self.submit_locked(&mut inner, job, crc)?;
                let watch = watcher.map(|caller| inner.add_watch(caller, id)).transpose()?;
                return Ok(Joined { job: id, new: true, gate, watch });
            };
            if inner.stopping && job.submit.foreground {
                return Err(Refused::Stopping);
            }
            if !job.submit.foreground && inner.state.is_foreground(found) {
                self.check_room(&inner)?;
                drop(inner);
                self.persist(found, job.submit.keep_ms)?;
                continue;
            }
            let watch = watcher.map(|caller| inner.add_watch(caller, found)).transpose()?;
            let gate = match inner.state.job(found) {
                Some(job) if !inner.state.is_foreground(found) => inner.gate_of(&job),
                _ => inner.ids_gate,
            };
            return Ok(Joined { job: found, new: false, gate, watch });
        }
    }

    /// Logs a job that lives in memory only, if it still does.
    fn persist(&self, id: JobId, keep_ms: Option<u64>) -> Result<(), Refused> {
        // The checksum of a large payload is made without the lock; a job's payload never changes.
        let payload = match self.enter().state.job(id) {
            Some(Found::Live(job)) if job.is_foreground() => job.payload(),
            _ => return Ok(()),
        };
        let bytes = payload.inline.clone().unwrap_or_default();
        let crc = crc32c::crc32c(&bytes);
        let kind = Type::try_from(payload.kind).unwrap_or(Type::Bytes);
        let mut inner = self.enter();
        if !inner.state.is_foreground(id) {
            return Ok(());
        }
        if self.shared.log.space() == Space::ReserveOnly {
            return Err(Refused::DiskFull);
        }
        let payload: BytesRef = inner.place_for(bytes.len(), kind);
        let command = Command::Persist { id, payload, keep_ms };
        match inner.run_with(&command, |inner| inner.put_bytes(&bytes, crc)) {
            Ok(()) => {
                inner.abandoned.remove(&id);
                Ok(())
            }
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }
}

impl Inner {
    /// The unfinished job that has the first key of a new one.
    fn same_job(&self, job: &NewJob) -> Option<JobId> {
        match self.state.job_by_key(job.submit.keys.first()?)? {
            Found::Live(job) => Some(job.id()),
            Found::Finished(_) => None,
        }
    }
}
