//! In which order a queue gives its ready jobs out.
//!
//! In a fair queue the ready jobs of a key are its share, and shares take turns. A share has a place
//! in virtual time. The share with the smallest place is next; the queue's virtual time moves to
//! that place, and the share's own place to one turn after it: [`TURN`] / weight. A new share is
//! placed one turn after the queue's virtual time, so it waits for at most one turn of each other
//! share, whatever their jobs are, and a key that was away has saved up nothing (this is
//! self-clocked fair queueing). A share whose groups are all held back keeps its place: it is next
//! when one of them is free, and has one turn to make up for, not all that it missed.
//!
//! A queue that is not fair has one share. Other settings of a queue open a new [`Discipline`]; its
//! ready jobs follow from the earlier one in bounded steps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Faults;
use super::heads::Heads;
use super::live::LiveJob;
use super::ready::{Group, Queue};
use super::slab::Slab;
use crate::job::Label;
use crate::queue::QueueSettings;

/// A turn of a share of weight 1, in virtual time. All weights up to 16 divide it.
pub(crate) const TURN: u64 = 720_720;

/// A queue has at most this many earlier disciplines at once, all of which have jobs left. There
/// are more only while a log is folded.
pub(super) const EARLIER_MAX: usize = 4;

/// The place of a share in virtual time. Shares at the same time keep the order in which they came
/// there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Turn {
    pub at: u64,
    pub nth: u64,
}

impl Turn {
    /// Behind all others: of shares of an earlier discipline.
    const LAST: Turn = Turn { at: u64::MAX, nth: u64::MAX };
}

/// The ready jobs of one key, or in a queue that is not fair all of them.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// Empty for the one of all jobs without key.
    pub key: Bytes,
    /// The number of its discipline.
    discipline: u64,
    /// How many jobs.
    pub ready: usize,
    pub turn: Turn,
    /// Heads of its groups that are not held back: small and large payloads apart.
    pub heads: [Heads; 2],
    /// Its groups without labels: small and large payloads.
    plain: [Option<u32>; 2],
    /// Its groups that compete on behalf of all that wait at a bucket.
    pub probing: BTreeSet<u32>,
}

/// How the ready jobs of a queue are ordered, as its settings say or said.
#[derive(Debug, Clone)]
pub(crate) struct Discipline {
    pub(super) number: u64,
    /// Waiting for this long is a step of priority; 0 for none.
    pub aging_ms: u64,
    /// How many ready jobs are ordered by it.
    pub ready: usize,
    /// The share of jobs without key.
    pub shared: u32,
    /// None if keys do not count.
    pub turns: Option<Box<Turns>>,
}

/// The shares of a fair queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    pub by_key: BTreeMap<Bytes, u32>,
    /// Shares with groups that compete: with small and with large payloads.
    order: [BTreeSet<(Turn, u32)>; 2],
    now: u64,
    given: u64,
    /// Jobs with a key in the share of those without, because there were too many keys.
    keyed_in_shared: usize,
}

impl Turns {
    /// The next place of a share.
    fn next(&mut self, weight: u32) -> Turn {
        self.given += 1;
        let turn = TURN / u64::from(weight.max(1));
        Turn { at: self.now.saturating_add(turn), nth: self.given }
    }

    /// Counts the places given so far.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The shares that compete, the next one first.
    pub fn in_order(&self, with_large: bool) -> impl Iterator<Item = u32> + '_ {
        let mut small = self.order[0].iter().copied().peekable();
        let large = with_large.then(|| self.order[1].iter().copied());
        let mut large = large.into_iter().flatten().peekable();
        std::iter::from_fn(move || {
            let next = match (small.peek().copied(), large.peek().copied()) {
                (Some(one), Some(other)) => one.min(other),
                (one, other) => one.or(other)?,
            };
            small.next_if_eq(&next);
            large.next_if_eq(&next);
            Some(next.1)
        })
    }
}

impl Discipline {
    /// Whether it orders jobs as these settings say.
    fn follows(&self, settings: &QueueSettings) -> bool {
        let aging_ms = settings.aging_ms.unwrap_or_default();
        self.aging_ms == aging_ms && self.turns.is_some() == settings.fair.is_some()
    }

