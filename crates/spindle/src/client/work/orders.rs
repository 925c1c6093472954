//! What the workers of one `spindle work` share.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io, mem,
    process::Child,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::report::Outcome;
use crate::client::Line;

/// Whether to go on, who waits for a job, and what runs.
#[derive(Debug)]
pub struct Orders {
    jobs_max: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: bool,
    stop: bool,
    killed: bool,
    /// Jobs taken, and those that workers are waiting to take.
    taken: u64,
    waiting: BTreeMap<usize, Line>,
    /// The process groups of commands that run.
    groups: BTreeSet<i32>,
    summary: Summary,
}

/// What became of all jobs.
#[derive(Debug, Default)]
pub struct Summary {
    /// Jobs whose command ended with exit code 0.
    pub completed: u64,
    /// Jobs whose command failed.
    pub failed: u64,
    /// Jobs that this worker could not finish: cancelled, deleted, given to another.
    pub lost: u64,
    /// What ended the run before its time.
    pub fatal: Option<anyhow::Error>,
}

impl Orders {
    /// Orders to take jobs, at most so many.
    pub fn new(jobs_max: Option<u64>) -> Self {
        Self { jobs_max, state: Mutex::default(), changed: Condvar::new() }
    }

    /// A worker that panicked left nothing half done in here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is there, and jobs are taken from now on.
    pub fn begin(&self) {
        self.state().begun = true;
    }

    /// Whether jobs are taken already.
    pub fn has_begun(&self) -> bool {
        self.state().begun
    }

    /// Reserves one more job, if one may still be taken. The reservation must be used or given
    /// back.
    pub fn reserve_job(&self) -> bool {
        let mut state = self.state();
        if state.stop || self.jobs_max.is_some_and(|max| state.taken >= max) {
            return false;
        }
        state.taken += 1;
        true
    }

    /// No job came of a reservation.
    pub fn give_back_job(&self) {
        self.state().taken -= 1;
        self.changed.notify_all();
    }

    /// A worker begins to wait for a job on a line. False when it must not.
    pub fn begin_wait(&self, worker: usize, line: Line) -> bool {
        let mut state = self.state();
        if !state.stop {
            state.waiting.insert(worker, line);
        }
        !state.stop
    }

    /// A worker's wait is over. True when its line was hung up meanwhile.
    pub fn end_wait(&self, worker: usize) -> bool {
        self.state().waiting.remove(&worker).is_none()
    }

    /// Take no more jobs. Workers that wait for one say that they send no more: a server ends
    /// their wait then, and a job that was on its way still arrives.
    pub fn stop(&self) -> usize {
        let mut state = self.state();
        state.stop = true;
        for line in mem::take(&mut state.waiting).into_values() {
            line.hang_up();
        }
        self.changed.notify_all();
        state.groups.len()
    }

    /// Whether no more jobs are to be taken.
    pub fn is_stopped(&self) -> bool {
        self.state().stop
    }

    /// Stops because going on makes no sense.
    pub fn fail(&self, error: anyhow::Error) {
        self.state().summary.fatal.get_or_insert(error);
        self.stop();
    }

    /// Waits, but not longer than until [`Orders::stop`].
    pub fn pause(&self, duration: Duration) {
        let waited = self.changed.wait_timeout_while(self.state(), duration, |state| !state.stop);
        drop(waited);
    }

    /// Starts a command in a process group of its own. A signal finds it either not started or
    /// known, so that none is left behind.
    pub fn start(&self, spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, i32)> {
        let mut state = self.state();
        if state.killed {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = spawn()?;
        let group = i32::try_from(child.id()).map_err(io::Error::other)?;
        state.groups.insert(group);
        Ok((child, group))
    }

    /// A command ended.
    pub fn ended(&self, group: i32) {
        self.state().groups.remove(&group);
    }

    /// Ends all commands; none is started any more.
    pub fn kill_all(&self) {
        let mut state = self.state();
        state.killed = true;
        for &group in &state.groups {
            // It fails when the command has just ended.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// Whether commands are killed and none is started any more.
    pub fn is_killed(&self) -> bool {
        self.state().killed
    }

    /// A job is done with.
    pub fn count(&self, outcome: &Outcome) {
        let counts = &mut self.state().summary;
        match outcome {
            Outcome::Completed => counts.completed += 1,
            Outcome::Failed => counts.failed += 1,
            Outcome::Lost(_) | Outcome::Refused(_) => counts.lost += 1,
        }
    }

    /// What became of all jobs.
    pub fn sum_up(&self) -> Summary {
        let summary = &mut self.state().summary;
        Summary { fatal: summary.fatal.take(), ..*summary }
    }
}

impl Summary {
    /// Whether a job did not end well.
    pub fn has_bad_end(&self) -> bool {
        self.failed > 0 || self.lost > 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} completed, {} failed", self.completed, self.failed)?;
        if self.lost > 0 {
            write!(f, ", {} cancelled or lost", self.lost)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::session::Lost;

    #[test]
    fn leave_is_given_up_to_the_maximum_and_what_is_given_back_again() {
        let orders = Orders::new(Some(2));
        assert!(orders.reserve_job());
        assert!(orders.reserve_job());
        assert!(!orders.reserve_job());
        orders.give_back_job();
        assert!(orders.reserve_job());
    }

    #[test]
    fn the_summary_tells_of_lost_jobs_where_there_are_any() {
        let orders = Orders::new(None);
        orders.count(&Outcome::Completed);
        orders.count(&Outcome::Failed);
        assert_eq!(orders.sum_up().to_string(), "1 completed, 1 failed");
        orders.count(&Outcome::Lost(Lost::Cancelled));
        orders.count(&Outcome::Refused("too large".to_owned()));
        let summary = orders.sum_up();
        assert_eq!(summary.to_string(), "1 completed, 1 failed, 2 cancelled or lost");
        assert!(summary.has_bad_end());
    }

    #[test]
    fn a_stop_ends_leave_and_pauses() {
        let orders = Orders::new(None);
        orders.stop();
        assert!(!orders.reserve_job());
        orders.pause(Duration::from_secs(3600));
    }
}
