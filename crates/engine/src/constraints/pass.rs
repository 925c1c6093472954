//! The pass over jobs that were there before the newest constraints, if one is under way.

use std::time::Duration;

use parking_lot::Mutex;

use crate::commit::TimerBell;

/// The pass that is under way, and the bell of the thread that makes it.
#[derive(Debug, Default)]
pub(crate) struct Relabeller {
    pass: Mutex<Pass>,
    bell: TimerBell,
}

#[derive(Debug, Default)]
struct Pass {
    revision: u64,
    relabelled: u64,
    looked_at: u64,
    /// Unfinished jobs when it began.
    total: u64,
}

/// How far the jobs that were there have been matched against the newest constraints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relabelling {
    /// The revision of the constraints.
    pub revision: u64,
    /// Jobs whose labels changed so far, since the start.
    pub relabelled: u64,
    /// Unfinished jobs still to be looked at; at least 1 while the pass goes on.
    pub remaining: u64,
}

impl Relabeller {
    /// Begins a pass for a revision of the constraints, or goes on with it.
    pub fn begin(&self, revision: u64, goes_on: bool, total: u64) {
        let mut pass = self.pass.lock();
        if pass.revision != revision || (!goes_on && pass.looked_at > 0) {
            *pass = Pass { revision, total, ..Pass::default() };
        }
    }

    pub fn note_looked_at(&self, jobs: u64) {
        self.pass.lock().looked_at += jobs;
    }

    pub fn note_relabelled(&self, jobs: u64) {
        self.pass.lock().relabelled += jobs;
    }

    /// How far it has come towards a revision; `unfinished` jobs are left to a pass that has not
    /// begun.
    pub fn progress(&self, revision: u64, is_done: bool, unfinished: u64) -> Relabelling {
        let pass = self.pass.lock();
        let is_its = pass.revision == revision;
        let remaining = match (is_done, is_its) {
            (true, _) => 0,
            (false, true) => pass.total.saturating_sub(pass.looked_at).max(1),
            (false, false) => unfinished.max(1),
        };
        Relabelling { revision, relabelled: if is_its { pass.relabelled } else { 0 }, remaining }
    }

    /// The constraints have changed.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Sleeps until it is woken, or a time has passed.
    pub fn sleep(&self, time: Duration) {
        self.bell.sleep(time);
    }
}
