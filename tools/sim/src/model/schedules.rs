//! The rules of `docs/schedules.md`, written once more. The model does not read cron: its schedules
//! have times at fixed intervals, in UTC.

use spindle_core::command::{FireSchedule, Occasion, SetSchedule, Submit};
use spindle_core::job::Cause;
use spindle_core::schedule::{Due, Missed, Occurrence, Outcome, Overlap, Progress, Schedule};
use spindle_core::{JobId, Rejection, State};

use super::deletion::is_deleted;
use super::{Model, Refusals};

/// Expressions, and how many milliseconds lie between their times.
pub const EXPRESSIONS: [(&str, u64); 5] = [
    ("every 7s", 7_000),
    ("*/20 * * * * *", 20_000),
    ("* * * * *", 60_000),
    ("every 400s", 400_000),
    ("@hourly", 3_600_000),
];
/// A time that has been due for longer than this is missed.
const LATE_MS: u64 = 60_000;

/// A schedule, and how far it has come.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// What was put.
    pub schedule: Schedule,
    /// How far it has come.
    pub progress: Progress,
}

impl Scheduled {
    fn is_late(&self, now_ms: u64) -> bool {
        self.progress.next.is_some_and(|next| next.fire_ms + LATE_MS < now_ms)
    }
}

/// The first time of a schedule behind a moment.
pub fn time_after(schedule: &Schedule, after_ms: u64) -> Option<Due> {
    let known = EXPRESSIONS.iter().find(|(expression, _)| *expression == schedule.expression);
    let (_, period_ms) = known.expect("the workload has no others");
    let due_ms = (after_ms / period_ms + 1) * period_ms;
    let ends = schedule.end_ms.is_some_and(|end_ms| due_ms > end_ms);
    (!ends).then_some(Due { due_ms, fire_ms: due_ms })
}

impl Model {
    /// The schedules, by name.
    pub fn schedules(&self) -> impl Iterator<Item = &Scheduled> {
        self.schedules.values()
    }

    /// One schedule.
    pub fn scheduled(&self, name: &str) -> Option<&Scheduled> {
        self.schedules.get(name)
    }

    /// The schedule that is to be looked at first, if its time has come.
    pub fn due_schedule(&self, now_ms: u64) -> Option<&Scheduled> {
        let wakes_ms = |it: &&Scheduled| match it.progress.next {
            _ if it.schedule.paused => u64::MAX,
            _ if self.is_free_for_pending(it) => 0,
            next => next.map_or(u64::MAX, |next| next.fire_ms),
        };
        self.schedules().min_by_key(wakes_ms).filter(|it| wakes_ms(it) <= now_ms)
    }

    fn is_free_for_pending(&self, it: &Scheduled) -> bool {
        it.progress.pending_ms.is_some() && self.unfinished_of(it).is_none()
    }

    /// The last job, while it is unfinished and not deleted.
    fn unfinished_of(&self, it: &Scheduled) -> Option<u64> {
        let runs = |id: &u64| {
            let job = self.job(JobId(*id));
            job.is_some_and(|job| !job.status().is_finished() && !is_deleted(job))
        };
        it.progress.last_job.filter(runs)
    }

    /// How a schedule that is due is to be fired, but for its job.
    pub fn firing(&self, it: &Scheduled, now_ms: u64) -> FireSchedule {
        let Scheduled { schedule, progress } = it;
        let (due_ms, occasion) = match (progress.pending_ms, progress.next) {
            (Some(due_ms), _) if self.is_free_for_pending(it) => (due_ms, Occasion::Pending),
            (_, Some(next)) => {
                let on_time_ms = now_ms.saturating_sub(LATE_MS + 1);
                let following = time_after(schedule, next.due_ms);
                let resumed = time_after(schedule, next.due_ms.max(on_time_ms));
                (next.due_ms, Occasion::Due { following, resumed })
            }
            _ => (0, Occasion::Pending),
        };
        let (name, revision) = (schedule.name.clone(), progress.revision);
        FireSchedule { name, revision, due_ms, occasion, job: Submit::default() }
    }

    pub(super) fn refuse_schedule(&self, schedule: &Schedule) -> Refusals {
        let all = schedule.missed() == Missed::All;
        let bad_max = all && !(1..=1000).contains(&schedule.missed_max);
        let bad_queue = schedule.job.queue.is_empty() || schedule.job.queue.len() > 512;
        let bad_name = schedule.name.is_empty() || schedule.name.len() > 100;
        let is_bad = bad_max || bad_queue || bad_name;
        let refusals = Refusals::when(is_bad, Rejection::OutOfRange("schedule"));
        let queue = &schedule.job.queue;
        match self.schedules.get(&schedule.name) {
            Some(known) if known.schedule.job.queue == *queue => refusals,
            _ => self.refuse_place(queue, false, refusals),
        }
    }

    pub(super) fn refuse_unknown_schedule(&self, name: &str) -> Refusals {
        Refusals::when(!self.schedules.contains_key(name), Rejection::NoSchedule)
    }

