//! Where queues are that were moved between shards, as the model has it.

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::places::{Known, Placed, Places, Stage};
use spindle_core::queue::{Constraint, LimitScope, QueuePattern, QueueSettings};
use spindle_core::seat::{JOBQ_QUEUE, Seat};
use spindle_core::{Rejection, State};

use super::Model;
use super::refuse::Refusals;

/// The log's records of places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Which shard the log is.
    pub seat: Seat,
    moves: u64,
    map: BTreeMap<Bytes, Placed>,
    known: BTreeMap<Bytes, Known>,
}

impl Moved {
    /// What this shard knows of a queue.
    pub fn known(&self, queue: &[u8]) -> Option<&Known> {
        self.known.get(queue)
    }

    /// The newest move of a queue that the map has.
    pub fn placed(&self, queue: &[u8]) -> Option<&Placed> {
        self.map.get(queue)
    }

    fn is_shared(&self) -> bool {
        self.seat.shards > 1
    }

    fn home(&self, queue: &[u8]) -> u32 {
        self.seat.shard_of(queue).into()
    }
}

impl Model {
    /// The shard that a queue's new jobs go to, if they are not taken here. `is_bound`: the new job
    /// belongs to something that is here.
    fn taken_by(&self, queue: &[u8], is_bound: bool) -> Option<u8> {
        let moved = &self.moved;
        let there = match moved.known.get(queue) {
            _ if !moved.is_shared() => None,
            None => Some(moved.home(queue)).filter(|home| *home != u32::from(moved.seat.shard)),
            Some(known) => match known.stage() {
                Stage::Open | Stage::Offered => None,
                Stage::Sealed if is_bound => None,
                Stage::Sealed | Stage::Left => Some(known.shard),
            },
        };
        there.map(|shard| u8::try_from(shard).expect("there are few shards"))
    }

    /// Adds that the queue's jobs are not taken here, if it is so.
    pub(super) fn refuse_place(
        &self,
        queue: &[u8],
        is_bound: bool,
        refusals: Refusals,
    ) -> Refusals {
        match self.taken_by(queue, is_bound) {
            Some(shard) => refusals.or(true, Rejection::OtherShard(shard)),
            None => refusals,
        }
    }

    pub(super) fn refuse_settings(&self, queue: &[u8], refusals: Refusals) -> Refusals {
        let offered = self.moved.known.get(queue).is_some_and(|it| it.stage() == Stage::Offered);
        self.refuse_place(queue, true, refusals).or(offered, Rejection::Moves)
    }

    fn refuse_alone(&self) -> Refusals {
        Refusals::when(!self.moved.is_shared(), Rejection::OtherSeat(self.moved.seat))
    }

    pub(super) fn refuse_placing(&self, queue: &[u8], shard: u8) -> Refusals {
        let before = self.moved.map.get(queue);
        let from = before.map_or(self.moved.home(queue), |placed| placed.shard);
        let moves = from != u32::from(shard) && before.is_some_and(|it| it.drains.is_some());
        self.refuse_alone()
            .or(shard >= self.moved.seat.shards, Rejection::OutOfRange("shard"))
            .or(queue == JOBQ_QUEUE, Rejection::StaysPut)
            .or(moves, Rejection::Moves)
    }

    /// Adds that the constraint is one limit for queues of several shards, if it is so.
    pub(super) fn refuse_scope(
        &self,
        rule: &Constraint,
        scope: LimitScope,
        refusals: Refusals,
    ) -> Refusals {
        // Workloads name one queue or take all.
        let takes_all = QueuePattern::decode(&rule.matcher) == Ok(QueuePattern::Any);
        let spans = takes_all && self.moved.is_shared();
        refusals.or(spans && scope == LimitScope::Whole, Rejection::SpansShards)
    }

