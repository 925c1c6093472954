//! Jobs that were there before a constraint are matched by the engine, and by the model.

use spindle_core::command::{Edit, Matched};
use spindle_core::job::Label;
use spindle_core::{Command, JobId};
use spindle_engine::RelabelStep;

use super::{Judged, Run};

impl Run {
    /// A command as the engine has it decided: a job that moves is matched in its new queue.
    pub(super) fn as_matched(&self, command: &Command) -> Command {
        let Command::Edit(edit) = command else { return command.clone() };
        let (Some(queue), Some(job)) = (&edit.queue, self.model.job(edit.id)) else {
            return command.clone();
        };
        let matched = Matched {
            labels: self.model.labels_for(queue, &job.options().labels),
            constraints_revision: self.model.constraints_revision,
        };
        Command::Edit(Box::new(Edit { matched: Some(matched), ..(**edit).clone() }))
    }

    /// Lets the engine match all jobs there are. No lease must wait meanwhile: a job handed out on
    /// the way would have to be judged by the state of that moment, which the model does not know.
    pub(super) fn relabel(&mut self) -> Judged {
        // Once it is done, jobs keep the labels that a command brings.
        let nothing_to_do = self.server.engine().inspect(|state| state.is_relabelled());
        if self.waits.count() > 0 || nothing_to_do {
            return Ok(());
        }
        // All of it in one record: a crash keeps all or nothing.
        self.commit()?;
        while self.server.engine().relabel_step() == RelabelStep::More {}
        if self.server.is_dead() {
            return Ok(());
        }
        // On a full disk it goes as far as there is room.
        let server = self.server.engine().inspect(|state| state.server().clone());
        let done = (server.relabelled_revision, server.relabelled_below);
        let newest = server.constraints_revision == done.0;
        let mut changed = Vec::new();
        for job in self.model.jobs().filter(|job| !job.status().is_finished()) {
            let id = JobId(job.id);
            let current = &job.options().labels;
            let expected = self.model.labels_for(&job.queue, current);
            let image = self.server.engine().inspect(|state| state.image(id));
            let labels = image.map(|image| image.options().labels.clone()).unwrap_or_default();
            let right = labels.len() == expected.len()
                && labels.iter().zip(&expected).all(|(is, should)| {
                    let shared = Label { value: Label::OVERFLOW, ..*should };
                    is == should || (*is == shared && self.model.may_share(*should))
                });
            let looked_at = newest && job.id < done.1;
            if !right && (looked_at || labels != *current) {
                return Err(format!("job {id} has {labels:?}, and should have {expected:?}"));
            }
            if labels != *current {
                changed.push((id, labels));
            }
        }
        self.counts.relabelled += changed.len() as u64;
        self.change(|model, _| {
            for (id, labels) in &changed {
                model.apply_relabel(*id, labels);
            }
            model.note_relabelled(done);
        })
    }
}
