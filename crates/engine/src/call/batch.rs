//! Many submits in one call: a client that brings hundreds of jobs takes the lock a few times, not
//! hundreds of times, and waits for the disk once.

use spindle_core::JobId;

use crate::door::Gate;
use crate::engine::{Engine, NewJob, Refused};

/// Jobs taken in one hold of the lock: as long as a few dozen single calls would hold it together.
const JOBS_PER_HOLD: usize = 32;

/// What became of one job of many.
pub type Taken = Result<(JobId, Gate), Refused>;

impl Engine {
    /// Submits jobs in their order, each as [`Engine::submit`] does: one that is refused does not
    /// keep the others out. Answers for as many of the first ones as there is room for in the log,
    /// at least for one; if there is none even for the first, that is [`Refused::Busy`]. The caller
    /// waits for the highest gate of all.
    pub fn submit_many(&self, jobs: &[NewJob]) -> Result<Vec<Taken>, Refused> {
        let mut taken = Vec::with_capacity(jobs.len());
        for held in jobs.chunks(JOBS_PER_HOLD) {
            let crcs: Vec<u32> = held.iter().map(|job| crc32c::crc32c(&job.payload)).collect();
            let mut held = held.to_vec();
            let inner = &mut self.enter_all_matched(&mut held);
            for (job, crc) in held.into_iter().zip(crcs) {
                match self.submit_locked(inner, job, crc) {
                    Err(Refused::Busy) if taken.is_empty() => return Err(Refused::Busy),
                    Err(Refused::Busy) => return Ok(taken),
                    told => taken.push(told),
                }
            }
        }
        Ok(taken)
    }
}
