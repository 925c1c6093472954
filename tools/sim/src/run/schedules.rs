//! Schedules fire in the engine, one at a time, and in the model.

use rand::Rng;
use spindle_core::command::SetSchedule;
use spindle_core::job::Origin;
use spindle_core::schedule::{Outcome, Progress};
use spindle_core::{BytesRef, Command, JobId, Type};

use super::asks::pattern;
use super::{Judged, Run};

/// What payloads of schedules are made from.
const SALT: u64 = 7;

impl Run {
    /// Fires the schedule that is due first, if any. Returns whether one fired.
    pub(super) fn fire_schedule(&mut self) -> Judged<bool> {
        if self.server.is_dead() {
            return Ok(false);
        }
        let due = self.model.due_schedule(self.server.now_ms());
        let Some(name) = due.map(|due| due.schedule.name.clone()) else {
            let fires = self.server.engine().fire_schedules(1);
            return if fires { Err("a schedule fires that is not due".into()) } else { Ok(false) };
        };
        let is_held = |run: &Run| run.server.is_full() || run.server.holds_timers();
        let was_held = is_held(self);
        let before = self.progress(&name);
        self.server.engine().fire_schedules(1);
        let after = self.progress(&name);
        if self.server.is_dead() {
            return Ok(false);
        }
        match after {
            Some(after) if Some(&after) != before.as_ref() => {
                self.judge_firing(&name, &after)?;
                self.take_deliveries()?;
                Ok(true)
            }
            _ if was_held || is_held(self) || self.model.holds_expiry => {
                self.counts.firings_held += 1;
                Ok(false)
            }
            _ => Err(format!("schedule {name} should fire")),
        }
    }

    fn progress(&self, name: &str) -> Option<Progress> {
        self.server.engine().inspect(|state| Some(state.schedule(name)?.progress.clone()))
    }

    fn judge_firing(&mut self, name: &str, after: &Progress) -> Judged {
        let now_ms = self.server.now_ms();
        let it = self.model.scheduled(name).ok_or("it was due")?;
        let mut fire = self.model.firing(it, now_ms);
        let outcome = after.last.as_ref().ok_or("nothing came of a time")?.outcome();
        let template = it.schedule.job.clone();
        if outcome == Outcome::Submitted {
            let id = JobId(after.last_job.ok_or("a schedule has submitted no job")?);
            let is_next = self.next_id.is_none_or(|next| next == id);
            if !is_next || self.known_ids.contains(&id.0) || self.model.job(id).is_some() {
                return Err(format!(
                    "schedule {name} submits job {id}, and not {:?}",
                    self.next_id
                ));
            }
            self.next_id = Some(JobId(id.0 + 1));
            fire.job.id = id;
        } else {
            // Any number that is not in use.
            fire.job.id = JobId(spindle_core::job::JOB_ID_SEQUENCE_END - 1);
        }
        let len = template.payload.len() as u32;
        let payload = match len {
            0 => BytesRef::empty(Type::Bytes),
            _ => BytesRef::logged(SALT, 64, len, Type::Bytes),
        };
        fire.job = template.submit(name, fire.job.id, payload);
        fire.job.labels = self.model.labels_for(&template.queue, &[]);
        fire.job.constraints_revision = self.model.constraints_revision;
        debug_assert_eq!(fire.job.origin, Origin::Api);
        let late = it.progress.next.is_some_and(|next| next.fire_ms + 60_000 < now_ms);
        match outcome {
            Outcome::Submitted if late => self.counts.firings_made_up += 1,
            Outcome::Submitted => self.counts.firings += 1,
            Outcome::Missed => self.counts.firings_missed += 1,
            Outcome::Overlapped | Outcome::Pending => self.counts.firings_overlapped += 1,
            Outcome::Refused => self.counts.firings_refused += 1,
        }
        let mut judged = Ok(());
        self.change(|model, now_ms| judged = model.apply_firing(&fire, now_ms, Some(outcome)))?;
        judged
    }

    /// A schedule to be set, with a payload that can be told from others.
    pub(super) fn with_payload(&mut self, command: &Command) -> Command {
        let Command::SetSchedule(set) = command else { return command.clone() };
        let mut set: SetSchedule = (**set).clone();
        let len = self.losses.random_range(0..300);
        set.schedule.job.payload = pattern(SALT, len).to_vec();
        Command::SetSchedule(Box::new(set))
    }
}
