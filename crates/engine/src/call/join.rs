//! Submitting a job or joining the unfinished one that has its name: what Gearman calls coalescing.
//!
//! Called by doors whose clients may ask for the same work twice. Submits with the same first key
//! are the same work. Joining changes neither the priority nor the payload of the existing job. The
//! answer to a background submit must last, so when it joins a job that lives in memory only, that
//! job is logged first and the answer's gate is its record.

use spindle_core::{Command, JobId};

use super::submit::NewJob;
use crate::answer::Refused;
use crate::commit::Payload;
use crate::door::Ticket;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Jobs;
use crate::wait::Caller;

/// What became of a submit that may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The job, new or joined.
    pub job: JobId,
    /// Whether it is new.
    pub new: bool,
    /// The watch, if one was asked for.
    pub watch: Option<Ticket>,
}

impl Jobs<'_> {
    /// Submits a job, or joins the unfinished one that has its first key; `watcher` watches it
    /// from then on. A foreground job needs one.
    pub fn submit_or_join(
        &self,
        watcher: Option<&Caller>,
        mut job: NewJob,
    ) -> Gated<Result<Joined, Refused>> {
        job.make_checksum();
        let asked = job.submit.constraints_revision;
        loop {
            job.submit.constraints_revision = asked;
            let mut inner = self.0.enter_matched(&mut job);
            if let Some(refused) = watcher.and_then(|_| inner.check_waits().err()) {
                return Gated::open(Err(refused));
            }
            let Some(found) = inner.same_job(&job) else {
                let submitted = inner.submit(self.0, job);
                return submitted.map(|submitted| inner.joined(submitted?, true, watcher));
            };
            if inner.stopping && job.submit.foreground {
                return Gated::open(Err(Refused::Stopping));
            }
            if !job.submit.foreground && inner.state.is_foreground(found) {
                drop(inner);
                if let Err(refused) = self.0.persist(found, job.submit.keep_ms) {
                    return self.0.enter().refused(refused);
                }
                continue;
            }
            let joined = inner.joined(found, false, watcher);
            let gate = inner.state.job(found).map_or(inner.tail(), |job| inner.gate_of(&job));
            return Gated::new(joined, gate);
        }
    }
}

impl Engine {
    /// Logs a job that lives in memory only, if it still does.
    fn persist(&self, id: JobId, keep_ms: Option<u64>) -> Result<(), Refused> {
        // The checksum of a large payload is made without the lock; a job's payload never changes.
        let inner = self.enter();
        let Some(job) = inner.state.live(id).filter(|job| job.is_foreground()) else {
            return Ok(());
        };
        let place = job.payload();
        drop(inner);
        let kind = place.kind();
        let payload = Payload::new(place.inline.unwrap_or_default(), kind).with_checksum();
        let mut inner = self.enter();
        if !inner.state.is_foreground(id) {
            return Ok(());
        }
        self.check_space()?;
        let place = inner.batch.place_for(&payload);
        inner.run_with(&Command::Persist { id, payload: place, keep_ms }, Some(&payload))?;
        inner.waiting.set_abandoned(id, false);
        Ok(())
    }
}

impl Inner {
    fn joined(
        &mut self,
        job: JobId,
        new: bool,
        watcher: Option<&Caller>,
    ) -> Result<Joined, Refused> {
        let watch = watcher.map(|caller| self.add_watch(caller, job)).transpose()?;
        Ok(Joined { job, new, watch })
    }

    /// The unfinished job that has the first key of a new one.
    fn same_job(&self, job: &NewJob) -> Option<JobId> {
        Some(self.state.job_by_key(job.submit.keys.first()?)?.live()?.id())
    }
}
