//! Which of a door's jobs have changed.

use std::collections::{BTreeMap, BTreeSet};

use spindle_core::Event;
use spindle_core::job::Origin;

/// More changes than this are not remembered one by one: then all jobs are taken again.
const CHANGES_MAX: usize = 1 << 17;

/// Which jobs came through the door whose jobs are copied, and which of them have changed since they
/// were last taken.
#[derive(Debug, Default)]
pub(crate) struct ChangeSet {
    door: Option<Origin>,
    ids: BTreeSet<u64>,
    /// With a flag: whether the payload may be another one.
    changed: BTreeMap<u64, bool>,
    /// What was in `changed` when this round began. New changes wait for the next, so that a round
    /// has an end however fast jobs change.
    round: BTreeMap<u64, bool>,
    /// All jobs from this one on are to be taken.
    walk: Option<u64>,
    /// The next slice is the first of a walk.
    restart: bool,
}

impl ChangeSet {
    /// Follows the jobs of a door; without a door, follows none.
    pub fn of(door: Option<Origin>) -> ChangeSet {
        ChangeSet { door, ..ChangeSet::default() }
    }

    /// Notes what an event says of the door's jobs. Others cost next to nothing.
    pub fn note(&mut self, event: &Event) {
        if let Some(image) = event.image() {
            if Some(image.origin()) == self.door {
                let new = self.ids.insert(image.id);
                // A job appended again by compaction is as before.
                if new || !matches!(event, Event::Compacted(_)) {
                    self.changed(image.id, !matches!(event, Event::Finished(_)));
                }
            }
            return;
        }
        if self.ids.is_empty() {
            return;
        }
        match event {
            Event::Gone(gone) => {
                for id in &gone.ids {
                    if self.ids.remove(id) {
                        self.changed(*id, false);
                    }
                }
            }
            Event::StateSet(set) => self.changed_if_ours(set.id),
            Event::Leased(leased) => self.changed_if_ours(leased.id),
            Event::Requeued(requeued) => self.changed_if_ours(requeued.id),
            Event::Edited(edited) => self.changed_if_ours(edited.id),
            Event::Ready(ready) => self.changed_if_ours(ready.id),
            Event::BlockerEnded(ended) => self.changed_if_ours(ended.id),
            Event::Deleted(deleted) => self.changed_if_ours(deleted.id),
            // The copy has nothing of it any more.
            Event::Undeleted(undeleted) if self.ids.contains(&undeleted.id) => {
                self.changed(undeleted.id, true);
            }
            _ => {}
        }
    }

    /// A job is to be taken again, if it is the door's.
    pub fn changed_if_ours(&mut self, id: u64) {
        if self.ids.contains(&id) {
            self.changed(id, false);
        }
    }

    fn changed(&mut self, id: u64, payload: bool) {
        if self.walk.is_some_and(|from| id >= from) {
            return;
        }
        *self.changed.entry(id).or_default() |= payload;
        if self.changed.len() > CHANGES_MAX {
            self.walk_all();
        }
    }

    /// All jobs are to be taken, whatever was taken before.
    pub fn walk_all(&mut self) {
        self.changed.clear();
        self.round.clear();
        self.walk = Some(0);
        self.restart = true;
    }

    /// The next few jobs, with whether their payload may be another one.
    pub fn take(&mut self, limit: usize) -> Vec<(u64, bool)> {
        if !self.has_more() {
            std::mem::swap(&mut self.changed, &mut self.round);
        }
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(first) = self.round.pop_first() else { break };
            taken.push(first);
        }
        let Some(from) = self.walk else { return taken };
        let left = limit - taken.len();
        let walked: Vec<u64> = self.ids.range(from..).take(left).copied().collect();
        self.walk = match walked.last() {
            _ if left == 0 => Some(from),
            Some(last) if walked.len() == left => Some(last + 1),
            _ => None,
        };
        taken.extend(walked.into_iter().map(|id| (id, true)));
        taken
    }

    /// A job that was taken is to be taken again in this round.
    pub fn give_back(&mut self, id: u64, payload: bool) {
        *self.round.entry(id).or_default() |= payload;
    }

    /// Whether the round goes on.
    pub fn has_more(&self) -> bool {
        self.walk.is_some() || !self.round.is_empty()
    }

    /// Whether the next jobs to be taken are the first of a walk over all of them.
    pub fn take_restart(&mut self) -> bool {
        std::mem::take(&mut self.restart)
    }

    /// How many jobs are to be taken, roughly.
    pub fn waiting(&self) -> usize {
        self.walk.map_or(0, |_| self.ids.len()) + self.changed.len() + self.round.len()
    }
}

#[cfg(test)]
mod tests {
    use spindle_core::JobImage;

    use super::*;

    fn submitted(id: u64, origin: Origin) -> Event {
        Event::Submitted(JobImage { id, origin: origin as i32, ..JobImage::default() })
    }

    #[test]
    fn changes_are_taken_once_and_a_walk_takes_all() {
        let mut jobs = ChangeSet::of(Some(Origin::Jobq));
        for id in 1..=5 {
            jobs.note(&submitted(id, Origin::Jobq));
        }
        jobs.note(&submitted(6, Origin::Workq));
        assert_eq!(jobs.take(2), [(1, true), (2, true)]);
        let ids = |taken: Vec<(u64, bool)>| taken.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(jobs.take(9)), [3, 4, 5]);
        assert!(!jobs.has_more() && jobs.take(9).is_empty());
        jobs.walk_all();
        assert_eq!(ids(jobs.take(2)), [1, 2]);
        let gone = spindle_core::event::Gone { ids: vec![1, 4], cause: 8 };
        jobs.note(&Event::Gone(gone));
        assert_eq!(ids(jobs.take(9)), [3, 5], "4 was not taken yet, and is gone");
        assert!(!jobs.has_more());
        assert_eq!(ids(jobs.take(9)), [1], "it was taken, so its end is news");
    }

    #[test]
    fn too_many_changes_become_a_walk() {
        let mut jobs = ChangeSet::of(Some(Origin::Jobq));
        for id in 1..=CHANGES_MAX as u64 + 1 {
            jobs.note(&submitted(id, Origin::Jobq));
        }
        assert!(jobs.changed.is_empty() && jobs.restart);
        assert_eq!(jobs.take(2), [(1, true), (2, true)]);
    }
}