    /// The shares that compete, the next one first.
    pub fn in_order(&self, with_large: bool) -> impl Iterator<Item = u32> + '_ {
        let only = self.turns.is_none().then_some(self.shared);
        let turns = self.turns.as_deref().map(|turns| turns.in_order(with_large));
        only.into_iter().chain(turns.into_iter().flatten())
    }

    /// The share that a job of this key is in, unless it is in that of jobs without key.
    fn share_of(&self, key: &Bytes) -> Option<u32> {
        match &self.turns {
            Some(turns) if !key.is_empty() => turns.by_key.get(key).copied(),
            _ => Some(self.shared),
        }
    }

    /// Whether a share of a queue is one of its shares.
    pub fn shares_contain(&self, queue: &Queue, share: u32) -> bool {
        queue.share(share).is_some_and(|share| share.discipline == self.number)
    }

    /// All its shares.
    pub fn shares(&self) -> impl Iterator<Item = u32> + '_ {
        let keyed = self.turns.iter().flat_map(|turns| turns.by_key.values().copied());
        std::iter::once(self.shared).chain(keyed)
    }
}

impl Queue {
    // ---- disciplines ----

    /// Begins to order jobs as its settings say. Returns whether that changes the order.
    pub(super) fn follow_settings(&mut self) -> bool {
        let is_new = !self.discipline.follows(&self.settings);
        if is_new {
            self.begin_discipline(self.settings.aging_ms.unwrap_or_default());
        }
        is_new
    }

    /// A planted fault: waiting does not count any more. Returns whether it did.
    pub(super) fn forget_aging(&mut self) -> bool {
        let ages = self.discipline.aging_ms > 0;
        if ages {
            self.begin_discipline(0);
        }
        ages
    }

    fn begin_discipline(&mut self, aging_ms: u64) {
        let next = self.open_discipline(aging_ms, self.settings.fair.is_some());
        let before = std::mem::replace(&mut self.discipline, next);
        self.earlier.push(before);
        self.close_earlier();
    }

    /// A discipline without jobs.
    pub(super) fn open_discipline(&mut self, aging_ms: u64, is_fair: bool) -> Discipline {
        self.disciplines += 1;
        let number = self.disciplines;
        let shared = self.shares.insert(Box::new(Share::new(Bytes::new(), number)));
        let turns = is_fair.then(Box::default);
        let discipline = Discipline { number, aging_ms, ready: 0, shared, turns };
        for large in [false, true] {
            self.insert_group(shared, aging_ms, &[], large);
        }
        discipline
    }

    /// Forgets earlier disciplines that have no jobs any more.
    pub(super) fn close_earlier(&mut self) {
        let mut at = 0;
        while let Some(discipline) = self.earlier.get(at) {
            if discipline.ready > 0 {
                at += 1;
                continue;
            }
            let shared = discipline.shared;
            self.earlier.remove(at);
            let plain = self.shares.remove(shared).map(|share| share.plain);
            for group in plain.into_iter().flatten().flatten() {
                self.groups.remove(group);
            }
        }
    }

    /// The present discipline, then earlier ones.
    pub(crate) fn disciplines(&self) -> impl Iterator<Item = &Discipline> {
        std::iter::once(&self.discipline).chain(&self.earlier)
    }

    fn discipline_mut(&mut self, number: u64) -> Option<&mut Discipline> {
        let earlier = self.earlier.iter_mut();
        std::iter::once(&mut self.discipline).chain(earlier).find(|one| one.number == number)
    }

    /// A job of an earlier discipline, one of the next in its order.
    pub(super) fn next_to_reorder(&self) -> Option<u32> {
        let discipline = self.earlier.iter().find(|discipline| discipline.ready > 0)?;
        let is_full = |share: &u32| self.share(*share).is_some_and(|share| share.ready > 0);
        let number = discipline.in_order(true).chain(discipline.shares()).find(is_full)?;
        self.groups_of(number).find_map(|group| group.ready.first())
    }

    // ---- shares ----

