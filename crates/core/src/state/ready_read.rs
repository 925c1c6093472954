//! Reading the order of ready jobs: lists of them, and where one of them stands.

use std::collections::BTreeMap;

use super::ordered_list::merged;
use super::read::GROUPS_COUNTED_MAX;
use super::shares::{Discipline, Share, Turn, Turns};
use super::*;
use crate::job::{JobId, Status};

/// Shares that are looked at to say how many jobs come before one of them.
const SHARES_COUNTED_MAX: usize = 1_024;

/// How many ready jobs of a queue come before one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyBefore {
    /// So many.
    pub count: usize,
    /// There may be more: the queue has too many groups or keys to look at all of them.
    pub at_least: bool,
}

/// Where a ready job of a fair queue stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FairPlace {
    /// Whose share it is in; empty for the one of jobs without key.
    pub key: Bytes,
    /// Ready jobs of its share before it.
    pub before: ReadyBefore,
    /// How many keys have ready jobs, the jobs without key counted as one.
    pub keys: usize,
    /// Jobs of its share that start in one turn.
    pub weight: u32,
}

type Jobs<'a> = Box<dyn Iterator<Item = u32> + 'a>;

impl State {
    /// Ready jobs of a queue in the order they would be leased, after passing over some. Jobs that
    /// constraints hold back stand where they would if none did; shares of a fair queue of which
    /// constraints hold back all jobs come last.
    pub fn ready_jobs<'a>(
        &'a self,
        queue: &[u8],
        skip: usize,
    ) -> Box<dyn Iterator<Item = JobView<'a>> + 'a> {
        let Some(queue) = self.queue(queue) else { return Box::new(std::iter::empty()) };
        let view = move |number| self.view(number);
        let full: Vec<&Group> = match queue.earlier[..] {
            [] if !queue.is_fair() => full_groups(queue.groups.iter().map(AsRef::as_ref)),
            _ => Vec::new(),
        };
        if let [group] = full[..] {
            return Box::new(group.ready.iter_after(skip).map(view));
        }
        let jobs = queue.disciplines().flat_map(move |one| self.jobs_by(queue, one));
        Box::new(jobs.skip(skip).map(view))
    }

    fn jobs_by<'a>(&'a self, queue: &'a Queue, discipline: &'a Discipline) -> Jobs<'a> {
        match &discipline.turns {
            Some(turns) => self.jobs_in_turn(queue, discipline, turns),
            None => self.jobs_of(queue, discipline.shared),
        }
    }

    /// The jobs of a share, by priority and age.
    fn jobs_of<'a>(&'a self, queue: &'a Queue, share: u32) -> Jobs<'a> {
        let groups = full_groups(queue.groups_of(share));
        let Some(aging_ms) = groups.first().map(|group| group.aging_ms) else {
            return Box::new(std::iter::empty());
        };
        let lists = groups.into_iter().map(|group| group.ready.iter_after(0));
        Box::new(merged(lists, move |number| self.jobs.live[number].ready_key(aging_ms)))
    }

    /// The jobs of all shares, as their turns come.
    fn jobs_in_turn<'a>(
        &'a self,
        queue: &'a Queue,
        discipline: &'a Discipline,
        turns: &'a Turns,
    ) -> Jobs<'a> {
        let mut first = turns
            .in_order(true)
            .filter_map(|number| Some((queue.share(number)?.turn, number)))
            .peekable();
        let mut again: BTreeMap<Turn, (u32, std::iter::Peekable<Jobs<'a>>)> = BTreeMap::new();
        let mut given = turns.given();
        let in_turn = std::iter::from_fn(move || {
            let back = again.first_key_value().map(|(turn, _)| *turn);
            let fresh = first.next_if(|(turn, _)| back.is_none_or(|back| *turn < back));
            let (turn, (number, mut jobs)) = match fresh {
                Some((turn, number)) => (turn, (number, self.jobs_of(queue, number).peekable())),
                None => again.pop_first()?,
            };
            let job = jobs.next();
            if jobs.peek().is_some() {
                given += 1;
                let at = turn.at.saturating_add(queue.turn_length(number));
                again.insert(Turn { at, nth: given }, (number, jobs));
            }
            job
        });
        let is_held = |number: &u32| {
            queue.share(*number).is_some_and(|it| it.heads.iter().all(Heads::is_empty))
        };
        let held = discipline.shares().filter(is_held);
        Box::new(in_turn.chain(held.flat_map(move |number| self.jobs_of(queue, number))))
    }

    /// How many ready jobs of its queue come before a job, if no constraint holds any of them back;
    /// none if the job is not ready. Where the weights of keys differ, it may be one job of each key
    /// more or less.
    pub fn ready_before(&self, id: JobId) -> Option<ReadyBefore> {
        let (queue, share, job) = self.share_of(id)?;
        let mut before = self.before_in_share(queue, share, job);
        let is_present = queue.discipline.shares_contain(queue, share);
        match queue.discipline.turns.as_deref() {
            _ if !is_present => {
                before.count += queue.discipline.ready;
                before.at_least = true;
            }
            Some(turns) => count_turns(queue, turns, share, &mut before),
            None => {}
        }
        Some(before)
    }

    /// Where a ready job of a fair queue stands; none if it is not ready, or its queue is not fair.
    pub fn fair_place(&self, id: JobId) -> Option<FairPlace> {
        let (queue, number, job) = self.share_of(id)?;
        let turns = queue.discipline.turns.as_deref()?;
        let share = queue.share(number)?;
        let shared = queue.share(queue.discipline.shared).is_some_and(|share| share.ready > 0);
        Some(FairPlace {
            key: share.key.clone(),
            before: self.before_in_share(queue, number, job),
            keys: turns.by_key.len() + usize::from(shared),
            weight: queue.settings.fair.as_ref().map_or(1, |fair| fair.weight_of(&share.key)),
        })
    }

    /// The queue of a ready job, the number of its share, and its own.
    fn share_of(&self, id: JobId) -> Option<(&Queue, u32, u32)> {
        let job = self.find_live(id).filter(|job| self.live_job(*job).status() == Status::Ready)?;
        let queue = self.queue_at(self.live_job(job).queue())?;
        let group = queue.group(queue.group_of(job, &self.jobs.live)?)?;
        Some((queue, group.share, job))
    }

    fn before_in_share(&self, queue: &Queue, share: u32, job: u32) -> ReadyBefore {
        let mut groups = queue.groups_of(share).filter(|group| !group.ready.is_empty());
        let before = |group: &Group| {
            let key_of = |number: u32| self.jobs.live[number].ready_key(group.aging_ms);
            group.ready.count_below(key_of(job), key_of)
        };
        let count = groups.by_ref().take(GROUPS_COUNTED_MAX).map(before).sum();
        ReadyBefore { count, at_least: groups.next().is_some() }
    }
}

