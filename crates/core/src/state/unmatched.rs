//! A constraint that lets none of its jobs start (`running_max` 0) holds from the moment it is set.
//! New jobs are matched before they are accepted; existing jobs are matched one after the other, in
//! the order of their numbers. Until its turn comes, a job of a queue that the constraint takes
//! does not start: it is not known yet whether it falls under the constraint.
//!
//! Other limits do not need this: until all jobs are matched, more may run than they allow.

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::event::ConstraintSet;
use crate::job::JobId;
use crate::queue::QueuePattern;

/// Groups that compete again in one step; as many jobs as are matched in one.
const FREED_AT_ONCE: usize = 512;

/// A constraint that lets none start, while existing jobs are still to be matched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stop {
    /// Jobs that existed before have numbers below this.
    below: u64,
    /// The revision it was set with.
    revision: u64,
    /// None if its matcher cannot be read: then it takes no queue.
    queues: Option<QueuePattern>,
}

impl Stop {
    fn takes(&self, queue: &[u8]) -> bool {
        self.queues.as_ref().is_some_and(|pattern| pattern.takes(queue))
    }
}

/// The jobs that may not start because they are still to be matched.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unmatched {
    /// By the constraint's number.
    stops: BTreeMap<u32, Stop>,
    /// Groups that do not compete, by the number of their first job: queue and group. A group is
    /// entered when a lease meets it.
    groups: BTreeMap<u64, (u32, u32)>,
    /// Those groups whose first job has a number below this are to compete again.
    freed_below: u64,
}

impl Unmatched {
    /// A held group has another first job now.
    pub(crate) fn forget_group(&mut self, id: u64) {
        self.groups.remove(&id);
    }
}

impl State {
    /// All jobs there are have numbers below this.
    pub(crate) fn ids_end(&self) -> u64 {
        self.by_id.last().map_or(0, |handle| self.id_of(handle).saturating_add(1))
    }

    /// Jobs numbered below this may still have to be matched against a constraint that lets none
    /// start; 0 if it is no such constraint, or all have been.
    pub fn unmatched_below(&self, number: u32) -> u64 {
        self.unmatched.stops.get(&number).map_or(0, |stop| stop.below)
    }

    /// Whether jobs are kept from starting until they are matched.
    pub fn has_unmatched(&self) -> bool {
        !self.unmatched.stops.is_empty()
    }

    /// The jobs that a constraint keeps from starting, as far as its queues go.
    fn kept_by(&self, stop: &Stop) -> Range<u64> {
        let server = &self.server;
        let matched = server.relabelled_revision >= stop.revision;
        (if matched { server.relabelled_below } else { 0 })..stop.below
    }

    /// Numbers of jobs of a queue that may not start because they are still to be matched.
    pub(crate) fn unmatched_in(&self, queue: &[u8]) -> Vec<Range<u64>> {
        let stops = self.unmatched.stops.values().filter(|stop| stop.takes(queue));
        stops.map(|stop| self.kept_by(stop)).filter(|range| !range.is_empty()).collect()
    }

    /// The constraints that keep a job from starting until it is matched.
    pub fn unmatched_by(&self, queue: &[u8], id: JobId) -> impl Iterator<Item = &Constraint> {
        let keeps = move |stop: &Stop| self.kept_by(stop).contains(&id.0) && stop.takes(queue);
        let stops = self.unmatched.stops.iter().filter(move |(_, stop)| keeps(stop));
        stops.filter_map(|(number, _)| self.constraint(*number))
    }

    // ---- how it begins and ends ----

    /// A constraint was set, or compacted.
    pub(super) fn note_stop(&mut self, set: &ConstraintSet, revision: u64, changed: bool) {
        let number = set.constraint.number;
        if !changed {
            return;
        }
        self.forget_stop(number);
        if set.unmatched_below > 0 {
            let queues = QueuePattern::decode(&set.constraint.matcher).ok();
            let stop = Stop { below: set.unmatched_below, revision, queues };
            self.unmatched.stops.insert(number, stop);
        }
    }

    /// The constraint is another one, or gone: the groups it held compete again.
    pub(super) fn forget_stop(&mut self, number: u32) {
        if self.unmatched.stops.remove(&number).is_some() {
            self.unmatched.freed_below = u64::MAX;
        }
    }

    /// More of the existing jobs are matched.
    pub(super) fn on_relabelled_further(&mut self) {
        let (revision, below) = (self.server.relabelled_revision, self.server.relabelled_below);
        let Unmatched { stops, groups, freed_below } = &mut self.unmatched;
        if stops.is_empty() && groups.is_empty() {
            return;
        }
        if below == u64::MAX {
            stops.retain(|_, stop| stop.revision > revision);
        }
        *freed_below = below.max(*freed_below);
        self.release_groups();
    }

    // ---- held groups ----

    /// The first job of a group is still to be matched: the group does not compete until it is, or
    /// until another job comes first. This is not logged.
    pub(crate) fn hold_unmatched(&mut self, queue_number: u32, number: u32) {
        let State { jobs, queues, unmatched, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        queue.stand_back(number);
        let Some(group) = queue.groups.find_mut(number) else { return };
        let Some(first) = group.ready.first() else { return };
        let id = jobs.live[first].id();
        group.unmatched_head = Some(id);
        unmatched.groups.insert(id, (queue_number, number));
        // Other groups wait for what this one finds out about its bucket.
        if let Some(label) = queue.end_probe(number) {
            self.promote(label, queue_number);
        }
    }

    /// Whether held groups are to compete again.
    pub(super) fn releases_groups(&self) -> bool {
        self.unmatched.freed_below > 0
    }

    /// Lets some groups compete again. The next lease again holds those whose first job still may
    /// not start.
    pub(super) fn release_groups(&mut self) {
        for _ in 0..FREED_AT_ONCE {
            match self.unmatched.groups.first_key_value().map(|(id, at)| (*id, *at)) {
                Some((id, at)) if id < self.unmatched.freed_below => {
                    self.unmatched.groups.remove(&id);
                    self.compete_again(at);
                }
                _ => {
                    self.unmatched.freed_below = 0;
                    return;
                }
            }
        }
    }

    fn compete_again(&mut self, (queue_number, number): (u32, u32)) {
        let State { queues, promoted, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        let Some(group) = queue.groups.find_mut(number) else { return };
        group.unmatched_head = None;
        queue.compete(number);
        promoted.insert(queue_number);
    }
}
