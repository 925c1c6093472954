//! One request of a person, and the audit entry that its changes leave.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor, AuditEntry};
use spindle_core::command::{Audited, Edit};
use spindle_core::schedule::Schedule;
use spindle_core::{Command, JobId, Rejection};

use crate::answer::Refused;
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;

/// One request of a person: who made it and, from its first change on, its entry in the audit log.
/// A request that changes nothing has no entry.
#[derive(Clone, Debug)]
pub struct Audit {
    entry: AuditEntry,
}

impl Audit {
    /// A request about one thing, which the call names.
    pub fn new(by: Actor) -> Audit {
        Audit { entry: AuditEntry { actor: Some(by), ..AuditEntry::default() } }
    }

    /// A request that changes jobs one after the other: its one entry counts them. `detail` says
    /// which are meant, beside those of `queue`.
    pub fn of_many(by: Actor, queue: Option<Bytes>, detail: &str) -> Audit {
        let mut audit = Audit::new(by);
        audit.entry.queue = queue;
        audit.entry.count = Some(0);
        audit.entry.set_detail(detail);
        audit
    }

    /// The number of its entry, by which what it deleted can be undone; none before its first
    /// change.
    pub fn number(&self) -> Option<u64> {
        Some(self.entry.seq).filter(|seq| *seq != 0)
    }

    /// The entry as it is after one more change.
    fn entry_of(&self, deed: Deed) -> AuditEntry {
        let Deed { action, job, queue, constraint, schedule, detail } = deed;
        let mut entry = AuditEntry { action: action as i32, ..self.entry.clone() };
        match &mut entry.count {
            Some(count) => *count += u64::from(job.is_some() || schedule.is_some()),
            None => {
                entry.job = job.map(|id| id.0);
                // A copy: the name may be a small part of a large read.
                entry.queue = queue.map(|name| Bytes::copy_from_slice(&name));
                entry.constraint = constraint;
                entry.schedule = schedule;
                entry.set_detail(&detail);
            }
        }
        entry
    }
}

/// What people do. A view like the others, with the request on whose behalf its calls are made.
pub struct People<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) audit: &'a mut Audit,
}

impl Engine {
    /// Calls of people: they leave an entry in the audit log, in the record of what they change.
    pub fn people<'a>(&'a self, audit: &'a mut Audit) -> People<'a> {
        People { engine: self, audit }
    }
}

impl People<'_> {
    /// Leaves an entry about data that a person takes or brings; changes nothing else.
    pub fn note(self, action: Action, detail: String) -> Gated<Result<(), Refused>> {
        self.engine
            .change(|inner| Ok(inner.run_for(self.audit, Deed::new(action, detail), None, None)?))
    }
}

/// What a call does, for the entry.
#[derive(Debug)]
pub(crate) struct Deed {
    pub action: Action,
    pub job: Option<JobId>,
    pub queue: Option<Bytes>,
    pub constraint: Option<String>,
    pub schedule: Option<String>,
    pub detail: String,
}

impl Deed {
    pub fn new(action: Action, detail: String) -> Deed {
        Deed { action, job: None, queue: None, constraint: None, schedule: None, detail }
    }

    pub fn to_queue(action: Action, queue: Bytes, detail: String) -> Deed {
        Deed { queue: Some(queue), ..Deed::new(action, detail) }
    }

    pub fn to_constraint(action: Action, name: &str, detail: String) -> Deed {
        Deed { constraint: Some(name.to_owned()), ..Deed::new(action, detail) }
    }

    /// The queue is that of the schedule's jobs.
    pub fn to_schedule(action: Action, schedule: &Schedule, detail: String) -> Deed {
        let queue = Bytes::copy_from_slice(&schedule.job.queue);
        Deed { schedule: Some(schedule.name.clone()), ..Deed::to_queue(action, queue, detail) }
    }

    /// Notes where the job stood, and `detail`.
    pub fn to_job(inner: &Inner, id: JobId, action: Action, detail: String) -> Deed {
        let found = inner.state.job(id);
        let queue = found.as_ref().and_then(|found| inner.state.queue_of(found));
        let queue = queue.map(|queue| queue.name().clone());
        Deed { job: Some(id), queue, ..Deed::new(action, detail) }
    }

    pub fn edit(inner: &Inner, edit: &Edit) -> Deed {
        let action = match (&edit.queue, edit.parked) {
            (Some(_), _) => Action::Move,
            (None, Some(true)) => Action::Park,
            (None, Some(false)) => Action::Release,
            (None, None) => Action::Edit,
        };
        let queue = edit.queue.as_ref().map(|name| format!("to {}", String::from_utf8_lossy(name)));
        let priority = edit.priority.map(|priority| format!("priority {priority}"));
        let run_at = edit.run_at_ms.map(|ms| match ms {
            0 => "run now".to_owned(),
            ms => format!("run at {ms} ms"),
        });
        let said: Vec<String> = [queue, priority, run_at].into_iter().flatten().collect();
        Deed::to_job(inner, edit.id, action, said.join(", "))
    }
}

impl Inner {
    /// As [`Inner::run_with`], for a person: the command and its entry in the audit log are decided
    /// together. None: nothing of the command is in the state.
    pub fn run_for(
        &mut self,
        audit: &mut Audit,
        deed: Deed,
        command: Option<Command>,
        payload: Option<&Payload>,
    ) -> Result<(), Rejection> {
        let entry = audit.entry_of(deed);
        let command = Command::Audited(Box::new(Audited { command, entry }));
        self.apply_together(&command, payload)?;
        if let Some(entry) = self.decision.audited() {
            (audit.entry.seq, audit.entry.count) = (entry.seq, entry.count);
        }
        self.serve_waiting();
        Ok(())
    }
}