/// Adds the jobs of other shares that come before one of this share.
fn count_turns(queue: &Queue, turns: &Turns, number: u32, before: &mut ReadyBefore) {
    let Some(share) = queue.share(number) else { return };
    let (own, own_length) = (before.count as u64, queue.turn_length(number));
    let at = share.turn.at.saturating_add(own.saturating_mul(own_length));
    let come_before = |other: &Share, length: u64| {
        let Some(ahead) = at.checked_sub(other.turn.at) else { return 0 };
        let nth = ahead / length;
        // Of two shares that reach the same time, the one that reached it first comes first.
        let (theirs, ours) = ((nth, other.turn.nth), (own, share.turn.nth));
        let is_tie = ahead.is_multiple_of(length);
        let is_last_before = !is_tie
            || if length == own_length || nth.min(own) == 0 {
                theirs < ours
            } else {
                length > own_length
            };
        (nth as usize + usize::from(is_last_before)).min(other.ready)
    };
    let mut others = turns.in_order(true).filter(|other| *other != number);
    for other in others.by_ref().take(SHARES_COUNTED_MAX) {
        if let Some(share) = queue.share(other) {
            before.count += come_before(share, queue.turn_length(other));
        }
    }
    before.at_least |= others.next().is_some();
}

fn full_groups<'a>(groups: impl Iterator<Item = &'a Group>) -> Vec<&'a Group> {
    groups.filter(|group| !group.ready.is_empty()).collect()
}
