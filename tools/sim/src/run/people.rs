//! What people do, with its entries in the audit log.

use spindle_core::audit::{Action, Actor, AuditEntry};
use spindle_core::command::Audited;
use spindle_core::{Command, JobId};
use spindle_engine::{Audit, JobRef};

use super::{Judged, Run, seen};
use crate::model::action_of;

/// A request that changes one job after the other, and goes on.
pub(super) struct Request {
    audit: Audit,
    seq: u64,
    count: u64,
}

impl Run {
    /// A person's command. With a number in its entry it belongs to the request before, if that goes
    /// on.
    pub(super) fn audited(&mut self, audited: &Audited) -> Judged {
        // Only setting the clock has an entry without a change; the model has its own time.
        let Some(command) = &audited.command else { return Ok(()) };
        let actor = audited.entry.actor.clone().unwrap_or_default();
        let Some(mut entry) = self.entry_for(command, &actor) else { return self.ask(command) };
        let mut request = match self.request.take() {
            Some(request) if audited.entry.seq > 0 => request,
            _ => Request { audit: Audit::new(actor.clone()), seq: 0, count: 0 },
        };
        let of_many = audited.entry.count.is_some() || request.seq > 0;
        if of_many {
            if request.seq == 0 {
                request.audit = Audit::of_many(actor, None, "");
            }
            request.count += u64::from(entry.job.take().is_some());
            (entry.queue, entry.count) = (None, Some(request.count));
        }
        entry.seq = request.seq;
        let next = self.model.last_audit + 1;
        let numbered = match command {
            Command::DeleteLater { id, undo_ms, .. } => Command::DeleteLater {
                id: *id,
                request: if request.seq > 0 { request.seq } else { next },
                undo_ms: *undo_ms,
            },
            other => other.clone(),
        };
        let command = &numbered;
        let changes = match command {
            Command::SetQueue { name, settings } => self.model.settings(name) != *settings,
            _ => true,
        };
        let people = self.server.engine().people(&mut request.audit);
        let reply = match command {
            Command::Delete { id, .. } => people.delete(JobRef::Id(*id)),
            Command::DeleteLater { id, undo_ms, .. } => {
                people.delete_for(JobRef::Id(*id), *undo_ms).map(|done| done.map(drop))
            }
            Command::Undelete { id } => people.undo(*id),
            Command::Cancel { id } => people.cancel(*id),
            Command::Edit(edit) => people.edit(edit),
            Command::SetQueue { name, settings } => {
                people.change_queue(Action::SetQueue, name, |queue| queue.clone_from(settings))
            }
            _ => return Ok(()),
        };
        // A full disk refuses commands that the model would accept.
        let mut is_taken = false;
        let reply = reply.map(|reply| {
            is_taken = reply.is_ok();
            reply
        });
        if !changes {
            // Wherever the queue is.
            let (reply, _) = seen(reply);
            return reply.map_err(|refused| format!("a change of nothing is refused: {refused}"));
        }
        let command = Some(self.as_matched(command));
        let judged = self.judge(&Command::Audited(Box::new(Audited { command, entry })), reply);
        if of_many && is_taken {
            request.seq = if request.seq > 0 { request.seq } else { self.model.last_audit };
            self.request = Some(request);
        }
        judged
    }

    /// The entry that a command has, if people have such a command here.
    pub(super) fn entry_for(&self, command: &Command, actor: &Actor) -> Option<AuditEntry> {
        let (action, job, queue) = match command {
            Command::Delete { id, cause: spindle_core::job::Cause::Deleted } => {
                (Action::Delete, Some(*id), None)
            }
            Command::DeleteLater { id, .. } => (Action::Delete, Some(*id), None),
            Command::Undelete { id } => (Action::Undo, Some(*id), None),
            Command::Cancel { id } => (Action::Cancel, Some(*id), None),
            Command::Edit(edit) => (action_of(edit), Some(edit.id), None),
            Command::Retry { image, .. } => (Action::Retry, Some(JobId(image.id)), None),
            Command::SetQueue { name, .. } => (Action::SetQueue, None, Some(name.clone())),
            _ => return None,
        };
        let in_queue = job.and_then(|id| self.model.job(id)).map(|job| job.queue.clone());
        Some(AuditEntry {
            actor: Some(actor.clone()),
            action: action as i32,
            job: job.map(|id| id.0),
            queue: queue.or(in_queue),
            ..AuditEntry::default()
        })
    }
}

/// The command itself, without its entry.
pub(super) fn unaudited(command: &Command) -> &Command {
    match command {
        Command::Audited(audited) => audited.command.as_ref().unwrap_or(command),
        command => command,
    }
}
