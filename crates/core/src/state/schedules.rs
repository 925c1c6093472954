//! Schedules, in the order in which they fire.

use super::*;
use crate::event::{Event, ScheduleFired, ScheduleSet};
use crate::job::JobId;
use crate::schedule::{Progress, Schedule};
use prost::Message as _;

/// A schedule, and the record that has it.
#[derive(Debug, Clone)]
struct Kept {
    schedule: Box<Schedule>,
    progress: Box<Progress>,
    record: u64,
    /// Where it stands in `timers`.
    wakes_ms: Option<u64>,
}

/// A schedule as it is.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleView<'a> {
    /// What was put.
    pub schedule: &'a Schedule,
    /// How far it has come.
    pub progress: &'a Progress,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Schedules {
    by_name: BTreeMap<String, Kept>,
    /// When each is to be looked at next: at 0 if its pending job may come.
    timers: BTreeSet<(u64, String)>,
    /// Schedules with a pending job, by the job that it waits for.
    awaited: BTreeMap<u64, String>,
    /// Roughly how many bytes they all take.
    bytes: u64,
}

impl State {
    pub(super) fn on_schedule_set(&mut self, set: &ScheduleSet, at: Place) {
        let (Some(schedule), Some(progress)) = (&set.schedule, &set.progress) else { return };
        let revision = &mut self.server.schedules_revision;
        *revision = progress.revision.max(*revision);
        let name = schedule.name.clone();
        self.on_schedule_removed(&name);
        self.schedules.bytes += schedule.encoded_len() as u64;
        let kept = Kept {
            schedule: schedule.clone(),
            progress: progress.clone(),
            record: at.position,
            wakes_ms: None,
        };
        self.schedules.by_name.insert(name.clone(), kept);
        self.await_last_job(&name);
        self.set_schedule_timer(&name);
    }

    pub(super) fn on_schedule_removed(&mut self, name: &str) {
        self.forget_awaited(name);
        let Some(kept) = self.schedules.by_name.remove(name) else { return };
        self.schedules.bytes -= kept.schedule.encoded_len() as u64;
        if let Some(wakes_ms) = kept.wakes_ms {
            self.schedules.timers.remove(&(wakes_ms, name.to_owned()));
        }
    }

    pub(super) fn on_schedule_fired(&mut self, fired: &ScheduleFired) {
        let Some(progress) = &fired.progress else { return };
        self.forget_awaited(&fired.name);
        let Some(kept) = self.schedules.by_name.get_mut(&fired.name) else { return };
        kept.progress.clone_from(progress);
        self.await_last_job(&fired.name);
        self.set_schedule_timer(&fired.name);
    }

    /// The last job of a schedule with a pending one may have ended, or run again.
    pub(super) fn note_job_of_schedule(&mut self, event: &Event) {
        if self.schedules.awaited.is_empty() {
            return;
        }
        let gone = match event {
            Event::Gone(gone) => &gone.ids[..],
            _ => &[],
        };
        let changed = match event {
            Event::Deleted(deleted) => Some(deleted.id),
            Event::Undeleted(undeleted) => Some(undeleted.id),
            _ => event.image().map(|image| image.id),
        };
        for id in gone.iter().copied().chain(changed) {
            if let Some(name) = self.schedules.awaited.get(&id).cloned() {
                self.set_schedule_timer(&name);
            }
        }
    }

    /// Whether a schedule waits for a job. One that is deleted has ended, even if that can be undone.
    pub(crate) fn is_unfinished(&self, id: JobId) -> bool {
        self.find_live(id).is_some() && self.deletion(id).is_none()
    }

    fn forget_awaited(&mut self, name: &str) {
        let job = self.schedules.by_name.get(name).and_then(|kept| kept.progress.last_job);
        if let Some(job) = job {
            self.schedules.awaited.remove(&job);
        }
    }

    fn await_last_job(&mut self, name: &str) {
        let Some(kept) = self.schedules.by_name.get(name) else { return };
        if let (Some(job), Some(_)) = (kept.progress.last_job, kept.progress.pending_ms) {
            self.schedules.awaited.insert(job, name.to_owned());
        }
    }

    fn set_schedule_timer(&mut self, name: &str) {
        let Some(kept) = self.schedules.by_name.get(name) else { return };
        let Progress { next, pending_ms, last_job, .. } = &*kept.progress;
        let is_free = last_job.is_none_or(|id| !self.is_unfinished(JobId(id)));
        let pending = pending_ms.filter(|_| is_free).map(|_| 0);
        let wakes_ms = pending.or(next.map(|next| next.fire_ms));
        let wakes_ms = wakes_ms.filter(|_| !kept.schedule.paused);
        let Schedules { by_name, timers, .. } = &mut self.schedules;
        let Some(kept) = by_name.get_mut(name) else { return };
        if let Some(before) = std::mem::replace(&mut kept.wakes_ms, wakes_ms) {
            timers.remove(&(before, name.to_owned()));
        }
        if let Some(wakes_ms) = wakes_ms {
            timers.insert((wakes_ms, name.to_owned()));
        }
    }

    /// A schedule.
    pub fn schedule(&self, name: &str) -> Option<ScheduleView<'_>> {
        self.schedules.by_name.get(name).map(view)
    }

    /// Schedules in the order of their names, those after `after`.
    pub fn schedules<'a>(
        &'a self,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = ScheduleView<'a>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.schedules.by_name.range::<str, _>((from, Unbounded)).map(|(_, kept)| view(kept))
    }

    /// How many schedules there are.
    pub fn schedules_count(&self) -> usize {
        self.schedules.by_name.len()
    }

    /// Roughly how many bytes schedules take on disk.
    pub fn schedules_bytes(&self) -> u64 {
        self.schedules.bytes
    }

    /// When a schedule is to be looked at next. Unlike jobs' deadlines this is not part of a tick,
    /// because the times that follow are computed outside the core.
    pub fn next_firing(&self) -> Option<u64> {
        self.schedules.timers.first().map(|(wakes_ms, _)| *wakes_ms)
    }

    /// Schedules that are to be looked at by now, the earliest first.
    pub fn due_schedules(&self, now_ms: u64) -> impl Iterator<Item = ScheduleView<'_>> {
        let due = self.schedules.timers.iter().take_while(move |(wakes_ms, _)| *wakes_ms <= now_ms);
        due.filter_map(|(_, name)| self.schedule(name))
    }

    /// Schedules that need a record below this position.
    pub(super) fn schedules_needing(&self, below: u64) -> impl Iterator<Item = &str> {
        let old = self.schedules.by_name.iter().filter(move |(_, kept)| kept.record < below);
        old.map(|(name, _)| name.as_str())
    }

    /// A planted fault: no schedule is looked at any more.
    #[doc(hidden)]
    pub fn forget_schedule_timers(&mut self) {
        self.schedules.timers.clear();
        self.schedules.by_name.values_mut().for_each(|kept| kept.wakes_ms = None);
    }
}

fn view(kept: &Kept) -> ScheduleView<'_> {
    ScheduleView { schedule: &kept.schedule, progress: &kept.progress }
}