    pub(super) fn apply_place(&mut self, queue: &Bytes, shard: u8) {
        let before = self.moved.map.get(queue);
        let from = before.map_or(self.moved.home(queue), |placed| placed.shard);
        if from == u32::from(shard) {
            return;
        }
        self.moved.moves += 1;
        let (queue, version) = (queue.clone(), self.moved.moves);
        let placed =
            Placed { queue: queue.clone(), version, shard: shard.into(), drains: Some(from) };
        self.moved.map.insert(queue, placed);
    }

    pub(super) fn refuse_end_of_drain(&self, queue: &[u8], version: u64) -> Refusals {
        let placed = self.moved.map.get(queue).filter(|it| it.version == version);
        let drains = placed.is_some_and(|it| it.drains.is_some());
        Refusals::when(!drains, Rejection::Stale)
    }

    pub(super) fn apply_end_of_drain(&mut self, queue: &Bytes) {
        let home = self.moved.home(queue);
        let placed = self.moved.map.get_mut(queue).expect("it drains");
        placed.drains = None;
        if placed.shard == home {
            self.moved.map.remove(queue);
        }
    }

    pub(super) fn refuse_known_place(&self, queue: &[u8], version: u64, shard: u8) -> Refusals {
        let is_old = self.moved.known.get(queue).is_some_and(|it| it.version >= version);
        self.refuse_alone()
            .or(shard >= self.moved.seat.shards, Rejection::OutOfRange("shard"))
            .or(is_old, Rejection::Stale)
    }

    pub(super) fn apply_known_place(
        &mut self,
        queue: &Bytes,
        (version, shard): (u64, u8),
        settings: Option<&QueueSettings>,
    ) {
        let here = self.moved.seat.shard;
        let before = self.moved.known.get(queue).map(Known::stage);
        let was_here = match before {
            Some(stage) => matches!(stage, Stage::Open | Stage::Offered),
            None => self.moved.home(queue) == u32::from(here),
        };
        let stage = match before {
            _ if shard == here => Stage::Open,
            _ if was_here => Stage::Offered,
            Some(Stage::Sealed) => Stage::Sealed,
            _ => Stage::Left,
        };
        let own = self.settings(queue);
        let told = (stage == Stage::Offered).then(|| own.clone());
        if let (Stage::Open, Some(settings)) = (stage, settings) {
            self.put_settings(queue, settings);
        }
        let (stage, shard) = (stage as i32, u32::from(shard));
        let known = Known { queue: queue.clone(), version, shard, stage, settings: told };
        self.moved.known.insert(queue.clone(), known);
    }

    /// Why a shard cannot be sealed, or left, now.
    pub(super) fn refuse_step(&self, queue: &[u8], version: u64, from: Stage) -> Refusals {
        let known = self.moved.known.get(queue).filter(|it| it.version == version);
        let is_there = known.is_some_and(|it| it.stage() == from);
        let has_jobs = self.jobs().any(|job| job.queue == queue)
            || self.schedules().any(|it| it.schedule.job.queue == queue)
            || self.batches().any(|it| it.opened.queue == queue);
        Refusals::when(!is_there, Rejection::Stale)
            .or(is_there && from == Stage::Sealed && has_jobs, Rejection::InUse)
    }

    pub(super) fn apply_step(&mut self, queue: &Bytes, to: Stage) {
        if to == Stage::Left {
            self.put_settings(queue, &QueueSettings::default());
        }
        let known = self.moved.known.get_mut(queue).expect("it moves");
        (known.stage, known.settings) = (to as i32, None);
    }

    pub(super) fn compare_places(&self, state: &State) -> Result<(), String> {
        let Moved { seat: _, moves, map, known } = &self.moved;
        let (map, known) = (map.values().cloned().collect(), known.values().cloned().collect());
        let expected = Places { moves: *moves, map, known };
        let places = &state.server().places;
        if *places == expected {
            return Ok(());
        }
        Err(format!("places should be {expected:?} and are {places:?}"))
    }
}