    pub(crate) fn share(&self, number: u32) -> Option<&Share> {
        self.shares.find(number).map(AsRef::as_ref)
    }

    /// Whether the queue is fair.
    pub(crate) fn is_fair(&self) -> bool {
        self.discipline.turns.is_some()
    }

    /// The share that a job enters; it is made if it is not there.
    pub(super) fn share_for(&mut self, key: &Bytes, keys_max: usize) -> u32 {
        let Discipline { number, turns, shared, .. } = &mut self.discipline;
        let Some(turns) = turns.as_deref_mut().filter(|_| !key.is_empty()) else { return *shared };
        if let Some(share) = turns.by_key.get(key) {
            return *share;
        }
        if turns.by_key.len() >= keys_max {
            return *shared;
        }
        let share = self.shares.insert(Box::new(Share::new(key.clone(), *number)));
        turns.by_key.insert(key.clone(), share);
        share
    }

    /// A job of a share is ready from now on.
    pub(super) fn count_into_share(&mut self, number: u32, has_key: bool, faults: Faults) {
        let weight = self.weight_of(number);
        let Queue { shares, discipline, pinned, .. } = self;
        let Some(share) = shares.find_mut(number) else { return };
        discipline.ready += 1;
        share.ready += 1;
        let Some(turns) = discipline.turns.as_deref_mut() else { return };
        turns.keyed_in_shared += usize::from(has_key && share.key.is_empty());
        if share.ready == 1 && *pinned != Some(number) {
            share.turn = turns.next(weight);
            if faults.idle_key_saves_turns {
                share.turn.at = TURN / u64::from(weight.max(1));
            }
        }
    }

    /// A job of a share is not ready any more. Its group has let go of it.
    pub(super) fn count_out_of_share(&mut self, number: u32, has_key: bool) {
        let Some(share) = self.shares.find_mut(number) else { return };
        share.ready -= 1;
        let is_shared = share.key.is_empty();
        let discipline = share.discipline;
        if let Some(discipline) = self.discipline_mut(discipline) {
            discipline.ready -= 1;
            if let Some(turns) = discipline.turns.as_deref_mut() {
                turns.keyed_in_shared -= usize::from(has_key && is_shared);
            }
        }
        self.close_share(number);
    }

    /// Forgets the share of a key that has no jobs, unless it is pinned.
    fn close_share(&mut self, number: u32) {
        let is_empty = |share: &Share| share.ready == 0 && !share.key.is_empty();
        if self.pinned == Some(number) || !self.share(number).is_some_and(is_empty) {
            return;
        }
        let Some(share) = self.shares.remove(number) else { return };
        let turns = self.discipline_mut(share.discipline).and_then(|one| one.turns.as_deref_mut());
        if let Some(turns) = turns {
            turns.by_key.remove(&share.key);
        }
    }

    /// A share keeps its place while a job of it leaves and comes back.
    pub(super) fn pin(&mut self, number: u32) {
        self.pinned = Some(number);
    }

    pub(super) fn unpin(&mut self) {
        if let Some(number) = self.pinned.take() {
            self.close_share(number);
        }
    }

    fn weight_of(&self, number: u32) -> u32 {
        let Some(fair) = &self.settings.fair else { return 1 };
        self.share(number).map_or(1, |share| fair.weight_of(&share.key))
    }

    /// How far the share of this number moves on in its turn.
    pub(super) fn turn_length(&self, number: u32) -> u64 {
        TURN / u64::from(self.weight_of(number).max(1))
    }

    /// A job of a share was leased: the share's turn is over.
    pub(super) fn end_turn(&mut self, number: u32, faults: Faults) {
        let weight = if faults.weight_ignored { 1 } else { self.weight_of(number) };
        let is_present =
            self.share(number).is_some_and(|it| it.discipline == self.discipline.number);
        let Queue { shares, discipline, .. } = self;
        let Some(turns) = discipline.turns.as_deref_mut().filter(|_| is_present) else { return };
        let Some(share) = shares.find_mut(number) else { return };
        turns.now = turns.now.max(share.turn.at);
        let turn = turns.next(weight);
        move_share(turns, number, share, turn);
    }

