//! Firing what is due, one bounded step at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use spindle_core::command::{FireSchedule, Occasion, Submit};
use spindle_core::schedule::{Due, JobTemplate, SCHEDULES_MAX, Schedule};
use spindle_core::state::ScheduleView;
use spindle_core::{BytesRef, Command, JobId, Rejection, Type};
use spindle_schedule::Timing;

use crate::audit::{Audit, Deed};
use crate::call::NewJob;
use crate::commit::Payload;
use crate::engine::Engine;
use crate::inner::Inner;
use crate::wait::HELD_MS;

/// Schedules looked at in one step: others come in between.
pub(crate) const FIRED_AT_ONCE: usize = 64;

/// What the texts of schedules mean, so that each is read once.
#[derive(Default)]
pub(crate) struct Timings(Mutex<BTreeMap<String, (u64, Arc<Timing>)>>);

impl Timings {
    /// None for texts that this version cannot read.
    fn of(&self, schedule: &Schedule, revision: u64) -> Option<Arc<Timing>> {
        let mut known = self.0.lock();
        if let Some((of, timing)) = known.get(&schedule.name)
            && *of == revision
        {
            return Some(timing.clone());
        }
        let timing = Timing::of(schedule).inspect_err(|error| {
            tracing::error!(
                "schedule {} does not fire again until it is put anew: {error}",
                schedule.name
            );
        });
        let timing = Arc::new(timing.ok()?);
        // Schedules that were removed are among them.
        if known.len() >= SCHEDULES_MAX {
            known.clear();
        }
        known.insert(schedule.name.clone(), (revision, timing.clone()));
        Some(timing)
    }
}

/// A schedule that is due, as it was when the lock was held.
struct Found {
    schedule: Schedule,
    revision: u64,
    next: Option<Due>,
    pending_ms: Option<u64>,
    now_ms: u64,
}

impl Found {
    fn new(view: ScheduleView<'_>, now_ms: u64) -> Found {
        let progress = view.progress;
        Found {
            schedule: view.schedule.clone(),
            revision: progress.revision,
            next: progress.next,
            pending_ms: progress.pending_ms,
            now_ms,
        }
    }

    fn fire(&self, due_ms: u64, occasion: Occasion) -> FireSchedule {
        let name = self.schedule.name.clone();
        FireSchedule { name, revision: self.revision, due_ms, occasion, job: Submit::default() }
    }
}

impl JobOf<'_> {
    /// The job as it comes in, and what is to be logged for it.
    pub fn new_job(&self) -> NewJob {
        let kind = Type::try_from(self.0.job.payload_type).unwrap_or(Type::Bytes);
        let JobTemplate { payload, .. } = &self.0.job;
        let payload = Payload::new(Bytes::copy_from_slice(payload), kind);
        let submit = self.0.job.submit(&self.0.name, JobId(0), BytesRef::empty(kind));
        NewJob { submit, payload: payload.with_checksum() }
    }
}

/// The job of a schedule.
pub(super) struct JobOf<'a>(pub &'a Schedule);

impl Engine {
    /// Looks at schedules that are due, at most this many. Returns whether there may be more. The
    /// timer calls this, and the simulator.
    pub fn fire_schedules(&self, most: usize) -> bool {
        let due = self.due_schedules(most);
        due.iter().for_each(|found| self.fire(found));
        !due.is_empty() && due.len() == most
    }

    /// While the clock is not believed, the server stops, or there is no room for new jobs, no
    /// schedule is due: times that pass meanwhile are treated as missed.
    fn due_schedules(&self, most: usize) -> Vec<Found> {
        let has_room = self.check_space().is_ok();
        let mut inner = self.enter();
        inner.holds_schedules = !has_room || inner.holds_timers;
        let now_ms = inner.now_ms;
        if inner.holds_schedules || inner.hold_expiry || inner.stopping {
            return Vec::new();
        }
        let due = inner.state.due_schedules(now_ms).take(most);
        due.map(|view| Found::new(view, now_ms)).collect()
    }

    /// Times are computed without the lock: the core refuses a time that is no longer the next one.
    fn fire(&self, found: &Found) {
        let mut occasions = Vec::with_capacity(2);
        occasions.extend(found.pending_ms.map(|due_ms| found.fire(due_ms, Occasion::Pending)));
        occasions.extend(found.next.map(|next| {
            let timing = self.shared.timings.of(&found.schedule, found.revision);
            let following = timing.as_ref().and_then(|timing| timing.after(next.due_ms));
            let resumed = timing.and_then(|timing| timing.resumed(next, found.now_ms));
            found.fire(next.due_ms, Occasion::Due { following, resumed })
        }));
        let mut job = JobOf(&found.schedule).new_job();
        let mut inner = self.enter_matched(&mut job);
        // The pending job comes first, if the core admits it.
        let now_ms = inner.now_ms;
        let due = occasions.into_iter().find(|fire| inner.state.fires(fire, now_ms).is_ok());
        if let Some(fire) = due {
            // Another caller was faster: nothing is left to do.
            inner.fire(fire, job, None).ok();
        }
        self.leave(inner);
    }
}

impl Inner {
    /// When schedules are to be looked at next.
    pub(crate) fn next_firing(&self) -> Option<u64> {
        if self.hold_expiry || self.stopping {
            return None;
        }
        let holds = self.holds_schedules || self.holds_timers;
        let earliest = if holds { self.now_ms.saturating_add(HELD_MS) } else { 0 };
        self.state.next_firing().map(|due| due.max(earliest))
    }

    /// The job, if one comes, and the step of its schedule in one record. Returns the job.
    pub(super) fn fire(
        &mut self,
        mut fire: FireSchedule,
        job: NewJob,
        by: Option<(&mut Audit, Deed)>,
    ) -> Result<Option<JobId>, Rejection> {
        let comes = self.state.fires(&fire, self.now_ms)?;
        let name = fire.name.clone();
        fire.job = job.submit;
        if comes {
            fire.job.id = self.take_id();
            fire.job.payload = self.batch.place_for(&job.payload);
        }
        let id = fire.job.id;
        let payload = comes.then_some(&job.payload);
        let command = Command::FireSchedule(Box::new(fire));
        let done = match by {
            Some((audit, deed)) => self.run_for(audit, deed, Some(command), payload),
            None => self.apply_together(&command, payload).map(|()| self.serve_waiting()),
        };
        let last = self.state.schedule(&name).and_then(|view| view.progress.last_job);
        let submitted = comes && done.is_ok() && last == Some(id.0);
        if comes && !submitted {
            self.return_id(id);
        }
        done.map(|()| submitted.then_some(id))
    }
}
