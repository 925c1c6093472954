//! What time alone changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::job::Cause;
use spindle_core::{JobImage, Status};

use super::Model;

impl Model {
    /// Everything that is due by now happens, and surplus finished jobs go.
    pub fn tick(&mut self, now_ms: u64, hold_expiry: bool) {
        let held = std::mem::replace(&mut self.holds_expiry, hold_expiry);
        loop {
            self.happen_what_is_due(now_ms, usize::MAX, None);
            if !self.drop_surplus(|_| true) {
                break;
            }
        }
        self.holds_expiry = held;
    }

    /// Everything that is due by now happens, earliest first, in the steps of the core: at most so many of them. Jobs
    /// due at the same instant share their place in the order: any of them may go first. Dependents of what has ended
    /// are settled before anything goes. What ends because of that may go at once: `between` gets how it stands
    /// before.
    pub fn happen_what_is_due(
        &mut self,
        now_ms: u64,
        steps_max: usize,
        mut between: Option<&mut Vec<Model>>,
    ) {
        self.latest_ms = self.latest_ms.max(now_ms);
        for _ in 0..steps_max {
            self.count_batches(now_ms);
            self.tie();
            let settled = self.settle_dependents(now_ms);
            self.untie();
            let expired = !settled && self.expire(now_ms);
            self.settle_turns();
            let ran = !settled && self.run_timers(now_ms);
            if !settled && !expired && !ran {
                return;
            }
            if let Some(between) = between.as_deref_mut() {
                between.push(self.clone());
            }
        }
    }

    fn expire(&mut self, now_ms: u64) -> bool {
        let before = self.jobs.len();
        if !self.holds_expiry {
            self.jobs.retain(|_, job| goes_ms(job).is_none_or(|at| at > now_ms));
        }
        let any_batch = !self.holds_expiry && self.forget_batches(now_ms);
        self.jobs.len() < before || any_batch
    }

    fn run_timers(&mut self, now_ms: u64) -> bool {
        let mut instant = None;
        let mut any = false;
        let mut tied_ms = None;
        while let Some((due, id)) = self.next_due(now_ms) {
            any = true;
            if tied_ms.replace(due) != Some(due) {
                self.tie();
            }
            let before = self.jobs[&id].order;
            if self.jobs[&id].status() == Status::Leased {
                self.give_back(id, Cause::Timeout, now_ms);
            } else {
                let order = if before == 0 { self.take_order() } else { before };
                let job = self.revise(id);
                job.status = Status::Ready as i32;
                job.order = order;
            }
            let given = self.jobs.get(&id).map_or(before, |job| job.order);
            if given != before {
                match instant {
                    Some((same, shared)) if same == due => self.change(id).order = shared,
                    _ => instant = Some((due, given)),
                }
            }
        }
        self.untie();
        any
    }

    /// The clock was set forward. Workers did not have that time, so leases keep what they had
    /// left.
    pub fn set_forward(&mut self, before_ms: u64, now_ms: u64) {
        let leased = self.jobs().filter(|job| job.lease.is_some()).map(|job| job.id);
        for id in leased.collect::<Vec<_>>() {
            let Some(deadline_ms) = self.jobs[&id].lease.as_ref().and_then(|it| it.deadline_ms)
            else {
                continue;
            };
            let left_ms = deadline_ms.saturating_sub(before_ms);
            let lease = self.revise(id).lease.as_mut().expect("seen above");
            lease.deadline_ms = Some(now_ms.saturating_add(left_ms));
        }
    }

    /// Queues and the server keep the finished jobs that ended last, each up to its limit. Of the
    /// surplus ones, those that `may_go` allows go. Returns whether any went.
    pub fn drop_surplus(&mut self, may_go: impl Fn(u64) -> bool) -> bool {
        let before = self.jobs.len();
        let mut oldest: Vec<(u64, u64)> = self
            .jobs()
            .filter(|job| job.status().is_finished())
            .map(|job| (job.finished_ms.unwrap_or(0) / 1000, job.id))
            .collect();
        oldest.sort_unstable();
        let mut kept: BTreeMap<Bytes, u64> = BTreeMap::new();
        for (_, id) in &oldest {
            *kept.entry(self.jobs[id].queue.clone()).or_default() += 1;
        }
        for (_, id) in &oldest {
            let queue = self.jobs[id].queue.clone();
            let max = self.settings(&queue).finished_max.unwrap_or(u64::MAX);
            let kept = kept.entry(queue).or_default();
            if *kept > max && may_go(*id) {
                *kept -= 1;
                self.jobs.remove(id);
            }
        }
        oldest.retain(|(_, id)| self.jobs.contains_key(id));
        let surplus = oldest.len().saturating_sub(self.defaults.finished_max);
        for (_, id) in oldest.into_iter().take(surplus).filter(|(_, id)| may_go(*id)) {
            self.jobs.remove(&id);
        }
        self.settle_turns();
        self.jobs.len() < before
    }

    /// The lease or schedule that is due first.
    fn next_due(&self, now_ms: u64) -> Option<(u64, u64)> {
        let due = |job: &JobImage| match job.status() {
            Status::Scheduled => job.options().run_at_ms,
            Status::Leased => job.lease.as_ref().and_then(|lease| lease.deadline_ms),
            _ => None,
        };
        self.jobs()
            .filter_map(|job| due(job).map(|at| (at, job.id)))
            .filter(|(at, _)| *at <= now_ms)
            .min()
    }
}

/// When a job is removed by time.
pub(super) fn goes_ms(job: &JobImage) -> Option<u64> {
    let ends_ms = if job.status().is_finished() { job.kept_until_ms } else { job.expires_ms() };
    let deleted_ms = job.options().deletion.as_ref().map(|deletion| deletion.gone_ms);
    ends_ms.into_iter().chain(deleted_ms).min()
}