    /// All shares are placed anew, in the order of their first jobs: a new round begins. Whether
    /// these jobs are held back does not count, so the order follows from the jobs alone.
    pub(super) fn begin_round(&mut self) {
        let first = |number: u32| {
            let heads = self.groups_of(number).filter_map(|group| group.head);
            heads.min().map(|head| (head, number))
        };
        let mut round: Vec<(u128, u32)> = self.discipline.shares().filter_map(first).collect();
        round.sort_unstable();
        for (_, number) in round {
            let weight = self.weight_of(number);
            let Queue { shares, discipline, .. } = self;
            let (Some(turns), Some(share)) =
                (discipline.turns.as_deref_mut(), shares.find_mut(number))
            else {
                return;
            };
            let turn = turns.next(weight);
            move_share(turns, number, share, turn);
        }
    }

    // ---- groups ----

    pub(super) fn insert_group(
        &mut self,
        share: u32,
        aging_ms: u64,
        labels: &[Label],
        large: bool,
    ) -> u32 {
        let group = Group { share, aging_ms, labels: labels.to_vec(), large, ..Group::default() };
        let number = self.groups.insert(Box::new(group));
        if !labels.is_empty() {
            self.by_labels.insert((share, labels.to_vec(), large), number);
        } else if let Some(share) = self.shares.find_mut(share) {
            share.plain[usize::from(large)] = Some(number);
        }
        number
    }

    /// The group for these labels, made if it is not there.
    pub(super) fn group_for(&mut self, share: u32, labels: &[Label], large: bool) -> u32 {
        let found = self.find_group(share, labels, large);
        found.unwrap_or_else(|| self.insert_group(share, self.discipline.aging_ms, labels, large))
    }

    /// The groups of a share.
    pub(super) fn groups_of(&self, share: u32) -> impl Iterator<Item = &Group> {
        let plain = self.share(share).map(|share| share.plain);
        let from = (share, Vec::new(), false);
        let labelled = self.by_labels.range(from..).take_while(move |(key, _)| key.0 == share);
        let numbers = plain.into_iter().flatten().flatten();
        let numbers = numbers.chain(labelled.map(|(_, number)| *number));
        numbers.filter_map(|number| self.group(number))
    }

    fn find_group(&self, share: u32, labels: &[Label], large: bool) -> Option<u32> {
        if labels.is_empty() {
            return self.share(share)?.plain[usize::from(large)];
        }
        self.by_labels.get(&(share, labels.to_vec(), large)).copied()
    }

    /// The share whose turn it is, if it is that of this key. Most jobs leave from there, and
    /// comparing one key takes less time than finding it among a hundred thousand.
    fn share_in_turn(&self, key: &Bytes) -> Option<u32> {
        let turns = self.discipline.turns.as_deref()?;
        let (_, next) = turns.order.iter().filter_map(BTreeSet::first).min()?;
        self.share(*next).filter(|share| share.key == key).map(|_| *next)
    }

    /// The group that a ready job is in.
    pub(super) fn group_of(&self, number: u32, jobs: &Slab<LiveJob>) -> Option<u32> {
        let job = &jobs[number];
        let (key, labels, large) = (job.fair_key(), job.labels(), job.is_large());
        let present = &self.discipline;
        let strays = present.turns.as_ref().is_some_and(|turns| turns.keyed_in_shared > 0);
        if self.earlier.is_empty() && !strays {
            let share = self.share_in_turn(key).or_else(|| present.share_of(key))?;
            return self.find_group(share, labels, large);
        }
        let holds = |group: &u32| {
            let Some(group) = self.group(*group) else { return false };
            let key_of = |other: u32| jobs[other].ready_key(group.aging_ms);
            group.ready.find(key_of(number), key_of) == Some(number)
        };
        let places = self.disciplines().flat_map(|one| [one.share_of(key), Some(one.shared)]);
        places.flatten().filter_map(|share| self.find_group(share, labels, large)).find(holds)
    }

