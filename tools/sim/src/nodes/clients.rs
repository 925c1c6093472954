//! What clients were told, and what they may be told from then on.

use std::collections::BTreeMap;

use spindle_core::{JobId, Status};

/// What clients know of a job from answers that have left.
#[derive(Clone, Copy, Default)]
struct Told {
    /// In which queue it was put: each job has one of its own, so the queue says which job it is.
    queue: u64,
    is_done: bool,
}

/// What was asked.
#[derive(Clone, Debug)]
pub enum Asked {
    Submit {
        queue: u64,
        id: Option<JobId>,
    },
    Finish {
        id: JobId,
        is_taken: bool,
    },
    /// Which job it is, and how it is.
    Find {
        id: JobId,
        found: Option<(Option<u64>, Status)>,
    },
}

/// An answer that has not left. What was told before it was asked for has to be true in it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub asked: Asked,
    pub gate: spindle_engine::Gate,
    /// How many things had been told when it was asked for.
    pub since: u64,
}

/// All that was told, with when.
#[derive(Default)]
pub struct Clients {
    jobs: BTreeMap<u64, Told>,
    submitted_at: BTreeMap<u64, u64>,
    done_at: BTreeMap<u64, u64>,
    count: u64,
}

impl Clients {
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The jobs that somebody may ask about.
    pub fn known(&self) -> Vec<JobId> {
        self.jobs.keys().map(|id| JobId(*id)).collect()
    }

    /// An answer leaves.
    pub fn hear(&mut self, answer: &Answer) -> Result<(), String> {
        match answer.asked {
            Asked::Submit { queue, id: Some(id) } => {
                if let Some(other) = self.jobs.get(&id.0) {
                    return Err(format!("{id} is job {queue}, and was job {} before", other.queue));
                }
                self.count += 1;
                self.jobs.insert(id.0, Told { queue, is_done: false });
                self.submitted_at.insert(id.0, self.count);
            }
            Asked::Finish { id, is_taken: true } => {
                self.count += 1;
                self.done_at.entry(id.0).or_insert(self.count);
                if let Some(told) = self.jobs.get_mut(&id.0) {
                    told.is_done = true;
                }
            }
            Asked::Finish { .. } | Asked::Submit { .. } => {}
            Asked::Find { id, found } => self.check(id, found, answer.since)?,
        }
        Ok(())
    }

    fn check(
        &self,
        id: JobId,
        found: Option<(Option<u64>, Status)>,
        since: u64,
    ) -> Result<(), String> {
        let was_told = |at: &BTreeMap<u64, u64>| at.get(&id.0).is_some_and(|at| *at <= since);
        if was_told(&self.submitted_at) {
            let queue = self.jobs.get(&id.0).map(|told| told.queue);
            match found {
                None => return Err(format!("{id} was acknowledged, and is not there")),
                Some((is, _)) if is != queue => {
                    return Err(format!("{id} is job {is:?}, and was {queue:?}"));
                }
                Some(_) => {}
            }
        }
        if was_told(&self.done_at) && found.is_some_and(|(_, status)| status != Status::Done) {
            return Err(format!("{id} was done, and is {found:?}"));
        }
        Ok(())
    }

    /// Checks that a state that a node has folded has everything that was told.
    pub fn check_all(
        &self,
        look: impl Fn(JobId) -> Option<(Option<u64>, Status)>,
    ) -> Result<(), String> {
        self.jobs.keys().try_for_each(|id| self.check(JobId(*id), look(JobId(*id)), self.count))
    }
}