    pub(super) fn refuse_firing(&self, fire: &FireSchedule, now_ms: u64) -> Refusals {
        let Some(it) = self.schedules.get(&fire.name) else {
            return self.refuse_unknown_schedule(&fire.name);
        };
        let Progress { revision, next, pending_ms, .. } = it.progress;
        let (due_ms, comes) = match fire.occasion {
            Occasion::Now => (Some(fire.due_ms), true),
            Occasion::Pending => (pending_ms, self.unfinished_of(it).is_none()),
            Occasion::Due { .. } => {
                (next.map(|next| next.due_ms), next.is_some_and(|next| next.fire_ms <= now_ms))
            }
        };
        let by_person = fire.occasion == Occasion::Now;
        let refusals = Refusals::when(!by_person && revision != fire.revision, Rejection::Stale)
            .or(due_ms != Some(fire.due_ms), Rejection::Stale)
            .or(!by_person && it.schedule.paused, Rejection::NotDue)
            .or(!comes, Rejection::NotDue);
        let (outcome, replaced) = self.outcome_of(it, fire, now_ms);
        if outcome != Outcome::Submitted || !refusals.is_empty() {
            return refusals;
        }
        let submit = self.with_ended(replaced, now_ms).refuse_submit(&fire.job, now_ms);
        if by_person {
            return submit;
        }
        [Rejection::StaleConstraints, Rejection::IdNotReserved]
            .into_iter()
            .fold(refusals, |refusals, again| refusals.or(submit.must_be(&again), again))
    }

    fn with_ended(&self, replaced: Option<u64>, now_ms: u64) -> Model {
        let mut model = self.clone();
        if let Some(id) = replaced {
            model.kill(id, Cause::Cancelled, now_ms);
        }
        model
    }

    /// The outcome of a time if its job is accepted, and which job is ended for it.
    fn outcome_of(
        &self,
        it: &Scheduled,
        fire: &FireSchedule,
        now_ms: u64,
    ) -> (Outcome, Option<u64>) {
        if !matches!(fire.occasion, Occasion::Due { .. }) {
            return (Outcome::Submitted, None);
        }
        let made_up = match it.schedule.missed() {
            Missed::Skip => false,
            Missed::Once => true,
            Missed::All => it.progress.made_up < it.schedule.missed_max,
        };
        if it.is_late(now_ms) && !made_up {
            return (Outcome::Missed, None);
        }
        match (self.unfinished_of(it), it.schedule.overlap()) {
            (None, _) | (_, Overlap::Allow) => (Outcome::Submitted, None),
            (Some(_), Overlap::Skip) => (Outcome::Overlapped, None),
            (Some(_), Overlap::QueueOne) => (Outcome::Pending, None),
            (Some(last), Overlap::Replace) => (Outcome::Submitted, Some(last)),
        }
    }

    pub(super) fn apply_schedule(&mut self, set: &SetSchedule) {
        self.schedules_revision += 1;
        let SetSchedule { schedule, next } = set;
        let before = self.schedules.remove(&schedule.name).map(|it| it.progress);
        let mut progress = before.unwrap_or_default();
        progress.revision = self.schedules_revision;
        progress.next = *next;
        progress.made_up = 0;
        if schedule.overlap() != Overlap::QueueOne {
            progress.pending_ms = None;
        }
        let scheduled = Scheduled { schedule: schedule.clone(), progress };
        self.schedules.insert(schedule.name.clone(), scheduled);
    }

    pub(super) fn forget_schedule(&mut self, name: &str) {
        self.schedules.remove(name);
    }

    /// A time has come: applies the job and the step of the schedule. `told` is the outcome that
    /// the engine reports; it has to be right.
    pub fn apply_firing(
        &mut self,
        fire: &FireSchedule,
        now_ms: u64,
        told: Option<Outcome>,
    ) -> Result<(), String> {
        let it = self.schedules[&fire.name].clone();
        let (mut outcome, replaced) = self.outcome_of(&it, fire, now_ms);
        let mut progress = it.progress.clone();
        if outcome == Outcome::Submitted {
            let mut then = self.with_ended(replaced, now_ms);
            let refusals = then.refuse_submit(&fire.job, now_ms);
            let refused = match told {
                Some(told) => told == Outcome::Refused && refusals.may_be(),
                None => !refusals.is_empty(),
            };
            if refused {
                outcome = Outcome::Refused;
            } else {
                then.apply_submit(&fire.job, now_ms);
                *self = then;
                progress.last_job = Some(fire.job.id.0);
                progress.submitted += 1;
                if told.is_some() && !refusals.is_empty() {
                    return Err(format!("{fire:?} was accepted, and should be {refusals:?}"));
                }
            }
        }
        if told.is_some_and(|told| told != outcome) {
            return Err(format!("{told:?} came of {fire:?}, and should be {outcome:?}"));
        }
        match fire.occasion {
            Occasion::Now => {}
            Occasion::Pending => progress.pending_ms = None,
            Occasion::Due { following, resumed } => {
                let all = it.schedule.missed() == Missed::All && outcome != Outcome::Missed;
                let late = it.is_late(now_ms);
                progress.made_up = if late && all { progress.made_up + 1 } else { 0 };
                progress.next = if late && !all { resumed } else { following };
                if outcome == Outcome::Pending && progress.pending_ms.is_none() {
                    progress.pending_ms = Some(fire.due_ms);
                }
            }
        }
        let (outcome, reason) = (outcome as i32, String::new());
        progress.last = Some(Occurrence { due_ms: fire.due_ms, at_ms: now_ms, outcome, reason });
        let schedule = it.schedule;
        self.schedules.insert(fire.name.clone(), Scheduled { schedule, progress });
        Ok(())
    }

    pub(super) fn compare_schedules(&self, state: &State) -> Result<(), String> {
        let found: Vec<Scheduled> = state
            .schedules(None)
            .map(|view| {
                let (schedule, mut progress) = (view.schedule.clone(), view.progress.clone());
                // Words for people.
                progress.last.iter_mut().for_each(|last| last.reason.clear());
                Scheduled { schedule, progress }
            })
            .collect();
        if !found.iter().eq(self.schedules()) {
            return Err(format!("schedules should be {:?} and are {found:?}", self.schedules));
        }
        let revision = state.server().schedules_revision;
        if revision != self.schedules_revision {
            return Err(format!("schedules have revision {revision}"));
        }
        Ok(())
    }
}
