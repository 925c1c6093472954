//! Following a job: what people see of it while its worker works. A follower, such as a page or a
//! terminal, has no effect on the job: it is not a client that waits for the result.

use spindle_core::{JobId, Status};

use super::list::{Caller, WaitFor};
use super::output::{OutputFrom, OutputPage};
use super::reports::Progress;
use crate::answer::Refused;
use crate::door::Ticket;
use crate::gate::Gated;
use crate::views::{Jobs, Waits};

/// What can be seen of a job while it is worked on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activity {
    /// Where the job stands.
    pub status: Status,
    /// How far the holder of its lease says it is.
    pub progress: Option<Progress>,
    /// What its workers wrote.
    pub output: OutputPage,
}

impl Jobs<'_> {
    /// What can be seen of a job while it is worked on, with its output from there on. None if
    /// there is no such job.
    pub fn activity(&self, job: JobId, from: OutputFrom) -> Gated<Option<Activity>> {
        let inner = self.0.enter();
        let Some(found) = inner.state.job(job) else { return inner.gated(None) };
        let activity = Activity {
            status: found.status(),
            progress: inner.waiting.reports.progress(job),
            output: inner.waiting.output.page(job, from),
        };
        Gated::new(Some(activity), inner.gate_of(&found))
    }
}

impl Waits<'_> {
    /// Waits until something of a job's [`Activity`] changes, with
    /// [`Answer::Changed`](crate::Answer::Changed). To be asked
    /// before the activity is looked at, so that nothing is missed between the two.
    pub fn for_change(&self, caller: &Caller, job: JobId) -> Result<Ticket, Refused> {
        self.0.enter().add_wait(caller, WaitFor::Change { job }, None)
    }
}
