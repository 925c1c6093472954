//! The targets, their queues and their polls. Pure bookkeeping: no clock, no I/O.

use std::collections::{HashMap, VecDeque};

use indexmap::IndexMap;
use spindle_jobd_master::{wire::Concurrency, worker_status::TargetStatus};

use crate::table::RowId;

/// How far a target's polls have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    /// No poll came since the last fetch began.
    Idle,
    /// A poll came; a fetch follows when the target has room.
    Wanted,
    /// A fetch is under way. `again`: a poll came after it had begun.
    Fetching { again: bool },
}

#[derive(Debug)]
struct Target {
    concurrency: Concurrency,
    paused: bool,
    /// Taken out of the configuration while it had jobs: it is removed when they have ended.
    leaving: bool,
    queued: VecDeque<RowId>,
    active: usize,
    /// Slots kept free for rows that were asked for one by one.
    asked: usize,
    poll: Poll,
}

impl Target {
    fn new(concurrency: Concurrency) -> Self {
        Self {
            concurrency,
            paused: false,
            leaving: false,
            queued: VecDeque::new(),
            active: 0,
            asked: 0,
            poll: Poll::Idle,
        }
    }

    fn length(&self) -> usize {
        self.queued.len() + self.active
    }

    fn has_slot(&self) -> bool {
        !self.paused && self.active < self.concurrency.value() as usize
    }

    /// Whether it may take rows: those of a paused target are better left to other workers.
    fn has_room(&self) -> bool {
        !self.paused && self.length() < self.concurrency.value() as usize
    }

    /// Whether one more row may be asked for: there is a slot for each row that comes.
    fn may_ask(&self) -> bool {
        const ASKED_MAX: usize = 4;
        let expected = self.length() + self.asked;
        !self.paused
            && !self.leaving
            && self.asked < ASKED_MAX
            && expected < self.concurrency.value() as usize
    }
}

/// All targets of a worker, in the order they were named. Errors are texts for the client.
#[derive(Debug, Default)]
pub(super) struct Queues {
    targets: IndexMap<String, Target>,
    /// Where the search for the next start goes on, so that no target starves another.
    turn: usize,
}

impl Queues {
    /// These targets, empty.
    pub fn new(targets: &[(String, Concurrency)]) -> Self {
        let target =
            |(name, concurrency): &(_, _)| (String::clone(name), Target::new(*concurrency));
        Self { targets: targets.iter().map(target).collect(), turn: 0 }
    }

    /// The names of the targets it serves.
    pub fn names(&self) -> Vec<String> {
        let served = self.targets.iter().filter(|(_, target)| !target.leaving);
        served.map(|(name, _)| name.clone()).collect()
    }

    fn served(&mut self, name: &str) -> Option<&mut Target> {
        self.targets.get_mut(name).filter(|target| !target.leaving)
    }

    /// Does something with each of these targets, or with all.
    fn each(
        &mut self,
        names: Option<&[String]>,
        mut change: impl FnMut(&mut Target),
    ) -> Result<(), String> {
        let Some(names) = names else {
            self.targets.values_mut().for_each(change);
            return Ok(());
        };
        if let Some(unknown) = names.iter().find(|name| self.served(name).is_none()) {
            return Err(format!("invalid target '{unknown}'"));
        }
        for name in names {
            self.served(name).into_iter().for_each(&mut change);
        }
        Ok(())
    }

    /// There may be new rows for these targets, or for any.
    pub fn poll(&mut self, names: Option<&[String]>) -> Result<(), String> {
        self.each(names, |target| match &mut target.poll {
            Poll::Fetching { again } => *again = true,
            poll => *poll = Poll::Wanted,
        })
    }

    /// Starts nothing of these targets any more. What runs goes on.
    pub fn pause(&mut self, names: Option<&[String]>) -> Result<(), String> {
        self.each(names, |target| target.paused = true)
    }

    /// Goes on with these targets.
    pub fn resume(&mut self, names: Option<&[String]>) -> Result<(), String> {
        self.each(names, |target| target.paused = false)
    }

    /// The targets to fetch rows for now, if any. [`Queues::fetched`] must follow.
    pub fn next_fetch(&mut self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for (name, target) in &mut self.targets {
            if target.poll == Poll::Wanted && target.has_room() && !target.leaving {
                target.poll = Poll::Fetching { again: false };
                names.push(name.clone());
            }
        }
        (!names.is_empty()).then_some(names)
    }