    /// Forgets an empty group, unless it is one that is always there.
    pub(super) fn drop_group(&mut self, number: u32) {
        let Some(group) = self.group(number) else { return };
        let (share, large) = (group.share, group.large);
        let is_plain = group.labels.is_empty();
        if is_plain && self.share(share).is_some_and(|share| share.key.is_empty()) {
            return;
        }
        let Some(group) = self.groups.remove(number) else { return };
        if !is_plain {
            self.by_labels.remove(&(share, group.labels, large));
        } else if let Some(share) = self.shares.find_mut(share) {
            share.plain[usize::from(large)] = None;
        }
    }

    // ---- the contest ----

    /// A group has another first job, or none: it competes under that, if it competes.
    pub(super) fn set_head(&mut self, number: u32, head: Option<u128>) {
        let Some(group) = self.groups.find_mut(number) else { return };
        let old = std::mem::replace(&mut group.head, head);
        let (share, large) = (group.share, group.large);
        self.change_heads(share, large, |heads| {
            if let Some(old) = old {
                heads.remove(&(old, number));
            }
            if let Some(head) = head {
                heads.insert((head, number));
            }
        });
    }

    /// A group competes again.
    pub(super) fn compete(&mut self, number: u32) {
        let Some(group) = self.group(number) else { return };
        let (share, large, head) = (group.share, group.large, group.head);
        if let Some(head) = head {
            self.change_heads(share, large, |heads| {
                heads.insert((head, number));
            });
        }
    }

    /// A group no longer competes.
    pub(super) fn stand_back(&mut self, number: u32) {
        let Some(group) = self.group(number) else { return };
        let (share, large, head) = (group.share, group.large, group.head);
        if let Some(head) = head {
            self.change_heads(share, large, |heads| {
                heads.remove(&(head, number));
            });
        }
    }

    /// Changes heads of a share, which is among those that compete as long as there are any.
    fn change_heads(&mut self, number: u32, large: bool, change: impl FnOnce(&mut Heads)) {
        let Some(share) = self.shares.find_mut(number) else { return };
        let heads = &mut share.heads[usize::from(large)];
        let competed = !heads.is_empty();
        change(heads);
        let (competes, turn, discipline) = (!heads.is_empty(), share.turn, share.discipline);
        if competes == competed {
            return;
        }
        let turns = self.discipline_mut(discipline).and_then(|one| one.turns.as_deref_mut());
        let Some(turns) = turns else { return };
        if competes {
            turns.order[usize::from(large)].insert((turn, number));
        } else {
            turns.order[usize::from(large)].remove(&(turn, number));
        }
    }

    /// When the turn of a group's share comes.
    pub(super) fn turn_of(&self, group: &Group) -> Turn {
        match self.share(group.share) {
            Some(share) if share.discipline == self.discipline.number => share.turn,
            _ => Turn::LAST,
        }
    }

    /// A group competes on behalf of all that wait at this bucket.
    pub(super) fn begin_probe(&mut self, number: u32, label: Label) {
        let is_fair = self.is_fair();
        let Some(group) = self.groups.find_mut(number) else { return };
        group.probes = Some(label);
        if let Some(share) = self.shares.find_mut(group.share).filter(|_| is_fair) {
            share.probing.insert(number);
        }
    }

    /// A group competes for itself only, or not at all. Returns the bucket that it probed.
    pub(super) fn end_probe(&mut self, number: u32) -> Option<Label> {
        let group = self.groups.find_mut(number)?;
        let label = group.probes.take()?;
        if let Some(share) = self.shares.find_mut(group.share) {
            share.probing.remove(&number);
        }
        Some(label)
    }
}

/// A share gets another place.
fn move_share(turns: &mut Turns, number: u32, share: &mut Share, turn: Turn) {
    for (order, heads) in turns.order.iter_mut().zip(&share.heads) {
        if !heads.is_empty() {
            order.remove(&(share.turn, number));
            order.insert((turn, number));
        }
    }
    share.turn = turn;
}

impl Share {
    fn new(key: Bytes, discipline: u64) -> Share {
        Share {
            key,
            discipline,
            ready: 0,
            turn: Turn::default(),
            heads: Default::default(),
            plain: [None; 2],
            probing: BTreeSet::new(),
        }
    }
}
