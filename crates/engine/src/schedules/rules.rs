//! Putting, pausing, removing and running schedules, and looking at them.

use spindle_core::audit::Action;
use spindle_core::command::{FireSchedule, Occasion, SetSchedule, Submit};
use spindle_core::schedule::{Occurrence, Outcome, Progress, Schedule};
use spindle_core::state::ScheduleView;
use spindle_core::{Command, JobId, Rejection};
use spindle_schedule::Timing;

use super::firing::JobOf;
use crate::answer::Refused;
use crate::audit::{Deed, People};
use crate::constraints::Expected;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Schedules;

/// A schedule that was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutSchedule {
    /// It is new.
    pub created: bool,
    /// It is another one than before.
    pub changed: bool,
    /// Its revision now.
    pub revision: u64,
}

/// A schedule, as it is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleNow {
    /// What was put.
    pub schedule: Schedule,
    /// How far it has come.
    pub progress: Progress,
    /// The job that it submitted last is unfinished.
    pub is_running: bool,
}

/// Some schedules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SchedulePage {
    /// In the order of their names.
    pub schedules: Vec<ScheduleNow>,
    /// The name to go on behind; none at the end.
    pub next: Option<String>,
}

/// Schedules that are looked at in one hold of the lock.
const SCANNED_MAX: usize = 512;

impl Schedules<'_> {
    /// One schedule.
    pub fn get(&self, name: &str) -> Gated<Option<ScheduleNow>> {
        self.0.read(|inner| inner.state.schedule(name).map(|view| inner.shown(view)))
    }

    /// Schedules in the order of their names, those behind `after`; with `outcomes` only those whose newest time had
    /// one of these outcomes. A page may have fewer than `limit`, and yet not be the last.
    pub fn list(
        &self,
        after: Option<&str>,
        limit: usize,
        outcomes: Option<&[Outcome]>,
    ) -> Gated<SchedulePage> {
        let is_wanted = |view: &ScheduleView<'_>| {
            let last = view.progress.last.as_ref().map(Occurrence::outcome);
            outcomes.is_none_or(|outcomes| last.is_some_and(|last| outcomes.contains(&last)))
        };
        self.0.read(|inner| {
            let mut views = inner.state.schedules(after);
            let (mut page, mut last) = (SchedulePage::default(), None);
            for view in views.by_ref().take(SCANNED_MAX) {
                last = Some(&view.schedule.name);
                if is_wanted(&view) {
                    page.schedules.push(inner.shown(view));
                }
                if page.schedules.len() == limit {
                    break;
                }
            }
            page.next = last.filter(|_| views.next().is_some()).cloned();
            page
        })
    }
}

impl People<'_> {
    /// Puts a schedule, new or changed. One whose times stay the same keeps its next one; else it
    /// goes on with the first time from now. Putting what is there already changes nothing.
    pub fn put_schedule(
        self,
        schedule: &Schedule,
        timing: &Timing,
        expected: Expected,
    ) -> Gated<Result<PutSchedule, Refused>> {
        let from_now = timing.after(self.engine.now_ms());
        let put = self.engine.change(|inner| {
            let known = inner.state.schedule(&schedule.name);
            check_expected(known, expected)?;
            let created = known.is_none();
            if created {
                self.engine.check_length()?;
            }
            if let Some(same) = known.filter(|known| known.schedule == schedule) {
                let revision = same.progress.revision;
                return Ok(PutSchedule { created, changed: false, revision });
            }
            let goes_on = known.filter(|known| {
                known.schedule.has_times_of(schedule) && known.schedule.paused <= schedule.paused
            });
            let next = goes_on.map_or(from_now, |known| known.progress.next);
            let action = match known {
                Some(known) if known.schedule.paused != schedule.paused => {
                    if schedule.paused {
                        Action::PauseSchedule
                    } else {
                        Action::ResumeSchedule
                    }
                }
                _ => Action::PutSchedule,
            };
            let deed = Deed::to_schedule(action, schedule, put_words(schedule, created));
            let set = SetSchedule { schedule: schedule.clone(), next };
            let command = Command::SetSchedule(Box::new(set));
            inner.run_for(self.audit, deed, Some(command), None)?;
            let revision = inner.state.server().schedules_revision;
            Ok(PutSchedule { created, changed: true, revision })
        });
        self.engine.shared.timer.ring();
        put
    }

    /// Removes a schedule. Its jobs stay.
    pub fn remove_schedule(self, name: &str, expected: Expected) -> Gated<Result<(), Refused>> {
        self.engine.change(|inner| {
            let known = inner.state.schedule(name);
            check_expected(known, expected)?;
            let schedule = known.ok_or(Rejection::NoSchedule)?.schedule;
            let deed = Deed::to_schedule(Action::RemoveSchedule, schedule, String::new());
            let remove = Command::RemoveSchedule { name: name.to_owned() };
            Ok(inner.run_for(self.audit, deed, Some(remove), None)?)
        })
    }

    /// Submits a schedule's job now, whatever its times are and whether its last job runs.
    pub fn run_schedule(
        self,
        schedule: &Schedule,
        expected: Expected,
    ) -> Gated<Result<JobId, Refused>> {
        let mut job = JobOf(schedule).new_job();
        let mut inner = self.engine.enter_matched(&mut job);
        let run = self.engine.check_space().and_then(|()| {
            check_expected(inner.state.schedule(&schedule.name), expected)?;
            let fire = FireSchedule {
                name: schedule.name.clone(),
                revision: 0,
                due_ms: inner.now_ms,
                occasion: Occasion::Now,
                job: Submit::default(),
            };
            let deed = Deed::to_schedule(Action::RunSchedule, schedule, String::new());
            let id = inner.fire(fire, job, Some((self.audit, deed)))?;
            Ok(id.ok_or(Rejection::NotDue)?)
        });
        let run = inner.changed(run);
        self.engine.leave(inner);
        run
    }
}

/// What is put, for people. Nothing of the payload.
fn put_words(schedule: &Schedule, created: bool) -> String {
    let new = if created { "new, " } else { "" };
    format!("{new}{} in {}", schedule.expression, schedule.zone)
}

fn check_expected(known: Option<ScheduleView<'_>>, expected: Expected) -> Result<(), Rejection> {
    match (expected, known) {
        (Expected::Any, _) | (Expected::Nothing, None) => Ok(()),
        (Expected::Nothing, Some(_)) => Err(Rejection::Stale),
        (Expected::Revision(_), None) => Err(Rejection::NoSchedule),
        (Expected::Revision(wanted), Some(known)) if known.progress.revision == wanted => Ok(()),
        (Expected::Revision(_), Some(_)) => Err(Rejection::Stale),
    }
}

impl Inner {
    fn shown(&self, view: ScheduleView<'_>) -> ScheduleNow {
        let last = view.progress.last_job.and_then(|id| self.state.status(JobId(id)));
        ScheduleNow {
            schedule: view.schedule.clone(),
            progress: view.progress.clone(),
            is_running: last.is_some_and(|status| !status.is_finished()),
        }
    }
}