    /// A fetch has ended. `more`: there may be more rows, so it counts as another poll.
    pub fn fetched(&mut self, names: &[String], more: bool) {
        for name in names {
            let Some(target) = self.targets.get_mut(name) else { continue };
            if let Poll::Fetching { again } = target.poll {
                target.poll = if again || more { Poll::Wanted } else { Poll::Idle };
            }
        }
    }

    /// A target to ask one row for. [`Queues::asked`] must follow, whatever came of it.
    pub fn next_ask(&mut self) -> Option<String> {
        let (name, target) = self.targets.iter_mut().find(|(_, target)| target.may_ask())?;
        target.asked += 1;
        Some(name.clone())
    }

    /// Whether a row of this target is still wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.targets.get(name).is_some_and(|target| !target.paused && !target.leaving)
    }

    /// One row was asked for and came, or did not.
    pub fn asked(&mut self, name: &str) {
        if let Some(target) = self.targets.get_mut(name) {
            target.asked = target.asked.saturating_sub(1);
        }
    }

    /// Puts an accepted row at its target's end. `false` when the target is gone.
    #[must_use]
    pub fn push(&mut self, target: &str, id: RowId) -> bool {
        let Some(target) = self.targets.get_mut(target) else { return false };
        target.queued.push_back(id);
        true
    }

    /// The next row to start, which takes its slot with it until [`Queues::ended`].
    pub fn next_start(&mut self) -> Option<RowId> {
        let count = self.targets.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let Some((_, target)) = self.targets.get_index_mut(index) else { continue };
            if !target.has_slot() {
                continue;
            }
            if let Some(id) = target.queued.pop_front() {
                target.active += 1;
                self.turn = index + 1;
                return Some(id);
            }
        }
        None
    }

    /// How many rows of each served target could start now, if any.
    pub fn free_slots(&self) -> HashMap<String, usize> {
        let free = |target: &Target| {
            let is_open = !target.paused && !target.leaving;
            let taken = target.length() + target.asked;
            if is_open { (target.concurrency.value() as usize).saturating_sub(taken) } else { 0 }
        };
        let each = self.targets.iter().map(|(name, target)| (name.clone(), free(target)));
        each.filter(|(_, free)| *free > 0).collect()
    }

    /// Takes a slot for a row that needs no place in the queue, until [`Queues::ended`]. `false`
    /// when none is free.
    #[must_use]
    pub fn take_slot(&mut self, name: &str) -> bool {
        let Some(target) = self.targets.get_mut(name) else { return false };
        let is_free = target.has_slot() && target.queued.is_empty();
        target.active += usize::from(is_free);
        is_free
    }

    /// A started row's slot is free again.
    pub fn ended(&mut self, name: &str) {
        let Some(target) = self.targets.get_mut(name) else { return };
        target.active = target.active.saturating_sub(1);
        if target.leaving && target.length() == 0 {
            self.targets.shift_remove(name);
        }
    }

    /// Takes everything out of the queues that has not started.
    pub fn drain_queued(&mut self) -> Vec<RowId> {
        self.targets.values_mut().flat_map(|target| target.queued.drain(..)).collect()
    }

    /// Adds a target.
    pub fn add(&mut self, name: &str, concurrency: Concurrency) -> Result<(), String> {
        let fresh = || Target { leaving: true, ..Target::new(concurrency) };
        let target = self.targets.entry(name.to_owned()).or_insert_with(fresh);
        if !std::mem::replace(&mut target.leaving, false) {
            return Err(format!("target '{name}' already added"));
        }
        target.concurrency = concurrency;
        Ok(())
    }

    /// Removes a target that has no jobs.
    pub fn remove(&mut self, name: &str) -> Result<(), String> {
        let target = self.served(name).ok_or_else(|| format!("target '{name}' not found"))?;
        if target.length() > 0 {
            return Err("queue is not empty".to_owned());
        }
        self.targets.shift_remove(name);
        Ok(())
    }

    /// Changes how many jobs of a target may run at the same time. What runs goes on.
    pub fn set_concurrency(&mut self, name: &str, concurrency: Concurrency) -> Result<(), String> {
        let target = self.served(name).ok_or_else(|| format!("target '{name}' not found"))?;
        target.concurrency = concurrency;
        Ok(())
    }

    /// Serves exactly these targets from now on. One that is not among them and has jobs leaves
    /// when they have ended.
    pub fn retarget(&mut self, targets: &[(String, Concurrency)]) {
        self.targets.retain(|name, target| {
            target.leaving = !targets.iter().any(|(kept, _)| kept == name);
            !target.leaving || target.length() > 0
        });
        for (name, concurrency) in targets {
            match self.targets.get_mut(name) {
                Some(target) => target.concurrency = *concurrency,
                None => drop(self.targets.insert(name.clone(), Target::new(*concurrency))),
            }
        }
    }

    /// What `status` says of each target.
    pub fn status(&self) -> IndexMap<String, TargetStatus> {
        let status = |target: &Target| TargetStatus {
            paused: target.paused,
            concurrency: target.concurrency.value(),
            length: target.length(),
        };
        self.targets.iter().map(|(name, target)| (name.clone(), status(target))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(value: i64) -> Concurrency {
        Concurrency::new(value).unwrap()
    }

    fn queues() -> Queues {
        Queues::new(&[("low".to_owned(), limit(1)), ("normal".to_owned(), limit(3))])
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn length(queues: &Queues, target: &str) -> usize {
        queues.status()[target].length
    }

    #[test]
    fn no_more_start_than_the_concurrency_allows() {
        let mut queues = queues();
        for id in 1..=3 {
            assert!(queues.push("low", RowId(id)));
        }
        assert_eq!(queues.next_start(), Some(RowId(1)));
        assert_eq!(queues.next_start(), None);
        assert_eq!(length(&queues, "low"), 3);
        queues.ended("low");
        assert_eq!(queues.next_start(), Some(RowId(2)));
        queues.set_concurrency("low", limit(2)).unwrap();
        assert_eq!(queues.next_start(), Some(RowId(3)));
    }

    #[test]
    fn a_slot_is_taken_past_the_queue_only_when_nobody_waits_for_it() {
        let mut queues = queues();
        assert_eq!(queues.free_slots(), [("low".to_owned(), 1), ("normal".to_owned(), 3)].into());
        assert!(queues.take_slot("low") && !queues.take_slot("low") && !queues.take_slot("gone"));
        assert_eq!(queues.free_slots(), [("normal".to_owned(), 3)].into());
        assert!(queues.push("normal", RowId(1)));
        assert!(!queues.take_slot("normal"), "row 1 is first");
        queues.next_start().unwrap();
        assert_eq!(queues.free_slots()["normal"], 2);
        queues.pause(None).unwrap();
        queues.ended("low");
        assert!(queues.free_slots().is_empty() && !queues.take_slot("low"));
        queues.resume(None).unwrap();
        assert!(queues.take_slot("low"));
    }

    #[test]
    fn a_poll_of_a_full_target_is_kept_until_it_has_room() {
        let mut queues = queues();
        assert!(queues.push("low", RowId(1)));
        queues.next_start().unwrap();
        queues.poll(Some(&names(&["low"]))).unwrap();
        assert_eq!(queues.next_fetch(), None);
        queues.ended("low");
        assert_eq!(queues.next_fetch(), Some(names(&["low"])));
        queues.fetched(&names(&["low"]), false);
        assert_eq!(queues.next_fetch(), None);
    }

    #[test]
    fn a_poll_of_several_targets_fetches_for_those_with_room() {
        let mut queues = queues();
        assert!(queues.push("low", RowId(1)));
        queues.poll(None).unwrap();
        assert_eq!(queues.next_fetch(), Some(names(&["normal"])));
        queues.fetched(&names(&["normal"]), false);
        queues.next_start().unwrap();
        queues.ended("low");
        assert_eq!(queues.next_fetch(), Some(names(&["low"])));
    }

    #[test]
    fn a_fetch_that_came_full_is_followed_by_another() {
        let mut queues = queues();
        queues.poll(Some(&names(&["normal"]))).unwrap();
        let fetch = queues.next_fetch().unwrap();
        queues.fetched(&fetch, true);
        assert_eq!(queues.next_fetch(), Some(names(&["normal"])));
    }

    #[test]
    fn rows_are_asked_for_only_where_there_is_a_slot_for_each() {
        let mut queues = queues();
        let mut asks: Vec<String> = std::iter::from_fn(|| queues.next_ask()).collect();
        asks.sort_unstable();
        assert_eq!(asks, ["low", "normal", "normal", "normal"]);
        queues.asked("normal");
        assert!(queues.push("normal", RowId(1)));
        assert_eq!(queues.next_ask(), None, "the row has the slot it was asked for");
        queues.next_start().unwrap();
        assert_eq!(queues.next_ask(), None);
        queues.ended("normal");
        assert_eq!(queues.next_ask().as_deref(), Some("normal"));
        queues.pause(Some(&names(&["low"]))).unwrap();
        assert!(!queues.wants("low") && queues.wants("normal") && !queues.wants("gone"));
        queues.asked("low");
        assert_eq!(queues.next_ask(), None, "nothing is asked for a paused target");
    }

    #[test]
    fn a_poll_that_comes_during_a_fetch_is_not_lost() {
        let mut queues = queues();
        queues.poll(None).unwrap();
        let fetch = queues.next_fetch().unwrap();
        queues.poll(Some(&names(&["low"]))).unwrap();
        assert_eq!(queues.next_fetch(), None, "never two fetches of one target at a time");
        queues.fetched(&fetch, false);
        assert_eq!(queues.next_fetch(), Some(names(&["low"])));
    }

    #[test]
    fn a_paused_target_starts_and_fetches_nothing_even_with_free_slots() {
        let mut queues = queues();
        queues.pause(Some(&names(&["normal"]))).unwrap();
        assert!(queues.push("normal", RowId(1)));
        queues.poll(Some(&names(&["normal"]))).unwrap();
        assert_eq!((queues.next_start(), queues.next_fetch()), (None, None));
        queues.resume(None).unwrap();
        assert_eq!(queues.next_start(), Some(RowId(1)));
        assert_eq!(queues.next_fetch(), Some(names(&["normal"])));
    }

    #[test]
    fn an_unknown_target_changes_nothing_at_all() {
        let mut queues = queues();
        let asked = names(&["low", "nope"]);
        assert_eq!(queues.pause(Some(&asked)).unwrap_err(), "invalid target 'nope'");
        assert!(!queues.status()["low"].paused);
        assert_eq!(queues.poll(Some(&asked)).unwrap_err(), "invalid target 'nope'");
        assert_eq!(queues.next_fetch(), None);
    }

    #[test]
    fn targets_come_and_go_with_the_originals_words() {
        let mut queues = queues();
        queues.add("new", limit(2)).unwrap();
        assert_eq!(queues.add("new", limit(2)).unwrap_err(), "target 'new' already added");
        assert!(queues.push("new", RowId(1)));
        assert_eq!(queues.remove("new").unwrap_err(), "queue is not empty");
        queues.drain_queued();
        queues.remove("new").unwrap();
        assert_eq!(queues.remove("new").unwrap_err(), "target 'new' not found");
        let unknown = queues.set_concurrency("new", limit(9)).unwrap_err();
        assert_eq!(unknown, "target 'new' not found");
        assert!(!queues.push("new", RowId(1)));
    }

    #[test]
    fn a_reload_lets_a_removed_targets_jobs_end_first() {
        let mut queues = queues();
        assert!(queues.push("low", RowId(1)));
        queues.retarget(&[("normal".to_owned(), limit(7)), ("new".to_owned(), limit(1))]);
        assert_eq!(queues.names(), ["normal", "new"]);
        assert_eq!(queues.status()["normal"].concurrency, 7);
        queues.poll(None).unwrap();
        assert_eq!(queues.next_start(), Some(RowId(1)));
        assert_eq!(queues.next_fetch(), Some(names(&["normal", "new"])));
        queues.ended("low");
        assert!(!queues.status().contains_key("low"));
    }

    #[test]
    fn targets_take_turns() {
        let mut queues = queues();
        queues.set_concurrency("low", limit(9)).unwrap();
        for id in [1, 3, 5] {
            assert!(queues.push("low", RowId(id)));
            assert!(queues.push("normal", RowId(id + 1)));
        }
        let order: Vec<_> = std::iter::from_fn(|| queues.next_start()).map(|id| id.0).collect();
        assert_eq!(order, [1, 2, 3, 4, 5, 6]);
    }
}
