//! The changes of a door's jobs, slice by slice, for the keeper of a copy.

use spindle_core::{Found, JobId, JobImage};

use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Replica;

/// A change of one of the door's jobs.
#[derive(Debug)]
pub enum Change {
    /// It is gone.
    Gone(JobId),
    /// It is unfinished, and this now.
    Live {
        /// The job.
        image: Box<JobImage>,
        /// Its payload may be another one than before.
        payload_changed: bool,
    },
    /// It is done or dead: its image is in the log.
    Finished(JobId),
}

/// A slice of what has changed.
#[derive(Debug)]
pub struct Changes {
    /// Everything taken so far is void: this is the first slice of all jobs.
    pub restart: bool,
    /// In order of their numbers.
    pub changes: Vec<Change>,
    /// The round goes on. At its end all changes have been taken that there were when it began.
    pub more: bool,
}

/// Jobs in one hold of the lock.
const JOBS_PER_SLICE: usize = 256;

/// Events in one hold of the lock, roughly.
const EVENTS_PER_SLICE: usize = 8 * 1024;

impl Replica<'_> {
    /// What has changed of the door's jobs since the last call. The first call ever, and one after
    /// very many changes, returns all of them, in slices.
    pub fn changes(&self) -> Gated<Changes> {
        let mut inner = self.0.enter();
        let restart = inner.changes.take_restart();
        let taken = inner.changes.take(JOBS_PER_SLICE);
        let mut changes = Vec::with_capacity(taken.len());
        let mut events = 0;
        for (id, payload_changed) in taken {
            if events > EVENTS_PER_SLICE {
                inner.changes.give_back(id, payload_changed);
                continue;
            }
            let change = inner.change_of(JobId(id), payload_changed);
            if let Change::Live { image, .. } = &change {
                events += image.options().events.len();
            }
            changes.push(change);
        }
        inner.gated(Changes { restart, changes, more: inner.changes.has_more() })
    }

    /// How many jobs the next [`Replica::changes`] have to bring, roughly.
    pub fn changes_waiting(&self) -> usize {
        self.0.shared.inner.lock().changes.waiting()
    }

    /// The copy of the door's jobs is lost: all of them are to be taken again.
    pub fn restart(&self) {
        self.0.shared.inner.lock().changes.walk_all();
    }
}

impl Inner {
    fn change_of(&self, id: JobId, payload_changed: bool) -> Change {
        match self.state.job(id) {
            // A deleted job must not be found in the copy, since it cannot be changed.
            Some(_) if self.state.deletion(id).is_some() => Change::Gone(id),
            Some(Found::Live(_)) => {
                let image = Box::new(self.state.image(id).expect("it is live"));
                Change::Live { image, payload_changed }
            }
            Some(Found::Finished(_)) => Change::Finished(id),
            None => Change::Gone(id),
        }
    }
}
