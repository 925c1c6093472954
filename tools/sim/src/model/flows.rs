//! Jobs that wait for others.

use std::collections::BTreeMap;

use spindle_core::command::Submit;
use spindle_core::job::{After, OnDead, Outcome};
use spindle_core::{JobId, Rejection, Status};

use super::deletion::is_deleted;
use super::refuse::Refusals;
use super::{Model, waiting};

/// How a job stands for those that wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stands {
    Open,
    Done,
    Dead,
    Gone,
}

impl Model {
    pub(super) fn refuse_after(&self, submit: &Submit, refusals: Refusals) -> Refusals {
        submit.after.iter().fold(refusals, |refusals, id| {
            let job = self.job(*id);
            let is_there = job.is_some_and(|job| !is_deleted(job) && !job.foreground);
            let is_there = is_there || self.batches.contains_key(&id.0);
            refusals.or(!is_there, Rejection::NoBlocker(*id))
        })
    }

    /// The jobs that a new job waits for.
    pub(super) fn after(&self, submit: &Submit) -> Option<Box<After>> {
        let mut jobs: Vec<u64> = submit.after.iter().map(|id| id.0).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let goes_on = |id: &u64| match self.stands(*id) {
            Stands::Done => true,
            Stands::Open => false,
            Stands::Dead | Stands::Gone => submit.on_dead == OnDead::Run,
        };
        let open = jobs.iter().copied().filter(|id| !goes_on(id)).collect();
        let on_dead = submit.on_dead as i32;
        (!jobs.is_empty()).then(|| Box::new(After { jobs, on_dead, open, cancelled_by: 0 }))
    }

    /// A job that runs again waits for those that have not finished.
    pub(super) fn wait_again_for_others(&mut self, id: u64) {
        let Some(after) = self.jobs[&id].options().after.clone() else { return };
        let batch = match self.jobs[&id].options().batch {
            0 => id,
            batch => batch,
        };
        let open: Vec<u64> = after
            .jobs
            .iter()
            .copied()
            .filter(|other| self.stands(*other) == Stands::Open)
            // A job does not wait for one that waits for it.
            .filter(|other| !self.leads_to(*other, id, batch))
            .collect();
        let job = self.change(id);
        if !open.is_empty() {
            job.status = Status::Blocked as i32;
        }
        job.options_mut().after = Some(Box::new(After { open, cancelled_by: 0, ..*after }));
    }

    fn stands(&self, id: u64) -> Stands {
        if let Some(batch) = self.batches.get(&id) {
            return batch.stands();
        }
        match self.job(JobId(id)).map(|job| job.status()) {
            Some(Status::Done) => Stands::Done,
            Some(Status::Dead) => Stands::Dead,
            Some(_) => Stands::Open,
            None if self.were_done.contains(&id) => Stands::Done,
            None => Stands::Gone,
        }
    }

    /// All that wait for jobs that have ended go on, wait for fewer, or are cancelled. Whether there were any.
    pub(super) fn settle_dependents(&mut self, now_ms: u64) -> bool {
        let done = |id: &u64| self.jobs.get(id).is_none_or(|job| job.status() == Status::Done);
        let were_done = self.were_done.iter().copied().filter(done).collect();
        self.were_done = were_done;
        let waiting = self.jobs().filter(|job| !job.options().open().is_empty());
        let dependents: BTreeMap<u64, (Vec<u64>, Option<u64>)> =
            waiting.map(|job| (job.id, self.ended_for(job.options()))).collect();
        let mut order = None;
        let mut any = false;
        for (id, (ended, bad)) in dependents {
            if ended.is_empty() {
                continue;
            }
            any = true;
            if let Some(because_of) = bad.filter(|_| !is_deleted(&self.jobs[&id])) {
                self.cancel_after(id, because_of, now_ms);
            } else {
                self.release(id, &ended, bad, &mut order, now_ms);
            }
        }
        any
    }

    /// Which jobs a job no longer has to wait for, and which of them cancels it.
    fn ended_for(&self, options: &spindle_core::job::JobOptions) -> (Vec<u64>, Option<u64>) {
        let on_dead = options.after.as_ref().map_or(OnDead::Cancel, |after| after.on_dead());
        let has_ended = |id: &u64| match self.stands(*id) {
            Stands::Open => false,
            Stands::Dead => on_dead != OnDead::Wait,
            Stands::Done | Stands::Gone => true,
        };
        let ended: Vec<u64> = options.open().iter().copied().filter(has_ended).collect();
        let cancels = |id: &u64| on_dead != OnDead::Run && self.stands(*id) != Stands::Done;
        let bad = ended.iter().copied().find(cancels);
        (ended, bad)
    }

    /// All that are ready by this at one instant share their place in the order.
    fn release(
        &mut self,
        id: u64,
        ended: &[u64],
        bad: Option<u64>,
        order: &mut Option<u64>,
        now_ms: u64,
    ) {
        let job = self.revise(id);
        let after = job.options_mut().after.as_mut().expect("it waits");
        after.open.retain(|id| !ended.contains(id));
        after.cancelled_by = bad.unwrap_or(after.cancelled_by);
        if job.status() != Status::Blocked || !job.options().open().is_empty() {
            return;
        }
        let run_at_ms = job.options().run_at_ms.filter(|at| *at > now_ms);
        job.options_mut().run_at_ms = run_at_ms;
        let status = waiting(false, false, run_at_ms.is_some());
        job.status = status as i32;
        if status == Status::Ready && job.order == 0 {
            let order = *order.get_or_insert_with(|| self.take_order());
            self.change(id).order = order;
        }
    }

    /// A job is cancelled because of one that it waited for.
    pub(super) fn cancel_after(&mut self, id: u64, because_of: u64, now_ms: u64) {
        let is_dead = self.stands(because_of) == Stands::Dead;
        let (code, what) = if is_dead { ("after_dead", "dead") } else { ("after_gone", "gone") };
        let message = match self.batches.get(&because_of).map(|batch| batch.counts()) {
            None => format!("job {because_of}, which it waited for, is {what}"),
            Some(counts) => {
                let left = if is_dead { counts.dead } else { counts.gone };
                format!("batch {because_of}, which it waited for, has jobs that are {what}: {left}")
            }
        };
        let message = message.into();
        let outcome = Outcome { code: code.into(), message, ..Outcome::default() };
        self.end_job(id, Status::Dead, Some(outcome), now_ms);
    }
}
